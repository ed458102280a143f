/* Block files: how the bytes of a stream become blocks, and when the disk hears of them. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "io/store/block_file.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

#include <rubato/error.h>

enum { N_PIECES = 12, SEED = 3, SOME_BYTES = 24 };

static char *directory;

/* What the disk was told of. */
static uint64_t n_told;
static int disk_error; /* what it says; 0: all is well */

int __wrap_sync_file_range(int fd, off_t offset, off_t n, unsigned flags);

/* The linker puts this in its place. */
int __wrap_sync_file_range(int fd, off_t offset, off_t n, unsigned flags)
{
    (void)fd;
    (void)offset;
    (void)flags;
    n_told += (uint64_t)n;
    errno = disk_error;
    return disk_error == 0 ? 0 : -1;
}

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-blocks-XXXXXX", NULL);
    n_told = 0;
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

/* Other bytes at each place, and in each piece. */
static void fill(unsigned char *bytes, size_t n, uint64_t number)
{
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        const uint64_t word = (i << 8) + number;

        memcpy(bytes + i, &word, MIN(sizeof word, n - i));
    }
}

/* Those around the sizes at which something changes, behind what waits already. */
static size_t find_size(unsigned number)
{
    static const size_t sizes[] = {
        1,
        BLOCK_FILE_MOST / 2 - 1,
        BLOCK_FILE_MOST / 2,
        BLOCK_FILE_MOST - SOME_BYTES - 1,
        BLOCK_FILE_MOST - SOME_BYTES,
        BLOCK_FILE_MOST - SOME_BYTES + 1,
        BLOCK_FILE_MOST,
        BLOCK_FILE_MOST + 1,
        2 * BLOCK_FILE_MOST + 5,
        BLOCK_FILE_MOST / 4,
    };

    return sizes[number * 7 % G_N_ELEMENTS(sizes)];
}

/* Whatever waits before it, and whether a block is made of it where it lies. */
START_TEST(pieces_of_any_size_come_back)
{
    const RubatoPacking packing = _i == 0 ? RUBATO_PACKING_NONE : RUBATO_PACKING_ZSTD;
    g_autofree char *path = g_build_filename(directory, "blocks", NULL);
    g_autofree unsigned char *bytes = g_malloc(3 * BLOCK_FILE_MOST);
    g_autofree unsigned char *read = g_malloc(3 * BLOCK_FILE_MOST);
    g_autoptr(BlockWriter) writer = block_writer_new(path, SEED, packing, NULL);
    BlockFileSum sum;

    for (unsigned i = 0; i < N_PIECES; i++) {
        const size_t n = find_size(i);

        fill(bytes, n, i);
        ck_assert(i % 3 != 0 || block_writer_begin_record(writer, SOME_BYTES + n, NULL));
        ck_assert(block_writer_write(writer, bytes, MIN(n, (size_t)SOME_BYTES), NULL) &&
                  block_writer_write(writer, bytes, n, NULL));
    }
    ck_assert(block_writer_finish(writer, N_PIECES, &sum, NULL));

    g_autoptr(BlockReader) reader = block_reader_new(path, SEED, &sum, NULL);
    bool at_end;

    for (unsigned i = 0; i < N_PIECES; i++) {
        const size_t n = find_size(i);

        fill(bytes, n, i);
        ck_assert(block_reader_read(reader, read, MIN(n, (size_t)SOME_BYTES), NULL));
        ck_assert_mem_eq(read, bytes, MIN(n, (size_t)SOME_BYTES));
        ck_assert(block_reader_read(reader, read, n, NULL));
        ck_assert_mem_eq(read, bytes, n);
    }
    ck_assert(block_reader_at_end(reader, &at_end, NULL) && at_end);
    ck_assert_uint_eq(block_reader_number(reader), N_PIECES);
}
END_TEST

static uint64_t find_length(const char *path)
{
    struct stat status;

    ck_assert_int_eq(stat(path, &status), 0);
    return (uint64_t)status.st_size;
}

/* The kernel gets the file in long pieces. Heads of blocks lie before, at and behind the end of
 * one. */
START_TEST(file_grows_by_whole_pieces)
{
    enum { PIECE_BYTES = 256 << 10, HEAD_BYTES = 24 };
    const size_t sizes[] = { (size_t)PIECE_BYTES - HEAD_BYTES - (size_t)_i, 10, BLOCK_FILE_MOST };
    g_autofree char *path = g_build_filename(directory, "blocks", NULL);
    g_autofree unsigned char *bytes = g_malloc(BLOCK_FILE_MOST);
    g_autofree unsigned char *read = g_malloc(BLOCK_FILE_MOST);
    g_autoptr(BlockWriter) writer = block_writer_new(path, SEED, RUBATO_PACKING_NONE, NULL);
    BlockFileSum sum;

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        fill(bytes, sizes[i], i);
        ck_assert(
            block_writer_begin_record(writer, BLOCK_FILE_MOST, NULL)); /* a block of its own */
        ck_assert_uint_eq(find_length(path) % PIECE_BYTES, 0);
        ck_assert(block_writer_write(writer, bytes, sizes[i], NULL));
    }
    ck_assert_uint_ge(find_length(path), BLOCK_FILE_MOST);
    ck_assert(block_writer_finish(writer, 1, &sum, NULL));
    ck_assert_uint_eq(find_length(path), sum.n_bytes);

    g_autoptr(BlockReader) reader = block_reader_new(path, SEED, &sum, NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        fill(bytes, sizes[i], i);
        ck_assert(block_reader_read(reader, read, sizes[i], NULL));
        ck_assert_mem_eq(read, bytes, sizes[i]);
    }
}
END_TEST

/* A reader need not copy a record that would fit a block, however little waits before it. */
START_TEST(record_that_fits_a_block_lies_in_one)
{
    g_autofree char *path = g_build_filename(directory, "blocks", NULL);
    g_autofree unsigned char *bytes = g_malloc(BLOCK_FILE_MOST);
    g_autoptr(BlockWriter) writer = block_writer_new(path, SEED, RUBATO_PACKING_NONE, NULL);
    BlockFileSum sum;

    fill(bytes, BLOCK_FILE_MOST, 0);
    ck_assert(block_writer_write(writer, bytes, SOME_BYTES, NULL));
    for (unsigned i = 0; i < 3; i++)
        ck_assert(block_writer_begin_record(writer, BLOCK_FILE_MOST, NULL) &&
                  block_writer_write(writer, bytes, SOME_BYTES, NULL) &&
                  block_writer_write(writer, bytes, BLOCK_FILE_MOST - SOME_BYTES, NULL));
    ck_assert(block_writer_finish(writer, 0, &sum, NULL));

    g_autoptr(BlockReader) reader = block_reader_new(path, SEED, &sum, NULL);
    g_autofree unsigned char *some = g_malloc(SOME_BYTES);
    bool at_end;

    ck_assert(block_reader_read(reader, some, SOME_BYTES, NULL));
    for (unsigned i = 0; i < 3; i++) {
        ck_assert(block_reader_at_end(reader, &at_end, NULL) && !at_end);
        ck_assert_ptr_nonnull(block_reader_borrow(reader, BLOCK_FILE_MOST));
    }
}
END_TEST

/* Whoever tells a disk that has much to do waits. While requests pay for each moment, it is not
 * told; then, of all that there is. */
START_TEST(disk_hears_nothing_of_a_file_that_is_held)
{
    g_autofree char *path = g_build_filename(directory, "blocks", NULL);
    g_autofree unsigned char *bytes = g_malloc0(BLOCK_FILE_MOST);
    g_autoptr(BlockWriter) writer = block_writer_new(path, SEED, RUBATO_PACKING_NONE, NULL);

    block_writer_hold(writer, true);
    for (unsigned i = 0; i < 32; i++)
        ck_assert(block_writer_write(writer, bytes, BLOCK_FILE_MOST, NULL));
    ck_assert_uint_eq(n_told, 0);
    block_writer_hold(writer, false);
    ck_assert(block_writer_write(writer, bytes, BLOCK_FILE_MOST, NULL));
    ck_assert_uint_ge(n_told, 32 * BLOCK_FILE_MOST);
}
END_TEST

/* A file of some megabytes, which the disk was told nothing of. (transfer full) */
static BlockWriter *write_held(unsigned n_blocks)
{
    g_autofree char *path = g_build_filename(directory, "blocks", NULL);
    g_autofree unsigned char *bytes = g_malloc0(BLOCK_FILE_MOST);
    BlockWriter *const writer = block_writer_new(path, SEED, RUBATO_PACKING_NONE, NULL);
    BlockFileSum sum;

    block_writer_hold(writer, true);
    for (unsigned i = 0; i < n_blocks; i++)
        ck_assert(block_writer_write(writer, bytes, BLOCK_FILE_MOST, NULL));
    ck_assert(block_writer_end(writer, 0, &sum, NULL));
    ck_assert_uint_eq(n_told, 0);
    return writer;
}

START_TEST(disk_takes_a_file_in_pieces)
{
    g_autoptr(BlockWriter) writer = write_held(20);
    g_autofree char *path = g_build_filename(directory, "blocks", NULL);
    g_autofree char *bytes = NULL;
    bool has_more = true;
    unsigned n_pieces = 0;
    gsize n_all;

    for (; has_more; n_pieces++)
        ck_assert(block_writer_settle(writer, &has_more, NULL));
    ck_assert_uint_eq(n_pieces, 3); /* of 8 MiB */
    ck_assert(g_file_get_contents(path, &bytes, &n_all, NULL));
    ck_assert_uint_eq(n_told, n_all);
    ck_assert(block_writer_settle(writer, &has_more, NULL) && !has_more);
    ck_assert_uint_eq(n_told, n_all);
    ck_assert(block_writer_sync(writer, NULL));
}
END_TEST

/* A kernel tells once that bytes could not be written. If it cannot take pieces, it takes all. */
START_TEST(disk_that_takes_no_piece_is_an_error)
{
    static const struct {
        int disk_error;
        bool ok;
    } cases[] = { { EIO, false }, { ENOSPC, false }, { EDQUOT, false }, { ENOSYS, true } };
    g_autoptr(BlockWriter) writer = write_held(10);
    g_autoptr(GError) error = NULL;
    bool has_more = true;

    disk_error = cases[_i].disk_error;
    ck_assert(block_writer_settle(writer, &has_more, &error) == cases[_i].ok);
    if (cases[_i].ok)
        ck_assert(!has_more && block_writer_sync(writer, NULL));
    else
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO) &&
                  strstr(error->message, "blocks: cannot be synchronised with the disk") != NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block files");
    TCase *cases = tcase_create("blocks");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, pieces_of_any_size_come_back, 0, 2);
    tcase_add_loop_test(cases, file_grows_by_whole_pieces, 0, 32);
    tcase_add_test(cases, record_that_fits_a_block_lies_in_one);
    tcase_add_test(cases, disk_hears_nothing_of_a_file_that_is_held);
    tcase_add_test(cases, disk_takes_a_file_in_pieces);
    tcase_add_loop_test(cases, disk_that_takes_no_piece_is_an_error, 0, 4);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
