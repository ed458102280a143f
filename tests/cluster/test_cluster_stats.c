/* Statistics of engines and workers on two nodes: each message is counted once on both sides; rows
 * of other nodes are as stale as their servers say. */
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum { N_GETS = 50, N_ADDS = 70 };

static bool get_and_add(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    const RubatoKey keys[] = { 1, 2, 900 };
    float values[] = { 1, 1, 1 };
    bool ok = table != NULL;

    (void)user_data;
    for (int i = 0; ok && i < N_ADDS; i++)
        ok = rubato_kv_table_add(table, keys, 3, values, error);
    for (int i = 0; ok && i < N_GETS; i++)
        ok = rubato_kv_table_get(table, keys, 3, values, error);
    return ok;
}

/* Node 0 has the worker, node 1 the server and all the rows. */
static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = 1000 };
    const char *const tables[] = { "t", NULL };
    const bool asks = rubato_engine_node(engine) == CLUSTER_IDS[0];
    RubatoEngineStats stats;
    RubatoTableStats table;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "task", get_and_add, NULL, tables, error) ||
        !rubato_engine_table_stats(engine, "t", &table, error))
        return false;
    rubato_engine_stats(engine, &stats);
    const RubatoMessageCounts requests = asks ? stats.sent : stats.received;
    const RubatoMessageCounts answers = asks ? stats.received : stats.sent;
    EXPECT(requests.gets == N_GETS, "%" G_GUINT64_FORMAT " Gets", requests.gets);
    EXPECT(requests.adds == N_ADDS, "%" G_GUINT64_FORMAT " Adds", requests.adds);
    EXPECT(answers.replies >= N_GETS, "%" G_GUINT64_FORMAT " replies", answers.replies);
    EXPECT(answers.gets == 0 && answers.adds == 0, "the server asks for nothing");
    EXPECT(requests.controls > 0 && answers.controls > 0, "both speak with the scheduler");
    EXPECT(stats.packets_sent > 0 && stats.bytes_sent > stats.packets_sent,
           "%" G_GUINT64_FORMAT " bytes in %" G_GUINT64_FORMAT " packets", stats.bytes_sent,
           stats.packets_sent);
    EXPECT(table.n_rows == (asks ? 0 : 1000), "%" G_GUINT64_FORMAT " rows", table.n_rows);
    EXPECT(table.row_bytes == sizeof(float), "%" G_GUINT64_FORMAT " bytes", table.row_bytes);
    return true;
}

START_TEST(both_nodes_count_the_same_messages)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 0, 1 }, { 1, 0 } } });

    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- barriers ---- */

static uint64_t count_fences(RubatoEngine *engine)
{
    RubatoEngineStats stats;

    rubato_engine_stats(engine, &stats);
    return stats.sent.fences;
}

static bool wait_in_barriers(RubatoWorker *worker, int n, GError **error)
{
    for (int i = 0; i < n; i++)
        if (!rubato_worker_barrier(worker, error))
            return false;
    return true;
}

/* The row of key 998 is on the last node. */
static bool meet(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoEngine *const engine = user_data;
    const bool is_last = rubato_worker_rank(worker) + 1 == rubato_worker_n_workers(worker);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    const RubatoKey last = 998;
    const float one = 1;
    float sum = 0;

    const uint64_t at_first = count_fences(engine);

    if (table == NULL || !wait_in_barriers(worker, 1, error))
        return false;

    if (!wait_in_barriers(worker, 50, error))
        return false;
    EXPECT(count_fences(engine) == at_first, "%" G_GUINT64_FORMAT " fences for nothing",
           count_fences(engine) - at_first);
    if (!rubato_kv_table_add(table, &last, 1, &one, error) || !wait_in_barriers(worker, 1, error))
        return false;
    EXPECT(count_fences(engine) == at_first + (is_last ? 0 : 1),
           "%" G_GUINT64_FORMAT " fences for one Add", count_fences(engine) - at_first);
    if (!rubato_kv_table_get(table, &last, 1, &sum, error))
        return false;
    EXPECT(sum == (float)rubato_worker_n_workers(worker), "the sum is %g", (double)sum);
    return true;
}

static bool play_barriers(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = 999, .model = "asp" };
    const char *const tables[] = { "t", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "meet", meet, engine, tables, error);
}

START_TEST(a_barrier_asks_only_nodes_to_which_something_was_sent)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 3, .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 } } });

    cluster_start(run, play_barriers, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- staleness ---- */

enum { N_AHEAD = 4 };

/* Worker 0, on node 0, stays at clock 0 until worker 1, on node 1, has made all its Gets. */
static bool run_ahead(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    g_autoptr(RubatoKVTable) flag = rubato_worker_open_kv_table(worker, "flag", RUBATO_F32, error);
    const RubatoKey far = 0, both[] = { 0, 999 }, none = 0;
    float values[] = { 1, 1 };
    RubatoWorkerStats stats;

    (void)user_data;
    if (table == NULL || flag == NULL)
        return false;
    if (rubato_worker_rank(worker) == 0) {
        values[0] = 0;
        while (values[0] < 1)
            if (!rubato_kv_table_get(flag, &none, 1, values, error))
                return false;
        return true;
    }
    for (int i = 0; i < N_AHEAD; i++)
        if ((i > 0 && !rubato_kv_table_clock(table, error)) ||
            !rubato_kv_table_get(table, &far, 1, values, error) ||
            !rubato_kv_table_get(table, both, 2, values, error))
            return false;
    if (!rubato_worker_stats(worker, "t", &stats, error))
        return false;
    EXPECT(stats.n_gets == (uint64_t)2 * N_AHEAD, "%" G_GUINT64_FORMAT, stats.n_gets);
    for (int i = 0; i < RUBATO_STALENESS_BUCKETS; i++)
        EXPECT(stats.staleness[i] == (i < N_AHEAD ? 2 : 0),
               "%" G_GUINT64_FORMAT " Gets of staleness %d", stats.staleness[i], i);
    values[0] = 1;
    return rubato_kv_table_add(flag, &none, 1, values, error);
}

static bool play_ahead(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = fitting_spec(
        (RubatoTableSpec){ .name = "t", .n_keys = 1000, .model = data, .staleness = N_AHEAD - 1 });
    const RubatoTableSpec flag = { .name = "flag", .n_keys = 1 };
    const char *const tables[] = { "t", "flag", NULL };

    return rubato_engine_create_table(engine, &spec, error) &&
           rubato_engine_create_table(engine, &flag, error) &&
           cluster_run_task(engine, "task", run_ahead, NULL, tables, error);
}

static const char *const models[] = { "ssp", "sparse_ssp", "asp" };

START_TEST(rows_of_another_node_are_as_stale_as_its_server_says)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, play_ahead, models[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_stats");
    TCase *tcase = cluster_add_case(suite, "stats");

    tcase_add_test(tcase, both_nodes_count_the_same_messages);
    tcase_add_test(tcase, a_barrier_asks_only_nodes_to_which_something_was_sent);
    tcase_add_loop_test(tcase, rows_of_another_node_are_as_stale_as_its_server_says, 0,
                        G_N_ELEMENTS(models));
    return run_suite(suite);
}
