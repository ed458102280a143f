/* A process is killed in the middle of a snapshot: before or after each of its steps, or while it
 * writes. The others say that this one failed, or it is whole; the run goes on, and the next one is
 * whole. What is restored has of each worker the same Adds in all rows.
 *
 * The linker puts functions of this file in the place of cut_perform, fsync, rename and writev, so
 * that a process kills itself there.
 *
 * docs/liveness.md: A node that dies, with replicas. */
#include <rubato/snapshot.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/join/journal_file.h"
#include "engine/snapshot/snapshot_cut.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

/* Node 0 is the scheduler's. Nodes 1 and 2 have a worker and a server each, node 3 a server. */
enum { N_NODES = 4, SCHEDULER = 0, WORKER = 2, SERVER = 3 };
enum { N_KEYS = 300, PARTS = 6, N_WORKERS = 2, LOST_WORKER = 1, KEPT = 5 };

static const RubatoTableSpec tables[] = {
    { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1 },
    { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .storage = "hash" },
};

/* ---- where a process kills itself ---- */

typedef enum { KILL_AT_STEP, KILL_AT_FSYNC, KILL_AT_RENAME, KILL_AT_WRITEV } KillAt;

typedef struct {
    uint32_t victim;
    KillAt kind;
    unsigned number; /* the step, or which of these calls, counted from 0 in a snapshot */
    bool is_after;
} Place;

#define AT_STEPS(victim)                                      \
    { victim, KILL_AT_STEP, CONTROL_STEP_PREPARE, false },    \
        { victim, KILL_AT_STEP, CONTROL_STEP_PREPARE, true }, \
        { victim, KILL_AT_STEP, CONTROL_STEP_CLOSE, false },  \
        { victim, KILL_AT_STEP, CONTROL_STEP_CLOSE, true },   \
        { victim, KILL_AT_STEP, CONTROL_STEP_CUT, false },    \
        { victim, KILL_AT_STEP, CONTROL_STEP_CUT, true },     \
        { victim, KILL_AT_STEP, CONTROL_STEP_WRITE, false },  \
        { victim, KILL_AT_STEP, CONTROL_STEP_WRITE, true },   \
        { victim, KILL_AT_STEP, CONTROL_STEP_COMMIT, false }, \
    {                                                         \
        victim, KILL_AT_STEP, CONTROL_STEP_COMMIT, true       \
    }

static const Place places[] = {
    AT_STEPS(SCHEDULER),
    AT_STEPS(WORKER),
    AT_STEPS(SERVER),
    { WORKER, KILL_AT_WRITEV, 1, false },
    { WORKER, KILL_AT_FSYNC, 0, true },
    { SERVER, KILL_AT_WRITEV, 0, true },
    { SERVER, KILL_AT_FSYNC, 1, false },
    { SCHEDULER, KILL_AT_FSYNC, 1, true },   /* the manifest's bytes are there */
    { SCHEDULER, KILL_AT_RENAME, 0, true },  /* it has its name */
    { SCHEDULER, KILL_AT_RENAME, 1, false }, /* the folder has its own next */
    { SCHEDULER, KILL_AT_RENAME, 1, true },
};

/* Of snapshots that are taken again. */
static const Place places_again[] = {
    { SCHEDULER, KILL_AT_STEP, CONTROL_STEP_COMMIT, false },
    { WORKER, KILL_AT_STEP, CONTROL_STEP_CUT, true },
    { SERVER, KILL_AT_STEP, CONTROL_STEP_CLOSE, false },
    { SERVER, KILL_AT_WRITEV, 0, true },
};

/* Of those of the engine's call, when the task has ended. */
static const Place places_between[] = {
    { SERVER, KILL_AT_WRITEV, 0, true },
    { SERVER, KILL_AT_FSYNC, 1, false },
};

/* In a node: the place, once a signal has said that it is to die there; the calls of this snapshot
 * from then on, of the thread that writes it. */
static const Place *place;
static bool goes_again;   /* snapshots are taken again after the loss */
static bool dies_between; /* in the last one, for which the task's end is the signal */
static atomic_int is_armed, stops;
static _Thread_local bool writes;
static _Thread_local unsigned n_calls[KILL_AT_WRITEV + 1];

static void come_to(KillAt kind, unsigned number, bool is_after)
{
    if (atomic_load(&is_armed) != 0 && place->kind == kind && place->number == number &&
        place->is_after == is_after)
        kill(getpid(), SIGKILL);
}

/* Returns the call's number. */
static unsigned come_to_call(KillAt kind)
{
    const unsigned number = n_calls[kind];

    if (writes) {
        come_to(kind, number, /* is_after= */ false);
        n_calls[kind]++;
    }
    return number;
}

static void leave_call(KillAt kind, unsigned number)
{
    if (writes)
        come_to(kind, number, /* is_after= */ true);
}

__typeof__(cut_perform) __real_cut_perform, __wrap_cut_perform;

bool __wrap_cut_perform(RubatoEngine *engine, Cut *cut, ControlStep step, uint64_t seed,
                        const CutWork *work, GError **error)
{
    come_to(KILL_AT_STEP, step, /* is_after= */ false);
    if (step == CONTROL_STEP_PREPARE && atomic_load(&is_armed) != 0) {
        writes = true; /* from a whole snapshot on */
        memset(n_calls, 0, sizeof n_calls);
    }
    const bool ok = __real_cut_perform(engine, cut, step, seed, work, error);

    come_to(KILL_AT_STEP, step, /* is_after= */ true);
    return ok;
}

__typeof__(fsync) __real_fsync, __wrap_fsync;

int __wrap_fsync(int fd)
{
    const unsigned number = come_to_call(KILL_AT_FSYNC);
    const int result = __real_fsync(fd);

    leave_call(KILL_AT_FSYNC, number);
    return result;
}

__typeof__(rename) __real_rename, __wrap_rename;

int __wrap_rename(const char *from, const char *to)
{
    const unsigned number = come_to_call(KILL_AT_RENAME);
    const int result = __real_rename(from, to);

    leave_call(KILL_AT_RENAME, number);
    return result;
}

__typeof__(writev) __real_writev, __wrap_writev;

ssize_t __wrap_writev(int fd, const struct iovec *pieces, int n)
{
    const unsigned number = come_to_call(KILL_AT_WRITEV);
    const ssize_t result = __real_writev(fd, pieces, n);

    leave_call(KILL_AT_WRITEV, number);
    return result;
}

/* ---- nodes ---- */

static char *directory; /* of snapshots */

static void arm(int number)
{
    (void)number;
    atomic_store(&is_armed, 1);
}

static void stop(int number)
{
    (void)number;
    atomic_store(&stops, 1);
}

/* A loss tears one that is under way, and none after it. A worker that is going to be lost asks for
 * none that is to be taken again: nobody would take that one again. */
static bool take_snapshot(RubatoWorker *worker, bool is_last, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = directory,
                                      .keep = KEPT,
                                      .again_after_loss = goes_again };
    g_autoptr(GError) torn = NULL;
    uint64_t number = 0;

    if (goes_again && place->victim == WORKER && rubato_worker_rank(worker) == LOST_WORKER)
        return true;
    if (rubato_worker_snapshot(worker, &spec, &number, &torn)) {
        EXPECT(number > 0, "a snapshot without a number");
        cluster_say("snapshot %" G_GUINT64_FORMAT, number);
        return true;
    }
    EXPECT(!is_last && !goes_again && g_error_matches(torn, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST),
           "%s", torn->message);
    cluster_say("torn: %s", torn->message);
    return true;
}

/* Adds one to its column of all rows, again and again, and in the end its rounds in the last. */
static bool work(RubatoWorker *worker, void *data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoKey rounds_key = N_KEYS;
    int64_t ones[N_KEYS][N_WORKERS] = { 0 }, rounds[N_WORKERS] = { 0 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    (void)data;
    TRY(table != NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        ones[i][rank] = 1;
    for (bool is_last = false; !is_last; rounds[rank]++) {
        is_last = atomic_load(&stops) != 0;
        TRY(rubato_kv_table_add_range(table, 0, N_KEYS, ones[0], error) &&
            rubato_kv_table_clock(table, error) && take_snapshot(worker, is_last, error));
    }
    return rubato_kv_table_add(table, &rounds_key, 1, rounds, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const names[] = { "rows", NULL };
    const RubatoSnapshotSpec last = { .directory = directory,
                                      .keep = KEPT,
                                      .again_after_loss = goes_again };
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;

    signal(SIGUSR1, stop);
    signal(SIGUSR2, arm);
    spec.width = N_WORKERS;
    spec.parts = PARTS;
    spec.replicas = 1;
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        rubato_engine_run(
            engine,
            &(RubatoTask){
                .name = "work", .run = work, .tables = names, .on_loss = RUBATO_ON_LOSS_CONTINUE },
            error));
    if (dies_between && rubato_engine_node(engine) == CLUSTER_IDS[place->victim]) {
        writes = true; /* this thread writes the last one */
        atomic_store(&is_armed, 1);
    }
    return rubato_engine_snapshot(engine, &last, NULL, error) &&
           rubato_engine_barrier(engine, error);
}

/* ---- what is restored ---- */

typedef struct {
    const RubatoTableSpec *spec;
    bool loses_worker;
} Restoring;

/* The lost worker's last Add has come to some parts. */
static bool check_column(const int64_t (*rows)[N_WORKERS], uint32_t worker, bool is_lost,
                         GError **error)
{
    int64_t least = rows[0][worker], most = least;

    for (size_t i = 1; i < N_KEYS; i++) {
        least = MIN(least, rows[i][worker]);
        most = MAX(most, rows[i][worker]);
    }
    EXPECT(most - least <= is_lost,
           "rows of worker %u: from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, worker, least,
           most);
    return true;
}

static bool restore_one(RubatoEngine *engine, const Restoring *restoring, uint64_t number,
                        bool is_last, GError **error)
{
    const RubatoRestoreSpec spec = { .directory = directory, .number = number };
    int64_t rows[N_KEYS + 1][N_WORKERS];

    TRY(rubato_engine_create_table(engine, restoring->spec, error) &&
        rubato_engine_restore(engine, &spec, NULL, error) &&
        rubato_engine_get_range(engine, "rows", 0, N_KEYS + 1, rows[0], error));
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        const bool is_lost = restoring->loses_worker && i == LOST_WORKER;

        TRY(check_column(rows, i, is_lost, error));
        EXPECT(!is_last || is_lost || (rows[0][i] > 0 && rows[0][i] == rows[N_KEYS][i]),
               "worker %u: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[0][i],
               rows[N_KEYS][i]);
    }
    return rubato_engine_drop_table(engine, "rows", error);
}

static bool restore(RubatoEngine *engine, const void *data, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    TRY(rubato_snapshot_list(directory, &numbers, &n, error));
    EXPECT(n > 1, "%zu snapshots", n);
    for (size_t i = 0; i < n; i++)
        TRY(restore_one(engine, data, numbers[i], i + 1 == n, error));
    return true;
}

/* Snapshots alone are left, and the file that their writer locks. */
static void check_names(ClusterRun *run)
{
    g_autoptr(GDir) dir = g_dir_open(directory, 0, NULL);

    for (const char *name; (name = g_dir_read_name(dir)) != NULL;)
        if (!g_str_has_prefix(name, "snapshot-") && strcmp(name, ".writer") != 0)
            cluster_fail(run, "%s is left", name);
}

/* ---- cases ---- */

static uint32_t start_scheduler_again(ClusterRun *run, const RubatoTableSpec *spec)
{
    g_setenv("RUBATO_JOIN", "1", TRUE);
    const uint32_t process =
        cluster_start_other(run, CLUSTER_IDS[SCHEDULER], run->path, play, spec);
    g_unsetenv("RUBATO_JOIN");
    return process;
}

static void play_case(ClusterRun *run, const RubatoTableSpec *spec)
{
    const uint32_t victim = place->victim;
    const char *const map = victim == SCHEDULER ? "by part map 3" : "by part map 2";
    uint32_t again = 0;

    cluster_start(run, play, spec);
    cluster_wait_for(run, 1, "snapshot ");
    if (dies_between)
        for (uint32_t i = 1; i <= N_WORKERS; i++)
            cluster_signal(run, i, SIGUSR1);
    else
        cluster_signal(run, victim, SIGUSR2);
    cluster_expect_end(run, victim, -SIGKILL);
    if (victim == SCHEDULER)
        again = start_scheduler_again(run, spec);
    for (uint32_t i = 1; i < N_NODES; i++)
        if (i != victim)
            cluster_wait_for(run, i, map);
    for (uint32_t i = 1; i <= N_WORKERS && !dies_between; i++)
        if (i != victim)
            cluster_signal(run, i, SIGUSR1);
    for (uint32_t i = 0; i < N_NODES; i++)
        if (i != victim)
            cluster_expect_end(run, i, 0);
    if (victim == SCHEDULER)
        cluster_expect_end(run, again, CLUSTER_NOT_STARTED);
}

static void set_up(void)
{
    g_autofree char *journal = NULL;

    directory = g_dir_make_tmp("rubato-kills-XXXXXX", NULL);
    journal = g_strconcat(directory, ".journal", NULL);
    g_setenv(JOURNAL_VARIABLE, journal, TRUE);
}

static void tear_down(void)
{
    g_unsetenv(JOURNAL_VARIABLE);
    remove_tree(directory);
    g_clear_pointer(&directory, g_free);
}

/* Kills at the place, and restores. */
static void kill_at(const Place *at, size_t kind)
{
    RubatoTableSpec spec = tables[kind];
    ClusterRun *const run =
        cluster_run_new(&(ClusterShape){ .n_nodes = N_NODES,
                                         .nodes = { { 0, 0 }, { 1, 1 }, { 1, 1 }, { 1, 0 } },
                                         .scheduler = SCHEDULER,
                                         .over = kind == 0 ? "shm" : "tcp" });

    place = at;
    play_case(run, &tables[kind]);
    check_names(run);
    cluster_run_free(run);
    spec.width = N_WORKERS;
    spec.parts = 1;
    g_free(cluster_play_alone(/* servers= */ 1, /* workers= */ 1, restore,
                              &(Restoring){ &spec, place->victim == WORKER }));
}

START_TEST(snapshot_in_which_a_process_is_killed_is_whole_or_not_there)
{
    kill_at(&places[_i], (size_t)_i % G_N_ELEMENTS(tables));
}
END_TEST

START_TEST(snapshot_in_which_a_process_is_killed_is_taken_again)
{
    goes_again = true;
    kill_at(&places_again[_i], (size_t)_i % G_N_ELEMENTS(tables));
}
END_TEST

START_TEST(snapshot_between_tasks_is_taken_again)
{
    goes_again = dies_between = true;
    kill_at(&places_between[_i], (size_t)_i % G_N_ELEMENTS(tables));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster snapshot kills");
    TCase *kills = cluster_add_case(suite, "kills"), *again = cluster_add_case(suite, "again");

    tcase_add_checked_fixture(kills, set_up, tear_down);
    tcase_add_loop_test(kills, snapshot_in_which_a_process_is_killed_is_whole_or_not_there, 0,
                        G_N_ELEMENTS(places));
    tcase_add_checked_fixture(again, set_up, tear_down);
    tcase_add_loop_test(again, snapshot_in_which_a_process_is_killed_is_taken_again, 0,
                        G_N_ELEMENTS(places_again));
    tcase_add_loop_test(again, snapshot_between_tasks_is_taken_again, 0,
                        G_N_ELEMENTS(places_between));
    return run_suite(suite);
}
