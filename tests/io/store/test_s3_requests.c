/* Requests for snapshots in a bucket of S3, by a real server: they are answered, and no call of the
 * run waits for S3. */
#include <pthread.h>
#include <rubato/error.h>
#include <rubato/snapshot.h>
#include <unistd.h>

#include "io/store/outside_requests.h"
#include "io/store/s3/s3_list.h"
#include "io/store/s3/s3_requests.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/s3_server.h"

/* Each case has a place of its own. */
static char *directory;

static void set_up(void)
{
    static int n_cases;

    directory = g_strdup_printf("s3://snapshots/requests/%d-%d", (int)getpid(), n_cases++);
    s3_server_be_good();
}

static void tear_down(void)
{
    g_clear_pointer(&directory, g_free);
}

/* How many requests and answers are there. */
static guint count_objects(void)
{
    g_auto(S3Path) path = { .bucket = NULL };
    g_autoptr(S3Client) client = s3_client_new(NULL);
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *before = NULL;

    ck_assert(client != NULL && s3_path_parse(directory, &path, NULL));
    before = s3_path_below(&path, ".take");
    ck_assert(s3_list(client, path.bucket, before, S3_LIST_MOST, keys, NULL, NULL));
    return keys->len;
}

typedef struct {
    uint64_t number;
    GError *error;
    bool ok;
} Asking;

static void *ask(void *data)
{
    Asking *const asking = data;

    asking->ok = rubato_snapshot_ask(directory, 60, &asking->number, &asking->error);
    return NULL;
}

/* By the run's side, as soon as it hears of the request. Only a look tells that there is one. */
static void answer(uint64_t number, const char *failure)
{
    g_autoptr(GPtrArray) ids = NULL;

    while (!rubato_snapshot_is_asked(directory))
        g_usleep(10 * 1000);
    ids = outside_requests_list(directory);
    ck_assert_uint_eq(ids->len, 1);
    outside_requests_answer(directory, ids, number, failure);
}

START_TEST(request_in_a_bucket_is_answered)
{
    Asking asking = { .number = 0 };
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, ask, &asking), 0);
    answer(7, _i == 0 ? NULL : "the disk is full");
    ck_assert(!rubato_snapshot_is_asked(directory)); /* it has its answer */
    pthread_join(thread, NULL);
    require_msg(asking.ok == (_i == 0), "%s", asking.ok ? "" : asking.error->message);
    if (_i == 0)
        ck_assert_uint_eq(asking.number, 7);
    else
        check_error(&asking.error, RUBATO_ERROR_IO, "the disk is full", NULL);
    g_clear_error(&asking.error);
    outside_requests_stop();
    ck_assert_uint_eq(count_objects(), 0);
}
END_TEST

/* A training program asks in front of its steps. */
START_TEST(nobody_waits_for_s3_to_hear_whether_somebody_asks)
{
    int64_t longest_us = 0;

    s3_server_fail("late", 0, 100); /* each request takes two seconds */
    for (int i = 0; i < 20; i++) {
        const int64_t began_us = g_get_monotonic_time();
        g_autoptr(GPtrArray) ids = outside_requests_list(directory);

        ck_assert(!rubato_snapshot_is_asked(directory));
        ck_assert_uint_eq(ids->len, 0);
        outside_requests_answer(directory, ids, 1, NULL);
        const int64_t took_us = g_get_monotonic_time() - began_us;
        longest_us = MAX(longest_us, took_us);
        g_usleep(5 * 1000); /* a step: the thread makes requests meanwhile */
    }
    ck_assert_int_lt(longest_us, G_USEC_PER_SEC);
    outside_requests_stop();
}
END_TEST

START_TEST(request_that_nobody_answers_is_withdrawn)
{
    g_autoptr(GError) error = NULL;

    ck_assert(!rubato_snapshot_ask(directory, 0.2, NULL, &error));
    check_error(&error, RUBATO_ERROR_TIMEOUT, "no run has taken a snapshot", NULL);
    ck_assert_uint_eq(count_objects(), 0);
}
END_TEST

/* Who asked may have been killed. The first answer is of an earlier run. */
START_TEST(answers_that_nobody_reads_are_removed)
{
    g_autoptr(GError) error = NULL;

    require_msg(s3_requests_put(directory, ".taken-0123456789abcdef", "snapshot 3", &error), "%s",
                error->message);
    ck_assert(s3_requests_put(directory, ".take-fedcba9876543210", "", &error));
    s3_requests_keep_answers(500);
    answer(7, NULL);
    while (count_objects() > 0) /* the case has a time limit */
        g_usleep(20 * 1000);
    outside_requests_stop();
    s3_requests_keep_answers((int64_t)10 * 60 * 1000);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("s3_requests");
    TCase *const cases = tcase_create("s3");
    int result;

    if (!s3_server_start()) {
        s3_server_stop();
        suite_add_tcase(suite, cases);
        return TEST_SKIPPED;
    }
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, request_in_a_bucket_is_answered, 0, 2);
    tcase_add_test(cases, nobody_waits_for_s3_to_hear_whether_somebody_asks);
    tcase_add_test(cases, request_that_nobody_answers_is_withdrawn);
    tcase_add_test(cases, answers_that_nobody_reads_are_removed);
    suite_add_tcase(suite, cases);
    result = run_suite(suite);
    s3_server_stop();
    return result;
}
