/* Nodes are killed, again and again, while a worker of another node adds to their parts: each Add
 * that was acknowledged counts once. The loss is known by the connections of the dead process,
 * since the timeout is much longer than the case.
 *
 * Prints how long the Add took that was under way, which is to all parts: no less than the time
 * from the kill to the next acknowledged Add. Nothing is asserted of it, because a busy machine may
 * take any time. RUBATO_TEST_KILLS is the number of kills, RUBATO_TEST_MODEL the model (default:
 * asp); under others each Add has a clock of its own. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2, N_KEYS = 60, N_PARTS = 6, BEFORE = 20, AFTER = 20 };

static RubatoTableSpec spec = {
    .name = "rows",
    .model = "asp",
    .dtype = RUBATO_I64,
    .n_keys = N_KEYS,
    .parts = N_PARTS,
    .replicas = 1,
};

typedef struct {
    RubatoEngine *engine;
    int64_t n_rounds;
} Job;

/* Each Add is to all parts, and is acknowledged before the next one. */
static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *const job = user_data;
    int64_t ones[N_KEYS];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, spec.name, RUBATO_I64, error);

    TRY(table != NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (int after = 0; after < AFTER; job->n_rounds++) {
        const int64_t begun_us = g_get_monotonic_time();

        TRY(rubato_kv_table_add_range_async(table, 0, N_KEYS, ones, NULL, error) != 0 &&
            rubato_worker_wait_all(worker, error));
        if (strcmp(spec.model, "asp") != 0)
            TRY(rubato_kv_table_clock(table, error));
        if (job->n_rounds == BEFORE)
            cluster_say("busy");
        if (!cluster_is_lost(job->engine, VICTIM))
            continue;
        if (after++ == 0)
            cluster_say("waited: %" G_GINT64_FORMAT " us", g_get_monotonic_time() - begun_us);
    }
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { spec.name, NULL };
    Job job = { .engine = engine };
    int64_t rows[N_KEYS];

    (void)data;
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        cluster_run_task(engine, "work", work, &job, tables, error) &&
        rubato_engine_get_range(engine, spec.name, 0, N_KEYS, rows, error));
    for (size_t i = 0; i < N_KEYS && rubato_engine_node(engine) == CLUSTER_IDS[0]; i++)
        EXPECT(rows[i] == job.n_rounds, "key %zu: %" G_GINT64_FORMAT ", and not %" G_GINT64_FORMAT,
               i, rows[i], job.n_rounds);
    return rubato_engine_barrier(engine, error);
}

/* Returns how long the Add took that was under way when the node was lost. */
static double kill_one(const char *over)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = N_NODES, .nodes = { { 1, 1 }, { 1, 0 }, { 1, 0 } }, .over = over });
    double waited_ms;

    cluster_start(run, play, NULL);
    cluster_wait_for(run, 0, "busy");
    cluster_signal(run, VICTIM, SIGKILL);
    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "its process has ended; the run goes on, by part map 2");
    }
    g_autofree char *text = cluster_text_after(run, 0, "waited: ");
    waited_ms = g_ascii_strtod(text, NULL) / 1e3;
    cluster_run_free(run);
    return waited_ms;
}

static int compare(const void *one, const void *other)
{
    const double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

START_TEST(each_acknowledged_add_counts_once_whichever_node_is_killed)
{
    const char *const over = _i == 0 ? "shm" : "tcp";
    const char *const asked = g_getenv("RUBATO_TEST_KILLS");
    const size_t n = asked == NULL ? 2 : (size_t)g_ascii_strtoull(asked, NULL, 10);
    g_autofree double *waited_ms = g_new(double, n);

    for (size_t i = 0; i < n; i++)
        waited_ms[i] = kill_one(over);
    qsort(waited_ms, n, sizeof *waited_ms, compare);
    printf("%s, %s: %zu kills; the Add that was under way took %.0f ms (median), %.0f ms (99th "
           "percentile), %.0f "
           "ms (all)\n",
           over, spec.model, n, waited_ms[n / 2], waited_ms[(n - 1) * 99 / 100], waited_ms[n - 1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replica kills");
    const char *const model = g_getenv("RUBATO_TEST_MODEL");
    TCase *kills = cluster_add_case(suite, "kills");

    spec.model = model != NULL ? model : spec.model;
    tcase_set_timeout(kills, g_getenv("RUBATO_TEST_KILLS") != NULL ? 300 : 30);
    tcase_add_loop_test(kills, each_acknowledged_add_counts_once_whichever_node_is_killed, 0, 2);
    return run_suite(suite);
}
