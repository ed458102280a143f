/* Programs whose output cannot be written, and programs whose input never ends. */
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/runner.h"

/* Runs a line of sh in the folder of the programs. Returns its exit code. (*err: transfer full) */
static int run_line(const char *line, char **err)
{
    const char *const argv[] = { "/bin/sh", "-c", line, NULL };
    g_autoptr(GError) error = NULL;
    int status = 0;

    ck_assert_msg(g_spawn_sync(TEST_BIN_DIR, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL,
                               NULL, NULL, err, &status, &error),
                  "%s", error != NULL ? error->message : "");
    ck_assert_msg(WIFEXITED(status), "%s ended by %d", line, status);
    return WEXITSTATUS(status);
}

static const char *const lines[] = {
    "./rubato --help",
    "./rubato --version",
    "./rubato help run",
    "./rubato check " TEST_SOURCE_DIR "/config/pair.cfg",
    "./rubato-hello",
    "./rubato-lr --help",
    "./rubato-softmax --generated --epochs 0",
    "./rubato-softmax --generated --epochs 0 --json -",
    "./rubato-bench --list",
};

START_TEST(output_that_finds_no_room_is_an_error)
{
    g_autofree char *line = g_strconcat("exec ", lines[_i], " > /dev/full", NULL);
    g_autofree char *err = NULL;

    ck_assert_int_ne(run_line(line, &err), 0);
    ck_assert_msg(strstr(err, "written") != NULL || strstr(err, "No space left") != NULL, "%s",
                  err);
}
END_TEST

START_TEST(a_cluster_file_that_is_a_pipe_is_refused)
{
    g_autofree char *folder = make_folder();
    g_autofree char *path = g_build_filename(folder, "fifo", NULL);
    g_autofree char *line = g_strconcat("exec ./rubato check ", path, NULL);
    g_autofree char *err = NULL;

    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(run_line(line, &err), 1);
    ck_assert_msg(strstr(err, path) != NULL && strstr(err, "is a pipe") != NULL, "%s", err);
    remove_folder(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("output of programs");
    TCase *output = cluster_add_case(suite, "output");

    tcase_add_loop_test(output, output_that_finds_no_room_is_an_error, 0, G_N_ELEMENTS(lines));
    tcase_add_test(output, a_cluster_file_that_is_a_pipe_is_refused);
    return run_suite(suite);
}
