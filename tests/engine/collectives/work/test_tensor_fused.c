/* Sums that are written past the caches to several arrays at once have the bits of those that one
 * loop after the other makes, wherever the arrays lie. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "engine/collectives/work/tensor_fused.h"
#include "engine/collectives/work/tensor_math.h"
#include "tests/support/runner.h"

enum { N = 20000, MOST_INPUTS = 4, MOST_OUTPUTS = 4, MARGIN = 64, N_SEEDS = 100 };

typedef struct {
    RubatoDtype dtype;
    size_t size;
    uint32_t n_inputs, n_outputs, n_streamed;
    size_t begin, end, shift;
    uint8_t *inputs[MOST_INPUTS], *outputs[MOST_OUTPUTS], *expected[MOST_OUTPUTS];
    uint8_t *memory[MOST_INPUTS + MOST_OUTPUTS + MOST_OUTPUTS];
    size_t n_memory;
} Scene;

/* An array that begins at any value of a line. */
static uint8_t *new_array(Scene *scene, size_t skew)
{
    uint8_t *const memory = g_aligned_alloc0(N + 3 * MARGIN, scene->size, 64);

    scene->memory[scene->n_memory++] = memory;
    return memory + (MARGIN + skew) * scene->size;
}

static double some_value(GRand *random)
{
    static const double odd[] = { 0, -0.0, INFINITY, -INFINITY, NAN, 1e300, 1e-310, 1e38, 1e-40 };
    const gint32 which = g_rand_int_range(random, 0, 200);

    return which < (gint32)G_N_ELEMENTS(odd) ? odd[which] : g_rand_double_range(random, -9, 9);
}

static void fill(const Scene *scene, GRand *random, uint8_t *array)
{
    for (size_t i = 0; i < N; i++) {
        const double value = some_value(random);

        if (scene->dtype == RUBATO_F64)
            ((double *)(void *)array)[i] = value;
        else
            ((float *)(void *)array)[i] = (float)value;
    }
}

static void make(Scene *scene, GRand *random)
{
    const bool is_skewed = g_rand_boolean(random);
    const size_t skew = (size_t)g_rand_int_range(random, 0, 16);

    *scene = (Scene){ .dtype = g_rand_boolean(random) ? RUBATO_F64 : RUBATO_F32,
                      .n_inputs = (uint32_t)g_rand_int_range(random, 1, MOST_INPUTS + 1),
                      .n_outputs = (uint32_t)g_rand_int_range(random, 1, MOST_OUTPUTS + 1),
                      .begin = (size_t)g_rand_int_range(random, 0, N),
                      .shift = 0 };
    scene->size = rubato_dtype_size(scene->dtype);
    scene->n_streamed = (uint32_t)g_rand_int_range(random, 1, (gint32)scene->n_outputs + 1);
    scene->end = (size_t)g_rand_int_range(random, (gint32)scene->begin, N + 1);
    scene->shift = g_rand_boolean(random) ? scene->begin : 0;
    for (uint32_t i = 0; i < scene->n_inputs; i++) {
        scene->inputs[i] = new_array(scene, (size_t)g_rand_int_range(random, 0, 16));
        fill(scene, random, scene->inputs[i]);
    }
    for (uint32_t i = 0; i < scene->n_outputs; i++) {
        const size_t own = is_skewed ? (size_t)g_rand_int_range(random, 0, 16) : skew;

        scene->outputs[i] = new_array(scene, own);
        scene->expected[i] = new_array(scene, own);
    }
    if (g_rand_int_range(random, 0, 4) == 0) /* the first output is an input */
        scene->outputs[0] = scene->inputs[0];
}

static void clear(Scene *scene)
{
    for (size_t i = 0; i < scene->n_memory; i++)
        g_aligned_free(scene->memory[i]);
}

/* Whether the arrays have the same bits. Which NaN a sum of two of them is, compilers choose. */
static bool is_alike(const Scene *scene, const uint8_t *array, const uint8_t *expected)
{
    for (size_t i = 0; i < N; i++) {
        const uint8_t *const one = array + i * scene->size;
        const uint8_t *const other = expected + i * scene->size;
        const bool is_nan = scene->dtype == RUBATO_F64
                                ? isnan(*(const double *)(const void *)one) &&
                                      isnan(*(const double *)(const void *)other)
                                : isnan(*(const float *)(const void *)one) &&
                                      isnan(*(const float *)(const void *)other);

        if (!is_nan && memcmp(one, other, scene->size) != 0)
            return false;
    }
    return true;
}

/* _i: the first seed. Nothing else is written either. */
START_TEST(bits_are_those_of_one_loop_after_the_other)
{
    g_autoptr(GRand) random = g_rand_new_with_seed((guint32)_i);

    for (unsigned k = 0; k < N_SEEDS; k++) {
        Scene scene;

        make(&scene, random);
        TensorReduction reduction = {
            .dtype = scene.dtype,
            .result = scene.dtype,
            .reduce = { .reduction =
                            g_rand_boolean(random) ? RUBATO_REDUCTION_SUM : RUBATO_REDUCTION_MEAN,
                        .prescale = g_rand_int_range(random, 0, 4) == 0 ? .3 : 1,
                        .postscale = g_rand_boolean(random) ? .7 : 1 },
            .divisor = (uint32_t)g_rand_int_range(random, 1, 8),
        };
        tensor_reduce(&reduction, (const void *const *)scene.inputs, scene.n_inputs,
                      (void *const *)scene.expected, scene.n_outputs, scene.begin, scene.end,
                      scene.shift);
        if (scene.outputs[0] == scene.inputs[0]) /* what the range leaves alone */
            for (size_t i = 0; i < N; i++)
                if (i < scene.begin - scene.shift || i >= scene.end - scene.shift)
                    memcpy(scene.expected[0] + i * scene.size, scene.inputs[0] + i * scene.size,
                           scene.size);
        reduction.n_streamed = scene.n_streamed;
        tensor_reduce(&reduction, (const void *const *)scene.inputs, scene.n_inputs,
                      (void *const *)scene.outputs, scene.n_outputs, scene.begin, scene.end,
                      scene.shift);
        for (uint32_t i = 0; i < scene.n_outputs; i++)
            require_msg(is_alike(&scene, scene.outputs[i], scene.expected[i]),
                        "seed %d, number %u: output %u of %u differs", _i, k, i, scene.n_outputs);
        clear(&scene);
    }
}
END_TEST

/* Else the cases above show nothing. */
START_TEST(whole_lines_are_added_where_the_processor_has_a_loop)
{
    enum { N_VALUES = 100 };
    _Alignas(64) double one[N_VALUES], other[N_VALUES], near[N_VALUES], far[N_VALUES + 8];
    void *const arrays[] = { near, far };
    TensorFusedOutputs outputs = {
        .arrays = arrays, .n = 2, .n_streamed = 1, .divisor = 1, .scale = 1
    };

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx"))
        ck_assert_uint_eq(tensor_fused_values(RUBATO_F64, &outputs, N_VALUES), 96);
#endif
    ck_assert_uint_eq(tensor_fused_values(RUBATO_F64, &outputs, 7), 0);
    ck_assert_uint_eq(tensor_fused_values(RUBATO_I64, &outputs, N_VALUES), 0);
    outputs.offset = 8;
    ck_assert_uint_eq(tensor_fused_values(RUBATO_F64, &outputs, N_VALUES), 0);
    outputs.offset = 64;
    const size_t n = tensor_fused_values(RUBATO_F64, &outputs, 8);
    for (size_t i = 0; i < N_VALUES; i++) {
        one[i] = (double)i;
        other[i] = 1;
    }
    tensor_fused_add(RUBATO_F64, (const void *[]){ one, other }, 2, 0, &outputs, n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_double_eq(near[8 + i], (double)i + 1);
        ck_assert_double_eq(far[8 + i], (double)i + 1);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_fused");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, bits_are_those_of_one_loop_after_the_other, 0, 4);
    tcase_add_test(cases, whole_lines_are_added_where_the_processor_has_a_loop);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
