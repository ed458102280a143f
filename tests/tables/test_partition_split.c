/* Splitting a list of keys in two, with wide and narrow vectors and without, against a look at each
 * key. */
#include <check.h>
#include <rubato/mix.h>
#include <string.h>

#include "tables/partition_split.h"
#include "tests/support/runner.h"

enum { MOST = 70, ENTRIES = MOST + 16, UNTOUCHED = 0x7f };

typedef size_t (*Split)(const RubatoKey *keys, size_t n, RubatoKey first_key, uint64_t bound,
                        uint32_t *below, uint32_t *above);

/* Whether the list's entries behind those that it may write are as they were. */
static bool is_clean(const uint32_t *list, size_t n)
{
    for (size_t i = n + PARTITION_SPLIT_SPARE; i < ENTRIES; i++)
        if (memcmp(&list[i], (const uint8_t[]){ UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED }, 4) !=
            0)
            return false;
    return true;
}

static void check_split(Split split, const RubatoKey *keys, size_t n, RubatoKey first_key,
                        uint64_t bound)
{
    uint32_t below[ENTRIES], above[ENTRIES];
    size_t n_below = 0, n_above = 0;

    memset(below, UNTOUCHED, sizeof below);
    memset(above, UNTOUCHED, sizeof above);
    const size_t n_said = split(keys, n, first_key, bound, below, above);
    for (uint32_t i = 0; i < n; i++) {
        if (keys[i] - first_key < bound)
            ck_assert_uint_eq(below[n_below++], i);
        else
            ck_assert_uint_eq(above[n_above++], i);
    }
    ck_assert_uint_eq(n_said, n_above);
    ck_assert(is_clean(below, n));
    ck_assert(is_clean(above, n));
}

START_TEST(each_key_goes_to_its_side_of_the_bound)
{
    static const struct {
        RubatoKey first_key;
        uint64_t n_keys, bound;
    } ranges[] = {
        { 0, 1000, 500 }, { 5000, 100, 1 },           { 5000, 100, 100 },
        { 0, 100, 0 },    { UINT64_MAX - 9, 20, 10 }, { 0, UINT64_MAX, UINT64_C(1) << 63 },
    };
    RubatoKey keys[MOST];

    for (size_t range = 0; range < G_N_ELEMENTS(ranges); range++)
        for (size_t n = 0; n <= MOST; n++) {
            for (size_t i = 0; i < n; i++)
                keys[i] = ranges[range].first_key +
                          rubato_mix64(range * 1000 + n * 100 + i) % ranges[range].n_keys;
            check_split(partition_split, keys, n, ranges[range].first_key, ranges[range].bound);
            check_split(partition_split_narrow, keys, n, ranges[range].first_key,
                        ranges[range].bound);
            check_split(partition_split_plain, keys, n, ranges[range].first_key,
                        ranges[range].bound);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("partition_split");
    TCase *tcase = tcase_create("split");

    tcase_add_test(tcase, each_key_goes_to_its_side_of_the_bound);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
