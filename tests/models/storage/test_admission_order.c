/* Where Adds are mostly refused, hash storage asks the admission before it searches for rows. What
 * comes of an Add must be the same as if it had searched first. */
#include <rubato/mix.h>

#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { MOST_KEYS = 700, N_CALLS = 600, N_OFTEN = 3000, SEED = 5 };

#define NEVER (UINT64_C(1) << 40) /* so many Adds do not come */

/* Rows in cells and in slabs; without a bound and with one; 1 and 2 bits for a counter. */
static const struct {
    uint32_t width, count;
    uint64_t max_bytes;
} shapes[] = {
    { 1, 2, 0 }, { 50, 3, 0 }, { 1, 2, 3 << 20 }, { 1, 3, 3 << 20 }, { 50, 2, 7 << 20 }
};

/* A storage never asks first if counts may age. */
static RubatoShard *begin(RubatoTableSpec *spec, int shape, uint64_t halve_after)
{
    *spec = (RubatoTableSpec){ .name = "t",
                               .width = shapes[shape].width,
                               .max_bytes = shapes[shape].max_bytes,
                               .init = "constant",
                               .init_value = 10,
                               .admit = "count",
                               .admit_count = shapes[shape].count,
                               .admit_bytes = 1 << 20,
                               .admit_halve_after = halve_after };
    return shard_make(spec, "hash", 0);
}

/* Calls with many new keys and calls with few take turns, some of them with the same key again and
 * with key 0. */
static size_t draw_keys(RubatoKey *keys, uint64_t call)
{
    const uint64_t random = rubato_mix64(call + SEED);
    const size_t n = 1 + random % MOST_KEYS;
    const uint64_t n_new_of_8 = call / 7 % 9;

    for (size_t i = 0; i < n; i++) {
        const uint64_t drawn = rubato_mix64(random + i);

        keys[i] = drawn % 8 < n_new_of_8 ? 1 + drawn / 8 : drawn / 8 % N_OFTEN;
        if (i > 0 && drawn >> 60 == 0)
            keys[i] = keys[drawn / 8 % i];
    }
    return n;
}

static void ck_assert_same(RubatoShard *shard, RubatoShard *other, const RubatoKey *keys, size_t n)
{
    const size_t n_values = n * shard_n_values(shard);
    g_autofree float *values = g_new(float, n_values), *others = g_new(float, n_values);

    shard_get(shard, &(RubatoKeys){ .keys = keys, .n = n }, values);
    shard_get(other, &(RubatoKeys){ .keys = keys, .n = n }, others);
    ck_assert_mem_eq(values, others, n_values * sizeof *values);
    ck_assert_uint_eq(shard_n_rows(shard), shard_n_rows(other));
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, shard_admissions(other).n_admitted);
    ck_assert_uint_eq(shard_admissions(shard).n_refused, shard_admissions(other).n_refused);
    ck_assert_uint_eq(shard_uses(shard).n_evicted, shard_uses(other).n_evicted);
}

typedef void Write(RubatoShard *shard, const RubatoKeys *keys, const void *values);

static void write_both(Write *write, RubatoShard *const both[2], const RubatoKey *keys, size_t n,
                       float value)
{
    const size_t n_values = n * shard_n_values(both[0]);
    g_autofree float *values = g_new(float, n_values);

    for (size_t i = 0; i < n_values; i++)
        values[i] = value;
    for (size_t i = 0; i < 2; i++)
        write(both[i], &(RubatoKeys){ .keys = keys, .n = n }, values);
}

static void add_to_both(RubatoShard *const both[2], uint64_t n_calls)
{
    RubatoKey keys[MOST_KEYS];

    for (uint64_t call = 0; call < n_calls; call++) {
        const size_t n = draw_keys(keys, call);

        write_both(shard_add, both, keys, n, (float)(1 + call % 3));
        ck_assert_same(both[0], both[1], keys, n);
    }
}

static void free_both(RubatoShard *const both[2])
{
    shard_free(both[0]);
    shard_free(both[1]);
}

START_TEST(asking_first_changes_nothing_else)
{
    RubatoTableSpec specs[2];
    RubatoShard *const both[] = { begin(&specs[0], _i, 0), begin(&specs[1], _i, NEVER) };

    add_to_both(both, N_CALLS);
    ck_assert_uint_gt(shard_admissions(both[0]).n_refused, N_CALLS);
    ck_assert_uint_gt(shard_admissions(both[0]).n_admitted, N_CALLS);
    free_both(both);
}
END_TEST

/* The last call was refused wholly, so a storage may ask first. Rows that it did not ask about are
 * there nevertheless. */
static void refuse_many(RubatoShard *const both[2])
{
    RubatoKey keys[MOST_KEYS];

    for (size_t i = 0; i < MOST_KEYS; i++)
        keys[i] = (UINT64_C(1) << 50) + i;
    write_both(shard_add, both, keys, MOST_KEYS, 1);
}

START_TEST(rows_that_were_not_asked_about_take_adds)
{
    static const RubatoKey key = 77;
    RubatoTableSpec specs[2];
    RubatoShard *const both[] = { begin(&specs[0], _i, 0), begin(&specs[1], _i, NEVER) };

    write_both(shard_set, both, &key, 1, 5);
    refuse_many(both);
    write_both(shard_add, both, &key, 1, 1);
    ck_assert_same(both[0], both[1], &key, 1);
    add_to_both(both, N_CALLS / 10);
    free_both(both);
}
END_TEST

START_TEST(rows_stay_when_counts_begin_anew)
{
    RubatoKey keys[MOST_KEYS];
    RubatoTableSpec specs[2];
    RubatoShard *const both[] = { begin(&specs[0], _i, 0), begin(&specs[1], _i, NEVER) };

    for (size_t i = 0; i < MOST_KEYS; i++)
        keys[i] = 1 + i;
    for (uint32_t turn = 0; turn < shapes[_i].count; turn++)
        write_both(shard_add, both, keys, MOST_KEYS, 1);
    for (size_t i = 0; i < 2; i++)
        shard_reset_admission(both[i]);
    refuse_many(both);
    write_both(shard_add, both, keys, MOST_KEYS, 1);
    ck_assert_same(both[0], both[1], keys, MOST_KEYS);
    free_both(both);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admission order");
    TCase *tcase = tcase_create("order");

    tcase_add_loop_test(tcase, asking_first_changes_nothing_else, 0, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, rows_that_were_not_asked_about_take_adds, 0, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, rows_stay_when_counts_begin_anew, 0, G_N_ELEMENTS(shapes));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
