/* Hash storage with max_bytes: the bound holds, what is evicted, and what is not. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rubato/error.h>

#include "models/shard/shard_private.h"
#include "models/spec.h"
#include "models/storage/eviction/eviction.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { MOST = 4096 }; /* keys of a call */

typedef struct {
    RubatoTableSpec spec;
    RubatoShard *shard;
    RubatoKey *keys;
    float *values;
} Fixture;

static uint64_t least_bytes(const RubatoTableSpec *spec)
{
    const size_t row_bytes = spec_row_bytes(spec) + spec_state_bytes(spec);

    return storage_find_bounded("hash")->least_bytes(spec, row_bytes);
}

static void begin(Fixture *fixture, const RubatoTableSpec *spec, uint64_t max_bytes)
{
    fixture->spec = *spec;
    fixture->spec.max_bytes = max_bytes;
    fixture->shard = shard_make(&fixture->spec, "hash", 0);
    fixture->keys = g_new(RubatoKey, MOST);
    fixture->values = g_new(float, (size_t)MOST *spec_width(spec));
}

static void end(Fixture *fixture)
{
    shard_free(fixture->shard);
    g_free(fixture->keys);
    g_free(fixture->values);
}

static uint64_t size_of(const RubatoShard *shard)
{
    uint64_t n_rows, n_bytes;

    shard_size(shard, &n_rows, &n_bytes);
    return n_bytes;
}

/* What a row of a key has in all its values; never 0. */
static float value_of(RubatoKey key)
{
    return (float)(key % 10007 + 1);
}

/* Sets the rows of n keys, first × step and so on. */
static void set_run(const Fixture *fixture, uint64_t first, uint64_t step, size_t n)
{
    const uint32_t width = spec_width(&fixture->spec);

    for (size_t i = 0; i < n; i++) {
        fixture->keys[i] = (first + i) * step;
        for (uint32_t j = 0; j < width; j++)
            fixture->values[i * width + j] = value_of(fixture->keys[i]);
    }
    shard_set(fixture->shard, &(RubatoKeys){ .keys = fixture->keys, .n = n }, fixture->values);
    ck_assert(!*fixture->shard->alarm);
}

/* How many of the rows are there. One that is there has its value; one that is not has 0. */
static size_t count_there(const Fixture *fixture, uint64_t first, uint64_t step, size_t n)
{
    const uint32_t width = spec_width(&fixture->spec);
    size_t n_there = 0, n_wrong = 0;

    for (size_t done = 0; done < n; done += MOST) {
        const size_t some = MIN(n - done, MOST);

        for (size_t i = 0; i < some; i++)
            fixture->keys[i] = (first + done + i) * step;
        shard_get(fixture->shard, &(RubatoKeys){ .keys = fixture->keys, .n = some },
                  fixture->values);
        for (size_t i = 0; i < some; i++) {
            const float *row = fixture->values + i * width;
            const bool is_there = row[0] > 0;

            n_there += is_there;
            for (uint32_t j = 0; j < width; j++)
                n_wrong += (int)row[j] != (is_there ? (int)value_of(fixture->keys[i]) : 0);
        }
    }
    require_msg(n_wrong == 0, "%zu values are wrong", n_wrong);
    return n_there;
}

/* Rows in the cells and in slabs, few and many in a call; the least bound, and a larger one. */
static const struct {
    uint32_t width;
    unsigned max_mib; /* 0: the least */
    const char *evict;
} shapes[] = {
    { 1, 3, "lru" },  { 2, 0, "lfu" },     { 3, 0, "lru" },
    { 40, 6, "lfu" }, { 5000, 20, "lru" }, { 5000, 0, "lfu" },
};

START_TEST(the_bound_holds_and_no_insert_fails)
{
    const RubatoTableSpec spec = { .dtype = RUBATO_F32,
                                   .width = shapes[_i].width,
                                   .evict = shapes[_i].evict };
    const uint64_t max_bytes =
        shapes[_i].max_mib == 0 ? least_bytes(&spec) : (uint64_t)shapes[_i].max_mib << 20;
    const size_t n = spec.width > 1000 ? 3 * 1000 : 3 * max_bytes / 2 / (16 + 4 * spec.width);
    const size_t most = spec.width > 1000 ? RUBATO_STORAGE_BLOCK : MOST;
    size_t largest = 0, some;
    Fixture fixture;

    begin(&fixture, &spec, max_bytes);
    for (size_t first = 0, turn = 0; first < n; first += some, turn++) {
        some = turn % 3 == 0 ? 1 : turn % 3 == 1 ? MIN(most, 100) : most;
        set_run(&fixture, first, 977, some);
        const uint64_t n_bytes = size_of(fixture.shard);

        largest = MAX(largest, n_bytes);
        ck_assert_uint_le(n_bytes, max_bytes);
        /* none of the last block was evicted for another of it */
        const size_t last = MIN(some, RUBATO_STORAGE_BLOCK);

        ck_assert_uint_eq(count_there(&fixture, first + some - last, 977, last), last);
    }
    ck_assert_uint_gt(largest, max_bytes / 2);

    const StorageUses uses = shard_uses(fixture.shard);
    const uint64_t n_rows = shard_n_rows(fixture.shard);

    ck_assert_uint_gt(uses.n_evicted, n / 8);
    ck_assert_uint_ge(uses.n_evicted + n_rows, n);
    ck_assert_uint_eq(count_there(&fixture, 0, 977, n + MOST), n_rows);
    end(&fixture);
}
END_TEST

/* The bytes of this process that are in memory. */
static uint64_t resident_bytes(void)
{
    g_autofree char *text = NULL;
    uint64_t n_pages;

    ck_assert(g_file_get_contents("/proc/self/statm", &text, NULL, NULL));
    ck_assert_int_eq(sscanf(text, "%*u %" G_GUINT64_FORMAT, &n_pages), 1);
    return n_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Several times the rows that 128 MiB have room for. Only with RUBATO_TEST_ROWS, for it takes
 * seconds; and sanitizers have memory of their own. */
START_TEST(the_bound_holds_at_real_size)
{
    const char *rows = g_getenv("RUBATO_TEST_ROWS");
    const uint64_t n = rows == NULL ? 0 : g_ascii_strtoull(rows, NULL, 10);
    const uint64_t max_bytes = UINT64_C(128) << 20, most_else = UINT64_C(4) << 20;
    const RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    uint64_t largest = 0, before;
    Fixture fixture;

    if (n == 0)
        return;
    begin(&fixture, &spec, max_bytes);
    set_run(&fixture, 0, 977, MOST);
    before = resident_bytes();
    for (uint64_t first = MOST; first < n; first += MOST) {
        set_run(&fixture, first, 977, MOST);
        const uint64_t n_bytes = size_of(fixture.shard);

        largest = MAX(largest, n_bytes);
        ck_assert_uint_le(n_bytes, max_bytes);
        ck_assert_uint_eq(count_there(&fixture, first + MOST - 1, 977, 1), 1);
        if (first / MOST % 100 == 0)
            ck_assert_uint_le(resident_bytes() - before, max_bytes + most_else);
    }
    printf("%" G_GUINT64_FORMAT " rows: %.1f MiB at most, %" G_GUINT64_FORMAT " evicted\n", n,
           (double)largest / 0x1p20, shard_uses(fixture.shard).n_evicted);
    ck_assert_uint_gt(largest, max_bytes / 100 * 95);
    ck_assert_uint_ge(shard_uses(fixture.shard).n_evicted + shard_n_rows(fixture.shard), n);
    end(&fixture);
}
END_TEST

START_TEST(what_is_listed_is_there)
{
    const RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = _i == 0 ? 1 : 20 };
    Fixture fixture;

    begin(&fixture, &spec, least_bytes(&spec));
    for (uint64_t first = 0; first < 200000; first += MOST)
        set_run(&fixture, first, 1, MOST);
    ck_assert_uint_gt(shard_uses(fixture.shard).n_evicted, 1000);

    const uint64_t n = shard_n_rows(fixture.shard);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autoptr(GHashTable) seen = g_hash_table_new(g_int64_hash, g_int64_equal);

    shard_list(fixture.shard, 0, n, keys);
    for (uint64_t i = 0; i < n; i++) {
        ck_assert(g_hash_table_add(seen, &keys[i]));
        if (i % 97 == 0)
            ck_assert_uint_eq(count_there(&fixture, keys[i], 1, 1), 1);
    }
    end(&fixture);
}
END_TEST

START_TEST(below_the_bound_nothing_is_evicted)
{
    const RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    Fixture fixture;

    begin(&fixture, &spec, 4 << 20);
    for (uint64_t first = 0; size_of(fixture.shard) < 3 << 20; first += MOST) {
        set_run(&fixture, first, 3, MOST);
        ck_assert_uint_eq(shard_uses(fixture.shard).n_evicted, 0);
    }
    ck_assert_uint_ge(shard_n_rows(fixture.shard), (3 << 20) / 40);
    end(&fixture);
}
END_TEST

enum { N_HOT = 10000, N_COLD = 350000, N_TURNS = 5 };

/* Hot rows are written in each turn, cold ones once. */
static size_t count_hot_ones_left(const char *evict, bool only_first_turns)
{
    const RubatoTableSpec spec = { .dtype = RUBATO_F32, .evict = evict };
    Fixture fixture;
    size_t n_left;

    begin(&fixture, &spec, 2u << 20);
    for (uint64_t turn = 0; turn < N_TURNS; turn++) {
        for (uint64_t first = 0; first < N_HOT && (!only_first_turns || turn < 3); first += 2000)
            set_run(&fixture, first, 7, 2000);
        for (uint64_t i = 0; i < N_COLD / N_TURNS; i += 2000)
            set_run(&fixture, N_HOT + turn * N_COLD / N_TURNS + i, 7, 2000);
    }
    n_left = count_there(&fixture, 0, 7, N_HOT);
    end(&fixture);
    return n_left;
}

/* Each time, about half of the rows that there is room for are written between two turns. */
START_TEST(rows_that_are_used_stay)
{
    static const char *const orders[] = { "lru", "lfu" };
    const size_t n_left = count_hot_ones_left(orders[_i], /* only_first_turns= */ false);

    ck_assert_msg(n_left > N_HOT * 8 / 10, "%zu", n_left);
}
END_TEST

/* More rows are written once than there is room for; "lru" takes them for the better ones. */
START_TEST(what_was_used_often_outlives_a_scan_under_lfu)
{
    const size_t n_by_count = count_hot_ones_left("lfu", /* only_first_turns= */ true);
    const size_t n_by_time = count_hot_ones_left("lru", /* only_first_turns= */ true);

    ck_assert_msg(n_by_count > N_HOT * 9 / 10, "%zu", n_by_count);
    ck_assert_msg(n_by_time < N_HOT / 10, "%zu", n_by_time);
}
END_TEST

START_TEST(reads_decide_nothing)
{
    const RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    Fixture fixture, other;

    begin(&fixture, &spec, least_bytes(&spec));
    begin(&other, &spec, least_bytes(&spec));
    for (uint64_t first = 0; first < 200000; first += 1000) {
        set_run(&fixture, first, 5, 1000);
        set_run(&other, first, 5, 1000);
        (void)count_there(&other, 0, 5, 1000);
    }

    const uint64_t n = shard_n_rows(fixture.shard);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree RubatoKey *others = g_new(RubatoKey, n);

    ck_assert_uint_eq(shard_n_rows(other.shard), n);
    shard_list(fixture.shard, 0, n, keys);
    shard_list(other.shard, 0, n, others);
    ck_assert_mem_eq(keys, others, n * sizeof *keys);
    end(&fixture);
    end(&other);
}
END_TEST

START_TEST(key_0_stays)
{
    const RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    Fixture fixture;

    begin(&fixture, &spec, least_bytes(&spec));
    set_run(&fixture, 1, 1, MOST);
    set_run(&fixture, 0, 1, 1);
    for (uint64_t first = 1; first < 200000; first += MOST)
        set_run(&fixture, first, 1, MOST);
    ck_assert_uint_eq(count_there(&fixture, 0, 1, 1), 1);
    end(&fixture);
}
END_TEST

/* Rows go to another shard with their marks: there, the old ones are evicted first, too. */
START_TEST(marks_keep_the_order_in_another_shard)
{
    enum { N = 60000 };
    const RubatoTableSpec spec = { .dtype = RUBATO_F32 };
    g_autofree uint32_t *marks = g_new(uint32_t, MOST);
    Fixture from, to;
    StorageUses uses;

    begin(&from, &spec, least_bytes(&spec));
    begin(&to, &spec, least_bytes(&spec));
    for (uint64_t first = 1; first <= N; first += 2000)
        set_run(&from, first, 1, 2000);
    for (uint64_t turn = 0; turn < 3; turn++) /* the first half is used last */
        for (uint64_t first = 1; first <= N / 2; first += 2000)
            set_run(&from, first, 1, 2000);
    uses = shard_uses(from.shard);
    shard_set_uses(to.shard, &uses);
    for (uint64_t first = 1; first <= N; first += 2000) {
        const RubatoKeys run = { .first = first, .n = 2000 };

        set_run(&to, first, 1, 2000);
        shard_get_marks(from.shard, &run, marks);
        shard_set_marks(to.shard, &run, marks);
    }
    shard_set_uses(to.shard, &uses);
    ck_assert_uint_eq(shard_uses(to.shard).n_evicted, 0);
    for (uint64_t first = 1000000; shard_uses(to.shard).n_evicted < N / 8; first += 2000)
        set_run(&to, first, 1, 2000);

    const size_t n_late = count_there(&to, 1, 1, N / 2),
                 n_early = count_there(&to, N / 2, 1, N / 2);

    ck_assert_msg(n_late > N / 2 * 95 / 100, "%zu", n_late);
    ck_assert_msg(n_early < N / 2 * 85 / 100, "%zu", n_early);
    end(&from);
    end(&to);
}
END_TEST

/* How many of these rows, set in that order, a table of that bound has in the end. */
static size_t count_with_room(const Fixture *like, const RubatoKey *keys, size_t n, size_t stride)
{
    const uint32_t width = spec_width(&like->spec);
    Fixture fixture;

    begin(&fixture, &like->spec, like->spec.max_bytes);
    memset(fixture.values, 0, (size_t)RUBATO_STORAGE_BLOCK * width * sizeof *fixture.values);
    for (size_t done = 0, some; done < n; done += some) {
        some = MIN(n - done, RUBATO_STORAGE_BLOCK);
        for (size_t i = 0; i < some; i++)
            fixture.keys[i] = keys[(done + i) * stride % n];
        shard_set(fixture.shard, &(RubatoKeys){ .keys = fixture.keys, .n = some }, fixture.values);
    }
    const size_t n_rows = shard_n_rows(fixture.shard);
    end(&fixture);
    return n_rows;
}

/* As a part that moves: all rows of a table at its bound come in the order of a list to one whose
 * keys are hashed alike. As many find room as in any order. */
START_TEST(rows_that_come_in_the_order_of_a_list_find_room)
{
    enum { STRIDE = 7919 }; /* a prime */
    const RubatoTableSpec spec = { .dtype = RUBATO_F32, .width = shapes[_i].width };
    const uint64_t max_bytes =
        shapes[_i].max_mib == 0 ? least_bytes(&spec) : (uint64_t)shapes[_i].max_mib << 20;
    const size_t n = spec.width > 1000 ? 4 * 1000 : 4 * max_bytes / (16 + 4 * spec.width);
    const size_t most = spec.width > 1000 ? RUBATO_STORAGE_BLOCK : MOST;
    Fixture from;

    begin(&from, &spec, max_bytes);
    for (size_t first = 0; first < n; first += most)
        set_run(&from, first, 977, most);
    const size_t n_rows = shard_n_rows(from.shard);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n_rows);

    shard_list(from.shard, 0, n_rows, keys);
    ck_assert_uint_ne(n_rows % STRIDE, 0);

    const size_t n_listed = count_with_room(&from, keys, n_rows, 1);
    const size_t n_mixed = count_with_room(&from, keys, n_rows, STRIDE);

    printf("%zu rows; %zu in the order of the list, %zu mixed\n", n_rows, n_listed, n_mixed);
    ck_assert_uint_ge(n_listed, n_mixed / 100 * 97);
    ck_assert_uint_ge(n_listed, n_rows / 100 * 85);
    end(&from);
}
END_TEST

/* ---- specs ---- */

static const struct {
    RubatoTableSpec spec;
    const char *text; /* NULL: it is accepted */
} specs[] = {
    { { .name = "t", .max_bytes = 64 << 20 }, NULL },
    { { .name = "t", .max_bytes = 64 << 20, .evict = "lfu" }, NULL },
    { { .name = "t", .max_bytes = 64 << 20, .evict = "oldest" },
      "there is no order of eviction \"oldest\"; known are lru, lfu" },
    { { .name = "t", .evict = "lru" }, "evict has no effect here; it needs max_bytes" },
    { { .name = "t", .n_keys = 10, .max_bytes = 64 << 20 },
      "max_bytes has no effect here; it needs the storage \"hash\"" },
    { { .name = "t", .shape = RUBATO_SHAPE_RAGGED, .max_bytes = 64 << 20 },
      "max_bytes has no effect here; it needs rows of one length" },
    { { .name = "t", .max_bytes = 1000 }, "with rows of 4 bytes it needs 2097152 at least" },
};

START_TEST(specs_without_effect_are_refused)
{
    g_autoptr(GError) error = NULL;

    if (specs[_i].text == NULL) {
        ck_assert_msg(spec_check(&specs[_i].spec, &error), "%s", error ? error->message : "");
        return;
    }
    ck_assert(!spec_check(&specs[_i].spec, &error));
    ck_assert_msg(strstr(error->message, specs[_i].text) != NULL, "%s", error->message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bounded storage");
    TCase *tcase = tcase_create("bound");

    tcase_set_timeout(tcase, g_getenv("RUBATO_TEST_ROWS") != NULL ? 200 : 60);
    tcase_add_loop_test(tcase, the_bound_holds_and_no_insert_fails, 0, G_N_ELEMENTS(shapes));
    tcase_add_test(tcase, the_bound_holds_at_real_size);
    tcase_add_loop_test(tcase, what_is_listed_is_there, 0, 2);
    tcase_add_test(tcase, below_the_bound_nothing_is_evicted);
    tcase_add_loop_test(tcase, rows_that_are_used_stay, 0, 2);
    tcase_add_test(tcase, what_was_used_often_outlives_a_scan_under_lfu);
    tcase_add_test(tcase, reads_decide_nothing);
    tcase_add_test(tcase, key_0_stays);
    tcase_add_test(tcase, marks_keep_the_order_in_another_shard);
    tcase_add_loop_test(tcase, rows_that_come_in_the_order_of_a_list_find_room, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, specs_without_effect_are_refused, 0, G_N_ELEMENTS(specs));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
