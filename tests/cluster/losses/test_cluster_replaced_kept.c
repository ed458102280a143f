/* A node with workers of a task is killed that replaces them and whose reader snapshots keep. The
 * process in its place asks for snapshots again and again while it repeats what the lost one had
 * done. It gets none before that is over; from each that it gets then, each row of each epoch is
 * trained on once, and under bsp the result has the bits of an undisturbed run.
 *
 * docs/replication.md: Workers that are replaced. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/kept_training.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_NODES = 3, VICTIM = 2, FATAL = 5, N_MODELS = 3, MOST_SNAPSHOTS = 3 };

static const char *const models[N_MODELS] = { "asp", "ssp", "bsp" };

static const ClusterShape shape = { .n_nodes = N_NODES,
                                    .nodes = { { 1, 1 }, { 1, 1 }, { 1, 2 } },
                                    .catches_up = true };

/* Only the victim has a worker: so all rows come in the same order in each run. */
static const ClusterShape lone = { .n_nodes = N_NODES,
                                   .nodes = { { 1, 0 }, { 1, 0 }, { 1, 1 } },
                                   .catches_up = true };

/* Where in its iteration a worker of the victim has its process killed. */
typedef enum {
    DEATH_GET, /* nothing of the iteration is had */
    DEATH_FIRST_ADD,
    DEATH_LAST_ADD,
    DEATH_CLOCK, /* of the first table */
    DEATH_DONE,  /* the rows are said to be done */
    DEATH_STEP,  /* it has ended the step */
    DEATH_N,
} Death;

typedef struct {
    const char *model;
    const char *directory; /* of snapshots */
    Death place;
    uint64_t number; /* of the snapshot from which it goes on; 0: it begins anew */
    bool is_alone;   /* one process, which goes on from a snapshot, and writes none */
    bool holds;      /* worker 0 does not begin the iteration before it is told to */
} Plan;

/* By which it is told. */
static int signals[2];

static bool is_newcomer(void)
{
    return g_getenv("RUBATO_JOIN") != NULL;
}

static void die_at(const RubatoWorker *worker, const Plan *plan, uint64_t iteration, Death place)
{
    if (!plan->is_alone && !is_newcomer() && rubato_worker_node(worker) == CLUSTER_IDS[VICTIM] &&
        rubato_worker_local_rank(worker) + 1 == rubato_worker_n_local_workers(worker) &&
        plan->place == place && iteration == FATAL)
        kill(getpid(), SIGKILL);
}

typedef struct {
    RubatoWorker *worker;
    const Plan *plan;
    RubatoReader *reader;
    RubatoKVTable *seen, *chain;
    uint32_t n_cut;
} Trainer;

static bool wait_until_told(const RubatoWorker *worker, const Plan *plan, uint64_t iteration,
                            GError **error)
{
    char byte;

    if (plan->holds && !plan->is_alone && rubato_worker_rank(worker) == 0 && iteration == FATAL)
        EXPECT(read(signals[0], &byte, 1) == 1, "nobody tells it");
    return true;
}

/* Of one worker that repeats; nobody else asks. */
static bool try_to_cut(Trainer *it, GError **error)
{
    const RubatoSnapshotSpec snapshot = { .directory = it->plan->directory };
    g_autoptr(GError) found = NULL;
    uint64_t number;

    if (it->plan->is_alone || !is_newcomer() || rubato_worker_local_rank(it->worker) != 0 ||
        it->n_cut == MOST_SNAPSHOTS)
        return true;
    if (rubato_worker_snapshot(it->worker, &snapshot, &number, &found)) {
        it->n_cut++;
        cluster_say("has snapshot %" G_GUINT64_FORMAT, number);
        return true;
    }
    if (g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST))
        return true;
    g_propagate_error(error, g_steal_pointer(&found));
    return false;
}

static bool add_rows(Trainer *it, const RubatoBatch *batch, size_t first, size_t end,
                     GError **error)
{
    const int64_t one = 1;

    for (size_t i = first; i < end; i++) {
        const RubatoKey row = (RubatoKey)batch->label[i];

        TRY(rubato_kv_table_add(it->seen, &row, 1, &one, error));
    }
    return true;
}

/* A float that depends on the order of all rows, if there is one worker. */
static float follow(float was, const RubatoBatch *batch)
{
    float is = was;

    for (size_t i = 0; i < batch->n_rows; i++)
        is = is * 0.75f + batch->label[i];
    return is - was;
}

static bool change(Trainer *it, const RubatoBatch *batch, uint64_t iteration, float was,
                   GError **error)
{
    const RubatoKey key = 0;
    const float delta = follow(was, batch);

    TRY(add_rows(it, batch, 0, batch->n_rows / 2, error));
    die_at(it->worker, it->plan, iteration, DEATH_FIRST_ADD);
    TRY(add_rows(it, batch, batch->n_rows / 2, batch->n_rows, error) &&
        rubato_kv_table_add(it->chain, &key, 1, &delta, error));
    die_at(it->worker, it->plan, iteration, DEATH_LAST_ADD);
    TRY(rubato_kv_table_clock(it->seen, error));
    die_at(it->worker, it->plan, iteration, DEATH_CLOCK);
    return rubato_kv_table_clock(it->chain, error);
}

/* An iteration is a batch. Those before the first one of a worker in the place of a lost one have
 * been done: it goes through their rows, and changes nothing. */
static bool train_batch(Trainer *it, const RubatoBatch *batch, uint64_t iteration, GError **error)
{
    const bool is_done = iteration < rubato_worker_first_clock(it->worker);
    const RubatoKey key = 0;
    float was = 0;

    TRY(is_done || rubato_kv_table_get(it->chain, &key, 1, &was, error));
    die_at(it->worker, it->plan, iteration, DEATH_GET);
    TRY(wait_until_told(it->worker, it->plan, iteration, error));
    TRY(rubato_worker_begin_step(it->worker, error));
    TRY(is_done || change(it, batch, iteration, was, error));
    TRY(rubato_worker_finish_rows(it->worker, it->reader, batch->n_rows, error));
    die_at(it->worker, it->plan, iteration, DEATH_DONE);
    TRY(rubato_worker_end_step(it->worker, error));
    die_at(it->worker, it->plan, iteration, DEATH_STEP);
    TRY(try_to_cut(it, error));
    if (is_newcomer() && iteration == FATAL)
        cluster_say("has repeated its first iteration");
    return true;
}

typedef struct {
    const Plan *plan;
    RubatoDataset *dataset;
} Job;

static bool train(RubatoWorker *worker, void *data, GError **error)
{
    const Job *const job = data;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader = kept_training_open_reader(worker, job->dataset, error);
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) chain =
        rubato_worker_open_kv_table(worker, "chain", RUBATO_F32, error);
    Trainer it = { worker, job->plan, reader, seen, chain, 0 };

    TRY(reader != NULL && seen != NULL && chain != NULL && try_to_cut(&it, error));
    for (uint64_t i = 0; rubato_reader_next(reader, &batch, error); i++)
        TRY(train_batch(&it, batch, i, error));
    return !rubato_reader_failed(reader);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "seen", "chain", NULL };
    const Plan *const plan = data;
    const RubatoRestoreSpec restore = { .directory = plan->directory, .number = plan->number };
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    Job job = { plan, dataset };
    uint32_t bits;
    float chain;

    TRY(kept_training_create(engine, plan->model, plan->is_alone ? 0 : 1, error));
    TRY(plan->number == 0 || rubato_engine_restore(engine, &restore, NULL, error));
    TRY(rubato_engine_run(
        engine,
        &(RubatoTask){ .name = "train",
                       .run = train,
                       .user_data = &job,
                       .tables = tables,
                       .on_loss = plan->is_alone ? RUBATO_ON_LOSS_FAIL : RUBATO_ON_LOSS_REPLACE },
        error));
    TRY(kept_training_check(engine, error) &&
        rubato_engine_get_range(engine, "chain", 0, 1, &chain, error));
    memcpy(&bits, &chain, sizeof bits);
    cluster_say("ends with %08x", bits);
    return rubato_engine_barrier(engine, error);
}

static uint32_t kill_and_replace(ClusterRun *run, const Plan *plan)
{
    cluster_start(run, play, plan);
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
    return cluster_start_joining(run, VICTIM, play, plan);
}

/* In one process; what it says at its end. (transfer full) */
static char *play_alone(const Plan *plan, uint64_t number, uint32_t n_workers)
{
    Plan own = *plan;

    own.number = number;
    own.is_alone = true;
    g_autofree char *text = cluster_play_alone(2, n_workers, play, &own);
    const char *const end = strstr(text, "ends with ");
    ck_assert_ptr_nonnull(end);
    return g_strndup(end, strlen("ends with 01234567"));
}

START_TEST(each_row_is_trained_on_once_from_snapshots_after_a_replacement)
{
    g_autofree char *directory = g_dir_make_tmp("rubato-kept-XXXXXX", NULL);
    const Plan plan = { .model = models[_i % N_MODELS],
                        .directory = directory,
                        .place = (Death)((_i + _i / N_MODELS + 1) % DEATH_N) };
    ClusterRun *const run = cluster_run_new(&shape);
    const uint32_t newcomer = kill_and_replace(run, &plan);
    g_autofree uint64_t *numbers = NULL;
    g_autoptr(GError) error = NULL;
    size_t n;

    cluster_wait_for(run, newcomer, "has taken over the workers of a lost process");
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_expect_end(run, newcomer, 0);
    cluster_run_free(run);
    ck_assert_msg(rubato_snapshot_list(directory, &numbers, &n, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n; i++) {
        g_autofree char *text = play_alone(&plan, numbers[i], 1 + (uint32_t)i);

        ck_assert_ptr_nonnull(text);
    }
    remove_tree(directory);
}
END_TEST

static const struct {
    const char *model;
    Death place;
} lone_deaths[] = {
    { "bsp", DEATH_FIRST_ADD }, { "bsp", DEATH_CLOCK }, { "bsp", DEATH_DONE },
    { "asp", DEATH_GET },       { "bsp", DEATH_GET },   { "bsp", DEATH_LAST_ADD },
    { "bsp", DEATH_STEP },
};

/* The run is killed as soon as the snapshot is there, or has ended. Also under asp, where all of a
 * lone worker's Adds are its own. */
START_TEST(a_run_that_goes_on_from_such_a_snapshot_ends_with_the_same_bits)
{
    g_autofree char *directory = g_dir_make_tmp("rubato-kept-XXXXXX", NULL);
    const Plan plan = { .model = lone_deaths[_i].model,
                        .directory = directory,
                        .place = lone_deaths[_i].place };
    ClusterRun *const run = cluster_run_new(&lone);
    const uint32_t newcomer = kill_and_replace(run, &plan);

    cluster_wait_for(run, newcomer, "has snapshot 1");
    cluster_run_free(run);
    g_autofree char *expected = play_alone(&plan, 0, 1);
    g_autofree char *resumed = play_alone(&plan, 1, 1);
    ck_assert_str_eq(resumed, expected);
    remove_tree(directory);
}
END_TEST

/* Where Adds are applied by their clock, a cut has those of clocks that all workers have ended. The
 * rows through which the process goes first are of such clocks only when all are past its first
 * one: worker 0 is not yet. */
START_TEST(no_snapshot_comes_before_all_workers_are_past_the_first_clock)
{
    g_autofree char *directory = g_dir_make_tmp("rubato-kept-XXXXXX", NULL);
    const ClusterShape pair = { .n_nodes = N_NODES,
                                .nodes = { { 1, 1 }, { 1, 0 }, { 1, 1 } },
                                .catches_up = true };
    const Plan plan = {
        .model = "bsp", .directory = directory, .place = DEATH_LAST_ADD, .holds = true
    };
    ck_assert_int_eq(pipe(signals), 0);
    ClusterRun *const run = cluster_run_new(&pair);
    const uint32_t newcomer = kill_and_replace(run, &plan);

    cluster_wait_for(run, newcomer, "has repeated its first iteration");
    ck_assert_ptr_null(strstr(run->processes[newcomer].text->str, "has snapshot"));
    ck_assert_int_eq(write(signals[1], "", 1), 1);
    cluster_wait_for(run, newcomer, "has snapshot 1");
    cluster_run_free(run);
    g_autofree char *text = play_alone(&plan, 1, 2);
    ck_assert_ptr_nonnull(text);
    close(signals[0]);
    close(signals[1]);
    remove_tree(directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster replaced kept");
    TCase *cases = cluster_add_case(suite, "kept");
    const bool kills_all = g_getenv("RUBATO_TEST_KILLS") != NULL;

    /* in the usual run some places */
    tcase_add_loop_test(cases, each_row_is_trained_on_once_from_snapshots_after_a_replacement, 0,
                        kills_all ? N_MODELS * DEATH_N : N_MODELS);
    tcase_add_loop_test(cases, a_run_that_goes_on_from_such_a_snapshot_ends_with_the_same_bits, 0,
                        kills_all ? (int)G_N_ELEMENTS(lone_deaths) : 4);
    tcase_add_test(cases, no_snapshot_comes_before_all_workers_are_past_the_first_clock);
    return run_suite(suite);
}
