/* How rubato-gbdt cuts values into bins. */
#include <glib.h>
#include <math.h>

#include "apps/gbdt/gbdt_bins.h"
#include "tests/support/runner.h"

#define N_ROWS 1000

static void cut(GbdtBins *bins, float *values, size_t n, uint32_t n_bins)
{
    gbdt_bins_cut(bins, &(AppDense){ .n_rows = n, .n_columns = 1, .values = values }, n_bins);
}

static uint8_t bin_of(const GbdtBins *bins, float value)
{
    uint8_t bin;

    gbdt_bins_of(bins, &value, 1, &bin);
    return bin;
}

/* Few values have a bin each; what lies between goes to one of its neighbours. */
START_TEST(bins_keep_few_values_apart)
{
    float values[] = { 3, 1, NAN, 2, 1, 3, 7 };
    GbdtBins bins;

    cut(&bins, values, G_N_ELEMENTS(values), 256);
    ck_assert_uint_eq(gbdt_bins_n(&bins), 5);
    ck_assert_uint_eq(bin_of(&bins, NAN), 0);
    ck_assert_uint_eq(bin_of(&bins, 1), 1);
    ck_assert_uint_eq(bin_of(&bins, 2), 2);
    ck_assert_uint_eq(bin_of(&bins, 3), 3);
    ck_assert_uint_eq(bin_of(&bins, 4.9f), 3);
    ck_assert_uint_eq(bin_of(&bins, 7), 4);
    ck_assert_uint_eq(bin_of(&bins, INFINITY), 4);
    ck_assert_uint_eq(bin_of(&bins, -INFINITY), 1);
    gbdt_bins_clear(&bins);
}
END_TEST

/* Many values are shared evenly; a value that comes often has one bin. */
START_TEST(bins_have_about_as_many_rows_each)
{
    const uint32_t n_bins = (uint32_t[]){ 3, 11, 256 }[_i];
    float values[N_ROWS];
    unsigned counts[256] = { 0 };
    GbdtBins bins;

    for (int i = 0; i < N_ROWS; i++)
        values[i] = i % 2 == 0 ? -1 : (float)i * (float)i;
    cut(&bins, values, N_ROWS, n_bins);
    ck_assert_uint_le(gbdt_bins_n(&bins), n_bins);
    ck_assert_uint_ge(gbdt_bins_n(&bins), MIN(n_bins, 200));
    for (int i = 0; i < N_ROWS; i++) {
        counts[bin_of(&bins, values[i])]++;
        ck_assert(i < 2 || i % 2 == 0 || bin_of(&bins, values[i]) >= bin_of(&bins, values[i - 2]));
    }
    ck_assert_uint_eq(counts[0], 0);
    ck_assert_uint_eq(counts[1], N_ROWS / 2);
    for (uint32_t b = 2; b < n_bins; b++)
        ck_assert_uint_le(counts[b], N_ROWS / 2 / (n_bins - 2) + 2);
    gbdt_bins_clear(&bins);
}
END_TEST

START_TEST(bins_of_a_column_without_values_are_two)
{
    float values[] = { NAN, NAN };
    GbdtBins bins;

    cut(&bins, values, 2, 256);
    ck_assert_uint_eq(gbdt_bins_n(&bins), 2);
    ck_assert_uint_eq(bin_of(&bins, 5), 1);
    gbdt_bins_clear(&bins);
}
END_TEST

static Suite *gbdt_bins_suite(void)
{
    Suite *suite = suite_create("gbdt bins");
    TCase *tcase = tcase_create("gbdt bins");

    tcase_add_test(tcase, bins_keep_few_values_apart);
    tcase_add_loop_test(tcase, bins_have_about_as_many_rows_each, 0, 3);
    tcase_add_test(tcase, bins_of_a_column_without_values_are_two);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(gbdt_bins_suite());
}
