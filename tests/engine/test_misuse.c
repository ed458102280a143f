/* Wrong calls of the program are refused at once: NULL if there has to be memory, handles in other
 * threads, calls from within a task or a callback, calls in a forked process. */
#include <pthread.h>
#include <rubato/rubato.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/net/caller.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static const RubatoTableSpec spec = {
    .name = "rows", .dtype = RUBATO_I64, .n_keys = 10, .chunk_size = 5
};
static const RubatoKey key = 3;

/* ---- NULL ---- */

static bool call_with_null(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoIteration iteration = { &key, 1 };
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) client =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoChunkTable) chunks =
        rubato_worker_open_chunk_table(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoSparseKVClientTable) sparse =
        rubato_worker_open_sparse_kv_client_table(worker, "rows", RUBATO_I64, &iteration, 1, error);
    const uint64_t chunk = 1;
    int64_t value;

    (void)user_data;
    if (kv == NULL || client == NULL || chunks == NULL || sparse == NULL)
        return false;
    REQUIRE(!rubato_kv_table_get(kv, &key, 1, NULL, error));
    REQUIRE(!rubato_kv_table_add(kv, &key, 1, NULL, error));
    REQUIRE(!rubato_kv_table_get_range(kv, 0, 2, NULL, error));
    REQUIRE(!rubato_kv_table_add_range(kv, 0, 2, NULL, error));
    REQUIRE(!rubato_kv_table_get(client, &key, 1, NULL, error));
    REQUIRE(!rubato_kv_table_add(client, &key, 1, NULL, error));
    REQUIRE(!rubato_kv_table_get_range(client, 0, 2, NULL, error));
    REQUIRE(!rubato_kv_table_add_range(client, 0, 2, NULL, error));
    REQUIRE(rubato_kv_table_get_async(client, &key, 1, NULL, NULL, error) == 0);
    REQUIRE(rubato_kv_table_add_async(client, &key, 1, NULL, NULL, error) == 0);
    REQUIRE(!rubato_chunk_table_get_chunks(chunks, &chunk, 1, NULL, error));
    REQUIRE(!rubato_chunk_table_add_chunks(chunks, &chunk, 1, NULL, error));
    REQUIRE(!rubato_chunk_table_get(chunks, &key, 1, NULL, error));
    REQUIRE(!rubato_chunk_table_add(chunks, &key, 1, NULL, error));
    REQUIRE(!rubato_sparse_kv_client_table_get(sparse, NULL, error));
    TRY(rubato_sparse_kv_client_table_get(sparse, &value, error));
    REQUIRE(!rubato_sparse_kv_client_table_add(sparse, NULL, error));
    return true;
}

START_TEST(null_for_values_is_a_critical_warning_and_no_crash)
{
    RubatoEngine *engine = engine_with_servers(2);
    GError *error = NULL;

    create_table(engine, &spec);
    log_capture_start();
    run_ok(engine, 1, call_with_null, NULL, "rows");
    ck_assert(!rubato_engine_get(engine, "rows", &key, 1, NULL, &error));
    ck_assert(!rubato_engine_get_range(engine, "rows", 0, 2, NULL, &error));
    ck_assert(!rubato_engine_add(engine, "rows", &key, 1, NULL, &error));
    ck_assert(!rubato_engine_add_range(engine, "rows", 0, 2, NULL, &error));
    ck_assert(!rubato_engine_set(engine, "rows", &key, 1, NULL, &error));
    ck_assert(!rubato_engine_set_range(engine, "rows", 0, 2, NULL, &error));
    ck_assert_ptr_null(error);
    ck_assert_uint_eq(log_capture_count("values != NULL") + log_capture_count("deltas != NULL"),
                      16 + 6);
    ck_assert(rubato_engine_get(engine, "rows", NULL, 0, NULL, NULL)); /* nothing, into nothing */
    rubato_engine_free(engine);
}
END_TEST

/* ---- other threads ---- */

typedef struct {
    RubatoKVTable *table;
    bool is_known; /* it has a number of its own */
    bool refused[3];
} Stranger;

static void *use_from_elsewhere(void *user)
{
    Stranger *stranger = user;
    GError *error = NULL;
    int64_t value = 1;

    if (stranger->is_known)
        (void)caller_number();
    stranger->refused[0] = !rubato_kv_table_get(stranger->table, &key, 1, &value, &error) &&
                           is_error(&error, RUBATO_ERROR_INVALID, "used by another thread");
    stranger->refused[1] = !rubato_kv_table_add_range(stranger->table, 0, 1, &value, &error) &&
                           is_error(&error, RUBATO_ERROR_INVALID, "table rows");
    stranger->refused[2] = !rubato_kv_table_clock(stranger->table, &error) &&
                           is_error(&error, RUBATO_ERROR_INVALID, "worker 0");
    return NULL;
}

static bool lend_handle(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    Stranger stranger = { .table = table, .is_known = *(const int *)user_data == 1 };
    pthread_t thread;
    int64_t value;

    if (table == NULL)
        return false;
    REQUIRE(pthread_create(&thread, NULL, use_from_elsewhere, &stranger) == 0);
    pthread_join(thread, NULL);
    REQUIRE(stranger.refused[0] && stranger.refused[1] && stranger.refused[2]);
    return rubato_kv_table_get(table, &key, 1, &value, error);
}

START_TEST(a_handle_is_refused_to_other_threads)
{
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, &spec);
    run_ok(engine, 1, lend_handle, &_i, "rows");
    rubato_engine_free(engine);
}
END_TEST

static void *ask_worker_from_elsewhere(void *user)
{
    RubatoWorker *worker = user;
    GError *error = NULL;
    const bool refused =
        !rubato_worker_barrier(worker, &error) &&
        is_error(&error, RUBATO_ERROR_INVALID, "worker 0 of task case") &&
        !rubato_worker_tune(worker, "rows", RUBATO_HYPER_LEARNING_RATE, 1, &error) &&
        is_error(&error, RUBATO_ERROR_INVALID, "by another thread") &&
        rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, &error) == NULL &&
        is_error(&error, RUBATO_ERROR_INVALID, "by another thread");

    return refused ? worker : NULL;
}

static bool lend_worker(RubatoWorker *worker, void *user_data, GError **error)
{
    pthread_t thread;
    void *refused;

    (void)user_data;
    (void)error;
    REQUIRE(pthread_create(&thread, NULL, ask_worker_from_elsewhere, worker) == 0);
    pthread_join(thread, &refused);
    REQUIRE(refused != NULL);
    return true;
}

START_TEST(a_worker_is_refused_to_other_threads)
{
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, &spec);
    run_ok(engine, 1, lend_worker, NULL, "rows");
    rubato_engine_free(engine);
}
END_TEST

/* ---- inside a task ---- */

static bool do_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    (void)error;
    return true;
}

/* What a worker of a running task may call on; main fills it while the worker waits for `ready`. */
typedef struct {
    RubatoEngine *engine;
    RubatoTaskRun *run;
    Event ready;
} Inside;

static const RubatoTask inner = { .name = "inner", .run = do_nothing, .workers_per_node = 1 };

static bool create_other(Inside *in, GError **error)
{
    return rubato_engine_create_table(in->engine,
                                      &(RubatoTableSpec){ .name = "other", .n_keys = 1 }, error);
}

static bool drop_rows(Inside *in, GError **error)
{
    return rubato_engine_drop_table(in->engine, "rows", error);
}

static bool move_rows(Inside *in, GError **error)
{
    return rubato_engine_move_part(in->engine, "rows", 0, 0, error);
}

static bool take_snapshot(Inside *in, GError **error)
{
    const RubatoSnapshotSpec never = { .directory = "never-written" };

    return rubato_engine_snapshot(in->engine, &never, NULL, error);
}

static bool restore_snapshot(Inside *in, GError **error)
{
    const RubatoRestoreSpec never = { .directory = "never-read" };

    return rubato_engine_restore(in->engine, &never, NULL, error);
}

static bool start_inner(Inside *in, GError **error)
{
    return rubato_engine_start(in->engine, &inner, error) != NULL;
}

static bool run_inner(Inside *in, GError **error)
{
    return rubato_engine_run(in->engine, &inner, error);
}

static bool meet_nodes(Inside *in, GError **error)
{
    return rubato_engine_barrier(in->engine, error);
}

static bool wait_for_own_task(Inside *in, GError **error)
{
    return rubato_task_run_wait(in->run, error);
}

static bool wait_for_all_tasks(Inside *in, GError **error)
{
    return rubato_task_runs_wait_all(&in->run, 1, error);
}

static bool make_engine(Inside *in, GError **error)
{
    (void)in;
    return rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, error) != NULL;
}

static bool (*const refused_calls[])(Inside *in, GError **error) = {
    create_other, drop_rows,  move_rows,   take_snapshot,     restore_snapshot,   start_inner,
    run_inner,    meet_nodes, make_engine, wait_for_own_task, wait_for_all_tasks,
};

static bool call_from_inside(RubatoWorker *worker, void *user_data, GError **error)
{
    Inside *const in = user_data;

    TRY(event_await(&in->ready, 1, worker, error));
    for (size_t i = 0; i < G_N_ELEMENTS(refused_calls); i++) {
        GError *found = NULL;

        REQUIRE(!refused_calls[i](in, &found), "call %zu", i);
        REQUIRE(is_error(&found, RUBATO_ERROR_INVALID, "called from a task's function"), "call %zu",
                i);
        REQUIRE(in->run != NULL, "call %zu", i);
    }
    rubato_task_run_free(in->run);
    rubato_engine_free(in->engine);
    return true;
}

START_TEST(calls_that_wait_for_others_are_refused_inside_a_task)
{
    const char *const tables[] = { "rows", NULL };
    const RubatoTask task = {
        .name = "case", .run = call_from_inside, .tables = tables, .workers_per_node = 2
    };
    Inside in = { .engine = engine_with_servers(1), .ready = EVENT_INIT };
    RubatoTask told = task;
    GError *error = NULL;

    told.user_data = &in;
    create_table(in.engine, &spec);
    log_capture_start();
    in.run = rubato_engine_start(in.engine, &told, &error);
    ck_assert_ptr_nonnull(in.run);
    event_raise(&in.ready);
    ck_assert_msg(rubato_task_run_wait(in.run, &error), "%s", error != NULL ? error->message : "");
    ck_assert_uint_eq(log_capture_count("rubato_task_run_free: called from a task's function"), 2);
    ck_assert_uint_eq(log_capture_count("rubato_engine_free: called from a task's function"), 2);
    ck_assert_int_eq(read_i64(in.engine, "rows", key), 0); /* the engine is still there */
    rubato_engine_free(in.engine);
}
END_TEST

/* Worker 1 calls while worker 0 waits for it. docs/threads.md: Who may call what */
static bool reach_rows_from_inside(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    const int64_t one = 1, five = 5, seven = 7;
    RubatoEngine *engine = user_data;
    int64_t value = 0;

    if (table == NULL)
        return false;
    TRY(rubato_kv_table_add(table, &key, 1, &one, error));
    if (rubato_worker_rank(worker) == 1) {
        TRY(rubato_engine_add(engine, "rows", &key, 1, &five, error));
        TRY(rubato_engine_get(engine, "rows", &key, 1, &value, error));
        REQUIRE(value == 5); /* BSP keeps the rest */
        TRY(rubato_engine_set(engine, "rows", &key, 1, &seven, error));
        TRY(rubato_engine_get_range(engine, "rows", key, 1, &value, error));
        REQUIRE(value == 7);
    }
    TRY(rubato_kv_table_clock(table, error) && rubato_kv_table_get(table, &key, 1, &value, error));
    REQUIRE(value == 9);
    return true;
}

START_TEST(rows_are_reached_inside_a_task)
{
    RubatoTableSpec of_bsp = spec;
    RubatoEngine *engine = engine_with_servers(1);

    of_bsp.model = "bsp";
    create_table(engine, &of_bsp);
    run_ok(engine, 2, reach_rows_from_inside, engine, "rows");
    rubato_engine_free(engine);
}
END_TEST

typedef struct {
    RubatoEngine *engine;
    bool refused;
} Callback;

static void call_from_callback(RubatoTicket ticket, const GError *error, void *user_data)
{
    Callback *callback = user_data;
    GError *found = NULL;
    int64_t value;

    (void)ticket;
    (void)error;
    callback->refused = !rubato_engine_get(callback->engine, "rows", &key, 1, &value, &found) &&
                        is_error(&found, RUBATO_ERROR_INVALID, "called from a callback") &&
                        !rubato_engine_barrier(callback->engine, &found) &&
                        is_error(&found, RUBATO_ERROR_INVALID, "called from a callback") &&
                        !rubato_engine_start_timeline(callback->engine, "never", &found) &&
                        is_error(&found, RUBATO_ERROR_INVALID, "called from a callback") &&
                        !rubato_engine_stop_timeline(callback->engine, &found) &&
                        is_error(&found, RUBATO_ERROR_INVALID, "called from a callback");
    rubato_engine_free(callback->engine); /* refused: the log says why */
}

static bool ask_with_callback(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_I64, error);
    int64_t value;

    if (table == NULL)
        return false;
    TRY(rubato_kv_table_get_async(
            table, &key, 1, &value,
            &(RubatoRequestOptions){ .callback = call_from_callback, .user_data = user_data },
            error) != 0);
    return rubato_worker_wait_all(worker, error);
}

START_TEST(calls_that_wait_are_refused_in_a_callback)
{
    RubatoEngine *engine = engine_with_servers(1);
    Callback callback = { .engine = engine };

    create_table(engine, &spec);
    log_capture_start();
    run_ok(engine, 1, ask_with_callback, &callback, "rows");
    ck_assert(callback.refused);
    ck_assert_uint_eq(log_capture_count("rubato_engine_free: called from a callback"), 1);
    rubato_engine_free(engine);
}
END_TEST

/* ---- forked processes ---- */

/* Checks that every call is refused; the engine's threads are not in this process. */
static bool refuses_child(RubatoEngine *engine, RubatoKVTable *table)
{
    const RubatoTableSpec other = { .name = "other", .n_keys = 1 };
    GError *error = NULL;
    int64_t value;

    if (caller_place != CALLER_OUTSIDE) /* the task is not in this process either */
        return false;
    if (table != NULL && (rubato_kv_table_get(table, &key, 1, &value, &error) ||
                          !is_error(&error, RUBATO_ERROR_INVALID, "forked from")))
        return false;
    if (rubato_engine_get(engine, "rows", &key, 1, &value, &error) ||
        !is_error(&error, RUBATO_ERROR_INVALID, "forked from") ||
        rubato_engine_create_table(engine, &other, &error) ||
        !is_error(&error, RUBATO_ERROR_INVALID, "forked from"))
        return false;
    rubato_engine_free(engine); /* a critical warning */
    return true;
}

static bool fork_and_ask(RubatoEngine *engine, RubatoKVTable *table)
{
    int status = 0;
    const pid_t pid = fork();

    if (pid == 0)
        _exit(refuses_child(engine, table) ? 0 : 1);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool fork_inside(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    int64_t value;

    if (table == NULL)
        return false;
    REQUIRE(fork_and_ask(user_data, table));
    return rubato_kv_table_get(table, &key, 1, &value, error);
}

START_TEST(a_forked_process_is_refused)
{
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, &spec);
    ck_assert(fork_and_ask(engine, NULL));
    run_ok(engine, 1, fork_inside, engine, "rows");
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("misuse");
    TCase *calls = tcase_create("calls");

    tcase_add_test(calls, null_for_values_is_a_critical_warning_and_no_crash);
    tcase_add_loop_test(calls, a_handle_is_refused_to_other_threads, 0, 2);
    tcase_add_test(calls, a_worker_is_refused_to_other_threads);
    tcase_add_test(calls, calls_that_wait_for_others_are_refused_inside_a_task);
    tcase_add_test(calls, rows_are_reached_inside_a_task);
    tcase_add_test(calls, calls_that_wait_are_refused_in_a_callback);
    tcase_add_test(calls, a_forked_process_is_refused);
    suite_add_tcase(suite, calls);
    return run_suite(suite);
}
