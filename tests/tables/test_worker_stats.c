/* A worker's statistics of its waits and of the staleness of the rows that it read. One worker
 * stands still while another runs ahead, so that every number is known. */
#include <stdatomic.h>
#include <string.h>

#include "tables/worker_stats.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { STALL_MS = 20, N_ASP = RUBATO_STALENESS_BUCKETS + 6 };

/* Deadlines are whole milliseconds. */
#define LEAST_WAIT_NS ((STALL_MS - 1) * UINT64_C(1000000))

typedef struct {
    Event event;
    uint32_t n_iterations;
    RubatoWorkerStats seen;
} Scene;

static RubatoEngine *start(const RubatoTableSpec *spec)
{
    RubatoTableSpec full = *spec;
    RubatoEngine *engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 2, .stall_ms = STALL_MS }, NULL);

    full.name = "t";
    full.dtype = RUBATO_I64;
    full.n_keys = 8;
    create_table(engine, &full);
    return engine;
}

/* ---- staleness ---- */

/* Worker 0 stays at clock 0 until worker 1 has made all its Gets. */
static bool run_ahead(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 0, 7 }; /* of both servers */
    int64_t values[2];

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 0)
        return event_await(&scene->event, 1, worker, error);
    for (uint32_t i = 0; i < scene->n_iterations; i++)
        TRY((i == 0 || rubato_kv_table_clock(table, error)) &&
            rubato_kv_table_get(table, keys, 2, values, error));
    TRY(rubato_worker_stats(worker, "t", &scene->seen, error));
    event_raise(&scene->event);
    return true;
}

/* The same through a handle that tells its keys; the two workers use different ones. */
static bool run_ahead_sparsely(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    const bool leads = rubato_worker_rank(worker) == 1;
    const RubatoKey key = leads ? 0 : 7;
    const RubatoIteration iterations[] = { { &key, 1 }, { &key, 1 }, { &key, 1 }, { &key, 1 } };
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "t", RUBATO_I64, iterations, G_N_ELEMENTS(iterations), error);
    int64_t value;

    TRY(table != NULL);
    if (!leads) {
        TRY(rubato_sparse_kv_client_table_get(table, &value, error));
        event_raise(&scene->event);
        return event_await(&scene->event, 2, worker, error);
    }
    TRY(event_await(&scene->event, 1, worker, error));
    for (uint32_t i = 0; i < scene->n_iterations; i++)
        TRY(rubato_sparse_kv_client_table_get(table, &value, error));
    TRY(rubato_worker_stats(worker, "t", &scene->seen, error));
    event_raise(&scene->event);
    return true;
}

/* How far the runner may run, which is the staleness of its last Get. */
static const struct {
    const char *model;
    uint32_t staleness, speculation;
    RubatoTaskFunc run;
    uint32_t n_iterations;
} models[] = {
    { "bsp", 0, 0, run_ahead, 1 },
    { "ssp", 0, 0, run_ahead, 1 },
    { "ssp", 3, 0, run_ahead, 4 },
    { "sparse_ssp", 2, 0, run_ahead, 3 },
    { "sparse_ssp", 1, 2, run_ahead_sparsely, 4 },
    { "asp", 0, 0, run_ahead, N_ASP },
};

START_TEST(staleness_is_how_far_the_reader_is_before_the_min_clock)
{
    RubatoEngine *engine = start(&(RubatoTableSpec){ .model = models[_i].model,
                                                     .staleness = models[_i].staleness,
                                                     .speculation = models[_i].speculation });
    const uint32_t n = models[_i].n_iterations;
    Scene scene = { .event = EVENT_INIT, .n_iterations = n };

    run_ok(engine, 2, models[_i].run, &scene, "t");
    ck_assert_uint_eq(scene.seen.n_gets, n);
    ck_assert_uint_eq(scene.seen.n_clocks, n - 1);
    ck_assert_uint_eq(scene.seen.staleness_max, n - 1);
    ck_assert_uint_eq(scene.seen.staleness_sum, n * (n - 1) / 2);
    for (uint32_t i = 0; i < RUBATO_STALENESS_BUCKETS - 1; i++)
        ck_assert_uint_eq(scene.seen.staleness[i], i < n);
    ck_assert_uint_eq(scene.seen.staleness[RUBATO_STALENESS_BUCKETS - 1],
                      n == N_ASP ? N_ASP - RUBATO_STALENESS_BUCKETS + 1 : 0);
    rubato_engine_free(engine);
}
END_TEST

typedef struct {
    uint64_t bound;
    pthread_mutex_t lock;
    RubatoWorkerStats sum; /* guarded by lock */
} Bounded;

static bool iterate(RubatoWorker *worker, void *user_data, GError **error)
{
    Bounded *bounded = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 0, 7 };
    int64_t values[] = { 1, 1 };
    RubatoWorkerStats stats;
    uint64_t n = 0;

    TRY(table != NULL);
    for (int i = 0; i < 200; i++)
        TRY(rubato_kv_table_get(table, keys, 2, values, error) &&
            rubato_kv_table_add(table, keys, 2, values, error) &&
            rubato_kv_table_clock(table, error));
    TRY(rubato_worker_stats(worker, "t", &stats, error));
    REQUIRE(stats.n_gets == 200 && stats.n_adds == 200 && stats.n_clocks == 200);
    REQUIRE(stats.staleness_max <= bounded->bound, "%" G_GUINT64_FORMAT, stats.staleness_max);
    for (uint32_t i = 0; i < RUBATO_STALENESS_BUCKETS; i++) {
        REQUIRE(i <= bounded->bound || stats.staleness[i] == 0);
        n += stats.staleness[i];
    }
    REQUIRE(n == 200);
    return true;
}

static const struct {
    const char *model;
    uint32_t staleness;
} bounds[] = { { "bsp", 0 }, { "ssp", 0 }, { "ssp", 2 } };

START_TEST(no_get_is_staler_than_its_model_allows)
{
    RubatoEngine *engine =
        start(&(RubatoTableSpec){ .model = bounds[_i].model, .staleness = bounds[_i].staleness });
    Bounded bounded = { .bound = bounds[_i].staleness };

    run_ok(engine, 3, iterate, &bounded, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- the handle for asynchronous use ---- */

static bool read_through_cache(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 1, 7 };
    int64_t values[2];

    TRY(table != NULL);
    for (int i = 0; i < 4; i++)
        TRY((i == 0 || rubato_kv_table_clock(table, error)) &&
            rubato_kv_table_get(table, keys, 2, values, error));
    return rubato_worker_stats(worker, "t", &scene->seen, error);
}

/* A worker alone: the min clock is its own, but a cached row is as old as when it was read. */
START_TEST(rows_from_the_cache_count_with_the_clock_at_which_they_were_read)
{
    RubatoEngine *engine =
        start(&(RubatoTableSpec){ .model = "ssp", .staleness = 2, .cache = RUBATO_CACHE_ALL });
    static const uint64_t expected[] = { 2, 1, 1, 0 }; /* read at clocks 0 and 3 */
    Scene scene = { .event = EVENT_INIT };

    run_ok(engine, 1, read_through_cache, &scene, "t");
    ck_assert_uint_eq(scene.seen.n_gets, 4);
    for (size_t i = 0; i < G_N_ELEMENTS(expected); i++)
        ck_assert_uint_eq(scene.seen.staleness[i], expected[i]);
    rubato_engine_free(engine);
}
END_TEST

static void count_callback(RubatoTicket ticket, const GError *error, void *user_data)
{
    (void)ticket;
    (void)error;
    event_raise(user_data);
}

static bool read_with_tickets(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 1, 7 };
    int64_t values[2] = { 0 };

    TRY(table != NULL);
    TRY(rubato_kv_table_get_async(table, keys, 2, values, NULL, error) != 0);
    TRY(rubato_kv_table_get_async(table, keys, 0, values, NULL, error) != 0);
    TRY(rubato_worker_wait_all(worker, error));
    TRY(rubato_kv_table_add_async(table, keys, 2, values, NULL, error) != 0);
    TRY(rubato_kv_table_clock(table, error));
    TRY(rubato_kv_table_get_async(
            table, keys, 2, values,
            &(RubatoRequestOptions){ .callback = count_callback, .user_data = &scene->event },
            error) != 0);
    TRY(rubato_worker_wait_all(worker, error));
    REQUIRE(event_count(&scene->event) == 1);
    return rubato_worker_stats(worker, "t", &scene->seen, error);
}

START_TEST(gets_with_tickets_count_when_they_have_ended)
{
    RubatoEngine *engine = start(&(RubatoTableSpec){ .model = "asp" });
    Scene scene = { .event = EVENT_INIT };

    run_ok(engine, 1, read_with_tickets, &scene, "t");
    ck_assert_uint_eq(scene.seen.n_gets, 2);
    ck_assert_uint_eq(scene.seen.staleness[0], 2);
    ck_assert_uint_eq(scene.seen.n_adds, 1);
    ck_assert_uint_eq(scene.seen.n_clocks, 1);
    rubato_engine_free(engine);
}
END_TEST

/* ---- waiting ---- */

/* Worker 0 is slow: it goes on only when the log says that the other has waited for STALL_MS. */
static bool be_slow(RubatoKVTable *table, const RubatoWorker *worker, GError **error)
{
    static const char *const waits[] = { "worker 1 waits for clock 1",
                                         "worker 1 waits for clock 2" };
    RubatoWorkerStats stats;

    for (size_t i = 0; i < G_N_ELEMENTS(waits); i++) {
        g_free(log_capture_wait(waits[i], "slowest is worker 0"));
        TRY(rubato_kv_table_clock(table, error));
    }
    TRY(rubato_worker_stats(worker, NULL, &stats, error));
    REQUIRE(stats.n_clocks == 2 && stats.get_wait_ns == 0);
    return true;
}

static bool wait_for_the_slow_one(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value;

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 0)
        return be_slow(table, worker, error);
    for (int i = 0; i < 3; i++)
        TRY(rubato_kv_table_get(table, &key, 1, &value, error) &&
            rubato_kv_table_clock(table, error));
    return rubato_worker_stats(worker, NULL, &scene->seen, error);
}

START_TEST(waiting_for_a_slow_worker_adds_up)
{
    RubatoEngine *engine = start(&(RubatoTableSpec){ .model = "bsp" });
    Scene scene = { .event = EVENT_INIT };

    log_capture_start();
    run_ok(engine, 2, wait_for_the_slow_one, &scene, "t");
    ck_assert_uint_ge(scene.seen.get_wait_ns, 2 * LEAST_WAIT_NS);
    ck_assert_uint_eq(scene.seen.staleness[0], 3);
    ck_assert_uint_eq(scene.seen.barrier_wait_ns, 0);
    rubato_engine_free(engine);
}
END_TEST

enum { N_SHORT = 500, SHORT_NS = 30000 };

typedef struct {
    _Atomic uint32_t asked;             /* the clock of worker 1's Get */
    _Atomic uint64_t ended_ns[N_SHORT]; /* when worker 0 ended each clock; no Get ends before */
    uint32_t n_waits;                   /* Gets that waited long enough */
    uint32_t n_uncounted;               /* of which get_wait_ns tells less than half */
} ShortWaits;

/* Ends a clock a little after worker 1 has asked for what comes after it. */
static bool end_clocks_late(ShortWaits *waits, RubatoKVTable *table, RubatoWorker *worker,
                            GError **error)
{
    for (uint32_t clock = 0; clock < N_SHORT; clock++) {
        while (clock + 1 < N_SHORT && atomic_load(&waits->asked) <= clock)
            REQUIRE(!rubato_worker_cancelled(worker));
        const uint64_t begun_ns = worker_stats_now_ns();
        while (worker_stats_now_ns() - begun_ns < SHORT_NS)
            ;
        atomic_store(&waits->ended_ns[clock], worker_stats_now_ns());
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

static bool wait_shortly(RubatoWorker *worker, void *user_data, GError **error)
{
    ShortWaits *waits = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    RubatoWorkerStats before, after;
    const RubatoKey key = 0;
    int64_t value;

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 0)
        return end_clocks_late(waits, table, worker, error);
    for (uint32_t clock = 0; clock < N_SHORT; clock++) {
        TRY(rubato_worker_stats(worker, NULL, &before, error));
        atomic_store(&waits->asked, clock);
        const uint64_t begun_ns = worker_stats_now_ns();
        TRY(rubato_kv_table_get(table, &key, 1, &value, error));
        TRY(rubato_worker_stats(worker, NULL, &after, error));
        const uint64_t ended_ns = clock == 0 ? 0 : atomic_load(&waits->ended_ns[clock - 1]);
        if (ended_ns > begun_ns + SHORT_NS / 2) {
            waits->n_waits++;
            waits->n_uncounted +=
                after.get_wait_ns - before.get_wait_ns < (ended_ns - begun_ns) / 2;
        }
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(short_waits_count_like_long_ones)
{
    RubatoEngine *engine = start(&(RubatoTableSpec){ .model = "bsp" });
    static ShortWaits waits;

    run_ok(engine, 2, wait_shortly, &waits, "t");
    ck_assert_uint_ge(waits.n_waits, N_SHORT / 2);
    /* a busy machine may delay a Get before it begins to wait */
    ck_assert_msg(waits.n_uncounted <= waits.n_waits / 4, "%u of %u waits are not counted",
                  waits.n_uncounted, waits.n_waits);
    rubato_engine_free(engine);
}
END_TEST

/* Worker 0 stays in its first iteration while worker 1 comes to its third. They use different keys,
 * of both servers. */
static bool begin_beyond_the_staleness(RubatoWorker *worker, void *user_data, GError **error)
{
    static const RubatoKey keys[2][2] = { { 0, 7 }, { 1, 6 } };
    Scene *scene = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoIteration all[] = { { keys[rank], 2 }, { keys[rank], 2 }, { keys[rank], 2 } };
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "t", RUBATO_I64, all, G_N_ELEMENTS(all), error);
    RubatoWorkerStats before, after;
    int64_t values[2];

    TRY(table != NULL && rubato_worker_barrier(worker, error));
    if (rank == 0)
        return event_await(&scene->event, 1, worker, error);
    TRY(rubato_sparse_kv_client_table_get(table, values, error) &&
        rubato_sparse_kv_client_table_get(table, values, error) &&
        rubato_worker_stats(worker, "t", &before, error) &&
        rubato_sparse_kv_client_table_get(table, values, error) &&
        rubato_worker_stats(worker, "t", &after, error));
    scene->seen.get_wait_ns = after.get_wait_ns - before.get_wait_ns;
    event_raise(&scene->event);
    return true;
}

/* It could be answered at once, but then its servers would have to look for its keys. */
START_TEST(a_get_beyond_the_staleness_gives_the_others_a_moment)
{
    RubatoEngine *engine =
        start(&(RubatoTableSpec){ .model = "sparse_ssp", .staleness = 1, .speculation = 1 });
    Scene scene = { .event = EVENT_INIT };

    run_ok(engine, 2, begin_beyond_the_staleness, &scene, "t");
    ck_assert(scene.seen.get_wait_ns > 0 || g_get_num_processors() == 1);
    rubato_engine_free(engine);
}
END_TEST

static bool meet(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;

    if (rubato_worker_rank(worker) == 0)
        g_free(log_capture_wait("worker 1 waits in a barrier", ""));
    TRY(rubato_worker_barrier(worker, error));
    return rubato_worker_rank(worker) == 0 ||
           rubato_worker_stats(worker, NULL, &scene->seen, error);
}

START_TEST(waiting_in_barriers_is_counted_apart)
{
    RubatoEngine *engine = start(&(RubatoTableSpec){ .model = "bsp" });
    Scene scene = { .event = EVENT_INIT };

    log_capture_start();
    run_ok(engine, 2, meet, &scene, "t");
    ck_assert_uint_eq(scene.seen.n_barriers, 1);
    ck_assert_uint_ge(scene.seen.barrier_wait_ns, LEAST_WAIT_NS);
    ck_assert_uint_eq(scene.seen.get_wait_ns, 0);
    rubato_engine_free(engine);
}
END_TEST

/* ---- which tables ---- */

static bool use_one_of_two(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value = 0;
    RubatoWorkerStats all, used, unused, untouched;

    (void)user_data;
    TRY(table != NULL && rubato_kv_table_add(table, &key, 1, &value, error) &&
        rubato_kv_table_add(table, &key, 0, &value, error) &&
        rubato_kv_table_get(table, &key, 0, &value, error) &&
        rubato_kv_table_get(table, &key, 1, &value, error) && rubato_worker_barrier(worker, error));
    TRY(rubato_worker_stats(worker, NULL, &all, error) &&
        rubato_worker_stats(worker, "t", &used, error) &&
        rubato_worker_stats(worker, "other", &unused, error));
    REQUIRE(used.n_gets == 1 && used.n_adds == 1 && used.n_barriers == 0);
    REQUIRE(unused.n_gets == 0 && unused.n_adds == 0);
    REQUIRE(all.n_gets == 1 && all.n_adds == 1 && all.n_barriers == 1);
    rubato_worker_stats_add(&all, &used);
    REQUIRE(all.n_gets == 2 && all.staleness[0] == 2 && all.n_barriers == 1);
    memset(&untouched, 7, sizeof untouched);
    all = untouched;
    REQUIRE(!rubato_worker_stats(worker, "elsewhere", &all, error));
    REQUIRE(is_error(error, RUBATO_ERROR_NOT_FOUND, "elsewhere"));
    REQUIRE(memcmp(&all, &untouched, sizeof all) == 0);
    return true;
}

START_TEST(a_table_counts_apart_or_with_the_others)
{
    RubatoEngine *engine = start(&(RubatoTableSpec){ .model = "asp" });
    const char *const tables[] = { "t", "other", NULL };

    create_table(engine, &(RubatoTableSpec){ .name = "other", .n_keys = 8 });
    run_task_ok(engine, &(RubatoTask){ .name = "two",
                                       .run = use_one_of_two,
                                       .tables = tables,
                                       .workers_per_node = 1 });
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("worker_stats");
    TCase *tcase = tcase_create("worker_stats");

    tcase_add_loop_test(tcase, staleness_is_how_far_the_reader_is_before_the_min_clock, 0,
                        G_N_ELEMENTS(models));
    tcase_add_loop_test(tcase, no_get_is_staler_than_its_model_allows, 0, G_N_ELEMENTS(bounds));
    tcase_add_test(tcase, rows_from_the_cache_count_with_the_clock_at_which_they_were_read);
    tcase_add_test(tcase, gets_with_tickets_count_when_they_have_ended);
    tcase_add_test(tcase, waiting_for_a_slow_worker_adds_up);
    tcase_add_test(tcase, short_waits_count_like_long_ones);
    tcase_add_test(tcase, a_get_beyond_the_staleness_gives_the_others_a_moment);
    tcase_add_test(tcase, waiting_in_barriers_is_counted_apart);
    tcase_add_test(tcase, a_table_counts_apart_or_with_the_others);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
