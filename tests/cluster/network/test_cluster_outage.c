/* Outages of the network that are shorter than the timeout: no node is lost, and every Add counts
 * once.
 *
 * docs/liveness.md: A connection that breaks */
#include <time.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/outage.h"
#include "tests/support/runner.h"

/* The rest of a timeout after the longest outage, and the heartbeat after it, take 2.8 s, because a
 * machine may hold up the processes for so long while they connect again. */
#define TIMEOUT_MS 8000

enum { N_NODES = 3, N_WORKERS = 2, N_CLOCKS = 200, N_KEYS = 1000 };

static int gate[2]; /* made by the case: a node that reads from it waits for the case */

/* ---- in a node ---- */

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    float ones[N_KEYS], rows[N_KEYS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);
    char byte;

    (void)user_data;
    if (table == NULL)
        return false;
    for (unsigned i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (unsigned clock = 0; clock < N_CLOCKS; clock++) {
        if (!rubato_kv_table_get_range(table, 0, N_KEYS, rows, error) ||
            !rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
        EXPECT(rows[N_KEYS - 1] == (float)(clock * N_WORKERS), "clock %u reads %g", clock,
               (double)rows[N_KEYS - 1]);
        if (clock == N_CLOCKS / 2) {
            cluster_say("half");
            EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
        }
    }
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows", .n_keys = N_KEYS, .model = "bsp" };
    const char *const tables[] = { "rows", NULL };
    float rows[N_KEYS];

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "count", count, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "rows", 0, N_KEYS, rows, error))
        return false;
    for (unsigned i = 0; i < N_KEYS; i++)
        EXPECT(rows[i] == N_WORKERS * N_CLOCKS, "key %u is %g", i, (double)rows[i]);
    return true;
}

/* ---- the case ---- */

static void wait_until(int64_t end_ms)
{
    const struct timespec end = { .tv_sec = (time_t)(end_ms / 1000),
                                  .tv_nsec = (long)(end_ms % 1000) * 1000000 };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0)
        ;
}

/* How the network fails, and for how many hundredths of the timeout. Builds with a sanitizer are
 * slow and run the first few. */
static const struct {
    OutageKind kind;
    int64_t hundredths;
    const char *over;
} outages[] = {
    { OUTAGE_SILENT, 90, "tcp" }, { OUTAGE_DOWN, 90, "tcp" },   { OUTAGE_SILENT, 90, "zmq" },
    { OUTAGE_SILENT, 20, "tcp" }, { OUTAGE_SILENT, 55, "tcp" }, { OUTAGE_SILENT, 75, "tcp" },
    { OUTAGE_DOWN, 55, "tcp" },   { OUTAGE_SILENT, 55, "zmq" },
};

enum { N_FIRST = 3 };

/* The scheduler's node works, another one has the servers, and the third works. */
START_TEST(an_outage_shorter_than_the_timeout_loses_nobody_and_nothing)
{
    const OutageKind kind = outages[_i].kind;
    const ClusterShape shape = { .n_nodes = N_NODES,
                                 .nodes = { { 0, 1 }, { 2, 0 }, { 0, 1 } },
                                 .heartbeat_ms = TIMEOUT_MS / 4,
                                 .timeout_ms = TIMEOUT_MS,
                                 .over = outages[_i].over };
    pid_t pids[N_NODES];

    if (!outage_prepare(kind)) {
        g_message("left out: the network cannot be made to fail here");
        return;
    }
    ClusterRun *const run = cluster_run_new(&shape);
    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play, NULL);
    cluster_wait_for(run, 0, "half");
    cluster_wait_for(run, 2, "half");
    for (uint32_t i = 0; i < N_NODES; i++)
        pids[i] = run->processes[i].pid;
    const int64_t begun_ms = cluster_now_ms();
    outage_begin(kind, pids, N_NODES);
    ck_assert_int_eq(write(gate[1], "xx", 2), 2);
    wait_until(begun_ms + TIMEOUT_MS * outages[_i].hundredths / 100);
    outage_end(kind, pids, N_NODES);
    const int64_t lasted_ms = cluster_now_ms() - begun_ms;
    if (lasted_ms < TIMEOUT_MS)
        cluster_expect_success(run);
    else
        g_message("left out: the machine made an outage of %d ms of it", (int)lasted_ms);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("outages");
    TCase *const outage = cluster_add_case(suite, "outages");

    tcase_add_loop_test(outage, an_outage_shorter_than_the_timeout_loses_nobody_and_nothing, 0,
                        cluster_slowness() > 1 ? N_FIRST : (int)G_N_ELEMENTS(outages));
    return run_suite(suite);
}
