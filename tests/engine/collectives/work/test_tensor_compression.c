/* Floats become halves, and what that cuts off is kept. One thread. */
#include "engine/collectives/work/tensor_compression.h"

#include <check.h>
#include <math.h>

#include "engine/collectives/work/tensor_math.h"
#include "tests/support/runner.h"

enum { N = 1003 };

static uint16_t half_of(RubatoCompression compression, float value)
{
    return compression == RUBATO_COMPRESSION_F16 ? tensor_f16_from_float(value)
                                                 : tensor_bf16_from_float(value);
}

static float float_of(RubatoCompression compression, uint16_t half)
{
    return compression == RUBATO_COMPRESSION_F16 ? tensor_float_from_f16(half)
                                                 : tensor_float_from_bf16(half);
}

/* _i: the compression. */
START_TEST(half_and_residual_together_are_the_value)
{
    const RubatoCompression compression = (RubatoCompression)_i;
    float values[N], residuals[N];
    uint16_t halves[N];

    for (int round = 0; round < 3; round++) {
        float sums[N];

        for (uint32_t i = 0; i < N; i++) {
            values[i] = (float)((int)i - N / 2) * 0.37f + (float)round;
            residuals[i] = round == 0 ? 0 : residuals[i];
            sums[i] = values[i] + residuals[i];
        }
        tensor_compress(compression, values, residuals, halves, N);
        for (uint32_t i = 0; i < N; i++) {
            ck_assert_uint_eq(halves[i], half_of(compression, sums[i]));
            ck_assert_float_eq(float_of(compression, halves[i]) + residuals[i], sums[i]);
        }
    }
}
END_TEST

START_TEST(what_is_no_finite_number_leaves_nothing)
{
    const RubatoCompression compression = (RubatoCompression)_i;
    const float most = compression == RUBATO_COMPRESSION_F16 ? 70000.0f : 3.4e38f;
    float values[] = { most, -INFINITY, NAN, 1.001f }, residuals[] = { 0, 0, 0, 0 };
    uint16_t halves[4];

    tensor_compress(compression, values, residuals, halves, 4);
    ck_assert(isinf(float_of(compression, halves[0])));
    ck_assert(isinf(float_of(compression, halves[1])));
    ck_assert(isnan(float_of(compression, halves[2])));
    for (int i = 0; i < 3; i++)
        ck_assert_float_eq(residuals[i], 0);
    ck_assert_float_ne(residuals[3], 0);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_compression");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, half_and_residual_together_are_the_value, RUBATO_COMPRESSION_F16,
                        RUBATO_COMPRESSION_BF16 + 1);
    tcase_add_loop_test(cases, what_is_no_finite_number_leaves_nothing, RUBATO_COMPRESSION_F16,
                        RUBATO_COMPRESSION_BF16 + 1);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
