/* Files of versions that stay open while readers fetch these. */
#include <check.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/store/snapshot_folder.h"
#include "io/stream/zmq/held_versions.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_DESCRIPTORS = 640, MOST_FILES = N_DESCRIPTORS / 2, SEED = 7 };

static char *directory;
static HeldVersions *held;

static void set_up(void)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_ge(limit.rlim_max, N_DESCRIPTORS);
    limit.rlim_cur = N_DESCRIPTORS;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    directory = g_dir_make_tmp("rubato-held-XXXXXX", NULL);
    held = held_versions_new(directory);
}

static void tear_down(void)
{
    held_versions_free(held);
    remove_tree(directory);
    g_free(directory);
}

/* A version of a table with so many parts, which a reader begins to fetch, and the run removes. */
static void hold_and_remove(uint64_t number, unsigned n_files, int64_t now_ms)
{
    const ListedVersion listed = { .number = number, .seed = SEED };
    g_autofree char *folder = snapshot_folder_rows(directory, number, SEED);

    ck_assert_int_eq(g_mkdir(folder, 0700), 0);
    for (unsigned i = 0; i < n_files; i++) {
        g_autofree char *path = snapshot_folder_part(folder, 0, i);
        const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        ck_assert_int_ge(fd, 0);
        close(fd);
    }
    held_versions_hold(held, &listed, now_ms);
    remove_tree(folder);
}

static bool is_held(uint64_t number, unsigned part, int64_t now_ms)
{
    const StreamMessage asked = { .number = number, .seed = SEED, .part = part };

    return held_versions_find(held, &asked, now_ms) >= 0;
}

START_TEST(version_of_many_files_is_held)
{
    hold_and_remove(1, MOST_FILES, 0);
    ck_assert(is_held(1, 0, 0));
    ck_assert(is_held(1, MOST_FILES - 1, 0));
}
END_TEST

/* The process needs the other descriptors; and those that are held stay. */
START_TEST(version_of_too_many_files_is_not_held)
{
    hold_and_remove(1, 10, 0);
    hold_and_remove(2, MOST_FILES + 1, 0);
    ck_assert(!is_held(2, 0, 0));
    ck_assert(is_held(1, 9, 0));
}
END_TEST

START_TEST(version_that_was_asked_for_first_goes_when_there_is_no_room)
{
    hold_and_remove(1, MOST_FILES / 2, 0);
    hold_and_remove(2, MOST_FILES / 2, 0);
    ck_assert(is_held(2, 0, 1));
    ck_assert(is_held(1, 0, 2));
    hold_and_remove(3, 1, 3);
    ck_assert(!is_held(2, 0, 3));
    ck_assert(is_held(1, 0, 3));
    ck_assert(is_held(3, 0, 3));
}
END_TEST

START_TEST(version_that_nobody_asks_for_goes)
{
    hold_and_remove(1, 1, 0);
    hold_and_remove(2, 1, 1);
    held_versions_tidy(held, HELD_MS);
    ck_assert(!is_held(1, 0, HELD_MS));
    ck_assert(is_held(2, 0, HELD_MS));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("held versions");
    TCase *const cases = tcase_create("held");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, version_of_many_files_is_held);
    tcase_add_test(cases, version_of_too_many_files_is_not_held);
    tcase_add_test(cases, version_that_was_asked_for_first_goes_when_there_is_no_room);
    tcase_add_test(cases, version_that_nobody_asks_for_goes);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
