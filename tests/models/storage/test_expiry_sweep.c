/* Sweeps of tables whose rows expire: they remove what has expired, give its memory back, and
 * change nothing that requests see. */
#include <stdio.h>
#include <unistd.h>

#include "models/spec.h"
#include "tests/support/engine/expiring_rows.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

/* ---- what they remove ---- */

/* What a row should have; absent ones have expired or were never written. */
typedef struct {
    double value;
    uint64_t written; /* when */
    bool exists;
} Expected;

enum { N_KEYS = 3000, N_STEPS = 1500, AFTER = 10 };

static bool lives(const Expected *row, uint64_t now)
{
    return row->exists && now - row->written < AFTER;
}

/* Adds to random keys, of which some come twice. */
static void write_some(RubatoShard *shard, Expected *rows, uint64_t now, GRand *random)
{
    const RubatoTableSpec *spec = shard_spec(shard);
    const size_t n = (size_t)g_rand_int_range(random, 1, 60);
    const bool sets = g_rand_boolean(random);
    g_autofree unsigned char *deltas = g_malloc(n * spec_row_bytes(spec));
    RubatoKey keys[60];

    for (size_t i = 0; i < n; i++) {
        const int number = g_rand_int_range(random, 1, 9);
        Expected *row;

        keys[i] = (RubatoKey)g_rand_int_range(random, 0, N_KEYS);
        row = &rows[keys[i]];
        fill_row(spec, deltas + i * spec_row_bytes(spec), number);
        row->value = sets ? number : (lives(row, now) ? row->value : spec->init_value) + number;
        row->exists = true;
        row->written = now;
    }
    if (sets)
        shard_set(shard, &(RubatoKeys){ .keys = keys, .n = n }, deltas);
    else
        shard_add(shard, &(RubatoKeys){ .keys = keys, .n = n }, deltas);
}

static void compare(RubatoShard *shard, const Expected *rows, uint64_t now)
{
    const RubatoTableSpec *spec = shard_spec(shard);
    g_autofree unsigned char *values = g_malloc(N_KEYS * spec_row_bytes(spec));

    shard_get(shard, &(RubatoKeys){ .n = N_KEYS }, values);
    for (size_t key = 0; key < N_KEYS; key++) {
        const double is = read_row(spec, values + key * spec_row_bytes(spec));
        const double should = lives(&rows[key], now) ? rows[key].value : spec->init_value;

        require_msg(is == should, "key %zu has %g, not %g", key, is, should);
    }
}

/* Adds, Sets, time and pieces of sweeps in any order: no request sees whether a sweep has been. */
START_TEST(sweeps_change_nothing_that_requests_see)
{
    const size_t shape = (size_t)_i % N_EXPIRING_SHAPES;
    RubatoTableSpec spec = expiring_by_clocks(expiring_shapes[shape], AFTER);
    g_autoptr(GRand) random = g_rand_new_with_seed((guint32)_i + 1);
    g_autofree Expected *rows = g_new0(Expected, N_KEYS);
    RubatoShard *shard;
    uint64_t now = 0, n_living = 0;

    if (spec.update != NULL) /* its values follow from the rule */
        return;
    shard = shard_make(&spec, "hash", 0);
    for (int step = 0; step < N_STEPS; step++) {
        switch (g_rand_int_range(random, 0, 8)) {
        case 0:
            shard_pass_time(shard, 1);
            now++;
            break;
        case 1:
        case 2:
            (void)sweep_some(shard);
            break;
        default:
            write_some(shard, rows, now, random);
            break;
        }
        if (step % 300 == 0)
            compare(shard, rows, now);
    }
    compare(shard, rows, now);
    shard_pass_time(shard, 1); /* a sweep that begins now sees all */
    now++;
    sweep_all(shard);
    shard_pass_time(shard, 1);
    now++;
    sweep_all(shard);
    compare(shard, rows, now);
    for (size_t key = 0; key < N_KEYS; key++)
        n_living += lives(&rows[key], now);
    ck_assert_uint_eq(shard_n_rows(shard), n_living);
    ck_assert_uint_gt(n_expired(shard), N_KEYS / 10);
    ck_assert_uint_eq(shard_uses(shard).n_evicted, 0);
    shard_free(shard);
}
END_TEST

/* Many segments, which split between the pieces of a sweep. */
START_TEST(a_sweep_finds_what_has_expired_in_a_storage_that_grows)
{
    enum { N = 60000, N_OLD = 30000 };
    RubatoTableSpec spec = expiring_by_clocks(expiring_shapes[_i], 1000);
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    RubatoKey key = 0;

    for (; key < N_OLD; key++)
        set_number(shard, key, 1);
    shard_pass_time(shard, 600);
    for (; key < N / 2 + N_OLD / 2; key++)
        set_number(shard, key, 1);
    shard_pass_time(shard, 400); /* the first ones expire */
    while (sweep_some(shard))
        for (int i = 0; i < 20 && key < N; i++)
            set_number(shard, key++, 1);
    shard_pass_time(shard, 125);
    sweep_all(shard);
    ck_assert_uint_eq(n_expired(shard), N_OLD);
    ck_assert_uint_eq(shard_n_rows(shard), key - N_OLD);
    for (RubatoKey living = N_OLD; living < key; living++)
        ck_assert(get_number(shard, living) == 1);
    shard_free(shard);
}
END_TEST

/* ---- memory ---- */

/* So many rows that segments and slabs come from huge pages, too. They expire, but for a few, and
 * others come: the memory grows, shrinks, and grows as before. */
static const struct {
    uint32_t width;
    RubatoKey n;
    uint64_t max_bytes;
} tables[] = {
    { 1, 600000, 0 },        { 40, 120000, 0 }, { 1, 300000, 12 << 20 },
    { 40, 60000, 20 << 20 }, { 200000, 60, 0 }, /* a slab has one row */
};

/* Sets the rows first, first + 1 and so on. */
static void set_run(RubatoShard *shard, RubatoKey first, RubatoKey n)
{
    const uint32_t width = spec_width(shard_spec(shard));
    const RubatoKey most = MAX(1, 40000 / width);
    g_autofree float *values = g_new(float, (size_t)most *width);

    for (RubatoKey begin = 0; begin < n; begin += most) {
        const RubatoKey some = MIN(n - begin, most);

        for (size_t i = 0; i < some * width; i++)
            values[i] = (float)(first + begin + i / width);
        shard_set(shard, &(RubatoKeys){ .first = first + begin, .n = (size_t)some }, values);
    }
}

static void check_run(RubatoShard *shard, RubatoKey first, RubatoKey n)
{
    const uint32_t width = spec_width(shard_spec(shard));
    g_autofree float *row = g_new(float, width);

    for (RubatoKey key = first; key < first + n; key++) {
        shard_get(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
        require_msg(row[0] == (float)key && row[width - 1] == (float)key, "key %u has %g",
                    (unsigned)key, (double)row[0]);
    }
}

static uint64_t size_of(const RubatoShard *shard)
{
    uint64_t n_rows, n_bytes;

    shard_size(shard, &n_rows, &n_bytes);
    return n_bytes;
}

START_TEST(memory_comes_back_when_rows_expire)
{
    enum { N_KEPT = 20 };
    const RubatoKey n = tables[_i].n, kept = UINT64_C(1) << 40;
    RubatoTableSpec spec = expiring_by_clocks((RubatoTableSpec){ .width = tables[_i].width }, 2);
    RubatoShard *shard;
    const uint64_t kept_bytes =
        N_KEPT * MAX(UINT64_C(128) << 10, tables[_i].width * sizeof(float)); /* slabs */
    uint64_t least, most = 0;

    spec.max_bytes = tables[_i].max_bytes;
    shard = shard_make(&spec, "hash", 0);
    for (int turn = 0; turn < 2; turn++) {
        const RubatoKey first = 1 + (RubatoKey)turn * n;

        set_run(shard, first, n);
        check_run(shard, first + n - n / 50, n / 50);
        most = turn == 0 ? size_of(shard) : most;
        require_msg(size_of(shard) <= most + most / 8 + kept_bytes, "%u bytes, and first %u",
                    (unsigned)size_of(shard), (unsigned)most);
        shard_pass_time(shard, 1);
        set_run(shard, kept, N_KEPT);
        shard_pass_time(shard, 1);
        sweep_all(shard);
        ck_assert_uint_eq(shard_n_rows(shard), N_KEPT);
        check_run(shard, kept, N_KEPT);
        least = size_of(shard);
        require_msg(least < most / 2, "%u bytes stay of %u", (unsigned)least, (unsigned)most);
    }
    /* the pool's next two pages for segments and for slabs, its first segments, the kept rows */
    require_msg(least < (UINT64_C(13) << 20) + kept_bytes, "%u bytes", (unsigned)least);
    shard_free(shard);
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

/* Only with RUBATO_TEST_ROWS, for it takes seconds; and sanitizers have memory of their own. */
START_TEST(the_system_has_memory_back_when_rows_expire)
{
    const char *rows = g_getenv("RUBATO_TEST_ROWS");
    const RubatoKey n = rows == NULL ? 0 : g_ascii_strtoull(rows, NULL, 10);
    RubatoTableSpec spec = expiring_by_clocks((RubatoTableSpec){ .width = 1 }, 1);
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const uint64_t before = resident_bytes();

    for (int turn = 0; turn < 2 && n > 0; turn++) {
        uint64_t full, empty;

        set_run(shard, 1, n);
        full = resident_bytes() - before;
        shard_pass_time(shard, 1);
        sweep_all(shard);
        empty = resident_bytes() - before;
        printf("%" G_GUINT64_FORMAT " rows: %.1f MB resident, %.1f once they have expired\n", n,
               (double)full / 1e6, (double)empty / 1e6);
        ck_assert_uint_gt(full, n * 12);
        ck_assert_uint_lt(empty, UINT64_C(16) << 20);
    }
    shard_free(shard);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("expiry_sweep");
    TCase *tcase = tcase_create("sweeps");

    tcase_set_timeout(tcase, g_getenv("RUBATO_TEST_ROWS") != NULL ? 100 : 30);
    tcase_add_loop_test(tcase, sweeps_change_nothing_that_requests_see, 0, 3 * N_EXPIRING_SHAPES);
    tcase_add_loop_test(tcase, a_sweep_finds_what_has_expired_in_a_storage_that_grows, 0, 2);
    tcase_add_loop_test(tcase, memory_comes_back_when_rows_expire, 0, G_N_ELEMENTS(tables));
    tcase_add_test(tcase, the_system_has_memory_back_when_rows_expire);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
