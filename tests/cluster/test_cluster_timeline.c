/* The timelines of two nodes: each has a file of its own, in the time of the scheduler's node. */
#include <glib/gstdio.h>
#include <stdlib.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/trace_file.h"
#include "tests/support/runner.h"

enum { FIRST_PID = 10000000, N_ROUNDS = 3 };

static char *folder;

static bool reduce(RubatoWorker *worker, void *user_data, GError **error)
{
    float value = 1;
    const RubatoTensor tensor = {
        .name = "grad", .dtype = RUBATO_F32, .input = &value, .output = &value
    };

    (void)user_data;
    for (int i = 0; i < N_ROUNDS; i++)
        if (!rubato_worker_allreduce(worker, &tensor, NULL, error))
            return false;
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return cluster_run_task(engine, "task", reduce, NULL, NULL, error);
}

static TraceFile read_node(int node)
{
    g_autofree char *path = g_strdup_printf("%s/trace.node-%u.json", folder, CLUSTER_IDS[node]);

    return trace_file_read(path);
}

/* Both nodes have the clock of this machine. Returns how wrong it may be, in µs. */
static double check_clock(const TraceFile *trace, int node)
{
    JsonObject *const begin = trace_find(trace, "i", "recording begins", (int)CLUSTER_IDS[node]);
    const int64_t error_ns = trace_number(begin, "clock_error_ns");

    ck_assert_int_le(llabs(trace_number(begin, "clock_offset_ns")), error_ns);
    ck_assert_int_eq(error_ns > 0, node != 0);
    return (double)error_ns / 1000;
}

START_TEST(each_node_records_its_workers_in_common_time)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });
    g_autofree char *path = NULL;
    double begun[2], ended[2], wrong = 0;

    folder = g_dir_make_tmp("timeline-XXXXXX", NULL);
    path = g_strdup_printf("%s/trace.json", folder);
    g_setenv("RUBATO_TIMELINE", path, TRUE);
    cluster_start(run, play, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);

    for (int node = 0; node < 2; node++) {
        g_auto(TraceFile) trace = read_node(node);
        const int pid = FIRST_PID + node;
        JsonObject *const first = trace_find(&trace, "b", "grad", pid);

        wrong += check_clock(&trace, node);
        ck_assert_uint_eq(trace_count(&trace, "b", "grad", pid), N_ROUNDS);
        ck_assert_uint_eq(trace_count(&trace, "b", "allreduce", pid), N_ROUNDS);
        ck_assert_int_eq(trace_number(first, "number"), 1);
        ck_assert_int_eq(trace_number(first, "failed"), 0);
        begun[node] = trace_time(first);
        ended[node] = trace_time(trace_find(&trace, "e", "grad", pid));
    }
    /* neither ends before the other one has asked */
    ck_assert(begun[0] < ended[1] + wrong && begun[1] < ended[0] + wrong);
    for (int node = 0; node < 2; node++) {
        g_autofree char *file = g_strdup_printf("%s/trace.node-%u.json", folder, CLUSTER_IDS[node]);
        g_unlink(file);
    }
    g_rmdir(folder);
    g_free(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster timeline");
    TCase *tcase = tcase_create("two nodes");

    tcase_add_test(tcase, each_node_records_its_workers_in_common_time);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
