/* The best split of a histogram, against a plain search. */
#include <glib.h>
#include <string.h>

#include "apps/gbdt/gbdt_split.h"
#include "tests/support/runner.h"

#define N_COLUMNS 3
#define N_BINS 12
#define WIDTH GBDT_HISTOGRAM_WIDTH(N_BINS)
#define SCALE 1024

static const uint32_t starts[N_COLUMNS + 1] = { 0, 5, 7, N_BINS };

/* Each column has the same rows, of which some have no value. */
static void fill(int64_t *histogram, guint32 seed)
{
    GRand *random = g_rand_new_with_seed(seed);

    memset(histogram, 0, WIDTH * sizeof *histogram);
    for (int row = 0; row < 50; row++) {
        const int64_t g = g_rand_int_range(random, -SCALE, SCALE), h = SCALE / 4;

        for (int c = 0; c < N_COLUMNS; c++) {
            const int first = seed % 2 == 0 ? 0 : 1; /* with and without missing values */
            const int bin =
                (int)starts[c] + g_rand_int_range(random, first, (int)(starts[c + 1] - starts[c]));

            histogram[GBDT_HEAD + 2 * bin] += g;
            histogram[GBDT_HEAD + 2 * bin + 1] += h;
        }
    }
    g_rand_free(random);
}

static double worth(double g, double h, double l2)
{
    return g / SCALE * (g / SCALE) / (h / SCALE + l2);
}

/* What a split gains; less than 0 if a side has too little. */
static double gain_of(const GbdtTerms *terms, const int64_t *histogram, int column, int bin,
                      bool missing_left)
{
    double g[2] = { 0, 0 }, h[2] = { 0, 0 };

    for (int b = 0; b < (int)(starts[column + 1] - starts[column]); b++) {
        const bool left = b == 0 ? missing_left : b <= bin;
        const size_t at = GBDT_HEAD + 2 * (starts[column] + (size_t)b);

        g[!left] += (double)histogram[at];
        h[!left] += (double)histogram[at + 1];
    }
    if (h[0] / SCALE < terms->min_weight || h[1] / SCALE < terms->min_weight)
        return -1;
    return worth(g[0], h[0], terms->l2) + worth(g[1], h[1], terms->l2) -
           worth(g[0] + g[1], h[0] + h[1], terms->l2);
}

START_TEST(split_is_the_best_that_there_is)
{
    const GbdtTerms terms = { N_COLUMNS, starts, SCALE, _i % 3, 0.5 * (_i % 5), 0.001 };
    int64_t histogram[WIDTH], found[WIDTH];
    double best = terms.min_gain;

    fill(histogram, (guint32)_i);
    memcpy(found, histogram, sizeof found);
    gbdt_find_split(&terms, found);
    for (int c = 0; c < N_COLUMNS; c++)
        for (int bin = 1; bin + 1 < (int)(starts[c + 1] - starts[c]); bin++)
            for (int left = 0; left < 2; left++) {
                const double gain = gain_of(&terms, histogram, c, bin, left);

                best = MAX(best, gain);
            }
    if (found[GBDT_COLUMN] < 0) {
        ck_assert_double_eq(best, terms.min_gain);
        return;
    }
    ck_assert_double_eq_tol(gain_of(&terms, histogram, (int)found[GBDT_COLUMN],
                                    (int)found[GBDT_BIN], found[GBDT_MISSING_LEFT] != 0),
                            best, 1e-9);
    ck_assert_int_eq(found[GBDT_H], 50 * SCALE / 4);
    ck_assert_int_gt(found[GBDT_LEFT_H], 0);
}
END_TEST

START_TEST(node_that_gains_nothing_is_not_split)
{
    const GbdtTerms terms = { N_COLUMNS, starts, SCALE, 1, 1, 1e6 };
    int64_t histogram[WIDTH];

    fill(histogram, 1);
    gbdt_find_split(&terms, histogram);
    ck_assert_int_eq(histogram[GBDT_COLUMN], -1);
    ck_assert_int_eq(histogram[GBDT_H], 50 * SCALE / 4);
}
END_TEST

static Suite *gbdt_split_suite(void)
{
    Suite *suite = suite_create("gbdt split");
    TCase *tcase = tcase_create("gbdt split");

    tcase_add_loop_test(tcase, split_is_the_best_that_there_is, 0, 40);
    tcase_add_test(tcase, node_that_gains_nothing_is_not_split);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(gbdt_split_suite());
}
