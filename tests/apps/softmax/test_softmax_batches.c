/* Which rows a worker of rubato-softmax takes in which step. */
#include <check.h>
#include <glib.h>
#include <string.h>

#include "apps/softmax/softmax_batches.h"
#include "tests/support/runner.h"

static const struct {
    uint64_t n_rows, batch_size;
    uint32_t n_workers;
} splits[] = {
    { 1, 1, 1 },   { 1, 64, 3 },  { 2, 1, 2 },    { 7, 3, 2 },     { 64, 64, 4 },
    { 65, 64, 4 }, { 100, 7, 8 }, { 1000, 1, 3 }, { 1023, 64, 5 }, { 4097, 1000, 1 },
};

START_TEST(batches_give_each_row_to_one_worker_in_each_epoch)
{
    const uint64_t n_rows = splits[_i].n_rows;
    const uint32_t n_workers = splits[_i].n_workers;
    g_autofree unsigned *taken = g_new(unsigned, n_rows);
    uint64_t n_steps = 0;

    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        memset(taken, 0, n_rows * sizeof *taken);
        for (uint32_t rank = 0; rank < n_workers; rank++) {
            SoftmaxBatches batches;

            softmax_batches_init(&batches, n_rows, splits[_i].batch_size, rank, n_workers, 42);
            n_steps = softmax_batches_per_epoch(&batches);
            g_autofree uint64_t *rows = g_new(uint64_t, softmax_batches_max(&batches));
            for (uint64_t step = epoch * n_steps; step < (epoch + 1) * n_steps; step++) {
                uint64_t n_step;
                const size_t n = softmax_batches_take(&batches, step, rows, &n_step);

                ck_assert_uint_le(n, softmax_batches_max(&batches));
                ck_assert_uint_ge(n, n_step / n_workers);
                ck_assert_uint_le(n, n_step / n_workers + 1);
                for (size_t i = 0; i < n; i++) {
                    ck_assert_uint_lt(rows[i], n_rows);
                    taken[rows[i]]++;
                }
            }
        }
        for (uint64_t row = 0; row < n_rows; row++)
            ck_assert_msg(taken[row] == 1, "row %d was taken %u times", (int)row, taken[row]);
    }
    ck_assert_uint_eq(n_steps, (n_rows + splits[_i].batch_size - 1) / splits[_i].batch_size);
}
END_TEST

/* A step has the same rows for any number of workers, so results are comparable. */
START_TEST(batches_do_not_depend_on_the_number_of_workers)
{
    SoftmaxBatches alone, shared;
    uint64_t expected[64], rows[64], n_step;

    softmax_batches_init(&alone, 1000, 64, 0, 1, 3);
    const size_t n = softmax_batches_take(&alone, 20, expected, &n_step);
    ck_assert_uint_eq(n, n_step);
    size_t at = 0;
    for (uint32_t rank = 0; rank < 5; rank++) {
        softmax_batches_init(&shared, 1000, 64, rank, 5, 3);
        at += softmax_batches_take(&shared, 20, rows + at, &n_step);
    }
    ck_assert_uint_eq(at, n);
    ck_assert_mem_eq(rows, expected, n * sizeof *rows);
}
END_TEST

START_TEST(batches_have_another_order_in_each_epoch_and_for_each_seed)
{
    const uint64_t n_rows = 10000;
    SoftmaxBatches one, other;
    unsigned same_place = 0, same_epochs = 0, same_seeds = 0;

    softmax_batches_init(&one, n_rows, 1, 0, 1, 1);
    softmax_batches_init(&other, n_rows, 1, 0, 1, 2);
    for (uint64_t place = 0; place < n_rows; place++) {
        const uint64_t row = softmax_batches_row(&one, 0, place);

        same_place += row == place;
        same_epochs += row == softmax_batches_row(&one, 1, place);
        same_seeds += row == softmax_batches_row(&other, 0, place);
    }
    /* One is expected of each; twenty by chance has odds of one in 10^17. */
    ck_assert_uint_lt(same_place, 20);
    ck_assert_uint_lt(same_epochs, 20);
    ck_assert_uint_lt(same_seeds, 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softmax_batches");
    TCase *cases = tcase_create("batches");

    tcase_add_loop_test(cases, batches_give_each_row_to_one_worker_in_each_epoch, 0,
                        (int)G_N_ELEMENTS(splits));
    tcase_add_test(cases, batches_do_not_depend_on_the_number_of_workers);
    tcase_add_test(cases, batches_have_another_order_in_each_epoch_and_for_each_seed);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
