/* How much the receiving thread handles itself, in a time that is made here. */
#include "io/net/monotonic.h"
#include "io/net/post_office/inline_work.h"
#include "tests/support/runner.h"

static int64_t now_ns = 1000000000;

__typeof__(monotonic_coarse_ns) __wrap_monotonic_coarse_ns;

int64_t __wrap_monotonic_coarse_ns(void)
{
    return now_ns;
}

/* Requests of one value, of which each takes so long. */
static void handle_small(InlineWork *work, unsigned n, int64_t ns)
{
    for (unsigned i = 0; i < n; i++) {
        inline_work_begin(work);
        now_ns += ns;
        inline_work_end(work, 1, 0);
    }
}

/* 20 ns a value. */
static void learn_fast(InlineWork *work, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        inline_work_learn(work, 1000, 20000);
}

START_TEST(the_first_requests_are_small)
{
    InlineWork work;

    inline_work_init(&work);
    ck_assert_uint_ge(inline_work_most(&work), INLINE_WORK_MEASURED);
    ck_assert_uint_le(inline_work_most(&work), 2000);
}
END_TEST

START_TEST(fast_requests_let_larger_ones_in)
{
    InlineWork work;

    inline_work_init(&work);
    learn_fast(&work, 20);
    ck_assert_uint_eq(inline_work_most(&work), (size_t)1 << 17);
}
END_TEST

/* 0.15 ms a row: 2 MiB are cleared for each. */
START_TEST(one_slow_request_keeps_others_out)
{
    InlineWork work;

    inline_work_init(&work);
    learn_fast(&work, 20);
    inline_work_learn(&work, 100, 15000000);
    ck_assert_uint_ge(inline_work_most(&work), 1);
    ck_assert_uint_le(inline_work_most(&work), 40);
    learn_fast(&work, 6);
    ck_assert_uint_ge(inline_work_most(&work), 50000);
}
END_TEST

START_TEST(small_slow_requests_end_the_batch)
{
    InlineWork work;

    inline_work_init(&work);
    handle_small(&work, 1000, 100);
    inline_work_begin_batch(&work);
    const int64_t began_ns = now_ns;
    while (inline_work_takes_more(&work))
        handle_small(&work, 1, 150000);
    ck_assert_int_le(now_ns - began_ns, 30000000);
    ck_assert_uint_eq(inline_work_most(&work), 0);
    inline_work_begin_batch(&work);
    ck_assert(inline_work_takes_more(&work));
    ck_assert_uint_ge(inline_work_most(&work), 1);
}
END_TEST

START_TEST(small_slow_requests_are_measured_together)
{
    InlineWork work;

    inline_work_init(&work);
    handle_small(&work, INLINE_WORK_MEASURED / 2, 1000000);
    inline_work_begin_batch(&work);
    ck_assert_uint_le(inline_work_most(&work), 20);
}
END_TEST

START_TEST(large_slow_requests_end_the_batch)
{
    InlineWork work;

    inline_work_init(&work);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert(inline_work_takes_more(&work));
        inline_work_begin(&work);
        now_ns += 15000000; /* its server measures it */
        inline_work_end(&work, 1000, 0);
    }
    ck_assert(!inline_work_takes_more(&work));
}
END_TEST

START_TEST(what_a_clock_released_is_measured)
{
    InlineWork work;

    inline_work_init(&work);
    inline_work_begin(&work);
    now_ns += 15000000;
    inline_work_end(&work, 0, 100);
    ck_assert_uint_le(inline_work_most(&work), 40);
}
END_TEST

START_TEST(the_time_between_two_batches_is_nobodys)
{
    InlineWork work;

    inline_work_init(&work);
    handle_small(&work, 3, 100);
    inline_work_begin_batch(&work);
    now_ns += 1000000000;
    handle_small(&work, 64, 100);
    ck_assert(inline_work_takes_more(&work));
    ck_assert_uint_ge(inline_work_most(&work), 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inline_work");
    TCase *cases = tcase_create("cases");

    tcase_add_test(cases, the_first_requests_are_small);
    tcase_add_test(cases, fast_requests_let_larger_ones_in);
    tcase_add_test(cases, one_slow_request_keeps_others_out);
    tcase_add_test(cases, small_slow_requests_end_the_batch);
    tcase_add_test(cases, small_slow_requests_are_measured_together);
    tcase_add_test(cases, large_slow_requests_end_the_batch);
    tcase_add_test(cases, what_a_clock_released_is_measured);
    tcase_add_test(cases, the_time_between_two_batches_is_nobodys);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
