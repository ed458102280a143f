/* Large ranges from several servers over TCP: rows come whole to their places in one array, while
 * connections break; and a Get that is cancelled lets go of its array at once. */
#include <pthread.h>
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/outage.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 100000, N_ROUNDS = 5, N_FAILURES = 3 };

static const FlowSizes usual = FLOW_SIZES_USUAL;

/* The last node has no server: all rows come from the others. */
static ClusterShape shape_of(bool encrypts)
{
    return (ClusterShape){ .n_nodes = 3,
                           .nodes = { { 1, 0 }, { 1, 0 }, { 0, 2 } },
                           .over = "tcp",
                           .encrypts = encrypts,
                           .sizes = &usual };
}

static float value_of(size_t key)
{
    return (float)(key % 1000003);
}

/* Reads all rows to memory of just their size, which is freed right after. */
static bool get_once(RubatoKVTable *table, GError **error)
{
    g_autofree float *values = g_new(float, N_KEYS);
    size_t n_wrong = 0;

    memset(values, 0xee, N_KEYS * sizeof *values);
    if (!rubato_kv_table_get_range(table, 0, N_KEYS, values, error))
        return false;
    for (size_t i = 0; i < N_KEYS; i++)
        n_wrong += values[i] != value_of(i);
    EXPECT(n_wrong == 0, "%zu rows are wrong", n_wrong);
    return true;
}

/* Both workers may be at it. */
static void cut(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    (void)outage_reset_connections(2);
    pthread_mutex_unlock(&lock);
}

static bool get_while_cut(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    for (unsigned i = 0; table != NULL && i < N_ROUNDS; i++) {
        if (i % 2 == rubato_worker_rank(worker)) /* in the middle of what the other one gets */
            cut();
        if (!get_once(table, error))
            return false;
    }
    return table != NULL;
}

/* One worker reads until the task is cancelled, because the other one fails after some Gets. */
static bool get_until_cancelled(RubatoWorker *worker, void *user_data, GError **error)
{
    static Event gets = EVENT_INIT; /* of this process, in all tasks */
    const uint32_t n_before = event_count(&gets);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL || !rubato_worker_barrier(worker, error))
        return false;
    if (rubato_worker_rank(worker) == 0) {
        while (get_once(table, error))
            event_raise(&gets);
        return false;
    }
    if (!event_await(&gets, n_before + 2, worker, error))
        return false;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "enough was read");
    return false;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_F32, .width = 1, .n_keys = N_KEYS, .storage = "dense"
    };
    GError *found = NULL;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[0]) {
        g_autofree float *values = g_new(float, N_KEYS);

        for (size_t i = 0; i < N_KEYS; i++)
            values[i] = value_of(i);
        if (!rubato_engine_set_range(engine, "rows", 0, N_KEYS, values, error))
            return false;
    }
    if (!rubato_engine_barrier(engine, error) ||
        !cluster_run_task(engine, "cut", get_while_cut, NULL, tables, error))
        return false;
    for (unsigned i = 0; i < N_FAILURES; i++) {
        EXPECT(!cluster_run_task(engine, "fail", get_until_cancelled, NULL, tables, &found),
               "it went well");
        if (!cluster_expect_error(&found, RUBATO_ERROR_TASK_FAILED, "enough was read", error) ||
            !rubato_engine_barrier(engine, error))
            return false;
    }
    return cluster_run_task(engine, "again", get_while_cut, NULL, tables, error);
}

/* _i: encrypted. */
START_TEST(ranges_come_whole_and_let_go_of_their_arrays)
{
    const ClusterShape shape = shape_of(_i == 1);
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_ranges");
    TCase *const cases = cluster_add_case(suite, "ranges");

    tcase_add_loop_test(cases, ranges_come_whole_and_let_go_of_their_arrays, 0, 2);
    return run_suite(suite);
}
