/* A process that is to take the place of a lost node comes while a snapshot is written, which takes
 * longer than a process waits for an answer. It waits as long as the scheduler tells it for whom.
 *
 * docs/replication.md: A process in the place of a lost node. */
#include <rubato/snapshot.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "engine/snapshot/snapshot_cut.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2, LOOK_US = 5000, STALL_MS = 200 };

static const RubatoTableSpec spec = {
    .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = 20, .replicas = 1
};

static _Atomic int n_signals; /* of the case to this process */

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&n_signals, 1);
}

/* Why it ends: the case sends them, or ends this process. */
static void await_signals(int n)
{
    while (atomic_load(&n_signals) < n)
        usleep(LOOK_US);
}

static bool prepare(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    (void)cut, (void)data, (void)error;
    if (engine->self == 0) {
        cluster_say("prepares");
        await_signals(1);
    }
    return true;
}

static bool write_nothing(RubatoEngine *engine, const Cut *cut, uint64_t seed, void *data,
                          GError **error)
{
    (void)engine, (void)cut, (void)seed, (void)data, (void)error;
    return true;
}

static bool commit_nothing(RubatoEngine *engine, const Cut *cut, void *data, GError **error)
{
    (void)engine, (void)cut, (void)data, (void)error;
    return true;
}

static bool take_snapshot(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoSnapshotSpec somewhere = { .directory = "nowhere" };

    cluster_say("busy");
    while (!cluster_is_lost(user_data, VICTIM))
        usleep(LOOK_US);
    TRY(rubato_worker_snapshot(worker, &somewhere, NULL, error));
    await_signals(2);
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const CutWork work = { prepare, write_nothing, commit_nothing, NULL };
    const char *const tables[] = { spec.name, NULL };

    (void)data;
    signal(SIGUSR1, count_signal);
    engine->snapshot_work = &work; /* there was no snapshot yet */
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "wait", take_snapshot, engine, tables, error);
}

/* Until the process has said that the snapshot took longer than this. */
static void await_patience(ClusterRun *run, uint32_t process, double seconds)
{
    static const char before[] = "to do its part (for ";

    for (double waited = 0; waited <= seconds;) {
        g_string_truncate(run->processes[process].text, 0);
        cluster_wait_for(run, process, " s so far)");
        g_autofree char *text = cluster_text_after(run, process, before);
        waited = g_ascii_strtod(text, NULL);
    }
}

START_TEST(process_waits_as_long_as_it_is_put_off)
{
    const uint32_t timeout_ms = cluster_short_timeout_ms();
    const uint32_t rendezvous_ms = 2 * timeout_ms; /* the nodes meet in it, too */
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                                       .nodes = { { 1, 1 }, { 1, 0 }, { 1, 0 } },
                                                       .timeout_ms = timeout_ms,
                                                       .stall_ms = STALL_MS,
                                                       .rendezvous_ms = rendezvous_ms });

    cluster_start(run, play, NULL);
    cluster_wait_for(run, 0, "busy");
    cluster_signal(run, VICTIM, SIGKILL);
    cluster_wait_for(run, 0, "prepares");
    const uint32_t joining = cluster_start_joining(run, VICTIM, play, NULL);
    cluster_wait_for(run, joining, "joins the run later: a snapshot waits for node ");
    await_patience(run, joining, (timeout_ms + rendezvous_ms) / 1e3 + 1);
    cluster_signal(run, 0, SIGUSR1);
    cluster_wait_for(run, 1, "takes the place of");
    cluster_signal(run, 0, SIGUSR1);
    cluster_expect_end(run, 0, 0);
    cluster_expect_end(run, 1, 0);
    cluster_expect_end(run, joining, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, joining,
                        "has served in the place of a lost process until the run ended");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster join later");
    TCase *cases = cluster_add_case(suite, "join later");

    tcase_add_test(cases, process_waits_as_long_as_it_is_put_off);
    return run_suite(suite);
}
