/* Readers that snapshots keep, on clusters: a run goes on from any snapshot on another number of
 * nodes, and trains on each row that is left once. */
#include "engine/engine_private.h"
#include "engine/task/task_run.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/kept_training.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-kept-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static const ClusterShape three_nodes = { .n_nodes = 3,
                                          .nodes = { { 1, 2 }, { 1, 1 }, { 1, 2 } },
                                          .scheduler = 1 };

/* Two of the nodes have workers alone. */
static const ClusterShape few_servers = { .n_nodes = 4,
                                          .nodes = { { 1, 1 }, { 0, 1 }, { 1, 1 }, { 0, 2 } },
                                          .scheduler = 2 };

/* Clocks come to this node later than anything else. */
static bool hears_late;

/* The linker puts it in place of the library's function. */
__typeof__(task_run_lowest_clock) __real_task_run_lowest_clock, __wrap_task_run_lowest_clock;
uint64_t __wrap_task_run_lowest_clock(const RubatoTaskRun *run, uint32_t table)
{
    return hears_late ? 0 : __real_task_run_lowest_clock(run, table);
}

typedef struct {
    const char *model;
    uint64_t from;           /* the snapshot to go on from; 0: none */
    uint32_t snapshot_every; /* batches of node 0; 0: never */
} Run;

static bool play_training(RubatoEngine *engine, const void *data, GError **error)
{
    const Run *const run = data;
    const RubatoRestoreSpec from = { .directory = directory, .number = run->from };
    const bool asks =
        rubato_engine_n_nodes(engine) == 1 || rubato_engine_node(engine) == CLUSTER_IDS[0];
    KeptTraining training = { .directory = directory,
                              .snapshot_every = asks ? run->snapshot_every : 0 };

    hears_late = engine->servers_of[engine->self] == 0;

    return kept_training_create(engine, run->model, 0, error) &&
           (run->from == 0 || rubato_engine_restore(engine, &from, NULL, error)) &&
           kept_training_run(engine, 0, &training, error) && kept_training_check(engine, error);
}

static void play(const ClusterShape *shape, const Run *how)
{
    if (shape == NULL) {
        g_free(cluster_play_alone(2, 3, play_training, how));
        return;
    }
    ClusterRun *const run = cluster_run_new(shape);

    cluster_start(run, play_training, how);
    cluster_expect_success(run);
    cluster_run_free(run);
}

static const struct {
    const char *model;
    const ClusterShape *from, *to; /* NULL: one process */
} ways[] = { { "asp", &three_nodes, &three_nodes },
             { "bsp", &three_nodes, NULL },
             { "asp", NULL, &three_nodes },
             { "bsp", &few_servers, NULL },
             { "bsp", &few_servers, &few_servers } };

START_TEST(each_row_is_trained_on_once_on_other_nodes)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    play(ways[_i].from, &(Run){ .model = ways[_i].model, .snapshot_every = 12 });
    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_gt(n, 0);
    play(ways[_i].to, &(Run){ .model = ways[_i].model, .from = numbers[n / 2] });
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("readers in snapshots of clusters");
    TCase *cases = cluster_add_case(suite, "kept");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, each_row_is_trained_on_once_on_other_nodes, 0, G_N_ELEMENTS(ways));
    return run_suite(suite);
}
