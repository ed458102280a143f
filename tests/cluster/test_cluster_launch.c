/* `rubato run` with the programs of this project, on the nodes of config/pair.cfg: its output, its
 * end when it or its nodes are killed, and that nothing is ever left running.
 *
 * The case is the reaper of every process that loses its parent, so it sees each that is left. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { MOST_ARGUMENTS = 16 };

/* pair.cfg of this project, with ports that are free and, if it is not 0, another timeout. */
static const char *add_pair(ClusterRun *run, uint32_t timeout_ms)
{
    g_autofree char *path = g_build_filename(TEST_SOURCE_DIR, "config", "pair.cfg", NULL);
    g_autofree char *port = g_strdup_printf("port = %u;", run->port);
    g_autoptr(GString) text = g_string_new(NULL);
    g_autofree char *found = NULL;

    ck_assert(g_file_get_contents(path, &found, NULL, NULL));
    g_string_assign(text, found);
    ck_assert_uint_eq(g_string_replace(text, "port = 4100;", port, 0), 1);
    ck_assert_uint_eq(g_string_replace(text, "port = 4101;", "port = 0;", 0), 1);
    ck_assert_uint_eq(g_string_replace(text, "port = 4102;", "port = 0;", 0), 1);
    if (timeout_ms > 0) {
        g_autofree char *timeout = g_strdup_printf("timeout_ms = %u;", timeout_ms);

        ck_assert_uint_eq(g_string_replace(text, "heartbeat_ms = 500;", "heartbeat_ms = 100;", 0),
                          1);
        ck_assert_uint_eq(g_string_replace(text, "timeout_ms = 3000;", timeout, 0), 1);
    }
    return cluster_add_file(run, text->str);
}

static int be_launcher(const void *data)
{
    const char *const *arguments = data;

    g_unsetenv("RUBATO_CLUSTER");
    g_unsetenv("RUBATO_NODE");
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    return 127;
}

/* Starts `rubato run` with a program and its arguments, ended by NULL. Returns its number as a
 * process. */
static uint32_t launch(ClusterRun *run, uint32_t timeout_ms, const char *program,
                       const char *const *arguments)
{
    g_autofree char *rubato = g_build_filename(TEST_BIN_DIR, "rubato", NULL);
    g_autofree char *path = g_build_filename(TEST_BIN_DIR, program, NULL);
    const char *all[MOST_ARGUMENTS] = { rubato, "run", add_pair(run, timeout_ms), "--", path };

    for (size_t i = 0; arguments[i] != NULL; i++)
        all[5 + i] = arguments[i];
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    return cluster_start_process(run, be_launcher, all);
}

/* The launcher has ended, so any child of the case was left behind by it. */
static void expect_nothing_left(ClusterRun *run)
{
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        continue; /* had ended, and nobody else had looked */
    if (pid != -1 || errno != ECHILD)
        cluster_fail(run, "something is still running");
}

static bool environment_has(const char *pid, const char *what)
{
    g_autofree char *path = g_strdup_printf("/proc/%s/environ", pid);
    g_autofree char *text = NULL;
    gsize length = 0;

    if (!g_file_get_contents(path, &text, &length, NULL))
        return false;
    for (gsize at = 0; at < length; at += strlen(text + at) + 1)
        if (strcmp(text + at, what) == 0)
            return true;
    return false;
}

/* The process of a node: what has this run's file and the node's id in its environment. */
static pid_t find_node(const char *cluster, uint32_t id)
{
    g_autofree char *node = g_strdup_printf("RUBATO_NODE=%u", id);
    g_autofree char *file = g_strdup_printf("RUBATO_CLUSTER=%s", cluster);
    const struct dirent *entry;
    DIR *dir = opendir("/proc");
    pid_t found = 0;

    ck_assert_ptr_nonnull(dir);
    while (found == 0 && (entry = readdir(dir)) != NULL)
        if (g_ascii_isdigit(entry->d_name[0]) && environment_has(entry->d_name, node) &&
            environment_has(entry->d_name, file))
            found = atoi(entry->d_name);
    closedir(dir);
    return found;
}

/* Eight hundred rows that two columns tell apart. */
static const char *add_rows(ClusterRun *run)
{
    g_autoptr(GString) rows = g_string_new(NULL);

    for (unsigned i = 0; i < 800; i++)
        g_string_append_printf(rows, "%s %u:1 %u:0.5\n", i % 2 == 0 ? "+1" : "-1", 1 + i % 2,
                               3 + i % 7);
    return cluster_add_file(run, rows->str);
}

static const struct {
    const char *program;
    const char *arguments[10];
    const char *text; /* in what it prints */
} programs[] = {
    { "rubato-hello", { NULL }, "key 42: 400\n" },
    { "rubato-softmax",
      { "--generated", "--model", "ssp", "--staleness", "1", "--time-limit", "0.2", "--batch-size",
        "1024" },
      "test accuracy" },
    { "rubato-lr", { "--train", "rows", "--epochs", "1" }, "[0] " },
};

START_TEST(programs_run_on_the_nodes_of_the_pair_and_leave_nothing)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const char *arguments[10];
    uint32_t launcher;

    memcpy(arguments, programs[_i].arguments, sizeof arguments);
    for (size_t i = 0; arguments[i] != NULL; i++)
        if (strcmp(arguments[i], "rows") == 0)
            arguments[i] = add_rows(run);
    launcher = launch(run, cluster_slowness() > 1 ? 10000 : 0, programs[_i].program, arguments);
    cluster_expect_end(run, launcher, EXIT_SUCCESS);
    expect_nothing_left(run);
    cluster_expect_text(run, launcher, programs[_i].text);
    /* Each line begins with its node. */
    g_auto(GStrv) lines = g_strsplit(run->processes[launcher].text->str, "\n", -1);
    for (size_t i = 0; lines[i] != NULL && lines[i + 1] != NULL; i++)
        if (!g_str_has_prefix(lines[i], "[0] ") && !g_str_has_prefix(lines[i], "[1] "))
            cluster_fail(run, "the line '%s' is nobody's", lines[i]);
    cluster_run_free(run);
}
END_TEST

/* ---- over ZeroMQ, with a secret: docs/security.md: Over ZeroMQ ---- */

static const char *add_zmq_pair(ClusterRun *run)
{
    g_autofree char *text = g_strdup_printf(
        "cluster: { name = \"secret\"; scheduler = { host = \"127.0.0.1\"; port = %u; };\n"
        "nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 2; },\n"
        "          { id = 1; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 2; } );\n"
        "rendezvous_ms = 60000; timeout_ms = 60000;\n"
        "transport = \"zmq\"; encrypt = true; };\n",
        run->port);

    return cluster_add_file(run, text);
}

START_TEST(programs_run_over_encrypted_zeromq)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    g_autofree char *rubato = g_build_filename(TEST_BIN_DIR, "rubato", NULL);
    g_autofree char *hello = g_build_filename(TEST_BIN_DIR, "rubato-hello", NULL);
    const char *const all[] = { rubato, "run", add_zmq_pair(run), "--", hello, NULL };
    const uint32_t launcher = cluster_start_process(run, be_launcher, all);

    cluster_expect_end(run, launcher, EXIT_SUCCESS);
    cluster_expect_text(run, launcher, "key 42: 400\n");
    cluster_run_free(run);
}
END_TEST

typedef struct {
    const char *secret, *node;
    const char *const *arguments;
} NodeStart;

/* A node started by hand, with a secret of its own. */
static int be_node(const void *data)
{
    const NodeStart *const start = data;

    g_setenv("RUBATO_CLUSTER", start->arguments[1], TRUE);
    g_setenv("RUBATO_NODE", start->node, TRUE);
    g_setenv("RUBATO_SECRET", start->secret, TRUE);
    execv(start->arguments[0], (char *const[]){ (char *)(uintptr_t)start->arguments[0], NULL });
    return 127;
}

/* It and its peer are told why. The run begins with the right one, and ends as it always does. */
START_TEST(a_node_with_another_secret_is_refused_and_the_run_unharmed)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    g_autofree char *hello = g_build_filename(TEST_BIN_DIR, "rubato-hello", NULL);
    g_autofree char *own = g_strnfill(64, 'a'), *other = g_strnfill(64, 'b');
    const char *const all[] = { hello, add_zmq_pair(run) };
    const uint32_t first = cluster_start_process(run, be_node, &(NodeStart){ own, "0", all });
    const uint32_t wrong = cluster_start_process(run, be_node, &(NodeStart){ other, "1", all });

    cluster_wait_for(run, first, "dropped a connection from 127.0.0.1: ");
    cluster_wait_for(run, wrong, "it may be of another run, or have another secret");
    cluster_signal(run, wrong, SIGKILL);
    cluster_expect_end(run, wrong, -SIGKILL);
    const uint32_t right = cluster_start_process(run, be_node, &(NodeStart){ own, "1", all });
    cluster_expect_end(run, first, EXIT_SUCCESS);
    cluster_expect_end(run, right, EXIT_SUCCESS);
    cluster_expect_text(run, first, "key 42: 400\n");
    cluster_run_free(run);
}
END_TEST

/* Starts a program that would run for hours. */
static uint32_t launch_for_ever(ClusterRun *run)
{
    const uint32_t launcher =
        launch(run, cluster_short_timeout_ms(), "rubato-lr",
               (const char *const[]){ "--train", add_rows(run), "--epochs", "1000000", NULL });

    cluster_wait_for(run, launcher, "epoch ");
    return launcher;
}

typedef enum {
    END_KILL_NODE,
    END_STOP_NODE,
    END_STOP_SCHEDULER,
    END_INTERRUPT,
    END_TERMINATE,
    END_KILL_LAUNCHER,
    N_ENDS,
} End;

static void expect_failure(ClusterRun *run, uint32_t launcher)
{
    const int status = cluster_wait_end(run, launcher);

    if (status == EXIT_SUCCESS)
        cluster_fail(run, "rubato run ended well");
    expect_nothing_left(run);
}

START_TEST(whatever_ends_the_run_leaves_nothing)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const uint32_t launcher = launch_for_ever(run);
    const char *file = run->paths->pdata[run->paths->len - 1];

    switch ((End)_i) {
    case END_KILL_NODE:
        ck_assert_int_eq(kill(find_node(file, 1), SIGKILL), 0);
        expect_failure(run, launcher);
        cluster_expect_text(run, launcher, "node 1 ");
        break;
    case END_STOP_NODE:
        ck_assert_int_eq(kill(find_node(file, 1), SIGSTOP), 0);
        expect_failure(run, launcher);
        cluster_expect_text(run, launcher, "[0] rubato-lr: node 1 (127.0.0.1:0) was lost: ");
        break;
    case END_STOP_SCHEDULER:
        ck_assert_int_eq(kill(find_node(file, 0), SIGSTOP), 0);
        expect_failure(run, launcher);
        cluster_expect_text(run, launcher,
                            "[1] rubato-lr: node 0 (127.0.0.1:0), where the "
                            "scheduler runs, was lost: ");
        break;
    case END_INTERRUPT:
        cluster_signal(run, launcher, SIGINT);
        expect_failure(run, launcher);
        cluster_expect_text(run, launcher, "was ended by signal 2");
        break;
    case END_TERMINATE:
        cluster_signal(run, launcher, SIGTERM);
        expect_failure(run, launcher);
        cluster_expect_text(run, launcher, "was ended by signal 15");
        break;
    default:
        /* Processes that it leaves behind end by themselves; the case's timeout is the bound. */
        cluster_signal(run, launcher, SIGKILL);
        cluster_expect_end(run, launcher, -SIGKILL);
        while (waitpid(-1, NULL, 0) > 0)
            continue;
        ck_assert_int_eq(errno, ECHILD);
        break;
    }
    ck_assert_int_eq(find_node(file, 0), 0);
    ck_assert_int_eq(find_node(file, 1), 0);
    cluster_run_free(run);
}
END_TEST

/* As a shell does with a pipeline, the launcher and its nodes become a group of processes. */
static int be_group_leader(const void *data)
{
    return setpgid(0, 0) == 0 ? be_launcher(data) : 127;
}

static const struct {
    const char *program;
    bool whole_group; /* as a terminal sends it; else to the launcher alone, which passes it on */
} interrupts[] = { { "rubato-lr", true }, { "rubato-lr", false }, { "rubato-fm", true } };

/* Each node gets one signal: a second would end the run without saving. So nodes are not in the
 * launcher's group, which a terminal signals. */
START_TEST(interrupt_keeps_what_two_nodes_have_learned)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    g_autofree char *rubato = g_build_filename(TEST_BIN_DIR, "rubato", NULL);
    g_autofree char *path = g_build_filename(TEST_BIN_DIR, interrupts[_i].program, NULL);
    const char *rows = add_rows(run);
    g_autofree char *folder = g_dir_make_tmp("rubato-launch-XXXXXX", NULL);
    g_autofree char *model = g_build_filename(folder, "model", NULL);
    g_autofree char *description = g_build_filename(model, "model.json", NULL);
    const char *const all[] = { rubato,   "run",      add_pair(run, cluster_short_timeout_ms()),
                                "--",     path,       "--train",
                                rows,     "--epochs", "1000000",
                                "--save", model,      NULL };

    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    const uint32_t launcher = cluster_start_process(run, be_group_leader, all);
    cluster_wait_for(run, launcher, "epoch ");
    const pid_t pid = run->processes[launcher].pid;
    ck_assert_int_eq(kill(interrupts[_i].whole_group ? -pid : pid, SIGINT), 0);
    cluster_expect_end(run, launcher, 128 + SIGINT);
    expect_nothing_left(run);
    ck_assert(g_file_test(description, G_FILE_TEST_EXISTS));
    remove_tree(folder);
    cluster_run_free(run);
}
END_TEST

/* ---- a signal to a node without workers ---- */

/* Two workers, a server, and a scheduler's node that has neither. */
static const char *add_apart(ClusterRun *run)
{
    g_autofree char *text = g_strdup_printf(
        "cluster: { name = \"apart\"; scheduler = { host = \"127.0.0.1\"; port = %u; node = 2; };\n"
        "nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; servers = 0; workers = 2; },\n"
        "          { id = 1; host = \"127.0.0.1\"; port = 0; servers = 1; workers = 0; },\n"
        "          { id = 2; host = \"127.0.0.1\"; port = 0; servers = 0; workers = 0; } );\n"
        "rendezvous_ms = 60000; timeout_ms = 60000; };\n",
        run->port);

    return cluster_add_file(run, text);
}

static const struct {
    const char *program;
    int node; /* -1: all, by the launcher */
    bool saves, cuts;
} apart[] = { { "rubato-lr", 2, true, false },  { "rubato-lr", 1, true, false },
              { "rubato-lr", 2, false, true },  { "rubato-lr", 2, true, true },
              { "rubato-gbdt", 2, true, true }, /* takes its snapshots between epochs */
              { "rubato-lr", -1, true, true } };

/* The one server cannot be drained. Training would go on for hours. */
START_TEST(signal_to_a_node_without_workers_stops_training)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 1, .nodes = { { 1, 1 } } });
    const char *const file = add_apart(run), *const rows = add_rows(run);
    g_autofree char *rubato = g_build_filename(TEST_BIN_DIR, "rubato", NULL);
    g_autofree char *path = g_build_filename(TEST_BIN_DIR, apart[_i].program, NULL);
    g_autofree char *folder = g_dir_make_tmp("rubato-launch-XXXXXX", NULL);
    g_autofree char *model = g_build_filename(folder, "model", NULL);
    g_autofree char *description = g_build_filename(model, "model.json", NULL);
    g_autofree char *checkpoints = g_build_filename(folder, "checkpoints", NULL);
    g_autofree uint64_t *numbers = NULL;
    const char *all[MOST_ARGUMENTS] = { rubato,    "run", file,       "--",     path,
                                        "--train", rows,  "--epochs", "1000000" };
    size_t n = 9, n_snapshots;

    if (apart[_i].saves) {
        all[n++] = "--save";
        all[n++] = model;
    }
    if (apart[_i].cuts) {
        all[n++] = "--checkpoint";
        all[n++] = checkpoints;
        all[n++] = "--checkpoint-every=1000000";
    }
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    const uint32_t launcher = cluster_start_process(run, be_launcher, all);
    cluster_wait_for(run, launcher, "epoch ");
    if (apart[_i].node < 0)
        cluster_signal(run, launcher, SIGTERM);
    else
        ck_assert_int_eq(kill(find_node(file, (uint32_t)apart[_i].node), SIGTERM), 0);
    const int status = cluster_wait_end(run, launcher);
    /* Without a model to save the task fails on the other nodes, of which one may end first. */
    if (status != 128 + SIGTERM && (apart[_i].saves || status != EXIT_FAILURE))
        cluster_fail(run, "the launcher ended with %d", status);
    expect_nothing_left(run);
    ck_assert(g_file_test(description, G_FILE_TEST_EXISTS) == apart[_i].saves);
    ck_assert(rubato_snapshot_list(checkpoints, &numbers, &n_snapshots, NULL));
    ck_assert_uint_eq(n_snapshots, apart[_i].cuts ? 1 : 0);
    remove_tree(folder);
    cluster_run_free(run);
}
END_TEST

static Suite *launch_suite(void)
{
    Suite *suite = suite_create("rubato run");
    TCase *well = cluster_add_case(suite, "well");
    TCase *badly = cluster_add_case(suite, "badly");

    tcase_add_test(well, programs_run_over_encrypted_zeromq);
    tcase_add_test(well, a_node_with_another_secret_is_refused_and_the_run_unharmed);
    tcase_add_loop_test(well, programs_run_on_the_nodes_of_the_pair_and_leave_nothing, 0,
                        (int)G_N_ELEMENTS(programs));
    tcase_add_loop_test(badly, interrupt_keeps_what_two_nodes_have_learned, 0,
                        (int)G_N_ELEMENTS(interrupts));
    tcase_add_loop_test(badly, signal_to_a_node_without_workers_stops_training, 0,
                        (int)G_N_ELEMENTS(apart));
    tcase_add_loop_test(badly, whatever_ends_the_run_leaves_nothing, 0, N_ENDS);
    return suite;
}

int main(void)
{
    return run_suite(launch_suite());
}
