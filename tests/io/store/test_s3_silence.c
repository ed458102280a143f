/* A server of S3 that takes connections and does not answer: nobody waits for it for long, the log
 * says what is waited for, training goes on, and signals end a run. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rubato/error.h>
#include <rubato/snapshot.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/net/log_sink.h"
#include "io/store/s3/s3_client.h"
#include "test_paths.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

#define PLACE "s3://bucket/prefix"

enum { PATIENCE_MS = 1000 };

/* The kernel takes connections, as many as fit its queue. */
static int listener = -1;

static void set_up(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof address;

    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(listener >= 0 && bind(listener, (struct sockaddr *)&address, n) == 0 &&
              listen(listener, 64) == 0 &&
              getsockname(listener, (struct sockaddr *)&address, &n) == 0);
    g_autofree char *endpoint = g_strdup_printf("http://127.0.0.1:%u", ntohs(address.sin_port));
    g_setenv("AWS_ENDPOINT_URL", endpoint, TRUE);
    g_setenv("AWS_ACCESS_KEY_ID", "key", TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", "secret", TRUE);
    g_setenv("no_proxy", "127.0.0.1", TRUE);
    g_unsetenv("AWS_ENDPOINT_URL_S3");
}

static void tear_down(void)
{
    close(listener);
    s3_client_set_patience((int64_t)20 * 1000);
}

/* How many connections have come. */
static unsigned count_connections(void)
{
    unsigned n = 0;
    int one;

    ck_assert_int_eq(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
    while ((one = accept(listener, NULL, NULL)) >= 0) {
        close(one);
        n++;
    }
    return n;
}

static void take_line(const char *domain, GLogLevelFlags level, const char *text, void *lines)
{
    (void)domain, (void)level;
    g_string_append_printf(lines, "%s\n", text);
}

START_TEST(server_that_does_not_answer_is_given_up)
{
    g_autoptr(GString) lines = g_string_new(NULL);
    g_autofree uint64_t *numbers = NULL;
    g_autoptr(GError) error = NULL;
    size_t n;

    s3_client_set_patience(PATIENCE_MS);
    const guint handler =
        g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_MASK | G_LOG_FLAG_RECURSION, take_line, lines);
    const int64_t began_us = g_get_monotonic_time();
    ck_assert(!rubato_snapshot_list(PLACE, &numbers, &n, &error));
    const int64_t took_ms = (g_get_monotonic_time() - began_us) / 1000;
    g_log_remove_handler(G_LOG_DOMAIN, handler);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(strstr(error->message, "nothing has come from there for ") != NULL, "%s",
                  error->message);
    ck_assert_msg(strstr(lines->str, "s3://bucket cannot be listed yet: waits for http://127.0.0."
                                     "1:") == lines->str &&
                      strchr(lines->str, '\n') == lines->str + lines->len - 1,
                  "%s", lines->str);
    const unsigned n_tries = count_connections();
    /* a busy machine may notice so late that the first try was given up that no patience is left */
    ck_assert_msg(n_tries == 2 || (n_tries == 1 && took_ms >= PATIENCE_MS * 3 / 2),
                  "%u tries in %d ms", n_tries, (int)took_ms);
}
END_TEST

/* What may be left undone has one try, which waits for less. */
START_TEST(who_hurries_tries_once)
{
    const S3Request request = { .method = S3_GET, .bucket = "bucket", .what = "listed" };
    g_autoptr(S3Client) client = s3_client_new(NULL);
    g_autoptr(GError) error = NULL;
    _Atomic bool hurries = false;

    s3_client_set_patience((int64_t)4 * PATIENCE_MS);
    if (_i == 0) {
        s3_client_hurry(client);
    } else {
        s3_client_hurry_when(client, &hurries);
        hurries = true;
    }
    const int64_t began_us = g_get_monotonic_time();
    ck_assert(!s3_client_do(client, &request, &error));
    ck_assert_int_lt(g_get_monotonic_time() - began_us, (int64_t)4 * PATIENCE_MS * 1000);
    ck_assert_uint_eq(count_connections(), 1);
}
END_TEST

/* Less than one try otherwise does. */
START_TEST(who_was_asked_to_end_waits_for_less)
{
    const S3Request request = { .method = S3_GET, .bucket = "bucket", .what = "listed" };
    g_autoptr(S3Client) client = s3_client_new(NULL);
    g_autoptr(GError) error = NULL;
    const _Atomic bool is_asked = true;
    const LogSink sink = { .is_asked = &is_asked };

    s3_client_set_patience((int64_t)8 * PATIENCE_MS);
    LOG_SINK_SCOPE(&sink);
    const int64_t began_us = g_get_monotonic_time();
    ck_assert(!s3_client_do(client, &request, &error));
    ck_assert_int_lt(g_get_monotonic_time() - began_us, (int64_t)8 * PATIENCE_MS * 1000);
    ck_assert_msg(strstr(error->message, "nothing has come from there for ") != NULL, "%s",
                  error->message);
}
END_TEST

/* ---- programs ---- */

typedef struct {
    GPid pid;
    FILE *said;
    char *rows;
} Run;

static Run start(void)
{
    g_autofree char *folder = g_dir_make_tmp("rubato-silence-XXXXXX", NULL);
    Run run = { .rows = g_build_filename(folder, "rows.svm", NULL) };
    const char *const argv[] = { TEST_BIN_DIR "/rubato-lr",
                                 "--train",
                                 run.rows,
                                 "--epochs=100000000",
                                 "--workers=2",
                                 "--checkpoint",
                                 PLACE,
                                 "--checkpoint-every=0.1s",
                                 NULL };
    int err;

    ck_assert(g_file_set_contents(run.rows, "1 1:1\n-1 2:1\n1 3:1\n-1 1:1 2:1\n", -1, NULL));
    ck_assert(g_spawn_async_with_pipes(NULL, (char **)(uintptr_t)argv, NULL,
                                       G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                                       NULL, &run.pid, NULL, NULL, &err, NULL));
    run.said = fdopen(err, "r");
    return run;
}

/* Reads what it says until a line has the text; then its progress is read no more by that call. */
static void await_text(const Run *run, const char *text)
{
    char line[1024];

    do
        ck_assert_msg(fgets(line, sizeof line, run->said) != NULL, "no line with \"%s\"", text);
    while (strstr(line, text) == NULL);
}

/* What it still says is read, so that it does not wait for room in the pipe. */
static void expect_end(Run *run)
{
    g_autofree char *folder = g_path_get_dirname(run->rows);
    char line[1024];
    int status;

    while (fgets(line, sizeof line, run->said) != NULL)
        continue;
    fclose(run->said);
    ck_assert_int_eq(waitpid(run->pid, &status, 0), run->pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM, "%d", status);
    remove_tree(folder);
    g_free(run->rows);
}

/* It asks what is in the bucket. */
START_TEST(signal_ends_a_run_that_waits_at_its_start)
{
    Run run = start();
    const int one = accept(listener, NULL, NULL);

    ck_assert_int_ge(one, 0);
    ck_assert_int_eq(kill(run.pid, SIGTERM), 0);
    expect_end(&run);
    close(one);
}
END_TEST

/* The answer to the first request: nothing is there. */
static void answer_one(void)
{
    static const char body[] = "<ListBucketResult><IsTruncated>false</IsTruncated>"
                               "</ListBucketResult>";
    g_autofree char *answer =
        g_strdup_printf("HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %zu\r"
                        "\nConnection: close\r\n\r\n%s",
                        strlen(body), body);
    g_autoptr(GString) asked = g_string_new(NULL);
    const int one = accept(listener, NULL, NULL);
    char bytes[4096];

    ck_assert_int_ge(one, 0);
    while (strstr(asked->str, "\r\n\r\n") == NULL) {
        const ssize_t n = read(one, bytes, sizeof bytes);

        ck_assert_int_gt(n, 0);
        g_string_append_len(asked, bytes, n);
    }
    ck_assert_int_eq(write(one, answer, strlen(answer)), (ssize_t)strlen(answer));
    close(one);
}

/* One connection is of the thread that looks for requests, the other one of a snapshot. The first
 * signal asks for another snapshot, which waits for the server in vain; the second ends the run. */
START_TEST(training_goes_on_meanwhile_and_signals_end_it)
{
    Run run = start();
    int silent[2];

    answer_one();
    for (size_t i = 0; i < G_N_ELEMENTS(silent); i++) {
        silent[i] = accept(listener, NULL, NULL);
        ck_assert_int_ge(silent[i], 0);
    }
    for (unsigned i = 0; i < 3; i++)
        await_text(&run, "epoch ");
    ck_assert_int_eq(kill(run.pid, SIGTERM), 0);
    await_text(&run, "another signal ends the run without that");
    ck_assert_int_eq(kill(run.pid, SIGTERM), 0);
    expect_end(&run);
    for (size_t i = 0; i < G_N_ELEMENTS(silent); i++)
        close(silent[i]);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("s3_silence");
    TCase *const cases = tcase_create("silence");
    g_autoptr(GError) error = NULL;

    g_setenv("AWS_ACCESS_KEY_ID", "key", TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", "secret", TRUE);
    g_autoptr(S3Client) client = s3_client_new(&error);
    if (client == NULL) {
        printf("skipped: %s\n", error->message);
        suite_add_tcase(suite, cases);
        return TEST_SKIPPED;
    }
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 40);
    tcase_add_test(cases, server_that_does_not_answer_is_given_up);
    tcase_add_loop_test(cases, who_hurries_tries_once, 0, 2);
    tcase_add_test(cases, who_was_asked_to_end_waits_for_less);
    tcase_add_test(cases, signal_ends_a_run_that_waits_at_its_start);
    tcase_add_test(cases, training_goes_on_meanwhile_and_signals_end_it);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
