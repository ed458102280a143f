/* Which of its rows a worker of rubato-mlp takes in which step. */
#include <check.h>
#include <string.h>

#include "apps/mlp/mlp_share.h"
#include "tests/support/runner.h"

/* The rows' only value is their number; the label, too. */
static MlpShare make_share(size_t n_rows, uint64_t seed)
{
    MlpShare share = { .rows = { .n_rows = n_rows, .n_columns = 1 } };

    share.rows.values = g_new(float, n_rows + 1);
    share.rows.labels = g_new(float, n_rows + 1);
    for (size_t i = 0; i < n_rows; i++)
        share.rows.values[i] = share.rows.labels[i] = (float)i;
    ck_assert(mlp_share_init(&share, seed, NULL));
    return share;
}

static const struct {
    size_t n_rows;
    uint64_t steps_of_epoch;
} splits[] = { { 0, 3 }, { 1, 1 }, { 2, 5 }, { 64, 8 }, { 100, 7 }, { 1000, 3 } };

START_TEST(each_row_is_taken_once_in_an_epoch)
{
    const uint64_t per_epoch = splits[_i].steps_of_epoch;
    MlpShare share = make_share(splits[_i].n_rows, 3);
    const size_t most = mlp_share_most(&share, per_epoch);
    g_autofree float *rows = g_new(float, most);
    g_autofree float *labels = g_new(float, most);

    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        g_autofree unsigned *taken = g_new0(unsigned, splits[_i].n_rows + 1);

        for (uint64_t step = epoch * per_epoch; step < (epoch + 1) * per_epoch; step++) {
            const size_t n = mlp_share_take(&share, per_epoch, step, rows, labels);

            ck_assert_uint_le(n, most);
            ck_assert_uint_ge(n + 1, most);
            ck_assert_uint_eq(n, mlp_share_count(&share, per_epoch, step));
            for (size_t i = 0; i < n; i++) {
                ck_assert_float_eq(rows[i], labels[i]);
                taken[(size_t)rows[i]]++;
            }
        }
        for (size_t i = 0; i < splits[_i].n_rows; i++)
            ck_assert_uint_eq(taken[i], 1);
    }
    mlp_share_clear(&share);
}
END_TEST

/* A run that goes on from a snapshot takes the rows that it would have taken. */
START_TEST(a_step_has_the_same_rows_whatever_came_before)
{
    MlpShare whole = make_share(100, 5), resumed = make_share(100, 5), other = make_share(100, 6);
    float expected[26], rows[26], labels[26];
    bool differs_by_epoch = false, differs_by_seed = false;

    for (uint64_t step = 0; step < 8; step++) {
        if (step == 4)
            (void)mlp_share_take(&whole, 4, 0, expected, labels);
        const size_t n = mlp_share_take(&whole, 4, step, expected, labels);
        if (step < 6)
            continue;
        ck_assert_uint_eq(mlp_share_take(&resumed, 4, step, rows, labels), n);
        ck_assert_mem_eq(rows, expected, n * sizeof *rows);
        (void)mlp_share_take(&other, 4, step, rows, labels);
        differs_by_seed |= memcmp(rows, expected, n * sizeof *rows) != 0;
        (void)mlp_share_take(&whole, 4, step - 4, rows, labels);
        differs_by_epoch |= memcmp(rows, expected, n * sizeof *rows) != 0;
    }
    ck_assert(differs_by_epoch && differs_by_seed);
    mlp_share_clear(&whole);
    mlp_share_clear(&resumed);
    mlp_share_clear(&other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mlp_share");
    TCase *cases = tcase_create("share");

    tcase_add_loop_test(cases, each_row_is_taken_once_in_an_epoch, 0, (int)G_N_ELEMENTS(splits));
    tcase_add_test(cases, a_step_has_the_same_rows_whatever_came_before);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
