/* Memory beyond a bound, in a file. */
#include "io/store/spill_file.h"

#include <check.h>
#include <glib.h>
#include <pthread.h>
#include <string.h>

#include "io/huge_pages.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { BLOCK = 1000, N_BLOCKS = 200, N_THREADS = 3 };

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-spill-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

START_TEST(memory_is_counted_up_to_the_bound)
{
    SpillFile *const spill = spill_file_new(directory, 100);
    void *large, *small, *again, *none;

    ck_assert_uint_eq(spill_file_most_bytes(spill), 100);
    ck_assert(spill_file_has_half(spill));
    ck_assert(spill_file_take(spill, 60, &large));
    ck_assert(!spill_file_has_half(spill));
    ck_assert_ptr_nonnull(large);
    ck_assert(!spill_file_take(spill, 41, &small));
    ck_assert(spill_file_take(spill, 40, &small));
    spill_file_give_back(spill, large, 60);
    ck_assert(spill_file_has_half(spill));
    ck_assert(spill_file_take(spill, 60, &again)); /* it was kept */
    ck_assert(!spill_file_has_half(spill));
    ck_assert_ptr_eq(again, large);
    spill_file_give_back(spill, again, 60);
    ck_assert(spill_file_take(spill, 30, &large)); /* and goes if others are asked for */
    ck_assert(spill_file_take(spill, 30, &again));
    ck_assert(!spill_file_take(spill, 1, &none));
    ck_assert_ptr_null(none);
    spill_file_give_back(spill, again, 30);
    spill_file_give_back(spill, small, 40);
    spill_file_give_back(spill, large, 30);
    ck_assert_uint_eq(spill_file_taken_bytes(spill), 60 + 40 + 60 + 30 + 30);
    spill_file_free(spill);
    spill_file_free(NULL);
}
END_TEST

START_TEST(blocks_are_made_ready_up_to_the_bound)
{
    enum { N_BYTES = 4096, N_MOST = 10 };
    SpillFile *const spill = spill_file_new(directory, N_MOST * N_BYTES);
    void *blocks[N_MOST], *other, *none;

    spill_file_warm(spill, N_BYTES, 4);
    ck_assert(spill_file_has_half(spill));                  /* nobody has them */
    ck_assert(!spill_file_take(spill, 7 * N_BYTES, &none)); /* but they count */
    ck_assert(spill_file_take(spill, 2 * N_BYTES, &other));
    spill_file_warm(spill, N_BYTES, 4); /* no more than that */
    spill_file_give_back(spill, other, 2 * N_BYTES);
    spill_file_warm(spill, N_BYTES, 100); /* what was given back goes for it */
    for (int i = 0; i < N_MOST; i++) {
        ck_assert(spill_file_take(spill, N_BYTES, &blocks[i]));
        ck_assert_ptr_nonnull(blocks[i]);
        memset(blocks[i], i, N_BYTES);
    }
    ck_assert(!spill_file_has_half(spill));
    ck_assert(!spill_file_take(spill, N_BYTES, &none));
    spill_file_warm(spill, N_BYTES, 1); /* there is no room */
    ck_assert(!spill_file_take(spill, N_BYTES, &none));
    for (int i = 0; i < N_MOST; i++) {
        ck_assert_int_eq(*(unsigned char *)blocks[i], i);
        spill_file_give_back(spill, blocks[i], N_BYTES);
    }
    ck_assert(spill_file_take(spill, N_BYTES, &other));
    ck_assert_ptr_eq(other, blocks[N_MOST - 1]);
    spill_file_give_back(spill, other, N_BYTES);
    spill_file_free(spill);
}
END_TEST

START_TEST(zeros_are_made_ready)
{
    SpillFile *const spill = spill_file_new(directory, 1);
    unsigned char *zeros;

    ck_assert_ptr_null(spill_file_take_zeros(spill, 5000));
    spill_file_warm_zeros(spill, 5000);
    spill_file_warm_zeros(spill, 6000);
    ck_assert_ptr_null(spill_file_take_zeros(spill, 4000));
    zeros = spill_file_take_zeros(spill, 5000);
    ck_assert_ptr_nonnull(zeros);
    for (int i = 0; i < 5000; i++)
        ck_assert_int_eq(zeros[i], 0);
    ck_assert_ptr_null(spill_file_take_zeros(spill, 5000));
    huge_pages_free(zeros, 5000);
    spill_file_free(spill);
}
END_TEST

typedef struct {
    SpillFile *spill;
    unsigned char first;
    bool ok;
} Writer;

/* Writes blocks and reads each back, all of one byte. */
static void *write_blocks(void *data)
{
    Writer *const writer = data;
    unsigned char block[BLOCK], seen[BLOCK];
    uint64_t offsets[N_BLOCKS];

    writer->ok = true;
    for (unsigned i = 0; i < N_BLOCKS; i++) {
        memset(block, (int)(writer->first + i), sizeof block);
        writer->ok &= spill_file_write(writer->spill, block, sizeof block, &offsets[i]);
    }
    for (unsigned i = 0; writer->ok && i < N_BLOCKS; i++) {
        memset(block, (int)(writer->first + i), sizeof block);
        writer->ok &= spill_file_read(writer->spill, offsets[i], seen, sizeof seen) &&
                      memcmp(block, seen, sizeof seen) == 0;
    }
    return NULL;
}

START_TEST(blocks_of_several_threads_come_back)
{
    SpillFile *const spill = spill_file_new(directory, 1);
    Writer writers[N_THREADS];
    GThread *threads[N_THREADS];
    GDir *dir;

    for (unsigned i = 0; i < N_THREADS; i++) {
        writers[i] = (Writer){ .spill = spill, .first = (unsigned char)(7 * i) };
        threads[i] = g_thread_new("writer", write_blocks, &writers[i]);
    }
    for (unsigned i = 0; i < N_THREADS; i++) {
        g_thread_join(threads[i]);
        ck_assert(writers[i].ok);
    }
    dir = g_dir_open(directory, 0, NULL); /* the file has no name */
    ck_assert_ptr_null(g_dir_read_name(dir));
    g_dir_close(dir);
    spill_file_free(spill);
}
END_TEST

START_TEST(file_that_cannot_be_made_takes_nothing)
{
    SpillFile *const spill = spill_file_new("/dev/null/nowhere", 1);
    uint64_t offset = 5;

    ck_assert_ptr_null(spill_file_refusal(spill));
    ck_assert(!spill_file_write(spill, "x", 1, &offset));
    ck_assert_uint_eq(offset, 5);
    g_autofree char *refusal = spill_file_refusal(spill);
    ck_assert_str_eq(refusal, "/dev/null/nowhere: Not a directory");
    spill_file_free(spill);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spill files");
    TCase *cases = tcase_create("files");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, memory_is_counted_up_to_the_bound);
    tcase_add_test(cases, blocks_are_made_ready_up_to_the_bound);
    tcase_add_test(cases, zeros_are_made_ready);
    tcase_add_test(cases, blocks_of_several_threads_come_back);
    tcase_add_test(cases, file_that_cannot_be_made_takes_nothing);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
