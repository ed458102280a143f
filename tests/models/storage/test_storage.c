/* Shards over both storages: what a Get reads and an Add leaves, by the testing kit; and which keys
 * they take. */
#include <rubato/error.h>
#include <rubato/testing.h>
#include <stdlib.h>
#include <string.h>

#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

static const char *const storages[] = { "dense", "hash" };

START_TEST(storages_keep_what_every_storage_has_to)
{
    rubato_test_storage(&(RubatoStorageTest){ .spec = { .storage = storages[_i] },
                                              .n_seeds = is_slow() ? 100 : 1000 });
}
END_TEST

/* Lists and selections with keys that come up again, around the numbers from which blocks of them
 * are fetched ahead, and which are no whole number of blocks. */
START_TEST(adds_of_many_keys_are_those_of_plain_arrays)
{
    enum { MOST = 1111, N_ROWS = 700 };
    static const size_t sizes[] = { 2, 31, 32, 33, 999, 1000, 1024, 1025, MOST };
    RubatoTableSpec spec = { .dtype = RUBATO_I64 };
    RubatoShard *const shard = shard_make(&spec, storages[_i % 2], N_ROWS);
    const RubatoKeys all = { .first = SHARD_FIRST_KEY, .n = N_ROWS };
    int64_t deltas[MOST], expected[N_ROWS] = { 0 }, values[N_ROWS];
    RubatoKey keys[MOST];
    uint32_t at[MOST];

    for (uint32_t i = 0; i < MOST; i++) {
        keys[i] = SHARD_FIRST_KEY + i * 3 % N_ROWS;
        at[i] = i * 7 % MOST;
        deltas[i] = 1 + (int64_t)i;
    }
    for (size_t k = 0; k < G_N_ELEMENTS(sizes); k++) {
        const RubatoKeys some = { .keys = keys, .at = _i / 2 == 1 ? at : NULL, .n = sizes[k] };

        for (size_t i = 0; i < some.n; i++) {
            const size_t place = some.at == NULL ? i : at[i];

            expected[keys[place] - SHARD_FIRST_KEY] += deltas[place];
        }
        shard_add(shard, &some, deltas);
        shard_get(shard, &all, values);
        ck_assert_mem_eq(values, expected, sizeof expected);
    }
    shard_free(shard);
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

int main(void)
{
    Suite *suite = suite_create("storage");
    TCase *shards = tcase_create("shards");

    tcase_add_loop_test(shards, storages_keep_what_every_storage_has_to, 0, 2);
    tcase_add_loop_test(shards, adds_of_many_keys_are_those_of_plain_arrays, 0, 4);
    tcase_add_loop_test(shards, an_empty_request_does_nothing, 0, 2);
    tcase_add_test(shards, dense_refuses_keys_outside_its_range);
    tcase_add_test(shards, hash_takes_all_keys_but_no_run_beyond_the_last);
    tcase_add_test(shards, a_dense_shard_may_have_no_keys);
    tcase_add_test(shards, more_rows_than_there_is_memory_is_an_error);
    tcase_set_timeout(shards, 60);
    suite_add_tcase(suite, shards);
    return run_suite(suite);
}
