/* Hash storage: it has room for keys of any pattern; the seed of its hash. What every storage has
 * to keep is tested in test_storage. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/shard/shard_private.h"
#include "models/storage/hash/hash.h"
#include "models/storage/hash/segment.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

/* Key i of a table of odd ones, which also has key 0. */
static RubatoKey odd_key(size_t i)
{
    return i == 0 ? 0 : 2 * i * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

/* For each layout of buckets; a processor without the instructions has nothing to compare. */
START_TEST(hash_finds_the_same_rows_by_all_instructions)
{
    static const uint32_t widths[] = { 1, 2, 3, 4, 40 };
    static const HashInstructions all[] = { HASH_PLAIN, HASH_AVX2, HASH_AVX512, HASH_WIDEST };
    enum { N = 30000, N_ASKED = N + 1000 }; /* the last ones are absent */
    const uint32_t width = widths[_i];
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = width };
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_ASKED);
    g_autofree float *ones = g_new(float, N *width);
    g_autofree float *read = g_new(float, N_ASKED *width);
    unsigned n_adds = 0;

    for (size_t i = 0; i < N_ASKED; i++)
        keys[i] = odd_key(i);
    for (size_t i = 0; i < N * width; i++)
        ones[i] = 1;
    for (size_t by = 0; by < G_N_ELEMENTS(all); by++) {
        unsigned n_wrong = 0;

        if (!hash_storage_use(shard->storage, all[by]))
            continue;
        shard_add(shard, &(RubatoKeys){ .keys = keys, .n = N }, ones);
        n_adds++;
        shard_get(shard, &(RubatoKeys){ .keys = keys, .n = N_ASKED }, read);
        for (size_t i = 0; i < N_ASKED * width; i++)
            n_wrong += (unsigned)read[i] != (i < N * width ? n_adds : 0);
        require_msg(n_wrong == 0, "%u values wrong by instructions %d", n_wrong, (int)all[by]);
        require_msg(shard_n_rows(shard) == N, "%u rows", (unsigned)shard_n_rows(shard));
    }
    shard_free(shard);
}
END_TEST

/* Keys that have much in common: consecutive ones, multiples, pairs of numbers, numbers of floating
 * point. If the hash put many of them in the same place, segments would split before they are
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
    RubatoShard *shard = shard_make(&spec, "hash", 0);
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

/* Keys are not like this by chance. A directory that distinguished them would have millions of
 * entries. */
START_TEST(hash_keys_in_one_place_take_a_larger_segment)
{
    enum { N = 24000, N_OTHERS = 100000 };
    RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    RubatoShard *shard = shard_make(&spec, "hash", 0);
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

/* Every row once, however the list is cut into pieces, also where there are many segments. */
START_TEST(hash_lists_its_keys_piece_by_piece)
{
    static const uint64_t pieces[] = { 1, 7, 1000, 30000 };
    RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = _i < 2 ? 1 : 40 };
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const uint64_t n = pieces[_i] == 1 ? 500 : 30000;
    g_autofree float *ones = g_new0(float, n *spec.width);
    g_autofree RubatoKey *listed = g_new(RubatoKey, n);
    g_autofree uint8_t *seen = g_new0(uint8_t, n);
    uint64_t n_wrong = 0;

    shard_add(shard, &(RubatoKeys){ .n = n }, ones);
    memset(listed, 0xff, n * sizeof *listed);
    ck_assert(shard_can_list(shard));
    ck_assert_uint_eq(shard_n_rows(shard), n);
    for (uint64_t first = 0; first < n; first += pieces[_i])
        shard_list(shard, first, MIN(pieces[_i], n - first), listed + first);
    for (uint64_t i = 0; i < n; i++)
        n_wrong += listed[i] >= n || seen[listed[i]]++ != 0;
    ck_assert_uint_eq(n_wrong, 0);
    for (uint64_t at = n; at-- > n - 50;) { /* in any order */
        RubatoKey key;

        shard_list(shard, at, 1, &key);
        n_wrong += key != listed[at];
    }
    ck_assert_uint_eq(n_wrong, 0);
    shard_free(shard);
}
END_TEST

/* A bound that admission and checkpoints count on: it holds at every size, not only after
 * growth. */
START_TEST(hash_takes_little_more_memory_than_its_keys_and_values)
{
    RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    RubatoShard *shard = shard_make(&spec, "hash", 0);
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

/* The hash that hash storage used before there were seeds. Somebody who knows a hash finds such
 * keys in seconds. */
static uint64_t known_hash(RubatoKey key)
{
    const unsigned __int128 product =
        (unsigned __int128)(key ^ UINT64_C(0x8ebc6af09c88c6e3)) * UINT64_C(0x9fb21c651e98df25);

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Keys chosen by somebody who does not know the seed: kinds 0 and 1 collide under a known hash,
 * those of kind 1 under the right hash with another seed; others have much in common. */
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

    segment_source_init(&source, 4, /* is_paired= */ false, SEGMENT_FILL_FAST, seed);
    segment = segment_make(&source, 10, 2);
    *farthest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t hash = key_hash(&source.key_hash, keys[i]);
        unsigned char *cell = segment_insert(&source, &segment, hash, keys[i]);

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
    enum { N = 3000 };
    const uint64_t n_seeds = is_slow() ? 10 : 40;
    g_autofree RubatoKey *keys = g_new(RubatoKey, N);

    for (uint64_t i = 0; i < N; i++)
        keys[i] = chosen_key(_i, i, i == 0 ? 1 : keys[i - 1]);
    if (_i >= 2) /* one of the patterns has key 0, which lies apart */
        keys[0] = UINT64_C(0x123456789abcdef);
    for (uint64_t seed = 0; seed < n_seeds; seed++) {
        double mean;
        size_t farthest;

        measure(keys, N, seed, &mean, &farthest);
        ck_assert_msg(mean < 0.3 && farthest < 16, "seed %u: %g buckets, at most %zu",
                      (unsigned)seed, mean, farthest);
    }
}
END_TEST

/* Multiply-shift would be a poor hash of one bit if its factor lost the upper bits. */
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
        shard_list(shard, 0, N, listed);
        g_free(seen);
        seen = g_new0(uint8_t, N);
        for (size_t key = 0; key < N; key++)
            require_msg(listed[key] - 1000 < N && seen[listed[key] - 1000]++ == 0, "key %u",
                        (unsigned)listed[key]);
        shard_free(shard);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hash storage");
    TCase *shards = tcase_create("shards");
    TCase *seeds = tcase_create("seeds");

    tcase_add_loop_test(shards, hash_finds_the_same_rows_by_all_instructions, 0, 5);
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
    return run_suite(suite);
}
