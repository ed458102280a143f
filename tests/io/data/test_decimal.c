/* Decimal numbers: read right, however they are read. */
#include "io/data/formats/decimal.h"

#include <locale.h>
#include <string.h>

#include "io/data/formats/row_text.h"
#include "tests/support/runner.h"

static const char padding[] = "                "; /* as behind every text of rows */

/* What strtod gives, bit by bit. */
START_TEST(decimal_agrees_with_strtod)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(20260);

    for (int i = 0; i < 100000; i++) {
        char text[64], expected_text[64];
        const char *end, *short_end;
        float number, short_number;
        const int digits = g_rand_int_range(random, 1, i % 2 == 0 ? 22 : 10);
        GString *built = g_string_new(g_rand_boolean(random) ? "-" : "");

        for (int d = 0; d < digits; d++)
            g_string_append_c(built, (char)('0' + g_rand_int_range(random, 0, 10)));
        g_string_insert_c(built,
                          g_rand_int_range(random, built->str[0] == '-', (int)built->len + 1), '.');
        if (g_rand_boolean(random))
            g_string_append_printf(built, "e%d", g_rand_int_range(random, -40, 16));
        g_strlcpy(text, built->str, sizeof text);
        g_strlcpy(expected_text, built->str, sizeof expected_text);
        g_string_append_c(built, '\n');
        g_string_append(built, padding);

        const float expected = (float)g_ascii_strtod(expected_text, NULL);
        const DecimalStatus status = decimal_read_float(built->str, &end, &number);
        require_msg(status == DECIMAL_OK, "%s: status %d", text, (int)status);
        require_msg(memcmp(&number, &expected, sizeof number) == 0, "%s: %a, strtod has %a", text,
                    (double)number, (double)expected);
        require_msg(*end == '\n', "%s: ends at \"%s\"", text, end);
        require_msg(read_float(built->str, &short_end, &short_number) == DECIMAL_OK &&
                        memcmp(&short_number, &expected, sizeof number) == 0 && short_end == end,
                    "%s: %a in short, strtod has %a", text, (double)short_number, (double)expected);
        g_string_free(built, TRUE);
    }
}
END_TEST

/* Every number of digits, and what may stand behind them. */
START_TEST(digits_are_told_from_a_word)
{
    static const char behind[] = " \n:.,/;-+eE\x7f\x80\xff\0";

    for (unsigned n = 0; n <= 8; n++)
        for (size_t b = 0; b < sizeof behind; b++) {
            char text[ROW_TEXT_PADDING] = "98765432";
            uint64_t digits, expected = n > 0 ? UINT64_C(98765432) : 0;

            memset(text + n, behind[b], sizeof text - n);
            for (unsigned i = n; i < 8; i++)
                expected /= 10;
            require_msg(leading_digits(load_word(text), &digits) == n, "%u before %d", n,
                        behind[b]);
            require_msg(n == 0 || number_of_digits(digits, n) == expected, "%u before %d", n,
                        behind[b]);
        }
}
END_TEST

START_TEST(decimal_ignores_the_locale)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8" };
    float number;
    const char *end;

    /* If none of these locales is installed, this tests no more than the other cases. */
    for (size_t i = 0; i < G_N_ELEMENTS(names) && setlocale(LC_NUMERIC, names[i]) == NULL; i++)
        ;
    ck_assert_int_eq(decimal_read_float("1.5 ", &end, &number), DECIMAL_OK);
    ck_assert(number == 1.5f);
    ck_assert_int_eq(decimal_read_float("1.234567890123456789012e0 ", &end, &number), DECIMAL_OK);
    ck_assert(number == 1.23456789f);
}
END_TEST

START_TEST(decimal_stops_where_the_number_stops)
{
    const char *const text = "12e+ ";
    const char *end;
    float number;
    uint64_t key;

    ck_assert_int_eq(decimal_read_float(text, &end, &number), DECIMAL_OK);
    ck_assert_ptr_eq(end, text + 2);
    ck_assert(number == 12.0f);
    ck_assert_int_eq(decimal_read_key(text, &end, &key), DECIMAL_OK);
    ck_assert_ptr_eq(end, text + 2);
    ck_assert_int_eq(decimal_read_key("-1 ", &end, &key), DECIMAL_NO_NUMBER);
    ck_assert_int_eq(decimal_read_key("18446744073709551615 ", &end, &key), DECIMAL_OK);
    ck_assert_uint_eq(key, UINT64_MAX);
    ck_assert_int_eq(decimal_read_key("18446744073709551616 ", &end, &key), DECIMAL_TOO_LARGE);
    ck_assert_int_eq(decimal_read_key("99999999999999999999999999 ", &end, &key),
                     DECIMAL_TOO_LARGE);
    ck_assert_int_eq(decimal_read_float("3.5e38 ", &end, &number), DECIMAL_TOO_LARGE);
    ck_assert_int_eq(decimal_read_float("1e-400 ", &end, &number), DECIMAL_OK);
    ck_assert(number == 0.0f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decimal");
    TCase *numbers = tcase_create("numbers");

    tcase_add_test(numbers, decimal_agrees_with_strtod);
    tcase_add_test(numbers, digits_are_told_from_a_word);
    tcase_add_test(numbers, decimal_ignores_the_locale);
    tcase_add_test(numbers, decimal_stops_where_the_number_stops);
    suite_add_tcase(suite, numbers);
    return run_suite(suite);
}
