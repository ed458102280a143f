/* `rubato run` on this machine, with small shell programs as nodes: its output, its end, and that
 * nothing is left. */
#include <fcntl.h>
#include <rubato/launcher.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cluster/launch_fixture.h"
#include "tests/support/runner.h"

/* ---- what comes out ---- */

START_TEST(launch_puts_the_node_before_each_line)
{
    Run run = run_start_shell(2, "echo one; echo two; echo three >&2");

    ck_assert_int_eq(run_finish(&run), 0);
    g_autofree char *out = run_sorted_lines(&run, 0);
    g_autofree char *err = run_sorted_lines(&run, 1);
    ck_assert_str_eq(out, "[0] one\n[0] two\n[10] one\n[10] two\n");
    ck_assert_str_eq(err, "[0] three\n[10] three\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_ends_a_last_line_that_has_no_end)
{
    Run run = run_start_shell(1, "printf 'a\\n\\nbc'; printf d >&2");

    ck_assert_int_eq(run_finish(&run), 0);
    ck_assert_str_eq(run.texts[0]->str, "[0] a\n[0] \n[0] bc\n");
    ck_assert_str_eq(run.texts[1]->str, "[0] d\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_without_prefix_keeps_lines_as_they_are)
{
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "echo same", argv);

    launch.no_prefix = true;
    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    ck_assert_str_eq(run.texts[0]->str, "same\nsame\n");
    run_clear(&run);
}
END_TEST

/* The port is one of this host. */
START_TEST(launch_gives_the_scheduler_s_node_alone_a_port_of_health)
{
    g_setenv("RUBATO_HEALTH", _i == 0 ? "4199" : "0", TRUE);
    Run run = run_start_shell(2, "echo \"${RUBATO_HEALTH-none}\"");

    ck_assert_int_eq(run_finish(&run), 0);
    if (_i == 0) {
        ck_assert_msg(strstr(run.texts[0]->str, "[0] 4199\n") != NULL, "%s", run.texts[0]->str);
        ck_assert_msg(strstr(run.texts[0]->str, "[10] none\n") != NULL, "%s", run.texts[0]->str);
    } else {
        ck_assert_msg(strstr(run.texts[0]->str, "[0] 0\n") != NULL, "%s", run.texts[0]->str);
        ck_assert_msg(strstr(run.texts[0]->str, "[10] 0\n") != NULL, "%s", run.texts[0]->str);
    }
    run_clear(&run);
}
END_TEST

START_TEST(launch_never_mixes_lines_of_nodes)
{
    static const char letters[] = "abc";
    Run run = run_start_shell(3, "case $RUBATO_NODE in 0) c=a;; 10) c=b;; 20) c=c;; esac\n"
                                 "yes $(printf %0150d 0 | tr 0 $c) | head -n 4000");
    unsigned counts[3] = { 0 };

    ck_assert_int_eq(run_finish(&run), 0);
    /* Each line is ended before it is looked at. The address sanitizer reads a string to its end
     * whenever something is looked for in it, and this one is long. */
    char *const stop = run.texts[0]->str + run.texts[0]->len;
    for (char *line = run.texts[0]->str, *end; line < stop; line = end + 1) {
        end = memchr(line, '\n', (size_t)(stop - line));
        ck_assert_ptr_nonnull(end);
        *end = '\0';
        const char *text = strchr(line, ' ') + 1;
        ck_assert_uint_eq(strlen(text), 150);
        ck_assert_uint_eq(strspn(text, (char[]){ *text, '\0' }), 150);
        const size_t node = (size_t)(strchr(letters, *text) - letters);
        ck_assert_int_eq(atoi(line + 1), (int)(10 * node));
        counts[node]++;
    }
    ck_assert_uint_eq(counts[0], 4000);
    ck_assert_uint_eq(counts[1], 4000);
    ck_assert_uint_eq(counts[2], 4000);
    run_clear(&run);
}
END_TEST

START_TEST(launch_breaks_an_endless_line_and_loses_nothing)
{
    Run run = run_start_shell(1, "head -c 600000 /dev/zero | tr '\\0' x; echo; echo end");
    size_t n = 0;

    ck_assert_int_eq(run_finish(&run), 0);
    g_auto(GStrv) lines = g_strsplit(run.texts[0]->str, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), 5);
    for (int i = 0; i < 3; i++) {
        ck_assert(g_str_has_prefix(lines[i], "[0] x"));
        n += strlen(lines[i]) - 4;
    }
    ck_assert_uint_eq(n, 600000);
    ck_assert_str_eq(lines[3], "[0] end");
    run_clear(&run);
}
END_TEST

START_TEST(launch_tells_each_node_who_it_is)
{
    g_autofree char *cluster = launch_write_cluster(2, "127.0.0.1");
    Run run = run_start_shell(2, "echo $RUBATO_NODE in $RUBATO_CLUSTER");

    ck_assert_int_eq(run_finish(&run), 0);
    g_autofree char *out = run_sorted_lines(&run, 0);
    g_autofree char *expected = g_strdup_printf("[0] 0 in %s\n[10] 10 in %s\n", cluster, cluster);
    ck_assert_str_eq(out, expected);
    run_clear(&run);
}
END_TEST

START_TEST(launch_names_the_cluster_file_by_its_absolute_path)
{
    g_autofree char *cluster = launch_write_cluster(1, "127.0.0.1");
    const char *argv[4];
    const RubatoLaunch launch = launch_shell("./run.cfg", "echo $RUBATO_CLUSTER", argv);

    ck_assert_int_eq(chdir(launch_folder), 0);
    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    g_autofree char *expected = g_strdup_printf("[0] %s\n", cluster);
    ck_assert_str_eq(run.texts[0]->str, expected);
    run_clear(&run);
}
END_TEST

START_TEST(launch_gives_nodes_nothing_to_read)
{
    Run run = run_start_shell(1, "readlink /proc/self/fd/0; cat");

    ck_assert_int_eq(run_finish(&run), 0);
    ck_assert_str_eq(run.texts[0]->str, "[0] /dev/null\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_hands_no_descriptors_and_no_blocked_signals_to_nodes)
{
    /* Those that the test program itself would hand on are no concern here. */
    ck_assert_int_eq(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC), 0);
    Run run = run_start_shell(2, "ls /proc/self/fd | wc -l\n"
                                 "grep -E 'Sig(Blk|Ign)' /proc/self/status");

    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 0, "[10] 5\n"); /* three, the secret, the folder's own */
    run_check_contains(&run, 0, "[10] SigBlk:\t0000000000000000\n");
    run_check_contains(&run, 0, "[10] SigIgn:\t0000000000000000\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_starts_only_the_nodes_that_were_named)
{
    static const uint32_t nodes[] = { 20, 0, 20 };
    g_autofree char *cluster = launch_write_cluster(3, "127.0.0.1");
    const char *argv[4];
    RubatoLaunch launch = launch_shell(cluster, "echo here", argv);

    launch.nodes = nodes;
    launch.n_nodes = G_N_ELEMENTS(nodes);
    Run run = run_start(&launch);
    ck_assert_int_eq(run_finish(&run), 0);
    g_autofree char *out = run_sorted_lines(&run, 0);
    ck_assert_str_eq(out, "[0] here\n[20] here\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_colours_the_prefix_on_a_terminal)
{
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    g_autofree char *cluster = launch_write_cluster(1, "127.0.0.1");
    const char *argv[4];
    const RubatoLaunch launch = launch_shell(cluster, "echo hello", argv);
    char text[256];
    int status;

    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(grantpt(terminal), 0);
    ck_assert_int_eq(unlockpt(terminal), 0);

    const int other = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(other, 0);
    const pid_t pid = fork();
    if (pid == 0) {
        int code = -1;
        unsetenv("NO_COLOR");
        dup2(other, STDOUT_FILENO);
        rubato_launch_run(&launch, &code, NULL);
        exit(code);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);

    const ssize_t n = read(terminal, text, sizeof text - 1);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, "\033[36m[0]\033[0m hello\r\n");
    close(other);
    close(terminal);
}
END_TEST

/* ---- how it ends ---- */

START_TEST(launch_returns_the_code_of_the_node_that_failed)
{
    Run run = run_start_shell(2, "test $RUBATO_NODE = 0 || exit 7");

    ck_assert_int_eq(run_finish(&run), 7);
    run_check_contains(&run, 1,
                       "rubato: node 10 (127.0.0.1) exited with code 7; all others ended well\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_returns_128_and_the_signal_that_ended_a_node)
{
    Run run = run_start_shell(2, "test $RUBATO_NODE = 10 || kill -KILL $$");

    ck_assert_int_eq(run_finish(&run), 128 + SIGKILL);
    run_check_contains(
        &run, 1,
        "rubato: node 0 (127.0.0.1) was killed by signal 9 (SIGKILL); all others ended well\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_lets_the_others_end_by_themselves_first)
{
    /* Node 0 learns of the loss from a file, as a node would from its heartbeats. */
    Run run = run_start_patient_shell(
        2, "trap 'echo asked; exit 4' TERM; test $RUBATO_NODE = 10 && exit 3\n"
           "until [ -e ${RUBATO_CLUSTER%/*}/lost ]; do sleep 0.02; done\n"
           "echo lost node 10; exit 5");

    run_wait_for(&run, 1, "rubato: node 10 exited with code 3; waiting for the others to end");
    g_free(launch_write_file("lost", "", 0600));
    ck_assert_int_eq(run_finish(&run), 3);
    ck_assert_str_eq(run.texts[0]->str, "[0] lost node 10\n");
    run_check_contains(&run, 1, "node 10 (127.0.0.1) exited with code 3");
    run_clear(&run);
}
END_TEST

/* Returns when the process has ended. It stays a zombie until its parent waits for it. */
static void wait_for_end(pid_t pid)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/stat", (int)pid);
    bool ended = false;

    while (!ended) {
        g_autofree char *text = NULL;
        ck_assert(g_file_get_contents(path, &text, NULL, NULL));
        ended = strstr(text, ") Z ") != NULL;
    }
}

/* What a node says when the run goes on without node 10. */
#define TELL_LOST "printf '\\033_rubato lost 10 7\\033\\\\\\n' >&2\n"

START_TEST(launch_goes_on_without_a_node_if_the_others_do)
{
    Run run = run_start_patient_shell(
        2, "test $RUBATO_NODE = 10 && kill -KILL $$\n"
           "until [ -e ${RUBATO_CLUSTER%/*}/lost ]; do sleep 0.02; done\n" TELL_LOST
           "until [ -e ${RUBATO_CLUSTER%/*}/end ]; do sleep 0.02; done\n"
           "test -s ${RUBATO_CLUSTER%/*}/end && exit 5; echo went on");

    run_wait_for(&run, 1, "rubato: node 10 was killed by signal 9 (SIGKILL); waiting for");
    g_free(launch_write_file("lost", "", 0600));
    run_wait_for(&run, 1, "rubato: the others go on without node 10\n");
    g_free(launch_write_file("end", _i == 0 ? "" : "badly", 0600));
    ck_assert_int_eq(run_finish(&run), _i == 0 ? 0 : 5);
    if (_i == 0)
        run_check_contains(&run, 0, "[0] went on\n");
    ck_assert_ptr_null(strchr(run.texts[1]->str, '\033'));
    run_clear(&run);
}
END_TEST

/* What a node says when all nodes of a run that survives losses have left it. */
#define TELL_END "printf '\\033_rubato ended\\033\\\\\\n' >&2\n"

/* The news comes before the node is killed, or after that; then another node ends well, or not. */
START_TEST(launch_minds_no_node_that_is_killed_when_the_run_has_ended)
{
    Run run = run_start_patient_shell(
        2, "echo at $RUBATO_NODE\n"
           "wait_for() { until [ -e ${RUBATO_CLUSTER%/*}/$1 ]; do sleep 0.02; done; }\n"
           "if [ $RUBATO_NODE = 10 ]; then wait_for kill; kill -KILL $$; fi\n"
           "wait_for tell\n" TELL_END "wait_for end\n"
           "test -s ${RUBATO_CLUSTER%/*}/end && exit 5; echo ended well");

    g_free(launch_write_file(_i < 2 ? "kill" : "tell", "", 0600));
    if (_i < 2)
        run_wait_for(&run, 1, "rubato: node 10 was killed by signal 9 (SIGKILL); waiting for");
    g_free(launch_write_file(_i < 2 ? "tell" : "kill", "", 0600));
    run_wait_for(&run, 1,
                 "rubato: node 10 was killed by signal 9 (SIGKILL) when the run had ended: nothing "
                 "of the run is lost\n");
    g_free(launch_write_file("end", _i % 2 == 0 ? "" : "badly", 0600));
    ck_assert_int_eq(run_finish(&run), _i % 2 == 0 ? 0 : 5);
    ck_assert_ptr_null(strchr(run.texts[1]->str, '\033'));
    run_clear(&run);
}
END_TEST

/* It says itself that it has failed. */
START_TEST(launch_minds_a_node_that_fails_when_the_run_has_ended)
{
    Run run = run_start_shell(2, TELL_END "test $RUBATO_NODE = 0 || exit 7");

    ck_assert_int_eq(run_finish(&run), 7);
    run_check_contains(&run, 1, "exited with code 7; all others ended well\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_kills_a_lost_node_that_stands_still)
{
    Run run = run_start_shell(2, "test $RUBATO_NODE = 10 && kill -STOP $$\n" TELL_LOST);

    ck_assert_int_eq(run_finish(&run), 0);
    run_check_contains(&run, 1, "rubato: node 10 is lost and still runs; killing it\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_blames_the_one_that_was_killed_when_several_have_ended)
{
    Run run = run_start_shell(2, "echo supervisor=$PPID; echo self$RUBATO_NODE=$$\n"
                                 "until [ -e ${RUBATO_CLUSTER%/*}/go ]; do sleep 0.02; done\n"
                                 "test $RUBATO_NODE = 0 && exit 5; kill -KILL $$");

    run_wait_for(&run, 0, "self0=");
    run_wait_for(&run, 0, "self10=");
    /* The supervisor does not look until both have ended. */
    const pid_t supervisor = run_pid_of(&run, "supervisor");
    kill(supervisor, SIGSTOP);
    g_free(launch_write_file("go", "", 0600));
    wait_for_end(run_pid_of(&run, "self0"));
    wait_for_end(run_pid_of(&run, "self10"));
    kill(supervisor, SIGCONT);
    ck_assert_int_eq(run_finish(&run), 128 + SIGKILL);
    run_check_contains(&run, 1, "node 10 (127.0.0.1) was killed by signal 9 (SIGKILL)");
    run_clear(&run);
}
END_TEST

START_TEST(launch_asks_the_others_to_end_when_they_do_not)
{
    Run run = run_start_shell(2, "trap 'echo asked; exit 4' TERM\n"
                                 "test $RUBATO_NODE = 10 && exit 3\n"
                                 "while :; do sleep 0.05; done");

    ck_assert_int_eq(run_finish(&run), 3);
    ck_assert_str_eq(run.texts[0]->str, "[0] asked\n");
    run_check_contains(&run, 1, "rubato: still running: 0; sending SIGTERM\n");
    run_clear(&run);
}
END_TEST

START_TEST(launch_kills_the_others_when_they_do_not_listen)
{
    Run run = run_start_shell(2, "trap '' TERM; test $RUBATO_NODE = 10 && exit 3\n"
                                 "echo self=$$; while :; do sleep 0.05; done");

    ck_assert_int_eq(run_finish(&run), 3);
    ck_assert(is_gone(run_pid_of(&run, "self")));
    run_clear(&run);
}
END_TEST

START_TEST(launch_kills_a_stopped_node_too)
{
    Run run = run_start_shell(2, "if [ $RUBATO_NODE = 0 ]; then echo self=$$; kill -STOP $$; fi\n"
                                 "exit 3");

    ck_assert_int_eq(run_finish(&run), 3);
    ck_assert(is_gone(run_pid_of(&run, "self")));
    run_clear(&run);
}
END_TEST

START_TEST(launch_passes_a_signal_on_to_every_node)
{
    g_autofree char *script =
        g_strdup_printf("trap 'echo got %s; exit 5' %s; echo ready$RUBATO_NODE\n"
                        "while :; do sleep 0.05; done",
                        PASSED_SIGNALS[_i].name, PASSED_SIGNALS[_i].name);
    Run run = run_start_patient_shell(2, script);

    run_wait_for(&run, 0, "ready0");
    run_wait_for(&run, 0, "ready10");
    kill(run.pid, PASSED_SIGNALS[_i].number);
    ck_assert_int_eq(run_finish(&run), 5);
    g_autofree char *told = g_strdup_printf("got %s\n", PASSED_SIGNALS[_i].name);
    g_autofree char *zero = g_strdup_printf("[0] %s", told);
    g_autofree char *ten = g_strdup_printf("[10] %s", told);
    run_check_contains(&run, 0, zero);
    run_check_contains(&run, 0, ten);
    run_clear(&run);
}
END_TEST

START_TEST(launch_kills_at_the_second_signal)
{
    Run run = run_start_shell(2, "trap '' INT; echo self$RUBATO_NODE=$$; echo ready$RUBATO_NODE\n"
                                 "while :; do sleep 0.05; done");

    run_wait_for(&run, 0, "ready0");
    run_wait_for(&run, 0, "ready10");
    kill(run.pid, SIGINT);
    run_wait_for(&run, 1, "SIGINT goes to every node");
    kill(run.pid, SIGTERM);
    ck_assert_int_eq(run_finish(&run), 128 + SIGTERM);
    ck_assert(is_gone(run_pid_of(&run, "self0")));
    ck_assert(is_gone(run_pid_of(&run, "self10")));
    run_clear(&run);
}
END_TEST

START_TEST(launch_heeds_signals_while_nobody_reads_its_output)
{
    Run run = run_start_shell(1, "echo self=$$; echo ready >&2; exec yes");
    int out;

    run_wait_for(&run, 0, "self=");
    run_wait_for(&run, 1, "ready");
    /* From here on nobody reads its standard output; the pipe fills, and stays full. */
    out = run.fds[0];
    run.fds[0] = -1;
    kill(run.pid, SIGTERM);
    run_wait_for(&run, 1, "SIGTERM goes to every node");
    kill(run.pid, SIGTERM);
    ck_assert_int_eq(run_finish(&run), 128 + SIGTERM);
    ck_assert(is_gone(run_pid_of(&run, "self")));
    close(out);
    run_clear(&run);
}
END_TEST

START_TEST(launch_ends_when_the_reader_of_its_output_goes)
{
    Run run = run_start_shell(2, "echo self$RUBATO_NODE=$$; exec yes");

    run_wait_for(&run, 0, "self0=");
    run_wait_for(&run, 0, "self10=");
    close(run.fds[0]);
    run.fds[0] = -1;
    ck_assert_int_eq(run_finish(&run), 128 + SIGPIPE);
    run_check_contains(&run, 1, "nobody reads the output any more");
    ck_assert(is_gone(run_pid_of(&run, "self0")));
    ck_assert(is_gone(run_pid_of(&run, "self10")));
    run_clear(&run);
}
END_TEST

/* ---- what is left: nothing ---- */

START_TEST(launch_leaves_nothing_behind_a_node_that_ended)
{
    Run run = run_start_shell(1, LEAVE_PROCESSES "exit 0");

    ck_assert_int_eq(run_finish(&run), 0);
    run_check_nothing_left(&run);
    run_clear(&run);
}
END_TEST

START_TEST(launch_leaves_nothing_when_it_is_killed)
{
    Run run = run_start_shell(1, LEAVE_PROCESSES "echo ready; while :; do sleep 0.05; done");

    run_wait_for(&run, 0, "ready");
    kill(run.pid, SIGKILL);
    ck_assert_int_eq(run_finish(&run), -SIGKILL);
    run_check_nothing_left(&run); /* the streams ended when the supervisor did, after its sweep */
    run_clear(&run);
}
END_TEST

START_TEST(launch_leaves_nothing_when_its_supervisor_is_killed)
{
    Run run = run_start_shell(1, LEAVE_PROCESSES
                              "echo supervisor=$PPID; echo ready; while :; do sleep 0.05; done");

    run_wait_for(&run, 0, "ready");
    kill(run_pid_of(&run, "supervisor"), SIGKILL);
    ck_assert_int_eq(run_finish(&run), 128 + SIGKILL);
    run_check_contains(&run, 1, "the process that kept the nodes was killed by signal 9 (SIGKILL)");
    run_check_nothing_left(&run);
    run_clear(&run);
}
END_TEST

START_TEST(launch_spares_children_that_it_did_not_start)
{
    g_autofree char *cluster = launch_write_cluster(1, "127.0.0.1");
    const pid_t mine = fork();
    const char *argv[4];
    const RubatoLaunch launch = launch_shell(cluster, "kill -KILL $PPID", argv);
    int status;
    int code = 0;

    if (mine == 0)
        for (;;)
            pause();
    ck_assert(rubato_launch_run(&launch, &code, NULL));
    ck_assert_int_eq(code, 128 + SIGKILL);
    ck_assert_int_eq(waitpid(mine, &status, WNOHANG), 0);
    kill(mine, SIGKILL);
    ck_assert_int_eq(waitpid(mine, &status, 0), mine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("launcher");
    TCase *output = launch_add_case(suite, "output");
    TCase *ends = launch_add_case(suite, "ends");
    TCase *left = launch_add_case(suite, "left");

    tcase_add_test(output, launch_puts_the_node_before_each_line);
    tcase_add_test(output, launch_ends_a_last_line_that_has_no_end);
    tcase_add_test(output, launch_without_prefix_keeps_lines_as_they_are);
    tcase_add_loop_test(output, launch_gives_the_scheduler_s_node_alone_a_port_of_health, 0, 2);
    tcase_add_test(output, launch_never_mixes_lines_of_nodes);
    tcase_add_test(output, launch_breaks_an_endless_line_and_loses_nothing);
    tcase_add_test(output, launch_tells_each_node_who_it_is);
    tcase_add_test(output, launch_names_the_cluster_file_by_its_absolute_path);
    tcase_add_test(output, launch_gives_nodes_nothing_to_read);
    tcase_add_test(output, launch_hands_no_descriptors_and_no_blocked_signals_to_nodes);
    tcase_add_test(output, launch_starts_only_the_nodes_that_were_named);
    tcase_add_test(output, launch_colours_the_prefix_on_a_terminal);

    tcase_add_test(ends, launch_returns_the_code_of_the_node_that_failed);
    tcase_add_test(ends, launch_returns_128_and_the_signal_that_ended_a_node);
    tcase_add_test(ends, launch_lets_the_others_end_by_themselves_first);
    tcase_add_loop_test(ends, launch_goes_on_without_a_node_if_the_others_do, 0, 2);
    tcase_add_loop_test(ends, launch_minds_no_node_that_is_killed_when_the_run_has_ended, 0, 4);
    tcase_add_test(ends, launch_minds_a_node_that_fails_when_the_run_has_ended);
    tcase_add_test(ends, launch_kills_a_lost_node_that_stands_still);
    tcase_add_test(ends, launch_blames_the_one_that_was_killed_when_several_have_ended);
    tcase_add_test(ends, launch_asks_the_others_to_end_when_they_do_not);
    tcase_add_test(ends, launch_kills_the_others_when_they_do_not_listen);
    tcase_add_test(ends, launch_kills_a_stopped_node_too);
    tcase_add_loop_test(ends, launch_passes_a_signal_on_to_every_node, 0, N_PASSED_SIGNALS);
    tcase_add_test(ends, launch_kills_at_the_second_signal);
    tcase_add_test(ends, launch_heeds_signals_while_nobody_reads_its_output);
    tcase_add_test(ends, launch_ends_when_the_reader_of_its_output_goes);

    tcase_add_test(left, launch_leaves_nothing_behind_a_node_that_ended);
    tcase_add_test(left, launch_leaves_nothing_when_it_is_killed);
    tcase_add_test(left, launch_leaves_nothing_when_its_supervisor_is_killed);
    tcase_add_test(left, launch_spares_children_that_it_did_not_start);
    return run_suite(suite);
}
