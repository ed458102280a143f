/* Copies past the caches are like others, wherever arrays begin and end. */
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
    uint8_t *const to = g_malloc(MOST + MARGIN);

    for (size_t i = 0; i < MOST + MARGIN; i++)
        from[i] = (uint8_t)(1 + g_rand_int_range(random, 0, 255));
    for (uint32_t seed = 0; seed < N_SEEDS; seed++) {
        const size_t n = (size_t)g_rand_int_range(random, 0, seed % 2 == 0 ? MARGIN : MOST);
        const size_t at = (size_t)g_rand_int_range(random, 0, MARGIN);
        const size_t to_at = (size_t)g_rand_int_range(random, 0, MARGIN);

        memset(to, 0, MOST + MARGIN);
        tensor_stream(to + to_at, from + at, n);
        tensor_stream_end();
        check_copy(to, to_at, from + at, n);
    }
    g_free(from);
    g_free(to);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("tensor_stream");
    TCase *const cases = tcase_create("cases");

    tcase_add_test(cases, whole_arrays_are_copied_and_nothing_else);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
