/* Every model over several processes, with nodes that only serve and nodes that only work: each Get
 * is within the model's bounds, and no Add is lost or doubled. */
#include <stdlib.h>

#include "tests/support/cluster/cluster_counts.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum { N_KEYS = 600, WIDTH = 3, N_CLOCKS = 15, STALENESS = 2, SPECULATION = 2 };

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
static const char *const storages[] = { "dense", "hash" };

static const struct {
    const char *name;
    ClusterShape shape;
} shapes[] = {
    { "one server and one worker on each of two",
      { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } } },
    { "several servers and workers", { .n_nodes = 2, .nodes = { { 3, 2 }, { 2, 3 } } } },
    { "one only serves, one only works",
      { .n_nodes = 3, .nodes = { { 2, 0 }, { 1, 2 }, { 0, 2 } } } },
    { "the scheduler's node only works, and is the last",
      { .n_nodes = 3, .nodes = { { 1, 1 }, { 2, 0 }, { 0, 2 } }, .scheduler = 2 } },
};

typedef struct {
    const char *model;
    bool hashed;
} Case;

/* Scattered over all 64 bits if the storage takes any key. */
static RubatoKey key_of(const Case *scene, uint64_t i)
{
    return scene->hashed ? i * UINT64_C(0x9e3779b97f4a7c15) : 1000 + i;
}

static bool check_rows(const Case *scene, const RubatoWorker *worker, uint64_t clock,
                       const double *values, GError **error)
{
    const CountRules rules = {
        .model = scene->model, .n_clocks = N_CLOCKS, .staleness = STALENESS, .n_early = 1
    };

    return cluster_check_counts(&rules, worker, clock, clock, values, N_KEYS * WIDTH, error);
}

static bool count_with_kv(RubatoWorker *worker, const Case *scene, const RubatoKey *keys,
                          const double *ones, GError **error)
{
    double values[N_KEYS * WIDTH];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F64, error);

    if (table == NULL)
        return false;
    for (uint64_t clock = 0; clock < N_CLOCKS; clock++)
        if (!rubato_kv_table_get(table, keys, N_KEYS, values, error) ||
            !check_rows(scene, worker, clock, values, error) ||
            !rubato_kv_table_add(table, keys, N_KEYS, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return true;
}

static bool count_with_sparse(RubatoWorker *worker, const Case *scene, const RubatoKey *keys,
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
            !check_rows(scene, worker, clock, values, error) ||
            !rubato_sparse_kv_client_table_add(table, ones, error))
            return false;
    return true;
}

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    const Case *scene = user_data;
    RubatoKey keys[N_KEYS];
    double ones[N_KEYS * WIDTH];

    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = key_of(scene, (i * 7) % N_KEYS);
    for (int i = 0; i < N_KEYS * WIDTH; i++)
        ones[i] = 1;
    if (g_str_equal(scene->model, "sparse_ssp"))
        return count_with_sparse(worker, scene, keys, ones, error);
    return count_with_kv(worker, scene, keys, ones, error);
}

static bool count_on(RubatoEngine *engine, const Case *scene, const char *storage, GError **error)
{
    const RubatoTableSpec spec =
        fitting_spec((RubatoTableSpec){ .name = "counts",
                                        .dtype = RUBATO_F64,
                                        .width = WIDTH,
                                        .storage = storage,
                                        .first_key = scene->hashed ? 0 : 1000,
                                        .n_keys = scene->hashed ? 0 : N_KEYS,
                                        .parts = scene->hashed ? 7 : 0,
                                        .model = scene->model,
                                        .staleness = STALENESS,
                                        .speculation = SPECULATION });
    const char *const tables[] = { "counts", NULL };
    const double expected = rubato_engine_n_workers(engine) * N_CLOCKS;
    RubatoKey keys[N_KEYS];
    double values[N_KEYS * WIDTH];

    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = key_of(scene, i);
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "count", count, scene, tables, error) ||
        !rubato_engine_get(engine, "counts", keys, N_KEYS, values, error))
        return false;
    for (int i = 0; i < N_KEYS * WIDTH; i++)
        EXPECT(values[i] == expected, "%s over %s: value %d is %g at last, expected %g",
               scene->model, storage, i, values[i], expected);
    /* No node drops the table before all have read it. */
    return rubato_engine_drop_table(engine, "counts", error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    for (size_t i = 0; i < G_N_ELEMENTS(storages); i++) {
        const Case scene = { data, i == 1 };

        if (!count_on(engine, &scene, storages[i], error))
            return false;
    }
    return true;
}

START_TEST(all_that_workers_add_is_there_and_gets_stay_within_bounds)
{
    const char *model = models[(size_t)_i % G_N_ELEMENTS(models)];
    ClusterRun *run = cluster_run_new(&shapes[(size_t)_i / G_N_ELEMENTS(models)].shape);

    cluster_start(run, play, model);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- announcements that are longer than a message ---- */

enum { N_ASKED = 200, REACH = 4 };

static const struct {
    const char *over;
    size_t n_keys;
} announcements[] = { { NULL, 50000 }, { "tcp", 200000 } };

/* The keys of the slow worker: not side by side, and falling, so that they travel as a list. */
static RubatoKey *long_list(size_t n)
{
    RubatoKey *keys = g_new(RubatoKey, n);

    for (size_t i = 0; i < n; i++)
        keys[i] = 2 * (n - i);
    return keys;
}

/* Its only iteration uses all keys; it is long in it, and then adds. */
static bool be_slow(RubatoWorker *worker, const RubatoKey *keys, size_t n, GError **error)
{
    const RubatoIteration iteration = { keys, n };
    const RubatoKey other = 0;
    g_autofree float *values = g_new0(float, n);
    g_autoptr(RubatoSparseKVClientTable) table =
        rubato_worker_open_sparse_kv_client_table(worker, "rows", RUBATO_F32, &iteration, 1, error);
    g_autoptr(RubatoKVTable) others =
        rubato_worker_open_kv_table(worker, "others", RUBATO_F32, error);

    if (table == NULL || others == NULL || !rubato_worker_barrier(worker, error) ||
        !rubato_sparse_kv_client_table_get(table, values, error))
        return false;
    for (int i = 0; i < N_ASKED; i++)
        if (!rubato_kv_table_get(others, &other, 1, values, error))
            return false;
    for (size_t i = 0; i < n; i++)
        values[i] = 1;
    return rubato_sparse_kv_client_table_add(table, values, error);
}

/* Uses one of these keys from clock 1 on, and so must wait for the slow worker's Adds. */
static bool be_fast(RubatoWorker *worker, const RubatoKey *used, GError **error)
{
    const RubatoKey free_key = 1;
    RubatoIteration iterations[1 + REACH];
    float value;

    for (int i = 0; i <= REACH; i++)
        iterations[i] = (RubatoIteration){ i == 0 ? &free_key : used, 1 };
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "rows", RUBATO_F32, iterations, 1 + REACH, error);
    if (table == NULL || !rubato_worker_barrier(worker, error))
        return false;
    for (int clock = 0; clock <= REACH; clock++) {
        if (!rubato_sparse_kv_client_table_get(table, &value, error))
            return false;
        EXPECT(value == (clock == 0 ? 0 : 1), "%g at clock %d", (double)value, clock);
    }
    return true;
}

static bool announce_much(RubatoWorker *worker, void *user_data, GError **error)
{
    const size_t n = *(const size_t *)user_data;
    g_autofree RubatoKey *keys = long_list(n);

    if (rubato_worker_node(worker) == CLUSTER_IDS[1])
        return be_slow(worker, keys, n, error);
    return be_fast(worker, &keys[n - 1], error);
}

static bool play_announcing(RubatoEngine *engine, const void *data, GError **error)
{
    const size_t *n_keys = data;
    const RubatoTableSpec rows = {
        .name = "rows", .n_keys = 2 * *n_keys + 1, .model = "sparse_ssp", .speculation = REACH
    };
    const RubatoTableSpec others = { .name = "others", .n_keys = 1, .model = "asp" };
    const char *const tables[] = { "rows", "others", NULL };

    return rubato_engine_create_table(engine, &rows, error) &&
           rubato_engine_create_table(engine, &others, error) &&
           cluster_run_task(engine, "announce much", announce_much, n_keys, tables, error);
}

START_TEST(every_key_of_a_long_announcement_is_waited_for)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } }, .over = announcements[_i].over });

    cluster_start(run, play_announcing, &announcements[_i].n_keys);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *models_suite(void)
{
    Suite *suite = suite_create("models over several processes");
    TCase *bounds_case = cluster_add_case(suite, "bounds");

    tcase_add_loop_test(bounds_case, all_that_workers_add_is_there_and_gets_stay_within_bounds, 0,
                        (int)(G_N_ELEMENTS(models) * G_N_ELEMENTS(shapes)));
    TCase *pieces = cluster_add_case(suite, "pieces");

    tcase_add_loop_test(pieces, every_key_of_a_long_announcement_is_waited_for, 0,
                        (int)G_N_ELEMENTS(announcements));
    return suite;
}

int main(void)
{
    return run_suite(models_suite());
}
