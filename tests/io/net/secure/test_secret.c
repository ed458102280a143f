/* The secret of a run: texts that are accepted, and texts that are refused. */
#include <string.h>

#include <rubato/error.h>

#include "io/net/secure/secret.h"
#include "tests/support/runner.h"

#define DIGITS "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

START_TEST(secret_is_read_from_its_digits)
{
    static const char *const texts[] = {
        DIGITS, "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F", DIGITS "\n",
        DIGITS " \r\n"
    };
    RunSecret secret;
    GError *error = NULL;

    ck_assert(run_secret_parse(texts[_i], strlen(texts[_i]), &secret, &error));
    ck_assert_ptr_null(error);
    for (uint8_t i = 0; i < RUN_SECRET_BYTES; i++)
        ck_assert_uint_eq(secret.bytes[i], i);
}
END_TEST

static const struct {
    const char *text, *error;
} wrong[] = {
    { "", "a secret is 64 hexadecimal digits; this one has 0" },
    { "00", "a secret is 64 hexadecimal digits; this one has 2" },
    { DIGITS "2", "a secret is 64 hexadecimal digits; this one has 65" },
    { "x" DIGITS, "a secret is 64 hexadecimal digits; character 1 of this one is none" },
    { "00:01" DIGITS, "a secret is 64 hexadecimal digits; character 3 of this one is none" },
    { " " DIGITS, "a secret is 64 hexadecimal digits; character 1 of this one is none" },
};

START_TEST(what_is_no_secret_is_refused_and_not_shown)
{
    RunSecret secret = { { 7 } };
    g_autoptr(GError) error = NULL;

    ck_assert(!run_secret_parse(wrong[_i].text, strlen(wrong[_i].text), &secret, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    ck_assert_str_eq(error->message, wrong[_i].error);
    ck_assert_uint_eq(secret.bytes[0], 7);
}
END_TEST

START_TEST(secret_may_not_end_in_a_zero)
{
    const char bytes[] = { '0', '0', '1' };
    RunSecret secret;
    g_autoptr(GError) error = NULL;

    ck_assert(!run_secret_parse(bytes, sizeof bytes, &secret, &error));
    ck_assert_str_eq(error->message, "a secret is 64 hexadecimal digits; this one has 3");
}
END_TEST

START_TEST(secrets_are_drawn_at_random_and_come_back_from_their_digits)
{
    RunSecret one, other, read;
    char text[RUN_SECRET_DIGITS + 1];

    ck_assert(run_secret_draw(&one, NULL));
    ck_assert(run_secret_draw(&other, NULL));
    ck_assert_mem_ne(one.bytes, other.bytes, RUN_SECRET_BYTES);
    run_secret_format(&one, text);
    ck_assert(run_secret_parse(text, strlen(text), &read, NULL));
    ck_assert_mem_eq(one.bytes, read.bytes, RUN_SECRET_BYTES);
}
END_TEST

START_TEST(cleared_secret_is_wiped)
{
    RunSecret secret, zero = { { 0 } };

    ck_assert(run_secret_draw(&secret, NULL));
    run_secret_clear(&secret);
    ck_assert_mem_eq(secret.bytes, zero.bytes, RUN_SECRET_BYTES);
    run_secret_clear(NULL);
}
END_TEST

static Suite *secret_suite(void)
{
    Suite *suite = suite_create("secret");
    TCase *all = tcase_create("all");

    suite_add_tcase(suite, all);
    tcase_add_loop_test(all, secret_is_read_from_its_digits, 0, 4);
    tcase_add_loop_test(all, what_is_no_secret_is_refused_and_not_shown, 0,
                        (int)G_N_ELEMENTS(wrong));
    tcase_add_test(all, secret_may_not_end_in_a_zero);
    tcase_add_test(all, secrets_are_drawn_at_random_and_come_back_from_their_digits);
    tcase_add_test(all, cleared_secret_is_wiped);
    return suite;
}

int main(void)
{
    return run_suite(secret_suite());
}
