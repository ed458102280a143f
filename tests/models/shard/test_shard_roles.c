/* Shards of a part with replicas (models/shard/shard_roles.h): one that follows has the rows of the
 * one that leads, to the byte, although it evicts nothing by itself; also one that was made from
 * the rows of another, at once or in slices between inputs, sweeps at other times, and leads
 * later. */
#include <string.h>

#include <rubato/error.h>

#include "models/shard/image.h"
#include "models/shard/shard_private.h"
#include "models/spec.h"
#include "models/storage/admission/admission.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { N_MORE = 30, MOST_KEYS = 3000, N_OFTEN = 4000, N_SHARDS = 3, N_AT_ONCE = 8 };

static const RubatoTableSpec SPECS[] = {
    { .max_bytes = 2 << 20 },
    { .max_bytes = 5 << 20,
      .width = 30,
      .evict = "lfu",
      .admit = "count",
      .admit_count = 2,
      .admit_bytes = 1 << 18 },
    { .max_bytes = 2 << 20, .create_on_get = true },
    { .max_bytes = 5 << 20, .width = 30, .update = "adagrad", .create_on_get = true },
    { .max_bytes = 2 << 20, .evict = "lfu", .expire = "clocks", .expire_after = 3 },
    { .max_bytes = 5 << 20, .width = 60, .expire = "seconds", .expire_after = 60 },
    { .max_bytes = 5 << 20,
      .width = 60,
      .evict = "score",
      .expire = "score",
      .expire_below = .01,
      .expire_decay = .9 },
    { .create_on_get = true, .update = "adagrad" },
    { .admit = "count", .admit_count = 3, .admit_bytes = 1 << 18, .admit_halve_after = 5000 },
    { .max_bytes = 5 << 20,
      .width = 30,
      .evict = "lfu",
      .admit = "count",
      .admit_count = 2,
      .admit_bytes = 1 << 18,
      .expire = "clocks",
      .expire_after = 3 },
    { .admit = "count",
      .admit_count = 2,
      .admit_bytes = 1 << 18,
      .width = 2,
      .expire = "score",
      .expire_below = .5,
      .expire_decay = .5 },
};

/* The first one leads; the others follow, from the beginning or later. */
typedef struct {
    RubatoTableSpec spec;
    RubatoShard *shards[N_SHARDS];
    size_t n, leads;
    size_t coming; /* the one that gets its rows in slices; 0: none does */
    uint64_t random;
    RubatoKey keys[MOST_KEYS];
    size_t n_keys;
    float *values;
} Part;

static uint64_t draw(Part *part, uint64_t n)
{
    part->random = rubato_mix64(part->random + 1);
    return part->random % n;
}

/* Some keys are used often, and some come twice in a call. */
static void draw_keys(Part *part)
{
    const uint64_t n_new_of_8 = 4 + draw(part, 5);
    const uint64_t n_all = spec_width(&part->spec) > 1 ? 1 << 16 : 1 << 18; /* too many */

    part->n_keys = MOST_KEYS / 2 + draw(part, MOST_KEYS / 2);
    for (size_t i = 0; i < part->n_keys; i++)
        part->keys[i] = draw(part, 8) < n_new_of_8 ? draw(part, n_all) : draw(part, N_OFTEN);
    for (size_t i = 0; i < part->n_keys / 16; i++)
        part->keys[draw(part, part->n_keys)] = part->keys[draw(part, part->n_keys)];
    for (size_t i = 0; i < part->n_keys * spec_width(&part->spec); i++)
        part->values[i] = (float)(1 + (i + part->n_keys) % 9);
}

/* ---- inputs ---- */

typedef void Input(RubatoShard *shard, const Part *part);

static void add(RubatoShard *shard, const Part *part)
{
    shard_add(shard, &(RubatoKeys){ .keys = part->keys, .n = part->n_keys }, part->values);
}

static void set(RubatoShard *shard, const Part *part)
{
    shard_set(shard, &(RubatoKeys){ .keys = part->keys, .n = part->n_keys }, part->values);
}

static void reset(RubatoShard *shard, const Part *part)
{
    shard_reset(shard, &(RubatoKeys){ .keys = part->keys, .n = part->n_keys });
}

static void create(RubatoShard *shard, const Part *part)
{
    shard_create_rows(shard, part->keys, part->n_keys);
}

static void pass_time(RubatoShard *shard, const Part *part)
{
    (void)part;
    if (shard_counts(shard, RUBATO_TIME_CLOCKS))
        shard_pass_time(shard, 1);
    else if (shard_counts(shard, RUBATO_TIME_SECONDS))
        shard_reach_time(shard, shard_uses(shard).time + 20);
}

/* As a primary and its replicas do. */
static void put(Part *part, Input *input)
{
    RubatoShard *const leads = part->shards[part->leads];
    const ShardEviction *evictions = NULL;
    const uint64_t *made = NULL;
    const ShardWord *words = NULL;
    size_t n = 0, n_made = 0, n_words = 0;

    shard_note_made(leads, part->coming > 0 && shard_chooses_rows(leads));
    if (shard_goes_first(leads))
        shard_begin_input(leads);
    input(leads, part);
    if (shard_goes_first(leads)) {
        shard_end_input(leads);
        made = shard_made(leads, &n_made);
        words = shard_words(leads, &n_words);
        evictions = shard_evictions(leads, &n);
    }
    for (size_t i = part->leads + 1; i < part->n; i++) {
        ck_assert(n == 0 || shard_expect_evictions(part->shards[i], evictions, n));
        ck_assert(i != part->coming || n_made == 0 ||
                  shard_expect_made(part->shards[i], made, n_made));
        ck_assert(i != part->coming || n_words == 0 ||
                  shard_set_admission_words(part->shards[i], words, n_words));
        shard_begin_told_input(part->shards[i]);
        input(part->shards[i], part);
        shard_end_told_input(part->shards[i]);
    }
}

/* The rows that it asks for, and that are not there, are created by an input. */
static void get(Part *part)
{
    RubatoShard *const leads = part->shards[part->leads];
    const uint64_t n_before = shard_n_rows(leads);
    g_autofree float *values = g_new(float, part->n_keys *spec_width(&part->spec));
    GArray *wanted;

    shard_get(leads, &(RubatoKeys){ .keys = part->keys, .n = part->n_keys }, values);
    ck_assert_uint_eq(shard_n_rows(leads), n_before);
    wanted = shard_take_wanted(leads);
    if (wanted == NULL)
        return;
    ck_assert(part->spec.create_on_get);
    part->n_keys = wanted->len;
    memcpy(part->keys, wanted->data, wanted->len * sizeof(RubatoKey));
    g_array_unref(wanted);
    put(part, create);
}

/* ---- a replica that is made ---- */

static RubatoShard *make(const Part *part)
{
    RubatoShard *const shard = shard_new_seeded(&part->spec, 0, 0, /* hash_seed= */ 7, NULL);

    ck_assert_ptr_nonnull(shard);
    return shard;
}

static void copy_words(RubatoShard *from, RubatoShard *to, size_t first, size_t n)
{
    g_autofree uint64_t *words = g_new(uint64_t, n + 1);

    if (n == 0)
        return;
    shard_get_admission(from, first, n, words);
    shard_set_admission(to, first, n, words);
}

static void copy_admission(RubatoShard *from, RubatoShard *to)
{
    copy_words(from, to, 0, shard_n_admission_words(from));
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
}

/* All keys in their order. (transfer full) */
static RubatoKey *list_keys(const RubatoShard *shard, size_t *n)
{
    RubatoKey *const keys = g_new(RubatoKey, shard_n_rows(shard) + 1);

    *n = (size_t)shard_n_rows(shard);
    shard_list(shard, 0, *n, keys);
    qsort(keys, *n, sizeof *keys, compare_keys);
    return keys;
}

static void copy_uses(RubatoShard *from, RubatoShard *to)
{
    const StorageUses uses = shard_uses(from);

    if (shard_is_bounded(from))
        shard_set_uses(to, &uses);
}

static void copy_rows(const Part *part, RubatoShard *from, RubatoShard *to, const RubatoKey *keys,
                      size_t n)
{
    const size_t row_bytes = shard_row_bytes(from), state_bytes = spec_state_bytes(&part->spec);
    g_autofree char *rows = g_malloc(BLOCK * MAX(row_bytes, MAX(state_bytes, 4)));

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        const RubatoKeys some = { .keys = keys + begin, .n = MIN(n - begin, BLOCK) };

        shard_get(from, &some, rows);
        shard_set(to, &some, rows);
        if (state_bytes > 0) {
            shard_get_state(from, &some, rows);
            shard_set_state(to, &some, rows);
        }
        if (!shard_is_bounded(from))
            continue;
        shard_get_marks(from, &some, (uint32_t *)(void *)rows);
        shard_set_marks(to, &some, (const uint32_t *)(const void *)rows);
    }
    copy_uses(from, to);
}

/* In the order of keys, so that its cells are others. */
static void follow(Part *part)
{
    RubatoShard *const from = part->shards[part->leads], *const to = make(part);
    size_t n;
    g_autofree RubatoKey *keys = list_keys(from, &n);

    shard_set_role(to, SHARD_FOLLOWS);
    copy_admission(from, to);
    copy_rows(part, from, to, keys, n);
    part->shards[part->n++] = to;
}

static void go_on(Part *part);

/* Inputs come between slices of what admits keys, too. */
static void copy_admission_in_slices(Part *part, RubatoShard *from, RubatoShard *to)
{
    const size_t n_all = shard_n_admission_words(from);

    shard_note_words(from);
    for (size_t first = 0; first < n_all;) {
        const size_t n_most = 1 + (size_t)draw(part, 10000);
        const size_t n = MIN(n_all - first, n_most);

        copy_words(from, to, first, n);
        first += n;
        if (first < n_all)
            go_on(part);
    }
}

/* Inputs come between slices, which are pieces of what a walk finds. */
static void follow_in_slices(Part *part)
{
    RubatoShard *const from = part->shards[part->leads], *const to = make(part);
    g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    uint64_t place = 0;
    bool more = true;

    shard_set_role(to, SHARD_FOLLOWS);
    ck_assert(!shard_chooses_rows(to) || shard_await_rows(to, true));
    copy_uses(from, to);
    part->coming = part->n;
    part->shards[part->n++] = to;
    while (more) {
        guint n_sent = 0;

        g_array_set_size(found, 0);
        more = shard_walk(from, &place, found);
        while (n_sent < found->len) {
            const guint n_most = 1 + (guint)draw(part, 50000);
            const guint n = MIN(found->len - n_sent, n_most);
            RubatoKey *const keys = &g_array_index(found, RubatoKey, n_sent);

            copy_rows(part, from, to, keys,
                      shard_chooses_rows(from) ? shard_leave_out_absent(from, keys, n) : n);
            n_sent += n;
            go_on(part);
        }
    }
    copy_admission_in_slices(part, from, to);
    if (shard_chooses_rows(to))
        ck_assert(shard_await_rows(to, false));
    part->coming = 0;
}

/* ---- what is compared ---- */

/* Without expired rows, which a sweep may have removed. */
static size_t leave_out_expired(RubatoShard *shard, RubatoKey *keys, size_t n)
{
    size_t n_left = 0;
    void *row;

    for (size_t i = 0; i < n; i++) {
        shard_find(shard, &keys[i], 1, &row);
        if (row != NULL)
            keys[n_left++] = keys[i];
    }
    return n_left;
}

static uint64_t bytes_of(const RubatoShard *shard)
{
    uint64_t n_rows, n_bytes;

    shard_size(shard, &n_rows, &n_bytes);
    return n_bytes;
}

static void compare(const Part *part, RubatoShard *shard, RubatoShard *other)
{
    const size_t row_bytes = shard_row_bytes(shard), state_bytes = spec_state_bytes(&part->spec);
    size_t n, n_other;
    g_autofree RubatoKey *keys = list_keys(shard, &n), *others = list_keys(other, &n_other);

    n = leave_out_expired(shard, keys, n);
    n_other = leave_out_expired(other, others, n_other);
    ck_assert_uint_eq(n, n_other);
    ck_assert_mem_eq(keys, others, n * sizeof *keys);

    const RubatoKeys all = { .keys = keys, .n = n };
    g_autofree char *rows = g_malloc0(2 * n * MAX(row_bytes, MAX(state_bytes, 4)) + 1);

    shard_get(shard, &all, rows);
    shard_get(other, &all, rows + n * row_bytes);
    ck_assert_mem_eq(rows, rows + n * row_bytes, n * row_bytes);
    if (state_bytes > 0) {
        shard_get_state(shard, &all, rows);
        shard_get_state(other, &all, rows + n * state_bytes);
        ck_assert_mem_eq(rows, rows + n * state_bytes, n * state_bytes);
    }
    if (!shard_is_bounded(shard))
        return;
    shard_get_marks(shard, &all, (uint32_t *)(void *)rows);
    shard_get_marks(other, &all, (uint32_t *)(void *)rows + n);
    ck_assert_mem_eq(rows, rows + n * 4, n * 4);
    ck_assert_uint_eq(shard_uses(shard).n_uses, shard_uses(other).n_uses);
    ck_assert_uint_eq(shard_uses(shard).n_evicted, shard_uses(other).n_evicted);
    ck_assert_uint_eq(shard_uses(shard).time, shard_uses(other).time);
}

static void compare_admissions(RubatoShard *shard, RubatoShard *other)
{
    const size_t n = shard_n_admission_words(shard);
    g_autofree uint64_t *words = g_new0(uint64_t, 2 * n + 1);

    if (n == 0)
        return;
    shard_get_admission(shard, 0, n, words);
    shard_get_admission(other, 0, n, words + n);
    ck_assert_mem_eq(words, words + n, n * sizeof *words);
}

static void compare_all(const Part *part)
{
    for (size_t i = part->leads + 1; i < part->n; i++) {
        compare(part, part->shards[part->leads], part->shards[i]);
        compare_admissions(part->shards[part->leads], part->shards[i]);
    }
}

/* ---- the test ---- */

static void sweep_one(Part *part)
{
    RubatoShard *const shard = part->shards[part->leads + draw(part, part->n - part->leads)];
    uint32_t n_looks = (uint32_t)(1 + draw(part, 20000));

    if (shard_counts(shard, RUBATO_TIME_CLOCKS) || shard_counts(shard, RUBATO_TIME_SECONDS))
        (void)shard_sweep(shard, &n_looks);
}

static void go_on(Part *part)
{
    draw_keys(part);
    switch (draw(part, 8)) {
    case 0:
        put(part, set);
        break;
    case 1:
        get(part);
        break;
    case 2:
        if (draw(part, 4) == 0)
            put(part, reset);
        if (draw(part, 6) == 0)
            put(part, pass_time);
        break;
    case 3:
        sweep_one(part);
        break;
    default:
        put(part, add);
        break;
    }
}

START_TEST(one_that_follows_is_what_the_one_that_leads_is)
{
    const bool in_slices = _i >= N_AT_ONCE;
    Part part = { .spec = SPECS[in_slices ? _i - N_AT_ONCE : _i], .random = 1, .n = 2 };
    const uint64_t n_most = part.spec.max_bytes;
    const int n_calls = part.spec.width > 1 ? 50 : 120; /* until the table is full */

    part.spec.name = "t";
    part.spec.dtype = RUBATO_F32;
    part.spec.storage = "hash";
    part.spec.width = MAX(1, part.spec.width);
    ck_assert(spec_check(&part.spec, NULL));
    part.values = g_new(float, MOST_KEYS *part.spec.width);
    for (size_t i = 0; i < part.n; i++) {
        part.shards[i] = make(&part);
        shard_set_role(part.shards[i], i == 0 ? SHARD_LEADS : SHARD_FOLLOWS);
    }
    for (int call = 0; call < n_calls + 2 * N_MORE; call++) {
        go_on(&part);
        if (call == n_calls) {
            /* it grows as the one that it follows, which takes no more than its bound */
            ck_assert(n_most == 0 || part.spec.expire != NULL ||
                      bytes_of(part.shards[1]) <= n_most);
            (in_slices ? follow_in_slices : follow)(&part);
            compare_all(&part);
        }
        if (call == n_calls + N_MORE) {
            compare_all(&part);
            shard_set_role(part.shards[++part.leads], SHARD_LEADS);
        }
    }
    compare_all(&part);
    for (size_t i = 0; i < part.n; i++) {
        ck_assert(n_most == 0 || shard_uses(part.shards[i]).n_evicted > 1000);
        ck_assert(!*part.shards[i]->alarm);
        ck_assert(n_most == 0 || bytes_of(part.shards[i]) <= 2 * n_most);
        shard_free(part.shards[i]);
    }
    g_free(part.values);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shard_roles");
    TCase *tcase = tcase_create("roles");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, one_that_follows_is_what_the_one_that_leads_is, 0,
                        N_AT_ONCE + (int)G_N_ELEMENTS(SPECS));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
