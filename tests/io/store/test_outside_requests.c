/* Requests for a snapshot from outside: what the side that asks hears, and what stays behind. */
#include "io/store/outside_requests.h"

#include <check.h>
#include <rubato/error.h>
#include <rubato/snapshot.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-requests-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static size_t count_files(void)
{
    GDir *const dir = g_dir_open(directory, 0, NULL);
    size_t n = 0;

    while (g_dir_read_name(dir) != NULL)
        n++;
    g_dir_close(dir);
    return n;
}

typedef struct {
    uint64_t number;
    GError *error;
} Answer;

static void *ask(void *data)
{
    Answer *const answer = data;

    (void)rubato_snapshot_ask(directory, G_MAXDOUBLE, &answer->number, &answer->error);
    return NULL;
}

/* Waits for a request, and answers it. */
static void answer_next(uint64_t number, const char *failure)
{
    g_autoptr(GPtrArray) ids = NULL;

    while (!rubato_snapshot_is_asked(directory))
        g_thread_yield();
    ids = outside_requests_list(directory);
    ck_assert_uint_eq(ids->len, 1);
    outside_requests_answer(directory, ids, number, failure);
}

START_TEST(who_asks_hears_the_number)
{
    Answer answer = { 0 };
    GThread *const asker = g_thread_new("asker", ask, &answer);

    answer_next(17, NULL);
    g_thread_join(asker);
    ck_assert_ptr_null(answer.error);
    ck_assert_uint_eq(answer.number, 17);
    ck_assert_uint_eq(count_files(), 0);
}
END_TEST

START_TEST(who_asks_hears_why_there_is_none)
{
    Answer answer = { 0 };
    GThread *const asker = g_thread_new("asker", ask, &answer);

    answer_next(0, "the disk is full");
    g_thread_join(asker);
    ck_assert(g_error_matches(answer.error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_ptr_nonnull(strstr(answer.error->message, "the disk is full"));
    ck_assert_uint_eq(answer.number, 0);
    ck_assert_uint_eq(count_files(), 0);
    g_error_free(answer.error);
}
END_TEST

START_TEST(request_that_nobody_answers_is_withdrawn)
{
    g_autoptr(GError) error = NULL;

    ck_assert(!rubato_snapshot_ask(directory, 0.001, NULL, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT));
    ck_assert_uint_eq(count_files(), 0);
}
END_TEST

/* A folder of such a name cannot be answered, nor removed. */
START_TEST(folder_is_no_request)
{
    g_autofree char *path = g_build_filename(directory, ".take-x", NULL);

    ck_assert_int_eq(mkdir(path, 0777), 0);
    ck_assert(!rubato_snapshot_is_asked(directory));
    g_autoptr(GPtrArray) ids = outside_requests_list(directory);
    ck_assert_uint_eq(ids->len, 0);
}
END_TEST

static void set_time(const char *path, time_t seconds)
{
    const struct utimbuf times = { .actime = seconds, .modtime = seconds };

    ck_assert_int_eq(utime(path, &times), 0);
}

/* As where the run may not remove what others have made. */
START_TEST(request_that_stays_behind_its_answer_asks_no_more)
{
    g_autofree char *request = g_build_filename(directory, ".take-x", NULL);
    g_autofree char *answer = g_build_filename(directory, ".taken-x", NULL);

    ck_assert(g_file_set_contents(request, "", 0, NULL));
    ck_assert(rubato_snapshot_is_asked(directory));
    ck_assert(g_file_set_contents(answer, "snapshot 1", -1, NULL));
    set_time(request, 1000);
    set_time(answer, 1001);
    ck_assert(!rubato_snapshot_is_asked(directory));
    set_time(request, 1002); /* again */
    ck_assert(rubato_snapshot_is_asked(directory));
}
END_TEST

/* As the run leaves it if the answer cannot be written. */
START_TEST(request_that_is_gone_without_an_answer_has_none)
{
    Answer answer = { 0 };
    GThread *const asker = g_thread_new("asker", ask, &answer);
    g_autoptr(GPtrArray) ids = NULL;

    while (!rubato_snapshot_is_asked(directory))
        g_thread_yield();
    ids = outside_requests_list(directory);
    g_autofree char *path =
        g_strdup_printf("%s/.take-%s", directory, (const char *)g_ptr_array_index(ids, 0));
    ck_assert_int_eq(unlink(path), 0);
    g_thread_join(asker);
    ck_assert(g_error_matches(answer.error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_ptr_nonnull(strstr(answer.error->message, "its log does"));
    g_error_free(answer.error);
}
END_TEST

START_TEST(request_needs_a_directory)
{
    g_autofree char *nowhere = g_build_filename(directory, "nowhere", NULL);
    g_autoptr(GError) error = NULL;

    ck_assert(!rubato_snapshot_is_asked(nowhere));
    ck_assert(!rubato_snapshot_ask(nowhere, 1, NULL, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
}
END_TEST

/* A request that was withdrawn gets no answer; an answer that nobody has read for ten minutes, as
 * the directory's clock has it, goes. */
START_TEST(nothing_stays_behind)
{
    const time_t year = 365 * 24 * 60 * 60, made = time(NULL) + year;
    const struct utimbuf now = { made, made }, old = { made - 601, made - 601 },
                         recent = { made - 600, made - 600 };
    g_autofree char *unread = g_build_filename(directory, ".taken-1", NULL);
    g_autofree char *fresh = g_build_filename(directory, ".taken-2", NULL);
    g_autoptr(GPtrArray) ids = g_ptr_array_new();

    g_ptr_array_add(ids, (char *)(uintptr_t) "3");
    outside_requests_answer(directory, ids, 1, NULL);
    ck_assert_uint_eq(count_files(), 0);
    ck_assert(g_file_set_contents(unread, "snapshot 1", -1, NULL));
    ck_assert(g_file_set_contents(fresh, "snapshot 2", -1, NULL));
    ck_assert_int_eq(utime(unread, &old), 0);
    ck_assert_int_eq(utime(fresh, &recent), 0);
    ck_assert_int_eq(utime(directory, &now), 0);
    outside_requests_tidy(directory);
    ck_assert_uint_eq(count_files(), 1);
    ck_assert(g_file_test(fresh, G_FILE_TEST_EXISTS));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("requests from outside");
    TCase *cases = tcase_create("requests");

    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, who_asks_hears_the_number);
    tcase_add_test(cases, who_asks_hears_why_there_is_none);
    tcase_add_test(cases, request_that_nobody_answers_is_withdrawn);
    tcase_add_test(cases, request_that_is_gone_without_an_answer_has_none);
    tcase_add_test(cases, folder_is_no_request);
    tcase_add_test(cases, request_that_stays_behind_its_answer_asks_no_more);
    tcase_add_test(cases, request_needs_a_directory);
    tcase_add_test(cases, nothing_stays_behind);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
