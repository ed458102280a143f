/* The key codec: decoding gives back what was encoded, and input from outside is not trusted. */
#include <stdlib.h>
#include <string.h>

#include "io/net/link/key_codec.h"
#include "tests/support/runner.h"

enum { MOST = 3000, SEEDS_PER_CASE = 25 };

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey x = *(const RubatoKey *)a, y = *(const RubatoKey *)b;

    return x < y ? -1 : x > y;
}

static uint64_t random_u64(GRand *random)
{
    return (uint64_t)g_rand_int(random) << 32 | g_rand_int(random);
}

/* n ascending keys whose differences take up to `bits` bits, some of them 0. */
static RubatoKey *ascending_keys(GRand *random, size_t n, unsigned bits)
{
    RubatoKey *keys = g_new(RubatoKey, n);
    RubatoKey key = bits == 64 ? 0 : random_u64(random) >> 2;

    for (size_t i = 0; i < n; i++) {
        keys[i] = bits == 64 ? random_u64(random) : key;
        key += random_u64(random) >> (64 - bits);
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    return keys;
}

static void code_and_decode(guint32 seed)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    const size_t n = (size_t)g_rand_int_range(random, 1, MOST);
    const unsigned bits = (unsigned)g_rand_int_range(random, 1, 50);
    g_autofree RubatoKey *keys = ascending_keys(random, n, bits);
    g_autofree RubatoKey *read = g_new0(RubatoKey, n);
    const RubatoKeys list = { .keys = keys, .n = n };
    const size_t size = key_codec_size(&list);
    g_autofree uint8_t *bytes = g_malloc(size + 1);

    if (size == 0) { /* few, or far apart */
        ck_assert(n < 16 || bits > 16);
        return;
    }
    bytes[size] = 0xa5;
    ck_assert_uint_lt(size, n * sizeof(RubatoKey));
    ck_assert(key_codec_is_possible(n, size));
    key_codec_encode(&list, bytes, key_codec_size(&list));
    ck_assert_uint_eq(bytes[size], 0xa5);
    ck_assert(key_codec_decode(bytes, size, keys[0], n, read));
    ck_assert_mem_eq(keys, read, n * sizeof *keys);
}

START_TEST(keys_come_out_as_they_went_in)
{
    for (int i = 0; i < SEEDS_PER_CASE; i++)
        code_and_decode((guint32)(_i * SEEDS_PER_CASE + i));
}
END_TEST

START_TEST(a_selection_is_written_in_its_own_order)
{
    RubatoKey keys[40], read[20];
    uint32_t at[20];
    uint8_t bytes[200];
    const RubatoKeys selection = { .keys = keys, .at = at, .n = 20 };

    for (uint32_t i = 0; i < 40; i++)
        keys[i] = i * 1000;
    for (uint32_t i = 0; i < 20; i++)
        at[i] = i * 2;
    ck_assert_uint_gt(key_codec_size(&selection), 0);
    key_codec_encode(&selection, bytes, key_codec_size(&selection));
    ck_assert(key_codec_decode(bytes, key_codec_size(&selection), 0, 20, read));
    for (uint32_t i = 0; i < 20; i++)
        ck_assert_uint_eq(read[i], i * 2000);
}
END_TEST

START_TEST(what_does_not_pay_is_left_alone)
{
    RubatoKey keys[100];

    for (uint32_t i = 0; i < 100; i++)
        keys[i] = i;
    ck_assert_uint_eq(key_codec_size(&(RubatoKeys){ .keys = keys, .n = 15 }), 0);
    ck_assert_uint_eq(key_codec_size(&(RubatoKeys){ .keys = keys, .n = 16 }), 15 + 4);
    ck_assert_uint_eq(key_codec_size(&(RubatoKeys){ .keys = keys, .n = 100 }), 99 + 25);
    keys[50] = 3;
    ck_assert_uint_eq(key_codec_size(&(RubatoKeys){ .keys = keys, .n = 100 }), 0);
    for (uint32_t i = 0; i < 100; i++)
        keys[i] = (uint64_t)i << 50;
    ck_assert_uint_eq(key_codec_size(&(RubatoKeys){ .keys = keys, .n = 100 }), 0);
}
END_TEST

START_TEST(the_last_key_there_is_can_be_told)
{
    RubatoKey keys[20], read[20];
    uint8_t bytes[200];
    const RubatoKeys list = { .keys = keys, .n = 20 };

    for (uint32_t i = 0; i < 20; i++)
        keys[i] = UINT64_MAX - (19 - i) * (uint64_t)_i;
    ck_assert_uint_gt(key_codec_size(&list), 0);
    key_codec_encode(&list, bytes, key_codec_size(&list));
    ck_assert(key_codec_decode(bytes, key_codec_size(&list), keys[0], 20, read));
    ck_assert_mem_eq(keys, read, sizeof keys);
    ck_assert(_i == 0 || !key_codec_decode(bytes, key_codec_size(&list), keys[0] + 1, 20, read));
}
END_TEST

static void refuse_wrong_bytes(guint32 seed)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    const size_t n = (size_t)g_rand_int_range(random, 16, 200);
    g_autofree RubatoKey *keys = ascending_keys(random, n, 20);
    g_autofree RubatoKey *read = g_new0(RubatoKey, n + 1);
    const RubatoKeys list = { .keys = keys, .n = n };
    const size_t size = key_codec_size(&list);
    g_autofree uint8_t *bytes = g_malloc(size);
    size_t cut;

    ck_assert_uint_gt(size, 0);
    key_codec_encode(&list, bytes, key_codec_size(&list));
    cut = (size_t)g_rand_int_range(random, 0, (gint32)size);
    {
        g_autofree uint8_t *shorter = g_memdup2(bytes, cut); /* sanitizers see a read past it */

        ck_assert(!key_codec_decode(shorter, cut, keys[0], n, read));
    }
    ck_assert(!key_codec_decode(bytes, size, keys[0], n - 1, read));
    ck_assert(!key_codec_decode(bytes, size, keys[0], n + 1, read));
    ck_assert(keys[n - 1] == keys[0] ||
              !key_codec_decode(bytes, size, UINT64_MAX - (keys[n - 1] - keys[0]) + 1, n, read));
    for (int i = 0; i < 100; i++) { /* whatever comes, it ends */
        bytes[g_rand_int_range(random, 0, (gint32)size)] = (uint8_t)g_rand_int(random);
        if (key_codec_decode(bytes, size, keys[0], n, read))
            for (size_t k = 1; k < n; k++)
                ck_assert_uint_ge(read[k], read[k - 1]);
    }
}

START_TEST(wrong_bytes_are_refused_and_never_read_past)
{
    for (int i = 0; i < SEEDS_PER_CASE; i++)
        refuse_wrong_bytes((guint32)(_i * SEEDS_PER_CASE + i));
}
END_TEST

START_TEST(impossible_sizes_are_told)
{
    ck_assert(!key_codec_is_possible(0, 0));
    ck_assert(key_codec_is_possible(1, 0));
    ck_assert(!key_codec_is_possible(1, 1));
    ck_assert(key_codec_is_possible(5, 1 + 4));
    ck_assert(!key_codec_is_possible(5, 4));
    ck_assert(key_codec_is_possible(5, 1 + 4 * 8));
    ck_assert(!key_codec_is_possible(5, 1 + 4 * 8 + 1));
    ck_assert(!key_codec_is_possible(UINT64_MAX, 100));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key codec");
    TCase *tcase = tcase_create("key codec");

    tcase_add_loop_test(tcase, keys_come_out_as_they_went_in, 0, 8);
    tcase_add_test(tcase, a_selection_is_written_in_its_own_order);
    tcase_add_loop_test(tcase, the_last_key_there_is_can_be_told, 0, 3);
    tcase_add_test(tcase, what_does_not_pay_is_left_alone);
    tcase_add_loop_test(tcase, wrong_bytes_are_refused_and_never_read_past, 0, 2);
    tcase_add_test(tcase, impossible_sizes_are_told);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
