/* The rows of a batch as a dense matrix.
 *
 * docs/reference/data.md */
#include <math.h>
#include <rubato/data.h>
#include <string.h>

#include "tests/support/runner.h"

static const RubatoKey keys[] = { 10, 11, 13 };
static const size_t row_start[] = { 0, 2, 2, 5 };
static const uint32_t places[] = { 2, 0, 1, 0, 1 };
static const float value[] = { 3, 1, 0.5f, -1, 0.25f };

static const RubatoBatch batch = { .n_rows = 3,
                                   .n_entries = G_N_ELEMENTS(value),
                                   .n_keys = G_N_ELEMENTS(keys),
                                   .keys = keys,
                                   .row_start = row_start,
                                   .index = places,
                                   .value = value };

START_TEST(rows_are_dense_and_repeated_keys_are_summed)
{
    static const float expected[] = { 1, 0, 0, 3, 0, 0, 0, 0, -1, 0.75f, 0, 0 };
    float matrix[G_N_ELEMENTS(expected)];

    memset(matrix, 0xff, sizeof matrix);
    ck_assert(rubato_batch_fill_matrix(&batch, 10, 4, 0, matrix, NULL));
    ck_assert_mem_eq(matrix, expected, sizeof matrix);
}
END_TEST

/* A sum that begins with the value for what is absent is a sum, too. */
START_TEST(what_a_row_does_not_have_is_what_the_caller_says)
{
    static const float expected[] = { 1, -1, -1, 3, -1, -1, -1, -1, -1, 0.75f, -1, -1 };
    float matrix[G_N_ELEMENTS(expected)];

    ck_assert(rubato_batch_fill_matrix(&batch, 10, 4, -1, matrix, NULL));
    ck_assert_mem_eq(matrix, expected, sizeof matrix);
    ck_assert(rubato_batch_fill_matrix(&batch, 10, 4, NAN, matrix, NULL));
    for (size_t i = 0; i < G_N_ELEMENTS(expected); i++)
        ck_assert((expected[i] == -1 && i != 8) == (bool)isnan(matrix[i]));
    ck_assert_float_eq(matrix[8], -1);
}
END_TEST

START_TEST(a_key_that_is_no_column_is_named)
{
    static const struct {
        RubatoKey first;
        size_t n_columns;
        const char *key;
    } wrong[] = { { 11, 9, "key 10" }, { 10, 3, "key 13" }, { 10, 0, "key 10" } };
    float matrix[30] = { 7 };

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        g_autoptr(GError) error = NULL;

        ck_assert(!rubato_batch_fill_matrix(&batch, wrong[i].first, wrong[i].n_columns, 0, matrix,
                                            &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_RANGE));
        ck_assert_ptr_nonnull(strstr(error->message, wrong[i].key));
        ck_assert(matrix[0] == 7);
    }
}
END_TEST

START_TEST(a_batch_without_entries_is_all_zeros)
{
    static const size_t starts[] = { 0, 0 };
    const RubatoBatch empty = { .n_rows = 1, .row_start = starts };
    float matrix[] = { 1, 2 };

    ck_assert(rubato_batch_fill_matrix(&empty, 5, 2, 0, matrix, NULL));
    ck_assert(matrix[0] == 0 && matrix[1] == 0);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("batch_matrix");
    TCase *const cases = tcase_create("matrix");

    tcase_add_test(cases, rows_are_dense_and_repeated_keys_are_summed);
    tcase_add_test(cases, what_a_row_does_not_have_is_what_the_caller_says);
    tcase_add_test(cases, a_key_that_is_no_column_is_named);
    tcase_add_test(cases, a_batch_without_entries_is_all_zeros);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
