/* Shards over both storages, and the initialisers: what a Get reads and an Add leaves. */
#include <math.h>
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/init.h"
#include "models/shard.h"
#include "models/spec.h"
#include "models/storage/hash/segment.h"
#include "tests/support/runner.h"

#define FIRST_KEY 1000

static const char *const storages[] = { "dense", "hash" };

/* A shard of i64 rows over the keys FIRST_KEY .. FIRST_KEY + n_keys - 1. */
static RubatoShard *make_shard(RubatoTableSpec *spec, const char *storage, uint64_t n_keys)
{
    g_autoptr(GError) error = NULL;

    spec->name = "rows";
    spec->storage = storage;
    spec->first_key = FIRST_KEY;
    spec->n_keys = n_keys;
    ck_assert_msg(spec_check(spec, &error), "%s", error == NULL ? "" : error->message);
    RubatoShard *shard = shard_new(spec, FIRST_KEY, n_keys, &error);
    ck_assert_msg(shard != NULL, "%s", error == NULL ? "" : error->message);
    return shard;
}

START_TEST(lists_selections_and_runs_read_and_add)
{
    for (uint32_t width = 1; width <= 5; width++) {
        RubatoTableSpec spec = { .dtype = RUBATO_I64, .width = width, .init_value = 7 };
        RubatoShard *shard = make_shard(&spec, storages[_i], 600);
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
            expected[(keys[i / width] - FIRST_KEY) * width + i % width] += values[i];
        }
        shard_add(shard, &list, values);

        for (size_t i = 0; i < 2 * width; i++) {
            const uint32_t row = at[i / width];

            expected[(keys[row] - FIRST_KEY) * width + i % width] +=
                values[row * width + i % width];
        }
        shard_add(shard, &selection, values);

        for (size_t i = 0; i < 400 * width; i++) {
            values[i] = (int64_t)(i * 3);
            expected[3 * width + i] += values[i];
        }
        shard_add(shard, &run, values);

        const RubatoKeys all = { .first = FIRST_KEY, .n = 600 };
        memset(values, 0xff, 600 * width * sizeof(*values));
        shard_get(shard, &all, values);
        ck_assert_mem_eq(values, expected, 600 * width * sizeof(*values));

        memset(values, 0xff, 600 * width * sizeof(*values));
        shard_get(shard, &list, values);
        for (size_t i = 0; i < 5; i++)
            ck_assert_mem_eq(values + i * width, expected + (keys[i] - FIRST_KEY) * width,
                             width * sizeof(*values));
        ck_assert_int_eq(values[5 * width], -1);

        memset(values, 0xff, 600 * width * sizeof(*values));
        shard_get(shard, &selection, values);
        for (size_t row = 0; row < 6; row++)
            if (row == 1 || row == 4)
                ck_assert_mem_eq(values + row * width, expected + (keys[row] - FIRST_KEY) * width,
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
        RubatoShard *shard = make_shard(&spec, storages[_i], 5000);
        const size_t size = rubato_dtype_size(spec.dtype);
        RubatoKey keys[1000];
        uint32_t at[1000];
        unsigned char values[8000], read[8000];

        for (uint32_t i = 0; i < 1000; i++) {
            keys[i] = FIRST_KEY + (i * 2654435761u) % 5000;
            at[i] = 999 - i;
            for (size_t j = 0; j < size; j++)
                values[i * size + j] = (unsigned char)(keys[i] % 61 + 1);
        }
        spec.update = "assign";
        shard_free(shard);
        shard = make_shard(&spec, storages[_i], 5000);
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
    RubatoShard *shard = make_shard(&spec, storages[_i], 10);
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
    RubatoShard *shard = make_shard(&spec, "dense", 10);
    const struct {
        RubatoKeys keys;
        bool ok;
    } cases[] = {
        { { .first = FIRST_KEY, .n = 10 }, true },
        { { .first = FIRST_KEY + 9, .n = 1 }, true },
        { { .first = FIRST_KEY + 10, .n = 1 }, false },
        { { .first = FIRST_KEY, .n = 11 }, false },
        { { .first = FIRST_KEY + 1, .n = SIZE_MAX }, false },
        { { .first = FIRST_KEY - 1, .n = 2 }, false },
        { { .first = UINT64_MAX, .n = FIRST_KEY + 2 }, false },
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
    RubatoShard *shard = make_shard(&spec, "hash", 0);
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
    RubatoShard *shard = make_shard(&spec, "hash", 0);
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

/* Keys of awkward patterns, at widths in the slot and in slabs, through many splits. */
START_TEST(hash_keeps_every_row_while_it_grows)
{
    static const uint32_t widths[] = { 1, 2, 3, 40 };
    const uint32_t width = widths[_i];
    const uint64_t n = width > 3 ? 20000 : 200000;
    RubatoTableSpec spec = { .dtype = RUBATO_I64, .width = width };
    RubatoShard *shard = make_shard(&spec, "hash", 0);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree int64_t *values = g_new(int64_t, n * width);
    g_autofree int64_t *read = g_new(int64_t, n * width);
    uint64_t n_rows, n_bytes;
    uint64_t n_wrong = 0; /* each assertion costs a write to a pipe */

    for (uint64_t i = 0; i < n; i++) {
        switch (i % 4) {
        case 0:
            keys[i] = i / 4;
            break;
        case 1:
            keys[i] = UINT64_MAX - i / 4;
            break;
        case 2:
            keys[i] = (i / 4 + 1) << 40;
            break;
        default:
            keys[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
            break;
        }
        for (uint32_t j = 0; j < width; j++)
            values[i * width + j] = (int64_t)(i * 7 + j);
    }
    const RubatoKeys first_half = { .keys = keys, .n = n / 2 };
    const RubatoKeys all = { .keys = keys, .n = n };
    shard_add(shard, &first_half, values);
    shard_get(shard, &all, read);
    ck_assert_mem_eq(read, values, n / 2 * width * sizeof(*read));
    for (size_t i = n / 2 * width; i < n * width; i++)
        n_wrong += read[i] != 0;
    ck_assert_uint_eq(n_wrong, 0);
    shard_add(shard, &all, values);
    shard_get(shard, &all, read);
    for (size_t i = 0; i < n * width; i++)
        n_wrong += read[i] != (i < n / 2 * width ? 2 * values[i] : values[i]);
    ck_assert_uint_eq(n_wrong, 0);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, n);
    ck_assert_uint_ge(n_bytes, n * (8 + width * 8));
    shard_free(shard);
}
END_TEST

/* Keys that have much in common: consecutive ones, multiples, pairs of numbers, numbers of floating
 * point. Were the hash to put many of them in the same place, segments would split before they are
 * full. */
static RubatoKey patterned_key(int pattern, uint64_t i)
{
    const double number = (double)i;
    RubatoKey key;

    switch (pattern) {
    case 0:
        return UINT64_MAX - i;
    case 1:
        return i * 1000;
    case 2:
        return i / 1000 << 32 | i % 1000;
    case 3:
        return i % 1000 << 32 | i / 1000;
    case 4:
        memcpy(&key, &number, sizeof(key));
        return key;
    case 5:
        return i * UINT64_C(0x9e3779b97f4a7c15);
    case 6:
        return i * UINT64_C(0x0001000100010001);
    default: /* i << 3, i << 8, … in turn, up to the last bits */
        return i << (pattern - 7) * 5 << 3;
    }
}

START_TEST(hash_has_room_for_keys_of_any_pattern)
{
    const uint64_t n = 40000; /* the last pattern leaves them 2^16 keys */
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = (uint32_t)_i % 4 + 1 };
    const size_t payload = 8 + 4 * spec.width;
    RubatoShard *shard = make_shard(&spec, "hash", 0);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree float *values = g_new(float, n *spec.width);
    g_autofree float *read = g_new0(float, n *spec.width);
    const RubatoKeys all = { .keys = keys, .n = n };
    uint64_t n_rows, n_bytes;

    for (uint64_t i = 0; i < n; i++)
        keys[i] = patterned_key(_i, i);
    for (uint64_t i = 0; i < n * spec.width; i++)
        values[i] = (float)i;
    shard_add(shard, &all, values);
    shard_get(shard, &all, read);
    ck_assert_mem_eq(read, values, n * spec.width * sizeof(*read));
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, n);
    ck_assert_msg(n_bytes < 24 * n * payload / 10, "%.2f", (double)n_bytes / (double)(n * payload));
    shard_free(shard);
}
END_TEST

/* Nobody's keys are like this by chance; a directory that told them apart would have millions of
 * entries. */
START_TEST(hash_keys_in_one_place_take_a_larger_segment)
{
    enum { N = 24000, N_OTHERS = 100000 };
    RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    RubatoShard *shard = make_shard(&spec, "hash", 0);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N);
    g_autofree float *values = g_new(float, N_OTHERS);
    g_autofree float *read = g_new0(float, N);
    const RubatoKeys all = { .keys = keys, .n = N };
    const RubatoKeys first_half = { .keys = keys, .n = N / 2 };
    const RubatoKeys others = { .first = UINT64_C(1) << 40, .n = N_OTHERS };
    uint64_t n_rows, n_bytes;

    for (uint64_t i = 0; i < N_OTHERS; i++)
        values[i] = (float)i;
    const KeyHash hash = key_hash_make(0);
    for (uint64_t i = 0, key = 1; i < N; key++)
        if (segment_place(key_hash(&hash, key)) >> 54 == 600)
            keys[i++] = key;
    shard_add(shard, &first_half, values);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, N / 2);
    ck_assert_uint_lt(n_bytes, 4 << 20);

    shard_add(shard, &others, values); /* they make the directory worth its size, */
    shard_add(shard, &all, values);    /* so that the larger segment splits */
    shard_get(shard, &all, read);
    for (uint64_t i = 0; i < N; i++)
        require_msg(fabsf(read[i] - values[i] * (i < N / 2 ? 2 : 1)) <= 0, "row %u has %g",
                    (unsigned)i, (double)read[i]);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, N + N_OTHERS);
    ck_assert_uint_lt(n_bytes, 10 << 20);
    shard_free(shard);
}
END_TEST

/* A bound that admission and checkpoints count on: it holds at every size, not only after
 * growth. */
/* Every row once, however the list is cut into pieces. */
START_TEST(hash_lists_its_keys_piece_by_piece)
{
    static const uint64_t pieces[] = { 1, 7, 1000, 30000 };
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = _i < 2 ? 1 : 40 };
    RubatoShard *shard = make_shard(&spec, "hash", 0);
    const uint64_t n = pieces[_i] == 1 ? 500 : 30000;
    g_autofree float *ones = g_new0(float, n *spec.width);
    g_autofree RubatoKey *listed = g_new(RubatoKey, n);
    g_autofree uint8_t *seen = g_new0(uint8_t, n);
    uint64_t n_wrong = 0;

    shard_add(shard, &(RubatoKeys){ .n = n }, ones);
    memset(listed, 0xff, n * sizeof *listed);
    for (uint64_t first = 0; first < n; first += pieces[_i]) {
        const RubatoRequest request = {
            .subject = RUBATO_SUBJECT_KEYS,
            .keys = { .first = first, .n = MIN(pieces[_i], n - first) },
            .values = listed + first,
        };

        n_wrong += !shard_numbers_ok(shard, RUBATO_SUBJECT_KEYS, &request.keys);
        shard_read(shard, &request);
    }
    ck_assert(!shard_numbers_ok(shard, RUBATO_SUBJECT_KEYS, &(RubatoKeys){ .first = n, .n = 1 }));
    ck_assert(!shard_numbers_ok(shard, RUBATO_SUBJECT_KEYS, &(RubatoKeys){ .first = n + 1 }));
    ck_assert(
        !shard_numbers_ok(shard, RUBATO_SUBJECT_KEYS, &(RubatoKeys){ .keys = listed, .n = 1 }));
    for (uint64_t i = 0; i < n; i++)
        n_wrong += listed[i] >= n || seen[listed[i]]++ != 0;
    ck_assert_uint_eq(n_wrong, 0);
    for (uint64_t at = n; at-- > n - 50;) { /* in any order */
        RubatoKey key;

        shard_read(shard, &(RubatoRequest){ .subject = RUBATO_SUBJECT_KEYS,
                                            .keys = { .first = at, .n = 1 },
                                            .values = &key });
        n_wrong += key != listed[at];
    }
    ck_assert_uint_eq(n_wrong, 0);
    shard_free(shard);
}
END_TEST

START_TEST(hash_takes_little_more_memory_than_its_keys_and_values)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    RubatoShard *shard = make_shard(&spec, "hash", 0);
    float ones[1000];

    for (size_t i = 0; i < 1000; i++)
        ones[i] = 1;
    for (uint64_t n = 0; n < 300000; n += 1000) {
        const RubatoKeys run = { .first = n, .n = 1000 };
        uint64_t n_rows, n_bytes;

        shard_add(shard, &run, ones);
        shard_size(shard, &n_rows, &n_bytes);
        ck_assert_uint_eq(n_rows, n + 1000);
        if (n > 20000)
            ck_assert_msg((double)n_bytes <= 2.2 * 12 * (double)n_rows, "%.2f at %u rows",
                          (double)n_bytes / (12 * (double)n_rows), (unsigned)n_rows);
    }
    shard_free(shard);
}
END_TEST

/* ---- the seed ---- */

/* What hash storage went by before there were seeds: somebody who knows a hash finds such keys in
 * seconds. */
static uint64_t known_hash(RubatoKey key)
{
    const unsigned __int128 product =
        (unsigned __int128)(key ^ UINT64_C(0x8ebc6af09c88c6e3)) * UINT64_C(0x9fb21c651e98df25);

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Keys chosen by somebody who does not know the seed: kinds 0 and 1 meet under a hash that he
 * knows, those of kind 1 under the right hash with another seed; others have much in common. */
static RubatoKey chosen_key(int kind, uint64_t i, RubatoKey before)
{
    const KeyHash other = key_hash_make(UINT64_MAX);

    if (kind > 1)
        return patterned_key(kind - 2, i);
    for (RubatoKey key = before + 1;; key++)
        if (((kind == 0 ? known_hash(key) : key_hash(&other, key)) & 0xfc0) == 0)
            return key;
}

/* How many buckets behind its home each key lies, over all, and where the farthest does. */
static void measure(const RubatoKey *keys, size_t n, uint64_t seed, double *mean, size_t *farthest)
{
    SegmentSource source;
    Segment segment;
    size_t sum = 0;

    segment_source_init(&source, 4, seed);
    segment = segment_make(&source, 10, 2);
    *farthest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t hash = key_hash(&source.key_hash, keys[i]);
        unsigned char *cell = segment_insert(source.layout, &segment, hash, keys[i]);

        ck_assert_ptr_nonnull(cell);
        const size_t behind =
            (size_t)(cell - segment_home(&segment, hash)) / source.layout.bucket_bytes;
        sum += behind;
        *farthest = MAX(*farthest, behind);
    }
    *mean = (double)sum / (double)n;
    segment_free(&source, &segment);
    segment_source_clear(&source);
}

/* 3,000 keys in 1,024 buckets of 5: by chance one in twenty lies behind its home. */
START_TEST(chosen_keys_meet_by_chance_alone_whatever_the_seed)
{
    enum { N = 3000, N_SEEDS = 40 };
    g_autofree RubatoKey *keys = g_new(RubatoKey, N);

    for (uint64_t i = 0; i < N; i++)
        keys[i] = chosen_key(_i, i, i == 0 ? 1 : keys[i - 1]);
    if (_i >= 2) /* one of the patterns has key 0, which lies apart */
        keys[0] = UINT64_C(0x123456789abcdef);
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        double mean;
        size_t farthest;

        measure(keys, N, seed, &mean, &farthest);
        ck_assert_msg(mean < 0.3 && farthest < 16, "seed %u: %g buckets, at most %zu",
                      (unsigned)seed, mean, farthest);
    }
}
END_TEST

/* Multiply-shift would be a poor hash of one bit were its factor to lose what is above. */
START_TEST(every_bit_of_a_key_sways_every_bit_of_its_hash)
{
    enum { N_SEEDS = 1000 };

    for (unsigned bit = 0; bit < 64; bit++) {
        unsigned n_changed[64] = { 0 };

        for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
            const KeyHash hash = key_hash_make(seed);
            const RubatoKey key = seed * UINT64_C(0xd1342543de82ef95);
            const uint64_t change =
                key_hash(&hash, key) ^ key_hash(&hash, key ^ UINT64_C(1) << bit);

            for (unsigned i = 0; i < 64; i++)
                n_changed[i] += change >> i & 1;
        }
        for (unsigned i = 0; i < 64; i++) /* 7 standard deviations */
            require_msg(n_changed[i] > 388 && n_changed[i] < 612, "bit %u of %u: %u", i, bit,
                        n_changed[i]);
    }
}
END_TEST

START_TEST(a_seed_changes_nothing_that_is_read)
{
    enum { N = 20000, N_SEEDS = 3 };
    static const uint64_t seeds[N_SEEDS] = { 0, 1, UINT64_C(0xfedcba9876543210) };
    RubatoTableSpec spec = { .name = "rows",
                             .dtype = RUBATO_F32,
                             .width = 3,
                             .storage = "hash",
                             .init = "normal",
                             .init_stddev = 1,
                             .seed = 5 };
    g_autofree float *deltas = g_new(float, N * 3);
    g_autofree float *first = g_new(float, 2 * N * 3);
    g_autofree float *other = g_new(float, 2 * N * 3);
    g_autofree uint8_t *seen = NULL;
    g_autofree RubatoKey *listed = g_new(RubatoKey, N);
    uint64_t n_rows, n_bytes, n_bytes_first = 0;

    for (size_t i = 0; i < N * 3; i++)
        deltas[i] = (float)i;
    for (int i = 0; i < N_SEEDS; i++) {
        RubatoShard *shard = shard_new_seeded(&spec, 0, 0, seeds[i], NULL);
        float *values = i == 0 ? first : other;

        ck_assert_uint_eq(shard_hash_seed(shard), seeds[i]);
        shard_add(shard, &(RubatoKeys){ .first = 1000, .n = N }, deltas);
        shard_get(shard, &(RubatoKeys){ .first = 1000, .n = 2 * N }, values);
        ck_assert_mem_eq(values, first, sizeof *values * 2 * N * 3);
        shard_size(shard, &n_rows, &n_bytes);
        ck_assert_uint_eq(n_rows, N);
        n_bytes_first = i == 0 ? n_bytes : n_bytes_first;
        ck_assert_uint_lt(n_bytes, n_bytes_first * 5 / 4);
        shard_read(shard, &(RubatoRequest){ .subject = RUBATO_SUBJECT_KEYS,
                                            .keys = { .n = N },
                                            .values = listed });
        g_free(seen);
        seen = g_new0(uint8_t, N);
        for (size_t key = 0; key < N; key++)
            require_msg(listed[key] - 1000 < N && seen[listed[key] - 1000]++ == 0, "key %u",
                        (unsigned)listed[key]);
        shard_free(shard);
    }
}
END_TEST

/* Initialisers */

/* Reads n rows from `first` on of a shard that begins at `from`. */
static void read_rows(RubatoTableSpec *spec, const char *storage, RubatoKey from, RubatoKey first,
                      size_t n, void *values)
{
    g_autoptr(GError) error = NULL;

    spec->name = "init";
    spec->storage = storage;
    spec->n_keys = 5000;
    ck_assert_msg(spec_check(spec, &error), "%s", error == NULL ? "" : error->message);
    RubatoShard *shard = shard_new(spec, from, 5000 - from, &error);
    ck_assert_ptr_nonnull(shard);
    const RubatoKeys run = { .first = first, .n = n };
    shard_get(shard, &run, values);
    shard_free(shard);
}

START_TEST(initial_values_follow_from_seed_key_and_column_alone)
{
    static const char *const kinds[] = { "constant", "uniform", "normal" };
    const RubatoDtype dtype = (RubatoDtype)(_i / 3);
    RubatoTableSpec spec = { .dtype = dtype,
                             .width = 3,
                             .init = kinds[_i % 3],
                             .init_value = 4,
                             .init_low = -50,
                             .init_high = 70,
                             .init_mean = 10,
                             .init_stddev = 20,
                             .seed = 11 };
    const size_t n_bytes = 1000 * 3 * rubato_dtype_size(dtype);
    g_autofree void *whole = g_malloc(n_bytes);
    g_autofree void *part = g_malloc(n_bytes);

    read_rows(&spec, "dense", 0, 3000, 1000, whole);
    for (size_t i = 0; dtype == RUBATO_F64 && _i % 3 != 0 && i < 1000; i++) { /* all differ */
        const double *row = (const double *)whole + 3 * i;

        require_msg(row[0] != row[1] && row[1] != row[2] && row[0] != row[2], "row %d", (int)i);
    }
    read_rows(&spec, "dense", 2500, 3000, 1000, part);
    ck_assert_mem_eq(whole, part, n_bytes);
    read_rows(&spec, "hash", 0, 3000, 1000, part);
    ck_assert_mem_eq(whole, part, n_bytes);
    spec.seed = 12;
    read_rows(&spec, "dense", 0, 3000, 1000, part);
    ck_assert((memcmp(whole, part, n_bytes) == 0) == (_i % 3 == 0));
}
END_TEST

START_TEST(uniform_values_fill_their_range_evenly)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32,
                             .width = 10,
                             .init = "uniform",
                             .init_low = 0.7,
                             .init_high = 0.9,
                             .seed = 3 };
    g_autofree float *values = g_new(float, 50000);
    unsigned counts[10] = { 0 };

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 50000; i++) {
        if ((double)values[i] < 0.7 || (double)values[i] >= 0.9)
            ck_abort_msg("value %zu is %.9g", i, (double)values[i]);
        counts[(size_t)(((double)values[i] - 0.7) / 0.02)]++;
    }
    for (size_t i = 0; i < 10; i++)
        ck_assert_msg(counts[i] > 4700 && counts[i] < 5300, "%u in tenth %zu", counts[i], i);
}
END_TEST

START_TEST(uniform_integers_take_each_value)
{
    RubatoTableSpec spec = { .dtype = RUBATO_I32,
                             .width = 10,
                             .init = "uniform",
                             .init_low = -2.5,
                             .init_high = 3,
                             .seed = 3 };
    g_autofree int32_t *values = g_new(int32_t, 50000);
    unsigned counts[5] = { 0 };

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 50000; i++) {
        if (values[i] < -2 || values[i] > 2)
            ck_abort_msg("value %zu is %d", i, values[i]);
        counts[values[i] + 2]++;
    }
    for (size_t i = 0; i < 5; i++)
        ck_assert_msg(counts[i] > 9600 && counts[i] < 10400, "%u times %zu", counts[i], i);
}
END_TEST

START_TEST(uniform_integers_reach_both_ends_of_their_dtype)
{
    RubatoTableSpec spec = {
        .dtype = RUBATO_I64, .init = "uniform", .init_low = -0x1p63, .init_high = 0x1p63
    };
    int64_t values[5000];
    unsigned n_upper = 0, n_lower = 0;

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 5000; i++) {
        n_upper += values[i] > INT64_MAX / 2;
        n_lower += values[i] < INT64_MIN / 2;
    }
    ck_assert_uint_gt(n_upper, 1100);
    ck_assert_uint_gt(n_lower, 1100);
}
END_TEST

START_TEST(normal_values_have_their_mean_and_deviation)
{
    const RubatoDtype dtype = (RubatoDtype)_i;
    RubatoTableSpec spec = { .dtype = dtype,
                             .width = 10,
                             .init = "normal",
                             .init_mean = 100,
                             .init_stddev = 25,
                             .seed = 9 };
    g_autofree void *values = g_malloc(50000 * 8);
    double sum = 0, squares = 0;
    unsigned n_far = 0;

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 50000; i++) {
        const double value = dtype == RUBATO_F32   ? (double)((float *)values)[i]
                             : dtype == RUBATO_F64 ? ((double *)values)[i]
                             : dtype == RUBATO_I32 ? (double)((int32_t *)values)[i]
                                                   : (double)((int64_t *)values)[i];
        sum += value;
        squares += (value - 100) * (value - 100);
        n_far += fabs(value - 100) > 50;
    }
    ck_assert_double_eq_tol(sum / 50000, 100, 0.6);
    ck_assert_double_eq_tol(sqrt(squares / 50000), 25, 0.5);
    ck_assert_uint_gt(n_far, 1900); /* 4.55 % of 50,000 are 2275 */
    ck_assert_uint_lt(n_far, 2650);
}
END_TEST

START_TEST(normal_integers_stop_at_the_ends_of_their_dtype)
{
    RubatoTableSpec spec = { .dtype = RUBATO_I32, .init = "normal", .init_stddev = 1e12 };
    int32_t values[5000];
    unsigned n_max = 0, n_min = 0;

    read_rows(&spec, "dense", 0, 0, 5000, values);
    for (size_t i = 0; i < 5000; i++) {
        n_max += values[i] == INT32_MAX;
        n_min += values[i] == INT32_MIN;
    }
    ck_assert_uint_gt(n_max, 2000);
    ck_assert_uint_gt(n_min, 2000);
}
END_TEST

START_TEST(only_all_zero_bits_are_zero_pages)
{
    RubatoTableSpec spec = { .name = "init", .dtype = RUBATO_F64, .n_keys = 1 };
    RubatoInit init;

    init_prepare(&init, &spec);
    ck_assert(rubato_init_is_zero(&init));
    spec.init_value = -0.0;
    init_prepare(&init, &spec);
    ck_assert(!rubato_init_is_zero(&init));
    spec.init = "normal";
    init_prepare(&init, &spec);
    ck_assert(!rubato_init_is_zero(&init));
}
END_TEST

/* The large path maps its rows. */
START_TEST(large_dense_shards_have_their_initial_values_too)
{
    RubatoTableSpec spec = { .name = "large",
                             .dtype = RUBATO_F32,
                             .n_keys = 3000000,
                             .init = _i == 0 ? "constant" : "uniform",
                             .init_low = 1,
                             .init_high = 2 };
    RubatoShard *shard = shard_new(&spec, 0, spec.n_keys, NULL);
    const RubatoKeys last = { .first = spec.n_keys - 2, .n = 2 };
    float values[2] = { -1, -1 };
    uint64_t n_rows, n_bytes;

    shard_get(shard, &last, values);
    for (size_t i = 0; i < 2; i++)
        ck_assert(_i == 0 ? values[i] >= 0 && values[i] <= 0 : values[i] >= 1 && values[i] < 2);
    shard_size(shard, &n_rows, &n_bytes);
    ck_assert_uint_eq(n_rows, spec.n_keys);
    ck_assert_uint_ge(n_bytes, 4 * spec.n_keys);
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("storage");
    TCase *shards = tcase_create("shards");
    TCase *seeds = tcase_create("seeds");
    TCase *init = tcase_create("initialisers");

    tcase_add_loop_test(shards, lists_selections_and_runs_read_and_add, 0, 2);
    tcase_add_loop_test(shards, narrow_rows_of_every_dtype_are_gathered_and_scattered, 0, 2);
    tcase_add_loop_test(shards, an_empty_request_does_nothing, 0, 2);
    tcase_add_test(shards, dense_refuses_keys_outside_its_range);
    tcase_add_test(shards, hash_takes_all_keys_but_no_run_beyond_the_last);
    tcase_add_test(shards, a_dense_shard_may_have_no_keys);
    tcase_add_test(shards, more_rows_than_there_is_memory_is_an_error);
    tcase_add_loop_test(shards, a_get_of_an_absent_key_creates_nothing_unless_told_to, 0, 2);
    tcase_add_loop_test(shards, hash_keeps_every_row_while_it_grows, 0, 4);
    tcase_add_loop_test(shards, hash_lists_its_keys_piece_by_piece, 0, 4);
    tcase_add_loop_test(shards, hash_has_room_for_keys_of_any_pattern, 0, 17);
    tcase_add_test(shards, hash_keys_in_one_place_take_a_larger_segment);
    tcase_add_test(shards, hash_takes_little_more_memory_than_its_keys_and_values);
    tcase_set_timeout(shards, 60);
    suite_add_tcase(suite, shards);

    tcase_add_loop_test(seeds, chosen_keys_meet_by_chance_alone_whatever_the_seed, 0, 12);
    tcase_add_test(seeds, every_bit_of_a_key_sways_every_bit_of_its_hash);
    tcase_add_test(seeds, a_seed_changes_nothing_that_is_read);
    suite_add_tcase(suite, seeds);

    tcase_add_loop_test(init, initial_values_follow_from_seed_key_and_column_alone, 0, 12);
    tcase_add_test(init, uniform_values_fill_their_range_evenly);
    tcase_add_test(init, uniform_integers_take_each_value);
    tcase_add_test(init, uniform_integers_reach_both_ends_of_their_dtype);
    tcase_add_loop_test(init, normal_values_have_their_mean_and_deviation, 0, 4);
    tcase_add_test(init, normal_integers_stop_at_the_ends_of_their_dtype);
    tcase_add_test(init, only_all_zero_bits_are_zero_pages);
    tcase_add_loop_test(init, large_dense_shards_have_their_initial_values_too, 0, 2);
    suite_add_tcase(suite, init);
    return run_suite(suite);
}
