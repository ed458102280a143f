/* Block files: how the bytes of a stream become blocks, and when the disk hears of them. */
#include <check.h>
#include <fcntl.h>
#include <string.h>

#include "io/store/block_file.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_PIECES = 12, SEED = 3, SOME_BYTES = 24 };

static char *directory;

/* What the disk was told of. */
static uint64_t n_told;

int __wrap_sync_file_range(int fd, off_t offset, off_t n, unsigned flags);

/* The linker puts this in its place. */
int __wrap_sync_file_range(int fd, off_t offset, off_t n, unsigned flags)
{
    (void)fd;
    (void)offset;
    (void)flags;
    n_told += (uint64_t)n;
    return 0;
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

int main(void)
{
    Suite *suite = suite_create("block files");
    TCase *cases = tcase_create("blocks");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, pieces_of_any_size_come_back, 0, 2);
    tcase_add_test(cases, record_that_fits_a_block_lies_in_one);
    tcase_add_test(cases, disk_hears_nothing_of_a_file_that_is_held);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
