/* Adasum: dots, weights and the sum of 1 to 7 vectors. One thread. */
#include "engine/collectives/work/tensor_adasum.h"

#include <check.h>
#include <glib.h>
#include <math.h>
#include <string.h>

#include "tests/support/collectives/adasum_reference.h"
#include "tests/support/runner.h"

enum { MOST = 7, N = 1300 }; /* values: more than two blocks, and no whole number of lanes */

/* Dots in two pieces, weights, and the sum into `outputs`. */
static void adasum(RubatoDtype dtype, const void *const *vectors, uint32_t n, double scale,
                   void *const *outputs, uint32_t n_outputs, size_t n_values)
{
    double dots[MOST * (MOST + 1) / 2] = { 0 }, weights[MOST];

    ck_assert_uint_eq(tensor_adasum_n_dots(n), n * (n + 1) / 2);
    tensor_adasum_add_dots(dtype, vectors, n, 0, n_values / 3, dots);
    tensor_adasum_add_dots(dtype, vectors, n, n_values / 3, n_values, dots);
    tensor_adasum_weigh(dots, n, scale, weights);
    tensor_adasum_combine(dtype, vectors, n, weights, outputs, n_outputs, 0, n_values);
}

static const struct {
    RubatoDtype dtype;
    double error; /* relative, of one rounding */
} kinds[] = {
    { RUBATO_F32, 1e-7 }, { RUBATO_F64, 1e-12 }, { RUBATO_F16, 0x1p-11 }, { RUBATO_BF16, 0x1p-8 }
};

static double value_of(uint32_t vector, size_t i)
{
    return sin((double)(i * (vector + 1)) * 0.37 + vector) + 0.4;
}

/* _i: the dtype. */
START_TEST(sums_are_those_of_the_reference)
{
    const RubatoDtype dtype = kinds[_i].dtype;
    static double arrays[MOST + 2][N], expected[MOST][N]; /* arrays: of any dtype */

    for (uint32_t n = 1; n <= MOST; n++) {
        const void *vectors[MOST];
        void *const outputs[] = { arrays[0],
                                  arrays[MOST + 1] }; /* the first one is a vector, too */

        for (uint32_t v = 0; v < n; v++) {
            vectors[v] = arrays[v];
            for (size_t i = 0; i < N; i++) {
                adasum_put(dtype, arrays[v], i, value_of(v, i));
                expected[v][i] = adasum_get(dtype, arrays[v], i);
            }
        }
        adasum_reference(&expected[0][0], n, N);
        adasum(dtype, vectors, n, 2, outputs, 2, N);
        for (size_t i = 0; i < N; i++)
            ck_assert_double_eq_tol(adasum_get(dtype, arrays[0], i), 2 * expected[0][i],
                                    kinds[_i].error * (fabs(2 * expected[0][i]) + 0.01));
        ck_assert_mem_eq(arrays[0], arrays[MOST + 1], N * rubato_dtype_size(dtype));
    }
}
END_TEST

/* Of few values, which are written out. */
static void check_few(const double (*rows)[3], uint32_t n, const double *expected)
{
    const void *vectors[MOST];
    double result[3];
    void *const output = result;

    for (uint32_t i = 0; i < n; i++)
        vectors[i] = rows[i];
    adasum(RUBATO_F64, vectors, n, 1, &output, 1, 3);
    for (int i = 0; i < 3; i++)
        if (isnan(expected[i]))
            ck_assert_double_nan(result[i]);
        else
            ck_assert_double_eq_tol(result[i], expected[i], 1e-12);
}

START_TEST(orthogonal_vectors_are_added_and_parallel_ones_averaged)
{
    check_few((const double[][3]){ { 3, 0, 0 }, { 0, 4, 0 }, { 0, 0, 5 } }, 3,
              (const double[]){ 3, 4, 5 });
    check_few((const double[][3]){ { 2, 4, 6 }, { 4, 8, 12 } }, 2, (const double[]){ 3, 6, 9 });
    for (uint32_t n = 1; n <= MOST; n++)
        check_few((const double[][3]){ { 1, 2, 3 },
                                       { 1, 2, 3 },
                                       { 1, 2, 3 },
                                       { 1, 2, 3 },
                                       { 1, 2, 3 },
                                       { 1, 2, 3 },
                                       { 1, 2, 3 } },
                  n, (const double[]){ 1, 2, 3 });
}
END_TEST

START_TEST(zero_changes_nothing_wherever_it_is)
{
    check_few((const double[][3]){ { 0 }, { 1, 2, 3 } }, 2, (const double[]){ 1, 2, 3 });
    check_few((const double[][3]){ { 1, 2, 3 }, { 0 }, { 0 } }, 3, (const double[]){ 1, 2, 3 });
    check_few((const double[][3]){ { 0 }, { 0 }, { 0 } }, 3, (const double[]){ 0, 0, 0 });
}
END_TEST

/* Two vectors that cancel each other leave little but errors: the third is added to it. */
START_TEST(what_rounding_leaves_counts_as_zero)
{
    for (int k = 0; k < 20; k++) {
        const double third[] = { 0.1 + k * 0.013, 0.2, 0.7 };
        double first[3], second[3], result[3];
        const void *const vectors[] = { first, second, third };
        void *const output = result;

        for (int i = 0; i < 3; i++) {
            first[i] = 1e9 * third[i];
            second[i] = -1e9 * third[i] - 6 * third[i];
        }
        adasum(RUBATO_F64, vectors, 3, 1, &output, 1, 3);
        for (int i = 0; i < 3; i++)
            ck_assert_double_eq_tol(result[i], -2 * third[i], 1e-5);
    }
}
END_TEST

START_TEST(what_is_no_finite_number_makes_all_of_the_result_nan)
{
    const double nan[] = { NAN, NAN, NAN };

    check_few((const double[][3]){ { 1, NAN, 3 }, { 1, 2, 3 } }, 2, nan);
    check_few((const double[][3]){ { 1, 2, 3 }, { 4, 5, 6 }, { 0, 0, INFINITY } }, 3, nan);
    check_few((const double[][3]){ { 1e200, 2, 3 }, { 4, 5, 6 }, { 0, 0, 0 } }, 3, nan);
    check_few((const double[][3]){ { 0, 0, -INFINITY }, { 0 } }, 2, nan);
}
END_TEST

/* A worker that has joined keeps its place among the pairs. */
START_TEST(no_vector_is_one_of_zeros)
{
    static const double rows[][3] = { { 1, 0, 2 }, { 0, 1, 2 }, { 3, 1, 0 } };
    static const double zeros[3] = { 0 };
    const void *without[] = { NULL, rows[0], rows[1], rows[2] };
    const void *with[] = { zeros, rows[0], rows[1], rows[2] };
    const void *fewer[] = { rows[0], rows[1], rows[2] };
    double one[3], other[3], shifted[3];
    void *const to_one = one, *const to_other = other, *const to_shifted = shifted;

    adasum(RUBATO_F64, without, 4, 1, &to_one, 1, 3);
    adasum(RUBATO_F64, with, 4, 1, &to_other, 1, 3);
    adasum(RUBATO_F64, fewer, 3, 1, &to_shifted, 1, 3);
    ck_assert_mem_eq(one, other, sizeof one);
    ck_assert_mem_ne(one, shifted, sizeof one);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_adasum");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, sums_are_those_of_the_reference, 0, G_N_ELEMENTS(kinds));
    tcase_add_test(cases, orthogonal_vectors_are_added_and_parallel_ones_averaged);
    tcase_add_test(cases, zero_changes_nothing_wherever_it_is);
    tcase_add_test(cases, what_rounding_leaves_counts_as_zero);
    tcase_add_test(cases, what_is_no_finite_number_makes_all_of_the_result_nan);
    tcase_add_test(cases, no_vector_is_one_of_zeros);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
