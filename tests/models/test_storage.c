/* Shards over both storages: what a Get reads and an Add leaves. */
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/shard.h"
#include "models/spec.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

static const char *const storages[] = { "dense", "hash" };

START_TEST(lists_selections_and_runs_read_and_add)
{
    for (uint32_t width = 1; width <= 5; width++) {
        RubatoTableSpec spec = { .dtype = RUBATO_I64, .width = width, .init_value = 7 };
        RubatoShard *shard = shard_make(&spec, storages[_i], 600);
        const RubatoKey keys[] = { 1005, 1599, 1005, 1000, 1300 };
        const uint32_t at[] = { 4, 1 };
        const RubatoKeys list = { .keys = keys, .n = 5 };
        const RubatoKeys selection = { .keys = keys, .at = at, .n = 2 };
        const RubatoKeys run = { .first = 1003, .n = 400 };
        g_autofree int64_t *values = g_new0(int64_t, 600 * width);
        g_autofree int64_t *expected = g_new(int64_t, 600 * width);

        for (size_t i = 0; i < 600 * width; i++)
            expected[i] = 7;
        ck_assert_uint_eq(shard_row_bytes(shard), width * 8);

        for (size_t i = 0; i < 5 * width; i++) {
            values[i] = (int64_t)(i + 1);
            expected[(keys[i / width] - SHARD_FIRST_KEY) * width + i % width] += values[i];
        }
        shard_add(shard, &list, values);

        for (size_t i = 0; i < 2 * width; i++) {
            const uint32_t row = at[i / width];

            expected[(keys[row] - SHARD_FIRST_KEY) * width + i % width] +=
                values[row * width + i % width];
        }
        shard_add(shard, &selection, values);

        for (size_t i = 0; i < 400 * width; i++) {
            values[i] = (int64_t)(i * 3);
            expected[3 * width + i] += values[i];
        }
        shard_add(shard, &run, values);

        const RubatoKeys all = { .first = SHARD_FIRST_KEY, .n = 600 };
        memset(values, 0xff, 600 * width * sizeof(*values));
        shard_get(shard, &all, values);
        ck_assert_mem_eq(values, expected, 600 * width * sizeof(*values));

        memset(values, 0xff, 600 * width * sizeof(*values));
        shard_get(shard, &list, values);
        for (size_t i = 0; i < 5; i++)
            ck_assert_mem_eq(values + i * width, expected + (keys[i] - SHARD_FIRST_KEY) * width,
                             width * sizeof(*values));
        ck_assert_int_eq(values[5 * width], -1);

        memset(values, 0xff, 600 * width * sizeof(*values));
        shard_get(shard, &selection, values);
        for (size_t row = 0; row < 6; row++)
            if (row == 1 || row == 4)
                ck_assert_mem_eq(values + row * width,
                                 expected + (keys[row] - SHARD_FIRST_KEY) * width,
                                 width * sizeof(*values));
            else
                ck_assert_int_eq(values[row * width], -1);
        shard_free(shard);
    }
}
END_TEST

/* Every width that has a path of its own, every dtype: more rows than a block has. */
START_TEST(narrow_rows_of_every_dtype_are_gathered_and_scattered)
{
    for (int dtype = RUBATO_F32; dtype <= RUBATO_I64; dtype++) {
        RubatoTableSpec spec = { .dtype = (RubatoDtype)dtype };
        RubatoShard *shard = shard_make(&spec, storages[_i], 5000);
        const size_t size = rubato_dtype_size(spec.dtype);
        RubatoKey keys[1000];
        uint32_t at[1000];
        unsigned char values[8000], read[8000];

        for (uint32_t i = 0; i < 1000; i++) {
            keys[i] = SHARD_FIRST_KEY + (i * 2654435761u) % 5000;
            at[i] = 999 - i;
            for (size_t j = 0; j < size; j++)
                values[i * size + j] = (unsigned char)(keys[i] % 61 + 1);
        }
        spec.update = "assign";
        shard_free(shard);
        shard = shard_make(&spec, storages[_i], 5000);
        for (int form = 0; form < 2; form++) {
            const RubatoKeys request = { .keys = keys, .at = form == 0 ? NULL : at, .n = 1000 };

            shard_add(shard, &request, values);
            memset(read, 0, sizeof(read));
            shard_get(shard, &request, read);
            ck_assert_mem_eq(read, values, 1000 * size);
        }
        shard_free(shard);
    }
}
END_TEST

START_TEST(an_empty_request_does_nothing)
{
    RubatoTableSpec spec = { .dtype = RUBATO_I64 };
    RubatoShard *shard = shard_make(&spec, storages[_i], 10);
    const RubatoKeys none = { .first = 5 };
    const RubatoKey key = 1;
    const RubatoKeys none_listed = { .keys = &key };
    int64_t value = 3;

    ck_assert(shard_keys_ok(shard, &none));
    ck_assert(shard_keys_ok(shard, &none_listed));
    shard_get(shard, &none, &value);
    shard_add(shard, &none, &value);
    shard_get(shard, &none_listed, &value);
    shard_add(shard, &none_listed, &value);
    ck_assert_int_eq(value, 3);
    shard_free(shard);
}
END_TEST

START_TEST(dense_refuses_keys_outside_its_range)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    RubatoShard *shard = shard_make(&spec, "dense", 10);
    const struct {
        RubatoKeys keys;
        bool ok;
    } cases[] = {
        { { .first = SHARD_FIRST_KEY, .n = 10 }, true },
        { { .first = SHARD_FIRST_KEY + 9, .n = 1 }, true },
        { { .first = SHARD_FIRST_KEY + 10, .n = 1 }, false },
        { { .first = SHARD_FIRST_KEY, .n = 11 }, false },
        { { .first = SHARD_FIRST_KEY + 1, .n = SIZE_MAX }, false },
        { { .first = SHARD_FIRST_KEY - 1, .n = 2 }, false },
        { { .first = UINT64_MAX, .n = SHARD_FIRST_KEY + 2 }, false },
        { { .keys = (const RubatoKey[]){ 1000, 1009 }, .n = 2 }, true },
        { { .keys = (const RubatoKey[]){ 1000, 1010 }, .n = 2 }, false },
        { { .keys = (const RubatoKey[]){ 999, 1000 }, .n = 2 }, false },
        { { .keys = (const RubatoKey[]){ 1000, 7, 1001 },
            .at = (const uint32_t[]){ 0, 2 },
            .n = 2 },
          true },
        { { .keys = (const RubatoKey[]){ 1000, 7, 1001 },
            .at = (const uint32_t[]){ 2, 1 },
            .n = 2 },
          false },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++)
        ck_assert_msg(shard_keys_ok(shard, &cases[i].keys) == cases[i].ok, "case %zu", i);
    shard_free(shard);
}
END_TEST

START_TEST(hash_takes_all_keys_but_no_run_beyond_the_last)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const RubatoKeys last = { .first = UINT64_MAX, .n = 1 };
    const RubatoKeys beyond = { .first = UINT64_MAX, .n = 2 };

    ck_assert(shard_keys_ok(shard, &last));
    ck_assert(!shard_keys_ok(shard, &beyond));
    shard_free(shard);
}
END_TEST

START_TEST(a_dense_shard_may_have_no_keys)
{
    RubatoTableSpec spec = {
        .dtype = RUBATO_F32, .name = "rows", .n_keys = 1, .init = "uniform", .init_high = 1
    };
    RubatoShard *shard = shard_new(&spec, 5, 0, NULL);
    const RubatoKeys none = { .first = 5 };
    const RubatoKeys one = { .first = 5, .n = 1 };
    uint64_t n_rows, n_bytes;

    ck_assert_ptr_nonnull(shard);
    ck_assert(shard_keys_ok(shard, &none));
    ck_assert(!shard_keys_ok(shard, &one));
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, 0);
    shard_free(shard);
    shard_free(NULL);
}
END_TEST

START_TEST(more_rows_than_there_is_memory_is_an_error)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F64, .name = "rows", .width = 1000 };
    static const uint64_t counts[] = { UINT64_C(1) << 44, UINT64_MAX };

    for (size_t i = 0; i < G_N_ELEMENTS(counts); i++) {
        g_autoptr(GError) error = NULL;

        spec.n_keys = counts[i];
        ck_assert_ptr_null(shard_new(&spec, 0, counts[i], &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY));
        ck_assert_ptr_nonnull(strstr(error->message, "rows"));
    }
}
END_TEST

START_TEST(a_get_of_an_absent_key_creates_nothing_unless_told_to)
{
    RubatoTableSpec spec = { .dtype = RUBATO_I64, .init_value = 5, .create_on_get = _i == 1 };
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const RubatoKey keys[] = { 0, 1, UINT64_MAX, 0 };
    const RubatoKeys list = { .keys = keys, .n = 4 };
    const RubatoKeys one = { .keys = keys, .n = 1 };
    int64_t values[4] = { 0 };
    const int64_t one_more = 1;
    uint64_t n_rows, n_bytes;

    shard_get(shard, &list, values);
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(values[i], 5);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, _i == 1 ? 3 : 0);
    shard_add(shard, &one, &one_more);
    shard_get(shard, &list, values);
    ck_assert_int_eq(values[0], 6);
    ck_assert_int_eq(values[1], 5);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, _i == 1 ? 3 : 1);
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("storage");
    TCase *shards = tcase_create("shards");

    tcase_add_loop_test(shards, lists_selections_and_runs_read_and_add, 0, 2);
    tcase_add_loop_test(shards, narrow_rows_of_every_dtype_are_gathered_and_scattered, 0, 2);
    tcase_add_loop_test(shards, an_empty_request_does_nothing, 0, 2);
    tcase_add_test(shards, dense_refuses_keys_outside_its_range);
    tcase_add_test(shards, hash_takes_all_keys_but_no_run_beyond_the_last);
    tcase_add_test(shards, a_dense_shard_may_have_no_keys);
    tcase_add_test(shards, more_rows_than_there_is_memory_is_an_error);
    tcase_add_loop_test(shards, a_get_of_an_absent_key_creates_nothing_unless_told_to, 0, 2);
    suite_add_tcase(suite, shards);
    return run_suite(suite);
}
