/* Engines: making and freeing them, tables, reading and writing between tasks, several at once. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "models/shard/shard_private.h"
#include "models/storage/storage.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define I64_TABLE(...)                                \
    &(RubatoTableSpec)                                \
    {                                                 \
        .name = "t", .dtype = RUBATO_I64, __VA_ARGS__ \
    }

/* ---- the engine itself ---- */

START_TEST(a_zeroed_config_is_one_process_with_one_server)
{
    RubatoEngine *engine = rubato_engine_new(&(RubatoEngineConfig){ 0 }, NULL);

    ck_assert_ptr_nonnull(engine);
    ck_assert_uint_eq(rubato_engine_node(engine), 0);
    ck_assert_uint_eq(rubato_engine_n_nodes(engine), 1);
    ck_assert_uint_eq(rubato_engine_n_servers(engine), 1);
    ck_assert_uint_eq(rubato_engine_n_workers(engine), 1);
    ck_assert(rubato_engine_barrier(engine, NULL));
    rubato_engine_free(engine);
    rubato_engine_free(NULL);
}
END_TEST

START_TEST(servers_and_workers_are_as_many_as_asked_for)
{
    RubatoEngine *engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 3, .workers = 5 }, NULL);

    ck_assert_uint_eq(rubato_engine_n_servers(engine), 3);
    ck_assert_uint_eq(rubato_engine_n_workers(engine), 5);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(absurd_numbers_of_threads_are_refused)
{
    GError *error = NULL;

    ck_assert_ptr_null(rubato_engine_new(&(RubatoEngineConfig){ .servers = 1u << 31 }, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "2147483648 servers", NULL);
    ck_assert_ptr_null(rubato_engine_new(&(RubatoEngineConfig){ .workers = 1u << 31 }, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "2147483648 workers", NULL);
}
END_TEST

static bool leave_signal(int signal_number, void *user_data)
{
    (void)signal_number;
    (void)user_data;
    return false;
}

/* Each field of a config that has no effect in some combination. */
START_TEST(fields_of_a_config_without_effect_are_refused_with_what_they_need)
{
    static const RubatoAnnouncement worker = { .role = RUBATO_ROLE_WORKER };
    static int data;
    const struct {
        RubatoEngineConfig config;
        const char *field, *needs;
    } idle[] = {
        { { .cluster_file = "x", .announcement = &worker }, "cluster_file", "no announcement" },
        { { .node = 1 }, "node", "needs cluster_file" },
        { { .node = 1, .announcement = &worker }, "node", "needs cluster_file" },
        { { .cluster_file = "x", .servers = 1 }, "servers", "a single process" },
        { { .servers = 1, .announcement = &worker }, "servers", "a single process" },
        { { .cluster_file = "x", .workers = 1 }, "workers", "a single process" },
        { { .workers = 1, .announcement = &worker }, "workers", "a single process" },
        { { .take_signal = leave_signal }, "take_signal", "needs handle_signals" },
        { { .handle_signals = true, .signal_data = &data }, "signal_data", "needs take_signal" },
        { { .log_data = &data }, "log_data", "needs log" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(idle); i++) {
        g_autofree char *begin =
            g_strdup_printf("the engine's %s has no effect here", idle[i].field);
        GError *error = NULL;

        ck_assert_ptr_null(rubato_engine_new(&idle[i].config, &error));
        check_error(&error, RUBATO_ERROR_INVALID, begin, idle[i].needs, NULL);
    }
}
END_TEST

/* An announcement of no role is as none. */
START_TEST(an_announcement_of_no_role_leaves_a_single_process)
{
    static const RubatoAnnouncement alone = { .role = RUBATO_ROLE_NONE };
    RubatoEngine *engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 2, .announcement = &alone }, NULL);

    ck_assert_uint_eq(rubato_engine_n_servers(engine), 2);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_cluster_file_that_is_not_there_is_an_error)
{
    GError *error = NULL;

    ck_assert_ptr_null(
        rubato_engine_new(&(RubatoEngineConfig){ .cluster_file = "no/such.cfg" }, &error));
    ck_assert_ptr_nonnull(error);
    ck_assert_ptr_nonnull(strstr(error->message, "no/such.cfg"));
    g_clear_error(&error);
}
END_TEST

/* ---- tables ---- */

START_TEST(wrong_specs_are_refused_with_what_is_known)
{
    static const struct {
        RubatoTableSpec spec;
        RubatoError code;
        const char *texts[3];
    } wrong[] = {
        { { .name = "t", .model = "bps" },
          RUBATO_ERROR_NOT_FOUND,
          { "model \"bps\"", "asp, bsp, ssp, sparse_ssp", "t" } },
        { { .name = "t", .storage = "disk" },
          RUBATO_ERROR_NOT_FOUND,
          { "storage \"disk\"", "dense", "hash" } },
        { { .name = "t", .update = "mul" },
          RUBATO_ERROR_NOT_FOUND,
          { "update rule \"mul\"", "add", "assign" } },
        { { .name = "t", .init = "xavier" },
          RUBATO_ERROR_NOT_FOUND,
          { "initialiser \"xavier\"", "constant", "normal" } },
        { { .name = "t", .partition = "random" },
          RUBATO_ERROR_NOT_FOUND,
          { "partition \"random\"", "range", "bounds" } },
        { { .name = "t", .record = "tree" },
          RUBATO_ERROR_NOT_FOUND,
          { "record \"tree\"", "hash", "dense" } },
        { { .name = NULL }, RUBATO_ERROR_INVALID, { "name", "", "" } },
        { { .name = "" }, RUBATO_ERROR_INVALID, { "name", "", "" } },
        { { .name = "t", .dtype = (RubatoDtype)99 }, RUBATO_ERROR_INVALID, { "99", "dtype", "" } },
        { { .name = "t", .width = UINT32_MAX }, RUBATO_ERROR_INVALID, { "4294967295", "", "" } },
        { { .name = "t", .storage = "dense" }, RUBATO_ERROR_INVALID, { "n_keys", "", "" } },
        { { .name = "t", .first_key = 5, .n_keys = UINT64_MAX },
          RUBATO_ERROR_INVALID,
          { "beyond the last key", "", "" } },
        { { .name = "t", .chunk_size = 8 }, RUBATO_ERROR_INVALID, { "chunks", "dense", "" } },
        { { .name = "t", .cache = (RubatoCache)7 }, RUBATO_ERROR_INVALID, { "7", "", "" } },
        { { .name = "t", .n_keys = UINT64_MAX / 16 }, RUBATO_ERROR_MEMORY, { "memory", "t", "" } },
    };
    RubatoEngine *engine = engine_with_servers(2);
    GError *error = NULL;

    ck_assert(!rubato_engine_create_table(engine, &wrong[_i].spec, &error));
    check_error(&error, wrong[_i].code, wrong[_i].texts[0], wrong[_i].texts[1], wrong[_i].texts[2],
                NULL);
    create_table(engine, I64_TABLE(.n_keys = 4)); /* nothing is left of it */
    ck_assert_int_eq(read_i64(engine, "t", 3), 0);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_name_is_given_once_and_dropped_names_are_free_again)
{
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoKey key = 2;
    const int64_t five = 5;
    GError *error = NULL;
    float value = -1;

    create_table(engine, I64_TABLE(.n_keys = 4));
    create_table(engine, &(RubatoTableSpec){ .name = "other", .n_keys = 1 });
    ck_assert(!rubato_engine_create_table(engine, I64_TABLE(.n_keys = 4), &error));
    check_error(&error, RUBATO_ERROR_EXISTS, "a table t already", NULL);
    ck_assert(rubato_engine_add(engine, "t", &key, 1, &five, NULL));
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    ck_assert(!rubato_engine_drop_table(engine, "t", &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no table t", "other", NULL);
    ck_assert(!rubato_engine_get(engine, "t", &key, 1, &value, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no table t", NULL);
    create_table(engine, &(RubatoTableSpec){ .name = "t", .n_keys = 3 }); /* f32 this time */
    ck_assert(rubato_engine_get(engine, "t", &key, 1, &value, NULL));
    ck_assert_float_eq(value, 0);
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    ck_assert(rubato_engine_drop_table(engine, "other", NULL));
    ck_assert(!rubato_engine_get(engine, "t", &key, 1, &value, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "no table t; no table has been created", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* The caller may change its spec when create_table has returned. */
START_TEST(a_spec_is_copied)
{
    RubatoEngine *engine = engine_with_servers(2);
    char name[] = "name", model[] = "ssp", partition[] = "bounds";
    RubatoKey bound = 5;
    RubatoTableSpec spec = { .name = name,
                             .dtype = RUBATO_I64,
                             .n_keys = 10,
                             .model = model,
                             .partition = partition,
                             .bounds = &bound,
                             .n_bounds = 1 };

    create_table(engine, &spec);
    memset(name, 'x', 4);
    memset(model, 'x', 3);
    memset(partition, 'x', 6);
    bound = 99;
    ck_assert_int_eq(read_i64(engine, "name", 9), 0);
    ck_assert_uint_eq(count_rows_of(engine, "name", 0), 5);
    rubato_engine_free(engine);
}
END_TEST

/* ---- between tasks ---- */

START_TEST(rows_are_read_and_written_between_tasks)
{
    RubatoEngine *engine = engine_with_servers(3);
    const RubatoKey keys[] = { 9, 0, 9, 4 };
    const int64_t deltas[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    int64_t values[10];

    create_table(engine, I64_TABLE(.n_keys = _i == 0 ? 10 : 0, .model = "bsp"));
    ck_assert(rubato_engine_add(engine, "t", keys, 4, deltas, NULL));
    ck_assert(rubato_engine_get(engine, "t", keys, 4, values, NULL));
    ck_assert_int_eq(values[0], 4);
    ck_assert_int_eq(values[1], 2);
    ck_assert_int_eq(values[2], 4);
    ck_assert_int_eq(values[3], 4);
    ck_assert(rubato_engine_add_range(engine, "t", 0, 10, deltas, NULL));
    ck_assert(rubato_engine_get_range(engine, "t", 0, 10, values, NULL));
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(values[i], i + 1 + (i == 0 ? 2 : i == 9 || i == 4 ? 4 : 0));
    rubato_engine_free(engine);
}
END_TEST

enum { N_LISTED = 20000 };

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
}

/* Key 0 among them, which hash storage keeps apart. */
START_TEST(keys_are_listed_in_order)
{
    RubatoEngine *engine = engine_with_servers(_i == 0 ? 1 : 3);
    g_autofree RubatoKey *added = g_new(RubatoKey, N_LISTED);
    g_autofree RubatoKey *keys = NULL;
    g_autofree int64_t *ones = g_new(int64_t, N_LISTED);
    size_t n = 1;

    create_table(engine, I64_TABLE(.n_keys = 0));
    ck_assert(rubato_engine_list_keys(engine, "t", &keys, &n, NULL));
    ck_assert_uint_eq(n, 0);
    g_clear_pointer(&keys, g_free);

    for (uint64_t i = 0; i < N_LISTED; i++) {
        added[i] = i * UINT64_C(0x9e3779b97f4a7c15);
        ones[i] = 1;
    }
    ck_assert(rubato_engine_add(engine, "t", added, N_LISTED, ones, NULL));
    ck_assert(rubato_engine_add(engine, "t", added, N_LISTED / 2, ones, NULL));
    ck_assert(rubato_engine_list_keys(engine, "t", &keys, &n, NULL));
    qsort(added, N_LISTED, sizeof *added, compare_keys);
    ck_assert_uint_eq(n, N_LISTED);
    ck_assert_mem_eq(keys, added, N_LISTED * sizeof *keys);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(keys_of_a_dense_table_are_its_range)
{
    RubatoEngine *engine = engine_with_servers(2);
    g_autofree RubatoKey *keys = NULL;
    size_t n;
    GError *error = NULL;

    create_table(engine, I64_TABLE(.first_key = 40, .n_keys = 1000));
    ck_assert(rubato_engine_list_keys(engine, "t", &keys, &n, NULL));
    ck_assert_uint_eq(n, 1000);
    for (size_t i = 0; i < n; i++)
        QUICK_ASSERT(keys[i] == 40 + i);
    ck_assert(!rubato_engine_list_keys(engine, "other", &keys, &n, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "other", NULL);
    rubato_engine_free(engine);
}
END_TEST

/* ---- servers that tell what cannot be ---- */

static uint64_t told; /* written before the servers run with it */

static void tell_size(const RubatoStorage *storage, uint64_t *n_rows, uint64_t *n_bytes)
{
    (void)storage;
    *n_rows = told;
    *n_bytes = 0;
}

static void tell_wrongly(Server *server, void *data)
{
    RubatoShard *shard = server_find_shard(server, server->tables->len - 1, server->number);

    shard->ops = data;
}

/* The server only tells how many counts there are; the counts do not exist. */
static void tell_many_counts(Server *server, void *data)
{
    RubatoShard *shard = server_find_shard(server, server->tables->len - 1, server->number);

    shard->updater.bad.counts = data;
}

START_TEST(more_counts_than_a_task_has_workers_are_an_error)
{
    const guint n_told = CLUSTER_MAX_NODES * CLUSTER_MAX_THREADS + 2;
    RubatoEngine *engine = engine_with_servers(1);
    GArray *counts = g_array_new(FALSE, FALSE, 1);
    RubatoBadGradients *found = NULL;
    GError *error = NULL;
    size_t n = 77;

    create_table(engine, I64_TABLE(.n_keys = 10));
    counts->len = n_told;
    servers_run(engine->servers, engine->n_servers, tell_many_counts, counts);
    ck_assert(!rubato_engine_bad_gradients(engine, "t", &found, &n, &error));
    check_error(&error, RUBATO_ERROR_NETWORK, "table t", "server 0 (node 0)", NULL);
    ck_assert(found == NULL && n == 77);
    rubato_engine_free(engine);
}
END_TEST

/* As if a collective call were open: of the thread that makes the next one, or of another. */
START_TEST(a_second_collective_call_is_refused_with_who_makes_the_first)
{
    RubatoEngine *engine = engine_with_servers(1);
    const bool is_own = _i == 0;
    GError *error = NULL;

    pthread_mutex_lock(&engine->lock);
    engine->call.stage = CALL_STAGE_GO;
    engine->call.caller = is_own ? pthread_self() : (pthread_t)0;
    engine->call.text = "table a";
    pthread_mutex_unlock(&engine->lock);
    ck_assert(!rubato_engine_barrier(engine, &error));
    check_error(&error, RUBATO_ERROR_INVALID,
                is_own ? "this thread itself is in a collective call of this engine, table a"
                       : "another thread is in a collective call of this engine, table a",
                NULL);
    pthread_mutex_lock(&engine->lock);
    engine->call.stage = CALL_STAGE_NONE;
    pthread_mutex_unlock(&engine->lock);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(lists_longer_than_any_memory_are_an_error)
{
    static const struct {
        uint32_t servers;
        uint64_t told;
        const char *first_wrong;
    } cases[] = {
        { 1, UINT64_MAX, "server 0 (node 0)" },
        { 2, UINT64_C(1) << 63, "server 0 (node 0)" },
        { 2, (SIZE_MAX / sizeof(RubatoKey)) / 2 + 1, "server 1 (node 0)" }, /* their sum */
    };
    RubatoEngine *engine = engine_with_servers(cases[_i].servers);
    RubatoStorageOps ops = *storage_find("hash");
    RubatoKey *keys = NULL;
    GError *error = NULL;
    size_t n = 77;

    create_table(engine, I64_TABLE(.n_keys = 0));
    told = cases[_i].told;
    ops.size = tell_size;
    servers_run(engine->servers, engine->n_servers, tell_wrongly, &ops);
    ck_assert(!rubato_engine_list_keys(engine, "t", &keys, &n, &error));
    check_error(&error, RUBATO_ERROR_NETWORK, "table t", cases[_i].first_wrong, NULL);
    ck_assert(keys == NULL && n == 77);
    rubato_engine_free(engine);
}
END_TEST

typedef struct {
    RubatoEngine *engine;
    pthread_t thread;
    Event *stop;
    unsigned n_ok, n_other;
    _Atomic unsigned n_gone;
} Accessor;

enum { N_ACCESSES = 300 };

static void *add_often(void *user)
{
    Accessor *accessor = user;
    const RubatoKey keys[] = { 0, 9 };
    const int64_t ones[] = { 1, 1 };

    for (int i = 0; i < N_ACCESSES; i++)
        accessor->n_ok += rubato_engine_add(accessor->engine, "t", keys, 2, ones, NULL);
    return NULL;
}

START_TEST(any_thread_may_read_and_write)
{
    RubatoEngine *engine = engine_with_servers(2);
    Accessor accessors[4];

    create_table(engine, I64_TABLE(.n_keys = 10));
    for (int i = 0; i < 4; i++) {
        accessors[i] = (Accessor){ .engine = engine };
        pthread_create(&accessors[i].thread, NULL, add_often, &accessors[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(accessors[i].thread, NULL);
        ck_assert_uint_eq(accessors[i].n_ok, N_ACCESSES);
    }
    ck_assert_int_eq(read_i64(engine, "t", 0), 4 * N_ACCESSES);
    ck_assert_int_eq(read_i64(engine, "t", 9), 4 * N_ACCESSES);
    rubato_engine_free(engine);
}
END_TEST

static void *access_until_stopped(void *user)
{
    Accessor *accessor = user;
    const RubatoKey keys[] = { 0, 9 };
    int64_t values[] = { 1, 1 };

    while (event_count(accessor->stop) == 0) {
        GError *error = NULL;
        const bool ok = accessor->n_ok % 2 == 0
                            ? rubato_engine_add(accessor->engine, "t", keys, 2, values, &error)
                            : rubato_engine_get(accessor->engine, "t", keys, 2, values, &error);

        if (ok)
            accessor->n_ok++;
        else if (g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND))
            accessor->n_gone++;
        else
            accessor->n_other++;
        g_clear_error(&error);
        sched_yield(); /* so that it is unused now and then */
    }
    return NULL;
}

/* A table exists completely or not at all; and a table that is being read is not dropped. */
START_TEST(dropping_a_table_that_others_read_hurts_nobody)
{
    RubatoEngine *engine = engine_with_servers(2);
    Event stop = EVENT_INIT;
    Accessor accessors[2];
    enum { N_DROPS = 100 };
    unsigned n_dropped = 0;

    for (int i = 0; i < 2; i++) {
        accessors[i] = (Accessor){ .engine = engine, .stop = &stop };
        pthread_create(&accessors[i].thread, NULL, access_until_stopped, &accessors[i]);
    }
    /* and until each has found it gone, however late its thread begins */
    while (n_dropped < N_DROPS || atomic_load(&accessors[0].n_gone) == 0 ||
           atomic_load(&accessors[1].n_gone) == 0) {
        GError *error = NULL;

        create_table(engine, I64_TABLE(.n_keys = 10));
        while (!rubato_engine_drop_table(engine, "t", &error))
            check_error(&error, RUBATO_ERROR_INVALID, "cannot be dropped", NULL);
        n_dropped++;
    }
    event_raise(&stop);
    for (int i = 0; i < 2; i++) {
        pthread_join(accessors[i].thread, NULL);
        ck_assert_uint_eq(accessors[i].n_other, 0);
    }
    rubato_engine_free(engine);
}
END_TEST

/* ---- several ---- */

static bool add_own_number(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = rubato_worker_rank(worker);

    TRY(table != NULL);
    for (int i = 0; i < 100; i++) {
        int64_t seen;

        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        REQUIRE(seen == i * *(const int64_t *)user_data);
        TRY(rubato_kv_table_add(table, &key, 1, user_data, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(two_engines_in_one_process_know_nothing_of_each_other)
{
    RubatoEngine *engines[2];
    RubatoTaskRun *runs[2];
    int64_t numbers[] = { 1, 7 };
    const char *const tables[] = { "t", NULL };

    for (int i = 0; i < 2; i++) {
        const RubatoTask task = { .name = "add",
                                  .run = add_own_number,
                                  .user_data = &numbers[i],
                                  .tables = tables,
                                  .workers_per_node = 2 };

        engines[i] = engine_with_servers(2);
        create_table(engines[i], I64_TABLE(.n_keys = 4, .model = "ssp"));
        runs[i] = rubato_engine_start(engines[i], &task, NULL);
        ck_assert_ptr_nonnull(runs[i]);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert(rubato_task_run_wait(runs[i], NULL));
        ck_assert_int_eq(read_i64(engines[i], "t", 0), 100 * numbers[i]);
        ck_assert_int_eq(read_i64(engines[i], "t", 1), 100 * numbers[i]);
    }
    rubato_engine_free(engines[0]);
    ck_assert_int_eq(read_i64(engines[1], "t", 1), 700);
    rubato_engine_free(engines[1]);
}
END_TEST

static bool wait_for_cancellation(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value;

    event_raise(user_data);
    if (rubato_worker_rank(worker) == 0) {
        while (!rubato_worker_cancelled(worker))
            sched_yield();
        return true;
    }
    TRY(table != NULL && rubato_kv_table_clock(table, error));
    return rubato_kv_table_get(table, &key, 1, &value, error);
}

START_TEST(freeing_an_engine_cancels_what_still_runs)
{
    RubatoEngine *engine = engine_with_servers(2);
    Event begun = EVENT_INIT;
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = { .name = "endless",
                              .run = wait_for_cancellation,
                              .user_data = &begun,
                              .tables = tables,
                              .workers_per_node = 2 };

    create_table(engine, I64_TABLE(.n_keys = 4, .model = "bsp"));
    ck_assert_ptr_nonnull(rubato_engine_start(engine, &task, NULL));
    event_wait(&begun, 2);
    rubato_engine_free(engine);
}
END_TEST

/* ---- misuse ---- */

static void *create_tables(void *user)
{
    Accessor *accessor = user;
    char name[16];

    for (int i = 0; i < 200; i++) {
        GError *error = NULL;

        g_snprintf(name, sizeof name, "t%d", i);
        if (rubato_engine_create_table(accessor->engine,
                                       &(RubatoTableSpec){ .name = name, .n_keys = 1 }, &error))
            accessor->n_ok++;
        else if (g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID) ||
                 g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_EXISTS))
            accessor->n_gone++;
        else
            accessor->n_other++;
        g_clear_error(&error);
    }
    return NULL;
}

START_TEST(collective_calls_of_two_threads_at_once_are_errors_and_no_more)
{
    RubatoEngine *engine = engine_with_servers(1);
    Accessor accessors[2];
    unsigned n_ok = 0;

    for (int i = 0; i < 2; i++) {
        accessors[i] = (Accessor){ .engine = engine };
        pthread_create(&accessors[i].thread, NULL, create_tables, &accessors[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(accessors[i].thread, NULL);
        ck_assert_uint_eq(accessors[i].n_other, 0);
        n_ok += accessors[i].n_ok;
    }
    ck_assert_uint_ge(n_ok, 1);
    create_table(engine, &(RubatoTableSpec){ .name = "last" });
    rubato_engine_free(engine);
}
END_TEST

START_TEST(null_arguments_are_refused_in_the_log)
{
    RubatoEngine *engine;

    g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
    ck_assert_ptr_null(rubato_engine_new(NULL, NULL));
    engine = engine_with_servers(1);
    ck_assert(!rubato_engine_create_table(engine, NULL, NULL));
    ck_assert(!rubato_engine_create_table(NULL, I64_TABLE(), NULL));
    ck_assert(!rubato_engine_drop_table(engine, NULL, NULL));
    ck_assert_ptr_null(rubato_engine_start(engine, NULL, NULL));
    ck_assert(!rubato_engine_run(NULL, NULL, NULL));
    ck_assert(!rubato_task_run_wait(NULL, NULL));
    ck_assert(!rubato_engine_barrier(NULL, NULL));
    ck_assert(!rubato_engine_get(engine, NULL, NULL, 0, NULL, NULL));
    ck_assert(!rubato_engine_add(engine, "t", NULL, 1, NULL, NULL));
    rubato_engine_cancel(NULL);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *cases = tcase_create("engine");

    tcase_add_test(cases, a_zeroed_config_is_one_process_with_one_server);
    tcase_add_test(cases, servers_and_workers_are_as_many_as_asked_for);
    tcase_add_test(cases, absurd_numbers_of_threads_are_refused);
    tcase_add_test(cases, fields_of_a_config_without_effect_are_refused_with_what_they_need);
    tcase_add_test(cases, an_announcement_of_no_role_leaves_a_single_process);
    tcase_add_test(cases, a_cluster_file_that_is_not_there_is_an_error);
    tcase_add_loop_test(cases, wrong_specs_are_refused_with_what_is_known, 0, 15);
    tcase_add_test(cases, a_name_is_given_once_and_dropped_names_are_free_again);
    tcase_add_test(cases, a_spec_is_copied);
    tcase_add_loop_test(cases, rows_are_read_and_written_between_tasks, 0, 2);
    tcase_add_loop_test(cases, keys_are_listed_in_order, 0, 2);
    tcase_add_test(cases, keys_of_a_dense_table_are_its_range);
    tcase_add_test(cases, more_counts_than_a_task_has_workers_are_an_error);
    tcase_add_loop_test(cases, lists_longer_than_any_memory_are_an_error, 0, 3);
    tcase_add_loop_test(cases, a_second_collective_call_is_refused_with_who_makes_the_first, 0, 2);
    tcase_add_test(cases, any_thread_may_read_and_write);
    tcase_add_test(cases, dropping_a_table_that_others_read_hurts_nobody);
    tcase_add_test(cases, two_engines_in_one_process_know_nothing_of_each_other);
    tcase_add_test(cases, freeing_an_engine_cancels_what_still_runs);
    tcase_add_test(cases, collective_calls_of_two_threads_at_once_are_errors_and_no_more);
    tcase_add_test(cases, null_arguments_are_refused_in_the_log);
    tcase_set_timeout(cases, 20);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
