/* BSP keeps a bounded number of Adds of a worker that only adds: its Adds wait for the slowest
 * worker, which never waits itself. No Add is lost or changed by this. */
#include <stdatomic.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { STALL_MS = 20, N_KEYS = 1000, N_CLOCKS = 60, KEPT_CLOCKS = 5 };

typedef enum { WAY_KEYS, WAY_RANGE, WAY_TICKET, WAY_CHUNK, N_WAYS } Way;

/* The bytes of a call's keys and deltas. A call counts some percent more towards the limit. */
static size_t call_bytes(Way way)
{
    const size_t key_bytes = way == WAY_RANGE || way == WAY_CHUNK ? 0 : sizeof(RubatoKey);

    return N_KEYS * (key_bytes + sizeof(int64_t));
}

typedef struct {
    Way way;
    _Atomic unsigned n_added; /* calls of the fast worker that have returned */
    Event go_on;
} Scene;

static RubatoTableSpec spec_of(uint64_t max_kept_bytes)
{
    return (RubatoTableSpec){ .name = "rows",
                              .dtype = RUBATO_I64,
                              .n_keys = N_KEYS,
                              .model = "bsp",
                              .max_kept_bytes = max_kept_bytes };
}

/* Adds 1 to every row, N_CLOCKS times, and reads nothing. */
static bool only_add(RubatoWorker *worker, Scene *scene, GError **error)
{
    RubatoKey keys[N_KEYS];
    int64_t ones[N_KEYS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) client =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoChunkTable) chunks =
        rubato_worker_open_chunk_table(worker, "rows", RUBATO_I64, error);

    TRY(table != NULL && client != NULL && chunks != NULL);
    for (size_t i = 0; i < N_KEYS; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    for (int clock = 0; clock < N_CLOCKS; clock++) {
        if (scene->way == WAY_KEYS)
            TRY(rubato_kv_table_add(table, keys, N_KEYS, ones, error));
        else if (scene->way == WAY_RANGE)
            TRY(rubato_kv_table_add_range(table, 0, N_KEYS, ones, error));
        else if (scene->way == WAY_TICKET)
            TRY(rubato_kv_table_add_async(client, keys, N_KEYS, ones, NULL, error) != 0);
        else
            TRY(rubato_chunk_table_add_chunks(chunks, keys, N_KEYS, ones, error));
        atomic_fetch_add(&scene->n_added, 1);
        TRY(rubato_kv_table_clock(table, error));
    }
    return rubato_worker_wait_all(worker, error);
}

static bool add_or_be_slow(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    const RubatoKey key = 7;
    int64_t value;

    if (rubato_worker_rank(worker) == 0)
        return only_add(worker, scene, error);

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    TRY(table != NULL && event_await(&scene->go_on, 1, worker, error));
    for (int clock = 0; clock < N_CLOCKS; clock++) {
        TRY(rubato_kv_table_get(table, &key, 1, &value, error));
        /* that of a clock is never seen in part, and not before its time */
        if (value != clock) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "%d at clock %d", (int)value,
                        clock);
            return false;
        }
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

static RubatoTaskRun *start(RubatoEngine *engine, RubatoTaskFunc function, void *data,
                            uint32_t n_workers)
{
    static const char *const tables[] = { "rows", NULL };
    RubatoTaskRun *run = rubato_engine_start(engine,
                                             &(RubatoTask){ .name = "adding",
                                                            .run = function,
                                                            .user_data = data,
                                                            .tables = tables,
                                                            .workers_per_node = n_workers },
                                             NULL);

    ck_assert_ptr_nonnull(run);
    return run;
}

static void finish(RubatoEngine *engine, RubatoTaskRun *run, int64_t expected)
{
    int64_t rows[N_KEYS];
    RubatoKey keys[N_KEYS];
    GError *error = NULL;
    const bool ok = rubato_task_run_wait(run, &error);

    ck_assert_msg(ok, "%s", error == NULL ? "" : error->message);
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = i;
    ck_assert(rubato_engine_get(engine, "rows", keys, N_KEYS, rows, NULL));
    for (size_t i = 0; i < N_KEYS; i++)
        ck_assert_int_eq(rows[i], expected);
    rubato_engine_free(engine);
}

/* The fast worker is KEPT_CLOCKS ahead, and in the middle of the next one. */
START_TEST(a_worker_that_only_adds_waits_when_too_much_is_kept)
{
    Scene scene = { .way = (Way)_i, .go_on = EVENT_INIT };
    const RubatoTableSpec spec =
        spec_of(KEPT_CLOCKS * call_bytes(scene.way) + call_bytes(scene.way) / 2);
    RubatoEngine *engine;
    RubatoTaskRun *run;
    g_autofree char *line = NULL;

    log_capture_start();
    engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 1, .stall_ms = STALL_MS }, NULL);
    create_table(engine, &spec);
    run = start(engine, add_or_be_slow, &scene, 2);
    line = log_capture_wait("worker 0 waits for clock 1 of table rows",
                            "slowest is worker 1 (node 0) at 0");
    ck_assert_uint_eq(atomic_load(&scene.n_added), KEPT_CLOCKS + 1);
    event_raise(&scene.go_on);
    finish(engine, run, N_CLOCKS);
}
END_TEST

static bool add_alone(RubatoWorker *worker, void *user_data, GError **error)
{
    return only_add(worker, user_data, error);
}

/* No worker is ahead for long: even without any room, all workers end. */
START_TEST(the_slowest_worker_never_waits)
{
    Scene scene = { .way = (Way)(_i % N_WAYS) };
    const RubatoTableSpec spec = spec_of(1);
    const uint32_t n_workers = _i < N_WAYS ? 1 : 3;
    RubatoEngine *engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 2 }, NULL);

    create_table(engine, &spec);
    finish(engine, start(engine, add_alone, &scene, n_workers), n_workers * (int64_t)N_CLOCKS);
}
END_TEST

static bool add_much_in_a_clock(RubatoWorker *worker, void *user_data, GError **error)
{
    const int64_t ones[] = { 1, 1, 1 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    (void)user_data;
    TRY(table != NULL);
    for (int i = 0; i < N_CLOCKS; i++)
        TRY(rubato_kv_table_add_range(table, 0, 3, ones, error));
    return rubato_worker_barrier(worker, error) && rubato_kv_table_clock(table, error);
}

/* Adds of the present clock are kept in any case: a worker that is not ahead does not wait, not
 * even for a worker in a barrier. */
START_TEST(the_adds_of_the_present_clock_do_not_count)
{
    const RubatoTableSpec spec = spec_of(1);
    RubatoEngine *engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, NULL);
    RubatoTaskRun *run;

    create_table(engine, &spec);
    run = start(engine, add_much_in_a_clock, NULL, 2);
    ck_assert(rubato_task_run_wait(run, NULL));
    rubato_engine_free(engine);
}
END_TEST

static bool add_until_cancelled(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;

    if (rubato_worker_rank(worker) == 0)
        return only_add(worker, scene, error);
    TRY(event_await(&scene->go_on, 1, worker, error));
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "enough");
    return false;
}

START_TEST(an_add_that_waits_ends_when_its_task_fails)
{
    Scene scene = { .way = (Way)_i, .go_on = EVENT_INIT };
    const RubatoTableSpec spec = spec_of(call_bytes(scene.way));
    g_autoptr(GError) error = NULL;
    g_autofree char *line = NULL;
    RubatoEngine *engine;
    RubatoTaskRun *run;

    log_capture_start();
    engine = rubato_engine_new(&(RubatoEngineConfig){ .servers = 1, .stall_ms = STALL_MS }, NULL);
    create_table(engine, &spec);
    run = start(engine, add_until_cancelled, &scene, 2);
    line = log_capture_wait("worker 0 waits for clock 1 of table rows", "slowest is worker 1");
    event_raise(&scene.go_on);
    ck_assert(!rubato_task_run_wait(run, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED));
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("what BSP keeps");
    TCase *cases = tcase_create("kept");

    tcase_add_loop_test(cases, a_worker_that_only_adds_waits_when_too_much_is_kept, 0, N_WAYS);
    tcase_add_loop_test(cases, the_slowest_worker_never_waits, 0, 2 * N_WAYS);
    tcase_add_test(cases, the_adds_of_the_present_clock_do_not_count);
    tcase_add_loop_test(cases, an_add_that_waits_ends_when_its_task_fails, 0, N_WAYS);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
