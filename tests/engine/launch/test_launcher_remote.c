/* `rubato run` with nodes on other machines, by a stand-in for ssh, and what it refuses to
 * start. */
#include <fcntl.h>
#include <rubato/launcher.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/launch/launcher_remote.h"
#include "tests/support/cluster/launch_fixture.h"
#include "tests/support/runner.h"

/* ---- other machines, by a stand-in for ssh ---- */

/* It writes down its words, a line each, and runs the last one as a login shell would. */
static char *write_fake_ssh(void)
{
    return launch_write_file("ssh",
                             "#!/bin/sh\n"
                             "printf '%s\\n' \"$@\" > \"${0%/*}/words\"\n"
                             "for last; do :; done\n"
                             "cd /; exec env -u RUBATO_NODE -u RUBATO_HEALTH sh -c \"$last\"\n",
                             0700);
}

static Run start_remote(const char *ssh, const char *script)
{
    g_autofree char *cluster = launch_write_cluster(1, ELSEWHERE);
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, script, argv);

    launch.ssh = ssh;
    ck_assert_int_eq(chdir(launch_folder), 0);
    return run_start(&launch);
}

START_TEST(launch_reaches_another_machine_through_ssh)
{
    g_autofree char *ssh = write_fake_ssh();
    g_autofree char *command = g_strdup_printf("'%s' -p 2222", ssh);
    Run run = start_remote(command, "pwd; echo $RUBATO_NODE in $RUBATO_CLUSTER; readlink "
                                    "/proc/self/fd/0; echo oh >&2; exit 6");

    ck_assert_int_eq(run_finish(&run), 6);
    g_autofree char *expected = g_strdup_printf("[0] %s\n[0] 0 in %s/run.cfg\n[0] /dev/null\n",
                                                launch_folder, launch_folder);
    ck_assert_str_eq(run.texts[0]->str, expected);
    run_check_contains(&run, 1, "[0] oh\n");
    run_check_contains(&run, 1, "rubato: node 0 (" ELSEWHERE ") exited with code 6\n");

    g_autofree char *words_path = g_build_filename(launch_folder, "words", NULL);
    g_autofree char *words = NULL;
    ck_assert(g_file_get_contents(words_path, &words, NULL, NULL));
    ck_assert_msg(g_str_has_prefix(words, "-p\n2222\n-T\n-o\nBatchMode=yes\n"), "%s", words);
    ck_assert_msg(strstr(words, "\n--\n" ELSEWHERE "\nexec sh -c ") != NULL, "%s", words);
    run_clear(&run);
}
END_TEST

/* As on this machine. */
START_TEST(launch_gives_nodes_elsewhere_the_port_of_health_that_is_theirs)
{
    g_autofree char *ssh = write_fake_ssh();
    g_autofree char *cluster = launch_write_cluster(2, ELSEWHERE);
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "echo \"${RUBATO_HEALTH-none}\"", argv);

    g_setenv("RUBATO_HEALTH", _i == 0 ? "4199" : "0", TRUE);
    launch.ssh = ssh;
    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 0, _i == 0 ? "[0] 4199\n" : "[0] 0\n");
    run_check_contains(&run, 0, _i == 0 ? "[10] none\n" : "[10] 0\n");
    run_clear(&run);
}
END_TEST

/* A node's view of its secret: the digits behind the descriptor, and where else they stand. Digits
 * that are found count; they themselves come out as a checksum. */
#define TELL_SECRET                                                                               \
    "digits=$(cat <&$RUBATO_SECRET_FD); "                                                         \
    "echo \"length=${#digits} sum=$(printf %s \"$digits\" | cksum)\"; "                           \
    "for file in /proc/$PPID /proc/$$; do for what in cmdline environ; do "                       \
    "case $(tr '\\0' ' ' <$file/$what) in *\"$digits\"*) echo seen in $what;; esac; done; done; " \
    "env | grep -c \"$digits\"; echo \"variable=<$RUBATO_SECRET>\""

/* The lines that a node wrote, without its prefix. (transfer full) */
static char *lines_of(const Run *run, const char *prefix)
{
    g_auto(GStrv) lines = g_strsplit(run->texts[0]->str, "\n", -1);
    GString *own = g_string_new(NULL);

    for (char **line = lines; *line != NULL; line++)
        if (g_str_has_prefix(*line, prefix))
            g_string_append_printf(own, "%s\n", *line + strlen(prefix));
    return g_string_free(own, FALSE);
}

/* docs/security.md: The secret of a run */
START_TEST(launch_hands_a_new_secret_to_nodes_here_and_elsewhere_where_nobody_sees_it)
{
    g_autofree char *ssh = write_fake_ssh();
    g_autofree char *text =
        g_strdup("cluster: { scheduler = { host = \"127.0.0.1\"; port = 4100; };\n"
                 "nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; },\n"
                 "{ id = 1; host = \"" ELSEWHERE "\"; port = 4101; } ); };\n");
    g_autofree char *cluster = launch_write_file("both.cfg", text, 0600);
    g_autofree char *first = NULL;

    for (unsigned i = 0; i < 2; i++) {
        const char *argv[4];
        RubatoLaunch launch = launch_shell(cluster, TELL_SECRET, argv);

        launch.ssh = ssh;
        Run run = run_start(&launch);
        ck_assert_int_eq(run_finish(&run), 0);
        g_autofree char *here = lines_of(&run, "[0] ");
        g_autofree char *there = lines_of(&run, "[1] ");
        ck_assert_msg(g_str_has_prefix(here, "length=64 sum="), "%s", run.texts[0]->str);
        ck_assert_msg(g_str_has_suffix(here, "\n0\nvariable=<>\n"), "%s", run.texts[0]->str);
        ck_assert_msg(strstr(here, "seen") == NULL, "%s", here);
        ck_assert_str_eq(here, there);
        if (first == NULL)
            first = g_strdup(here);
        else
            ck_assert_str_ne(here, first); /* each run has its own */
        run_clear(&run);
    }
}
END_TEST

START_TEST(launch_hands_on_the_secret_that_it_is_given)
{
    static const char digits[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    const uint32_t chosen[] = { 10 };
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "cat <&$RUBATO_SECRET_FD; echo", argv);

    launch.nodes = chosen; /* not all: none is made, but that which is given is handed on */
    launch.n_nodes = 1;
    ck_assert(g_setenv("RUBATO_SECRET", digits, TRUE));
    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 0, digits);
    run_clear(&run);
}
END_TEST

START_TEST(launch_makes_no_secret_for_some_of_the_nodes)
{
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    const uint32_t chosen[] = { 10 };
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "echo \"<$RUBATO_SECRET_FD>\"", argv);

    launch.nodes = chosen;
    launch.n_nodes = 1;
    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 0, "[10] <>\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_quotes_words_for_the_other_side)
{
    g_autofree char *ssh = write_fake_ssh();
    g_autofree char *cluster = launch_write_cluster(1, ELSEWHERE);
    const char *argv[] = { "printf", "<%s>\n",  "it's", "\"two words\"", "$HOME `id` \\ *", "",
                           "-n",     "a;b&c|d", NULL };
    const RubatoLaunch launch = { .cluster_file = cluster, .argv = argv, .ssh = ssh };

    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    ck_assert_str_eq(run.texts[0]->str,
                     "[0] <it's>\n[0] <\"two words\">\n[0] <$HOME `id` \\ *>\n[0] <>\n"
                     "[0] <-n>\n[0] <a;b&c|d>\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_passes_a_signal_on_through_ssh)
{
    g_autofree char *ssh = write_fake_ssh();
    g_autofree char *script =
        g_strdup_printf("trap 'echo got %s; exit 5' %s; echo ready; while :; do sleep 0.05; done",
                        PASSED_SIGNALS[_i].name, PASSED_SIGNALS[_i].name);
    Run run = start_remote(ssh, script);

    run_wait_for(&run, 0, "ready");
    kill(run.pid, PASSED_SIGNALS[_i].number);
    ck_assert_int_eq(run_finish(&run), 5);
    g_autofree char *told = g_strdup_printf("[0] got %s\n", PASSED_SIGNALS[_i].name);
    run_check_contains(&run, 0, told);
    run_clear(&run);
}
END_TEST

START_TEST(launch_kills_through_ssh_at_the_second_signal)
{
    g_autofree char *ssh = write_fake_ssh();
    Run run = start_remote(ssh, "trap '' INT; " LEAVE_PROCESSES
                                "echo ready; while :; do sleep 0.05; done");

    run_wait_for(&run, 0, "ready");
    kill(run.pid, SIGINT);
    run_wait_for(&run, 1, "SIGINT goes to every node");
    kill(run.pid, SIGINT);
    ck_assert_int_eq(run_finish(&run), 128 + SIGINT);
    run_check_nothing_left(&run);
    run_clear(&run);
}
END_TEST

START_TEST(launch_says_what_a_failed_connection_looks_like)
{
    g_autofree char *ssh =
        launch_write_file("ssh", "#!/bin/sh\necho 'no route' >&2\nexit 255\n", 0700);
    Run run = start_remote(ssh, "echo never");

    ck_assert_int_eq(run_finish(&run), 255);
    run_check_contains(&run, 1, "[0] no route\n");
    run_check_contains(&run, 1,
                       "exited with code 255, as ssh does when the connection cannot be made");
    run_clear(&run);
}
END_TEST

START_TEST(remote_command_ends_when_the_connection_does)
{
    static const char *const argv[] = {
        "sh", "-c", "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done", NULL
    };
    const RemoteCommand command = {
        .host = "host", .folder = "/", .cluster_file = "/run.cfg", .id = 3, .argv = argv
    };
    char *const ssh[] = { (char[]){ "ssh" }, NULL };
    g_auto(GStrv) words = remote_command_argv(&command, ssh);
    const char *script = words[g_strv_length(words) - 1];
    char text[64] = "";
    int in[2];
    int out[2];
    int status;

    ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        setsid(); /* as the other side of ssh does */
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    ck_assert_int_eq(read(out[0], text, sizeof text - 1), 6);
    ck_assert_str_eq(text, "ready\n");
    close(in[1]);
    ck_assert_int_eq(read(out[0], text, sizeof text - 1), 6);
    ck_assert_str_eq(text, "asked\n");
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(out[0]);
}
END_TEST

START_TEST(remote_command_gives_a_node_its_own_port_of_health)
{
    static const char *const argv[] = { "true", NULL };
    char *const ssh[] = { (char[]){ "ssh" }, NULL };

    g_setenv("RUBATO_HEALTH", "4199", TRUE);
    for (int has_own = 0; has_own < 2; has_own++) {
        const RemoteCommand command = { .host = "host",
                                        .folder = "/",
                                        .cluster_file = "/run.cfg",
                                        .id = 3,
                                        .argv = argv,
                                        .health = has_own ? "0" : NULL };
        g_auto(GStrv) words = remote_command_argv(&command, ssh);
        const char *const script = words[g_strv_length(words) - 1];

        ck_assert_msg((strstr(script, "RUBATO_HEALTH=0") != NULL) == (has_own == 1), "%s", script);
        ck_assert_msg(strstr(script, "4199") == NULL, "%s", script);
    }
}
END_TEST

/* ---- what is refused before a start ---- */

static void check_refused(const RubatoLaunch *launch, RubatoError code, const char *says)
{
    g_autoptr(GError) error = NULL;
    int exit_code = 1234;

    ck_assert(!rubato_launch_run(launch, &exit_code, &error));
    ck_assert_int_eq(exit_code, 1234);
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, (int)code), "%s", error->message);
    ck_assert_msg(strstr(error->message, says) != NULL, "'%s' is not in: %s", says, error->message);
}

START_TEST(launch_refuses_a_node_that_is_not_in_the_file)
{
    static const uint32_t nodes[] = { 5 };
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "true", argv);

    launch.nodes = nodes;
    launch.n_nodes = 1;
    check_refused(&launch, RUBATO_ERROR_INVALID, "has no node 5; its nodes are 0, 10");
}
END_TEST

START_TEST(launch_refuses_a_program_that_is_not_there)
{
    g_autofree char *cluster = launch_write_cluster(1, "127.0.0.1");
    g_autofree char *plain = launch_write_file("plain", "text\n", 0600);
    g_free(launch_write_file("here", "#!/bin/sh\n", 0700));
    const char *argv[] = { "no-such-program", NULL };
    const RubatoLaunch launch = { .cluster_file = cluster, .argv = argv };

    check_refused(&launch, RUBATO_ERROR_NOT_FOUND, "no program 'no-such-program' in PATH");
    argv[0] = "./no-such-program";
    check_refused(&launch, RUBATO_ERROR_NOT_FOUND, "has it been built?");
    argv[0] = plain;
    check_refused(&launch, RUBATO_ERROR_NOT_FOUND, "make it executable");
    ck_assert_int_eq(chdir(launch_folder), 0);
    argv[0] = "here";
    check_refused(&launch, RUBATO_ERROR_NOT_FOUND, "write ./here");
    argv[0] = "";
    check_refused(&launch, RUBATO_ERROR_INVALID, "no program to run");
    argv[0] = NULL;
    check_refused(&launch, RUBATO_ERROR_INVALID, "no program to run");
}
END_TEST

START_TEST(launch_refuses_an_ssh_that_makes_no_sense)
{
    g_autofree char *cluster = launch_write_cluster(1, ELSEWHERE);
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "true", argv);

    launch.ssh = "ssh '";
    check_refused(&launch, RUBATO_ERROR_INVALID, "makes no sense");
    launch.ssh = "no-such-ssh -v";
    check_refused(&launch, RUBATO_ERROR_NOT_FOUND, "no program 'no-such-ssh' in PATH");
}
END_TEST

START_TEST(launch_refuses_a_wrong_file)
{
    g_autofree char *cluster = launch_write_file("run.cfg", "cluster = {\n\n};", 0600);
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "true", argv);

    check_refused(&launch, RUBATO_ERROR_CONFIG, "run.cfg:1: the cluster has no 'nodes'");
    launch.cluster_file = "/nowhere/run.cfg";
    check_refused(&launch, RUBATO_ERROR_IO, "/nowhere/run.cfg");
}
END_TEST

START_TEST(launch_refuses_a_host_that_nobody_knows)
{
    /* A label of 64 letters cannot be a name, so nobody is asked. */
    g_autofree char *host = g_strnfill(64, 'x');
    g_autofree char *cluster = launch_write_cluster(1, host);
    const char *argv[4];
    const RubatoLaunch launch = launch_shell(cluster, "true", argv);

    check_refused(&launch, RUBATO_ERROR_NETWORK, "run.cfg:4: the host 'xxx");
}
END_TEST

START_TEST(launch_refuses_to_start_nodes_again_or_to_join_elsewhere)
{
    static const uint32_t nodes[] = { 0 };
    g_autofree char *ssh = write_fake_ssh();
    g_autofree char *cluster = launch_write_cluster(1, ELSEWHERE);
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "true", argv);

    launch.ssh = ssh;
    launch.nodes = nodes;
    launch.n_nodes = 1;
    launch.restarts = _i == 0 ? 1 : 0;
    launch.joins = _i == 1;
    check_refused(&launch, RUBATO_ERROR_INVALID,
                  "node 0 is on another machine, " ELSEWHERE
                  ", which ssh reaches: a process that joins a run");
}
END_TEST

START_TEST(launch_refuses_to_join_as_no_node_or_to_start_again_what_joins)
{
    static const uint32_t nodes[] = { 10 };
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "true", argv);

    launch.joins = true;
    check_refused(&launch, RUBATO_ERROR_INVALID, "say as which nodes the processes are to join");
    launch.nodes = nodes;
    launch.n_nodes = 1;
    launch.restarts = 1;
    check_refused(&launch, RUBATO_ERROR_INVALID, "--join and --restart exclude each other");
}
END_TEST

START_TEST(launch_tells_of_a_program_that_cannot_be_started)
{
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    g_autofree char *program = launch_write_file("program", "#!/no/such/interpreter\n", 0700);
    const char *argv[] = { program, NULL };
    const RubatoLaunch launch = { .cluster_file = cluster, .argv = argv };

    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 126);
    run_check_contains(&run, 1, "rubato: node 0: cannot start ");
    run_clear(&run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("launcher_remote");
    TCase *remote = launch_add_case(suite, "remote");
    TCase *refused = launch_add_case(suite, "refused");

    tcase_add_test(remote, launch_reaches_another_machine_through_ssh);
    tcase_add_loop_test(remote, launch_gives_nodes_elsewhere_the_port_of_health_that_is_theirs, 0,
                        2);
    tcase_add_test(remote, launch_quotes_words_for_the_other_side);
    tcase_add_test(remote,
                   launch_hands_a_new_secret_to_nodes_here_and_elsewhere_where_nobody_sees_it);
    tcase_add_test(remote, launch_hands_on_the_secret_that_it_is_given);
    tcase_add_test(remote, launch_makes_no_secret_for_some_of_the_nodes);
    tcase_add_loop_test(remote, launch_passes_a_signal_on_through_ssh, 0, N_PASSED_SIGNALS);
    tcase_add_test(remote, launch_kills_through_ssh_at_the_second_signal);
    tcase_add_test(remote, launch_says_what_a_failed_connection_looks_like);
    tcase_add_test(remote, remote_command_ends_when_the_connection_does);
    tcase_add_test(remote, remote_command_gives_a_node_its_own_port_of_health);

    tcase_add_test(refused, launch_refuses_a_node_that_is_not_in_the_file);
    tcase_add_test(refused, launch_refuses_a_program_that_is_not_there);
    tcase_add_test(refused, launch_refuses_an_ssh_that_makes_no_sense);
    tcase_add_test(refused, launch_refuses_a_wrong_file);
    tcase_add_test(refused, launch_refuses_a_host_that_nobody_knows);
    tcase_add_loop_test(refused, launch_refuses_to_start_nodes_again_or_to_join_elsewhere, 0, 2);
    tcase_add_test(refused, launch_refuses_to_join_as_no_node_or_to_start_again_what_joins);
    tcase_add_test(refused, launch_tells_of_a_program_that_cannot_be_started);
    return run_suite(suite);
}
