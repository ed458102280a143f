/* `rubato run` of programs with replicas, of which nodes are killed. One kind of each program's
 * tables outlives a node that only serves: rows that are evicted and admitted, keys that are
 * announced, tables beside a net that is trained by allreduce, tables that handlers write to.
 *
 * With `--restart` the scheduler and each node that only serves are killed in turn, one of them
 * before it can know the scheduler's next process. The next process of such a node gets the parts
 * of the others, so that in the end the model has been on processes alone that were started again.
 *
 * tests/engine/launch/test_launcher_restart.c has what the launcher does, test_cluster_join.c what
 * such processes do in a run. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_ROWS = 800 };

static const char *const script =
    "echo pid of $RUBATO_NODE: $$; exec \"$0\" --train \"$1\" --save \"$2\" --epochs 1000000 "
    "--straggler 1:1 --replicas 1";
static const char *const script_of_batches =
    "echo pid of $RUBATO_NODE: $$; exec \"$0\" --train \"$1\" --save \"$2\" --epochs 1000000 "
    "--straggler 1:1 --replicas 1 --batch-size 100";

/* Node 0 has the workers; each part is on nodes 1 and 2. The scheduler is alone on node 3. */
static const char *add_cluster(ClusterRun *run)
{
    g_autofree char *text = g_strdup_printf(
        "cluster: { scheduler = { host = \"127.0.0.1\"; port = %u; node = 3; };\n"
        "  nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; servers = 0; workers = 2; },\n"
        "            { id = 1; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 0; },\n"
        "            { id = 2; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 0; },\n"
        "            { id = 3; host = \"127.0.0.1\"; port = 0; servers = 0; workers = 0; } );\n"
        "  heartbeat_ms = 200; timeout_ms = 60000; };\n",
        run->port);

    return cluster_add_file(run, text);
}

static const char *add_rows(ClusterRun *run, bool has_fields)
{
    g_autoptr(GString) rows = g_string_new(NULL);

    for (unsigned i = 0; i < N_ROWS; i++)
        if (has_fields)
            g_string_append_printf(rows, "%u 0:%u:1 1:%u:1\n", i % 2, 1 + i % 2, 3 + i % 7);
        else
            g_string_append_printf(rows, "%u %u:1 %u:0.5\n", i % 2, 1 + i % 2, 3 + i % 7);
    return cluster_add_file(run, rows->str);
}

static int be_launcher(const void *data)
{
    const char *const *arguments = data;

    g_unsetenv("RUBATO_CLUSTER");
    g_unsetenv("RUBATO_NODE");
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    return 127;
}

/* The script on each node of the cluster file. It gets the program, and the names of rows and a
 * model. */
static uint32_t launch(ClusterRun *run, const char *nodes, const char *told, const char *program,
                       const char *rows, const char *model)
{
    const char *const arguments[] = {
        TEST_BIN_DIR "/rubato", "run", nodes, "--", "sh", "-c", told, program, rows, model, NULL
    };

    return cluster_start_process(run, be_launcher, arguments);
}

/* The same of rubato-lr on the nodes of add_cluster; each node may be started once more. */
static uint32_t launch_again(ClusterRun *run, const char *told, const char *model)
{
    const char *const arguments[] = { TEST_BIN_DIR "/rubato",
                                      "run",
                                      "--restart",
                                      "1",
                                      add_cluster(run),
                                      "--",
                                      "sh",
                                      "-c",
                                      told,
                                      TEST_BIN_DIR "/rubato-lr",
                                      add_rows(run, /* has_fields= */ false),
                                      model,
                                      NULL };

    return cluster_start_process(run, be_launcher, arguments);
}

/* The first process of the node. */
static void signal_node(ClusterRun *run, uint32_t launcher, const char *name, int number)
{
    g_autofree char *pid = cluster_text_after(run, launcher, name);

    ck_assert_int_eq(kill((pid_t)g_ascii_strtoll(pid, NULL, 10), number), 0);
}

/* So many more, after those of which the program has told. */
static void wait_for_epochs(ClusterRun *run, uint32_t launcher, uint64_t n)
{
    const char *const last = g_strrstr(run->processes[launcher].text->str, "epoch ");

    ck_assert_ptr_nonnull(last);
    g_autofree char *next = g_strdup_printf(
        "epoch %" G_GUINT64_FORMAT "/", g_ascii_strtoull(last + strlen("epoch "), NULL, 10) + n);
    cluster_wait_for(run, launcher, next);
}

/* Until a snapshot is being written, by its folder. */
static void wait_for_snapshot(const char *model)
{
    g_autofree char *path = g_strconcat(model, ".snapshots", NULL);
    const char *name;

    do {
        g_autoptr(GDir) snapshots = g_dir_open(path, 0, NULL);

        g_usleep(1000);
        do
            name = g_dir_read_name(snapshots);
        while (name != NULL && !g_str_has_prefix(name, ".writing-"));
    } while (name == NULL);
}

START_TEST(model_is_trained_on_processes_that_were_started_again)
{
    g_autofree char *folder = make_folder();
    g_autofree char *model = g_build_filename(folder, "model", NULL);
    g_autofree char *weights = g_build_filename(model, "weights.npy", NULL);
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const uint32_t launcher = launch_again(run, script_of_batches, model);

    cluster_wait_for(run, launcher, "epoch 1/");
    signal_node(run, launcher, "[3] pid of 3: ", SIGKILL);
    cluster_wait_for(run, launcher, "rubato: node 3 is started again, in the place of the lost");
    signal_node(run, launcher, "[2] pid of 2: ", SIGKILL);
    cluster_wait_for(run, launcher, "rubato: node 2 is started again, in the place of the lost");
    cluster_wait_for(run, launcher, "server 0 has made ");
    signal_node(run, launcher, "[1] pid of 1: ", SIGKILL);
    cluster_wait_for(run, launcher, "rubato: node 1 is started again, in the place of the lost");
    cluster_wait_for(run, launcher, "server 1 has made ");
    signal_node(run, launcher, "[0] pid of 0: ", SIGINT);
    cluster_expect_end(run, launcher, 128 + SIGINT);
    cluster_expect_text(run, launcher, "train loss");
    ck_assert(g_file_test(weights, G_FILE_TEST_IS_REGULAR));
    cluster_run_free(run);
    remove_folder(folder);
}
END_TEST

/* The first process of the scheduler is killed before its journal is there: the next one begins the
 * run, for which the others wait. */
START_TEST(run_begins_whose_scheduler_was_killed_before)
{
    g_autofree char *folder = make_folder();
    g_autofree char *model = g_build_filename(folder, "model", NULL);
    g_autofree char *weights = g_build_filename(model, "weights.npy", NULL);
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const uint32_t launcher = launch_again(
        run,
        "if [ $RUBATO_NODE = 3 ] && mkdir \"$2.killed\" 2> /dev/null; then kill -KILL $$; fi\n"
        "exec \"$0\" --train \"$1\" --save \"$2\" --epochs 2 --replicas 1",
        model);

    cluster_expect_end(run, launcher, 0);
    cluster_expect_text(run, launcher, "rubato: node 3 is started again, since the run has not");
    ck_assert(g_file_test(weights, G_FILE_TEST_IS_REGULAR));
    cluster_run_free(run);
    remove_folder(folder);
}
END_TEST

/* The next process of the scheduler comes into a run of which another node was lost while there was
 * none. It leads snapshots, and waits for no answer of that node. */
START_TEST(a_snapshot_needs_no_node_that_was_lost_without_a_scheduler)
{
    g_autofree char *folder = make_folder();
    g_autofree char *model = g_build_filename(folder, "model", NULL);
    g_autofree char *with_snapshots =
        g_strconcat("export RUBATO_FAULTS=delay=10ms; ", script_of_batches,
                    " --checkpoint \"$2.snapshots\" --checkpoint-every 1c", NULL);
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const uint32_t launcher = launch_again(run, with_snapshots, model);

    cluster_wait_for(run, launcher, "epoch 1/");
    wait_for_snapshot(model); /* so no task is being started */
    signal_node(run, launcher, "[3] pid of 3: ", SIGSTOP);
    signal_node(run, launcher, "[2] pid of 2: ", SIGKILL);
    signal_node(run, launcher, "[3] pid of 3: ", SIGKILL);
    cluster_wait_for(run, launcher, "takes the place of node 3");
    wait_for_epochs(run, launcher, 2);
    /* twice: the new process of node 2 may not be in the run yet */
    cluster_signal(run, launcher, SIGTERM);
    cluster_wait_for(run, launcher, "SIGTERM goes to every node");
    cluster_signal(run, launcher, SIGTERM);
    cluster_expect_end(run, launcher, 128 + SIGTERM);
    cluster_run_free(run);
    remove_folder(folder);
}
END_TEST

/* ---- programs with tables of each kind ---- */

typedef struct {
    const char *program, *options;
    bool has_fields;
    bool is_torn; /* it is killed while a snapshot is written, for which packets take long */
} Survivor;

static const Survivor survivors[] = {
    { "/rubato-fm", "--batch-size 100 --max-mib 12 --admit-count 2", false, false },
    { "/rubato-lr", "--batch-size 100 --model sparse_ssp", false, false },
    { "/rubato-wide-deep", "--batch-size 100 --format libffm --embedding 4 --hidden 8", true,
      false },
    { "/rubato-gbdt", "--max-depth 3", false, false },
    { "/rubato-lr",
      "--batch-size 400 --checkpoint \"$2.snapshots\" --checkpoint-every 1c "
      "--stream \"file:$2.stream\" --stream-every 1c",
      false, true },
    { "/rubato-lr", "--batch-size 800 --checkpoint \"$2.snapshots\"", false, true },
};

/* Node 0 has the scheduler, the workers and a server; node 1 a server alone. */
static const char *add_pair(ClusterRun *run)
{
    g_autofree char *text = g_strdup_printf(
        "cluster: { scheduler = { host = \"127.0.0.1\"; port = %u; node = 0; };\n"
        "  nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 2; },\n"
        "            { id = 1; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 0; },\n"
        "            { id = 2; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 0; } );\n"
        "  heartbeat_ms = 200; timeout_ms = 60000; };\n",
        run->port);

    return cluster_add_file(run, text);
}

START_TEST(programs_outlive_a_node_that_had_servers_alone)
{
    const Survivor *const survivor = &survivors[_i];
    g_autofree char *program = g_strconcat(TEST_BIN_DIR, survivor->program, NULL);

    if (!g_file_test(program, G_FILE_TEST_IS_EXECUTABLE))
        return; /* this build has no such program: see apps/CMakeLists.txt */

    g_autofree char *folder = make_folder();
    g_autofree char *model = g_build_filename(folder, "model", NULL);
    g_autofree char *with_options =
        g_strdup_printf("%s%s %s", survivor->is_torn ? "export RUBATO_FAULTS=delay=10ms; " : "",
                        script, survivor->options);
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const uint32_t launcher = launch(run, add_pair(run), with_options, program,
                                     add_rows(run, survivor->has_fields), model);

    cluster_wait_for(run, launcher, "epoch 1/");
    if (survivor->is_torn)
        wait_for_snapshot(model);
    signal_node(run, launcher, "[2] pid of 2: ", SIGKILL);
    cluster_wait_for(run, launcher, "goes on, by part map 2");
    cluster_wait_for(run, launcher, "server 0 has made ");
    wait_for_epochs(run, launcher, 2);
    signal_node(run, launcher, "[0] pid of 0: ", SIGINT);
    cluster_expect_end(run, launcher, 128 + SIGINT);
    ck_assert(g_file_test(model, G_FILE_TEST_IS_DIR));
    cluster_run_free(run);
    remove_folder(folder);
}
END_TEST

/* ---- the same trees ---- */

static const char *const script_of_trees =
    "echo pid of $RUBATO_NODE: $$; exec \"$0\" --train \"$1\" --save \"$2\" --epochs 40 "
    "--straggler 1:2 --replicas 1 --max-depth 3";

/* Rows from which each tree learns something. */
static const char *add_rows_to_learn(ClusterRun *run)
{
    g_autoptr(GString) rows = g_string_new(NULL);
    uint64_t state = 1;

    for (unsigned i = 0; i < N_ROWS; i++) {
        const uint32_t a = random_below(&state, 1000), b = random_below(&state, 1000);
        const bool is_wrong = random_below(&state, 17) == 0;

        g_string_append_printf(rows, "%d 1:%u 2:%u 3:%u\n", ((a < 500) == (b < 500)) != is_wrong, a,
                               b, random_below(&state, 1000));
    }
    return cluster_add_file(run, rows->str);
}

static void train_trees(const char *model, bool kills)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const uint32_t launcher = launch(run, add_pair(run), script_of_trees,
                                     TEST_BIN_DIR "/rubato-gbdt", add_rows_to_learn(run), model);

    cluster_wait_for(run, launcher, "epoch 5/");
    if (kills) {
        signal_node(run, launcher, "[2] pid of 2: ", SIGKILL);
        cluster_wait_for(run, launcher, "goes on, by part map 2");
    }
    cluster_expect_end(run, launcher, 0);
    cluster_expect_text(run, launcher, "train loss");
    cluster_run_free(run);
}

static void expect_same_files(const char *one, const char *other)
{
    g_autoptr(GDir) folder = g_dir_open(one, 0, NULL);
    const char *name;
    int n = 0;

    ck_assert_ptr_nonnull(folder);
    for (; (name = g_dir_read_name(folder)) != NULL; n++) {
        g_autofree char *path = g_build_filename(one, name, NULL);
        g_autofree char *other_path = g_build_filename(other, name, NULL);
        g_autofree char *text = NULL, *other_text = NULL;
        gsize size, other_size;

        ck_assert(g_file_get_contents(path, &text, &size, NULL));
        ck_assert(g_file_get_contents(other_path, &other_text, &other_size, NULL));
        ck_assert_msg(size == other_size && memcmp(text, other_text, size) == 0, "%s differs",
                      name);
    }
    ck_assert_int_ge(n, 2);
}

/* Under bsp a loss changes no bit, of what handlers have written neither. */
START_TEST(trees_are_those_of_an_undisturbed_run)
{
    if (!g_file_test(TEST_BIN_DIR "/rubato-gbdt", G_FILE_TEST_IS_EXECUTABLE))
        return; /* this build has no such program: see apps/CMakeLists.txt */

    g_autofree char *folder = make_folder();
    g_autofree char *undisturbed = g_build_filename(folder, "undisturbed", NULL);
    g_autofree char *killed = g_build_filename(folder, "killed", NULL);

    train_trees(undisturbed, /* kills= */ false);
    train_trees(killed, /* kills= */ true);
    expect_same_files(undisturbed, killed);
    remove_folder(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster restart");
    TCase *restarts = cluster_add_case(suite, "restarts");

    tcase_add_test(restarts, model_is_trained_on_processes_that_were_started_again);
    tcase_add_test(restarts, run_begins_whose_scheduler_was_killed_before);
    tcase_add_test(restarts, a_snapshot_needs_no_node_that_was_lost_without_a_scheduler);
    tcase_add_loop_test(restarts, programs_outlive_a_node_that_had_servers_alone, 0,
                        G_N_ELEMENTS(survivors));
    tcase_add_test(restarts, trees_are_those_of_an_undisturbed_run);
    return run_suite(suite);
}
