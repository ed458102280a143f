/* Whole numbers from text. */
#include <check.h>
#include <glib.h>

#include "io/number_text.h"
#include "tests/support/runner.h"

static const struct {
    const char *text;
    uint64_t lowest, highest, number;
} good[] = {
    { "0", 0, 0, 0 },
    { "65535", 0, UINT16_MAX, 65535 },
    { "007", 3, 7, 7 },
    { "18446744073709551615", 0, UINT64_MAX, UINT64_MAX },
};

START_TEST(numbers_within_the_range_are_read)
{
    uint64_t number = 99;

    ck_assert(number_text_read(good[_i].text, good[_i].lowest, good[_i].highest, &number));
    ck_assert_uint_eq(number, good[_i].number);
}
END_TEST

static const struct {
    const char *text;
    uint64_t lowest, highest;
} bad[] = {
    { "", 0, 9 },
    { " 1", 0, 9 },
    { "1 ", 0, 9 },
    { "+1", 0, 9 },
    { "-1", 0, UINT64_MAX },
    { "0x1", 0, 9 },
    { "1.0", 0, 9 },
    { "2", 3, 9 },
    { "65536", 0, UINT16_MAX },
    { "18446744073709551616", 0, UINT64_MAX },
    { "99999999999999999999999999", 0, UINT64_MAX },
};

START_TEST(everything_else_is_refused)
{
    uint64_t number = 99;

    ck_assert(!number_text_read(bad[_i].text, bad[_i].lowest, bad[_i].highest, &number));
    ck_assert_uint_eq(number, 99);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("number_text");
    TCase *cases = tcase_create("number_text");

    tcase_add_loop_test(cases, numbers_within_the_range_are_read, 0, G_N_ELEMENTS(good));
    tcase_add_loop_test(cases, everything_else_is_refused, 0, G_N_ELEMENTS(bad));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
