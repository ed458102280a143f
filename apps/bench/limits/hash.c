/* A bare hash table from key to float, the limit of hash storage: open addressing with linear
 * probing, key and value side by side, and a block of keys prefetched before the search. It is less
 * than two thirds full, never grows, and has one thread. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"

enum { BLOCK = 64 };

typedef struct {
    uint64_t key; /* 0: empty; the cases have no such key */
    float value;
} Slot;

typedef struct {
    Slot *slots;
    uint64_t mask;
} RawHash;

static inline uint64_t home_of(const RawHash *hash, RubatoKey key)
{
    key *= UINT64_C(0x9fb21c651e98df25); /* odd, with its bits well spread */
    return (key ^ (key >> 32)) & hash->mask;
}

static inline Slot *find(const RawHash *hash, uint64_t at, RubatoKey key)
{
    while (hash->slots[at].key != key && hash->slots[at].key != 0)
        at = (at + 1) & hash->mask;
    return &hash->slots[at];
}

static RawHash raw_hash(Bench *bench)
{
    RawHash hash = { .mask = 1 };

    while (hash.mask * 2 < bench->n_rows * 3)
        hash.mask *= 2;
    hash.mask--;
    if (bench->raw == NULL) {
        hash.slots = raw_allocate(bench, (size_t)(hash.mask + 1) * sizeof *hash.slots);
        for (uint64_t row = 0; row < bench->n_rows; row++) {
            const RubatoKey key = bench_key(bench->what, row);

            *find(&hash, home_of(&hash, key), key) = (Slot){ key, 1 };
        }
    }
    hash.slots = bench->raw;
    return hash;
}

static inline void find_block(const RawHash *hash, const RubatoKey *keys, size_t n, Slot **slots)
{
    uint64_t homes[BLOCK];

    for (size_t i = 0; i < n; i++) {
        homes[i] = home_of(hash, keys[i]);
        __builtin_prefetch(&hash->slots[homes[i]], 1);
    }
    for (size_t i = 0; i < n; i++)
        slots[i] = find(hash, homes[i], keys[i]);
}

static void get(const RawHash *hash, const RubatoKey *keys, size_t n, float *values)
{
    Slot *slots[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t n_block = MIN(BLOCK, n - at);

        find_block(hash, keys + at, n_block, slots);
        for (size_t i = 0; i < n_block; i++)
            values[at + i] = slots[i]->value;
    }
}

static void add(const RawHash *hash, const RubatoKey *keys, size_t n, const float *deltas)
{
    Slot *slots[BLOCK];

    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t n_block = MIN(BLOCK, n - at);

        find_block(hash, keys + at, n_block, slots);
        for (size_t i = 0; i < n_block; i++)
            slots[i]->value += deltas[at + i];
    }
}

void raw_hash_get(Bench *bench, const RubatoKey *keys, size_t n, float *values)
{
    const RawHash hash = raw_hash(bench);

    get(&hash, keys, n, values);
}

void raw_hash_add(Bench *bench, const RubatoKey *keys, size_t n, const float *deltas)
{
    const RawHash hash = raw_hash(bench);

    add(&hash, keys, n, deltas);
}

double limit_hash_get(Bench *bench, size_t n)
{
    const RawHash hash = raw_hash(bench);
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        get(&hash, bench_next_keys(bench), bench->what->n_keys, bench->values);
        clobber(bench->values);
    }
    return bench_now() - began;
}

double limit_hash_add(Bench *bench, size_t n)
{
    const RawHash hash = raw_hash(bench);
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        add(&hash, bench_next_keys(bench), bench->what->n_keys, bench->values);
        clobber(hash.slots);
    }
    return bench_now() - began;
}
