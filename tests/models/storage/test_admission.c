/* Tables that do not admit all keys: which rows Adds make, and that the others change nothing. */
#include <rubato/error.h>
#include <rubato/mix.h>
#include <rubato/plugin.h>
#include <string.h>

#include "models/shard/shard.h"
#include "models/spec.h"
#include "models/storage/admission/admission.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { BLOCK_KEYS = 1000 };

/* The seed of hashing decides which counters keys share; see shard_fixture.c. */
static RubatoShard *begin(RubatoTableSpec *spec)
{
    return shard_make(spec, "hash", 0);
}

/* Adds 1 to each value of n rows. */
static void add_keys(RubatoShard *shard, const RubatoKey *keys, size_t n)
{
    const size_t n_values = n * shard_n_values(shard);
    g_autofree float *ones = g_new(float, n_values);

    for (size_t i = 0; i < n_values; i++)
        ones[i] = 1;
    shard_add(shard, &(RubatoKeys){ .keys = keys, .n = n }, ones);
}

/* Adds to the keys first, first + 1 and so on, and says how many of them Adds made rows of. */
static uint64_t add_run(RubatoShard *shard, RubatoKey first, size_t n)
{
    const uint64_t n_before = shard_admissions(shard).n_admitted;
    RubatoKey keys[BLOCK_KEYS];

    for (size_t done = 0; done < n; done += BLOCK_KEYS) {
        const size_t some = MIN(n - done, BLOCK_KEYS);

        for (size_t i = 0; i < some; i++)
            keys[i] = first + done + i;
        add_keys(shard, keys, some);
    }
    return shard_admissions(shard).n_admitted - n_before;
}

static float get(RubatoShard *shard, RubatoKey key)
{
    g_autofree float *row = g_new(float, shard_n_values(shard));

    shard_get(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
    return row[0];
}

/* Rows in cells and in slabs; without a bound and with one. */
static const struct {
    uint32_t width;
    uint64_t max_bytes;
} shapes[] = { { 1, 0 }, { 50, 0 }, { 1, 3 << 20 }, { 50, 7 << 20 } };

static RubatoTableSpec count_spec(int shape, uint32_t count)
{
    return (RubatoTableSpec){ .name = "t",
                              .width = shapes[shape].width,
                              .max_bytes = shapes[shape].max_bytes,
                              .init = "constant",
                              .init_value = 10,
                              .admit = "count",
                              .admit_count = count,
                              .admit_bytes = 1 << 20 };
}

/* ---- count ---- */

START_TEST(the_third_add_makes_the_row)
{
    RubatoTableSpec spec = count_spec(_i, 3);
    RubatoShard *shard = begin(&spec);

    for (RubatoKey key = 0; key < 2; key++) { /* key 0 is stored apart */
        for (int turn = 0; turn < 2; turn++) {
            add_keys(shard, &key, 1);
            ck_assert_float_eq(get(shard, key), 10);
            ck_assert_uint_eq(shard_n_rows(shard), key);
        }
        for (int turn = 0; turn < 2; turn++) {
            add_keys(shard, &key, 1);
            ck_assert_float_eq(get(shard, key), (float)(11 + turn));
        }
    }
    ck_assert_uint_eq(shard_admissions(shard).n_refused, 4);
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, 2);
    shard_free(shard);
}
END_TEST

/* What the documentation says of ten and of five counters for each key. A counter has two bits, so
 * there is a million of them. */
static const struct {
    size_t n_keys;
    uint64_t most_once, most; /* one row in so many is early after one Add to each key; after two */
} sketches[] = { { 100000, 1000, 200 }, { 200000, 200, 30 } };

/* No key has its row later than it should, and few have it earlier. */
START_TEST(a_sketch_counts_enough_and_seldom_too_much)
{
    const size_t n = sketches[_i].n_keys;
    RubatoTableSpec spec = count_spec(0, 3);

    spec.admit_bytes = 1 << 18;
    RubatoShard *shard = begin(&spec);
    uint64_t n_early;

    n_early = add_run(shard, 1, n);
    ck_assert_msg(n_early < n / sketches[_i].most_once, "%" G_GUINT64_FORMAT, n_early);
    n_early += add_run(shard, 1, n);
    ck_assert_msg(n_early < n / sketches[_i].most, "%" G_GUINT64_FORMAT, n_early);
    ck_assert_uint_eq(add_run(shard, 1, n), n - n_early);
    ck_assert_uint_eq(shard_n_rows(shard), n);
    shard_free(shard);
}
END_TEST

/* Of keys that come once, so many as fill the sketch 25 times; without aging nearly all of the last
 * ones have rows. The same keys twice in a row still have theirs. */
START_TEST(a_stream_of_any_length_leaves_the_sketch_counting)
{
    enum { N_COUNTERS = 1 << 15, N = 4 * N_COUNTERS, N_LAST = N_COUNTERS / 8 };
    static const uint64_t halve_after[] = { N_COUNTERS / 4, /* never: */ 0 };
    uint64_t n_early[2];

    for (unsigned i = 0; i < 2; i++) {
        RubatoTableSpec spec = count_spec(0, 2);

        spec.admit_bytes = N_COUNTERS / 8;
        spec.admit_halve_after = halve_after[i];
        RubatoShard *shard = begin(&spec);

        (void)add_run(shard, 1, N);
        n_early[i] = add_run(shard, N + 1, N_LAST);
        ck_assert_uint_ge(n_early[i] + add_run(shard, N + 1, N_LAST), N_LAST / 2);
        shard_free(shard);
    }
    ck_assert_msg(n_early[0] < N_LAST / 10, "%" G_GUINT64_FORMAT, n_early[0]);
    ck_assert_msg(n_early[1] > N_LAST * 9 / 10, "%" G_GUINT64_FORMAT, n_early[1]);
}
END_TEST

/* A sketch of two lines, one of which has the counters of key 0. */
START_TEST(a_count_is_halved_once_in_so_many_counted_adds)
{
    RubatoTableSpec spec = count_spec(0, 200);

    spec.admit_bytes = 128;
    spec.admit_halve_after = 16;
    RubatoShard *shard = begin(&spec);
    const size_t n_words = shard_n_admission_words(shard);
    g_autofree uint64_t *words = g_new(uint64_t, n_words);
    unsigned most = 0;

    for (unsigned n = 1; n <= 1600; n++) {
        unsigned largest = 0;

        (void)add_run(shard, 0, 1);
        shard_get_admission(shard, 3, n_words - 3, words);
        for (size_t i = 0; i < 8 * (n_words - 3); i++)
            largest = MAX(largest, ((const unsigned char *)words)[i]);
        most = MAX(most, largest);
        if (n < 16)
            ck_assert_uint_eq(largest, n);
    }
    ck_assert_uint_ge(most, 24); /* just before the second time */
    ck_assert_uint_le(most, 32); /* x = x / 2 + 16 ends there */
    ck_assert_uint_eq(shard_admissions(shard).n_refused, 1600);
    shard_free(shard);
}
END_TEST

/* While the storage grows, rows move in the middle of a call. A key that was refused at one
 * position and admitted at a later one has the later deltas only. */
START_TEST(a_key_that_comes_often_in_a_call_is_counted_each_time)
{
    enum { N_DIFFERENT = 60, N_TIMES = 4, N_CALLS = 100 };
    RubatoTableSpec spec = count_spec(_i, 3);
    RubatoShard *shard = begin(&spec);
    RubatoKey keys[N_DIFFERENT * N_TIMES];

    for (unsigned call = 0; call < N_CALLS; call++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(keys); i++)
            keys[i] = call * N_DIFFERENT + i % N_DIFFERENT;
        add_keys(shard, keys, G_N_ELEMENTS(keys));
    }
    for (RubatoKey key = 0; key < N_CALLS * N_DIFFERENT; key++)
        ck_assert_float_eq(get(shard, key), 12);
    ck_assert_uint_eq(shard_n_rows(shard), N_CALLS * N_DIFFERENT);
    shard_free(shard);
}
END_TEST

/* Half of the keys are in a table that admits by a list; a table of these keys alone has the same
 * rows and state, bit by bit, whatever was added to the others between them. */
/* Its row is made for the first position, so the others are not asked for, and none is left out. */
START_TEST(a_key_that_comes_twice_in_a_call_is_admitted_once)
{
    const RubatoKey keys[] = { 5, 0, 5, 7, 0 };
    RubatoTableSpec spec = count_spec(_i, 2);
    RubatoShard *shard = begin(&spec);

    add_keys(shard, (RubatoKey[]){ 5, 0 }, 2);
    add_keys(shard, keys, G_N_ELEMENTS(keys));
    ck_assert_float_eq(get(shard, 5), 12);
    ck_assert_float_eq(get(shard, 0), 12);
    ck_assert_float_eq(get(shard, 7), 10);
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, 2);
    ck_assert_uint_eq(shard_admissions(shard).n_refused, 3);
    shard_free(shard);
}
END_TEST

START_TEST(adds_to_refused_keys_touch_no_row)
{
    enum { N_KEYS = 1200, N_CALLS = 50, N_OF_CALL = 300 };
    RubatoKey listed[N_KEYS / 2], keys[N_OF_CALL], some[N_OF_CALL];
    RubatoTableSpec spec = { .name = "t",
                             .width = shapes[_i].width,
                             .max_bytes = shapes[_i].max_bytes == 0 ? 0 : 32 << 20,
                             .update = "adam",
                             .admit = "list",
                             .admit_keys = listed,
                             .n_admit_keys = N_KEYS / 2 },
                    plain_spec = spec;
    const size_t n_values = N_OF_CALL * spec.width;
    g_autofree float *deltas = g_new(float, n_values), *some_deltas = g_new(float, n_values);
    RubatoShard *shard, *plain;
    uint64_t n_refused = 0;

    for (unsigned i = 0; i < N_KEYS / 2; i++)
        listed[i] = (RubatoKey)(N_KEYS / 2 - 1 - i) * 2;
    plain_spec.admit = NULL;
    plain_spec.admit_keys = NULL;
    plain_spec.n_admit_keys = 0;
    shard = begin(&spec);
    plain = begin(&plain_spec);
    for (uint64_t call = 0; call < N_CALLS; call++) {
        size_t n = 0;

        for (size_t i = 0; i < N_OF_CALL; i++) {
            keys[i] = rubato_mix64(call * N_OF_CALL + i) % N_KEYS;
            for (size_t j = 0; j < spec.width; j++)
                deltas[i * spec.width + j] = (float)(rubato_mix64(keys[i] + call) % 100) - 50;
            if (keys[i] % 2 != 0)
                continue;
            some[n] = keys[i];
            memcpy(some_deltas + n++ * spec.width, deltas + i * spec.width,
                   spec.width * sizeof *deltas);
        }
        shard_add(shard, &(RubatoKeys){ .keys = keys, .n = N_OF_CALL }, deltas);
        shard_add(plain, &(RubatoKeys){ .keys = some, .n = n }, some_deltas);
        n_refused += N_OF_CALL - n;
    }
    ck_assert_uint_eq(shard_n_rows(shard), N_KEYS / 2);
    ck_assert_uint_eq(shard_admissions(shard).n_refused, n_refused);
    for (RubatoKey key = 0; key < N_KEYS; key++) {
        const RubatoKeys one = { .keys = &key, .n = 1 };
        const size_t bytes = spec_row_bytes(&spec), state_bytes = spec_state_bytes(&spec);
        g_autofree unsigned char *row = g_malloc(bytes + state_bytes),
                                 *expected = g_malloc(bytes + state_bytes);

        shard_get(shard, &one, row);
        shard_get_state(shard, &one, row + bytes);
        shard_get(plain, &one, expected);
        shard_get_state(plain, &one, expected + bytes);
        ck_assert_mem_eq(row, expected, bytes + state_bytes);
    }
    shard_free(shard);
    shard_free(plain);
}
END_TEST

START_TEST(a_set_makes_its_row_in_any_case)
{
    RubatoTableSpec spec = count_spec(_i, 3);
    RubatoShard *shard = begin(&spec);
    const size_t n_values = shard_n_values(shard);
    g_autofree float *row = g_new0(float, n_values);
    const RubatoKey key = 7;

    row[0] = 5;
    shard_set(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
    ck_assert_float_eq(get(shard, key), 5);
    add_keys(shard, &key, 1); /* it is there, so nothing is asked */
    ck_assert_float_eq(get(shard, key), 6);
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, 0);
    shard_free(shard);
}
END_TEST

START_TEST(the_bound_holds_for_rows_and_sketch_together)
{
    RubatoTableSpec spec = count_spec(_i, 2);
    RubatoShard *shard = begin(&spec);
    uint64_t n_rows, n_bytes;

    for (RubatoKey first = 0; first < 200000; first += BLOCK_KEYS)
        for (int turn = 0; turn < 2; turn++) {
            (void)add_run(shard, first, BLOCK_KEYS);
            shard_size(shard, &n_rows, &n_bytes);
            ck_assert_uint_le(n_bytes, spec.max_bytes);
        }
    ck_assert_uint_gt(n_bytes, spec.max_bytes / 2);
    ck_assert_uint_gt(shard_uses(shard).n_evicted, 1000);
    shard_free(shard);
}
END_TEST

/* ---- probability ---- */

START_TEST(rows_are_made_with_their_probability)
{
    enum { N = 20000 };
    RubatoTableSpec spec = { .name = "t", .admit = "probability", .admit_probability = .1 };
    RubatoShard *shard = begin(&spec), *same = begin(&spec);
    const uint64_t n_first = add_run(shard, 0, N);

    /* six times the standard deviation: (.1 × .9 × 20,000)^½ = 42 */
    ck_assert_msg(n_first > N / 10 - 255 && n_first < N / 10 + 255, "%" G_GUINT64_FORMAT, n_first);
    ck_assert_uint_eq(add_run(same, 0, N), n_first); /* a replica answers likewise */
    for (RubatoKey key = 0; key < N; key++)
        ck_assert_float_eq(get(shard, key), get(same, key));
    for (int turn = 0; turn < 60; turn++) /* .9^60 of them are left: 36 */
        (void)add_run(shard, 0, N);
    ck_assert_uint_gt(shard_n_rows(shard), N - 72);
    ck_assert_uint_lt(shard_n_rows(shard), N - 4);
    shard_free(shard);
    shard_free(same);
}
END_TEST

/* Each call's keys come three times. A key has a row from its first admission on, so its later
 * positions in the call are in it, too: all three of them are, or none. */
START_TEST(a_key_that_comes_again_in_a_call_is_admitted_with_the_first)
{
    enum { N = 80, N_TURNS = 5 };
    RubatoTableSpec spec = { .name = "t", .admit = "probability", .admit_probability = .3 };
    RubatoShard *shard = begin(&spec);
    RubatoKey keys[3 * N];

    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++)
        keys[i] = i % N;
    for (unsigned turn = 0; turn < N_TURNS; turn++)
        add_keys(shard, keys, G_N_ELEMENTS(keys));
    for (RubatoKey key = 0; key < N; key++)
        ck_assert_uint_eq((unsigned)get(shard, key) % 3, 0);
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, shard_n_rows(shard));
    ck_assert_uint_gt(shard_n_rows(shard), N / 2);
    shard_free(shard);
}
END_TEST

/* ---- one of the program's own ---- */

/* Every second question is answered with no. */
static bool admits_alternately(RubatoAdmission *admission, RubatoKey key)
{
    (void)key;
    return (admission->n_admitted + admission->n_refused) % 2 == 0;
}

START_TEST(an_admission_of_the_program_is_not_asked_for_a_key_that_it_has_admitted)
{
    static const RubatoAdmissionOps alternate = { .name = "alternate",
                                                  .admits = admits_alternately };
    RubatoTableSpec spec = { .name = "t",
                             .width = shapes[_i].width,
                             .max_bytes = shapes[_i].max_bytes,
                             .admit = "alternate" };

    ck_assert(rubato_register_admission(&alternate, NULL));

    RubatoShard *shard = begin(&spec);

    add_keys(shard, (RubatoKey[]){ 5, 5, 6, 6, 5 }, 5); /* 5: yes; 6: no, yes */
    ck_assert_float_eq(get(shard, 5), 3);
    ck_assert_float_eq(get(shard, 6), 1);
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, 2);
    ck_assert_uint_eq(shard_admissions(shard).n_refused, 1);
    shard_free(shard);
}
END_TEST

static bool admits_even(RubatoAdmission *admission, RubatoKey key)
{
    (void)admission;
    return key % 2 == 0;
}

static bool never(RubatoAdmission *admission, RubatoKey key)
{
    (void)admission;
    (void)key;
    return false;
}

START_TEST(a_program_registers_an_admission)
{
    static const RubatoAdmissionOps even = { .name = "even", .admits = admits_even },
                                    taken = { .name = "count", .admits = never },
                                    empty = { .name = "empty" };
    RubatoTableSpec spec = { .name = "t", .admit = "even" };
    g_autoptr(GError) error = NULL;
    size_t n = 0;

    ck_assert(!spec_check(&spec, &error));
    /* Those of other cases come behind, if these run in one process. */
    ck_assert(g_str_has_prefix(error->message, "table t: there is no admission \"even\"; known are "
                                               "all, count, list, probability"));
    g_clear_error(&error);
    ck_assert(!rubato_register_admission(&taken, NULL));
    ck_assert(!rubato_register_admission(&empty, &error));
    ck_assert_str_eq(error->message,
                     "the admission \"empty\" cannot be registered: it needs admits");
    g_clear_error(&error);
    ck_assert(rubato_register_admission(&even, &error));
    ck_assert(spec_check(&spec, &error));
    while (rubato_admission_name(n) != NULL)
        n++;
    ck_assert_str_eq(rubato_admission_name(n - 1), "even");

    RubatoShard *shard = begin(&spec);

    ck_assert_uint_eq(add_run(shard, 1, 100), 50);
    ck_assert_float_eq(get(shard, 51), 0);
    ck_assert_float_eq(get(shard, 52), 1);
    shard_free(shard);
}
END_TEST

/* ---- what moves along ---- */

START_TEST(words_take_counts_to_another_shard)
{
    RubatoTableSpec spec = count_spec(0, 3);
    RubatoShard *from = begin(&spec), *to = begin(&spec);
    const size_t n_words = shard_n_admission_words(from);
    g_autofree uint64_t *words = g_new(uint64_t, n_words);

    (void)add_run(from, 0, 2000);
    (void)add_run(from, 0, 1000);
    ck_assert_uint_le(n_words, 3 + (1 << 20) / sizeof(uint64_t));
    ck_assert_uint_ge(n_words, 3 + ((1 << 20) - 64) / sizeof(uint64_t));
    shard_get_admission(from, 0, 1000, words); /* in two pieces */
    shard_get_admission(from, 1000, n_words - 1000, words + 1000);
    shard_set_admission(to, 0, n_words, words);
    ck_assert_uint_eq(shard_admissions(to).n_refused, 3000);
    ck_assert_uint_eq(add_run(to, 0, 2000), 1000);
    ck_assert_float_eq(get(to, 999), 11);
    ck_assert_float_eq(get(to, 1000), 10);
    shard_free(from);
    shard_free(to);
}
END_TEST

static RubatoShard *shard_of_lines(size_t n_lines, uint32_t count, uint64_t seed,
                                   uint64_t halve_after)
{
    /* which outlives its shards */
    RubatoTableSpec *const spec = g_new(RubatoTableSpec, 1);

    *spec = count_spec(0, count);
    spec->admit_bytes = 64 * n_lines + 32; /* and words that tell how many bits a counter has */
    spec->admit_halve_after = halve_after;
    shard_free(begin(spec)); /* its name and storage are set */
    return shard_new_seeded(spec, 0, 0, seed, NULL);
}

static void free_with_spec(RubatoShard *shard)
{
    RubatoTableSpec *const spec = (RubatoTableSpec *)(uintptr_t)shard_spec(shard);

    shard_free(shard);
    g_free(spec);
}

static void merge_all(RubatoShard *to, const RubatoShard *from, bool is_same)
{
    const size_t n_words = shard_n_admission_words(from);
    g_autofree uint64_t *words = g_new(uint64_t, n_words);

    for (size_t first = 0, n; first < n_words; first += n) { /* in pieces */
        n = MIN(n_words - first, 13);
        shard_get_admission(from, first, n, words);
        shard_merge_admission(to, &(ShardAdmissionWords){ .n_all = n_words,
                                                          .first = first,
                                                          .n = n,
                                                          .words = words,
                                                          .is_same = is_same,
                                                          .counts = true });
    }
}

/* Counters have one to eight bits, as many as the count needs. */
static const struct {
    size_t n_lines, n_others;
    uint32_t count, count_of_others;
} merged[] = { { 7, 3, 4, 4 }, { 3, 7, 4, 4 },   { 4, 8, 4, 4 },  { 8, 4, 4, 4 },
               { 5, 5, 4, 4 }, { 1, 9, 4, 4 },   { 9, 1, 4, 4 },  { 7, 3, 2, 2 },
               { 3, 7, 9, 9 }, { 5, 3, 20, 20 }, { 5, 5, 20, 4 }, { 7, 5, 4, 20 },
               { 5, 7, 9, 4 }, { 5, 5, 4, 9 },   { 3, 5, 2, 20 }, { 4, 8, 20, 2 } };

/* Each key was added to some times on one of two parts, all of them fewer than make its row. Its
 * row is made at the Add that makes it, or before, with the two sketches in one of another length,
 * or of another count. */
START_TEST(counts_of_merged_parts_are_never_too_low)
{
    enum { N = 60 };
    const uint32_t count = merged[_i].count, count_of_others = merged[_i].count_of_others;
    RubatoShard *from[] = { shard_of_lines(merged[_i].n_others, count_of_others, 5, 0),
                            shard_of_lines(merged[_i].n_others, count_of_others, 5, 0) };
    RubatoShard *to = shard_of_lines(merged[_i].n_lines, count, 99, 0);

    for (RubatoKey key = 0; key < N; key++)
        for (unsigned n = 0; n < key % MIN(count, count_of_others); n++)
            (void)add_run(from[key % 2], key, 1);
    for (unsigned i = 0; i < 2; i++)
        merge_all(to, from[i], /* is_same= */ count != count_of_others);
    ck_assert_uint_eq(shard_admissions(to).n_refused,
                      shard_admissions(from[0]).n_refused + shard_admissions(from[1]).n_refused);
    for (RubatoKey key = 0; key < N; key++) {
        const uint64_t n_before = shard_n_rows(to);
        uint64_t n_now = n_before;

        for (uint64_t n = key % MIN(count, count_of_others); n < count && n_now == n_before; n++) {
            (void)add_run(to, key, 1);
            n_now = shard_n_rows(to);
        }
        ck_assert_uint_eq(n_now, n_before + 1);
    }
    for (unsigned i = 0; i < 2; i++)
        free_with_spec(from[i]);
    free_with_spec(to);
}
END_TEST

static const uint64_t halved_after[] = { /* never: */ 0, 13 };

/* Also which keys share counters, which the seed decides, and which line is halved next: they are
 * taken while lines are halved. So is a replica's, which makes the same Adds afterwards. */
START_TEST(words_of_the_same_part_are_taken_as_they_are)
{
    RubatoShard *from = shard_of_lines(3, 4, 5, halved_after[_i]);
    RubatoShard *to = shard_of_lines(3, 4, 99, halved_after[_i]);
    const size_t n_words = shard_n_admission_words(from);
    g_autofree uint64_t *words = g_new(uint64_t, n_words);
    g_autofree uint64_t *taken = g_new(uint64_t, n_words);

    (void)add_run(from, 0, 40);
    (void)add_run(to, 1000, 40);
    shard_reset_admission(to);
    ck_assert_uint_eq(shard_admissions(to).n_refused, 0);
    merge_all(to, from, /* is_same= */ true);
    for (RubatoKey key = 0; key < 200; key++)
        ck_assert_uint_eq(add_run(from, key, 1), add_run(to, key, 1));
    ck_assert_uint_eq(shard_admissions(to).n_refused, shard_admissions(from).n_refused);
    shard_get_admission(from, 0, n_words, words);
    shard_get_admission(to, 0, n_words, taken);
    ck_assert_mem_eq(words, taken, n_words * sizeof *words);
    free_with_spec(from);
    free_with_spec(to);
}
END_TEST

/* ---- specs ---- */

static const RubatoKey one_key = 1;

static const struct {
    RubatoTableSpec spec;
    const char *text; /* NULL: it is accepted */
} specs[] = {
    { { .name = "t", .admit = "all" }, NULL },
    { { .name = "t", .admit = "count", .admit_count = 2 }, NULL },
    { { .name = "t", .admit = "count", .admit_count = 255, .admit_bytes = 1 }, NULL },
    { { .name = "t", .admit = "probability", .admit_probability = 1 }, NULL },
    { { .name = "t", .admit = "list", .admit_keys = &one_key, .n_admit_keys = 1 }, NULL },
    { { .name = "t", .admit = "count", .admit_count = 1 }, "\"count\" needs 2 to 255" },
    { { .name = "t", .admit = "count", .admit_count = 256 }, "\"count\" needs 2 to 255" },
    { { .name = "t", .admit = "probability" }, "admit_probability is 0; \"probability\" needs" },
    { { .name = "t", .admit = "probability", .admit_probability = 1.5 }, "above 0, 1 at most" },
    { { .name = "t", .admit = "list" }, "\"list\" needs admit_keys, and n_admit_keys above 0" },
    { { .name = "t", .admit = "list", .n_admit_keys = 1 }, "\"list\" needs admit_keys" },
    { { .name = "t", .admit_probability = .5 },
      "admit_probability has no effect here; it needs admit = \"probability\"" },
    { { .name = "t", .admit = "all", .admit_count = 3 },
      "admit_count has no effect here; it needs admit = \"count\"" },
    { { .name = "t", .admit = "list", .admit_keys = &one_key, .n_admit_keys = 1, .admit_bytes = 9 },
      "admit_bytes has no effect here; it needs admit = \"count\"" },
    { { .name = "t", .admit = "probability", .admit_probability = 1, .admit_halve_after = 9 },
      "admit_halve_after has no effect here; it needs admit = \"count\"" },
    { { .name = "t",
        .admit = "count",
        .admit_count = 2,
        .admit_bytes = 6400,
        .admit_halve_after = 99 },
      "it needs at least one for each 64 bytes of admit_bytes, 100" },
    { { .name = "t",
        .admit = "count",
        .admit_count = 2,
        .admit_bytes = 6400,
        .admit_halve_after = 100 },
      NULL },
    { { .name = "t", .admit = "count", .admit_count = 3, .n_admit_keys = 1 },
      "n_admit_keys has no effect here; it needs admit = \"list\"" },
    { { .name = "t", .admit = "count", .admit_count = 3, .admit_keys = &one_key },
      "admit_keys has no effect here; it needs admit = \"list\"" },
    { { .name = "t", .n_keys = 10, .admit = "count", .admit_count = 3 },
      "admit has no effect here; it needs the storage \"hash\"" },
    { { .name = "t", .shape = RUBATO_SHAPE_RAGGED, .admit = "count", .admit_count = 3 },
      "admit has no effect here; it needs rows of one length" },
    { { .name = "t", .create_on_get = true, .admit = "count", .admit_count = 3 },
      "create_on_get makes rows that admit leaves out" },
    { { .name = "t", .max_bytes = 2 << 20, .admit = "count", .admit_count = 3 },
      "with rows of 4 bytes it needs 3145728 at least" },
};

START_TEST(specs_without_effect_are_refused)
{
    g_autoptr(GError) error = NULL;
    const bool is_accepted = spec_check(&specs[_i].spec, &error);

    ck_assert_msg(is_accepted == (specs[_i].text == NULL), "%s",
                  error != NULL ? error->message : "it is accepted");
    if (is_accepted)
        return;
    ck_assert_int_eq(error->code, RUBATO_ERROR_INVALID);
    ck_assert_msg(strstr(error->message, specs[_i].text) != NULL, "%s", error->message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admission");
    TCase *tcase = tcase_create("admission");

    tcase_add_loop_test(tcase, the_third_add_makes_the_row, 0, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, a_sketch_counts_enough_and_seldom_too_much, 0,
                        (int)G_N_ELEMENTS(sketches));
    tcase_add_test(tcase, a_stream_of_any_length_leaves_the_sketch_counting);
    tcase_add_test(tcase, a_count_is_halved_once_in_so_many_counted_adds);
    tcase_add_loop_test(tcase, a_key_that_comes_often_in_a_call_is_counted_each_time, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, a_key_that_comes_twice_in_a_call_is_admitted_once, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, adds_to_refused_keys_touch_no_row, 0, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, a_set_makes_its_row_in_any_case, 0, G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, the_bound_holds_for_rows_and_sketch_together, 2,
                        G_N_ELEMENTS(shapes));
    tcase_add_test(tcase, rows_are_made_with_their_probability);
    tcase_add_test(tcase, a_key_that_comes_again_in_a_call_is_admitted_with_the_first);
    tcase_add_loop_test(tcase,
                        an_admission_of_the_program_is_not_asked_for_a_key_that_it_has_admitted, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_test(tcase, a_program_registers_an_admission);
    tcase_add_test(tcase, words_take_counts_to_another_shard);
    tcase_add_loop_test(tcase, words_of_the_same_part_are_taken_as_they_are, 0,
                        (int)G_N_ELEMENTS(halved_after));
    tcase_add_loop_test(tcase, counts_of_merged_parts_are_never_too_low, 0, G_N_ELEMENTS(merged));
    tcase_add_loop_test(tcase, specs_without_effect_are_refused, 0, G_N_ELEMENTS(specs));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
