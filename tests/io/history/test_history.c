/* The file of a history: a folder that cannot be written is refused, a disk that is full loses no
 * run. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rubato/error.h>

#include "io/history/history.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static char *folder, *path;

static void make_folder(void)
{
    folder = g_dir_make_tmp("history-XXXXXX", NULL);
    path = g_strdup_printf("%s/node-7.history", folder);
}

static void remove_folder(void)
{
    g_unlink(path);
    g_rmdir(folder);
    g_free(path);
    g_free(folder);
}

static uint32_t state_of_file(gsize *size)
{
    g_autofree char *bytes = NULL;
    uint32_t state;

    ck_assert(g_file_get_contents(path, &bytes, size, NULL));
    ck_assert_uint_ge(*size, 64);
    memcpy(&state, bytes + 8, sizeof state);
    return state;
}

/* Of rows that nothing packs: 416 bytes each, or a few more of the number. */
static void note_adds(History *history, size_t n)
{
    const HistoryIdentity identity = { .epoch = 1, .table = 2, .dtype = RUBATO_F32, .width = 1 };
    HistoryStream *stream = history_stream_new(history, &identity);
    float rows[100];

    for (size_t i = 0; i < 100; i++)
        rows[i] = .01F * (float)(i + 1);
    for (size_t i = 0; i < n; i++)
        history_note(stream, &(HistoryRecord){ .kind = HISTORY_ADD,
                                               .n_adds = i,
                                               .keys = &(RubatoKeys){ .first = i, .n = 100 },
                                               .rows = rows });
    history_stream_free(stream);
}

START_TEST(a_folder_that_cannot_be_written_is_refused)
{
    g_autofree char *below = g_strdup_printf("%s/x", path);
    GError *error = NULL;

    ck_assert(g_file_set_contents(path, "", 0, NULL));
    ck_assert_ptr_null(history_open(below, 7, 1, &error));
    check_error(&error, RUBATO_ERROR_IO, "cannot make", NULL);
    ck_assert_ptr_null(history_open(folder, 7, 1, &error));
    check_error(&error, RUBATO_ERROR_IO, "a folder of its own", NULL);
}
END_TEST

START_TEST(each_record_is_written)
{
    History *history = history_open(folder, 7, 1, NULL);
    gsize size;

    ck_assert_ptr_nonnull(history);
    ck_assert_uint_eq(state_of_file(&size), 3);
    history_say(history, "task 1 at 2 train\n"); /* no request */
    ck_assert_uint_eq(state_of_file(&size), 3);
    note_adds(history, 10000);
    ck_assert_uint_eq(state_of_file(&size), 0);
    history_close(history);
    ck_assert_uint_eq(state_of_file(&size), 1);
    ck_assert_uint_ge(size, 64 + 10000 * 416);
}
END_TEST

/* A chunk's header; packed records of 100 rows that are alike. */
enum { HEADER = 32, WITH_KEYS = 24, WITHOUT_KEYS = 16, OF_CLOCK = 8 };

/* Of the record behind the file's first bytes, and a chunk's header. */
static void check_record(const char *bytes, size_t at, HistoryKind kind, unsigned flags)
{
    const char *const record = bytes + 64 + HEADER + at;

    ck_assert_uint_eq((uint8_t)record[0], (unsigned)kind | HISTORY_PACKED);
    ck_assert_uint_eq((uint8_t)record[1], flags);
}

/* The second Add is of another clock than the Clock before it. */
START_TEST(a_clock_goes_with_the_request_behind_it)
{
    static const float rows[100];
    const RubatoKeys keys = { .first = 5, .n = 100 };
    const HistoryIdentity identity = { .epoch = 1, .table = 2, .dtype = RUBATO_F32, .width = 1 };
    History *history = history_open(folder, 7, 1, NULL);
    HistoryStream *stream = history_stream_new(history, &identity);
    HistoryRecord get = { .kind = HISTORY_GET, .keys = &keys, .rows = rows };
    HistoryRecord clock = { .kind = HISTORY_CLOCK, .clock = 1 };
    g_autofree char *bytes = NULL;
    size_t at = 0;
    gsize size;

    history_note(stream, &get);
    history_note(stream, &clock);
    get.clock = 1;
    history_note(stream, &get);
    clock.clock = 2;
    history_note(stream, &clock);
    history_note(stream, &get);
    clock.clock = 3;
    history_note(stream, &clock);
    history_stream_free(stream);
    history_close(history);
    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    check_record(bytes, at, HISTORY_GET, HISTORY_RUN_OF_KEYS);
    at += WITH_KEYS;
    check_record(bytes, at, HISTORY_GET, HISTORY_RUN_OF_KEYS | HISTORY_SAME_KEYS | HISTORY_CLOCKED);
    at += WITHOUT_KEYS;
    check_record(bytes, at, HISTORY_CLOCK, HISTORY_RUN_OF_KEYS);
    at += OF_CLOCK;
    check_record(bytes, at, HISTORY_GET, HISTORY_RUN_OF_KEYS | HISTORY_SAME_KEYS);
    at += WITHOUT_KEYS;
    check_record(bytes, at, HISTORY_CLOCK, HISTORY_RUN_OF_KEYS);
    ck_assert_uint_eq(size, 64 + HEADER + at + OF_CLOCK);
}
END_TEST

/* The writer rests between them, now for a while and now until it is woken. */
START_TEST(what_is_handed_over_is_written_though_nobody_asks_for_it)
{
    History *history = history_open(folder, 7, 1, NULL);
    gsize size, before;

    ck_assert_ptr_nonnull(history);
    (void)state_of_file(&before);
    for (unsigned i = 0; i < 20; i++, before = size) {
        note_adds(history, 1);
        do /* ends: a writer that naps looks again, and one that sleeps was woken */
            (void)state_of_file(&size);
        while (size < before + 32 + 416);
        for (unsigned j = 0; j < i; j++)
            g_usleep(500); /* so that it has napped, or sleeps; any number of times is right */
    }
    history_close(history);
}
END_TEST

static unsigned n_said;

static GLogWriterOutput count_warnings(GLogLevelFlags level, const GLogField *fields, gsize n,
                                       gpointer data)
{
    (void)data;
    for (gsize i = 0; i < n; i++)
        n_said += (level & G_LOG_LEVEL_WARNING) && g_str_equal(fields[i].key, "MESSAGE") &&
                  strstr(fields[i].value, "INCOMPLETE") != NULL;
    return G_LOG_WRITER_HANDLED;
}

/* 4.4 MB of records, and a file that takes one of them. */
START_TEST(a_full_disk_is_said_once_and_marked_in_the_file)
{
    const struct rlimit limit = { 1 << 20, 1 << 20 };
    History *history = history_open(folder, 7, 1, NULL);
    gsize size;

    ck_assert_ptr_nonnull(history);
    g_log_set_writer_func(count_warnings, NULL, NULL);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    note_adds(history, 10000);
    history_close(history);
    ck_assert_uint_eq(n_said, 1);
    ck_assert_uint_eq(state_of_file(&size), 2);
    ck_assert_uint_le(size, 1 << 20);
    ck_assert_uint_gt(size, 1 << 19); /* what was written before is there */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history");
    TCase *tcase = tcase_create("file");

    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, a_folder_that_cannot_be_written_is_refused);
    tcase_add_test(tcase, each_record_is_written);
    tcase_add_test(tcase, a_clock_goes_with_the_request_behind_it);
    tcase_add_test(tcase, what_is_handed_over_is_written_though_nobody_asks_for_it);
    tcase_add_test(tcase, a_full_disk_is_said_once_and_marked_in_the_file);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
