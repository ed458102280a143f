/* A task continues without the workers of a node that is killed. Its snapshots come when they are
 * due by the clocks of those that live; and each says which rows these have done, so that a run
 * which goes on from it trains on each row that is left once.
 *
 * docs/liveness.md: A task that continues. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "engine/scheduler/data/scheduler_data.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/kept_training.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_NODES = 3, VICTIM = 2, N_AHEAD = 20 };

static const char *const models[] = { "bsp", "asp" };

/* Node 1 has no server: it asks one for the lowest clock. */
static const ClusterShape shape = { .n_nodes = N_NODES, .nodes = { { 1, 1 }, { 0, 1 }, { 1, 1 } } };

static char *directory;

/* Only the victim keeps the end that is written to: so the other end shows when it is dead. Without
 * that the others might read all rows before they are one fewer. */
static int alive[2];

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-continue-XXXXXX", NULL);
    ck_assert_int_eq(pipe(alive), 0);
}

static void tear_down(void)
{
    close(alive[0]);
    remove_tree(directory);
    g_free(directory);
}

static bool is_victim(const RubatoEngine *engine)
{
    return rubato_engine_n_nodes(engine) > 1 && rubato_engine_node(engine) == CLUSTER_IDS[VICTIM];
}

static void expect_end(ClusterRun *run)
{
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_run_free(run);
}

static ClusterRun *start(ClusterPlay play, const char *model)
{
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, model);
    return run;
}

static void expect_loss(ClusterRun *run)
{
    cluster_wait_for(run, 0, "the run goes on, by part map 2");
}

static void expect_survival(ClusterPlay play, const char *model)
{
    ClusterRun *const run = start(play, model);

    close(alive[1]);
    expect_loss(run);
    expect_end(run);
}

/* ---- snapshots that are due by clocks ---- */

/* Until worker 0 finds a snapshot. */
static bool clock_on(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoEngine *const engine = user_data;
    const RubatoKey end_key = 0;
    const int64_t one = 1;
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    int64_t has_ended = 0;

    TRY(seen != NULL);
    if (is_victim(engine))
        (void)kill(getpid(), SIGKILL);
    while (has_ended == 0) {
        g_autofree uint64_t *numbers = NULL;
        size_t n = 0;

        TRY(rubato_worker_rank(worker) != 0 ||
            rubato_snapshot_list(directory, &numbers, &n, error));
        TRY(n == 0 || rubato_kv_table_add(seen, &end_key, 1, &one, error));
        TRY(rubato_kv_table_clock(seen, error) &&
            rubato_kv_table_get(seen, &end_key, 1, &has_ended, error));
    }
    return true;
}

static bool play_clocks(RubatoEngine *engine, const void *model, GError **error)
{
    static const char *const tables[] = { "seen", NULL };
    const RubatoTaskSnapshots snapshots = { .spec.directory = directory, .every_clocks = 3 };

    return kept_training_create(engine, model, 1, error) &&
           rubato_engine_run(engine,
                             &(RubatoTask){ .name = "clocks",
                                            .run = clock_on,
                                            .user_data = engine,
                                            .tables = tables,
                                            .snapshots = &snapshots,
                                            .on_loss = RUBATO_ON_LOSS_CONTINUE },
                             error) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(snapshots_are_due_by_the_clocks_of_those_that_live)
{
    expect_survival(play_clocks, models[_i]);
}
END_TEST

/* ---- which rows are done ---- */

static bool play_training(RubatoEngine *engine, const void *model, GError **error)
{
    KeptTraining training = { .directory = directory,
                              .snapshot_every =
                                  rubato_engine_node(engine) == CLUSTER_IDS[0] ? 20 : 0,
                              .dies_unchanged = is_victim(engine),
                              .hold_fd = alive[0],
                              .on_loss = RUBATO_ON_LOSS_CONTINUE };

    if (!is_victim(engine))
        close(alive[1]);
    return kept_training_create(engine, model, 1, error) &&
           kept_training_run(engine, 0, &training, error) && kept_training_check(engine, error) &&
           rubato_engine_barrier(engine, error);
}

typedef struct {
    const char *model;
    uint64_t number; /* of the snapshot */
} From;

static bool go_on(RubatoEngine *engine, const void *data, GError **error)
{
    const From *const from = data;
    const RubatoRestoreSpec restore = { .directory = directory, .number = from->number };
    KeptTraining training = { .directory = directory };

    return kept_training_create(engine, from->model, 0, error) &&
           rubato_engine_restore(engine, &restore, NULL, error) &&
           kept_training_run(engine, 0, &training, error) && kept_training_check(engine, error);
}

static void expect_snapshots_to_go_on_from(const char *model)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n; i += 2)
        g_free(cluster_play_alone(2, 2, go_on, &(From){ model, numbers[i] }));
}

START_TEST(each_row_is_trained_on_once_from_snapshots_after_a_loss)
{
    expect_survival(play_training, models[_i]);
    expect_snapshots_to_go_on_from(models[_i]);
}
END_TEST

/* ---- workers that had ended ---- */

/* What the scheduler's process writes when it has heard that the victim's workers have ended. */
static int has_ended[2];

/* The linker puts it in place of the library's function. */
__typeof__(data_settle) __real_data_settle, __wrap_data_settle;
void __wrap_data_settle(SchedulerTask *task, uint32_t node)
{
    __real_data_settle(task, node);
    if (node == VICTIM && write(has_ended[1], "", 1) != 1)
        g_printerr("the victim lives on\n");
}

static void *die_when_ended(void *data)
{
    char byte;

    (void)data;
    if (read(has_ended[0], &byte, 1) == 1)
        (void)kill(getpid(), SIGKILL);
    return NULL;
}

/* The victim's worker is a clock ahead of the others when it returns. These wait until it is
 * dead, and nobody holds the pipe besides it. */
static bool play_to_the_end(RubatoEngine *engine, const char *model, uint32_t snapshot_every,
                            const RubatoTaskSnapshots *snapshots, GError **error)
{
    const bool dies = is_victim(engine);
    KeptTraining training = { .directory = directory,
                              .snapshot_every = snapshot_every,
                              .snapshots = snapshots,
                              .ends_after = dies ? N_AHEAD + 1 : 0,
                              .hold_after = N_AHEAD,
                              .hold_fd = dies ? 0 : alive[0],
                              .on_loss = RUBATO_ON_LOSS_CONTINUE };
    pthread_t thread;

    if (!dies)
        close(alive[1]);
    else
        EXPECT(pthread_create(&thread, NULL, die_when_ended, NULL) == 0, "there is no thread");
    return kept_training_create(engine, model, 1, error) &&
           kept_training_run(engine, 0, &training, error) && kept_training_check(engine, error) &&
           rubato_engine_barrier(engine, error);
}

/* The worker that asks for a snapshot is still at the clock at which the victim died. */
static bool play_by_a_worker(RubatoEngine *engine, const void *model, GError **error)
{
    const bool asks = rubato_engine_node(engine) == CLUSTER_IDS[0];

    return play_to_the_end(engine, model, asks ? N_AHEAD : 0, NULL, error);
}

START_TEST(each_row_is_trained_on_once_from_snapshots_after_the_loss_of_ended_workers)
{
    ck_assert_int_eq(pipe(has_ended), 0);
    expect_survival(play_by_a_worker, models[_i]);
    expect_snapshots_to_go_on_from(models[_i]);
    close(has_ended[0]);
    close(has_ended[1]);
}
END_TEST

static bool play_when_asked(RubatoEngine *engine, const void *model, GError **error)
{
    const RubatoTaskSnapshots snapshots = { .spec.directory = directory };

    return play_to_the_end(engine, model, 0, &snapshots, error);
}

START_TEST(each_row_is_trained_on_once_from_a_snapshot_asked_for_after_the_loss_of_ended_workers)
{
    g_autoptr(GError) error = NULL;
    uint64_t number = 0;

    ck_assert_int_eq(pipe(has_ended), 0);
    ClusterRun *const run = start(play_when_asked, models[_i]);

    expect_loss(run);
    ck_assert_msg(rubato_snapshot_ask(directory, 60, &number, &error), "%s",
                  error != NULL ? error->message : "");
    close(alive[1]);
    expect_end(run);
    g_free(cluster_play_alone(2, 2, go_on, &(From){ models[_i], number }));
    close(has_ended[0]);
    close(has_ended[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster continue kept");
    TCase *cases = cluster_add_case(suite, "continue");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, snapshots_are_due_by_the_clocks_of_those_that_live, 0,
                        G_N_ELEMENTS(models));
    tcase_add_loop_test(cases, each_row_is_trained_on_once_from_snapshots_after_a_loss, 0,
                        G_N_ELEMENTS(models));
    tcase_add_loop_test(cases,
                        each_row_is_trained_on_once_from_snapshots_after_the_loss_of_ended_workers,
                        0, G_N_ELEMENTS(models));
    tcase_add_loop_test(
        cases,
        each_row_is_trained_on_once_from_a_snapshot_asked_for_after_the_loss_of_ended_workers, 0,
        G_N_ELEMENTS(models));
    return run_suite(suite);
}
