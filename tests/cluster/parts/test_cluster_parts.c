/* Parts that move between the nodes of a cluster while a task runs: under every model a Get sees
 * what it must and may, and what was added is there once; also of a large table. That BSP has the
 * same bits is seen by test_cluster_bsp; simulated clusters move parts too, under faults. */
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/support/cluster/cluster_counts.h"
#include "tests/support/cluster/cluster_moves.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

/* ---- every model ---- */

enum {
    N_KEYS = 300,
    WIDTH = 3,
    N_CLOCKS = 24,
    STALENESS = 2,
    SPECULATION = 2,
    N_PARTS = 5,
    N_MOVES = 24
};

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

static const struct {
    const char *over;
    ClusterShape shape;
} shapes[] = {
    { NULL, { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } } },
    { "tcp", { .n_nodes = 3, .nodes = { { 2, 1 }, { 1, 2 }, { 0, 1 } }, .scheduler = 2 } },
};

typedef struct {
    const char *model;
    bool hashed;
    ClusterMoves moves;
} Scene;

static RubatoKey key_of(const Scene *scene, uint64_t i)
{
    return scene->hashed ? i * UINT64_C(0x9e3779b97f4a7c15) : 1000 + i;
}

/* What was asked at a clock, by a worker that went on to `until` meanwhile. */
static bool check_rows(const Scene *scene, const RubatoWorker *worker, uint64_t clock,
                       uint64_t until, const double *values, GError **error)
{
    const CountRules rules = {
        .model = scene->model, .n_clocks = N_CLOCKS, .staleness = STALENESS, .n_early = 2
    };

    return cluster_check_counts(&rules, worker, clock, until, values, N_KEYS * WIDTH, error);
}

/* The Get of a clock is waited for when the clock is over: an earlier one may move while its worker
 * is ahead. */
static bool count_with_tickets(RubatoWorker *worker, Scene *scene, const RubatoKey *keys,
                               const double *ones, GError **error)
{
    double values[2][N_KEYS * WIDTH];
    RubatoTicket tickets[2] = { 0 };
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "counts", RUBATO_F64, error);

    if (table == NULL)
        return false;
    for (uint64_t clock = 0; clock <= N_CLOCKS; clock++) {
        if (clock > 0 &&
            (!rubato_worker_wait(worker, tickets[(clock - 1) % 2], error) ||
             !check_rows(scene, worker, clock - 1, clock, values[(clock - 1) % 2], error)))
            return false;
        if (clock == N_CLOCKS)
            break;
        tickets[clock % 2] =
            rubato_kv_table_get_async(table, keys, N_KEYS, values[clock % 2], NULL, error);
        if (tickets[clock % 2] == 0 ||
            !cluster_await_moves(worker, &scene->moves, clock, N_CLOCKS, error) ||
            rubato_kv_table_add_async(table, keys, N_KEYS, ones, NULL, error) == 0 ||
            !rubato_kv_table_clock(table, error))
            return false;
    }
    return true;
}

static bool count_with_kv(RubatoWorker *worker, Scene *scene, const RubatoKey *keys,
                          const double *ones, GError **error)
{
    double values[N_KEYS * WIDTH];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F64, error);

    if (table == NULL)
        return false;
    for (uint64_t clock = 0; clock < N_CLOCKS; clock++)
        if (!rubato_kv_table_get(table, keys, N_KEYS, values, error) ||
            !check_rows(scene, worker, clock, clock, values, error) ||
            !cluster_await_moves(worker, &scene->moves, clock, N_CLOCKS, error) ||
            !rubato_kv_table_add(table, keys, N_KEYS, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return true;
}

static bool count_with_sparse(RubatoWorker *worker, Scene *scene, const RubatoKey *keys,
                              const double *ones, GError **error)
{
    double values[N_KEYS * WIDTH];
    RubatoIteration iterations[N_CLOCKS];

    for (int i = 0; i < N_CLOCKS; i++)
        iterations[i] = (RubatoIteration){ keys, N_KEYS };
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "counts", RUBATO_F64, iterations, N_CLOCKS, error);
    if (table == NULL)
        return false;
    for (uint64_t clock = 0; clock < N_CLOCKS; clock++)
        if (!rubato_sparse_kv_client_table_get(table, values, error) ||
            !check_rows(scene, worker, clock, clock, values, error) ||
            !cluster_await_moves(worker, &scene->moves, clock, N_CLOCKS, error) ||
            !rubato_sparse_kv_client_table_add(table, ones, error))
            return false;
    return true;
}

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    RubatoKey keys[N_KEYS];
    double ones[N_KEYS * WIDTH];

    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = key_of(scene, (i * 7) % N_KEYS);
    for (int i = 0; i < N_KEYS * WIDTH; i++)
        ones[i] = 1;
    if (g_str_equal(scene->model, "sparse_ssp"))
        return count_with_sparse(worker, scene, keys, ones, error);
    if (rubato_worker_rank(worker) % 2 == 1)
        return count_with_tickets(worker, scene, keys, ones, error);
    return count_with_kv(worker, scene, keys, ones, error);
}

static bool count_on(RubatoEngine *engine, Scene *scene, GError **error)
{
    const RubatoTableSpec spec =
        fitting_spec((RubatoTableSpec){ .name = "counts",
                                        .dtype = RUBATO_F64,
                                        .width = WIDTH,
                                        .storage = scene->hashed ? "hash" : "dense",
                                        .first_key = scene->hashed ? 0 : 1000,
                                        .n_keys = scene->hashed ? 0 : N_KEYS,
                                        .parts = N_PARTS,
                                        .model = scene->model,
                                        .staleness = STALENESS,
                                        .speculation = SPECULATION });
    const char *const tables[] = { "counts", NULL };
    const RubatoTask task = { .name = "count", .run = count, .user_data = scene, .tables = tables };
    const double expected = rubato_engine_n_workers(engine) * N_CLOCKS;
    RubatoKey keys[N_KEYS];
    double values[N_KEYS * WIDTH];

    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = key_of(scene, i);
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_moving(engine, &task, &scene->moves, error) ||
        !rubato_engine_get(engine, "counts", keys, N_KEYS, values, error))
        return false;
    for (int i = 0; i < N_KEYS * WIDTH; i++)
        EXPECT(values[i] == expected, "%s: value %d is %g at last, expected %g", scene->model, i,
               values[i], expected);
    return rubato_engine_drop_table(engine, "counts", error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    for (int hashed = 0; hashed < 2; hashed++) {
        Scene scene = { .model = data,
                        .hashed = hashed != 0,
                        .moves = { "counts", N_PARTS, N_MOVES, EVENT_INIT } };

        if (!count_on(engine, &scene, error))
            return false;
    }
    return true;
}

START_TEST(gets_stay_within_bounds_and_adds_count_once_while_parts_move)
{
    const size_t shape = (size_t)_i / G_N_ELEMENTS(models);
    ClusterShape with = shapes[shape].shape;
    ClusterRun *run;

    if (shapes[shape].over != NULL)
        with.over = shapes[shape].over;
    run = cluster_run_new(&with);
    cluster_start(run, play, models[(size_t)_i % G_N_ELEMENTS(models)]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a large table ---- */

enum { LARGE_WIDTH = 16, N_LARGE_KEYS = 1600000, N_ROUNDS = 40 };

typedef struct {
    _Atomic bool has_moved;
    RubatoKey n_keys;
} Large;

/* Each worker adds to rows of its own all over the table while they move, and reads them back. */
static bool add_all_over(RubatoWorker *worker, void *user_data, GError **error)
{
    Large *large = user_data;
    const uint32_t rank = rubato_worker_rank(worker), n_workers = rubato_worker_n_workers(worker);
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "large", RUBATO_F32, error);
    float values[4 * LARGE_WIDTH], ones[4 * LARGE_WIDTH];
    RubatoKey keys[4];

    if (table == NULL)
        return false;
    for (int i = 0; i < 4 * LARGE_WIDTH; i++)
        ones[i] = 1;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        do {
            for (uint32_t i = 0; i < 4; i++)
                keys[i] = (large->n_keys / (4 * n_workers)) * (i * n_workers + rank);
            if (!rubato_kv_table_get(table, keys, 4, values, error))
                return false;
            for (int i = 0; i < 4 * LARGE_WIDTH; i++)
                EXPECT(values[i] == (float)round, "%g in round %u", (double)values[i], round);
        } while (round == N_ROUNDS / 2 && !atomic_load(&large->has_moved));
        if (!rubato_kv_table_add(table, keys, 4, ones, error))
            return false;
    }
    return true;
}

static bool play_large(RubatoEngine *engine, const void *data, GError **error)
{
    Large large = { .n_keys = N_LARGE_KEYS / cluster_slowness() };
    const RubatoTableSpec spec = {
        .name = "large", .width = LARGE_WIDTH, .n_keys = large.n_keys, .parts = 2, .model = "asp"
    };
    const char *const tables[] = { "large", NULL };
    const RubatoTask task = {
        .name = "add", .run = add_all_over, .user_data = &large, .tables = tables
    };
    RubatoTaskRun *run;
    bool moved = true;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    run = rubato_engine_start(engine, &task, error);
    if (run == NULL)
        return false;
    for (uint32_t i = 0; i < 4 && moved; i++) { /* both to one node, apart, and changed */
        const int64_t begun_us = g_get_monotonic_time();

        moved = rubato_engine_move_part(engine, "large", i % 2, i < 2 ? 1 : i - 2, error);
        cluster_say("move %u took %" G_GINT64_FORMAT " ms", i,
                    (g_get_monotonic_time() - begun_us) / 1000);
    }
    atomic_store(&large.has_moved, true);
    return rubato_task_run_wait(run, moved ? error : NULL) && moved;
}

static const char *const overs[] = { "shm", "tcp" };

START_TEST(a_large_part_moves_while_workers_use_it)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .over = overs[_i] });

    cluster_start(run, play_large, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *parts_suite(void)
{
    Suite *suite = suite_create("parts that move between processes");
    TCase *cases = cluster_add_case(suite, "parts");

    tcase_add_loop_test(cases, gets_stay_within_bounds_and_adds_count_once_while_parts_move, 0,
                        (int)(G_N_ELEMENTS(models) * G_N_ELEMENTS(shapes)));
    tcase_add_loop_test(cases, a_large_part_moves_while_workers_use_it, 0, G_N_ELEMENTS(overs));
    return suite;
}

int main(void)
{
    return run_suite(parts_suite());
}
