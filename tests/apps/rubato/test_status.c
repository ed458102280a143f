/* The command `rubato status`, run as a user does: what it prints of an answer, and what it makes
 * of those who answer something else. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rubato/rubato.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_paths.h"
#include "tests/support/runner.h"

enum { MOST_ARGUMENTS = 8 };

/* ---- a port, and the command that asks there ---- */

static int listener;
static uint16_t port;

static void set_up(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof address;

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 4), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    port = ntohs(address.sin_port);
    g_unsetenv("RUBATO_HEALTH");
}

static void tear_down(void)
{
    close(listener);
}

typedef struct {
    GPid pid;
    int out_fd, err_fd;
} Command;

/* Begins `rubato status` with up to five arguments, the first of which may be NULL: the port. */
static Command begin(const char *address, const char *const *options)
{
    g_autofree char *own = g_strdup_printf("%u", port);
    const char *argv[MOST_ARGUMENTS] = { TEST_BIN_DIR "/rubato", "status",
                                         address != NULL ? address : own };
    g_autoptr(GError) error = NULL;
    Command command;

    for (size_t i = 0; options != NULL && options[i] != NULL; i++)
        argv[3 + i] = options[i];
    ck_assert_msg(g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)argv, NULL,
                                           G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &command.pid,
                                           NULL, &command.out_fd, &command.err_fd, &error),
                  "%s", error != NULL ? error->message : "");
    return command;
}

/* Until its end. (transfer full) */
static char *read_all(int fd)
{
    GString *const text = g_string_new(NULL);
    char bytes[4096];
    ssize_t n;

    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        g_string_append_len(text, bytes, n);
    close(fd);
    return g_string_free(text, FALSE);
}

/* It writes little to standard error. out NULL: not looked at. */
static void expect(Command *command, int status, const char *out, const char *err)
{
    g_autofree char *said = read_all(command->out_fd);
    g_autofree char *complained = read_all(command->err_fd);
    int ended;

    ck_assert_int_eq(waitpid(command->pid, &ended, 0), command->pid);
    ck_assert_msg(WIFEXITED(ended) && WEXITSTATUS(ended) == status, "%d: %s%s", ended, said,
                  complained);
    if (out != NULL)
        ck_assert_str_eq(said, out);
    ck_assert_msg(strstr(complained, err) != NULL, "%s", complained);
    ck_assert_msg(strstr(complained, "CRITICAL") == NULL, "%s", complained);
}

/* Takes the next question, which is for that. */
static int take_for(const char *path)
{
    g_autofree char *line = g_strdup_printf("GET %s HTTP/1.0\r\n", path);
    const int fd = accept(listener, NULL, NULL);
    g_autoptr(GString) request = g_string_new(NULL);
    char byte;

    ck_assert_int_ge(fd, 0);
    while (strstr(request->str, "\r\n\r\n") == NULL) {
        ck_assert_int_eq(read(fd, &byte, 1), 1);
        g_string_append_c(request, byte);
    }
    ck_assert_msg(g_str_has_prefix(request->str, line), "%s", request->str);
    return fd;
}

static int take(void)
{
    return take_for("/status");
}

/* Whether all was taken. */
static bool give(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        const ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

        if (sent < 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* As a node of a run answers. */
static void answer_at(int fd, const char *body)
{
    g_autofree char *all = g_strdup_printf("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n"
                                           "Content-Length: %zu\r\n\r\n%s",
                                           strlen(body), body);

    ck_assert(give(fd, all, strlen(all)));
    close(fd);
}

static void answer(const char *body)
{
    answer_at(take(), body);
}

/* ---- what it prints ---- */

#define WORKER(rank, block, rows, seconds)                                                     \
    "{\"worker\":" #rank ",\"epoch\":2,\"file\":\"day 1\",\"block\":" #block                   \
    ",\"block_row\":7,\"block_rows\":10,\"blocks\":4,\"rows\":" #rows ",\"seconds\":" #seconds \
    ",\"ended\":false}"

#define RUN(rows, seconds)                                                                         \
    "{\"rubato_status\":1,\"state\":\"runs\",\"node\":3,\"scheduler\":3,\"n_nodes\":3,"            \
    "\"run\":{\"nodes\":[{\"node\":3,\"name\":\"node 3 (a:1)\",\"state\":\"live\",\"silent_s\":0}" \
    ",{\"node\":7,\"name\":\"node 7 (b:1)\",\"state\":\"live\",\"silent_s\":1.25},"                \
    "{\"node\":9,\"name\":\"node 9 (c:1)\",\"state\":\"lost\",\"silent_s\":9.0,"                   \
    "\"why\":\"node 9 (c:1) was lost: nothing heard\"}],"                                          \
    "\"tasks\":[{\"task\":5,\"name\":\"train\",\"has_lost_workers\":true,\"readers\":["            \
    "{\"reader\":0,\"reads\":\"2 epochs, dynamic split, not shuffled\",\"epochs\":2,"              \
    "\"files\":3,\"epoch\":2,\"done\":8,\"dealt\":3,\"left\":5}]}],"                               \
    "\"waits\":[{\"text\":\"task train waits for node 7\",\"seconds\":2.5}]},"                     \
    "\"nodes\":[{\"node\":3,\"tasks\":[{\"task\":5,\"workers\":[{\"worker\":0,\"ended\":false,"    \
    "\"clocks\":{\"w\":12,\"b\":12}},{\"worker\":1,\"ended\":true,\"clocks\":{}}],"                \
    "\"readers\":[{\"reader\":0,\"workers\":[" WORKER(                                             \
        0, 6, rows, seconds) "]}]}]},"                                                             \
                             "{\"node\":7,\"no_answer\":\"no answer within 2.0 s\"}],"             \
                             "\"tables\":[{\"name\":\"w\",\"dtype\":\"f32\",\"width\":8,\"keys\":" \
                             "100,\"model\":\"ssp\","                                              \
                             "\"update\":\"adam\",\"parts\":4,\"replicas\":1}]}"

#define PICTURE(rows, rate)                                                                       \
    "the run of 3 nodes goes on, says node 3\n"                                                   \
    "node  state  heard      name\n"                                                              \
    "3     live   0.0 s ago  node 3 (a:1)\n"                                                      \
    "7     live   1.2 s ago  node 7 (b:1)\n"                                                      \
    "9     lost   9.0 s ago  node 9 (c:1)\n"                                                      \
    "node 7 does not say how far it is: no answer within 2.0 s\n"                                 \
    "node 9 (c:1) was lost: nothing heard\n"                                                      \
    "\n"                                                                                          \
    "table  rows of  keys  model  update  parts  replicas\n"                                      \
    "w      f32 × 8  100   ssp    adam    4      1\n"                                            \
    "\n"                                                                                          \
    "task train continues without the workers of lost nodes\n"                                    \
    "  reader 0: 2 epochs, dynamic split, not shuffled; files 3; epoch 2 of 2; blocks 8 read, 3 " \
    "at nodes, 5 left\n"                                                                          \
    "  worker  node  state     clock  reader  epoch  file   block  row      blocks read  rows  "  \
    "rows/s\n"                                                                                    \
    "  0       3     reads     12     0       2      day 1  6      7 of 10  4            " rows   \
    "   " rate "\n"                                                                               \
    "  1       3     returned  -      -       -      -      -      -        -            -     -" \
    "\n\n"                                                                                        \
    "waiting\n"                                                                                   \
    "  task train waits for node 7 (for 2.5 s)\n"

START_TEST(status_is_printed_as_tables)
{
    Command command = begin(NULL, NULL);

    answer(RUN(300, 1.5));
    expect(&command, EXIT_SUCCESS, PICTURE("300", "200"), "");
}
END_TEST

START_TEST(status_says_that_a_task_waits_for_lost_workers)
{
    Command command = begin(NULL, NULL);

    answer("{\"rubato_status\":1,\"state\":\"runs\",\"n_nodes\":1,\"run\":{\"tasks\":[{\"task\":5,"
           "\"name\":\"train\",\"continues\":false,\"replaces\":true,\"awaits_workers\":true}]}}");
    expect(&command, EXIT_SUCCESS,
           "the run goes on\n\ntask train waits for a process that has the workers of a lost node "
           "again\n",
           "");
}
END_TEST

#define ENDS "{\"rubato_status\":1,\"state\":\"ends\"}"

static const char *const often[] = { "--watch", "0.01", NULL };

/* Rates are those since the picture before. The end of the run is no failure. */
START_TEST(status_is_asked_again_until_the_run_has_ended)
{
    Command command = begin(NULL, often);
    const int end = take_for("/end");

    answer(RUN(300, 1.5));
    answer(RUN(450, 2.0));
    close(take()); /* the run ends while it is asked */
    answer_at(end, ENDS);
    expect(&command, EXIT_SUCCESS,
           PICTURE("300", "200") "\n" PICTURE("450", "300") "\nthe run has ended\n", "");
}
END_TEST

/* It does not wait for its next question. */
START_TEST(status_hears_the_end_while_it_waits)
{
    static const char *const options[] = { "--watch", "80000", "--json", NULL };
    Command command = begin(NULL, options);
    const int end = take_for("/end");

    answer("{\"rubato_status\":1,\"state\":\"runs\"}");
    answer_at(end, ENDS);
    expect(&command, EXIT_SUCCESS, "{\"rubato_status\":1,\"state\":\"runs\"}\n" ENDS "\n", "");
}
END_TEST

/* As that of a process that was killed. */
START_TEST(status_tells_an_end_from_a_connection_that_breaks)
{
    Command command = begin(NULL, often);
    const int end = take_for("/end");

    answer("{\"rubato_status\":1,\"state\":\"runs\",\"n_nodes\":1}");
    if (_i == 0) /* only that of the question */
        close(take());
    else
        close(end);
    if (_i == 0)
        close(end);
    else
        close(listener);
    expect(&command, EXIT_FAILURE, "the run goes on\n", "the run has not told its end: ");
}
END_TEST

START_TEST(status_of_a_run_that_breaks_at_its_end_exits_with_one)
{
    Command command = begin(NULL, often);
    const int end = take_for("/end");

    answer("{\"rubato_status\":1,\"state\":\"runs\",\"n_nodes\":1}");
    close(take());
    answer_at(end, "{\"rubato_status\":1,\"state\":\"broken\",\"why\":\"node 1 was lost\"}");
    expect(&command, EXIT_FAILURE, "the run goes on\nthe run is broken: node 1 was lost\n", "");
}
END_TEST

/* The run goes on, and one question is not answered. */
START_TEST(status_that_is_watched_ends_with_an_error_that_is_no_end)
{
    static const char *const options[] = { "--watch", "0.01", "--timeout", "0.3", NULL };
    Command command = begin(NULL, options);
    const int end = take_for("/end");

    answer("{\"rubato_status\":1,\"state\":\"runs\",\"n_nodes\":1}");
    close(take());
    expect(&command, EXIT_FAILURE, "the run goes on\n",
           "has closed the connection without an answer");
    close(end);
}
END_TEST

START_TEST(status_is_printed_as_it_came_for_machines)
{
    static const char *const options[] = { "--json", NULL };
    static const char text[] = "{\"rubato_status\":1,\"state\":\"runs\",\"further\":[1,{}]}";
    g_autofree char *address = g_strdup_printf("http://127.0.0.1:%u/status", port);
    Command command = begin(address, options);

    answer(text);
    g_autofree char *line = g_strconcat(text, "\n", NULL);
    expect(&command, EXIT_SUCCESS, line, "");
}
END_TEST

START_TEST(status_of_another_node_names_the_scheduler_s)
{
    g_autofree char *address = g_strdup_printf("localhost:%u", port);
    Command command = begin(address, NULL);

    answer("{\"rubato_status\":1,\"state\":\"runs\",\"node\":7,\"scheduler\":3,"
           "\"scheduler_name\":\"a:1\",\"n_nodes\":2,\"nodes\":[{\"node\":7,\"tasks\":[{\"task\":5,"
           "\"name\":\"train\",\"workers\":[{\"worker\":2,\"ended\":false,"
           "\"clocks\":{\"w\":3,\"b\":4}}],\"readers\":[]}]}],\"tables\":[]}");
    expect(&command, EXIT_SUCCESS,
           "the run of 2 nodes goes on, says node 7\n"
           "this is what node 7 knows of itself; the scheduler is on node 3 (a:1), which tells of "
           "the whole run\n"
           "\n"
           "task train\n"
           "  clocks are of w/b\n"
           "  worker  node  state  clock  reader  epoch  file  block  row  blocks read  rows  "
           "rows/s\n"
           "  2       7     runs   3/4    -       -      -     -      -    -            -     -\n",
           "");
}
END_TEST

/* A node knows that a task was cancelled, and which of its workers have read all. */
START_TEST(status_tells_what_ends_early)
{
    Command command = begin(NULL, NULL);

    answer("{\"rubato_status\":1,\"state\":\"runs\",\"n_nodes\":1,\"nodes\":[{\"node\":7,"
           "\"tasks\":[{\"task\":5,\"name\":\"train\",\"cancelled\":true,\"workers\":["
           "{\"worker\":2,\"ended\":false},{\"worker\":3,\"ended\":false}],"
           "\"readers\":[{\"reader\":0,\"workers\":["
           "{\"worker\":2,\"ended\":true,\"read_all\":true},"
           "{\"worker\":3,\"ended\":true,\"read_all\":false}]}]}]}]}");
    expect(&command, EXIT_SUCCESS,
           "the run goes on\n"
           "\n"
           "task train was cancelled\n"
           "  worker  node  state          clock  reader  epoch  file  block  row  blocks read  "
           "rows  rows/s\n"
           "  2       7     has read all   -      0       -      -     -      -    -            "
           "-     -\n"
           "  3       7     reads no more  -      0       -      -     -      -    -            "
           "-     -\n",
           "");
}
END_TEST

START_TEST(status_of_a_resumed_run_names_the_snapshot)
{
    Command command = begin(NULL, NULL);

    answer("{\"rubato_status\":1,\"state\":\"runs\",\"n_nodes\":1,"
           "\"restored\":{\"directory\":\"/a\",\"snapshot\":7}}");
    expect(&command, EXIT_SUCCESS, "the run goes on; rows were restored from snapshot 7 of /a\n",
           "");
}
END_TEST

START_TEST(status_of_a_broken_run_exits_with_one)
{
    Command command = begin(NULL, NULL);

    answer("{\"rubato_status\":1,\"state\":\"broken\",\"why\":\"node 1 was lost\"}");
    expect(&command, EXIT_FAILURE, "the run is broken: node 1 was lost\n", "");
}
END_TEST

/* ---- liars ---- */

#define HEAD "HTTP/1.1 200 OK\r\n"

static const struct {
    const char *bytes, *message;
} liars[] = {
    { "", "has closed the connection without an answer" },
    { "\r\n\r\n", "it does not speak HTTP" },
    { "SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "it does not speak HTTP" },
    { "SSH-2.0\r\n\r\n", "it does not speak HTTP" },
    { "HTTP/1.1\r\n\r\n", "it does not speak HTTP" },
    { HEAD "Content-Length: 2", "it does not speak HTTP" },
    { "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\na\033[2J\n",
      "answers \"HTTP/1.1 404 Not Found\": a [2J" },
    { "HTTP/1.0 403 Forbidden\r\n\r\nof this host alone", "of this host alone" },
    { HEAD "\r\n{\"rubato_status\":1}", "broke off after 19 bytes" },
    { HEAD "Content-Length: 20\r\n\r\n{\"rubato_status\":1}", "broke off after 19 bytes" },
    { HEAD "Content-Length: -1\r\n\r\n", "broke off after 0 bytes" },
    { HEAD "Content-Length: 99999999999999999999\r\n\r\n", "broke off after 0 bytes" },
    { HEAD "Content-Length: 0\r\n\r\n", "it is empty" },
    { HEAD "content-length:2\r\n\r\n[]", "it is no object" },
    { HEAD "Content-Length: 2\r\n\r\n{}", "it has no rubato_status" },
    { HEAD "Content-Length: 21\r\n\r\n{\"rubato_status\":\"1\"}", "it has no rubato_status" },
    { HEAD "Content-Length: 4\r\n\r\n{\"a\"", "is no node of a run" },
    { HEAD "Content-Length: 2\r\n\r\n\"\xff", "it is no text" },
};

START_TEST(status_says_what_is_wrong_with_an_answer)
{
    Command command = begin(NULL, NULL);
    const int fd = take();

    ck_assert(give(fd, liars[_i].bytes, strlen(liars[_i].bytes)));
    close(fd);
    expect(&command, EXIT_FAILURE, "", liars[_i].message);
}
END_TEST

/* The right members of wrong types, and commands for the terminal. */
START_TEST(status_minds_no_member_of_another_type)
{
    Command command = begin(NULL, NULL);

    answer("{\"rubato_status\":1,\"state\":\"\\u001b[2J\\u009b\",\"node\":-9223372036854775808,"
           "\"n_nodes\":\"3\",\"scheduler\":null,\"run\":{\"nodes\":[1,null,[],{\"node\":{}}],"
           "\"tasks\":[[],{\"task\":[],\"name\":7,\"readers\":[3,{\"done\":1}]}],"
           "\"waits\":[{},\"a\"]},\"nodes\":[{\"tasks\":[{\"task\":-1,\"workers\":[null,"
           "{\"clocks\":[1]}],\"readers\":[0]}]},4],\"tables\":[{\"keys\":1.5},9]}");
    expect(&command, EXIT_SUCCESS, NULL, "");
}
END_TEST

START_TEST(status_prints_no_command_of_a_terminal)
{
    Command command = begin(NULL, NULL);

    answer("{\"rubato_status\":1,\"state\":\"\\u001b[2J\\u009b31m\\n\"}");
    expect(&command, EXIT_SUCCESS, "the run ?[2J?31m?\n", "");
}
END_TEST

START_TEST(status_takes_no_lists_without_end)
{
    Command command = begin(NULL, NULL);
    g_autofree char *deep = g_strnfill(1000000, '[');

    answer(deep);
    expect(&command, EXIT_FAILURE, "", "too deep");
}
END_TEST

/* It ends as soon as the command takes no more. */
START_TEST(status_takes_no_bytes_without_end)
{
    Command command = begin(NULL, NULL);
    g_autofree char *many = g_strnfill(1 << 20, 'a');
    const int fd = take();

    while (give(fd, many, 1 << 20))
        ;
    close(fd);
    expect(&command, EXIT_FAILURE, "", "answers more than 64 MiB");
}
END_TEST

START_TEST(status_waits_for_nobody_for_ever)
{
    static const char *const options[] = { "--timeout", "0.05", NULL };
    Command command = begin(NULL, options);
    const int fd = take();

    ck_assert(_i == 0 || give(fd, HEAD, strlen(HEAD)));
    expect(&command, EXIT_FAILURE, "", "has not answered within 0.05 s");
    close(fd);
}
END_TEST

/* Nobody accepts: the queue of connections is full, and further ones get no answer. A name has
 * several addresses, and one time for all of them. */
START_TEST(status_waits_for_no_connection_for_ever)
{
    static const char *const options[] = { "--timeout", "0.05", NULL };
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr = { htonl(INADDR_LOOPBACK) } };
    g_autofree char *name = g_strdup_printf("localhost:%u", port);
    int fds[8];

    ck_assert_int_eq(listen(listener, 0), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(fds[i], (const struct sockaddr *)&address, sizeof address);
    }
    Command command = begin(_i == 0 ? NULL : name, options);
    expect(&command, EXIT_FAILURE, "", "has not answered within 0.05 s");
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++)
        close(fds[i]);
}
END_TEST

START_TEST(status_says_that_nothing_answers)
{
    close(listener);
    Command command = begin(NULL, _i == 0 ? NULL : often);
    expect(&command, EXIT_FAILURE, "", "nothing answers at ");
}
END_TEST

static const struct {
    const char *address;
    const char *options[3];
    const char *message;
} calls[] = {
    { "0", { NULL }, "\"0\" is no address of a node" },
    { "65536", { NULL }, "\"65536\" is no address of a node" },
    { "localhost", { NULL }, "\"localhost\" is no address of a node" },
    { "https://localhost:4119", { NULL }, "is no address of a node" },
    { "", { NULL }, "which run? rubato status PORT" },
    { "1", { "2" }, "takes one address" },
    { "1", { "--timeout", "0" }, "--timeout takes more than 0 seconds" },
    { "1", { "--timeout", "nan" }, "--timeout takes more than 0 seconds" },
    { "1", { "--watch", "-1" }, "--watch takes more than 0 seconds" },
    { "1", { "--watch", "1e9" }, "--watch takes more than 0 seconds" },
    { "1", { "--what" }, "Unknown option --what" },
};

START_TEST(status_refuses_a_wrong_command_line)
{
    Command command = begin(calls[_i].address, calls[_i].options);

    expect(&command, 2, "", calls[_i].message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *prints = tcase_create("prints"), *lies = tcase_create("liars");

    tcase_add_checked_fixture(prints, set_up, tear_down);
    tcase_add_test(prints, status_is_printed_as_tables);
    tcase_add_test(prints, status_says_that_a_task_waits_for_lost_workers);
    tcase_add_test(prints, status_is_asked_again_until_the_run_has_ended);
    tcase_add_test(prints, status_hears_the_end_while_it_waits);
    tcase_add_loop_test(prints, status_tells_an_end_from_a_connection_that_breaks, 0, 2);
    tcase_add_test(prints, status_of_a_run_that_breaks_at_its_end_exits_with_one);
    tcase_add_test(prints, status_that_is_watched_ends_with_an_error_that_is_no_end);
    tcase_add_test(prints, status_is_printed_as_it_came_for_machines);
    tcase_add_test(prints, status_of_another_node_names_the_scheduler_s);
    tcase_add_test(prints, status_tells_what_ends_early);
    tcase_add_test(prints, status_of_a_resumed_run_names_the_snapshot);
    tcase_add_test(prints, status_of_a_broken_run_exits_with_one);
    tcase_add_loop_test(prints, status_refuses_a_wrong_command_line, 0, G_N_ELEMENTS(calls));
    suite_add_tcase(suite, prints);
    tcase_add_checked_fixture(lies, set_up, tear_down);
    tcase_add_loop_test(lies, status_says_what_is_wrong_with_an_answer, 0, G_N_ELEMENTS(liars));
    tcase_add_test(lies, status_minds_no_member_of_another_type);
    tcase_add_test(lies, status_prints_no_command_of_a_terminal);
    tcase_add_test(lies, status_takes_no_lists_without_end);
    tcase_add_test(lies, status_takes_no_bytes_without_end);
    tcase_add_loop_test(lies, status_waits_for_nobody_for_ever, 0, 2);
    tcase_add_loop_test(lies, status_waits_for_no_connection_for_ever, 0, 2);
    tcase_add_loop_test(lies, status_says_that_nothing_answers, 0, 2);
    suite_add_tcase(suite, lies);
    return run_suite(suite);
}
