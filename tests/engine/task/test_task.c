/* Tasks: their workers, what stays after them, several tasks at once, and that nothing leaks. */
#include <dirent.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

/* ---- who works ---- */

enum { MAX_SEEN = 16 };

typedef struct {
    pthread_mutex_t lock;
    /* guarded by lock */
    unsigned n;
    uint32_t ranks[MAX_SEEN], local_ranks[MAX_SEEN];
    uint64_t ids[MAX_SEEN];
    bool wrong;
} Roll;

static bool call_the_roll(RubatoWorker *worker, void *user_data, GError **error)
{
    Roll *roll = user_data;

    (void)error;
    pthread_mutex_lock(&roll->lock);
    roll->ranks[roll->n] = rubato_worker_rank(worker);
    roll->local_ranks[roll->n] = rubato_worker_local_rank(worker);
    roll->ids[roll->n++] = rubato_worker_id(worker);
    roll->wrong |= rubato_worker_node(worker) != 0 || rubato_worker_cancelled(worker) ||
                   rubato_worker_n_workers(worker) != rubato_worker_n_local_workers(worker);
    pthread_mutex_unlock(&roll->lock);
    return true;
}

START_TEST(each_worker_has_its_rank_and_an_id_of_its_own)
{
    RubatoEngine *engine = rubato_engine_new(&(RubatoEngineConfig){ .workers = 3 }, NULL);
    const RubatoAllocation list[] = { { .node = 0, .workers = 2 }, { .node = 0, .workers = 1 } };
    Roll roll = { .lock = PTHREAD_MUTEX_INITIALIZER };
    const RubatoTask task[] = {
        { .name = "a", .run = call_the_roll, .user_data = &roll },
        { .name = "b", .run = call_the_roll, .user_data = &roll, .workers_per_node = 4 },
        { .name = "c",
          .run = call_the_roll,
          .user_data = &roll,
          .allocation = list,
          .n_allocation = 2 },
    };
    static const unsigned sizes[] = { 3, 4, 3 };
    unsigned begin = 0;

    for (int i = 0; i < 3; i++) {
        bool seen[MAX_SEEN] = { false };

        run_task_ok(engine, &task[i]);
        ck_assert_uint_eq(roll.n - begin, sizes[i]);
        for (; begin < roll.n; begin++) {
            ck_assert_uint_lt(roll.ranks[begin], sizes[i]);
            ck_assert(!seen[roll.ranks[begin]]);
            seen[roll.ranks[begin]] = true;
            ck_assert_uint_eq(roll.local_ranks[begin], roll.ranks[begin]);
        }
    }
    for (unsigned i = 0; i < roll.n; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert_uint_ne(roll.ids[i], roll.ids[k]);
    ck_assert(!roll.wrong);
    rubato_engine_free(engine);
}
END_TEST

static bool do_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    (void)error;
    return true;
}

START_TEST(tasks_that_make_no_sense_are_refused)
{
    static const RubatoAllocation nobody[] = { { .node = 0, .workers = 0 } };
    static const RubatoAllocation elsewhere[] = { { .node = 7, .workers = 1 } };
    static const RubatoAllocation too_many[] = { { .node = 0, .workers = UINT32_MAX },
                                                 { .node = 0, .workers = 2 } };
    static const char *const missing[] = { "t", "gone", NULL };
    static const char *const twice[] = { "t", "t", NULL };
    static const struct {
        RubatoTask task;
        RubatoError code;
        const char *texts[2];
    } wrong[] = {
        { { .name = "a", .run = do_nothing, .allocation = nobody, .n_allocation = 1 },
          RUBATO_ERROR_INVALID,
          { "task a", "no worker" } },
        { { .name = "a", .run = do_nothing, .allocation = elsewhere, .n_allocation = 1 },
          RUBATO_ERROR_INVALID,
          { "task a", "node 7" } },
        { { .name = "a", .run = do_nothing, .allocation = too_many, .n_allocation = 2 },
          RUBATO_ERROR_INVALID,
          { "task a", "more workers" } },
        { { .name = "a", .run = do_nothing, .workers_per_node = UINT32_MAX },
          RUBATO_ERROR_INVALID,
          { "task a", "more workers" } },
        { { .name = "a", .run = do_nothing, .n_allocation = 2 },
          RUBATO_ERROR_INVALID,
          { "task a: n_allocation is 2, but allocation is NULL", "" } },
        { { .name = "a", .run = do_nothing, .allocation = nobody },
          RUBATO_ERROR_INVALID,
          { "task a: n_allocation is 0, but allocation is not NULL", "" } },
        { { .name = "a",
            .run = do_nothing,
            .allocation = nobody,
            .n_allocation = 1,
            .workers_per_node = 9 },
          RUBATO_ERROR_INVALID,
          { "task a: workers_per_node has no effect here", "it needs no allocation" } },
        { { .run = do_nothing }, RUBATO_ERROR_INVALID, { "name", "" } },
        { { .name = "", .run = do_nothing }, RUBATO_ERROR_INVALID, { "name", "" } },
        { { .name = "a" }, RUBATO_ERROR_INVALID, { "function", "" } },
        { { .name = "a", .run = do_nothing, .tables = missing },
          RUBATO_ERROR_NOT_FOUND,
          { "task a: no table gone", "t" } },
        { { .name = "a", .run = do_nothing, .tables = twice },
          RUBATO_ERROR_INVALID,
          { "task a", "table t twice" } },
    };
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, &(RubatoTableSpec){ .name = "t" });
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++)
        run_fails(engine, &wrong[i].task, wrong[i].code, wrong[i].texts[0], wrong[i].texts[1],
                  NULL);
    run_ok(engine, 1, do_nothing, NULL, "t");
    ck_assert(rubato_engine_drop_table(engine, "t", NULL)); /* no refused task holds it */
    rubato_engine_free(engine);
}
END_TEST

/* ---- what stays ---- */

static bool iterate(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 3;
    const int64_t one = 1;
    const int64_t before = *(const int64_t *)user_data;
    int64_t seen;

    TRY(table != NULL);
    REQUIRE(rubato_kv_table_clock_value(table) == 0);
    for (int64_t t = 0; t < 20; t++) {
        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        REQUIRE(seen >= before + t, "(%d)", (int)seen);
        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(contents_persist_between_tasks_and_clocks_begin_anew)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    RubatoEngine *engine = engine_with_servers(2);
    int64_t before = 0;

    const RubatoTableSpec spec = fitting_spec((RubatoTableSpec){
        .name = "t", .dtype = RUBATO_I64, .n_keys = 4, .model = models[_i], .staleness = 1 });

    create_table(engine, &spec);
    for (uint32_t workers = 1; workers <= 4; workers++) {
        run_ok(engine, workers, iterate, &before, "t");
        before += workers * 20;
        ck_assert_int_eq(read_i64(engine, "t", 3), before);
    }
    rubato_engine_free(engine);
}
END_TEST

/* ---- several at once ---- */

typedef struct {
    Event *mine, *theirs; /* raised in the middle of a task */
    const char *table;
} Side;

/* Both tasks are in the middle of their iterations at the same time, at different clocks. */
static bool iterate_with_the_other(RubatoWorker *worker, void *user_data, GError **error)
{
    Side *side = user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, side->table, RUBATO_I64, error);
    const RubatoKey key = 0;
    const int64_t one = 1;
    int64_t seen;

    TRY(table != NULL);
    for (uint64_t t = 0; t < 30; t++) {
        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_kv_table_clock(table, error));
        if (t == (side->table[0] == 'a' ? 5 : 20)) {
            event_raise(side->mine);
            TRY(event_await(side->theirs, 2, worker, error));
        }
    }
    return true;
}

START_TEST(tasks_at_once_have_their_own_clocks_on_disjoint_and_on_shared_tables)
{
    const bool shared = _i % 2 == 1;
    static const char *const models[] = { "bsp", "ssp" };
    RubatoEngine *engine = engine_with_servers(2);
    Event events[2] = { EVENT_INIT, EVENT_INIT };
    Side sides[2] = { { &events[0], &events[1], "a" },
                      { &events[1], &events[0], shared ? "a" : "b" } };
    RubatoTaskRun *runs[2];

    for (const char *name = "ab"; *name != '\0'; name++)
        create_table(engine, &(RubatoTableSpec){ .name = (char[]){ *name, '\0' },
                                                 .dtype = RUBATO_I64,
                                                 .n_keys = 1,
                                                 .model = models[_i / 2] });
    for (int i = 0; i < 2; i++) {
        const char *const tables[] = { sides[i].table, NULL };

        runs[i] = rubato_engine_start(engine,
                                      &(RubatoTask){ .name = i == 0 ? "one" : "two",
                                                     .run = iterate_with_the_other,
                                                     .user_data = &sides[i],
                                                     .tables = tables,
                                                     .workers_per_node = 2 },
                                      NULL);
        ck_assert_ptr_nonnull(runs[i]);
    }
    for (int i = 0; i < 2; i++) {
        GError *error = NULL;

        ck_assert_msg(rubato_task_run_wait(runs[i], &error), "%s",
                      error == NULL ? "" : error->message);
    }
    ck_assert_int_eq(read_i64(engine, "a", 0), shared ? 120 : 60);
    ck_assert_int_eq(read_i64(engine, "b", 0), shared ? 0 : 60);
    rubato_engine_free(engine);
}
END_TEST

static bool wait_for_event(RubatoWorker *worker, void *user_data, GError **error)
{
    return event_await(user_data, 1, worker, error);
}

START_TEST(a_table_in_use_is_not_dropped)
{
    RubatoEngine *engine = engine_with_servers(1);
    Event go_on = EVENT_INIT;
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = {
        .name = "long", .run = wait_for_event, .user_data = &go_on, .tables = tables
    };
    GError *error = NULL;
    RubatoTaskRun *run;

    create_table(engine, &(RubatoTableSpec){ .name = "t", .dtype = RUBATO_I64 });
    create_table(engine, &(RubatoTableSpec){ .name = "free" });
    run = rubato_engine_start(engine, &task, NULL);
    ck_assert(!rubato_engine_drop_table(engine, "t", &error));
    check_error(&error, RUBATO_ERROR_INVALID, "table t cannot be dropped", "a task uses it", NULL);
    ck_assert(rubato_engine_drop_table(engine, "free", NULL));
    ck_assert_int_eq(read_i64(engine, "t", 5), 0); /* it is all there */
    event_raise(&go_on);
    ck_assert(rubato_task_run_wait(run, NULL));
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    rubato_engine_free(engine);
}
END_TEST

/* Fails as its user_data says, or ends well. */
static bool end_as_told(RubatoWorker *worker, void *user_data, GError **error)
{
    const char *fault = user_data;

    (void)worker;
    if (fault == NULL)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_RANGE, fault);
    return false;
}

static RubatoTaskRun *start_to_end(RubatoEngine *engine, const char *fault)
{
    const RubatoTask task = { .name = fault != NULL ? fault : "good",
                              .run = end_as_told,
                              .user_data = (void *)(uintptr_t)fault };
    RubatoTaskRun *run = rubato_engine_start(engine, &task, NULL);

    ck_assert_ptr_nonnull(run);
    return run;
}

START_TEST(all_tasks_are_waited_for_and_the_first_failure_is_told)
{
    RubatoEngine *engine = engine_with_servers(1);
    RubatoTaskRun *good[] = { start_to_end(engine, NULL), NULL, start_to_end(engine, NULL) };
    RubatoTaskRun *bad[] = { start_to_end(engine, NULL), NULL, start_to_end(engine, "first"),
                             start_to_end(engine, "second") };
    GError *error = NULL;

    ck_assert(!rubato_task_runs_wait_all(bad, G_N_ELEMENTS(bad), &error));
    check_error(&error, RUBATO_ERROR_TASK_FAILED, "task first", NULL);
    ck_assert(rubato_task_runs_wait_all(good, G_N_ELEMENTS(good), &error));
    ck_assert_ptr_null(error);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        ck_assert_ptr_null(bad[i]);
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++)
        ck_assert_ptr_null(good[i]);
    ck_assert(rubato_task_runs_wait_all(NULL, 0, &error));
    rubato_engine_free(engine);
}
END_TEST

typedef struct {
    RubatoTaskRun *runs[1];
    Event ready;
} Waiter;

/* A worker may not wait for tasks; the handles stay the caller's. */
static bool wait_in_a_task(RubatoWorker *worker, void *user_data, GError **error)
{
    Waiter *waiter = user_data;

    TRY(event_await(&waiter->ready, 1, worker, error));
    REQUIRE(!rubato_task_runs_wait_all(waiter->runs, 1, error));
    TRY(is_error(error, RUBATO_ERROR_INVALID, "task"));
    REQUIRE(waiter->runs[0] != NULL);
    return true;
}

START_TEST(a_worker_that_may_not_wait_takes_no_handle)
{
    RubatoEngine *engine = engine_with_servers(1);
    Waiter waiter = { .ready = EVENT_INIT };
    const RubatoTask task = { .name = "waits", .run = wait_in_a_task, .user_data = &waiter };
    GError *error = NULL;

    waiter.runs[0] = rubato_engine_start(engine, &task, NULL);
    ck_assert_ptr_nonnull(waiter.runs[0]);
    RubatoTaskRun *run = waiter.runs[0]; /* the array is the worker's from here on */
    event_raise(&waiter.ready);
    ck_assert_msg(rubato_task_runs_wait_all(&run, 1, &error), "%s",
                  error == NULL ? "" : error->message);
    rubato_engine_free(engine);
}
END_TEST

static bool add_one_late(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 0;
    const int64_t one = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

    (void)user_data;
    TRY(rubato_worker_barrier(worker, error));
    return table != NULL && rubato_kv_table_add(table, &key, 1, &one, error);
}

START_TEST(a_handle_that_is_left_waits_for_its_task)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoKey key = 0;

    create_table(engine, &(RubatoTableSpec){ .name = "t", .dtype = RUBATO_I64, .n_keys = 1 });
    {
        const char *const tables[] = { "t", NULL };
        g_autoptr(RubatoTaskRun) none = NULL;
        g_autoptr(RubatoTaskRun) run = rubato_engine_start(
            engine,
            &(RubatoTask){
                .name = "adds", .run = add_one_late, .tables = tables, .workers_per_node = 2 },
            NULL);

        ck_assert_ptr_nonnull(run);
        ck_assert_ptr_null(none);
    }
    ck_assert_int_eq(read_i64(engine, "t", key), 2);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_started_task_runs_while_its_starter_goes_on)
{
    RubatoEngine *engine = engine_with_servers(1);
    Event events[8] = { EVENT_INIT, EVENT_INIT, EVENT_INIT, EVENT_INIT,
                        EVENT_INIT, EVENT_INIT, EVENT_INIT, EVENT_INIT };
    RubatoTaskRun *runs[8];

    for (int i = 0; i < 8; i++) {
        runs[i] = rubato_engine_start(engine,
                                      &(RubatoTask){ .name = "waiting",
                                                     .run = wait_for_event,
                                                     .user_data = &events[i],
                                                     .workers_per_node = 2 },
                                      NULL);
        ck_assert_ptr_nonnull(runs[i]);
    }
    for (int i = 0; i < 8; i++) { /* they end in another order than they began */
        event_raise(&events[i * 3 % 8]);
        ck_assert(rubato_task_run_wait(runs[i * 3 % 8], NULL));
    }
    rubato_engine_free(engine);
}
END_TEST

/* ---- nothing leaks ---- */

static unsigned count_entries(const char *path)
{
    DIR *folder = opendir(path);
    unsigned n = 0;

    ck_assert_ptr_nonnull(folder);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

/* Workers have been joined, but the kernel may need a moment to take them off the list. */
static unsigned count_threads(unsigned expected)
{
    unsigned n;

    for (int i = 0; (n = count_entries("/proc/self/task")) > expected && i < 1000; i++)
        sched_yield();
    return n;
}

static bool is_sanitized(void)
{
    const char *sanitizers = getenv("RUBATO_SANITIZE");

    return sanitizers != NULL && sanitizers[0] != '\0';
}

static bool use_all_handles(RubatoWorker *worker, void *user_data, GError **error)
{
    int64_t seen[2]; /* outlives the handle, which waits for what is in flight */
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) client =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 1, 7 };
    const int64_t ones[] = { 1, 1 };

    (void)user_data;
    TRY(kv != NULL && client != NULL);
    TRY(rubato_kv_table_add(kv, keys, 2, ones, error));
    TRY(rubato_kv_table_get_async(client, keys, 2, seen, NULL, error) != 0);
    return rubato_kv_table_clock(kv, error) && rubato_worker_barrier(worker, error);
}

START_TEST(a_thousand_tasks_leave_threads_memory_and_files_where_they_were)
{
    enum { N_WARM_UP = 50, N_TASKS = 1000, N_WORKERS = 10, MOST_GROWTH = 24 * 1024 };
    RubatoEngine *engine = engine_with_servers(2);
    unsigned n_threads = 0, n_files = 0;
    size_t n_bytes = 0;

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 8,
                                             .model = "ssp",
                                             .staleness = 1,
                                             .cache = RUBATO_CACHE_ALL });
    for (int i = 0; i < N_TASKS; i++) {
        if (i == N_WARM_UP) {
            n_threads = count_threads(0);
            n_files = count_entries("/proc/self/fd");
            n_bytes = mallinfo2().uordblks;
        }
        run_ok(engine, N_WORKERS, use_all_handles, NULL, "t");
    }
    ck_assert_uint_eq(count_threads(n_threads), n_threads);
    ck_assert_uint_eq(count_entries("/proc/self/fd"), n_files);
    if (!is_sanitized()) /* whose allocators count otherwise, and look for leaks themselves */
        ck_assert_msg(mallinfo2().uordblks < n_bytes + MOST_GROWTH, "%zu bytes became %zu", n_bytes,
                      mallinfo2().uordblks);
    ck_assert_int_eq(read_i64(engine, "t", 7), N_TASKS * N_WORKERS);
    rubato_engine_free(engine);
}
END_TEST

/* What the allocator keeps for threads that have ended differs by up to 40 KiB, however many
 * engines there were; 500 bytes left by each of them would be 90 KiB. */
START_TEST(engines_and_tables_leave_nothing_either)
{
    enum { N_WARM_UP = 20, N_ENGINES = 200, MOST_GROWTH = 80 * 1024 };
    unsigned n_threads = 0, n_files = 0;
    size_t n_bytes = 0;

    for (int i = 0; i < N_ENGINES; i++) {
        RubatoEngine *engine;

        if (i == N_WARM_UP) {
            n_threads = count_threads(1);
            n_files = count_entries("/proc/self/fd");
            n_bytes = mallinfo2().uordblks;
        }
        engine = engine_with_servers(3);
        for (int k = 0; k < 3; k++) {
            create_table(engine, &(RubatoTableSpec){ .name = "t",
                                                     .dtype = RUBATO_I64,
                                                     .n_keys = k == 0 ? 8 : 0,
                                                     .model = "ssp" });
            run_ok(engine, 2, use_all_handles, NULL, "t");
            if (k < 2)
                ck_assert(rubato_engine_drop_table(engine, "t", NULL));
        }
        rubato_engine_free(engine);
    }
    ck_assert_uint_eq(count_threads(n_threads), n_threads);
    ck_assert_uint_eq(count_entries("/proc/self/fd"), n_files);
    if (!is_sanitized())
        ck_assert_msg(mallinfo2().uordblks < n_bytes + MOST_GROWTH, "%zu bytes became %zu", n_bytes,
                      mallinfo2().uordblks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("task");
    TCase *cases = tcase_create("task");
    TCase *leaks = tcase_create("leaks");

    tcase_add_test(cases, each_worker_has_its_rank_and_an_id_of_its_own);
    tcase_add_test(cases, tasks_that_make_no_sense_are_refused);
    tcase_add_loop_test(cases, contents_persist_between_tasks_and_clocks_begin_anew, 0, 4);
    tcase_add_loop_test(cases, tasks_at_once_have_their_own_clocks_on_disjoint_and_on_shared_tables,
                        0, 4);
    tcase_add_test(cases, a_table_in_use_is_not_dropped);
    tcase_add_test(cases, all_tasks_are_waited_for_and_the_first_failure_is_told);
    tcase_add_test(cases, a_worker_that_may_not_wait_takes_no_handle);
    tcase_add_test(cases, a_handle_that_is_left_waits_for_its_task);
    tcase_add_test(cases, a_started_task_runs_while_its_starter_goes_on);
    suite_add_tcase(suite, cases);
    tcase_add_test(leaks, a_thousand_tasks_leave_threads_memory_and_files_where_they_were);
    tcase_add_test(leaks, engines_and_tables_leave_nothing_either);
    tcase_set_timeout(leaks, 30);
    suite_add_tcase(suite, leaks);
    return run_suite(suite);
}
