/* `rubato check`, the parts that the launcher is made of, and the program's command line. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <rubato/launcher.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/binding/core_topology.h"
#include "engine/cluster/host.h"
#include "engine/launch/launcher_output.h"
#include "test_paths.h"
#include "tests/support/cluster/launch_fixture.h"
#include "tests/support/runner.h"

/* ---- rubato check ---- */

/* A port of loopback that this test holds while *fd is open. */
static uint16_t take_port(int *fd)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(*fd, 0);
    ck_assert_int_eq(bind(*fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(*fd, 1), 0);
    ck_assert_int_eq(getsockname(*fd, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

/* Checks a file of two nodes. Returns the report. (transfer full) */
static char *check_file(const char *host, uint16_t scheduler_port, uint16_t port0, uint16_t port1,
                        GError **error)
{
    g_autofree char *text =
        g_strdup_printf("cluster = { name = \"two\";\n"
                        "scheduler = { host = \"127.0.0.1\"; port = %u; node = 7; };\n"
                        "nodes = ( { id = 3; host = \"127.0.0.1\"; port = %u; servers = 2; },\n"
                        "{ id = 7; host = \"%s\"; port = %u; workers = 4; } ); };\n",
                        scheduler_port, port0, host, port1);
    g_autofree char *path = launch_write_file("two.cfg", text, 0600);
    GString *report = g_string_new(NULL);

    const bool fine = rubato_launch_check(path, report, error);
    ck_assert(fine == (*error == NULL));
    return g_string_free(report, FALSE);
}

/* On a machine that hwloc makes up. Two nodes are here, and one is elsewhere. */
START_TEST(check_prints_which_threads_would_be_bound_where)
{
    static const char text[] =
        "cluster = { scheduler = { host = \"127.0.0.1\"; port = 4100; }; bind_cores = true;\n"
        "nodes = ( { id = 3; host = \"127.0.0.1\"; port = 0; servers = 2; workers = 2; },\n"
        "{ id = 5; host = \"" ELSEWHERE "\"; port = 0; servers = 4; },\n"
        "{ id = 7; host = \"localhost\"; port = 0; servers = 1; workers = 0; } ); };\n";
    g_autofree char *path = launch_write_file("bound.cfg", text, 0600);
    g_autoptr(GString) report = g_string_new(NULL);
    g_autoptr(CoreTopology) topology = core_topology_read(NULL);
    g_autoptr(GError) error = NULL;

    g_setenv("HWLOC_SYNTHETIC", "numa:2 core:4 pu:1", TRUE);
    g_setenv("HWLOC_THISSYSTEM", "0", TRUE);
    rubato_launch_check(path, report, &error); /* the port may be another program's */
    if (topology == NULL) {
        ck_assert_msg(strstr(error->message, "libhwloc-dev") != NULL, "%s", error->message);
        return;
    }
    ck_assert_msg(
        strstr(report->str,
               "\nNUMA nodes of this machine: 2: 0 with 4 cores and 1.0 GiB, 1 with 4 cores and "
               "1.0 GiB\n"
               "node 3: server 0 on processor 0 (NUMA node 0), server 1 on processor 3 (NUMA node "
               "0); worker 0 on processors 1-2 (NUMA node 0), worker 1 on processors 4-5 (NUMA "
               "node 1); other threads on processors 0-5\n") != NULL,
        "%s", report->str);
    ck_assert_msg(strstr(report->str, "\nnode 7: server 6 on processor 6 (NUMA node 1); other "
                                      "threads on processors 6-7\n") != NULL,
                  "%s", report->str);
    ck_assert_msg(strstr(report->str, "node 5: ") == NULL, "%s", report->str);
}
END_TEST

START_TEST(check_prints_what_would_run)
{
    g_autoptr(GError) error = NULL;
    int fd;
    const uint16_t port = take_port(&fd);

    close(fd);
    g_autofree char *out = check_file(ELSEWHERE, port, 0, 4102, &error);
    ck_assert_msg(error == NULL, "%s", error->message);
    g_autofree char *scheduler = g_strdup_printf("scheduler  127.0.0.1:%u ", port);
    ck_assert_msg(strstr(out, "two: 2 nodes, 3 servers, 5 workers, over tcp") != NULL, "%s", out);
    ck_assert_msg(strstr(out, scheduler) != NULL, "%s", out);
    ck_assert_msg(strstr(out, "node 7     free\n") != NULL, "%s", out);
    ck_assert_msg(strstr(out, "3  127.0.0.1:any ") != NULL, "%s", out);
    ck_assert_msg(strstr(out, "fork       any\n") != NULL, "%s", out);
    ck_assert_msg(strstr(out, "7  " ELSEWHERE ":4102 ") != NULL, "%s", out);
    ck_assert_msg(strstr(out, "ssh        not tried\n") != NULL, "%s", out);
}
END_TEST

START_TEST(check_names_each_busy_port)
{
    g_autoptr(GError) error = NULL;
    int fds[2];
    const uint16_t first = take_port(&fds[0]);
    const uint16_t second = take_port(&fds[1]);
    g_autofree char *out = check_file("127.0.0.1", first, 0, second, &error);
    g_autofree char *of_scheduler =
        g_strdup_printf("two.cfg:2: the port %u of the scheduler on 127.0.0.1 is busy", first);
    g_autofree char *of_node =
        g_strdup_printf("two.cfg:4: the port %u of node 7 on 127.0.0.1 is busy", second);

    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_msg(strstr(error->message, of_scheduler) != NULL, "%s", error->message);
    ck_assert_msg(strstr(error->message, of_node) != NULL, "%s", error->message);
    ck_assert_msg(strstr(out, "busy\n") != NULL, "%s", out);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(check_finds_one_port_under_two_names)
{
    g_autoptr(GError) error = NULL;
    int fd;
    const uint16_t port = take_port(&fd);

    close(fd);
    g_autofree char *out = check_file("127.1", port, 0, port, &error);
    ck_assert_msg(error != NULL, "%s", out);
    ck_assert_msg(strstr(error->message, "another entry of this file, has it") != NULL, "%s",
                  error->message);
}
END_TEST

START_TEST(check_names_an_unknown_host)
{
    g_autofree char *host = g_strnfill(64, 'x');
    g_autoptr(GError) error = NULL;
    g_autofree char *out = check_file(host, 9, 0, 0, &error);

    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_msg(strstr(error->message, "two.cfg:4: the host 'xxx") != NULL, "%s", error->message);
    ck_assert_msg(strstr(out, "unknown host\n") != NULL, "%s", out);
}
END_TEST

/* docs/security.md: Over ZeroMQ. It needs no more than TCP does. */
START_TEST(check_wants_no_more_of_zeromq_than_of_tcp)
{
    static const char *const transports[] = { "tcp", "zmq" };
    g_autofree char *text = g_strdup_printf(
        "cluster = { scheduler = { host = \"127.0.0.1\"; port = 9; };\n"
        "nodes = ( { id = 3; host = \"127.0.0.1\"; port = 0; },\n"
        "{ id = 7; host = \"" ELSEWHERE "\"; port = 0; } ); transport = \"%s\"; };\n",
        transports[_i]);
    g_autofree char *path = launch_write_file("two.cfg", text, 0600);
    g_autoptr(GString) report = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    (void)rubato_launch_check(path, report, &error); /* of the port 9 it may say what it likes */
    ck_assert_msg(strstr(report->str, "rubato run makes a secret for each run") != NULL, "%s",
                  report->str);
    ck_assert(error == NULL || strstr(error->message, "no secret") == NULL);
}
END_TEST

START_TEST(check_of_a_wrong_file_prints_no_table)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *out = check_file("", 9, 0, 0, &error);

    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG));
    ck_assert_str_eq(out, "");
}
END_TEST

/* ---- parts ---- */

#define ERASE "\r\033[K"

START_TEST(line_stream_gives_the_same_lines_whatever_the_pieces)
{
    static const char text[] = "first\n\nthird line\nno end";
    const size_t length = sizeof text - 1;

    for (size_t piece = 1; piece <= length; piece++) {
        g_autoptr(GString) out = g_string_new(NULL);
        LineStream stream;

        line_stream_init(&stream, "> ", NULL);
        for (size_t at = 0; at < length; at += piece)
            line_stream_feed(&stream, text + at, MIN(piece, length - at), out);
        line_stream_finish(&stream, out);
        line_stream_finish(&stream, out); /* nothing is left */
        ck_assert_str_eq(out->str, "> first\n> \n> third line\n> no end\n");
        line_stream_clear(&stream);
    }
}
END_TEST

/* Two nodes and a terminal: the bar of one gives way to the line of the other, and to its own end;
 * elsewhere it is a line. */
START_TEST(line_stream_draws_bars_in_their_place_on_a_terminal)
{
    static const char *const pieces[] = { "\r10 %\n", "\r2", "0 %\nline\n\r30 %\n", "\r\n" };
    bool shown = false;
    LineStream on_terminal, beside, in_file;
    g_autoptr(GString) out = g_string_new(NULL);
    g_autoptr(GString) file = g_string_new(NULL);

    line_stream_init(&on_terminal, "[0] ", &shown);
    line_stream_init(&beside, "[1] ", &shown);
    line_stream_init(&in_file, "", NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(pieces); i++)
        line_stream_feed(&on_terminal, pieces[i], strlen(pieces[i]), out);
    ck_assert_str_eq(out->str, "[0] 10 %" ERASE "[0] 20 %" ERASE "[0] line\n[0] 30 %" ERASE);
    ck_assert(!shown);
    g_string_truncate(out, 0);
    line_stream_feed(&on_terminal, pieces[0], strlen(pieces[0]), out);
    line_stream_feed(&beside, "more\n", 5, out);
    ck_assert_str_eq(out->str, "[0] 10 %" ERASE "[1] more\n");
    line_stream_feed(&in_file, pieces[0], strlen(pieces[0]), file);
    ck_assert_str_eq(file->str, "\r10 %\n");
    line_stream_clear(&on_terminal);
    line_stream_clear(&beside);
    line_stream_clear(&in_file);
}
END_TEST

START_TEST(line_stream_leaves_a_line_of_the_longest_size_whole)
{
    g_autofree char *line = g_strnfill(LINE_STREAM_MAX_BYTES + 1, 'x');
    g_autoptr(GString) out = g_string_new(NULL);
    LineStream stream;

    line[LINE_STREAM_MAX_BYTES] = '\n';
    line_stream_init(&stream, "", NULL);
    line_stream_feed(&stream, line, LINE_STREAM_MAX_BYTES + 1, out);
    ck_assert_uint_eq(out->len, LINE_STREAM_MAX_BYTES + 1);
    line[LINE_STREAM_MAX_BYTES] = 'x';
    line_stream_feed(&stream, line, LINE_STREAM_MAX_BYTES + 1, out);
    line_stream_finish(&stream, out);
    ck_assert_uint_eq(out->len, 2 * (LINE_STREAM_MAX_BYTES + 1) + 2);
    line_stream_clear(&stream);
}
END_TEST

static const struct {
    const char *name;
    bool local;
} HOSTS[] = {
    { "127.0.0.1", true }, { "127.9.8.7", true }, { "localhost", true },
    { "::1", true },       { ELSEWHERE, false },  { "2001:db8::7", false },
};

START_TEST(host_knows_what_is_this_machine)
{
    GError *error = NULL;
    Host host = { 0 };

    ck_assert_msg(host_resolve(&host, HOSTS[_i].name, "here", &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_int_eq(host.local, HOSTS[_i].local);
    if (!host.local) {
        ck_assert_int_eq(host_try_port(&host, 9), -1);
        ck_assert_int_eq(errno, EADDRNOTAVAIL);
    }
    host_clear(&host);
}
END_TEST

/* ---- the program ---- */

typedef struct {
    const char *words; /* after "rubato" */
    int code;
    const char *says;
} CommandLine;

static const CommandLine COMMAND_LINES[] = {
    { "--version", 0, "rubato " RUBATO_VERSION },
    { "--help", 0, "rubato run [OPTIONS] FILE" },
    { "help", 0, "rubato check FILE" },
    { "help run", 0, "--node=ID" },
    { "run --help", 0, "--no-prefix" },
    { "run --help", 0, "--restart=N" },
    { "help check", 0, "resolves its hosts" },
    { "help frob", 2, "no command 'frob'" },
    { "", 2, "which command?" },
    { "frob", 2, "no command 'frob'; there are run, scheduler, server, worker, task, check, " },
    { "help scheduler", 0, "--scheduler=HOST:PORT" },
    { "worker --help", 0, "RUBATO_THREADS" },
    { "worker", 2, "which program?" },
    { "worker --scheduler 127.0.0.1:9", 2, "which program?" },
    { "worker --frob -- true", 2, "--frob" },
    { "worker --threads 0 -- true", 2, "--threads takes a number from 1, not 0" },
    { "worker --servers 2 -- true", 2, "--servers is an option of rubato scheduler" },
    { "scheduler --node 2 -- true", 2, "--node is an option of rubato server and rubato worker" },
    { "worker -- true", 1, "RUBATO_ROLE is worker, but where the scheduler listens is not said" },
    { "worker --scheduler 127.0.0.1:9 -- no-such-program", 1, "no program 'no-such-program'" },
    { "scheduler --scheduler 127.0.0.1:9 -- true", 1, "set RUBATO_SERVERS and RUBATO_WORKERS" },
    { "scheduler --scheduler 127.0.0.1:9 --servers 2 --workers 0 -- sh -c 'echo $RUBATO_WORKERS.'",
      0, "0.\n" },
    { "scheduler --scheduler 127.0.0.1:9 --servers 2 --workers 0 --spares 3 --threads 4 -- "
      "sh -c 'echo $RUBATO_SPARES $RUBATO_THREADS.'",
      0, "3 4.\n" },
    { "worker --spares 2 -- true", 2, "--spares is an option of rubato scheduler" },
    { "scheduler --spares -1 -- true", 2, "--spares takes a number from 0, not -1" },
    { "server --scheduler 127.0.0.1:9 --node 7 -- sh -c 'echo $RUBATO_ROLE $RUBATO_NODE'", 0,
      "server 7\n" },
    { "run", 2, "which cluster file?" },
    { "run run.cfg", 2, "which program?" },
    { "run run.cfg --", 2, "which program?" },
    { "run --frob run.cfg -- true", 2, "--frob" },
    { "run --node x run.cfg -- true", 2, "takes the id of a node, not 'x'" },
    { "run --node 3 run.cfg -- true", 1, "has no node 3" },
    { "run --restart -1 run.cfg -- true", 2, "--restart takes a number of times from 0" },
    { "run --restart x run.cfg -- true", 2, "--restart" },
    { "run --restart 2 run.cfg -- sh -c 'echo ${RUBATO_JOIN-first}.'", 0, "[10] first.\n" },
    { "run --join run.cfg -- true", 1, "say as which nodes the processes are to join" },
    { "run --join -n 10 run.cfg -- sh -c 'echo $RUBATO_JOIN.'", 0, "[10] 1.\n" },
    { "run nowhere.cfg -- true", 1, "cannot open the cluster file nowhere.cfg" },
    { "run run.cfg -- no-such-program", 1, "no program 'no-such-program'" },
    { "run run.cfg -- echo -- -x", 0, "[10] -- -x\n" },
    { "run run.cfg echo --node 0", 0, "[10] --node 0\n" },
    { "run run.cfg --no-prefix -n 10 echo yes", 0, "yes\n" },
    { "run --node 10 run.cfg -- sh -c 'exit 9'", 9, "node 10 (127.0.0.1) exited with code 9" },
    { "run spare.cfg -- sh -c 'echo $RUBATO_NODE'", 0, "[1] 1\n" },
    { "run -n 2 spare.cfg -- true", 1, "node 2 is spare: a run begins without it" },
    { "run --join -n 2 spare.cfg -- sh -c 'echo $RUBATO_NODE $RUBATO_JOIN'", 0, "[2] 2 1\n" },
    { "check spare.cfg", 0, "run: 1 node, 1 server, 1 worker, and 1 spare node, over" },
    { "check --json run.cfg", 2, "--json is for rubato check without FILE" },
    { "check a b", 2, "takes one cluster file" },
    { "check nowhere.cfg", 1, "cannot open the cluster file nowhere.cfg" },
    { "check wrong.cfg", 1, "rubato: wrong.cfg:1: " },
};

#define SPARE                                                                           \
    "cluster = { name = \"run\"; scheduler = { host = \"127.0.0.1\"; port = 4129; };\n" \
    "nodes = ( { id = 1; host = \"127.0.0.1\"; port = 0; },\n"                          \
    "{ id = 2; host = \"127.0.0.1\"; port = 0; servers = 3; workers = 5; spare = true; } ); };"

START_TEST(rubato_command_line_does_and_says)
{
    const CommandLine *line = &COMMAND_LINES[_i];
    g_autofree char *program = g_build_filename(TEST_BIN_DIR, "rubato", NULL);
    g_autofree char *command = g_strdup_printf("'%s' %s 2>&1", program, line->words);
    g_autoptr(GString) text = g_string_new(NULL);
    char bytes[4096];
    size_t n;

    g_free(launch_write_cluster(2, "127.0.0.1"));
    g_free(launch_write_file("wrong.cfg", "cluster = 3;", 0600));
    g_free(launch_write_file("spare.cfg", SPARE, 0600));
    ck_assert_int_eq(chdir(launch_folder), 0);
    FILE *stream = popen(command, "re");
    ck_assert_ptr_nonnull(stream);
    while ((n = fread(bytes, 1, sizeof bytes, stream)) > 0)
        g_string_append_len(text, bytes, (gssize)n);
    const int status = pclose(stream);
    ck_assert_msg(strstr(text->str, line->says) != NULL, "'%s' is not in: %s", line->says,
                  text->str);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == line->code, "code %d: %s",
                  WEXITSTATUS(status), text->str);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("launcher_check");
    TCase *check = launch_add_case(suite, "check");
    TCase *parts = launch_add_case(suite, "parts");
    TCase *program = launch_add_case(suite, "program");

    tcase_add_loop_test(check, check_wants_no_more_of_zeromq_than_of_tcp, 0, 2);
    tcase_add_test(check, check_prints_what_would_run);
    tcase_add_test(check, check_prints_which_threads_would_be_bound_where);
    tcase_add_test(check, check_names_each_busy_port);
    tcase_add_test(check, check_finds_one_port_under_two_names);
    tcase_add_test(check, check_names_an_unknown_host);
    tcase_add_test(check, check_of_a_wrong_file_prints_no_table);

    tcase_add_test(parts, line_stream_gives_the_same_lines_whatever_the_pieces);
    tcase_add_test(parts, line_stream_draws_bars_in_their_place_on_a_terminal);
    tcase_add_test(parts, line_stream_leaves_a_line_of_the_longest_size_whole);
    tcase_add_loop_test(parts, host_knows_what_is_this_machine, 0, G_N_ELEMENTS(HOSTS));

    tcase_add_loop_test(program, rubato_command_line_does_and_says, 0, G_N_ELEMENTS(COMMAND_LINES));
    return run_suite(suite);
}
