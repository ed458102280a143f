/* The rows of a follower's table and what a version changes in them: what goes back, and how much
 * memory that takes. */
#include "io/stream/version_rows.h"

#include <check.h>
#include <rubato/error.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { FIRST = 100, LONG = 10000 };

/* A range, rows of any keys, rows of different lengths: all of f32, the last of one value here. */
static const VersionShape shapes[] = {
    { .row_bytes = sizeof(float),
      .value_bytes = sizeof(float),
      .is_range = true,
      .first = FIRST,
      .n_keys = 2 },
    { .row_bytes = sizeof(float), .value_bytes = sizeof(float) },
    { .row_bytes = 0, .value_bytes = sizeof(float) },
};

static float value_of(const VersionRows *rows, RubatoKey key)
{
    uint32_t n_values;
    const float *const row = version_rows_find(rows, key, &n_values);

    ck_assert(row != NULL && n_values == 1);
    return *row;
}

START_TEST(range_of_more_bytes_than_can_be_is_refused)
{
    const VersionShape shape = { .row_bytes = sizeof(float),
                                 .value_bytes = sizeof(float),
                                 .is_range = true,
                                 .n_keys = (UINT64_C(1) << 62) + 1 };
    GError *error = NULL;

    ck_assert_ptr_null(version_rows_new(&shape, &error));
    check_error(&error, RUBATO_ERROR_FORMAT, "are more than can be", NULL);
}
END_TEST

/* Two of one record, and one more behind them. */
START_TEST(key_that_comes_more_than_once_goes_back_to_what_it_was)
{
    g_autoptr(VersionRows) rows = version_rows_new(&shapes[_i], NULL);
    const RubatoKey keys[] = { FIRST, FIRST + 1 }, twice[] = { FIRST, FIRST };
    const float before[] = { 1, 2 }, after[] = { 3, 4 };
    const uint32_t ones[] = { 1, 1 };
    const uint32_t *const lengths = shapes[_i].row_bytes == 0 ? ones : NULL;
    VersionChange *change;

    ck_assert_ptr_nonnull(rows);
    ck_assert(version_rows_put(
        rows, 0,
        &(RubatoSnapshotRows){ .keys = keys, .n = 2, .values = before, .lengths = lengths }, NULL));
    change = version_change_new(rows, 1);
    for (size_t n = 2; n > 0; n--)
        ck_assert(version_change_put(
            change, 0,
            &(RubatoSnapshotRows){ .keys = twice, .n = n, .values = after, .lengths = lengths },
            NULL));
    version_change_cover(change, 0, NULL);
    ck_assert(version_change_finish(change, 2, NULL));
    version_change_swap(change);
    ck_assert(value_of(rows, FIRST) == 3 && value_of(rows, FIRST + 1) == 2);
    version_change_swap(change);
    ck_assert(value_of(rows, FIRST) == 1 && value_of(rows, FIRST + 1) == 2);
    version_change_swap(change);
    ck_assert(value_of(rows, FIRST) == 3 && value_of(rows, FIRST + 1) == 2);
    version_change_free(change);
}
END_TEST

/* The lengths of a row before and after; GONE: it is not there. */
enum { GONE = UINT16_MAX };

static const struct {
    uint32_t before, after;
} lengths[] = { { LONG, 1 }, { LONG, GONE }, { 1, LONG }, { GONE, LONG } };

static RubatoSnapshotRows row_of(const RubatoKey *key, const uint32_t *length, const float *values)
{
    return (RubatoSnapshotRows){
        .keys = key, .n = *length != GONE, .values = values, .lengths = length
    };
}

/* As those before have to be put back. */
START_TEST(bytes_of_a_change_are_those_of_the_rows_before)
{
    g_autoptr(VersionRows) rows = version_rows_new(&shapes[2], NULL);
    g_autofree float *values = g_new0(float, LONG);
    const RubatoKey key = FIRST;
    const uint32_t before = lengths[_i].before, after = lengths[_i].after;
    const RubatoSnapshotRows was = row_of(&key, &before, values);
    const RubatoSnapshotRows is = row_of(&key, &after, values);
    VersionChange *change;

    ck_assert_ptr_nonnull(rows);
    ck_assert(version_rows_put(rows, 0, &was, NULL));
    change = version_change_new(rows, 1);
    ck_assert(version_change_put(change, 0, &is, NULL));
    version_change_cover(change, 0, NULL);
    ck_assert(version_change_finish(change, is.n, NULL));
    if (before == LONG)
        ck_assert_uint_ge(version_change_bytes(change), LONG * sizeof(float));
    else
        ck_assert_uint_le(version_change_bytes(change), 100);
    version_change_swap(change);
    version_change_free(change);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows of a version");
    TCase *cases = tcase_create("rows");

    tcase_add_test(cases, range_of_more_bytes_than_can_be_is_refused);
    tcase_add_loop_test(cases, key_that_comes_more_than_once_goes_back_to_what_it_was, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, bytes_of_a_change_are_those_of_the_rows_before, 0,
                        G_N_ELEMENTS(lengths));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
