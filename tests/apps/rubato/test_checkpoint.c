/* The command `rubato checkpoint`, run as a user does. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/store/writer_lock.h"
#include "test_paths.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_chain.h"
#include "tests/support/store/small_snapshot.h"
#include <rubato/npy.h>

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-checkpoint-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

typedef struct {
    int status;
    char *out, *err;
} Said;

static void said_clear(Said *said)
{
    g_free(said->out);
    g_free(said->err);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Said, said_clear)

/* Runs `rubato checkpoint COMMAND DIRECTORY` and up to two more arguments. */
static Said run(const char *command, const char *first, const char *second)
{
    const char *const argv[] = {
        TEST_BIN_DIR "/rubato", "checkpoint", command, directory, first, second, NULL
    };
    g_autoptr(GError) error = NULL;
    Said said;

    ck_assert_msg(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL,
                               &said.out, &said.err, &said.status, &error),
                  "%s", error != NULL ? error->message : "");
    said.status = WEXITSTATUS(said.status);
    return said;
}

static void expect(const Said *said, int status, const char *out, const char *err)
{
    ck_assert_msg(said->status == status, "%d: %s%s", said->status, said->out, said->err);
    ck_assert_msg(strstr(said->out, out) != NULL, "%s", said->out);
    ck_assert_msg(strstr(said->err, err) != NULL, "%s", said->err);
}

static void write_one(uint64_t seed)
{
    uint64_t number;

    ck_assert(small_snapshot_write(directory, seed, RUBATO_PACKING_ZSTD, &number, NULL));
}

static void break_second(void)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 2);
    g_autofree char *path = snapshot_folder_part(folder, 1, 0);

    ck_assert(g_file_set_contents(path, "x", 1, NULL));
}

START_TEST(snapshots_are_listed_and_shown)
{
    write_one(1);
    write_one(2);
    g_auto(Said) listed = run("list", NULL, NULL);
    expect(&listed, 0, "     1  20", "");
    expect(&listed, 0, "3 tables  119 rows", "");
    ck_assert_ptr_nonnull(strstr(strstr(listed.out, "     1"), "     2")); /* the newest last */
    ck_assert_ptr_nonnull(strstr(listed.out, "epoch 3 of 4 [100 %]"));     /* on one line */
    g_auto(Said) shown = run("show", NULL, NULL);
    expect(&shown, 0, "snapshot 2, ", "");
    expect(&shown, 0, "  rows     40, f32 × 3\n  storage  dense of 40 keys from 0\n", "");
    expect(&shown, 0, "  rule     adagrad, 2 values of state\n  on disk", ""); /* no clock */
    expect(&shown, 0, "  clock    12, of the slowest worker\n  on disk", "");
    g_auto(Said) first = run("show", "1", NULL);
    expect(&first, 0, "snapshot 1, ", "");
}
END_TEST

START_TEST(damage_is_told_by_the_exit_status)
{
    write_one(1);
    write_one(2);
    g_auto(Said) good = run("verify", NULL, NULL);
    expect(&good, 0, "snapshot 1 is good\nsnapshot 2 is good\n", "");
    break_second();
    g_auto(Said) all = run("verify", NULL, NULL);
    expect(&all, 1, "snapshot 1 is good\n", "1.0.rows");
    ck_assert_ptr_null(strstr(all.out, "snapshot 2"));
    g_auto(Said) first = run("verify", "1", NULL);
    expect(&first, 0, "snapshot 1 is good\n", "");
    g_auto(Said) second = run("verify", "2", NULL);
    expect(&second, 1, "", "part 0");
}
END_TEST

/* Nothing lists it, and a run goes on from the one before. */
START_TEST(folder_without_a_manifest_is_told)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 2);
    g_autofree char *manifest = g_build_filename(folder, "manifest", NULL);

    write_one(1);
    write_one(2);
    ck_assert_int_eq(unlink(manifest), 0);
    g_auto(Said) all = run("verify", NULL, NULL);
    expect(&all, 1, "snapshot 1 is good\n", "snapshot 2 is not whole: it has no manifest");
}
END_TEST

/* The command stops where it tells of the first snapshot, because the pipe to it is full. */
static GPid begin_verify(int *out, int *err)
{
    const char *const argv[] = { TEST_BIN_DIR "/rubato", "checkpoint", "verify", directory, NULL };
    char zeros[4096] = "";
    int pipe_out[2];
    GPid pid;

    ck_assert_int_eq(pipe2(pipe_out, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(pipe_out[1], F_SETFL, O_NONBLOCK), 0);
    while (write(pipe_out[1], zeros, sizeof zeros) > 0)
        continue;
    ck_assert_int_eq(fcntl(pipe_out[1], F_SETFL, 0), 0);
    ck_assert(g_spawn_async_with_pipes_and_fds(NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL,
                                               NULL, -1, pipe_out[1], -1, NULL, NULL, 0, &pid, NULL,
                                               NULL, err, NULL));
    close(pipe_out[1]);
    *out = pipe_out[0];
    return pid;
}

/* (transfer full) */
static char *read_to_end(int fd)
{
    GString *const text = g_string_new(NULL);
    char some[4096];
    ssize_t n;

    while ((n = read(fd, some, sizeof some)) > 0)
        for (ssize_t i = 0; i < n; i++)
            if (some[i] != '\0')
                g_string_append_c(text, some[i]);
    close(fd);
    return g_string_free(text, FALSE);
}

/* As a run does that writes there: nothing is wrong with it. */
START_TEST(snapshot_that_is_removed_meanwhile_is_not_damaged)
{
    g_autofree char *first = snapshot_folder_whole(directory, 1);
    g_autofree char *second = snapshot_folder_whole(directory, 2);
    const int watch = inotify_init1(IN_CLOEXEC);
    char event[sizeof(struct inotify_event) + NAME_MAX + 1];
    int out, err, status;

    write_one(1);
    write_one(2);
    ck_assert_int_ge(inotify_add_watch(watch, first, IN_OPEN), 0);
    const GPid pid = begin_verify(&out, &err);
    ck_assert_int_gt(read(watch, event, sizeof event), 0); /* it knows of both by now */
    remove_tree(second);
    g_autofree char *told = read_to_end(out);
    g_autofree char *wrong = read_to_end(err);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_str_eq(told, "snapshot 1 is good\n");
    ck_assert_msg(strstr(wrong, "snapshot 2 was removed meanwhile\n") != NULL, "%s", wrong);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", wrong);
    close(watch);
}
END_TEST

START_TEST(nobody_compacts_while_a_run_writes)
{
    WriterLock *const lock = writer_lock_take(directory, "takes snapshots", NULL);
    uint64_t number;

    ck_assert_ptr_nonnull(lock);
    for (unsigned link = 0; link < 2; link++)
        ck_assert(small_chain_write(directory, link, link + 1, RUBATO_PACKING_NONE, &number, NULL));
    g_auto(Said) said = run("compact", NULL, NULL);
    expect(&said, 1, "", "this directory has a writer already: process ");
    writer_lock_release(lock);
    g_auto(Said) made = run("compact", NULL, NULL);
    expect(&made, 0, "snapshot 3 holds all rows\n", "");
}
END_TEST

START_TEST(loss_of_rounded_values_is_told)
{
    uint64_t number;

    write_one(1);
    ck_assert(small_snapshot_write(directory, 2, RUBATO_PACKING_BF16, &number, NULL));
    g_auto(Said) said = run("verify", NULL, NULL);
    expect(&said, 0, "snapshot 1 is good\nsnapshot 2 is good\n  table ", "");
    expect(&said, 0, ": rounding has lost ", "");
    g_auto(Said) shown = run("show", NULL, NULL);
    expect(&shown, 0, ", rounded to bf16\n", "");
}
END_TEST

START_TEST(rows_that_differ_are_counted)
{
    write_one(1);
    write_one(1 + 100); /* all values are others */
    g_auto(Said) other = run("diff", "1", "2");
    expect(&other, 1, "weights: of 40 rows 40 changed, 0 went, 0 came\n", "");
    g_auto(Said) same = run("diff", "2", "2");
    expect(&same, 0, "weights: the same 40 rows\n", "");
}
END_TEST

/* Row i of a file of f32. */
static void check_array(const char *name, uint64_t n, uint64_t width, float first)
{
    g_autofree char *path = g_build_filename(directory, "out", name, NULL);
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoNpy) npy = rubato_npy_open(path, &error);
    float value;

    ck_assert_msg(npy != NULL, "%s", error != NULL ? error->message : "");
    ck_assert(rubato_npy_check(npy, "<f4", 2, (const uint64_t[]){ n, width }, NULL));
    ck_assert(rubato_npy_read(npy, &value, sizeof value, NULL));
    ck_assert_msg(value == first, "%s begins with %g", name, (double)value);
}

/* All of a file of n 64-bit numbers. */
static void check_numbers(const char *name, const char *descr, uint64_t n, const uint64_t *numbers)
{
    g_autofree char *path = g_build_filename(directory, "out", name, NULL);
    g_autoptr(RubatoNpy) npy = rubato_npy_open(path, NULL);
    g_autofree uint64_t *read = g_new(uint64_t, n);

    ck_assert_msg(npy != NULL, "%s", name);
    ck_assert(rubato_npy_check(npy, descr, 1, &n, NULL));
    ck_assert(rubato_npy_read(npy, read, n * sizeof *read, NULL));
    ck_assert_mem_eq(read, numbers, n * sizeof *read);
}

START_TEST(tables_are_exported_as_arrays)
{
    g_autofree char *out = g_build_filename(directory, "out", NULL);

    write_one(8);
    g_auto(Said) said = run("export", "1", out);
    expect(&said, 0, "", "");
    check_numbers("adj [1].keys.npy", "<u8", 9, (const uint64_t[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8 });
    check_numbers("adj [1].offsets.npy", "<u8", 10,
                  (const uint64_t[]){ 0, 0, 1, 5, 7, 9, 13, 14, 14, 15 });
    check_numbers("adj [1].npy", "<i8", 15,
                  (const uint64_t[]){ 108, 208, 209, 210, 211, 308, 309, 408, 409, 508, 509, 510,
                                      511, 608, 808 });
    check_array("weights.npy", 40, 3, 31); /* 8 × 31 / 8, of key 0 */
    check_array("embeddings\xff%.npy", 70, 3, 31);
    check_array("embeddings\xff%.state.npy", 70, 2, 34.875f);
    g_auto(Said) again = run("export", "1", out);
    expect(&again, 1, "", "File exists");
}
END_TEST

/* A block of the second table is damaged; the first one's arrays have been written by then. A
 * folder that was there stays, with what is in it. */
START_TEST(export_that_fails_leaves_no_array)
{
    const bool is_there = _i == 1;
    g_autofree char *out = g_build_filename(directory, "out", NULL);
    g_autofree char *other = g_build_filename(out, "other", NULL);

    write_one(1);
    write_one(2);
    break_second();
    if (is_there)
        ck_assert(g_mkdir(out, 0777) == 0 && g_file_set_contents(other, "x", 1, NULL));
    g_auto(Said) said = run("export", "2", out);
    expect(&said, 1, "", "snapshot-000002/1.0.rows");
    g_autoptr(GDir) dir = g_dir_open(out, 0, NULL);
    ck_assert((dir != NULL) == is_there);
    if (is_there) {
        ck_assert_str_eq(g_dir_read_name(dir), "other");
        ck_assert_ptr_null(g_dir_read_name(dir));
    }
}
END_TEST

START_TEST(calls_that_make_no_sense_are_refused)
{
    write_one(1);
    g_auto(Said) unknown = run("mend", NULL, NULL);
    expect(&unknown, 2, "", "which command?");
    g_auto(Said) few = run("diff", "1", NULL);
    expect(&few, 2, "", "rubato checkpoint diff DIR A B");
    g_auto(Said) word = run("show", "one", NULL);
    expect(&word, 2, "", "found \"one\"");
    g_auto(Said) verified = run("verify", "0", NULL);
    expect(&verified, 2, "", "found \"0\"");
    g_auto(Said) compared = run("diff", "1", "two");
    expect(&compared, 2, "", "found \"two\"");
    g_auto(Said) exported = run("export", "1.5", directory);
    expect(&exported, 2, "", "found \"1.5\"");
    g_auto(Said) absent = run("show", "9", NULL);
    expect(&absent, 1, "", "snapshot-000009");
    remove_tree(directory);
    g_auto(Said) empty = run("list", NULL, NULL);
    expect(&empty, 1, "", "there is no snapshot in it");
}
END_TEST

START_TEST(chain_is_shown_compared_exported_and_made_one)
{
    g_autofree char *out = g_build_filename(directory, "out", NULL);
    uint64_t number;

    for (unsigned link = 0; link < 3; link++)
        ck_assert(small_chain_write(directory, link, link + 1, RUBATO_PACKING_NONE, &number, NULL));
    g_auto(Said) listed = run("list", NULL, NULL);
    expect(&listed, 0, "  on 2  a chain", "");
    g_auto(Said) shown = run("show", NULL, NULL);
    expect(&shown, 0, "holds what changed since snapshot 2, on which it builds\n", "");
    g_auto(Said) changed = run("diff", "2", "3");
    expect(&changed, 1, "range: of 100 rows 25 changed, 0 went, 0 came\n", "");
    expect(&changed, 1, "any: of 38 rows 8 changed, 2 went, 0 came\n", "");
    g_auto(Said) exported = run("export", "3", out);
    expect(&exported, 0, "", "");
    check_array("range.npy", 100, 1, 0);
    g_auto(Said) made = run("compact", "1", NULL);
    expect(&made, 0, "snapshot 4 holds all rows\n", "");
    g_auto(Said) good = run("verify", NULL, NULL);
    ck_assert_str_eq(good.out, "snapshot 4 is good\n"); /* it alone is left */
    g_auto(Said) wrong = run("compact", "x", NULL);
    expect(&wrong, 2, "", "expected how many snapshots to keep, found \"x\"");
}
END_TEST

/* The directory has no run. */
START_TEST(take_gives_up_where_no_run_is)
{
    g_auto(Said) said = run("take", "0.01", NULL);
    g_auto(Said) wrong = run("take", "soon", NULL);

    expect(&said, 1, "", "no run has taken a snapshot");
    expect(&wrong, 2, "", "expected a number of seconds, found \"soon\"");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rubato checkpoint");
    TCase *cases = tcase_create("commands");

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, snapshots_are_listed_and_shown);
    tcase_add_test(cases, damage_is_told_by_the_exit_status);
    tcase_add_test(cases, folder_without_a_manifest_is_told);
    tcase_add_test(cases, snapshot_that_is_removed_meanwhile_is_not_damaged);
    tcase_add_test(cases, nobody_compacts_while_a_run_writes);
    tcase_add_test(cases, loss_of_rounded_values_is_told);
    tcase_add_test(cases, rows_that_differ_are_counted);
    tcase_add_test(cases, tables_are_exported_as_arrays);
    tcase_add_loop_test(cases, export_that_fails_leaves_no_array, 0, 2);
    tcase_add_test(cases, chain_is_shown_compared_exported_and_made_one);
    tcase_add_test(cases, calls_that_make_no_sense_are_refused);
    tcase_add_test(cases, take_gives_up_where_no_run_is);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
