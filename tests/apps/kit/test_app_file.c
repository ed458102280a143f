/* The files that flags name: whole files are replaced, everything else is written into. */
#include <fcntl.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/kit/report/app_file.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

static char *folder, *path; /* the case's folder, and a file in it */

static void set_up(void)
{
    folder = make_folder();
    path = g_build_filename(folder, "out", NULL);
}

static void tear_down(void)
{
    remove_folder(folder);
    g_free(path);
    g_free(folder);
}

static void expect_contents(const char *expected)
{
    g_autofree char *text = NULL;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    ck_assert_str_eq(text, expected);
}

static bool write_half(FILE *file, void *data, GError **error)
{
    (void)data;
    fputs("half", file);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "no more");
    return false;
}

START_TEST(a_file_is_replaced_whole_or_not_at_all)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GDir) dir = NULL;

    ck_assert(app_file_write_text("--json", path, "an older and longer one", NULL));
    ck_assert(app_file_write_text("--json", path, "whole", NULL));
    expect_contents("whole");
    ck_assert(!app_file_write("--json", path, write_half, NULL, &error));
    ck_assert_str_eq(error->message, "no more");
    expect_contents("whole");
    dir = g_dir_open(folder, 0, NULL);
    ck_assert_str_eq(g_dir_read_name(dir), "out");
    ck_assert_ptr_null(g_dir_read_name(dir));
}
END_TEST

START_TEST(a_pipe_is_written_into)
{
    char text[16] = "";
    struct stat status;

    ck_assert_int_eq(mkfifo(path, 0600), 0);
    const int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(reader, 0);
    ck_assert(app_file_check("--json", path, NULL));
    ck_assert(app_file_write_text("--json", path, "whole", NULL));
    ck_assert_int_eq(read(reader, text, sizeof text - 1), 5);
    ck_assert_str_eq(text, "whole");
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert(S_ISFIFO(status.st_mode));
    close(reader);
}
END_TEST

START_TEST(a_device_is_written_into)
{
    g_autoptr(GError) error = NULL;

    ck_assert_int_eq(symlink("/dev/full", path), 0);
    ck_assert(app_file_check("--json", path, NULL));
    ck_assert(!app_file_write_text("--json", path, "whole", &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(g_str_has_prefix(error->message, "--json ") &&
                      strstr(error->message, "No space left") != NULL,
                  "%s", error->message);
    ck_assert(g_file_test(path, G_FILE_TEST_IS_SYMLINK));
}
END_TEST

static const struct {
    int fd;
    const char *link; /* as /dev/stdout and /dev/stderr are; NULL: "-" */
} streams[] = { { STDOUT_FILENO, NULL },
                { STDOUT_FILENO, "/proc/self/fd/1" },
                { STDERR_FILENO, "/proc/self/fd/2" } };

/* Also if the stream is a regular file: what it has already stays before. */
START_TEST(a_standard_stream_goes_on)
{
    g_autofree char *link = g_build_filename(folder, "link", NULL);
    const char *name = streams[_i].link == NULL ? "-" : link;
    const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    ck_assert_int_ge(file, 0);
    (void)fflush(NULL);
    ck_assert_int_ge(dup2(file, streams[_i].fd), 0);
    if (streams[_i].link != NULL)
        ck_assert_int_eq(symlink(streams[_i].link, link), 0);
    fputs("before, ", streams[_i].fd == STDOUT_FILENO ? stdout : stderr);
    ck_assert(app_file_check("--json", name, NULL));
    ck_assert(app_file_write_text("--json", name, "after", NULL));
    expect_contents("before, after");
    close(file);
}
END_TEST

START_TEST(a_folder_is_refused)
{
    g_autoptr(GError) error = NULL;

    ck_assert(app_file_check("--json", NULL, NULL));
    ck_assert(!app_file_check("--json", folder, &error));
    ck_assert_msg(strstr(error->message, "is a folder; name a file") != NULL, "%s", error->message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("files of flags");
    TCase *tcase = tcase_create("files");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_file_is_replaced_whole_or_not_at_all);
    tcase_add_test(tcase, a_pipe_is_written_into);
    tcase_add_test(tcase, a_device_is_written_into);
    tcase_add_loop_test(tcase, a_standard_stream_goes_on, 0, (int)G_N_ELEMENTS(streams));
    tcase_add_test(tcase, a_folder_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
