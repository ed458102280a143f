/* The rows of all parts are read before the disk is waited for. */
#include <check.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/store/snapshot_folder.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_PARTS = 5, N_KEYS = 1000 };

static char *directory;

/* How often the disk was waited for, and what was there when this began. */
static unsigned n_waits, n_files;
static uint64_t n_bytes;

/* Files of parts below a folder. */
static void count_files(const char *folder, unsigned *n, uint64_t *bytes)
{
    g_autoptr(GDir) all = g_dir_open(folder, 0, NULL);
    const char *name;

    while (all != NULL && (name = g_dir_read_name(all)) != NULL) {
        g_autofree char *path = g_build_filename(folder, name, NULL);
        struct stat status;

        if (stat(path, &status) != 0)
            continue;
        if (S_ISDIR(status.st_mode)) {
            count_files(path, n, bytes);
        } else if (g_str_has_suffix(name, ".rows")) {
            (*n)++;
            *bytes += (uint64_t)status.st_size;
        }
    }
}

__typeof__(fsync) __real_fsync, __wrap_fsync;

/* The linker puts this in its place. */
int __wrap_fsync(int fd)
{
    struct stat status;

    ck_assert(fstat(fd, &status) == 0);
    if (S_ISREG(status.st_mode) && n_waits++ == 0) /* not of the folder, which was made before */
        count_files(directory, &n_files, &n_bytes);
    return __real_fsync(fd);
}

START_TEST(all_parts_are_written_before_the_disk_is_waited_for)
{
    const RubatoSnapshotSpec spec = { .directory = directory };
    g_autoptr(RubatoEngine) engine = engine_with_servers(1);
    unsigned n_files_after = 0;
    uint64_t n_bytes_after = 0;

    create_table(engine,
                 &(RubatoTableSpec){ .name = "t", .width = 4, .n_keys = N_KEYS, .parts = N_PARTS });
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
    count_files(directory, &n_files_after, &n_bytes_after);
    ck_assert_uint_ge(n_waits, N_PARTS);
    ck_assert_uint_eq(n_files, N_PARTS);
    ck_assert_uint_eq(n_files_after, N_PARTS);
    ck_assert_uint_eq(n_bytes, n_bytes_after);
}
END_TEST

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-written-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

int main(void)
{
    Suite *suite = suite_create("written parts");
    TCase *cases = tcase_create("written parts");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, all_parts_are_written_before_the_disk_is_waited_for);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
