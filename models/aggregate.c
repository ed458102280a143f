/* Sums over a clock.
 *
 * Keys get numbers in the order of their first appearance. Arrays by number hold the key, the sum
 * and the senders; a small hash table with open addressing finds a key's number. The memory is kept
 * for the next clock. Keys are taken in blocks, so that their memory accesses overlap: the slots of
 * all keys of a block are fetched, then what these name, before the first sum.
 *
 * A mean is over workers and not over rows: a worker that sends a key twice in a clock has sent one
 * gradient, in two parts.
 *
 * Thread: the shard's present owner. */
#include "models/aggregate_private.h"

#include <rubato/vector_clones.h>
#include <string.h>

#include "io/memory_room.h"
#include "models/keys.h"
#include "models/spec.h"

#define EMPTY UINT32_MAX
#define FIRST_SLOTS 256u
#define BLOCK 64u /* keys; enough to cover a miss, few enough to stay in the cache */

Aggregate *aggregate_new(const RubatoTableSpec *spec, RubatoShard *shard)
{
    Aggregate *aggregate = g_new0(Aggregate, 1);

    aggregate->shard = shard;
    aggregate->key_hash = key_hash_make(shard_hash_seed(shard));
    aggregate->dtype = spec->dtype;
    aggregate->width = spec_width(spec);
    aggregate->row_bytes = spec_row_bytes(spec);
    aggregate->is_mean = spec->aggregate == RUBATO_AGGREGATE_MEAN;
    return aggregate;
}

void aggregate_free(Aggregate *aggregate)
{
    if (aggregate == NULL)
        return;
    g_free(aggregate->keys);
    g_free(aggregate->senders);
    g_free(aggregate->sums);
    g_free(aggregate->slots);
    g_free(aggregate->marks);
    g_free(aggregate);
}

/* The slot in which the search for a key begins. */
static size_t home_of(const Aggregate *aggregate, RubatoKey key)
{
    return (size_t)key_hash(&aggregate->key_hash, key) & (aggregate->n_slots - 1);
}

static uint32_t *find_slot(const Aggregate *aggregate, RubatoKey key, size_t home)
{
    const size_t mask = aggregate->n_slots - 1;
    size_t i = home;

    while (aggregate->slots[i] != EMPTY && aggregate->keys[aggregate->slots[i]] != key)
        i = (i + 1) & mask;
    return &aggregate->slots[i];
}

/* Resizes an array; it stays as it is if there is no memory. */
static bool resize(void *array, size_t n, size_t size)
{
    void *resized = memory_leaves_room(n * size) ? g_try_realloc_n(*(void **)array, n, size) : NULL;

    if (resized != NULL)
        *(void **)array = resized;
    return resized != NULL;
}

static bool grow_arrays(Aggregate *aggregate, size_t n)
{
    if (!resize(&aggregate->keys, n, sizeof *aggregate->keys) ||
        !resize(&aggregate->senders, n, sizeof *aggregate->senders) ||
        !resize(&aggregate->sums, n, aggregate->row_bytes))
        return false;
    aggregate->n_allocated = n;
    return true;
}

/* Room for a block of keys more; false if there is no memory. */
static bool make_room(Aggregate *aggregate)
{
    const size_t n_most = aggregate->n + BLOCK;
    const size_t n_slots = MAX(FIRST_SLOTS, aggregate->n_slots * 2);

    if (n_most > aggregate->n_allocated &&
        !grow_arrays(aggregate, MAX(FIRST_SLOTS / 2, aggregate->n_allocated * 2)))
        return false;
    if (2 * n_most <= aggregate->n_slots)
        return true;
    if (!resize(&aggregate->slots, n_slots, sizeof *aggregate->slots))
        return false;
    aggregate->n_slots = n_slots;
    memset(aggregate->slots, 0xff, aggregate->n_slots * sizeof *aggregate->slots);
    for (size_t i = 0; i < aggregate->n; i++) {
        const RubatoKey key = aggregate->keys[i];

        *find_slot(aggregate, key, home_of(aggregate, key)) = (uint32_t)i;
    }
    return true;
}

/* Adds a row of deltas to its key's sum. There is room for one more key. */
static inline void take_row(Aggregate *aggregate, uint32_t worker, RubatoKey key, size_t home,
                            const unsigned char *deltas)
{
    uint32_t *slot = find_slot(aggregate, key, home);
    unsigned char *sum;

    if (*slot == EMPTY) {
        *slot = (uint32_t)aggregate->n++;
        aggregate->keys[*slot] = key;
        aggregate->senders[*slot] = (Senders){ .n_workers = 1, .last_worker = worker };
        memcpy(aggregate->sums + *slot * aggregate->row_bytes, deltas, aggregate->row_bytes);
        return;
    }
    sum = aggregate->sums + *slot * aggregate->row_bytes;
    aggregate->senders[*slot].n_workers += aggregate->senders[*slot].last_worker != worker;
    aggregate->senders[*slot].last_worker = worker;
    aggregate_add_row(aggregate, sum, deltas);
}

/* Prefetches the slots of a block of keys, and then what is known of the keys in them. */
static void fetch_homes(const Aggregate *aggregate, const RubatoKeys *keys, size_t begin, size_t n,
                        size_t *homes)
{
    for (size_t i = 0; i < n; i++) {
        homes[i] = home_of(aggregate, keys_get(keys, begin + i));
        __builtin_prefetch(&aggregate->slots[homes[i]], 1);
    }
    for (size_t i = 0; i < n; i++) {
        const size_t number = aggregate->slots[homes[i]];

        if (number == EMPTY)
            continue;
        __builtin_prefetch(&aggregate->keys[number]);
        __builtin_prefetch(&aggregate->senders[number], 1);
        __builtin_prefetch(aggregate->sums + number * aggregate->row_bytes, 1);
    }
}

/* Adds the deltas of n keys, at most a block. This function has the variants, and not the addition
 * of a row, because a chosen variant cannot be inlined, and a call for each row takes longer. */
RUBATO_VECTOR_CLONES
static bool take_block(Aggregate *aggregate, const RubatoRequest *request, size_t begin, size_t n)
{
    const RubatoKeys *keys = &request->keys;
    const bool is_flat = keys->keys == NULL || keys->at == NULL;
    const unsigned char *rows = request->input;
    size_t homes[BLOCK];

    if (!make_room(aggregate))
        return false;
    fetch_homes(aggregate, keys, begin, n, homes);

    const bool all_are_good =
        is_flat && shard_accepts_all(aggregate->shard, rows + begin * aggregate->row_bytes, n);

    for (size_t i = 0; i < n; i++) {
        const unsigned char *deltas = rows + keys_row(keys, begin + i) * aggregate->row_bytes;

        if (all_are_good || shard_accepts(aggregate->shard, request->worker, deltas))
            take_row(aggregate, request->worker, keys_get(keys, begin + i), homes[i], deltas);
    }
    return true;
}

bool aggregate_take(Aggregate *aggregate, const RubatoRequest *request)
{
    for (size_t begin = 0; begin < request->keys.n; begin += BLOCK)
        if (!take_block(aggregate, request, begin, MIN(request->keys.n - begin, BLOCK)))
            return false;
    return true;
}

#define DEFINE_DIVIDE(suffix, type)                                                         \
    RUBATO_VECTOR_CLONES static void divide_##suffix(type *sum, uint32_t divisor, size_t n) \
    {                                                                                       \
        for (size_t i = 0; i < n; i++)                                                      \
            sum[i] /= (type)divisor;                                                        \
    }

DEFINE_DIVIDE(f32, float)
DEFINE_DIVIDE(f64, double)

void aggregate_divide_row(const Aggregate *aggregate, void *sum, uint32_t divisor)
{
    if (aggregate->dtype == RUBATO_F32)
        divide_f32(sum, divisor, aggregate->width);
    else
        divide_f64(sum, divisor, aggregate->width);
}

static void divide(Aggregate *aggregate)
{
    for (size_t i = 0; i < aggregate->n; i++) {
        const uint32_t divisor = aggregate->senders[i].n_workers;
        void *sum = aggregate->sums + i * aggregate->row_bytes;

        if (divisor > 1)
            aggregate_divide_row(aggregate, sum, divisor);
    }
}

void aggregate_apply(Aggregate *aggregate)
{
    if (aggregate->n == 0)
        return;
    if (aggregate->is_mean)
        divide(aggregate);
    shard_add_accepted(aggregate->shard, aggregate->keys, aggregate->n, aggregate->sums);
    memset(aggregate->slots, 0xff, aggregate->n_slots * sizeof *aggregate->slots);
    aggregate->n = 0;
}
