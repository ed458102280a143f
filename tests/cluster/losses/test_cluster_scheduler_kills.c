/* The scheduler's process is killed in the middle of what it leads, a drain or a move, and another
 * one goes on from its journal: what was asked for is done, and no Add is lost.
 *
 * The linker puts functions of this file in the place of those by which the scheduler hears of
 * steps that nodes have done, so that its process kills itself before or after one of them.
 *
 * docs/replication.md: Another process that goes on as the scheduler. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "engine/join/journal_file.h"
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/scheduler_collective.h"
#include "engine/scheduler/scheduler_state.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Node 0 is the scheduler's. Nodes 1 and 2 have a worker and a server each, node 3 a server. */
enum { N_NODES = 4, SCHEDULER = 0, DRAINED = 3, ASKER = 0 /* its rank */, N_WORKERS = 2 };
enum { N_KEYS = 200, PARTS = 6, BUSY = 3, MORE = 10 };

/* Of a drain: two rounds of steps, CLOSE to COPY and CLOSE to OPEN, of four nodes; of a move:
 * CLOSE, SEND, INSTALL, OPEN. Each case kills at another one. */
enum { DRAIN_REPORTS = 36, DRAIN_STRIDE = 3, MOVE_REPORTS = 16 };

/* ---- where the scheduler's process kills itself ---- */

static unsigned kill_at; /* the report, counted from 0 once it is armed; */
static bool
    kills_after; /* when the scheduler has heard it, but nobody has been told what follows */
static atomic_int is_armed;
static atomic_uint n_reports;

typedef enum { REPORTS_OF_DRAIN, REPORTS_OF_MOVE } Reports;

static Reports counted;

static void come_to(Reports kind, bool is_after)
{
    if (atomic_load(&is_armed) == 0 || kind != counted)
        return;
    if (atomic_load(&n_reports) == kill_at && is_after == kills_after)
        kill(getpid(), SIGKILL);
    if (is_after)
        atomic_fetch_add(&n_reports, 1);
}

__typeof__(recovery_hears_done) __real_recovery_hears_done, __wrap_recovery_hears_done;

bool __wrap_recovery_hears_done(Scheduler *scheduler, uint32_t node, const Control *control)
{
    come_to(REPORTS_OF_DRAIN, /* is_after= */ false);
    const bool makes_sense = __real_recovery_hears_done(scheduler, node, control);

    come_to(REPORTS_OF_DRAIN, /* is_after= */ true);
    return makes_sense;
}

__typeof__(collective_ready) __real_collective_ready, __wrap_collective_ready;

bool __wrap_collective_ready(Scheduler *scheduler, uint32_t node, const Control *control)
{
    come_to(REPORTS_OF_MOVE, /* is_after= */ false);
    const bool makes_sense = __real_collective_ready(scheduler, node, control);

    come_to(REPORTS_OF_MOVE, /* is_after= */ true);
    return makes_sense;
}

/* ---- nodes ---- */

typedef struct {
    RubatoEngine *engine;
    const char *table;
} Job;

static bool drain(RubatoEngine *engine, GError **error)
{
    if (!rubato_engine_drain_node(engine, CLUSTER_IDS[DRAINED], error))
        return false;
    cluster_say("drained");
    return true;
}

/* Adds one to all keys in each round, and in the end its rounds to the last. The worker that asks
 * goes on when its call has returned. */
static bool work(RubatoWorker *worker, void *data, GError **error)
{
    const Job *const job = data;
    const RubatoKey rounds_key = N_KEYS;
    int64_t ones[N_KEYS], rows[N_KEYS], rounds = 0;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, job->table, RUBATO_I64, error);

    TRY(table != NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (; rounds < BUSY + MORE; rounds++) {
        TRY(rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) &&
            rubato_kv_table_get_range(table, 0, N_KEYS, rows, error) &&
            rubato_kv_table_clock(table, error));
        if (rounds == BUSY && rubato_worker_rank(worker) == ASKER)
            TRY(drain(job->engine, error));
    }
    return rubato_kv_table_add(table, &rounds_key, 1, &rounds, error);
}

static bool do_rounds(RubatoEngine *engine, const RubatoTableSpec *spec, GError **error)
{
    const char *const tables[] = { spec->name, NULL };
    Job job = { engine, spec->name };
    int64_t rows[N_KEYS + 1];

    TRY(cluster_run_task(engine, "work", work, &job, tables, error) &&
        rubato_engine_get_range(engine, spec->name, 0, N_KEYS + 1, rows, error));
    for (size_t i = 0; i <= N_KEYS; i++)
        EXPECT(rows[i] == (int64_t)N_WORKERS * (BUSY + MORE), "key %zu: %" G_GINT64_FORMAT, i,
               rows[i]);
    return true;
}

static const RubatoTableSpec replicated = { .name = "rows",
                                            .model = "asp",
                                            .dtype = RUBATO_I64,
                                            .n_keys = N_KEYS + 1,
                                            .parts = PARTS,
                                            .replicas = 1 };

static bool play_drain(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    TRY(rubato_engine_create_table(engine, &replicated, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[SCHEDULER])
        atomic_store(&is_armed, 1);
    return rubato_engine_barrier(engine, error) && do_rounds(engine, &replicated, error) &&
           rubato_engine_barrier(engine, error);
}

/* Part 0 goes from the first server to the second. It has no replica; another table has, so that
 * the run goes on. */
static bool play_move(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec plain = {
        .name = "plain", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS, .parts = PARTS
    };
    int64_t rows[N_KEYS];

    (void)data;
    for (size_t i = 0; i < N_KEYS; i++)
        rows[i] = (int64_t)i;
    TRY(rubato_engine_create_table(engine, &replicated, error) &&
        rubato_engine_create_table(engine, &plain, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[1])
        TRY(rubato_engine_set_range(engine, "plain", 0, N_KEYS, rows, error));
    TRY(rubato_engine_barrier(engine, error));
    if (rubato_engine_node(engine) == CLUSTER_IDS[SCHEDULER])
        atomic_store(&is_armed, 1);
    TRY(rubato_engine_move_part(engine, "plain", 0, 1, error));
    cluster_say("moved");
    TRY(rubato_engine_get_range(engine, "plain", 0, N_KEYS, rows, error));
    for (size_t i = 0; i < N_KEYS; i++)
        EXPECT(rows[i] == (int64_t)i, "key %zu: %" G_GINT64_FORMAT, i, rows[i]);
    return rubato_engine_barrier(engine, error);
}

/* ---- cases ---- */

static void play_case(ClusterPlay play, const char *over, const char *done)
{
    g_autofree char *folder = make_folder();
    g_autofree char *journal = g_build_filename(folder, "journal", NULL);

    g_setenv(JOURNAL_VARIABLE, journal, TRUE);
    ClusterRun *const run = cluster_run_new(&(ClusterShape){
        .n_nodes = N_NODES, .nodes = { { 0, 0 }, { 1, 1 }, { 1, 1 }, { 1, 0 } }, .over = over });

    cluster_start(run, play, NULL);
    cluster_expect_end(run, SCHEDULER, -SIGKILL);
    g_setenv("RUBATO_JOIN", "1", TRUE);
    const uint32_t again = cluster_start_other(run, CLUSTER_IDS[SCHEDULER], run->path, play, NULL);
    g_unsetenv("RUBATO_JOIN");
    for (uint32_t i = 1; i < N_NODES; i++)
        cluster_expect_end(run, i, 0);
    cluster_expect_text(run, 1, done);
    cluster_expect_end(run, again, CLUSTER_NOT_STARTED);
    cluster_run_free(run);
    g_unsetenv(JOURNAL_VARIABLE);
    remove_folder(folder);
}

START_TEST(drain_goes_on_whose_scheduler_is_killed)
{
    counted = REPORTS_OF_DRAIN;
    kill_at = (unsigned)_i * DRAIN_STRIDE;
    kills_after = _i % 2 == 1;
    play_case(play_drain, _i % 2 == 0 ? "shm" : "tcp", "drained\n");
}
END_TEST

START_TEST(move_goes_on_whose_scheduler_is_killed)
{
    counted = REPORTS_OF_MOVE;
    kill_at = (unsigned)_i;
    kills_after = _i % 2 == 1;
    play_case(play_move, _i % 2 == 0 ? "tcp" : "shm", "moved\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster scheduler kills");
    TCase *kills = cluster_add_case(suite, "kills");

    tcase_add_loop_test(kills, drain_goes_on_whose_scheduler_is_killed, 0,
                        (DRAIN_REPORTS + DRAIN_STRIDE - 1) / DRAIN_STRIDE);
    tcase_add_loop_test(kills, move_goes_on_whose_scheduler_is_killed, 0, MOVE_REPORTS);
    return run_suite(suite);
}
