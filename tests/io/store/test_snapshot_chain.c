/* Snapshots that build on others: what is written comes back; what is torn, flipped or missing is
 * named, wherever in the chain it lies; what others build on is not removed. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/store/failing_calls.h"
#include "tests/support/store/small_chain.h"
#include "tests/support/store/small_snapshot.h"

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-chain-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

/* Snapshot number link + 1, if they are the first. */
static void write_link(unsigned link, RubatoPacking packing)
{
    g_autoptr(GError) error = NULL;
    uint64_t number;

    ck_assert_msg(small_chain_write(directory, link, 100 + link, packing, &number, &error), "%s",
                  error != NULL ? error->message : "");
}

static void write_chain(RubatoPacking packing)
{
    for (unsigned link = 0; link <= SMALL_CHAIN_LINKS; link++)
        write_link(link, packing);
}

static void expect_list(size_t n_expected, const uint64_t *expected)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_eq(n, n_expected);
    ck_assert_mem_eq(numbers, expected, n * sizeof *numbers);
}

START_TEST(each_link_has_the_rows_as_they_were)
{
    write_chain(_i == 0 ? RUBATO_PACKING_NONE : RUBATO_PACKING_ZSTD);
    for (unsigned link = 0; link <= SMALL_CHAIN_LINKS; link++) {
        g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, link + 1, NULL);

        small_chain_check(directory, link + 1, link);
        ck_assert_uint_eq(rubato_snapshot_base(snapshot), link);
    }
    small_chain_check(directory, 0, SMALL_CHAIN_LINKS);
}
END_TEST

START_TEST(compaction_leaves_the_same_rows_in_one)
{
    const uint64_t keep = (uint64_t)_i;
    uint64_t number = 0;

    write_chain(RUBATO_PACKING_ZSTD);
    ck_assert(rubato_snapshot_compact(directory, (uint32_t)keep, &number, NULL));
    ck_assert_uint_eq(number, SMALL_CHAIN_LINKS + 2);
    small_chain_check(directory, number, SMALL_CHAIN_LINKS);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, NULL);
    ck_assert_uint_eq(rubato_snapshot_base(snapshot), 0);
    ck_assert_str_eq(rubato_snapshot_note(snapshot), "a chain");
    if (keep == 1)
        expect_list(1, &number);
    else
        small_chain_check(directory, SMALL_CHAIN_LINKS + 1, SMALL_CHAIN_LINKS);
    /* There is nothing more to do. */
    ck_assert(rubato_snapshot_compact(directory, 0, &number, NULL));
    ck_assert_uint_eq(number, SMALL_CHAIN_LINKS + 2);
}
END_TEST

START_TEST(what_others_build_on_is_kept)
{
    uint64_t number;

    write_chain(RUBATO_PACKING_NONE);
    ck_assert(snapshot_folder_keep(directory, 1, NULL));
    expect_list(4, (const uint64_t[]){ 1, 2, 3, 4 });
    ck_assert(small_chain_write(directory, 0, 200, RUBATO_PACKING_NONE, &number, NULL));
    ck_assert(small_chain_write(directory, 1, 201, RUBATO_PACKING_NONE, &number, NULL));
    ck_assert(snapshot_folder_keep(directory, 3, NULL)); /* 4 is one of them */
    expect_list(6, (const uint64_t[]){ 1, 2, 3, 4, 5, 6 });
    ck_assert(small_chain_write(directory, 0, 202, RUBATO_PACKING_NONE, &number, NULL));
    ck_assert(snapshot_folder_keep(directory, 2, NULL)); /* 6 and 7, and what 6 needs */
    expect_list(3, (const uint64_t[]){ 5, 6, 7 });
    small_chain_check(directory, 6, 1);
}
END_TEST

START_TEST(nothing_is_removed_before_a_link_that_cannot_be_read)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 4);
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autoptr(GError) error = NULL;

    write_chain(RUBATO_PACKING_NONE);
    ck_assert(g_file_set_contents(path, "no manifest", -1, NULL));
    ck_assert(!snapshot_folder_keep(directory, 1, &error));
    ck_assert_msg(strstr(error->message, path) != NULL, "%s", error->message);
    expect_list(4, (const uint64_t[]){ 1, 2, 3, 4 });
}
END_TEST

/* ---- damage ---- */

static void expect_damage(uint64_t number, const char *what, const char *named)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, &error);
    const bool is_good = snapshot != NULL && rubato_snapshot_verify(snapshot, &error);

    require_msg(!is_good, "%s, and nothing was found", what);
    require_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT) ||
                    g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO),
                "%s", error->message);
    require_msg(strstr(error->message, named) != NULL, "%s is not named: %s", named,
                error->message);
}

START_TEST(missing_link_is_named)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 2);

    write_chain(RUBATO_PACKING_NONE);
    remove_tree(folder);
    small_chain_check(directory, 1, 0);
    expect_damage(3, "snapshot 2 is gone", "snapshot 3 builds on snapshot 2");
    expect_damage(4, "snapshot 2 is gone", "snapshot 3 builds on snapshot 2");
}
END_TEST

START_TEST(link_in_the_place_of_another_is_refused)
{
    g_autofree char *third = snapshot_folder_whole(directory, 3);
    g_autofree char *fourth = snapshot_folder_whole(directory, 4);

    write_chain(RUBATO_PACKING_NONE);
    remove_tree(third);
    ck_assert_int_eq(rename(fourth, third), 0); /* it builds on another one's seed */
    expect_damage(3, "it is another one", "");
}
END_TEST

/* Its own files are good, and its rows are not those on which the next one builds. */
START_TEST(base_that_was_written_again_is_refused)
{
    g_autofree char *first = snapshot_folder_whole(directory, 1);
    g_autofree char *third = snapshot_folder_whole(directory, 3);
    uint64_t number;

    write_link(0, RUBATO_PACKING_NONE);
    write_link(1, RUBATO_PACKING_NONE);
    ck_assert(small_chain_write(directory, 0, 300, RUBATO_PACKING_NONE, &number, NULL));
    ck_assert_uint_eq(number, 3);
    remove_tree(first);
    ck_assert_int_eq(rename(third, first), 0);
    small_chain_check(directory, 1, 0);
    expect_damage(2, "it builds on another one", "is another one than it was");
}
END_TEST

START_TEST(base_of_a_longer_chain_is_refused)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 2);
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autofree char *text = NULL;

    write_chain(RUBATO_PACKING_NONE);
    g_autoptr(Manifest) manifest = snapshot_folder_read(directory, 2, NULL);
    manifest->n_links++;
    text = manifest_text(manifest);
    ck_assert(g_file_set_contents(path, text, -1, NULL));
    expect_damage(2, "it has another number of links", "is another one than it was");
}
END_TEST

static bool take_nothing(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    (void)rows;
    (void)user_data;
    (void)error;
    return false;
}

static bool refuse_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE, "%zu rows are too many", rows->n);
    return rows->n == 0 && user_data == NULL;
}

START_TEST(function_that_takes_rows_ends_the_reading_and_says_why)
{
    g_autoptr(GError) silent = NULL, told = NULL;

    write_chain(RUBATO_PACKING_NONE);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 0, NULL);
    ck_assert(!rubato_snapshot_read_part(snapshot, "any", 0, take_nothing, NULL, &silent));
    ck_assert_ptr_nonnull(strstr(silent->message, "returned false and set no error"));
    ck_assert(!rubato_snapshot_read_part(snapshot, "any", 0, refuse_rows, NULL, &told));
    ck_assert(g_error_matches(told, RUBATO_ERROR, RUBATO_ERROR_RANGE));
    ck_assert_ptr_nonnull(strstr(told->message, "rows are too many"));
}
END_TEST

START_TEST(file_that_is_missing_is_named_with_its_snapshot)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 2);
    g_autofree char *path = snapshot_folder_changes(folder, 0, 0, 100);

    write_chain(RUBATO_PACKING_NONE);
    ck_assert_int_eq(unlink(path), 0);
    expect_damage(4, "a file is gone", "snapshot 2, table any, part 0");
    expect_damage(4, "a file is gone", path);
    small_chain_check(directory, 1, 0);
}
END_TEST

/* Changes every tenth byte of a file, and cuts the file at every hundredth. */
static void damage(const char *folder, const char *file)
{
    g_autofree char *path = g_build_filename(folder, file, NULL);
    g_autofree char *bytes = NULL;
    const int fd = open(path, O_WRONLY);
    gsize n;

    ck_assert(g_file_get_contents(path, &bytes, &n, NULL));
    for (gsize at = 0; at < n; at += 10) {
        const char changed = (char)(bytes[at] ^ (1 << at / 10 % 8));

        require_msg(pwrite(fd, &changed, 1, (off_t)at) == 1, "%s", path);
        expect_damage(2, "a byte was changed", file);
        require_msg(pwrite(fd, &bytes[at], 1, (off_t)at) == 1, "%s", path);
        if (at % 100 != 0)
            continue;
        require_msg(ftruncate(fd, (off_t)at) == 0, "%s", path);
        expect_damage(2, "a file was cut", file);
        require_msg(pwrite(fd, bytes + at, n - at, (off_t)at) == (ssize_t)(n - at), "%s", path);
    }
    close(fd);
}

START_TEST(every_tenth_byte_of_a_chain_that_changes_is_found)
{
    g_autofree char *folder = snapshot_folder_whole(directory, (uint64_t)_i);
    GDir *dir;

    write_link(0, RUBATO_PACKING_NONE);
    write_link(1, RUBATO_PACKING_NONE);
    dir = g_dir_open(folder, 0, NULL);
    for (const char *file; (file = g_dir_read_name(dir)) != NULL;)
        damage(folder, file);
    g_dir_close(dir);
    small_chain_check(directory, 2, 1); /* what was damaged was put right again */
}
END_TEST

/* ---- failures ---- */

/* Whether something failed. Link 1, or a compaction of links 0 to 1. */
static bool write_with_failure(uint64_t at, bool compacts, int error_number)
{
    g_autoptr(GError) error = NULL;
    uint64_t number = 0;
    bool ok;

    failing_calls_begin(at, FAILING_ONE, error_number);
    ok = compacts ? rubato_snapshot_compact(directory, 0, &number, &error)
                  : small_chain_write(directory, 1, 500 + at, RUBATO_PACKING_NONE, &number, &error);
    const bool has_failed = failing_calls_end();
    require_msg(ok || has_failed, "%s", error->message);
    return has_failed;
}

START_TEST(failure_of_any_call_leaves_the_chain_as_it_was)
{
    const bool compacts = _i == 1;
    const uint64_t fresh = compacts ? 3 : 2;
    g_autofree char *folder = snapshot_folder_whole(directory, fresh);
    unsigned n_failures = 0;
    uint64_t at = 0;

    write_link(0, RUBATO_PACKING_NONE);
    if (compacts)
        write_link(1, RUBATO_PACKING_NONE);
    for (; write_with_failure(at, compacts, compacts ? EIO : ENOSPC); at++) {
        small_chain_check(directory, 1, 0);
        if (compacts)
            small_chain_check(directory, 2, 1);
        if (g_file_test(folder, G_FILE_TEST_IS_DIR)) { /* then it is whole */
            small_chain_check(directory, fresh, 1);
            remove_tree(folder);
        }
        n_failures++;
    }
    ck_assert_uint_gt(n_failures, 20);
    small_chain_check(directory, fresh, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chains of snapshots");
    TCase *cases = tcase_create("chains");

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, each_link_has_the_rows_as_they_were, 0, 2);
    tcase_add_loop_test(cases, compaction_leaves_the_same_rows_in_one, 0, 2);
    tcase_add_test(cases, what_others_build_on_is_kept);
    tcase_add_test(cases, nothing_is_removed_before_a_link_that_cannot_be_read);
    tcase_add_test(cases, missing_link_is_named);
    tcase_add_test(cases, link_in_the_place_of_another_is_refused);
    tcase_add_test(cases, base_that_was_written_again_is_refused);
    tcase_add_test(cases, base_of_a_longer_chain_is_refused);
    tcase_add_test(cases, function_that_takes_rows_ends_the_reading_and_says_why);
    tcase_add_test(cases, file_that_is_missing_is_named_with_its_snapshot);
    tcase_add_loop_test(cases, every_tenth_byte_of_a_chain_that_changes_is_found, 1, 3);
    tcase_add_loop_test(cases, failure_of_any_call_leaves_the_chain_as_it_was, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
