/* Copies of values that are in no cache are like others, wherever arrays begin and end. */
#include "engine/collectives/work/tensor_stream.h"

#include <check.h>
#include <glib.h>

#include "tests/support/runner.h"

enum { MOST = 20000 + 16384, MARGIN = 200, N_SEEDS = 200 };

/* Nothing else was written. */
static void check_copy(const uint8_t *memory, size_t begin, const uint8_t *from, size_t n)
{
    static const uint8_t nothing[MOST + MARGIN];

    ck_assert_mem_eq(memory + begin, from, n);
    ck_assert_mem_eq(memory, nothing, begin);
    ck_assert_mem_eq(memory + begin + n, nothing, MOST + MARGIN - begin - n);
}

START_TEST(whole_arrays_are_copied_and_nothing_else)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(1);
    uint8_t *const from = g_malloc(MOST + MARGIN);
    uint8_t *const near = g_malloc(MOST + MARGIN), *const far = g_malloc(MOST + MARGIN);

    for (size_t i = 0; i < MOST + MARGIN; i++)
        from[i] = (uint8_t)(1 + g_rand_int_range(random, 0, 255));
    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        const size_t n = (size_t)g_rand_int_range(random, 0, seed % 2 == 0 ? MARGIN : MOST);
        const size_t at = (size_t)g_rand_int_range(random, 0, MARGIN);
        const size_t near_at = (size_t)g_rand_int_range(random, 0, MARGIN);
        const size_t far_at = (size_t)g_rand_int_range(random, 0, MARGIN);

        memset(near, 0, MOST + MARGIN);
        memset(far, 0, MOST + MARGIN);
        if (_i == 0)
            tensor_stream(far + far_at, from + at, n);
        else if (_i == 1)
            tensor_stream_near(near + near_at, from + at, n);
        else if (_i == 3)
            tensor_stream_both_by_lines(near + near_at, far + far_at, from + at, n);
        else
            tensor_stream_both(near + near_at, far + far_at, from + at, n);
        tensor_stream_end();
        check_copy(far, far_at, from + at, _i == 1 ? 0 : n);
        check_copy(near, near_at, from + at, _i == 0 ? 0 : n);
    }
    g_free(from);
    g_free(near);
    g_free(far);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_stream");
    TCase *const cases = tcase_create("cases");

    tcase_add_loop_test(cases, whole_arrays_are_copied_and_nothing_else, 0, 4);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
