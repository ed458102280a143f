/* Partitions: which part holds a key, and a call's keys cut for the parts. */
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "tables/partition.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static RubatoTableSpec dense(RubatoKey first, uint64_t n, uint32_t chunk)
{
    return (RubatoTableSpec){ .name = "t",
                              .storage = "dense",
                              .first_key = first,
                              .n_keys = n,
                              .chunk_size = chunk,
                              .partition = "range" };
}

static PartitionKeys keys_of(const RubatoTableSpec *spec)
{
    return strcmp(spec->storage, "dense") == 0 ? PARTITION_KEYS_RANGE : PARTITION_KEYS_ALL;
}

static Partition make(const RubatoTableSpec *spec, uint32_t n_parts)
{
    g_autoptr(GError) error = NULL;
    Partition partition;
    const bool made = partition_init(&partition, spec, keys_of(spec), n_parts, &error);

    ck_assert_msg(made, "%s", error == NULL ? "" : error->message);
    return partition;
}

/* ---- ranges ---- */

/* first_key, n_keys, chunk_size; the last few end with the last key there is. */
static const struct {
    RubatoKey first;
    uint64_t n;
    uint32_t chunk;
} ranges[] = {
    { 0, 1, 1 },
    { 0, 100, 1 },
    { 7, 100, 1 },
    { 1000, 37, 5 },
    { 0, 37, 64 },
    { 3, 3, 1 },
    { 0, 5, 2 },
    { UINT64_MAX - 99, 100, 1 },
    { UINT64_MAX - 9, 10, 10 },
    { UINT64_MAX - 1, 2, 1 },
    { 1, UINT64_MAX, 1 },
    { 0, UINT64_MAX, 1 },
    { 1, UINT64_MAX, 1000000 },
};

#define MAX_PARTS 20

START_TEST(even_ranges_cover_each_key_once_and_end_at_chunks)
{
    const RubatoTableSpec spec = dense(ranges[_i].first, ranges[_i].n, ranges[_i].chunk);
    const uint64_t chunk = ranges[_i].chunk;

    for (uint32_t n_parts = 1; n_parts <= MAX_PARTS; n_parts++) {
        Partition partition = make(&spec, n_parts);
        RubatoKey next = spec.first_key;
        uint64_t total = 0, most = 0, least = UINT64_MAX;

        for (uint32_t part = 0; part < n_parts; part++) {
            RubatoKey first;
            uint64_t n;

            partition_range(&partition, part, &first, &n);
            ck_assert_uint_eq(first, next);
            next += n;
            total += n;
            ck_assert_uint_le(total, spec.n_keys);
            most = MAX(most, n / chunk + (n % chunk != 0));
            least = MIN(least, n / chunk + (n % chunk != 0));
            if (n > 0 && total < spec.n_keys)
                require_msg(total % chunk == 0, "a chunk is cut");
            if (n > 0) {
                require_msg(partition_part(&partition, first) == part, "another part");
                require_msg(partition_part(&partition, first + (n - 1)) == part, "another part");
                require_msg(partition_part(&partition, first + n / 2) == part, "another part");
            }
        }
        ck_assert_uint_eq(total, spec.n_keys);
        ck_assert_uint_le(most - least, 1);
        partition_clear(&partition);
    }
}
END_TEST

START_TEST(ranges_over_hash_storage_cover_all_64_bits)
{
    const RubatoTableSpec spec = {
        .name = "t", .storage = "hash", .partition = "range", .chunk_size = 1, .first_key = 77
    };
    Partition partition = make(&spec, 3);
    RubatoKey none;

    ck_assert_uint_eq(partition_part(&partition, 0), 0);
    ck_assert_uint_eq(partition_part(&partition, UINT64_MAX / 2), 1);
    ck_assert_uint_eq(partition_part(&partition, UINT64_MAX), 2);
    ck_assert(partition_holds(&partition, (const RubatoKey[]){ 0, UINT64_MAX }, 2, &none));
    partition_clear(&partition);
}
END_TEST

/* ---- the caller's own bounds ---- */

START_TEST(own_bounds_may_leave_servers_empty)
{
    static const RubatoKey bounds[] = { 10, 10, 13, 20, 20 };
    static const uint64_t sizes[] = { 0, 0, 3, 7, 0, 0 };
    RubatoTableSpec spec = dense(10, 10, 1);
    Partition partition;

    spec.partition = "bounds";
    spec.bounds = bounds;
    spec.n_bounds = G_N_ELEMENTS(bounds);
    partition = make(&spec, 6);
    for (uint32_t part = 0; part < 6; part++) {
        RubatoKey first;
        uint64_t n;

        partition_range(&partition, part, &first, &n);
        ck_assert_uint_eq(n, sizes[part]);
    }
    for (RubatoKey key = 10; key < 20; key++)
        ck_assert_uint_eq(partition_part(&partition, key), key < 13 ? 2 : 3);
    partition_clear(&partition);
}
END_TEST

START_TEST(own_bounds_that_do_not_fit_are_refused)
{
    static const struct {
        RubatoKey bounds[3];
        size_t n;
        const char *text;
    } wrong[] = {
        { { 12 }, 1, "1 bounds divide the keys among 2 parts, but there are 3" },
        { { 12, 14, 16 }, 3, "4 parts" },
        { { 14, 12 }, 2, "bound 1, key 12, is below" },
        { { 9, 12 }, 2, "bound 0, key 9, lies outside" },
        { { 12, 21 }, 2, "bound 1, key 21, lies outside" },
        { { 0 }, 0, "0 bounds" },
    };
    RubatoTableSpec spec = dense(10, 10, 1);

    spec.partition = "bounds";
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        GError *error = NULL;
        Partition untouched = { .n_parts = 1234 };

        spec.bounds = wrong[i].bounds;
        spec.n_bounds = wrong[i].n;
        ck_assert(!partition_init(&untouched, &spec, keys_of(&spec), 3, &error));
        check_error(&error, RUBATO_ERROR_INVALID, "table t", wrong[i].text, NULL);
        ck_assert_uint_eq(untouched.n_parts, 1234);
    }
}
END_TEST

/* ---- hash ---- */

START_TEST(hashed_keys_spread_evenly)
{
    const RubatoTableSpec spec = { .name = "t", .storage = "hash", .partition = "hash" };
    const uint32_t n_parts = (uint32_t)_i;
    Partition partition = make(&spec, n_parts);
    uint32_t counts[MAX_PARTS] = { 0 };

    for (RubatoKey key = 0; key < 10000; key++) {
        const uint32_t part = partition_part(&partition, key);

        QUICK_ASSERT(part < n_parts);
        counts[part]++;
    }
    for (uint32_t part = 0; part < n_parts; part++)
        ck_assert_msg(counts[part] > 8000 / n_parts && counts[part] <= 12000 / n_parts,
                      "part %u of %u has %u of 10000 keys", part, n_parts, counts[part]);
    partition_clear(&partition);
}
END_TEST

/* ---- cutting, against a plain reference ---- */

/* Checks that the slices are those of a plain look at each position: none empty, parts ascending,
 * each position once and with its part, positions of one part in the caller's order. */
static void check_parts(const Partition *partition, const Slicer *slicer, uint32_t n_slices,
                        const RubatoKey *keys, size_t n)
{
    g_autofree bool *seen = g_new0(bool, n + 1);
    size_t n_seen = 0;

    for (uint32_t i = 0; i < n_slices; i++) {
        const Slice *slice = &slicer->slices[i];
        size_t last = 0;

        QUICK_ASSERT(slice->keys.n > 0);
        QUICK_ASSERT(i == 0 || slice->part > slicer->slices[i - 1].part);
        for (size_t k = 0; k < slice->keys.n; k++) {
            const RubatoKeys *some = &slice->keys;
            const size_t position = some->at != NULL ? some->at[k] : slice->row + k;
            const RubatoKey key = some->at != NULL     ? some->keys[some->at[k]]
                                  : some->keys != NULL ? some->keys[k]
                                                       : some->first + k;

            QUICK_ASSERT(position < n);
            QUICK_ASSERT(!seen[position]);
            QUICK_ASSERT(k == 0 || position > last);
            seen[position] = true;
            last = position;
            n_seen++;
            QUICK_ASSERT(key == keys[position]);
            QUICK_ASSERT(partition_part(partition, key) == slice->part);
        }
        if (slice->keys.at != NULL)
            ck_assert_uint_eq(slice->row, 0);
    }
    ck_assert_uint_eq(n_seen, n);
}

typedef enum { SHAPE_SORTED, SHAPE_UNSORTED, SHAPE_SIDE_BY_SIDE, SHAPE_REPEATED, N_SHAPES } Shape;

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey first = *(const RubatoKey *)a, second = *(const RubatoKey *)b;

    return (first > second) - (first < second);
}

static RubatoKey random_key(const Partition *partition, uint64_t *random)
{
    if (partition->dense)
        return partition->first_key + next_random(random) % partition->n_keys;
    return random_below(random, 3) == 0 ? random_below(random, 50) : next_random(random);
}

static size_t make_keys(const Partition *partition, Shape shape, uint64_t *random, RubatoKey *keys,
                        size_t most)
{
    size_t n = random_below(random, (uint32_t)most);
    RubatoKey first;

    if (shape == SHAPE_SIDE_BY_SIDE && partition->dense)
        n = MIN(n, (size_t)MIN(partition->n_keys, (uint64_t)most));
    for (size_t i = 0; i < n; i++)
        keys[i] = shape == SHAPE_REPEATED && i > 0 && random_below(random, 2) == 0
                      ? keys[random_below(random, (uint32_t)i)]
                      : random_key(partition, random);
    if (shape == SHAPE_SORTED)
        qsort(keys, n, sizeof *keys, compare_keys);
    if (shape != SHAPE_SIDE_BY_SIDE || n == 0)
        return n;
    if (partition->dense) {
        first = partition->first_key + next_random(random) % (partition->n_keys - (n - 1));
    } else {
        first = random_key(partition, random);
        first = MIN(first, UINT64_MAX - n);
    }
    for (size_t i = 0; i < n; i++)
        keys[i] = first + i;
    return n;
}

static Partition random_partition(uint64_t *random)
{
    const uint32_t n_parts = 1 + random_below(random, MAX_PARTS);
    const uint32_t kind = random_below(random, 4);
    RubatoTableSpec spec = { .name = "t", .storage = "hash", .chunk_size = 1, .partition = "hash" };
    RubatoKey bounds[MAX_PARTS];

    if (kind == 1)
        spec.partition = "range";
    if (kind >= 2) {
        const size_t i = random_below(random, G_N_ELEMENTS(ranges));

        spec = dense(ranges[i].first, ranges[i].n, ranges[i].chunk);
    }
    if (kind == 3) {
        for (uint32_t i = 0; i + 1 < n_parts; i++)
            bounds[i] = spec.first_key + next_random(random) % spec.n_keys;
        qsort(bounds, n_parts - 1, sizeof *bounds, compare_keys);
        spec.partition = "bounds";
        spec.bounds = bounds;
        spec.n_bounds = n_parts - 1;
    }
    return make(&spec, n_parts);
}

START_TEST(cut_keys_are_those_of_a_plain_look_at_each)
{
    uint64_t random = (uint64_t)_i;
    Partition partition = random_partition(&random);
    RubatoKey keys[300];
    Slicer slicer;

    slicer_init(&slicer, &partition);
    for (int round = 0; round < 40; round++) {
        const Shape shape = (Shape)(round % N_SHAPES);
        const size_t n = make_keys(&partition, shape, &random, keys, G_N_ELEMENTS(keys));
        uint32_t n_slices = slicer_cut(&slicer, &partition, keys, n);

        check_parts(&partition, &slicer, n_slices, keys, n);
        if (shape != SHAPE_SIDE_BY_SIDE)
            continue;
        if (partition.kind == PARTITION_RANGE && partition.n_parts > 1)
            for (uint32_t i = 0; i < n_slices; i++)
                ck_assert_ptr_null(slicer.slices[i].keys.keys); /* it travels as a run */
        n_slices = slicer_cut_run(&slicer, &partition, n == 0 ? 0 : keys[0], n);
        check_parts(&partition, &slicer, n_slices, keys, n);
    }
    slicer_clear(&slicer);
    partition_clear(&partition);
}
END_TEST

START_TEST(one_key_out_of_order_is_found_wherever_it_is)
{
    enum { N = 600 };
    const RubatoTableSpec spec = dense(0, 10 * N, 1);
    Partition partition = make(&spec, 3);
    RubatoKey keys[N];
    Slicer slicer;

    for (size_t i = 0; i < N; i++)
        keys[i] = 10 * i;
    slicer_init(&slicer, &partition);
    for (size_t i = 0; i < N; i++) {
        const RubatoKey right = keys[i];

        keys[i] = i < N / 2 ? 10 * N - 1 : 0; /* of another part than the keys beside it */
        check_parts(&partition, &slicer, slicer_cut(&slicer, &partition, keys, N), keys, N);
        keys[i] = right;
    }
    slicer_clear(&slicer);
    partition_clear(&partition);
}
END_TEST

START_TEST(no_keys_make_no_parts)
{
    const RubatoTableSpec spec = dense(0, 10, 1);
    Partition partition = make(&spec, 3);
    Slicer slicer;

    slicer_init(&slicer, &partition);
    ck_assert_uint_eq(slicer_cut(&slicer, &partition, NULL, 0), 0);
    ck_assert_uint_eq(slicer_cut_run(&slicer, &partition, 999, 0), 0);
    slicer_clear(&slicer);
    partition_clear(&partition);
}
END_TEST

/* ---- what lies in the range ---- */

START_TEST(the_first_key_outside_is_named)
{
    const RubatoTableSpec spec = dense(100, 50, 1);
    Partition partition = make(&spec, 2);
    RubatoKey wrong = 1;

    ck_assert(partition_holds(&partition, (const RubatoKey[]){ 149, 100, 120 }, 3, &wrong));
    ck_assert(partition_holds(&partition, NULL, 0, &wrong));
    ck_assert_uint_eq(wrong, 1);
    ck_assert(!partition_holds(&partition, (const RubatoKey[]){ 120, 150, 99 }, 3, &wrong));
    ck_assert_uint_eq(wrong, 150);
    ck_assert(!partition_holds(&partition, (const RubatoKey[]){ 99, 150 }, 2, &wrong));
    ck_assert_uint_eq(wrong, 99);
    partition_clear(&partition);
}
END_TEST

/* Ranges of every length up to nearly all keys, and the keys around their ends. */
START_TEST(each_range_holds_its_own_keys_and_no_others)
{
    static const uint64_t lengths[] = {
        1, 2, 1000, (UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1, UINT64_MAX
    };
    static const uint64_t firsts[] = { 0, 1, 100, UINT64_C(1) << 63, UINT64_MAX - 2000 };

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++)
        for (size_t j = 0; j < G_N_ELEMENTS(firsts); j++) {
            const uint64_t first = firsts[j], n = lengths[i];
            const Partition partition = { .dense = true, .first_key = first, .n_keys = n };
            const RubatoKey around[] = { first,     first + 1,         first + (n - 1),
                                         first + n, first + n / 2,     first - 1,
                                         0,         UINT64_C(1) << 63, UINT64_MAX };

            if (first > UINT64_MAX - (n - 1))
                continue;
            for (size_t k = 0; k < G_N_ELEMENTS(around); k++) {
                const RubatoKey keys[] = { first, around[k], first };
                const bool is_in = around[k] >= first && around[k] - first < n;
                RubatoKey wrong = 7;

                ck_assert(partition_holds(&partition, keys, 3, &wrong) == is_in);
                ck_assert_uint_eq(wrong, is_in ? 7 : around[k]);
            }
        }
}
END_TEST

START_TEST(a_run_has_to_lie_inside_with_its_whole_length)
{
    static const struct {
        RubatoKey first;
        size_t n;
        bool inside;
        RubatoKey wrong;
    } runs[] = {
        { 100, 50, true, 0 },
        { 149, 1, true, 0 },
        { 500, 0, true, 0 },
        { 100, 51, false, 150 },
        { 149, 2, false, 150 },
        { 150, 1, false, 150 },
        { 99, 3, false, 99 },
        { 0, SIZE_MAX, false, 0 },
        { 100, SIZE_MAX, false, UINT64_MAX },
        { UINT64_MAX, 2, false, UINT64_MAX },
    };
    const RubatoTableSpec spec = dense(100, 50, 1);
    Partition partition = make(&spec, 2);

    for (size_t i = 0; i < G_N_ELEMENTS(runs); i++) {
        RubatoKey wrong = 1;

        ck_assert(partition_holds_run(&partition, runs[i].first, runs[i].n, &wrong) ==
                  runs[i].inside);
        ck_assert_uint_eq(wrong, runs[i].inside ? 1 : runs[i].wrong);
    }
    partition_clear(&partition);
}
END_TEST

START_TEST(a_run_may_end_with_the_last_key)
{
    const RubatoTableSpec spec = { .name = "t",
                                   .first_key = UINT64_MAX - 9,
                                   .n_keys = 10,
                                   .partition = "range",
                                   .chunk_size = 1 };
    Partition partition;
    RubatoKey wrong = 0;

    ck_assert(partition_init(&partition, &spec, PARTITION_KEYS_RANGE, 2, NULL));
    ck_assert(partition_holds_run(&partition, UINT64_MAX - 9, 10, &wrong));
    ck_assert(partition_holds_run(&partition, UINT64_MAX, 1, &wrong));
    ck_assert(!partition_holds_run(&partition, UINT64_MAX, 2, &wrong));
    partition_clear(&partition);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("partition");
    TCase *cases = tcase_create("partition");

    tcase_add_loop_test(cases, even_ranges_cover_each_key_once_and_end_at_chunks, 0,
                        G_N_ELEMENTS(ranges));
    tcase_add_test(cases, ranges_over_hash_storage_cover_all_64_bits);
    tcase_add_test(cases, own_bounds_may_leave_servers_empty);
    tcase_add_test(cases, own_bounds_that_do_not_fit_are_refused);
    tcase_add_loop_test(cases, hashed_keys_spread_evenly, 1, 9);
    tcase_add_loop_test(cases, cut_keys_are_those_of_a_plain_look_at_each, 0, 150);
    tcase_add_test(cases, one_key_out_of_order_is_found_wherever_it_is);
    tcase_add_test(cases, no_keys_make_no_parts);
    tcase_add_test(cases, the_first_key_outside_is_named);
    tcase_add_test(cases, each_range_holds_its_own_keys_and_no_others);
    tcase_add_test(cases, a_run_has_to_lie_inside_with_its_whole_length);
    tcase_set_timeout(cases, 20);
    tcase_add_test(cases, a_run_may_end_with_the_last_key);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
