/* Sums of sorted Adds in their own memory: the same rows, bit for bit, as by the hash table, and
 * none if the Adds are not such. */
#include <math.h>
#include <rubato/mix.h>
#include <rubato/rubato.h>
#include <string.h>

#include "models/aggregate.h"
#include "tests/support/engine/shard_fixture.h"
#include "tests/support/runner.h"

enum { ADDS_MOST = 5, KEYS_MOST = 700, N_KEYS = 2000, ROUNDS = 40 };

static const char *const storages[] = { "dense", "hash" };

static uint64_t draw(uint64_t *state)
{
    return rubato_mix64(++*state);
}

/* The Adds of a clock; deltas of f32 or f64, as the table has. */
typedef struct {
    RubatoRequest requests[ADDS_MOST];
    RubatoKey *keys[ADDS_MOST];
    void *deltas[ADDS_MOST];
    size_t n;
} Adds;

static RubatoTableSpec spec_of(RubatoDtype dtype, uint32_t width, RubatoAggregate aggregate)
{
    return (RubatoTableSpec){ .dtype = dtype,
                              .width = width,
                              .model = "bsp",
                              .update = "momentum",
                              .aggregate = aggregate,
                              .rule = { .learning_rate = 0.25, .momentum = 0.5 } };
}

static void set_delta(Adds *adds, RubatoDtype dtype, size_t add, size_t i, double delta)
{
    if (dtype == RUBATO_F32)
        ((float *)adds->deltas[add])[i] = (float)delta;
    else
        ((double *)adds->deltas[add])[i] = delta;
}

/* A run, or a sorted list whose steps say how many keys it shares with others. */
static void make_keys(Adds *adds, size_t add, uint64_t *state)
{
    RubatoKeys *const keys = &adds->requests[add].keys;
    const uint64_t most_step = 1 + draw(state) % 3;
    RubatoKey key = SHARD_FIRST_KEY + draw(state) % 300;

    keys->n = draw(state) % KEYS_MOST;
    keys->first = key;
    adds->keys[add] = g_new(RubatoKey, KEYS_MOST);
    for (size_t i = 0; i < keys->n; i++, key += 1 + draw(state) % most_step)
        adds->keys[add][i] = key;
    keys->keys = draw(state) % 3 == 0 ? NULL : adds->keys[add];
}

/* Workers come in order. One of a sum may have several Adds. */
static void make_adds(Adds *adds, const RubatoTableSpec *spec, size_t n, uint64_t seed)
{
    const bool repeats = spec->aggregate == RUBATO_AGGREGATE_SUM && seed % 2 == 1;
    uint64_t state = seed;

    *adds = (Adds){ .n = n };
    for (size_t add = 0; add < n; add++) {
        make_keys(adds, add, &state);
        adds->deltas[add] = g_new0(double, KEYS_MOST * spec->width);
        for (size_t i = 0; i < KEYS_MOST * spec->width; i++)
            set_delta(adds, spec->dtype, add, i, (double)(draw(&state) % 100000) / 777 - 50);
        adds->requests[add].worker = (uint32_t)(repeats ? add / 2 : add);
        adds->requests[add].kind = RUBATO_REQUEST_ADD;
        adds->requests[add].input = adds->deltas[add];
        if (add > 0)
            adds->requests[add - 1].next = &adds->requests[add];
    }
}

static void clear_adds(Adds *adds)
{
    for (size_t add = 0; add < adds->n; add++) {
        g_free(adds->keys[add]);
        g_free(adds->deltas[add]);
    }
}

static void add_by_hash(Aggregate *aggregate, const Adds *adds)
{
    for (size_t add = 0; add < adds->n; add++)
        ck_assert(aggregate_take(aggregate, &adds->requests[add]));
    aggregate_apply(aggregate);
}

static void require_same_rows(RubatoShard *a, RubatoShard *b, uint32_t width)
{
    const RubatoKeys all = { .first = SHARD_FIRST_KEY, .n = N_KEYS };
    g_autofree double *of_a = g_new0(double, N_KEYS *width);
    g_autofree double *of_b = g_new0(double, N_KEYS *width);

    shard_get(a, &all, of_a);
    shard_get(b, &all, of_b);
    ck_assert_int_eq(memcmp(of_a, of_b, N_KEYS * width * sizeof *of_a), 0);
    ck_assert_uint_eq(shard_n_rows(a), shard_n_rows(b));
}

/* Several clocks with 1 to 4 Adds on the same rows; the rule's state tells them apart. */
START_TEST(sorted_adds_give_the_same_bits_as_the_hash_table)
{
    static const uint32_t widths[] = { 1, 9 };
    const RubatoTableSpec spec =
        spec_of(_i % 2 == 0 ? RUBATO_F32 : RUBATO_F64, widths[_i / 2 % 2],
                _i / 4 % 2 == 0 ? RUBATO_AGGREGATE_SUM : RUBATO_AGGREGATE_MEAN);
    RubatoTableSpec one = spec, other = spec;
    RubatoShard *sorted = shard_make(&one, storages[_i / 8], N_KEYS);
    RubatoShard *hashed = shard_make(&other, storages[_i / 8], N_KEYS);
    Aggregate *by_order = aggregate_new(&one, sorted), *by_hash = aggregate_new(&other, hashed);
    Adds adds;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        make_adds(&adds, &spec, 1 + round % 4, 1000 * (uint64_t)_i + round);
        add_by_hash(by_hash, &adds);
        ck_assert(aggregate_apply_sorted(by_order, adds.requests));
        require_same_rows(sorted, hashed, spec.width);
        clear_adds(&adds);
    }
    aggregate_free(by_order);
    aggregate_free(by_hash);
    shard_free(sorted);
    shard_free(hashed);
}
END_TEST

typedef enum {
    MISFIT_UNSORTED,
    MISFIT_REPEATED,
    MISFIT_AT_THE_END,
    MISFIT_BAD,
    MISFIT_MANY,
    MISFIT_SAME_WORKER,
    MISFIT_N
} Misfit;

static void spoil(Adds *adds, const RubatoTableSpec *spec, Misfit misfit)
{
    RubatoRequest *const last = &adds->requests[adds->n - 1];
    RubatoKey *const keys = adds->keys[adds->n - 1];

    last->keys = (RubatoKeys){ .keys = keys, .n = 600 };
    for (size_t i = 0; i < last->keys.n; i++)
        keys[i] = SHARD_FIRST_KEY + i;
    if (misfit == MISFIT_UNSORTED)
        keys[0] = SHARD_FIRST_KEY + 1000;
    else if (misfit == MISFIT_REPEATED)
        keys[300] = keys[299];
    else if (misfit == MISFIT_AT_THE_END)
        keys[599] = SHARD_FIRST_KEY;
    else if (misfit == MISFIT_BAD)
        set_delta(adds, spec->dtype, adds->n - 1, 599 * spec->width, (double)NAN);
    else if (misfit == MISFIT_SAME_WORKER)
        last->worker = adds->requests[adds->n - 2].worker;
}

/* Nothing has been done, and the hash table does it. */
START_TEST(other_adds_are_left_to_the_hash_table)
{
    const RubatoTableSpec spec = spec_of(RUBATO_F32, 2, RUBATO_AGGREGATE_MEAN);
    RubatoTableSpec one = spec, other = spec;
    RubatoShard *tried = shard_make(&one, "hash", N_KEYS);
    RubatoShard *hashed = shard_make(&other, "hash", N_KEYS);
    Aggregate *first = aggregate_new(&one, tried), *second = aggregate_new(&other, hashed);
    Adds adds;

    make_adds(&adds, &spec, _i == MISFIT_MANY ? ADDS_MOST : 2, (uint64_t)_i);
    spoil(&adds, &spec, (Misfit)_i);
    ck_assert(!aggregate_apply_sorted(first, adds.requests));
    ck_assert_uint_eq(shard_n_rows(tried), 0);
    add_by_hash(first, &adds);
    add_by_hash(second, &adds);
    require_same_rows(tried, hashed, spec.width);
    clear_adds(&adds);
    aggregate_free(first);
    aggregate_free(second);
    shard_free(tried);
    shard_free(hashed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sums of sorted Adds");
    TCase *tcase = tcase_create("sorted");

    tcase_add_loop_test(tcase, sorted_adds_give_the_same_bits_as_the_hash_table, 0, 16);
    tcase_add_loop_test(tcase, other_adds_are_left_to_the_hash_table, 0, MISFIT_N);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
