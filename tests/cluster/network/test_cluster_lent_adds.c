/* Adds to large ranges of another node of the host. A server that is free applies them where they
 * lie in shared memory; of one that is busy, of a model that keeps them, and of a part with
 * replicas they are copied before. All sums are exact, though what lies there is soon written
 * over. */
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 40000, N_ROUNDS = 60, N_WORKERS = 3 };

static const FlowSizes usual = FLOW_SIZES_USUAL;

typedef struct {
    const char *model;
    uint32_t staleness, servers, replicas;
} Way;

static const Way ways[] = {
    { "asp", 0, 1, 0 }, { "ssp", 2, 1, 0 }, { "bsp", 0, 1, 0 },
    { "asp", 0, 2, 0 }, { "asp", 0, 1, 1 }, { "bsp", 0, 2, 1 },
};

static int64_t delta_of(uint32_t rank, uint32_t round, size_t key)
{
    return (int64_t)(key * (round + 1) + rank);
}

static int64_t sum_of(size_t key)
{
    int64_t sum = 0;

    for (uint32_t rank = 0; rank < N_WORKERS; rank++)
        for (uint32_t round = 0; round < N_ROUNDS; round++)
            sum += delta_of(rank, round, key);
    return sum;
}

/* The array is another one's as soon as a call has returned. */
static bool add_ranges(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    g_autofree int64_t *deltas = g_new(int64_t, N_KEYS);

    (void)user_data;
    TRY(table != NULL);
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        for (size_t key = 0; key < N_KEYS; key++)
            deltas[key] = delta_of(rank, round, key);
        TRY(rubato_kv_table_add_range(table, 0, N_KEYS, deltas, error) &&
            rubato_kv_table_clock(table, error));
    }
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "rows", NULL };
    const Way *const way = data;
    const RubatoTableSpec spec = { .name = "rows",
                                   .dtype = RUBATO_I64,
                                   .n_keys = N_KEYS,
                                   .storage = "dense",
                                   .model = way->model,
                                   .staleness = way->staleness,
                                   .replicas = way->replicas };
    g_autofree int64_t *sums = g_new(int64_t, N_KEYS);

    TRY(rubato_engine_create_table(engine, &spec, error) &&
        cluster_run_task(engine, "add", add_ranges, NULL, tables, error) &&
        rubato_engine_get_range(engine, "rows", 0, N_KEYS, sums, error));
    for (size_t key = 0; key < N_KEYS; key++)
        EXPECT(sums[key] == sum_of(key), "the sum of key %zu is wrong", key);
    return rubato_engine_barrier(engine, error);
}

START_TEST(sums_of_large_ranges_are_exact)
{
    const Way *const way = &ways[_i];
    const ClusterShape shape = { .n_nodes = 3,
                                 .nodes = { { way->servers, 1 }, { 0, 1 }, { way->servers, 1 } },
                                 .sizes = &usual };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, way);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster lent adds");
    TCase *const cases = cluster_add_case(suite, "lent adds");

    tcase_add_loop_test(cases, sums_of_large_ranges_are_exact, 0, G_N_ELEMENTS(ways));
    return run_suite(suite);
}
