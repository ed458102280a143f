/* Floats become halves, and what that cuts off is kept. One thread. */
#include "engine/collectives/work/tensor_compression.h"

#include <check.h>
#include <glib.h>
#include <math.h>
#include <string.h>

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

/* A value is compressed alike wherever it is, whatever vector it is in. */
START_TEST(each_value_is_compressed_alike_at_each_place)
{
    enum { PLACES = 19 };
    static const float special[] = {
        0.0f,      -0.0f,     NAN,        -NAN,       INFINITY,   -INFINITY, 65504.0f, 65519.9f,
        65520.0f,  -1e30f,    3.39e38f,   0x1p-14f,   0x1p-15f,   0x1p-24f,  0x1p-25f, 0x1.8p-25f,
        -0x1p-26f, 0x1p-140f, 0x1.004p0f, 0x1.006p0f, 0x1.00cp0f, -2049.0f,  2051.0f,  1.0f / 3,
    };
    static const uint32_t payload = 0x7fdfe000; /* a NaN that says something */
    const RubatoCompression compression = (RubatoCompression)_i;

    for (size_t k = 0; k < G_N_ELEMENTS(special) * PLACES; k++) {
        const size_t place = k % PLACES;
        float values[PLACES], residuals[PLACES] = { 0 };
        uint16_t halves[PLACES];

        for (size_t i = 0; i < PLACES; i++)
            values[i] = i == place ? special[k / PLACES] : 0.3f * (float)i;
        if (isnan(values[place]))
            memcpy(&values[place], &payload, sizeof payload);
        tensor_compress(compression, values, residuals, halves, PLACES);
        for (size_t i = 0; i < PLACES; i++) {
            const float sum = values[i] + 0.0f; /* with what was left: no -0 is left of it */
            const float rest = sum - float_of(compression, halves[i]);

            ck_assert_uint_eq(halves[i], half_of(compression, sum));
            ck_assert_float_eq(residuals[i], isfinite(rest) ? rest : 0);
        }
    }
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
    tcase_add_loop_test(cases, each_value_is_compressed_alike_at_each_place, RUBATO_COMPRESSION_F16,
                        RUBATO_COMPRESSION_BF16 + 1);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
