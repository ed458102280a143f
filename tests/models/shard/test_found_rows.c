/* Rows that Gets found, for the Adds that follow: which are found again, and that a shard with them
 * does the same as one without. */
#include <rubato/mix.h>
#include <rubato/plugin.h>
#include <rubato/rubato.h>
#include <stdlib.h>
#include <string.h>

#include "models/shard/found_rows.h"
#include "models/shard/image.h"
#include "models/shard/shard.h"
#include "models/storage/storage.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { N = FOUND_ROWS_LEAST, BLOCK = 256 };

/* ---- the lists ---- */

static char places[4 * N]; /* the row of key k is at place k % (4 N) */

static void *row_of(RubatoKey key)
{
    return &places[key % sizeof places];
}

/* A Get of the keys first, first + step, …; of every `absent`-th there is no row. */
static void leave(FoundRows *found, RubatoKey first, RubatoKey step, size_t n, size_t absent)
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree void **rows = g_new(void *, n);

    for (size_t i = 0; i < n; i++) {
        keys[i] = first + i * step;
        rows[i] = absent > 0 && i % absent == 0 ? NULL : row_of(keys[i]);
    }
    found_rows_begin(found, n);
    for (size_t begin = 0; begin < n; begin += BLOCK)
        found_rows_put(found, keys + begin, MIN(BLOCK, n - begin), rows + begin);
}

/* An Add of the keys first, first + step, …: how many of their rows are not known. */
static size_t count_unknown(FoundRows *found, RubatoKey first, RubatoKey step, size_t n)
{
    RubatoKey keys[BLOCK];
    void *rows[BLOCK];
    size_t n_unknown = 0;

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const size_t some = MIN(BLOCK, n - begin);
        size_t n_null = 0;

        for (size_t i = 0; i < some; i++)
            keys[i] = first + (begin + i) * step;
        const size_t unknown = found_rows_take(found, keys, some, rows, 1);
        for (size_t i = 0; i < some; i++) {
            require_msg(rows[i] == NULL || rows[i] == row_of(keys[i]), "another key's row");
            n_null += rows[i] == NULL;
        }
        ck_assert_uint_eq(n_null, unknown);
        n_unknown += unknown;
    }
    return n_unknown;
}

START_TEST(an_add_knows_the_rows_of_the_get_before_it)
{
    FoundRows found = { 0 };

    leave(&found, 7, 1, N, 0);
    ck_assert_uint_eq(count_unknown(&found, 7, 1, N), 0);
    ck_assert_uint_eq(found_rows_bytes(&found), N * (sizeof(RubatoKey) + sizeof(void *)));
    found_rows_clear(&found);
}
END_TEST

START_TEST(each_of_several_gets_is_known_whatever_the_order_of_the_adds)
{
    FoundRows found = { 0 };

    for (RubatoKey worker = 0; worker < FOUND_ROWS_LISTS; worker++)
        leave(&found, worker << 32, 1, N, 0);
    for (RubatoKey worker = FOUND_ROWS_LISTS; worker-- > 0;)
        ck_assert_uint_eq(count_unknown(&found, worker << 32, 1, N), 0);
    found_rows_clear(&found);
}
END_TEST

START_TEST(an_add_may_leave_out_some_keys)
{
    FoundRows found = { 0 };

    leave(&found, 0, 1, 2 * N, 0);
    ck_assert_uint_eq(count_unknown(&found, 0, 3, 2 * N / 3), 0);
    found_rows_clear(&found);
}
END_TEST

START_TEST(rows_that_were_absent_are_not_known)
{
    FoundRows found = { 0 };

    leave(&found, 0, 1, N, 4);
    ck_assert_uint_eq(count_unknown(&found, 0, 1, N), N / 4);
    found_rows_clear(&found);
}
END_TEST

START_TEST(keys_that_no_get_had_are_not_known)
{
    FoundRows found = { 0 };

    leave(&found, 0, 1, N, 0);
    ck_assert_uint_eq(count_unknown(&found, 1 << 20, 1, N), N);
    ck_assert_uint_eq(count_unknown(&found, 0, 1, N), 0); /* they are still there */
    found_rows_clear(&found);
}
END_TEST

START_TEST(gets_of_too_few_or_too_many_keys_leave_nothing)
{
    FoundRows found = { 0 };

    leave(&found, 0, 1, FOUND_ROWS_LEAST - 1, 0);
    leave(&found, 0, 1, FOUND_ROWS_MOST + 1, 0);
    ck_assert_uint_eq(found_rows_bytes(&found), 0);
    ck_assert_uint_eq(count_unknown(&found, 0, 1, BLOCK), BLOCK);
}
END_TEST

START_TEST(gets_that_no_add_follows_soon_leave_little)
{
    FoundRows found = { 0 };
    size_t n_known = 0;

    for (RubatoKey get = 0; get < FOUND_ROWS_PATIENCE; get++)
        leave(&found, get << 20, 1, N, 0);
    for (RubatoKey get = 0; get < FOUND_ROWS_PAUSE; get++) {
        leave(&found, get << 40, 1, N, 0);
        n_known += N - count_unknown(&found, get << 40, 1, N);
    }
    ck_assert_uint_eq(n_known, N); /* one of these was tried, and it was the last */
    leave(&found, 0, 1, N, 0);
    ck_assert_uint_eq(count_unknown(&found, 0, 1, N), 0); /* now Adds want them */
    found_rows_clear(&found);
}
END_TEST

/* ---- shards ---- */

static RubatoStorageOps counting;
static size_t n_searched; /* keys of calls of find_or_create */

static bool count_and_find(RubatoStorage *storage, const RubatoKey *keys, size_t n, void **rows)
{
    n_searched += n;
    return storage_find("hash")->find_or_create(storage, keys, n, rows);
}

static RubatoShard *make_counting(RubatoTableSpec *spec)
{
    counting = *storage_find("hash");
    counting.name = "counting";
    counting.find_or_create = count_and_find;
    ck_assert(rubato_register_storage(&counting, NULL));
    n_searched = 0;
    spec->dtype = RUBATO_F32;
    return shard_make(spec, "counting", 0);
}

/* Adds 1 to each value of the keys first … first + n - 1. */
static void add_ones(RubatoShard *shard, RubatoKey first, size_t n, bool is_sum)
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree float *ones = g_new(float, n *shard_n_values(shard));

    for (size_t i = 0; i < n; i++)
        keys[i] = first + i;
    for (size_t i = 0; i < n * shard_n_values(shard); i++)
        ones[i] = 1;
    if (is_sum)
        shard_add_accepted(shard, keys, n, ones);
    else
        shard_add(shard, &(RubatoKeys){ .keys = keys, .n = n }, ones);
}

static void get(RubatoShard *shard, RubatoKey first, size_t n)
{
    g_autofree float *values = g_new(float, n *shard_n_values(shard));

    shard_get(shard, &(RubatoKeys){ .first = first, .n = n }, values);
}

START_TEST(an_add_after_a_get_does_not_search_again)
{
    RubatoTableSpec spec = { .width = 40 };
    RubatoShard *shard = make_counting(&spec);

    get(shard, 0, N);
    add_ones(shard, 0, N, /* is_sum= */ _i == 1);
    ck_assert_uint_eq(n_searched, N); /* they were absent */
    get(shard, 0, N);
    add_ones(shard, 0, N, /* is_sum= */ _i == 1);
    ck_assert_uint_eq(n_searched, N);
    shard_free(shard);
}
END_TEST

START_TEST(rows_in_cells_are_searched_for_each_time)
{
    RubatoTableSpec spec = { .width = 1 };
    RubatoShard *shard = make_counting(&spec);

    add_ones(shard, 0, N, /* is_sum= */ false);
    get(shard, 0, N);
    add_ones(shard, 0, N, /* is_sum= */ false);
    ck_assert_uint_eq(n_searched, 2 * N);
    shard_free(shard);
}
END_TEST

START_TEST(rows_are_saved_for_an_image_before_an_add_changes_them)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = 40 };
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    ImageSlice slice = { 0 };

    add_ones(shard, 0, N, /* is_sum= */ false);
    get(shard, 0, N);
    ck_assert(shard_begin_image(shard, /* cover= */ NULL, /* spill= */ NULL));
    add_ones(shard, 0, N, /* is_sum= */ _i == 1);
    while (shard_read_image(shard, N, &slice) && slice.n > 0)
        for (size_t i = 0; i < slice.n * spec.width; i++)
            require_msg(((const float *)slice.values)[i] == 1, "a row of the image has changed");
    ck_assert_uint_eq(slice.n, 0);
    image_slice_clear(&slice);
    shard_free(shard);
}
END_TEST

/* ---- random Gets and Adds ---- */

enum { N_KEYS = 3000, N_STEPS = 60, N_MOST = 1500 };

static uint64_t drawn;

static uint64_t draw(uint64_t n)
{
    drawn += UINT64_C(0x9e3779b97f4a7c15);
    return rubato_mix64(drawn) % n;
}

/* Some keys in any order, some of them twice; later ones are more. */
static size_t draw_keys(RubatoKey *keys, uint32_t *at, size_t step)
{
    const size_t n = 1 + draw(N_MOST);

    for (size_t i = 0; i < n; i++) {
        keys[i] = draw(MIN(N_KEYS, 200 * (step + 1)));
        at[i] = (uint32_t)(n - 1 - i);
    }
    return n;
}

/* Leaves out some keys, or takes others. */
static size_t change_keys(RubatoKey *keys, size_t n)
{
    const uint64_t how = draw(4);
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (how == 1 && draw(10) == 0)
            keys[i] = draw(N_KEYS);
        if (how != 2 || draw(10) > 0)
            keys[kept++] = keys[i];
    }
    return MAX(1, kept);
}

START_TEST(gets_and_adds_of_any_keys_are_those_of_plain_arrays)
{
    static const uint32_t widths[] = { 1, 9, 40 };
    RubatoTableSpec spec = { .dtype = RUBATO_F32,
                             .width = widths[_i % 3],
                             .create_on_get = _i % 2 == 1 };
    const size_t width = spec.width;
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    g_autofree float *expected = g_new0(float, N_KEYS *width);
    g_autofree float *values = g_new(float, N_MOST *width);
    RubatoKey lists[3][N_MOST];
    uint32_t at[3][N_MOST];

    drawn = (uint64_t)_i;
    for (size_t step = 0; step < N_STEPS; step++) {
        RubatoKeys keys[3];

        for (size_t worker = 0; worker < 3; worker++) {
            const size_t n = draw_keys(lists[worker], at[worker], step);

            keys[worker] = (RubatoKeys){ .keys = lists[worker],
                                         .at = draw(2) == 0 ? at[worker] : NULL,
                                         .n = n };
            shard_get(shard, &keys[worker], values);
            for (size_t i = 0; i < n; i++)
                require_msg(memcmp(values + i * width, expected + lists[worker][i] * width,
                                   width * sizeof *values) == 0,
                            "step %zu: another row of key %lu", step,
                            (unsigned long)lists[worker][i]);
        }
        for (size_t worker = 0; worker < 3; worker++) {
            if (keys[worker].at == NULL)
                keys[worker].n = change_keys(lists[worker], keys[worker].n);
            for (size_t i = 0; i < keys[worker].n * width; i++)
                values[i] = (float)draw(8);
            shard_add(shard, &keys[worker], values);
            for (size_t i = 0; i < keys[worker].n * width; i++)
                expected[lists[worker][i / width] * width + i % width] += values[i];
        }
    }
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("found_rows");
    TCase *tcase = tcase_create("found_rows");

    tcase_add_test(tcase, an_add_knows_the_rows_of_the_get_before_it);
    tcase_add_test(tcase, each_of_several_gets_is_known_whatever_the_order_of_the_adds);
    tcase_add_test(tcase, an_add_may_leave_out_some_keys);
    tcase_add_test(tcase, rows_that_were_absent_are_not_known);
    tcase_add_test(tcase, keys_that_no_get_had_are_not_known);
    tcase_add_test(tcase, gets_of_too_few_or_too_many_keys_leave_nothing);
    tcase_add_test(tcase, gets_that_no_add_follows_soon_leave_little);
    tcase_add_loop_test(tcase, an_add_after_a_get_does_not_search_again, 0, 2);
    tcase_add_test(tcase, rows_in_cells_are_searched_for_each_time);
    tcase_add_loop_test(tcase, rows_are_saved_for_an_image_before_an_add_changes_them, 0, 2);
    tcase_add_loop_test(tcase, gets_and_adds_of_any_keys_are_those_of_plain_arrays, 0, 6);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
