/* Snapshots on disk: what is written comes back, and what is torn, flipped or half written never
 * does. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <rubato/error.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/store/failing_calls.h"
#include "tests/support/store/small_snapshot.h"

#include "io/net/link/checksum.h"
#include "io/store/block_fetch.h"
#include "io/store/block_file.h"
#include "io/store/outside_requests.h"
#include "io/store/spill_file.h"

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-store-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static uint64_t write_one(uint64_t seed, RubatoPacking packing)
{
    g_autoptr(GError) error = NULL;
    uint64_t number;

    ck_assert_msg(small_snapshot_write(directory, seed, packing, &number, &error), "%s",
                  error != NULL ? error->message : "");
    return number;
}

/* How many entries a folder has. */
static unsigned count_entries(const char *path)
{
    GDir *dir = g_dir_open(path, 0, NULL);
    unsigned n = 0;

    while (g_dir_read_name(dir) != NULL)
        n++;
    g_dir_close(dir);
    return n;
}

/* The linker puts this in the place of the look whether a snapshot has a manifest. */
static const char *removed_before; /* a folder; NULL: nothing */

__typeof__(faccessat) __real_faccessat, __wrap_faccessat;

int __wrap_faccessat(int folder, const char *path, int mode, int flags)
{
    if (removed_before != NULL)
        remove_tree(removed_before);
    return __real_faccessat(folder, path, mode, flags);
}

static void expect_torn(size_t n_expected, uint64_t first)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list_torn(directory, &numbers, &n, NULL));
    ck_assert_uint_eq(n, n_expected);
    ck_assert(n == 0 || numbers[0] == first);
}

static void expect_list(size_t n_expected, const uint64_t *expected)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_eq(n, n_expected);
    if (n > 0)
        ck_assert_mem_eq(numbers, expected, n * sizeof *numbers);
}

START_TEST(snapshot_comes_back_as_it_was)
{
    const RubatoPacking packing = _i == 0 ? RUBATO_PACKING_NONE : RUBATO_PACKING_ZSTD;

    ck_assert_uint_eq(write_one(11, packing), 1);
    ck_assert_uint_eq(write_one(12, packing), 2);
    small_snapshot_check(directory, 1, 11);
    small_snapshot_check(directory, 2, 12);
    small_snapshot_check(directory, 0, 12); /* the newest */
    expect_list(2, (const uint64_t[]){ 1, 2 });
}
END_TEST

START_TEST(snapshot_is_written_by_short_and_interrupted_calls)
{
    failing_calls_be_short(true);
    write_one(5, RUBATO_PACKING_NONE);
    failing_calls_be_short(false);
    small_snapshot_check(directory, 1, 5);
}
END_TEST

/* What the disk has taken, it has taken before the next name is given. */
START_TEST(files_reach_the_disk_before_their_names)
{
    static const char part[] = "writev fsync "; /* what is short is written at its end */
    g_autoptr(GString) expected = g_string_new("mkdir mkdir ");

    for (size_t i = 0; i < 4; i++)
        g_string_append(expected, part);
    g_string_append(expected, "fsync write fsync rename fsync rename fsync ");
    failing_calls_note();
    write_one(1, RUBATO_PACKING_NONE);
    ck_assert_str_eq(failing_calls_noted(), expected->str);
}
END_TEST

/* A disk that others keep busy holds up no version of a stream. */
START_TEST(what_is_left_to_the_kernel_waits_for_no_disk)
{
    uint64_t number;

    failing_calls_note();
    ck_assert(small_snapshot_leave_to_kernel(directory, 1, &number, NULL));
    ck_assert_ptr_nonnull(strstr(failing_calls_noted(), "rename"));
    ck_assert_ptr_null(strstr(failing_calls_noted(), "fsync"));
    small_snapshot_check(directory, number, 1);
}
END_TEST

START_TEST(directory_that_is_not_there_has_no_snapshots)
{
    g_autofree char *nowhere = g_build_filename(directory, "nowhere", NULL);
    g_autofree uint64_t *numbers = NULL;
    g_autoptr(GError) error = NULL;
    size_t n;

    ck_assert(rubato_snapshot_list(nowhere, &numbers, &n, NULL));
    ck_assert_uint_eq(n, 0);
    ck_assert_ptr_null(rubato_snapshot_open(nowhere, 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
}
END_TEST

START_TEST(folders_that_are_no_snapshots_are_not_listed)
{
    static const char *const others[] = { "snapshot-1", "snapshot-000000", "snapshot-000007",
                                          "snapshot-00000x" };

    write_one(1, RUBATO_PACKING_NONE);
    for (size_t i = 0; i < G_N_ELEMENTS(others); i++) {
        g_autofree char *path = g_build_filename(directory, others[i], NULL);

        ck_assert_int_eq(g_mkdir_with_parents(path, 0777), 0); /* without a manifest */
    }
    expect_list(1, (const uint64_t[]){ 1 });
}
END_TEST

/* Somebody has removed or copied the newest one in part: nothing can get its name. */
START_TEST(number_of_a_torn_snapshot_is_not_used_again)
{
    g_autofree char *torn = snapshot_folder_whole(directory, 2);
    g_autofree char *part = snapshot_folder_part(torn, 0, 0);

    write_one(1, RUBATO_PACKING_NONE);
    ck_assert_int_eq(g_mkdir_with_parents(torn, 0777), 0);
    ck_assert(g_file_set_contents(part, "x", 1, NULL));
    ck_assert_uint_eq(write_one(2, RUBATO_PACKING_NONE), 3);
    expect_list(2, (const uint64_t[]){ 1, 3 });
    expect_torn(1, 2);
    small_snapshot_check(directory, 3, 2);
}
END_TEST

/* A run removes old ones while somebody looks for torn ones. */
START_TEST(snapshot_that_is_removed_meanwhile_is_not_torn)
{
    g_autofree char *whole = snapshot_folder_whole(directory, 1);

    write_one(1, RUBATO_PACKING_NONE);
    expect_torn(0, 0);
    removed_before = whole;
    expect_torn(0, 0);
    removed_before = NULL;
    ck_assert_uint_eq(count_entries(directory), 0);
}
END_TEST

START_TEST(numbers_end)
{
    g_autofree char *last = snapshot_folder_whole(directory, UINT64_MAX - 1);
    g_autoptr(GError) error = NULL;
    uint64_t number;

    ck_assert_int_eq(g_mkdir_with_parents(last, 0777), 0);
    ck_assert(!small_snapshot_write(directory, 1, RUBATO_PACKING_NONE, &number, &error));
    ck_assert_msg(strstr(error->message, "there is no number left") != NULL, "%s", error->message);
    ck_assert_uint_eq(count_entries(directory), 1);
}
END_TEST

/* Such as one of another user. Who goes on must hear that it is passed over. */
START_TEST(snapshot_that_cannot_be_looked_into_is_listed)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 2);
    g_autofree char *manifest = g_build_filename(folder, "manifest", NULL);
    g_autoptr(GError) error = NULL;

    write_one(1, RUBATO_PACKING_NONE);
    ck_assert_int_eq(g_mkdir_with_parents(folder, 0777), 0);
    ck_assert_int_eq(symlink(manifest, manifest), 0); /* fails for everybody, also for root */
    expect_list(2, (const uint64_t[]){ 1, 2 });
    ck_assert_ptr_null(rubato_snapshot_open(directory, 0, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
}
END_TEST

START_TEST(newest_snapshots_are_kept)
{
    for (uint64_t seed = 1; seed <= 5; seed++)
        write_one(seed, RUBATO_PACKING_NONE);
    ck_assert(snapshot_folder_keep(directory, 0, NULL)); /* all */
    ck_assert(snapshot_folder_keep(directory, 9, NULL));
    ck_assert_uint_eq(count_entries(directory), 5);
    ck_assert(snapshot_folder_keep(directory, 2, NULL));
    expect_list(2, (const uint64_t[]){ 4, 5 });
    ck_assert_uint_eq(count_entries(directory), 2);
    small_snapshot_check(directory, 5, 5);
    ck_assert_uint_eq(write_one(6, RUBATO_PACKING_NONE), 6);
}
END_TEST

/* ---- damage ---- */

static void verify_damaged(const char *file, const char *what, size_t at)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 1, &error);
    const bool is_good = snapshot != NULL && rubato_snapshot_verify(snapshot, &error);

    require_msg(!is_good, "%s: byte %zu was %s, and nothing was found", file, at, what);
    require_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT), "%s", error->message);
    require_msg(strstr(error->message, file) != NULL, "the file %s is not named: %s", file,
                error->message);
    require_msg(strstr(file, ".rows") == NULL || strstr(error->message, ", part ") != NULL,
                "the part is not named: %s", error->message);
}

/* Changes every tenth byte of a file, and cuts the file at every fiftieth. */
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
        verify_damaged(file, "changed", at);
        require_msg(pwrite(fd, &bytes[at], 1, (off_t)at) == 1, "%s", path);
        if (at % 50 != 0)
            continue;
        require_msg(ftruncate(fd, (off_t)at) == 0, "%s", path);
        verify_damaged(file, "the last", at);
        require_msg(pwrite(fd, bytes + at, n - at, (off_t)at) == (ssize_t)(n - at), "%s", path);
    }
    close(fd);
}

START_TEST(every_tenth_byte_that_changes_is_found)
{
    const RubatoPacking packing = _i == 0 ? RUBATO_PACKING_NONE : RUBATO_PACKING_ZSTD;
    g_autofree char *folder = snapshot_folder_whole(directory, 1);
    GDir *dir;

    write_one(3, packing);
    dir = g_dir_open(folder, 0, NULL);
    ck_assert_uint_eq(count_entries(folder), 5);
    for (const char *file; (file = g_dir_read_name(dir)) != NULL;)
        damage(folder, file);
    g_dir_close(dir);
    small_snapshot_check(directory, 1, 3); /* what was damaged was put right again */
}
END_TEST

START_TEST(file_of_another_snapshot_is_refused)
{
    g_autofree char *first = snapshot_folder_whole(directory, 1);
    g_autofree char *second = snapshot_folder_whole(directory, 2);
    g_autofree char *from = snapshot_folder_part(second, 1, 0);
    g_autofree char *to = snapshot_folder_part(first, 1, 0);

    write_one(3, RUBATO_PACKING_NONE);
    write_one(4, RUBATO_PACKING_NONE);
    ck_assert_int_eq(rename(from, to), 0);
    verify_damaged("1.0.rows", "another snapshot's", 0);
}
END_TEST

START_TEST(part_in_the_place_of_another_is_refused)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 1);
    g_autofree char *first = snapshot_folder_part(folder, 2, 0);
    g_autofree char *second = snapshot_folder_part(folder, 2, 1);

    write_one(3, RUBATO_PACKING_NONE);
    ck_assert_int_eq(rename(second, first), 0);
    verify_damaged("2.0.rows", "another part's", 0);
}
END_TEST

START_TEST(file_with_more_behind_its_end_is_refused)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 1);
    g_autofree char *path = snapshot_folder_part(folder, 0, 0);

    write_one(3, RUBATO_PACKING_NONE);
    const int fd = open(path, O_WRONLY | O_APPEND);
    ck_assert_int_eq(write(fd, "x", 1), 1);
    close(fd);
    verify_damaged("0.0.rows", "added", 0);
}
END_TEST

START_TEST(file_that_is_missing_is_named)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 1);
    g_autofree char *path = snapshot_folder_part(folder, 2, 1);
    g_autoptr(GError) error = NULL;

    write_one(3, RUBATO_PACKING_NONE);
    ck_assert_int_eq(unlink(path), 0);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 1, NULL);
    ck_assert(!rubato_snapshot_verify(snapshot, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_ptr_nonnull(strstr(error->message, "table weights, part 1"));
    ck_assert_ptr_nonnull(strstr(error->message, path));
}
END_TEST

/* A manifest with the right checksum, but with something in it that cannot be. */
static const struct {
    const char *was, *is;
} wrong_manifests[] = {
    { "format=1\n", "format=2\n" },
    { "tables=3\n", "tables=4\n" },
    { "tables=3\n", "tables=99999999999999999999\n" },
    { "dtype=i64\n", "dtype=i63\n" },
    { "ragged=true\n", "ragged=perhaps\n" },
    { "width=3\n", "width=0\n" },
    { "width=3\n", "width=4294967295\n" },
    { "parts=2\n", "parts=3\n" },
    { "parts=2\n", "parts=0\n" },
    { "parts=2\n", "parts=4000000000\n" },
    { "name=weights\n", "name=a\n" },
    { "name=weights\n", "nam=weights\n" },
    { "rows=70\n", "rows=-1\n" },
    { "[snapshot]\n", "[snap\n" },
};

START_TEST(manifest_that_makes_no_sense_is_refused)
{
    g_autofree char *folder = snapshot_folder_whole(directory, 1);
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autofree char *text = NULL;
    g_autoptr(GString) body = NULL;

    write_one(3, RUBATO_PACKING_NONE);
    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    body = g_string_new(text);
    g_string_truncate(body, (gsize)(strstr(text, "# checksum ") - text));
    ck_assert_uint_ne(g_string_replace(body, wrong_manifests[_i].was, wrong_manifests[_i].is, 0),
                      0);
    const uint64_t sum = checksum(body->str, body->len, 0);
    g_string_append_printf(body, "# checksum %016" G_GINT64_MODIFIER "x\n", sum);
    ck_assert(g_file_set_contents(path, body->str, (gssize)body->len, NULL));
    verify_damaged("manifest", "wrong", 0);
}
END_TEST

/* ---- failures ---- */

/* The seed of the second snapshot is this and the number of the call that fails: a program draws a
 * new one each time, too. */
#define SECOND 100u

/* The first snapshot is there. Writes a second one, and lets a call fail. True: none has failed. */
static bool write_with_failure(uint64_t at, FailingWhich which, int error_number)
{
    g_autoptr(GError) error = NULL;
    uint64_t number = 0;

    failing_calls_begin(at, which, error_number);
    const bool ok =
        small_snapshot_write(directory, SECOND + at, RUBATO_PACKING_ZSTD, &number, &error);
    const bool has_failed = failing_calls_end();

    if (!ok) {
        require_msg(has_failed, "%s", error->message);
        require_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO), "%s", error->message);
        require_msg(number == 0, "an output was set");
    }
    return !has_failed;
}

/* Calls whose failure loses nothing: a descriptor that was only read, or a file of an earlier run
 * that stays. Only these may fail in a snapshot that succeeds. */
static bool may_fail(const char *name)
{
    return strcmp(name, "close") == 0 || strcmp(name, "unlink") == 0 || strcmp(name, "rmdir") == 0;
}

START_TEST(failure_of_any_call_leaves_the_last_good_snapshot)
{
    const int error_number = _i % 2 == 0 ? ENOSPC : EIO;
    const FailingWhich which = _i / 2 == 0 ? FAILING_ONE : FAILING_REST;
    g_autofree char *second = snapshot_folder_whole(directory, 2);
    unsigned n_failures = 0, n_second = 0;
    uint64_t at = 0;

    write_one(1, RUBATO_PACKING_NONE);
    for (; !write_with_failure(at, which, error_number); at++) {
        g_autofree uint64_t *numbers = NULL;
        size_t n;

        small_snapshot_check(directory, 1, 1);
        ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
        if (n == 2) { /* then it is whole */
            require_msg(which == FAILING_REST || may_fail(failing_calls_name()),
                        "%s failed, and a snapshot was made", failing_calls_name());
            small_snapshot_check(directory, 2, SECOND + at);
            remove_tree(second);
            n_second++;
        }
        n_failures++;
    }
    ck_assert_uint_gt(n_failures, 30);
    ck_assert_uint_lt(n_second, n_failures / 2);
    small_snapshot_check(directory, 2, SECOND + at);
    /* What the failures left is gone: the last one tidied up. */
    ck_assert_uint_eq(count_entries(directory), 2);
}
END_TEST

/* An answer to a request from outside is there whole or not at all, and a request that is gone has
 * one, unless it could not be written. */
START_TEST(failure_of_any_call_leaves_no_torn_answer)
{
    g_autofree char *request = g_build_filename(directory, ".take-1", NULL);
    g_autofree char *answer = g_build_filename(directory, ".taken-1", NULL);
    g_autoptr(GPtrArray) ids = g_ptr_array_new();
    bool has_failed = true;

    g_ptr_array_add(ids, (char *)(uintptr_t) "1");
    for (uint64_t at = 0; has_failed; at++) {
        g_autofree char *text = NULL;

        ck_assert(g_file_set_contents(request, "", 0, NULL));
        failing_calls_begin(at, FAILING_ONE, _i == 0 ? ENOSPC : EIO);
        outside_requests_answer(directory, ids, 12, NULL);
        has_failed = failing_calls_end();
        if (g_file_get_contents(answer, &text, NULL, NULL))
            ck_assert_str_eq(text, "snapshot 12");
        else
            ck_assert(has_failed);
        ck_assert(!g_file_test(request, G_FILE_TEST_EXISTS) ||
                  strcmp(failing_calls_name(), "unlink") == 0);
        (void)g_remove(answer);
        (void)g_remove(request);
    }
    ck_assert_uint_eq(count_entries(directory), 0);
}
END_TEST

/* A file of copies that cannot be written, at whatever call, is told; nothing stays behind but what
 * the next snapshot removes. */
START_TEST(failure_of_any_call_spills_nothing_silently)
{
    static const char bytes[] = "rows that change";
    bool has_failed = true;

    for (uint64_t at = 0; has_failed; at++) {
        SpillFile *const spill = spill_file_new(directory, 1);
        char seen[sizeof bytes] = "";
        uint64_t offset;

        failing_calls_begin(at, FAILING_ONE, _i == 0 ? ENOSPC : EIO);
        const bool ok = spill_file_write(spill, bytes, sizeof bytes, &offset);
        has_failed = failing_calls_end();
        ck_assert_msg(ok || has_failed, "it failed by itself");
        ck_assert(!ok || !has_failed || strcmp(failing_calls_name(), "unlink") == 0);
        if (ok) {
            ck_assert(spill_file_read(spill, offset, seen, sizeof seen));
            ck_assert_str_eq(seen, bytes);
        }
        spill_file_free(spill);
        snapshot_folder_tidy(directory, 0);
        ck_assert_uint_eq(count_entries(directory), 0);
    }
}
END_TEST

/* ---- what decides which keys have rows ---- */

static bool sum_words(const PartAdmission *admission, void *user_data, GError **error)
{
    uint64_t *const sum = user_data;

    (void)error;
    for (size_t i = 0; i < admission->n; i++)
        *sum += (admission->first + i + 1) * admission->words[i];
    return true;
}

static const struct {
    PartAdmission piece;
    bool is_good;
} pieces[] = {
    { { .n_all = 3, .first = 0, .n = 3 }, true },
    { { .n_all = 9, .first = 6, .n = 3 }, true },
    { { .n_all = 9, .first = 7, .n = 3 }, false },
    { { .n_all = 2, .first = 0, .n = 3 }, false },
    { { .n_all = 9, .first = UINT64_MAX - 1, .n = 3 }, false },
    { { .n_all = 9, .first = 0, .n = 0 }, false },
};

/* A file whose checksums are right may have been written by another program. */
START_TEST(words_are_as_they_were_and_none_lie_beyond_the_others)
{
    const PartShape shape = { .row_bytes = 4, .value_bytes = 4 };
    g_autofree char *path = g_build_filename(directory, "part", NULL);
    PartAdmission piece = pieces[_i].piece;
    PartFile file = { .path = path, .seed = 1, .shape = shape };
    g_autoptr(GError) error = NULL;
    uint64_t sum = 0;

    piece.words = (const uint64_t[]){ 5, 7, UINT64_MAX };
    g_autoptr(PartWriter) writer = part_writer_new(path, 1, RUBATO_PACKING_NONE, &shape, NULL);
    ck_assert(part_writer_admission(writer, &piece, NULL) && part_writer_finish(writer, NULL));
    ck_assert(block_file_read_end(path, &file.sum, &file.n_rows, NULL));
    const PartTaker taker = { .admission = sum_words, .user_data = &sum };
    const bool is_read = part_rows_read(&file, &taker, NULL, &error);
    ck_assert_int_eq(is_read, pieces[_i].is_good);
    if (is_read)
        ck_assert_uint_eq(sum, (piece.first + 1) * 5 + (piece.first + 2) * 7 - (piece.first + 3));
    else
        ck_assert_ptr_nonnull(strstr(error->message, "words beyond those that there are"));
}
END_TEST

typedef struct {
    uint64_t n_rows, n_most; /* that came, and after which the reader has had enough */
} Counted;

static bool count_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Counted *const counted = user_data;

    counted->n_rows += rows->n;
    if (counted->n_rows < counted->n_most)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "enough");
    return false;
}

/* Blocks of such a file are read before somebody asks for them. */
START_TEST(blocks_of_a_long_file_come_in_order_up_to_the_damaged_one)
{
    enum {
        N_BLOCKS = 9,
        N = 128 << 10,
        WIDTH = 8
    }; /* of a record, which fills a block of its own */
    const RubatoPacking packing = _i == 0 ? RUBATO_PACKING_NONE : RUBATO_PACKING_ZSTD;
    const PartShape shape = { .row_bytes = WIDTH - 1, .value_bytes = WIDTH - 1 };
    g_autofree char *path = g_build_filename(directory, "part", NULL);
    g_autofree unsigned char *rows = g_malloc0((size_t)N * WIDTH);
    PartFile file = { .path = path, .seed = 1, .shape = shape };
    uint64_t offsets[N_BLOCKS + 1] = { 0 };
    g_autofree char *bytes = NULL;
    gsize n_bytes;

    g_autoptr(PartWriter) writer = part_writer_new(path, 1, packing, &shape, NULL);
    for (uint64_t i = 0; i < N_BLOCKS; i++) {
        for (size_t at = 0; at < N; at += 5) /* each block is packed to other bytes */
            rows[at] = (unsigned char)(at * (i + 1));
        ck_assert(part_writer_rows(
            writer, &(RubatoSnapshotRows){ .first = i * N, .n = N, .values = rows }, NULL));
    }
    ck_assert(part_writer_finish(writer, NULL));
    ck_assert(block_file_read_end(path, &file.sum, &file.n_rows, NULL));
    ck_assert(g_file_get_contents(path, &bytes, &n_bytes, NULL));
    for (size_t i = 0; i < N_BLOCKS; i++) {
        uint32_t n_stored;

        memcpy(&n_stored, bytes + offsets[i] + 8, sizeof n_stored);
        offsets[i + 1] = offsets[i] + 24 + n_stored;
    }
    ck_assert_uint_eq(offsets[N_BLOCKS] + 24 + 16, n_bytes);
    for (size_t i = 0; i <= N_BLOCKS; i++) {
        g_autofree char *named = g_strdup_printf(" at byte %" G_GUINT64_FORMAT " ", offsets[i]);
        Counted counted = { .n_rows = 0, .n_most = UINT64_MAX };
        const PartTaker taker = { .rows = count_rows, .user_data = &counted };
        g_autoptr(GError) error = NULL;

        bytes[offsets[i] + 30] ^= 1;
        ck_assert(g_file_set_contents(path, bytes, (gssize)n_bytes, NULL));
        bytes[offsets[i] + 30] ^= 1;
        ck_assert(!part_rows_read(&file, &taker, NULL, &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
        require_msg(strstr(error->message, named) != NULL, "%s: %s", named, error->message);
        ck_assert_uint_eq(counted.n_rows, i * N);
    }
    ck_assert(g_file_set_contents(path, bytes, (gssize)n_bytes, NULL));
    for (uint64_t n = 1; n <= N_BLOCKS + 1;
         n++) { /* who asks stops at any block, or goes to the end */
        Counted counted = { .n_rows = 0, .n_most = n * N };
        const PartTaker taker = { .rows = count_rows, .user_data = &counted };

        ck_assert_int_eq(part_rows_read(&file, &taker, NULL, NULL), n > N_BLOCKS);
        ck_assert_uint_eq(counted.n_rows, MIN(n, N_BLOCKS) * N);
    }
}
END_TEST

/* So words can be read again without the rows: one of these is damaged here. */
START_TEST(what_lies_in_front_of_the_rows_is_read_alone)
{
    enum { N = 2 << 20 }; /* more than a block */
    const PartShape shape = { .row_bytes = 1, .value_bytes = 1 };
    const PartAdmission piece = { .n_all = 3, .n = 3, .words = (const uint64_t[]){ 5, 7, 9 } };
    g_autofree char *path = g_build_filename(directory, "part", NULL);
    g_autofree char *rows = g_malloc0(N);
    PartFile file = { .path = path, .seed = 1, .shape = shape };
    g_autofree char *bytes = NULL;
    gsize n_bytes;
    uint64_t sum = 0;

    g_autoptr(PartWriter) writer = part_writer_new(path, 1, RUBATO_PACKING_NONE, &shape, NULL);
    ck_assert(part_writer_admission(writer, &piece, NULL) &&
              part_writer_rows(writer, &(RubatoSnapshotRows){ .n = N, .values = rows }, NULL) &&
              part_writer_finish(writer, NULL));
    ck_assert(block_file_read_end(path, &file.sum, &file.n_rows, NULL));
    ck_assert(g_file_get_contents(path, &bytes, &n_bytes, NULL));
    bytes[n_bytes - 1000] ^= 1;
    ck_assert(g_file_set_contents(path, bytes, (gssize)n_bytes, NULL));
    for (int i = 0; i < 2; i++) {
        const PartTaker taker = { .admission = sum_words,
                                  .user_data = &sum,
                                  .ends_at_rows = i == 1 };

        sum = 0;
        ck_assert_int_eq(part_rows_read(&file, &taker, NULL, NULL), i == 1);
        ck_assert_uint_eq(sum, 5 + 2 * 7 + 3 * 9);
    }
}
END_TEST

/* Blocks come in their order, whoever has read them; the error comes behind the good ones. */
START_TEST(threads_read_blocks_of_a_file_in_turn)
{
    enum { N = BLOCK_FILE_MOST - 100, N_BLOCKS = 18, DAMAGED = 15 };
    const uint32_t n_threads = (uint32_t)_i;
    g_autofree char *path = g_build_filename(directory, "blocks", NULL);
    g_autofree unsigned char *some = g_malloc(N);
    g_autofree char *bytes = NULL;
    BlockFileSum sum;
    gsize n_bytes;

    g_autoptr(BlockWriter) writer = block_writer_new(path, 1, RUBATO_PACKING_NONE, NULL);
    for (int i = 0; i < N_BLOCKS; i++) {
        memset(some, i, N);
        ck_assert(block_writer_begin_record(writer, N, NULL) &&
                  block_writer_write(writer, some, N, NULL));
    }
    ck_assert(block_writer_finish(writer, 7, &sum, NULL));
    for (int pass = 0; pass < 2; pass++) {
        g_autoptr(BlockFetch) fetch = block_fetch_new_with(path, 1, sum.n_bytes, n_threads, NULL);
        FetchedBlock block;

        for (int i = 0; i < (pass == 0 ? N_BLOCKS : DAMAGED); i++) {
            ck_assert(block_fetch_next(fetch, &block, NULL));
            ck_assert_uint_eq(block.head.n_bytes, N);
            ck_assert(block.bytes[0] == i && block.bytes[N - 1] == i);
        }
        ck_assert_int_eq(block_fetch_next(fetch, &block, NULL), pass == 0);
        if (pass > 0)
            continue;
        ck_assert_int_eq(block.head.kind, BLOCK_END);
        ck_assert(g_file_get_contents(path, &bytes, &n_bytes, NULL));
        bytes[DAMAGED * (N + sizeof(BlockHead)) + N / 2] ^= 1;
        ck_assert(g_file_set_contents(path, bytes, (gssize)n_bytes, NULL));
    }
}
END_TEST

/* A program that does not know words of admission says that the version is another one, and not
 * that a file is damaged. */
START_TEST(manifest_says_whether_files_may_have_words)
{
    const RubatoSnapshotTable table = {
        .name = "t", .width = 1, .storage = "hash", .update = "add", .n_parts = 1
    };
    static const struct {
        const char *admit, *format;
        uint64_t base;
    } formats[] = {
        { "all", "format=1\n", 0 },
        { "all", "format=2\n", 4 },
        { "count", "format=3\n", 0 },
        { "count", "format=3\n", 4 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(formats); i++) {
        g_autoptr(Manifest) manifest = manifest_new(1, RUBATO_PACKING_NONE, NULL);
        g_autoptr(Manifest) read = NULL;
        RubatoSnapshotTable one = table;

        one.admit = formats[i].admit;
        manifest->base = formats[i].base;
        manifest->n_links = formats[i].base != 0;
        (void)manifest_add_table(manifest, &one);
        g_autofree char *text = manifest_text(manifest);
        ck_assert_ptr_nonnull(strstr(text, formats[i].format));
        read = manifest_parse(text, strlen(text), "manifest", NULL);
        ck_assert_ptr_nonnull(read);
        ck_assert_uint_eq(read->base, formats[i].base);
        ck_assert_str_eq(read->tables[0].spec.admit, formats[i].admit);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshot store");
    TCase *cases = tcase_create("files");

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, snapshot_comes_back_as_it_was, 0, 2);
    tcase_add_test(cases, snapshot_is_written_by_short_and_interrupted_calls);
    tcase_add_loop_test(cases, threads_read_blocks_of_a_file_in_turn, 0, BLOCK_FETCH_THREADS + 1);
    tcase_add_test(cases, files_reach_the_disk_before_their_names);
    tcase_add_test(cases, what_is_left_to_the_kernel_waits_for_no_disk);
    tcase_add_test(cases, directory_that_is_not_there_has_no_snapshots);
    tcase_add_test(cases, folders_that_are_no_snapshots_are_not_listed);
    tcase_add_test(cases, number_of_a_torn_snapshot_is_not_used_again);
    tcase_add_test(cases, snapshot_that_is_removed_meanwhile_is_not_torn);
    tcase_add_test(cases, numbers_end);
    tcase_add_test(cases, snapshot_that_cannot_be_looked_into_is_listed);
    tcase_add_test(cases, newest_snapshots_are_kept);
    tcase_add_loop_test(cases, every_tenth_byte_that_changes_is_found, 0, 2);
    tcase_add_test(cases, file_of_another_snapshot_is_refused);
    tcase_add_test(cases, part_in_the_place_of_another_is_refused);
    tcase_add_test(cases, file_with_more_behind_its_end_is_refused);
    tcase_add_test(cases, file_that_is_missing_is_named);
    tcase_add_loop_test(cases, manifest_that_makes_no_sense_is_refused, 0,
                        G_N_ELEMENTS(wrong_manifests));
    tcase_add_loop_test(cases, failure_of_any_call_leaves_the_last_good_snapshot, 0, 4);
    tcase_add_loop_test(cases, failure_of_any_call_leaves_no_torn_answer, 0, 2);
    tcase_add_loop_test(cases, failure_of_any_call_spills_nothing_silently, 0, 2);
    tcase_add_loop_test(cases, words_are_as_they_were_and_none_lie_beyond_the_others, 0,
                        G_N_ELEMENTS(pieces));
    tcase_add_loop_test(cases, blocks_of_a_long_file_come_in_order_up_to_the_damaged_one, 0, 2);
    tcase_add_test(cases, what_lies_in_front_of_the_rows_is_read_alone);
    tcase_add_test(cases, manifest_says_whether_files_may_have_words);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
