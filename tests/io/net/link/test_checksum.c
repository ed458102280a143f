/* The checksum of bytes is the same with any vectors that a processor has, because the two ends of
 * a connection may have different processors. */
#include <check.h>
#include <glib.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/net/link/checksum.h"
#include "io/net/link/checksum_variants.h"

#define MAX_BYTES ((size_t)20000)

static uint8_t bytes[MAX_BYTES + 64];

static void assert_same(size_t at, size_t size, uint64_t seed)
{
    const uint64_t due = XXH3_64bits_withSeed(bytes + at, size, seed);

    ck_assert_uint_eq(checksum(bytes + at, size, seed), due);
    ck_assert_uint_eq(checksum_plain(bytes + at, size, seed), due);
#if CHECKSUM_HAS_VARIANTS
    if (__builtin_cpu_supports("avx2"))
        ck_assert_uint_eq(checksum_avx2(bytes + at, size, seed), due);
    if (__builtin_cpu_supports("avx512f"))
        ck_assert_uint_eq(checksum_avx512(bytes + at, size, seed), due);
#endif
}

START_TEST(all_variants_give_what_the_library_gives)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 2654435761U >> 13);
    for (size_t size = 0; size < 2100; size++)
        assert_same(size % 61, size, size * 0x9E3779B97F4A7C15U);
    for (size_t size = 2100; size < MAX_BYTES; size += 257)
        assert_same(size % 61, size, ~(uint64_t)size);
    assert_same(0, MAX_BYTES, 0);
}
END_TEST

START_TEST(bytes_in_two_places_have_the_checksum_of_all)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 2654435761U >> 13);
    for (size_t size = 0; size < MAX_BYTES; size += 1 + size / 3)
        for (size_t n_head = 0; n_head <= MIN(size, 1000); n_head += 1 + n_head / 4) {
            const uint64_t seed = size * 0x9E3779B97F4A7C15U + n_head;
            const uint64_t due = XXH3_64bits_withSeed(bytes, size, seed);
            const uint8_t *const rest = bytes + n_head;
            const size_t n_rest = size - n_head;

            ck_assert_uint_eq(checksum_apart(bytes, n_head, rest, n_rest, seed), due);
            ck_assert_uint_eq(checksum_apart_plain(bytes, n_head, rest, n_rest, seed), due);
#if CHECKSUM_HAS_VARIANTS
            if (__builtin_cpu_supports("avx2"))
                ck_assert_uint_eq(checksum_apart_avx2(bytes, n_head, rest, n_rest, seed), due);
            if (__builtin_cpu_supports("avx512f"))
                ck_assert_uint_eq(checksum_apart_avx512(bytes, n_head, rest, n_rest, seed), due);
#endif
        }
}
END_TEST

/* Pieces of the same length; the last one is what is left. */
static void assert_same_in_pieces(size_t size, size_t n_piece, uint64_t seed)
{
    const uint64_t due = XXH3_64bits_withSeed(bytes, size, seed);
    void (*const adds[])(void *state, const void *bytes, size_t size) = {
        checksum_add_plain,
#if CHECKSUM_HAS_VARIANTS
        __builtin_cpu_supports("avx2") ? checksum_add_avx2 : checksum_add_plain,
        __builtin_cpu_supports("avx512f") ? checksum_add_avx512 : checksum_add_plain,
#endif
    };
    ChecksumPieces usual, each[G_N_ELEMENTS(adds)];

    checksum_begin(&usual, seed);
    for (size_t i = 0; i < G_N_ELEMENTS(adds); i++)
        checksum_begin(&each[i], seed);
    for (size_t done = 0; done < size; done += n_piece) {
        const size_t some = MIN(size - done, n_piece);

        checksum_add(&usual, bytes + done, some);
        for (size_t i = 0; i < G_N_ELEMENTS(adds); i++)
            adds[i](each[i].state, bytes + done, some);
    }
    ck_assert_uint_eq(checksum_end(&usual), due);
    for (size_t i = 0; i < G_N_ELEMENTS(adds); i++)
        ck_assert_uint_eq(checksum_end(&each[i]), due);
}

START_TEST(bytes_in_pieces_have_the_checksum_of_all)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 2654435761U >> 13);
    for (size_t size = 0; size < MAX_BYTES; size += 1 + size / 3)
        for (size_t n_piece = 1; n_piece <= MAX(size, 1); n_piece += 1 + n_piece / 2)
            assert_same_in_pieces(size, n_piece, size * 0x9E3779B97F4A7C15U + n_piece);
}
END_TEST

START_TEST(any_bit_that_changes_is_found)
{
    static const size_t sizes[] = { 1, 16, 128, 240, 511, 512, 1024, 4096, MAX_BYTES };

    for (size_t k = 0; k < G_N_ELEMENTS(sizes); k++) {
        const uint64_t right = checksum(bytes, sizes[k], 7);
        for (size_t bit = 0; bit < 8 * sizes[k]; bit += 1 + sizes[k] / 64) {
            bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
            ck_assert_uint_ne(checksum(bytes, sizes[k], 7), right);
            bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        }
        ck_assert_uint_ne(checksum(bytes, sizes[k], 8), right);
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("checksum");
    TCase *const all = tcase_create("variants");

    tcase_add_test(all, all_variants_give_what_the_library_gives);
    tcase_add_test(all, any_bit_that_changes_is_found);
    tcase_add_test(all, bytes_in_two_places_have_the_checksum_of_all);
    tcase_add_test(all, bytes_in_pieces_have_the_checksum_of_all);
    suite_add_tcase(suite, all);
    SRunner *const runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
