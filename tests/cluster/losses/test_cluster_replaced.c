/* A node with workers of a task that replaces them is killed, in the middle of an iteration, and a
 * process that takes its place has these workers again: each change counts once, under bsp the rows
 * are those of an undisturbed run, and barriers that were passed are not waited in again.
 *
 * docs/replication.md: Workers that are replaced. */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "engine/join/journal_file.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/counted_lists.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/network/lossy.h"
#include "tests/support/runner.h"

enum {
    N_NODES = 3,
    VICTIM = 2,
    N_WORKERS = 5,
    N_KEYS = 90,
    N_MODELS = 3,
    N_ITERATIONS = 24,
    FATAL = 17,
    N_ROWS = 3000, /* of data */
    N_EPOCHS = 2,
    N_BATCH = 10
};

static const ClusterShape shape = { .n_nodes = N_NODES,
                                    .nodes = { { 1, 1 }, { 1, 2 }, { 1, 2 } },
                                    .catches_up = true };

#define SPEC(...)                                                       \
    {                                                                   \
        .name = "rows", .dtype = RUBATO_I64, .replicas = 1, __VA_ARGS__ \
    }
static const RubatoTableSpec specs[N_MODELS] = {
    SPEC(.model = "bsp", .n_keys = N_KEYS),
    SPEC(.model = "ssp", .staleness = 2, .n_keys = N_KEYS),
    SPEC(.model = "asp", .storage = "hash"),
};

/* Where in its iteration a worker of the victim has its process killed. */
typedef enum {
    DEATH_GET,
    DEATH_FIRST_ADD,
    DEATH_MET, /* in the barrier between the Adds */
    DEATH_LAST_ADD,
    DEATH_CLOCK,  /* before the clock of the second table */
    DEATH_END,    /* of the iteration */
    DEATH_RETURN, /* all is done; the other worker may have returned */
    DEATH_N,
    DEATH_CUT, /* it goes on, but its node's Adds do not come to node 1 any more */
} Death;

typedef struct {
    RubatoTableSpec spec;
    Death place;
    uint32_t replace_ms;
    bool is_again; /* it is killed again, by the process in its place */
    bool meets;    /* in barriers, in each iteration */
    bool waits;    /* worker 0 does not come to one of them before it is told to */
} Plan;

/* In the victim's process: nothing leaves it for node 1. */
static atomic_bool is_cut;

static Packet *cut(uint32_t from, uint32_t to, Packet *packet)
{
    return from == VICTIM && to == 1 && atomic_load(&is_cut) ? NULL : packet;
}

/* By which it is told. */
static int signals[2];

static bool is_first_process(void)
{
    return g_getenv("RUBATO_JOIN") == NULL;
}

/* One of the victim's two workers; the other one is anywhere. */
static void die_at(const RubatoWorker *worker, const Plan *plan, uint64_t iteration, Death place)
{
    const bool is_to_die = is_first_process() || (plan->is_again && g_getenv("DIES") != NULL);
    const uint64_t fatal = is_first_process() ? FATAL : FATAL + 4;

    if (rubato_worker_node(worker) == CLUSTER_IDS[VICTIM] &&
        rubato_worker_local_rank(worker) == 1 && is_to_die && plan->place == place &&
        iteration == fatal) {
        if (place != DEATH_CUT)
            kill(getpid(), SIGKILL);
        atomic_store(&is_cut, true);
        cluster_say("is cut");
    }
}

static bool is_bsp(const Plan *plan)
{
    return strcmp(plan->spec.model, "bsp") == 0;
}

/* What a worker adds to a key: under bsp it depends on what it sees. */
static int64_t delta_of(const Plan *plan, uint32_t rank, uint64_t iteration, int64_t row)
{
    if (!is_bsp(plan))
        return 1 + rank;
    return (int64_t)(((uint64_t)row * 31 + rank * 7 + iteration) % 1000) - 300;
}

/* In the iteration in which the victim is killed. */
static bool wait_until_told(const RubatoWorker *worker, const Plan *plan, uint64_t iteration,
                            GError **error)
{
    char byte;

    if (plan->waits && rubato_worker_rank(worker) == 0 && iteration == FATAL) {
        cluster_say("holds the others up");
        EXPECT(read(signals[0], &byte, 1) == 1, "nobody tells it");
    }
    return true;
}

/* All workers come here, if they meet at all: some iterations begin with a barrier, all have one
 * between their Adds, some have two. */
static bool meet_between(RubatoWorker *worker, const Plan *plan, uint64_t iteration, GError **error)
{
    TRY(wait_until_told(worker, plan, iteration, error));
    for (uint64_t n = plan->meets ? 1 + (iteration % 5 == 0) : 0; n > 0; n--)
        TRY(rubato_worker_barrier(worker, error));
    die_at(worker, plan, iteration, DEATH_MET);
    return true;
}

/* When they have met where an iteration begins, all have ended the one before, and nobody has come
 * further than to the barrier in this one; but what a worker repeats may be there already. */
static bool check_met(RubatoWorker *worker, uint64_t iteration, const int64_t *beside,
                      GError **error)
{
    const uint64_t first = rubato_worker_first_clock(worker);

    if (iteration % 2 == 1 && (first == 0 || iteration > first))
        EXPECT(beside[0] == (int64_t)iteration * N_WORKERS,
               "in iteration %" G_GUINT64_FORMAT " there are %" G_GINT64_FORMAT, iteration,
               beside[0]);
    return true;
}

/* Each iteration reads two tables, adds to both, some keys by a second call, writes to one of
 * ragged rows, and ends with their clocks. */
static bool iterate(RubatoWorker *worker, const Plan *plan, RubatoKVTable *rows,
                    RubatoKVTable *beside, RubatoRaggedTable *lists, uint64_t iteration,
                    GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    int64_t seen[N_KEYS], seen_beside[N_KEYS], deltas[N_KEYS], ones[N_KEYS];
    RubatoKey odd[N_KEYS / 2];

    if (plan->meets && iteration % 2 == 1)
        TRY(rubato_worker_barrier(worker, error));
    TRY(rubato_kv_table_get_range(rows, 0, N_KEYS, seen, error) &&
        rubato_kv_table_get_range(beside, 0, N_KEYS, seen_beside, error));
    TRY(!plan->meets || check_met(worker, iteration, seen_beside, error));
    die_at(worker, plan, iteration, DEATH_GET);
    die_at(worker, plan, iteration, DEATH_CUT);
    for (size_t i = 0; i < N_KEYS; i++) {
        deltas[i] = delta_of(plan, rank, iteration, seen[i] + seen_beside[i]);
        ones[i] = 1;
    }
    for (size_t i = 0; i < N_KEYS / 2; i++)
        odd[i] = 2 * i + 1;
    TRY(rubato_kv_table_add_range(rows, 0, N_KEYS, deltas, error));
    die_at(worker, plan, iteration, DEATH_FIRST_ADD);
    TRY(meet_between(worker, plan, iteration, error));
    TRY(rubato_kv_table_add(rows, odd, N_KEYS / 2, ones, error) &&
        rubato_kv_table_add_range(beside, 0, N_KEYS, ones, error));
    /* a process that is cut would wait for the answers, and not in its clock */
    TRY(atomic_load(&is_cut) || counted_lists_write(worker, lists, (int64_t)iteration, error));
    die_at(worker, plan, iteration, DEATH_LAST_ADD);
    TRY(rubato_kv_table_clock(rows, error) && rubato_ragged_table_clock(lists, error));
    die_at(worker, plan, iteration, DEATH_CLOCK);
    TRY(rubato_kv_table_clock(beside, error));
    die_at(worker, plan, iteration, DEATH_END);
    return true;
}

/* Nobody has used collectives before the loss: under these models all have to wait for the
 * victim. */
static bool meet(RubatoWorker *worker, GError **error)
{
    int64_t one = 1;
    const RubatoTensor ones = {
        .name = "ones", .dtype = RUBATO_I64, .input = &one, .output = &one
    };

    TRY(rubato_worker_barrier(worker, error) &&
        rubato_worker_allreduce(worker, &ones, NULL, error));
    EXPECT(one == N_WORKERS, "the sum is %" G_GINT64_FORMAT, one);
    return true;
}

static bool work(RubatoWorker *worker, void *data, GError **error)
{
    const Plan *const plan = data;
    const uint64_t first = rubato_worker_first_clock(worker);
    g_autoptr(RubatoKVTable) rows = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) beside =
        rubato_worker_open_kv_table(worker, "beside", RUBATO_I64, error);
    g_autoptr(RubatoRaggedTable) lists = counted_lists_open(worker, error);

    TRY(rows != NULL && beside != NULL && lists != NULL);
    EXPECT(rubato_worker_n_workers(worker) == N_WORKERS, "%u workers",
           rubato_worker_n_workers(worker));
    EXPECT(rubato_kv_table_clock_value(rows) == first, "it begins elsewhere");
    EXPECT(!is_first_process() || first == 0, "it begins with %" G_GUINT64_FORMAT, first);
    /* both workers had read the rows of that clock, or one of them of the next one */
    if (!is_first_process() && plan->place != DEATH_RETURN && is_bsp(plan))
        EXPECT(first >= FATAL && (first <= FATAL + 1 || plan->is_again),
               "from %" G_GUINT64_FORMAT " on", first);
    if (plan->meets && first == 0) /* barriers of clock 0 */
        TRY(rubato_worker_barrier(worker, error) && rubato_worker_barrier(worker, error));
    for (uint64_t i = first; i < N_ITERATIONS; i++)
        TRY(iterate(worker, plan, rows, beside, lists, i, error));
    if (plan->place == DEATH_RETURN)
        die_at(worker, plan, FATAL, DEATH_RETURN);
    return strcmp(plan->spec.model, "asp") == 0 || plan->place == DEATH_RETURN ||
           meet(worker, error);
}

/* The rows of an undisturbed run. */
static void compute(const Plan *plan, int64_t *rows)
{
    int64_t before[N_KEYS];

    memset(rows, 0, N_KEYS * sizeof *rows);
    for (uint64_t i = 0; i < N_ITERATIONS; i++) {
        memcpy(before, rows, sizeof before);
        for (uint32_t rank = 0; rank < N_WORKERS; rank++)
            for (size_t key = 0; key < N_KEYS; key++)
                rows[key] += delta_of(plan, rank, i, before[key] + (int64_t)i * N_WORKERS) +
                             (int64_t)(key % 2);
    }
}

static bool check(RubatoEngine *engine, const Plan *plan, GError **error)
{
    int64_t rows[N_KEYS], beside[N_KEYS], expected[N_KEYS];

    compute(plan, expected);
    TRY(rubato_engine_get_range(engine, "rows", 0, N_KEYS, rows, error) &&
        rubato_engine_get_range(engine, "beside", 0, N_KEYS, beside, error));
    for (size_t i = 0; i < N_KEYS; i++) {
        EXPECT(rows[i] == expected[i], "key %zu: %" G_GINT64_FORMAT " instead of %" G_GINT64_FORMAT,
               i, rows[i], expected[i]);
        EXPECT(beside[i] == N_WORKERS * N_ITERATIONS, "beside, key %zu: %" G_GINT64_FORMAT, i,
               beside[i]);
    }
    return counted_lists_check(engine, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "rows", "beside", COUNTED_LISTS, NULL };
    const Plan *const plan = data;
    RubatoTableSpec beside = plan->spec;

    beside.name = "beside";
    TRY(rubato_engine_create_table(engine, &plan->spec, error) &&
        rubato_engine_create_table(engine, &beside, error) &&
        counted_lists_create(engine, &beside, error));
    TRY(rubato_engine_run(engine,
                          &(RubatoTask){ .name = "long",
                                         .run = work,
                                         .user_data = (void *)(uintptr_t)plan,
                                         .tables = tables,
                                         .on_loss = RUBATO_ON_LOSS_REPLACE,
                                         .replace_ms = plan->replace_ms },
                          error));
    TRY(check(engine, plan, error) && rubato_engine_barrier(engine, error));
    cluster_say("done");
    return rubato_engine_barrier(engine, error);
}

static uint32_t start_joining_in(ClusterRun *run, ClusterPlay joined, const Plan *plan, bool dies)
{
    if (dies)
        g_setenv("DIES", "1", TRUE);
    const uint32_t process = cluster_start_joining(run, VICTIM, joined, plan);
    g_unsetenv("DIES");
    return process;
}

static uint32_t start_joining(ClusterRun *run, const Plan *plan, bool dies)
{
    return start_joining_in(run, play, plan, dies);
}

static void expect_whole_run(ClusterRun *run, uint32_t newcomer)
{
    cluster_wait_for(run, newcomer, "has taken over the workers of a lost process");
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_expect_end(run, newcomer, 0);
    cluster_expect_text(run, newcomer, "done");
    cluster_run_free(run);
}

START_TEST(a_process_has_the_workers_of_a_lost_one)
{
    const Death place = (Death)(_i % DEATH_N);
    const Plan plan = { .spec = specs[(_i / DEATH_N + _i) % N_MODELS],
                        .place = place,
                        .meets = place == DEATH_MET || (_i / DEATH_N + _i) % 2 == 1 };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, &plan);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    expect_whole_run(run, start_joining(run, &plan, /* dies= */ false));
}
END_TEST

/* In the middle of what it repeats, or after that. */
START_TEST(a_process_that_has_lost_workers_may_be_lost_too)
{
    const Plan plan = {
        .spec = specs[_i], .place = DEATH_LAST_ADD, .is_again = true, .meets = _i % 2 == 0
    };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, &plan);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    g_string_truncate(run->processes[0].text, 0);
    const uint32_t newcomer = start_joining(run, &plan, /* dies= */ true);
    cluster_wait_for(run, newcomer, "has taken over the workers of a lost process");
    cluster_wait_for(run, 0, "node 20 (127.0.0.1:0) was lost: ");
    expect_whole_run(run, start_joining(run, &plan, /* dies= */ false));
}
END_TEST

/* No part hears of a clock before all parts have what was added before it: otherwise the new
 * workers would begin behind that clock, and what is on its way to node 1 would be missing. */
START_TEST(a_clock_is_told_when_all_parts_have_the_adds)
{
    const Lossy lossy = { .change = cut };
    ClusterShape slow = shape;
    const Plan plan = { .spec = specs[_i], .place = DEATH_CUT };
    ClusterRun *run;

    slow.stall_ms = 200;
    slow.faults = lossy_faults(&lossy);
    run = cluster_run_new(&slow);
    cluster_start(run, play, &plan);
    cluster_wait_for(run, VICTIM, "is cut");
    g_string_truncate(run->processes[VICTIM].text, 0); /* it may have waited before */
    cluster_wait_for(run, VICTIM, "to take in what was sent to its servers");
    cluster_signal(run, VICTIM, SIGKILL);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    expect_whole_run(run, start_joining(run, &plan, /* dies= */ false));
}
END_TEST

/* Nobody comes: the others end, and hear why. */
START_TEST(a_task_does_not_wait_for_ever_for_a_process)
{
    const Plan plan = { .spec = specs[_i], .place = DEATH_LAST_ADD, .replace_ms = 300 };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, &plan);
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_wait_for(run, i, "no process has taken over its workers within 0.3 s");
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, CLUSTER_FAILED);
    cluster_run_free(run);
}
END_TEST

/* All of its workers are in a barrier, and the scheduler knows that, when it is killed. */
START_TEST(a_node_may_be_lost_in_a_barrier)
{
    ClusterShape slow = shape;
    const Plan plan = { .spec = specs[_i], .place = DEATH_N, .meets = true, .waits = true };

    slow.stall_ms = 200;
    ck_assert_int_eq(pipe(signals), 0);
    ClusterRun *const run = cluster_run_new(&slow);
    cluster_start(run, play, &plan);
    cluster_wait_for(run, 0, "holds the others up");
    g_string_truncate(run->processes[VICTIM].text, 0); /* it may have waited before */
    cluster_wait_for(run, VICTIM, "waits in a barrier of task long with 2 of this node's 2");
    cluster_signal(run, VICTIM, SIGKILL);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    const uint32_t newcomer = start_joining(run, &plan, /* dies= */ false);
    cluster_wait_for(run, newcomer, "has taken over the workers of a lost process, from clock 17");
    ck_assert_int_eq(write(signals[1], "", 1), 1);
    expect_whole_run(run, newcomer);
    close(signals[0]);
    close(signals[1]);
}
END_TEST

/* ---- a dynamic split ---- */

/* Of a node: its workers read the same. */
typedef struct {
    const Plan *plan;
    RubatoDataset *dataset;
} Reading;

/* A row is a key. */
static RubatoDataset *make_dataset(GError **error)
{
    RubatoKey keys[N_ROWS];
    float ones[N_ROWS];
    size_t starts[N_ROWS + 1];

    for (size_t i = 0; i <= N_ROWS; i++)
        starts[i] = i;
    for (size_t i = 0; i < N_ROWS; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    return rubato_dataset_new_from_rows(&(RubatoRows){ .n_rows = N_ROWS,
                                                       .n_entries = N_ROWS,
                                                       .row_start = starts,
                                                       .key = keys,
                                                       .value = ones,
                                                       .label = ones },
                                        "rows", error);
}

/* An iteration is a batch. The worker in the place of a lost one goes through those of earlier
 * iterations once more. */
static bool learn(RubatoWorker *worker, const Plan *plan, RubatoReader *reader, RubatoKVTable *rows,
                  GError **error)
{
    const uint64_t first = rubato_worker_first_clock(worker);
    int64_t ones[N_BATCH];
    int64_t seen[N_BATCH];
    g_autoptr(RubatoBatch) batch = NULL;

    for (size_t i = 0; i < N_BATCH; i++)
        ones[i] = 1;
    for (uint64_t i = 0; rubato_reader_next(reader, &batch, error); i++) {
        const size_t half = batch->n_keys / 2;

        if (i < first)
            continue;
        TRY(rubato_kv_table_get(rows, batch->keys, batch->n_keys, seen, error));
        die_at(worker, plan, i, DEATH_GET);
        TRY(rubato_kv_table_add(rows, batch->keys, half, ones, error));
        die_at(worker, plan, i, DEATH_FIRST_ADD);
        TRY(rubato_kv_table_add(rows, batch->keys + half, batch->n_keys - half, ones, error));
        die_at(worker, plan, i, DEATH_LAST_ADD);
        TRY(rubato_kv_table_clock(rows, error));
        die_at(worker, plan, i, DEATH_END);
    }
    return !rubato_reader_failed(reader);
}

static bool read_and_add(RubatoWorker *worker, void *data, GError **error)
{
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_DYNAMIC,
                                          .shuffle = true,
                                          .epochs = N_EPOCHS,
                                          .batch_rows = N_BATCH,
                                          .ahead = 1 };
    const Reading *const reading = data;
    g_autoptr(RubatoKVTable) rows = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    TRY(rows != NULL);
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, reading->dataset, &options, error);
    return reader != NULL && learn(worker, reading->plan, reader, rows, error);
}

/* Each row of each epoch was added once. */
static bool play_split(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "rows", NULL };
    const Plan *const plan = data;
    RubatoTableSpec spec = plan->spec;
    g_autoptr(RubatoDataset) dataset = make_dataset(error);
    Reading reading = { plan, dataset };
    int64_t rows[N_ROWS];

    spec.n_keys = N_ROWS;
    TRY(dataset != NULL && rubato_engine_create_table(engine, &spec, error) &&
        rubato_engine_run(engine,
                          &(RubatoTask){ .name = "long",
                                         .run = read_and_add,
                                         .user_data = &reading,
                                         .tables = tables,
                                         .on_loss = RUBATO_ON_LOSS_REPLACE },
                          error) &&
        rubato_engine_get_range(engine, "rows", 0, N_ROWS, rows, error));
    for (size_t i = 0; i < N_ROWS; i++)
        EXPECT(rows[i] == N_EPOCHS, "row %zu was added %" G_GINT64_FORMAT " times", i, rows[i]);
    TRY(rubato_engine_barrier(engine, error));
    cluster_say("done");
    return rubato_engine_barrier(engine, error);
}

/* The others get the rest meanwhile. */
START_TEST(a_process_reads_the_blocks_of_lost_workers)
{
    static const Death places[] = { DEATH_GET, DEATH_FIRST_ADD, DEATH_LAST_ADD, DEATH_END };
    const Plan plan = { .spec = specs[_i % 2], .place = places[_i], .is_again = _i % 3 == 1 };
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_split, &plan);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    if (plan.is_again) {
        g_string_truncate(run->processes[0].text, 0);
        const uint32_t first = start_joining_in(run, play_split, &plan, /* dies= */ true);
        cluster_wait_for(run, first, "has taken over the workers of a lost process");
        cluster_wait_for(run, 0, "node 20 (127.0.0.1:0) was lost: ");
    }
    expect_whole_run(run, start_joining_in(run, play_split, &plan, /* dies= */ false));
}
END_TEST

/* ---- the scheduler's process is killed meanwhile ---- */

/* Node 0 is the scheduler's alone; the ranks are as above. */
static ClusterRun *start_with_journal(const Plan *plan, char **journal)
{
    g_autofree char *folder = make_folder();

    *journal = g_build_filename(folder, "journal", NULL);
    g_setenv(JOURNAL_VARIABLE, *journal, TRUE);
    ClusterRun *const run = cluster_run_new(&(ClusterShape){
        .n_nodes = 4, .nodes = { { 0, 0 }, { 1, 1 }, { 1, 2 }, { 1, 2 } }, .catches_up = true });

    cluster_start(run, play, plan);
    return run;
}

/* Another one goes on as the scheduler. Its program may not have caught up when the run ends. */
static void restart_scheduler(ClusterRun *run, const Plan *plan)
{
    cluster_signal(run, 0, SIGKILL);
    cluster_expect_end(run, 0, -SIGKILL);
    g_setenv("RUBATO_JOIN", "1", TRUE);
    cluster_start_other(run, CLUSTER_IDS[0], run->path, play, plan);
    g_unsetenv("RUBATO_JOIN");
    cluster_wait_for(run, 1, "the run goes on, by part map 4");
}

static void end_with_journal(ClusterRun *run, char *journal)
{
    g_autofree char *folder = g_path_get_dirname(journal);

    cluster_run_free(run);
    g_unsetenv(JOURNAL_VARIABLE);
    remove_folder(folder);
    g_free(journal);
}

/* It knows by the journal that the task waits. */
START_TEST(a_process_has_lost_workers_by_another_scheduler)
{
    const Plan plan = { .spec = specs[0], .place = DEATH_LAST_ADD, .meets = true };
    char *journal;
    ClusterRun *const run = start_with_journal(&plan, &journal);

    cluster_wait_for(run, 1, "the run goes on, by part map 2");
    restart_scheduler(run, &plan);
    const uint32_t newcomer = start_joining(run, &plan, /* dies= */ false);

    cluster_wait_for(run, newcomer, "has taken over the workers of a lost process");
    cluster_expect_end(run, 1, 0);
    cluster_expect_end(run, 3, 0);
    cluster_expect_end(run, newcomer, 0);
    end_with_journal(run, journal);
}
END_TEST

START_TEST(a_task_does_not_wait_for_ever_for_a_process_by_another_scheduler)
{
    const Plan plan = { .spec = specs[0], .place = DEATH_LAST_ADD, .replace_ms = 2000 };
    char *journal;
    ClusterRun *const run = start_with_journal(&plan, &journal);

    cluster_wait_for(run, 1, "the run goes on, by part map 2");
    restart_scheduler(run, &plan);
    cluster_wait_for(run, 1, "no process has taken over its workers within 2.0 s");
    cluster_expect_end(run, 1, CLUSTER_FAILED);
    cluster_expect_end(run, 3, CLUSTER_FAILED);
    end_with_journal(run, journal);
}
END_TEST

/* ---- what does not begin ---- */

START_TEST(a_task_that_cannot_replace_workers_does_not_begin)
{
    static const char *const tables[] = { "rows", NULL };
    RubatoEngine *const engine = engine_with_servers(1);
    RubatoTask task = { .name = "x",
                        .run = work,
                        .tables = tables,
                        .workers_per_node = 1,
                        .on_loss = RUBATO_ON_LOSS_REPLACE };

    create_table(engine, &(RubatoTableSpec){ .name = "rows", .n_keys = 1 });
    run_fails(engine, &task, RUBATO_ERROR_INVALID,
              "task x is to replace its workers after a loss, but its table rows has no replicas",
              NULL);
    task.on_loss = RUBATO_ON_LOSS_CONTINUE;
    task.replace_ms = 1;
    run_fails(engine, &task, RUBATO_ERROR_INVALID,
              "task x: replace_ms has no effect without RUBATO_ON_LOSS_REPLACE", NULL);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replaced");
    TCase *cases = cluster_add_case(suite, "replaced");
    TCase *splits = cluster_add_case(suite, "splits");

    /* in the usual run each place under one model, with or without barriers */
    tcase_add_loop_test(cases, a_process_has_the_workers_of_a_lost_one, 0,
                        DEATH_N * (g_getenv("RUBATO_TEST_KILLS") != NULL ? 2 * N_MODELS : 1));
    tcase_add_loop_test(cases, a_process_that_has_lost_workers_may_be_lost_too, 0,
                        G_N_ELEMENTS(specs));
    tcase_add_loop_test(cases, a_clock_is_told_when_all_parts_have_the_adds, 0,
                        G_N_ELEMENTS(specs));
    tcase_add_loop_test(cases, a_task_does_not_wait_for_ever_for_a_process, 0, G_N_ELEMENTS(specs));
    tcase_add_loop_test(splits, a_process_reads_the_blocks_of_lost_workers, 0, 4);
    tcase_add_loop_test(cases, a_node_may_be_lost_in_a_barrier, 0, G_N_ELEMENTS(specs));
    tcase_add_test(cases, a_process_has_lost_workers_by_another_scheduler);
    tcase_add_test(cases, a_task_does_not_wait_for_ever_for_a_process_by_another_scheduler);
    tcase_add_test(cases, a_task_that_cannot_replace_workers_does_not_begin);
    return run_suite(suite);
}
