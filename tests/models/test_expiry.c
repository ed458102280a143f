/* Tables whose rows expire: what requests see, and what sweeps remove. */
#include <rubato/error.h>
#include <rubato/mix.h>
#include <rubato/plugin.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "models/handlers/handler.h"
#include "models/shard/image.h"
#include "models/shard/shard.h"
#include "models/spec.h"
#include "tests/support/engine/model_rig.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { MOST = 1000 };

/* Rows in cells and in slabs; of 8 bytes, whose stamps have padding; with state; with a bound that
 * leaves room for all. */
static const RubatoTableSpec shapes[] = {
    { .width = 1 },
    { .width = 40 },
    { .width = 1, .dtype = RUBATO_F64 },
    { .width = 3, .dtype = RUBATO_I64 },
    { .width = 2, .update = "adagrad", .rule = { .learning_rate = 1 } },
    { .width = 1, .max_bytes = 16 << 20, .evict = "lfu" },
    { .width = 40, .max_bytes = 16 << 20 },
};

static RubatoTableSpec by_clocks(RubatoTableSpec spec, uint32_t after)
{
    spec.expire = "clocks";
    spec.expire_after = after;
    if (spec.update == NULL) {
        spec.init = "constant";
        spec.init_value = 100;
    }
    return spec;
}

static size_t row_bytes(const RubatoTableSpec *spec)
{
    return spec_row_bytes(spec);
}

/* Writes the same number into all values of a row. */
static void fill(const RubatoTableSpec *spec, void *row, int number)
{
    for (uint32_t i = 0; i < spec_width(spec); i++)
        switch (spec->dtype) {
        case RUBATO_F32:
            ((float *)row)[i] = (float)number;
            break;
        case RUBATO_F64:
            ((double *)row)[i] = number;
            break;
        default:
            ((int64_t *)row)[i] = number;
            break;
        }
}

/* The number that all values of a row are. */
static double read_all(const RubatoTableSpec *spec, const void *row)
{
    double first = 0;

    for (uint32_t i = 0; i < spec_width(spec); i++) {
        const double value = spec->dtype == RUBATO_F32   ? (double)((const float *)row)[i]
                             : spec->dtype == RUBATO_F64 ? ((const double *)row)[i]
                                                         : (double)((const int64_t *)row)[i];

        if (i == 0)
            first = value;
        require_msg(value == first, "value %u of a row is %g, and the first %g", i, value, first);
    }
    return first;
}

static double get(RubatoShard *shard, RubatoKey key)
{
    g_autofree void *row = g_malloc(row_bytes(shard_spec(shard)));

    shard_get(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
    return read_all(shard_spec(shard), row);
}

static void add(RubatoShard *shard, RubatoKey key, int delta)
{
    g_autofree void *row = g_malloc(row_bytes(shard_spec(shard)));

    fill(shard_spec(shard), row, delta);
    shard_add(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
}

static void set(RubatoShard *shard, RubatoKey key, int number)
{
    g_autofree void *row = g_malloc(row_bytes(shard_spec(shard)));

    fill(shard_spec(shard), row, number);
    shard_set(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
}

static bool sweep_some(RubatoShard *shard)
{
    uint32_t n_looks = 512;

    return shard_sweep(shard, &n_looks);
}

static void sweep_all(RubatoShard *shard)
{
    while (sweep_some(shard))
        continue;
}

static uint64_t n_expired(const RubatoShard *shard)
{
    return shard_uses(shard).n_expired;
}

/* ---- what requests see ---- */

START_TEST(a_row_expires_once_nothing_has_been_written_for_long)
{
    RubatoTableSpec spec = by_clocks(shapes[_i], 3);
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const double fresh = get(shard, 5);

    for (RubatoKey key = 0; key < 2; key++) { /* key 0 is stored apart */
        set(shard, key, 7);
        shard_pass_time(shard, 2);
        ck_assert_double_eq(get(shard, key), 7);
        set(shard, key, 8); /* begins its age anew */
        shard_pass_time(shard, 2);
        ck_assert_double_eq(get(shard, key), 8);
        shard_pass_time(shard, 1);
        ck_assert_double_eq(get(shard, key), fresh);
        ck_assert_uint_eq(shard_n_rows(shard), 1); /* no sweep has come */
        add(shard, key, 1);
        ck_assert_double_ne(get(shard, key), fresh);
        ck_assert_double_ne(get(shard, key), 8);
        ck_assert_uint_eq(shard_n_rows(shard), 1);
        ck_assert_uint_eq(n_expired(shard), 2 * key + 1);
        shard_pass_time(shard, 3);
        sweep_all(shard);
        ck_assert_uint_eq(shard_n_rows(shard), 0);
        ck_assert_uint_eq(n_expired(shard), 2 * key + 2);
        ck_assert_double_eq(get(shard, key), fresh);
    }
    shard_free(shard);
}
END_TEST

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
    g_autofree unsigned char *deltas = g_malloc(n * row_bytes(spec));
    RubatoKey keys[60];

    for (size_t i = 0; i < n; i++) {
        const int number = g_rand_int_range(random, 1, 9);
        Expected *row;

        keys[i] = (RubatoKey)g_rand_int_range(random, 0, N_KEYS);
        row = &rows[keys[i]];
        fill(spec, deltas + i * row_bytes(spec), number);
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
    g_autofree unsigned char *values = g_malloc(N_KEYS * row_bytes(spec));

    shard_get(shard, &(RubatoKeys){ .n = N_KEYS }, values);
    for (size_t key = 0; key < N_KEYS; key++) {
        const double is = read_all(spec, values + key * row_bytes(spec));
        const double should = lives(&rows[key], now) ? rows[key].value : spec->init_value;

        require_msg(is == should, "key %zu has %g, not %g", key, is, should);
    }
}

/* Adds, Sets, time and pieces of sweeps in any order: no request sees whether a sweep has been. */
START_TEST(sweeps_change_nothing_that_requests_see)
{
    const size_t shape = (size_t)_i % G_N_ELEMENTS(shapes);
    RubatoTableSpec spec = by_clocks(shapes[shape], AFTER);
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
    RubatoTableSpec spec = by_clocks(shapes[_i], 1000);
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    RubatoKey key = 0;

    for (; key < N_OLD; key++)
        set(shard, key, 1);
    shard_pass_time(shard, 600);
    for (; key < N / 2 + N_OLD / 2; key++)
        set(shard, key, 1);
    shard_pass_time(shard, 400); /* the first ones expire */
    while (sweep_some(shard))
        for (int i = 0; i < 20 && key < N; i++)
            set(shard, key++, 1);
    shard_pass_time(shard, 125);
    sweep_all(shard);
    ck_assert_uint_eq(n_expired(shard), N_OLD);
    ck_assert_uint_eq(shard_n_rows(shard), key - N_OLD);
    for (RubatoKey living = N_OLD; living < key; living++)
        ck_assert(get(shard, living) == 1);
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
    RubatoTableSpec spec = by_clocks((RubatoTableSpec){ .width = tables[_i].width }, 2);
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
    RubatoTableSpec spec = by_clocks((RubatoTableSpec){ .width = 1 }, 1);
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

/* ---- admission, handlers, state ---- */

START_TEST(a_key_whose_row_has_expired_is_admitted_anew)
{
    RubatoTableSpec spec = by_clocks((RubatoTableSpec){ .width = 1 }, 2);
    RubatoShard *shard;
    const RubatoKey listed = 3;

    spec.admit = "list";
    spec.admit_keys = &listed;
    spec.n_admit_keys = 1;
    shard = shard_make(&spec, "hash", 0);
    set(shard, 4, 1); /* a Set makes rows in any case */
    add(shard, 3, 1);
    shard_pass_time(shard, 2);
    add(shard, 4, 1);
    add(shard, 3, 1);
    ck_assert_double_eq(get(shard, 4), 100);
    ck_assert_double_eq(get(shard, 3), 101);
    ck_assert_uint_eq(shard_admissions(shard).n_refused, 1);
    ck_assert_uint_eq(shard_admissions(shard).n_admitted, 2);
    ck_assert_uint_eq(n_expired(shard), 2);
    shard_free(shard);
}
END_TEST

/* How many rows a handler of all rows sees. */
static uint64_t count_all(RubatoShard *shard)
{
    HandlerCall call = { .ops = handler_find("count"), .arguments = "", .is_whole = true };
    uint64_t n;

    handler_run(&call, shard, &(RubatoKeys){ .n = 0 });
    require_msg(call.answer.n_bytes >= sizeof n, "no answer");
    memcpy(&n, call.answer.bytes, sizeof n);
    handler_answer_clear(&call.answer);
    return n;
}

static void scale_all(RubatoShard *shard, double factor)
{
    HandlerCall call = { .ops = handler_find("scale"),
                         .arguments = &factor,
                         .n_bytes = sizeof factor,
                         .is_whole = true };

    handler_run(&call, shard, &(RubatoKeys){ .n = 0 });
    require_msg(call.answer.failure == NULL, "%s", call.answer.failure);
}

START_TEST(a_handler_of_all_rows_sees_those_that_have_not_expired)
{
    enum { N = 2000 };
    RubatoTableSpec spec = by_clocks((RubatoTableSpec){ .width = 1 }, 2);
    RubatoShard *shard = shard_make(&spec, "hash", 0);

    for (RubatoKey key = 0; key < N; key++)
        set(shard, key, 1);
    shard_pass_time(shard, 1);
    for (RubatoKey key = 0; key < N / 2; key++)
        set(shard, key, 1);
    ck_assert_uint_eq(count_all(shard), N);
    shard_pass_time(shard, 1);
    ck_assert_uint_eq(count_all(shard), N / 2);
    scale_all(shard, 3); /* a write */
    shard_pass_time(shard, 1);
    ck_assert_uint_eq(count_all(shard), N / 2);
    ck_assert_double_eq(get(shard, 0), 3);
    ck_assert_double_eq(get(shard, N / 2), 100);
    shard_free(shard);
}
END_TEST

/* What a part that moves takes along: rows, their state, and the time. */
START_TEST(rows_that_move_expire_when_they_would_have)
{
    RubatoTableSpec spec = by_clocks(shapes[_i], 5);
    RubatoShard *from = shard_make(&spec, "hash", 0), *to = shard_make(&spec, "hash", 0);
    const RubatoKey keys[] = { 0, 1, 2 };
    const RubatoKeys all = { .keys = keys, .n = 3 };
    g_autofree void *values = g_malloc(3 * row_bytes(&spec));
    g_autofree void *states = g_malloc(3 * spec_state_bytes(&spec));
    const double fresh = get(to, 1);
    StorageUses uses;

    shard_pass_time(from, 100);
    set(from, 2, 1);
    shard_pass_time(from, 3);
    set(from, 1, 1);
    set(from, 0, 1);
    shard_pass_time(from, 1);
    uses = shard_uses(from);
    shard_set_uses(to, &uses);
    shard_get(from, &all, values);
    shard_set(to, &all, values);
    shard_get_state(from, &all, states);
    shard_set_state(to, &all, states);
    shard_pass_time(to, 1);
    ck_assert_double_eq(get(to, 2), fresh);
    ck_assert_double_eq(get(to, 1), 1);
    shard_pass_time(to, 2);
    ck_assert_double_eq(get(to, 1), 1);
    shard_pass_time(to, 1);
    ck_assert_double_eq(get(to, 0), fresh);
    ck_assert_double_eq(get(to, 1), fresh);
    shard_free(from);
    shard_free(to);
}
END_TEST

/* A snapshot has rows and stamps, and not the time of the table. */
START_TEST(the_time_is_never_before_a_row_was_written)
{
    RubatoTableSpec spec = by_clocks((RubatoTableSpec){ .width = 1 }, 5);
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    const uint32_t stamps[] = { 40, 38 };

    set(shard, 1, 1);
    set(shard, 2, 1);
    shard_set_state(shard, &(RubatoKeys){ .first = 1, .n = 2 }, stamps);
    ck_assert_uint_eq(shard_uses(shard).time, 40);
    shard_pass_time(shard, 3);
    ck_assert_double_eq(get(shard, 1), 1);
    ck_assert_double_eq(get(shard, 2), 100);
    shard_free(shard);
}
END_TEST

START_TEST(time_ends_and_never_goes_back)
{
    RubatoTableSpec spec = by_clocks((RubatoTableSpec){ .width = 1 }, 5);
    RubatoShard *shard = shard_make(&spec, "hash", 0);

    shard_reach_time(shard, 10);
    shard_reach_time(shard, 9);
    ck_assert_uint_eq(shard_uses(shard).time, 10);
    shard_pass_time(shard, UINT64_MAX);
    ck_assert_uint_eq(shard_uses(shard).time, UINT32_MAX);
    shard_reach_time(shard, UINT64_MAX);
    set(shard, 1, 1);
    shard_pass_time(shard, 1);
    ck_assert_double_eq(get(shard, 1), 1);
    shard_set_uses(shard, &(StorageUses){ .time = UINT64_MAX });
    ck_assert_uint_eq(shard_uses(shard).time, UINT32_MAX);
    shard_free(shard);
}
END_TEST

/* ---- clocks ---- */

static const RubatoTableSpec models[] = {
    { .model = "asp" },
    { .model = "bsp" },
    { .model = "ssp", .staleness = 1 },
    { .model = "sparse_ssp", .staleness = 1, .speculation = 1 },
};

START_TEST(time_passes_with_the_slowest_worker)
{
    RubatoTableSpec spec = models[_i];
    const RubatoKey keys[] = { 1 };
    ModelRig rig;

    spec.storage = "hash";
    spec.expire = "clocks";
    spec.expire_after = 2;
    rig_init(&rig, &spec, 2);
    if (_i == 3)
        for (uint32_t worker = 0; worker < 2; worker++)
            for (uint64_t clock = 0; clock < 6; clock++)
                rig_announce(&rig, worker, clock, keys, 1);
    rig_add(&rig, 0, 0, 1, 5);
    for (uint64_t clock = 1; clock <= 5; clock++)
        rig_clock(&rig, 0, clock);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 0);
    rig_clock(&rig, 1, 1);
    ck_assert_int_eq(rig_read(&rig, 1), 5); /* bsp applies it now */
    rig_clock(&rig, 1, 2);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 2);
    if (strcmp(spec.model, "bsp") == 0)
        rig_clock(&rig, 1, 3); /* it was written at clock 1 */
    ck_assert_int_eq(rig_read(&rig, 1), 0);
    rig_clock(&rig, 1, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 5);
    rig_clock(&rig, 0, RUBATO_CLOCK_RETIRED);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 5);
    rig_clear(&rig);
}
END_TEST

START_TEST(clocks_that_come_with_a_part_are_no_time)
{
    RubatoTableSpec spec = {
        .model = "ssp", .storage = "hash", .expire = "clocks", .expire_after = 2
    };
    const uint64_t clocks[] = { 7, 9 };
    ModelRig rig;

    rig_init(&rig, &spec, 2);
    model_set_clocks(rig.model, 0, 2, clocks);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 0);
    rig_clock(&rig, 0, 8);
    ck_assert_uint_eq(shard_uses(rig.shard).time, 1);
    rig_clear(&rig);
}
END_TEST

/* ---- scores ---- */

static const RubatoTableSpec clicks = { .width = 2,
                                        .expire = "score",
                                        .expire_below = 0.5,
                                        .expire_decay = 0.5,
                                        .expire_show_weight = 0.25,
                                        .expire_click_weight = 2 };

START_TEST(a_row_expires_when_its_score_is_too_low)
{
    const float deltas[] = { 5, 1, 4, 0 }; /* scores 3 and 1 */
    const RubatoKey keys[] = { 1, 2 };
    const RubatoKeys both = { .keys = keys, .n = 2 };
    RubatoTableSpec spec = clicks;
    RubatoShard *shard = shard_make(&spec, "hash", 0);
    float rows[4];

    shard_add(shard, &both, deltas);
    shard_pass_time(shard, 1); /* 1.5 and .5 */
    shard_get(shard, &both, rows);
    ck_assert_float_eq(rows[0], 5);
    ck_assert_float_eq(rows[2], 4);
    shard_pass_time(shard, 1); /* .75 and .25 */
    shard_get(shard, &both, rows);
    ck_assert_float_eq(rows[0], 5);
    ck_assert_float_eq(rows[2], 0);
    shard_add(shard, &both, deltas); /* what was there has decayed */
    shard_get(shard, &both, rows);
    ck_assert_float_eq(rows[0], 5 + 1.25F);
    ck_assert_float_eq(rows[1], 1.25F);
    ck_assert_float_eq(rows[2], 4);
    shard_pass_time(shard, 20);
    sweep_all(shard);
    ck_assert_uint_eq(shard_n_rows(shard), 0);
    shard_free(shard);
}
END_TEST

/* A table at its bound: rows with clicks stay, whenever they were written. */
static void add_clicks(RubatoShard *shard, RubatoKey first, RubatoKey n, float shows,
                       float n_clicks)
{
    enum { AT_ONCE = 200 };
    float deltas[AT_ONCE * 2];

    for (RubatoKey begin = 0; begin < n; begin += AT_ONCE) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            deltas[2 * i] = shows;
            deltas[2 * i + 1] = n_clicks;
        }
        shard_add(shard, &(RubatoKeys){ .first = first + begin, .n = AT_ONCE }, deltas);
    }
}

START_TEST(the_row_with_the_lowest_score_is_evicted)
{
    enum { N_GOOD = 20000, N_OTHERS = 200000 };
    RubatoTableSpec spec = clicks;
    RubatoShard *shard;
    g_autofree float *rows = g_new(float, N_GOOD * 2);
    size_t n_there = 0;

    spec.max_bytes = 3 << 20;
    spec.evict = "score";
    shard = shard_make(&spec, "hash", 0);
    add_clicks(shard, 1, N_GOOD, 9, 3); /* written first, and once */
    add_clicks(shard, 1000000, N_OTHERS, 9, 0);
    ck_assert_uint_gt(shard_uses(shard).n_evicted, N_OTHERS / 4);
    shard_get(shard, &(RubatoKeys){ .first = 1, .n = N_GOOD }, rows);
    for (size_t i = 0; i < N_GOOD; i++)
        n_there += rows[2 * i] > 0;
    require_msg(n_there > N_GOOD - N_GOOD / 100, "%zu are there", n_there);
    shard_free(shard);
}
END_TEST

/* ---- a function of the user's ---- */

static bool is_odd_and_old(const RubatoTableSpec *spec, RubatoKey key, const void *values,
                           uint32_t age)
{
    return key % 2 == 1 && age >= spec->expire_after && *(const float *)values < 10;
}

static const RubatoExpiryOps odd_expiry = { .name = "odd", .expires = is_odd_and_old };

START_TEST(a_function_of_the_users_says_what_expires)
{
    RubatoTableSpec spec = { .expire = "odd", .expire_after = 2 };
    const RubatoExpiryOps unfit[] = { { .name = "none" },
                                      { .name = "unit", .expires = is_odd_and_old, .unit = 7 },
                                      { .name = "score", .expires = is_odd_and_old } };
    RubatoShard *shard;

    for (size_t i = 0; i < G_N_ELEMENTS(unfit); i++)
        ck_assert(!rubato_register_expiry(&unfit[i], NULL));
    ck_assert(rubato_register_expiry(&odd_expiry, NULL));
    ck_assert_str_eq(rubato_expiry_name(3), "odd");
    shard = shard_make(&spec, "hash", 0);
    set(shard, 1, 5);
    set(shard, 2, 5);
    set(shard, 3, 50);
    shard_pass_time(shard, 2);
    ck_assert_double_eq(get(shard, 1), 0);
    ck_assert_double_eq(get(shard, 2), 5);
    ck_assert_double_eq(get(shard, 3), 50);
    sweep_all(shard);
    ck_assert_uint_eq(shard_n_rows(shard), 2);
    shard_free(shard);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    RubatoTableSpec spec;
    const char *text;
} refused[] = {
    { { .expire = "clock" }, "there is no expiry \"clock\"; known are never, clocks, score" },
    { { .expire = "clocks" }, "expire_after is 0; \"clocks\" needs 1 at least" },
    { { .expire = "seconds" }, "expire_after is 0; \"seconds\" needs 1 at least" },
    { { .expire_after = 1 }, "expire_after has no effect here" },
    { { .expire = "clocks", .expire_after = 1, .n_keys = 9 }, "expire has no effect here" },
    { { .expire = "clocks", .expire_after = 1, .create_on_get = true }, "create_on_get" },
    { { .expire = "clocks", .expire_after = 1, .expire_below = 1 }, "expire_below has no effect" },
    { { .expire = "clocks", .expire_after = 1, .expire_decay = 1 }, "expire_decay has no effect" },
    { { .expire = "seconds", .expire_after = 1, .expire_show_weight = 1 },
      "expire_show_weight has no effect" },
    { { .expire = "seconds", .expire_after = 1, .expire_click_weight = 1 },
      "expire_click_weight has no effect" },
    { { .expire = "seconds", .expire_after = 1, .shape = RUBATO_SHAPE_RAGGED },
      "expire has no effect here; it needs rows of one length" },
    { { .expire = "score", .expire_below = 1, .expire_after = 1, .width = 2 },
      "expire_after has no effect" },
    { { .expire = "score", .expire_below = 1 }, "a width of 2 at least" },
    { { .expire = "score", .expire_below = 1, .width = 2, .update = "sgd" }, "such as \"add\"" },
    { { .expire = "score", .expire_below = 1, .width = 2, .dtype = RUBATO_I32 }, "RUBATO_F32" },
    { { .expire = "score", .width = 2 }, "expire_below is 0" },
    { { .evict = "score", .max_bytes = 8 << 20 }, "evict = \"score\" has no effect here" },
    { { .evict = "score", .max_bytes = 8 << 20, .expire = "clocks", .expire_after = 1 },
      "it needs expire = \"score\"" },
    { { .expire = "score", .width = 2, .expire_below = 1, .expire_decay = 1 },
      "expire_decay is 1" },
    { { .expire = "score", .width = 2, .expire_below = 1, .expire_show_weight = -1 },
      "may not be below 0" },
};

START_TEST(specs_that_make_no_sense_are_refused)
{
    RubatoTableSpec spec = refused[_i].spec;
    g_autoptr(GError) error = NULL;

    spec.name = "t";
    ck_assert(!spec_check(&spec, &error));
    ck_assert_msg(strstr(error->message, refused[_i].text) != NULL, "%s", error->message);
}
END_TEST

START_TEST(a_table_whose_rows_expire_has_no_image)
{
    RubatoTableSpec spec = by_clocks((RubatoTableSpec){ .name = "t", .width = 1 }, 1);

    ck_assert_str_eq(shard_image_fault(&spec), "its rows expire (expire)");
}
END_TEST

int main(void)
{
    const int n_shapes = G_N_ELEMENTS(shapes);
    Suite *suite = suite_create("expiry");
    TCase *tcase = tcase_create("expiry");

    tcase_set_timeout(tcase, g_getenv("RUBATO_TEST_ROWS") != NULL ? 100 : 30);
    tcase_add_loop_test(tcase, a_row_expires_once_nothing_has_been_written_for_long, 0, n_shapes);
    tcase_add_loop_test(tcase, sweeps_change_nothing_that_requests_see, 0, 3 * n_shapes);
    tcase_add_loop_test(tcase, a_sweep_finds_what_has_expired_in_a_storage_that_grows, 0, 2);
    tcase_add_loop_test(tcase, memory_comes_back_when_rows_expire, 0, G_N_ELEMENTS(tables));
    tcase_add_test(tcase, the_system_has_memory_back_when_rows_expire);
    tcase_add_test(tcase, a_key_whose_row_has_expired_is_admitted_anew);
    tcase_add_test(tcase, a_handler_of_all_rows_sees_those_that_have_not_expired);
    tcase_add_loop_test(tcase, rows_that_move_expire_when_they_would_have, 0, n_shapes);
    tcase_add_test(tcase, the_time_is_never_before_a_row_was_written);
    tcase_add_test(tcase, time_ends_and_never_goes_back);
    tcase_add_loop_test(tcase, time_passes_with_the_slowest_worker, 0, G_N_ELEMENTS(models));
    tcase_add_test(tcase, clocks_that_come_with_a_part_are_no_time);
    tcase_add_test(tcase, a_row_expires_when_its_score_is_too_low);
    tcase_add_test(tcase, the_row_with_the_lowest_score_is_evicted);
    tcase_add_test(tcase, a_function_of_the_users_says_what_expires);
    tcase_add_loop_test(tcase, specs_that_make_no_sense_are_refused, 0, G_N_ELEMENTS(refused));
    tcase_add_test(tcase, a_table_whose_rows_expire_has_no_image);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
