/* The scheduler's journal in a file: what a process that is killed leaves, what cannot be written,
 * a journal that begins again, and files that are none.
 *
 * The linker puts functions in the place of system calls: those of
 * tests/support/store/failing_calls.h, and flock. */
#include "engine/join/journal_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"
#include "tests/support/store/failing_calls.h"

static char *folder, *path, *beside;

static void setup(void)
{
    folder = make_folder();
    path = g_build_filename(folder, "journal", NULL);
    beside = journal_file_beside(path);
}

static void teardown(void)
{
    remove_folder(folder);
    g_clear_pointer(&folder, g_free);
    g_clear_pointer(&path, g_free);
    g_clear_pointer(&beside, g_free);
}

static JournalFile *open_file(JournalFileMode mode, uint64_t max_bytes)
{
    g_autoptr(GError) error = NULL;
    JournalFile *const file = journal_file_open(path, mode, "digest", max_bytes, &error);

    ck_assert_msg(file != NULL, "%s", error != NULL ? error->message : "no error");
    return file;
}

static bool add(JournalFile *file, const char *text)
{
    const SchedulerJournal journal = journal_file_journal(file);

    return journal.add(journal.user, text, strlen(text) + 1);
}

static bool begin_again(JournalFile *file, const char *text)
{
    const SchedulerJournal journal = journal_file_journal(file);

    return journal.begin_again(journal.user, text, strlen(text) + 1);
}

/* Records end with a zero byte, and "bad" makes no sense. */
static bool take(void *user, const void *record, size_t size)
{
    ck_assert_uint_eq(strlen(record) + 1, size);
    g_string_append_printf(user, "%s;", (const char *)record);
    return strcmp(record, "bad") != 0;
}

static void expect_records(JournalFile *file, const char *records)
{
    const SchedulerJournal journal = journal_file_journal(file);
    g_autoptr(GString) found = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    ck_assert_msg(journal.read(journal.user, take, found, &error), "%s",
                  error != NULL ? error->message : "no error");
    ck_assert_str_eq(found->str, records);
}

static void expect_unreadable(RubatoError code, const char *text)
{
    JournalFile *const file = open_file(JOURNAL_FILE_GO_ON, 0);
    const SchedulerJournal journal = journal_file_journal(file);
    g_autoptr(GString) found = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    ck_assert(!journal.read(journal.user, take, found, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, (int)code));
    ck_assert_msg(strstr(error->message, text) != NULL, "%s", error->message);
    journal_file_free(file);
}

static void write_journal(void)
{
    JournalFile *const file = open_file(JOURNAL_FILE_BEGIN, 0);

    ck_assert(add(file, "one") && add(file, "two"));
    journal_file_free(file);
}

START_TEST(next_process_reads_what_the_last_one_added_and_adds_to_it)
{
    write_journal();
    JournalFile *file = open_file(JOURNAL_FILE_GO_ON, 0);
    expect_records(file, "one;two;");
    ck_assert(add(file, "three"));
    journal_file_free(file);
    file = open_file(JOURNAL_FILE_GO_ON, 0);
    expect_records(file, "one;two;three;");
    journal_file_remove(file);
    journal_file_free(file);
    ck_assert(!g_file_test(path, G_FILE_TEST_EXISTS));
}
END_TEST

/* The file ends anywhere within the last record, or its bytes are others. */
START_TEST(record_that_was_not_written_to_its_end_is_cut_off)
{
    g_autofree char *bytes = NULL;
    gsize size;

    write_journal();
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    for (size_t left = size - 11; left <= size; left++) {
        bytes[size - 1] = left == size ? 'x' : '\0';
        ck_assert(g_file_set_contents(path, bytes, (gssize)left, NULL));
        JournalFile *file = open_file(JOURNAL_FILE_GO_ON, 0);
        expect_records(file, "one;");
        ck_assert(add(file, "next"));
        journal_file_free(file);
        file = open_file(JOURNAL_FILE_GO_ON, 0);
        expect_records(file, "one;next;");
        journal_file_free(file);
    }
}
END_TEST

START_TEST(journal_that_becomes_too_large_is_given_up)
{
    JournalFile *const file = open_file(JOURNAL_FILE_BEGIN, 100);
    g_autofree char *large = g_strnfill(90, 'x');
    g_autofree char *kept = g_strconcat(path, ".kept", NULL);

    ck_assert(add(file, "one"));
    ck_assert_int_eq(link(path, kept), 0); /* as a process that has it open */
    ck_assert(!add(file, large));
    journal_file_remove(file);
    journal_file_free(file);
    ck_assert(!g_file_test(path, G_FILE_TEST_EXISTS));
    ck_assert_int_eq(rename(kept, path), 0);
    expect_unreadable(RUBATO_ERROR_NODE_LOST, "was given up");
}
END_TEST

/* As on a disk that is full. */
START_TEST(journal_that_cannot_be_written_is_given_up)
{
    struct rlimit before, small;
    JournalFile *const file = open_file(JOURNAL_FILE_BEGIN, 0);

    ck_assert(add(file, "one"));
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){ 60, before.rlim_max };
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    const bool was_added = add(file, "a record that is longer than what is left of sixty bytes");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    ck_assert(!was_added);
    journal_file_free(file);
    expect_unreadable(RUBATO_ERROR_NODE_LOST, "was given up");
    ck_assert(journal_file_has_begun(path));
}
END_TEST

/* Nobody has heard of a run before there is a record. */
START_TEST(journal_has_begun_with_its_first_record)
{
    ck_assert(!journal_file_has_begun(path));
    JournalFile *file = open_file(JOURNAL_FILE_BEGIN, 0);
    ck_assert(!journal_file_has_begun(path));
    ck_assert(add(file, "one"));
    ck_assert(journal_file_has_begun(path));
    journal_file_free(file);
    ck_assert(g_file_set_contents(path, "", 0, NULL)); /* killed before it has written the title */
    ck_assert(!journal_file_has_begun(path));
    file = open_file(JOURNAL_FILE_GO_ON, 0);
    expect_records(file, "");
    journal_file_free(file);
}
END_TEST

START_TEST(journal_of_an_earlier_run_is_emptied_unless_it_is_written)
{
    journal_file_clear(path);
    ck_assert(!g_file_test(path, G_FILE_TEST_EXISTS));
    JournalFile *file = open_file(JOURNAL_FILE_BEGIN, 0);
    ck_assert(add(file, "one"));
    journal_file_clear(path);
    ck_assert(journal_file_has_begun(path));
    journal_file_free(file);
    ck_assert(journal_file_has_begun(path));
    journal_file_clear(path);
    ck_assert(!journal_file_has_begun(path));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    journal_file_clear(path); /* waits for nobody who reads */
}
END_TEST

/* ---- a journal that begins again ---- */

START_TEST(journal_begins_again_with_one_record)
{
    JournalFile *file = open_file(JOURNAL_FILE_BEGIN, 0);

    ck_assert(add(file, "one") && add(file, "two"));
    failing_calls_be_short(_i == 1);
    ck_assert(begin_again(file, "state") && add(file, "three"));
    failing_calls_be_short(false);
    expect_records(file, "state;three;");
    ck_assert(begin_again(file, "later state"));
    journal_file_free(file);
    ck_assert(!g_file_test(beside, G_FILE_TEST_EXISTS));
    file = open_file(JOURNAL_FILE_GO_ON, 0);
    expect_records(file, "later state;");
    journal_file_free(file);
}
END_TEST

/* In a process that can make no further call from the given one on, as if it were killed there.
 * Returns whether it had begun again. *is_over: no call was left that could fail. */
static bool begin_again_and_die(uint64_t at, bool *is_over)
{
    const pid_t child = fork();
    int status;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        JournalFile *const file = open_file(JOURNAL_FILE_GO_ON, 0);

        expect_records(file, "one;two;");
        failing_calls_begin(at, FAILING_REST, EIO);
        const bool has_begun = begin_again(file, "state");
        _exit(has_begun + 2 * !failing_calls_end());
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) < 4);
    *is_over = WEXITSTATUS(status) >= 2;
    return WEXITSTATUS(status) % 2 == 1;
}

START_TEST(process_that_ends_anywhere_while_it_begins_again_leaves_a_whole_journal)
{
    bool is_over = false, had_begun = false;

    for (uint64_t at = 0; !is_over; at++) {
        write_journal();
        const bool has_begun = begin_again_and_die(at, &is_over);
        JournalFile *file = open_file(JOURNAL_FILE_GO_ON, 0);

        ck_assert(has_begun || !had_begun);
        had_begun = has_begun;
        ck_assert(!g_file_test(beside, G_FILE_TEST_EXISTS));
        expect_records(file, has_begun ? "state;" : "one;two;");
        ck_assert(add(file, "next"));
        journal_file_free(file);
        file = open_file(JOURNAL_FILE_GO_ON, 0);
        expect_records(file, has_begun ? "state;next;" : "one;two;next;");
        journal_file_free(file);
    }
    ck_assert(had_begun);
}
END_TEST

START_TEST(journal_that_cannot_begin_again_goes_on)
{
    bool has_failed = true;

    for (uint64_t at = 0; has_failed; at++) {
        JournalFile *file = open_file(JOURNAL_FILE_BEGIN, 0);

        ck_assert(add(file, "one"));
        failing_calls_begin(at, FAILING_ONE, ENOSPC);
        const bool has_begun = begin_again(file, "state");
        has_failed = failing_calls_end();
        ck_assert(has_begun || has_failed);
        ck_assert(add(file, "two"));
        journal_file_free(file);
        ck_assert(!g_file_test(beside, G_FILE_TEST_EXISTS));
        file = open_file(JOURNAL_FILE_GO_ON, 0);
        expect_records(file, has_begun ? "state;two;" : "one;two;");
        journal_file_free(file);
    }
}
END_TEST

START_TEST(journal_whose_state_is_too_large_goes_on)
{
    JournalFile *const file = open_file(JOURNAL_FILE_BEGIN, 150);
    g_autofree char *large = g_strnfill(140, 'x');

    ck_assert(add(file, "one"));
    ck_assert(!begin_again(file, large));
    ck_assert(add(file, "two"));
    expect_records(file, "one;two;");
    journal_file_free(file);
}
END_TEST

/* What is done before a file is locked; NULL: nothing. */
static JournalFile *begins_now;

__typeof__(flock) __real_flock, __wrap_flock;

int __wrap_flock(int fd, int operation)
{
    JournalFile *const file = g_steal_pointer(&begins_now);

    if (file != NULL)
        ck_assert(begin_again(file, "state"));
    return __real_flock(fd, operation);
}

/* The second process has opened the file that loses its name before it takes the lock. */
START_TEST(journal_that_begins_again_belongs_to_one_process_at_a_time)
{
    JournalFile *const file = open_file(JOURNAL_FILE_BEGIN, 0);
    g_autoptr(GError) error = NULL;

    begins_now = file;
    ck_assert_ptr_null(journal_file_open(path, JOURNAL_FILE_GO_ON, "digest", 0, &error));
    ck_assert_ptr_null(begins_now);
    ck_assert_msg(strstr(error->message, "another process still writes") != NULL, "%s",
                  error->message);
    expect_records(file, "state;");
    journal_file_free(file);
}
END_TEST

START_TEST(journal_of_another_run_is_refused)
{
    ck_assert(g_file_set_contents(path, "rubato journal 1 digest\n", -1, NULL));
    expect_unreadable(RUBATO_ERROR_MISMATCH, "no journal of a scheduler with this cluster file");
}
END_TEST

START_TEST(record_that_makes_no_sense_is_told)
{
    JournalFile *const file = open_file(JOURNAL_FILE_BEGIN, 0);

    ck_assert(add(file, "one") && add(file, "bad") && add(file, "two"));
    journal_file_free(file);
    expect_unreadable(RUBATO_ERROR_FORMAT, "makes no sense");
}
END_TEST

START_TEST(journal_belongs_to_one_process_at_a_time)
{
    JournalFile *const file = open_file(JOURNAL_FILE_BEGIN, 0);
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(journal_file_open(path, JOURNAL_FILE_GO_ON, "digest", 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(strstr(error->message, "another process still writes") != NULL, "%s",
                  error->message);
    journal_file_free(file);
}
END_TEST

START_TEST(journal_that_is_not_there_is_told)
{
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(journal_file_open(path, JOURNAL_FILE_GO_ON, "digest", 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("journal_file");
    TCase *files = tcase_create("files");

    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, next_process_reads_what_the_last_one_added_and_adds_to_it);
    tcase_add_test(files, record_that_was_not_written_to_its_end_is_cut_off);
    tcase_add_test(files, journal_that_becomes_too_large_is_given_up);
    tcase_add_test(files, journal_that_cannot_be_written_is_given_up);
    tcase_add_test(files, journal_has_begun_with_its_first_record);
    tcase_add_test(files, journal_of_an_earlier_run_is_emptied_unless_it_is_written);
    tcase_add_test(files, journal_of_another_run_is_refused);
    tcase_add_test(files, record_that_makes_no_sense_is_told);
    tcase_add_test(files, journal_belongs_to_one_process_at_a_time);
    tcase_add_test(files, journal_that_is_not_there_is_told);
    suite_add_tcase(suite, files);

    TCase *again = tcase_create("again");

    tcase_add_checked_fixture(again, setup, teardown);
    tcase_add_loop_test(again, journal_begins_again_with_one_record, 0, 2);
    tcase_add_test(again, process_that_ends_anywhere_while_it_begins_again_leaves_a_whole_journal);
    tcase_add_test(again, journal_that_cannot_begin_again_goes_on);
    tcase_add_test(again, journal_whose_state_is_too_large_goes_on);
    tcase_add_test(again, journal_that_begins_again_belongs_to_one_process_at_a_time);
    suite_add_tcase(suite, again);
    return run_suite(suite);
}
