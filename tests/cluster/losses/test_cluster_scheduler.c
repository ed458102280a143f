/* The scheduler's process is killed, and another one goes on from its journal, again and again.
 *
 * docs/replication.md: Another process that goes on as the scheduler. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/join/journal_file.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* Node 0 is the scheduler's. Nodes 1 and 2 have a worker each, and all others a server. */
enum { N_KEYS = 100, PARTS = 3, BUSY = 5, MORE = 50 };

static atomic_int stops, asks;

/* ---- where the scheduler's process kills itself ---- */

/* The linker puts these functions in the place of those by which its journal begins anew. */
static bool always_begins; /* the journal does so with each tick */

typedef enum {
    KILLS_NOWHERE,
    KILLS_BEFORE, /* the journal that it has begun beside has its name; a part of that is written */
    KILLS_AFTER,
    KILLS_END,
} Kills;

static Kills kills; /* once SIGUSR2 has come */

__typeof__(journal_file_journal) __real_journal_file_journal, __wrap_journal_file_journal;

SchedulerJournal __wrap_journal_file_journal(JournalFile *file)
{
    SchedulerJournal journal = __real_journal_file_journal(file);

    if (always_begins)
        journal.kept_bytes = 0;
    return journal;
}

__typeof__(rename) __real_rename, __wrap_rename;

int __wrap_rename(const char *from, const char *to)
{
    const Kills where = atomic_load(&asks) == 0 ? KILLS_NOWHERE : kills;
    int result;

    if (where == KILLS_BEFORE && truncate(from, 100) == 0)
        kill(getpid(), SIGKILL);
    result = __real_rename(from, to);
    if (where == KILLS_AFTER)
        kill(getpid(), SIGKILL);
    return result;
}

/* ---- what nodes do ---- */

static void stop(int number)
{
    (void)number;
    atomic_store(&stops, 1);
}

static void ask(int number)
{
    (void)number;
    atomic_store(&asks, 1);
}

typedef struct {
    const char *table;
    unsigned *rounds; /* of this node's worker: how many it makes; 0: until the signal, told here */
} Job;

/* Floats, so that another order of additions would change the last bits. */
static float delta(uint32_t rank, unsigned round, size_t key)
{
    return 1.0f / (float)(1 + (rank * 31 + round * 7 + key) % 97);
}

static bool add_rounds(RubatoWorker *worker, void *data, GError **error)
{
    const Job *const job = data;
    const unsigned most = *job->rounds;
    const uint32_t rank = rubato_worker_rank(worker);
    unsigned round = 0, asked = 0;
    float deltas[N_KEYS], rows[N_KEYS];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, job->table, RUBATO_F32, error);

    TRY(table != NULL);
    for (; most > 0 ? round < most : atomic_load(&stops) == 0; round++) {
        for (size_t i = 0; i < N_KEYS; i++)
            deltas[i] = delta(rank, round, i);
        TRY(rubato_kv_table_add_range(table, 0, N_KEYS, deltas, error) &&
            rubato_kv_table_clock(table, error) &&
            rubato_kv_table_get_range(table, 0, N_KEYS, rows, error));
        if (round == BUSY)
            cluster_say("busy");
        if (atomic_exchange(&asks, 0) != 0)
            asked = round + MORE;
        if (asked > 0 && round == asked)
            cluster_say("%d more rounds", MORE);
    }
    *job->rounds = round;
    return true;
}

static bool do_rounds(RubatoEngine *engine, const char *name, unsigned *rounds, float *rows,
                      GError **error)
{
    const char *const tables[] = { name, NULL };
    const RubatoTableSpec spec = { .name = name,
                                   .model = "bsp",
                                   .dtype = RUBATO_F32,
                                   .n_keys = N_KEYS,
                                   .parts = PARTS,
                                   .replicas = 1 };
    Job job = { name, rounds };

    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, name, add_rounds, &job, tables, error) &&
           rubato_engine_get_range(engine, name, 0, N_KEYS, rows, error);
}

/* The second table has what the first one would have without a disturbance. */
static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    float rows[2][N_KEYS];
    unsigned rounds = 0;

    (void)data;
    signal(SIGUSR1, stop);
    signal(SIGUSR2, ask);
    TRY(do_rounds(engine, "rows", &rounds, rows[0], error) &&
        do_rounds(engine, "again", &rounds, rows[1], error));
    EXPECT(memcmp(rows[0], rows[1], sizeof rows[0]) == 0, "the rows are not the same to the bit");
    return rubato_engine_barrier(engine, error);
}

/* The task's table has no replicas, and its clocks meet in the process that is killed. The next
 * task, of a table that has replicas, runs. */
static bool play_plain(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "plain", NULL };
    const RubatoTableSpec spec = {
        .name = "plain", .model = "bsp", .dtype = RUBATO_F32, .n_keys = N_KEYS, .parts = PARTS
    };
    float rows[N_KEYS];
    unsigned rounds = 1, endless = 0;
    Job job = { "plain", &endless };
    g_autoptr(GError) failure = NULL;

    (void)data;
    TRY(do_rounds(engine, "before", &rounds, rows, error) &&
        rubato_engine_create_table(engine, &spec, error));
    EXPECT(!cluster_run_task(engine, "plain", add_rounds, &job, tables, &failure),
           "the task has not failed");
    TRY(cluster_expect_error(&failure, RUBATO_ERROR_NODE_LOST,
                             "the clocks of table plain, which has no replicas, met in the "
                             "scheduler's process",
                             error));
    return do_rounds(engine, "after", &rounds, rows, error);
}

static uint32_t start_again(ClusterRun *run)
{
    g_setenv("RUBATO_JOIN", "1", TRUE);
    const uint32_t process = cluster_start_other(run, CLUSTER_IDS[0], run->path, play, NULL);
    g_unsetenv("RUBATO_JOIN");
    return process;
}

/* The next process needs its address and the lock on the journal, which go with its end. */
static void kill_scheduler(ClusterRun *run, uint32_t process)
{
    cluster_signal(run, process, SIGKILL);
    cluster_expect_end(run, process, -SIGKILL);
}

/* Requests go on without the scheduler. */
static void expect_requests(ClusterRun *run)
{
    cluster_signal(run, 1, SIGUSR2);
    cluster_wait_for(run, 1, "50 more rounds");
    g_string_truncate(run->processes[1].text, 0);
}

/* Waits until the nodes of these processes, from the second on, have opened their maps. Until all
 * have, requests wait for the scheduler. */
static void wait_for_map(ClusterRun *run, uint32_t n_processes, uint32_t map)
{
    g_autofree char *text = g_strdup_printf("the run goes on, by part map %u", map);

    for (uint32_t i = 1; i < n_processes; i++)
        cluster_wait_for(run, i, text);
}

static void expect_served(ClusterRun *run, uint32_t process)
{
    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process,
                        "has served in the place of a lost process until the run ended");
}

static ClusterRun *new_run(const char *over, char **journal)
{
    g_autofree char *folder = make_folder();

    *journal = g_build_filename(folder, "journal", NULL);
    g_setenv(JOURNAL_VARIABLE, *journal, TRUE);
    return cluster_run_new(&(ClusterShape){
        .n_nodes = 4, .nodes = { { 0, 0 }, { 1, 1 }, { 1, 1 }, { 1, 0 } }, .over = over });
}

static void end_run(ClusterRun *run, char *journal)
{
    g_autofree char *folder = g_path_get_dirname(journal);

    cluster_run_free(run);
    g_unsetenv(JOURNAL_VARIABLE);
    ck_assert(!g_file_test(journal, G_FILE_TEST_EXISTS));
    remove_folder(folder);
    g_free(journal);
}

START_TEST(task_goes_on_while_the_scheduler_is_killed_again_and_again)
{
    static const char *const over[] = { "shm", "tcp" };
    char *journal;
    ClusterRun *const run = new_run(over[_i], &journal);
    uint32_t again;

    always_begins = _i == 1;
    cluster_start(run, play, NULL);
    cluster_wait_for(run, 1, "busy");
    kill_scheduler(run, 0);
    expect_requests(run);
    again = start_again(run);
    wait_for_map(run, 4, 3);
    kill_scheduler(run, again);
    expect_requests(run);
    again = start_again(run);
    wait_for_map(run, 4, 5);
    cluster_signal(run, 3, SIGKILL); /* it leads the others through the loss of a node */
    wait_for_map(run, 3, 6);
    expect_requests(run);
    cluster_signal(run, 1, SIGUSR1);
    cluster_signal(run, 2, SIGUSR1);
    cluster_expect_end(run, 1, 0);
    cluster_expect_end(run, 2, 0);
    expect_served(run, again);
    end_run(run, journal);
}
END_TEST

/* What it has left is whole, and so is what the next one leaves, whose journal begins anew with
 * each tick. */
START_TEST(task_goes_on_whose_scheduler_is_killed_while_its_journal_begins_anew)
{
    char *journal;
    ClusterRun *const run = new_run("shm", &journal);
    uint32_t again;

    always_begins = true;
    kills = (Kills)_i;
    cluster_start(run, play, NULL);
    cluster_wait_for(run, 1, "busy");
    cluster_signal(run, 0, SIGUSR2);
    cluster_expect_end(run, 0, -SIGKILL);
    kills = KILLS_NOWHERE;
    expect_requests(run);
    again = start_again(run);
    wait_for_map(run, 4, 3);
    kill_scheduler(run, again);
    again = start_again(run);
    wait_for_map(run, 4, 5);
    cluster_signal(run, 1, SIGUSR1);
    cluster_signal(run, 2, SIGUSR1);
    cluster_expect_end(run, 1, 0);
    cluster_expect_end(run, 2, 0);
    expect_served(run, again);
    end_run(run, journal);
}
END_TEST

START_TEST(task_fails_whose_clocks_met_in_the_scheduler)
{
    char *journal;
    ClusterRun *const run = new_run(NULL, &journal);
    uint32_t again;

    cluster_start(run, play_plain, NULL);
    cluster_wait_for(run, 1, "busy");
    cluster_wait_for(run, 2, "busy");
    kill_scheduler(run, 0);
    again = start_again(run);
    for (uint32_t i = 1; i < 4; i++)
        cluster_expect_end(run, i, 0);
    expect_served(run, again);
    end_run(run, journal);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster scheduler");
    TCase *again = cluster_add_case(suite, "again");

    tcase_add_loop_test(again, task_goes_on_while_the_scheduler_is_killed_again_and_again, 0, 2);
    tcase_add_loop_test(again, task_goes_on_whose_scheduler_is_killed_while_its_journal_begins_anew,
                        KILLS_BEFORE, KILLS_END);
    tcase_add_test(again, task_fails_whose_clocks_met_in_the_scheduler);
    return run_suite(suite);
}
