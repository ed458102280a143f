/* Sets of keys: as bits, or by hash.
 *
 * Bits are taken where they need no more memory than slots do. A key that has a slot already is not
 * entered again, so keys that repeat fill nothing; and the hash has a seed, so nobody can choose
 * keys that fall together.
 *
 * Threads: one at a time. */
#include "models/key_uses/announced_keys.h"

#include <glib.h>

#include "io/huge_pages.h"
#include "models/keys.h"

/* At most so many bits for each key. */
#define MOST_BITS 64u

/* Slots of so many keys are fetched into the cache before the first one is read. */
#define BLOCK 16u

/* Less memory comes from malloc, which gives again what it was given back. */
#define MAPPED_BYTES ((size_t)1 << 20)

static bool take_memory(AnnouncedKeys *set, uint64_t **words, uint64_t n)
{
    set->n_bytes = n * sizeof **words;
    *words =
        set->n_bytes < MAPPED_BYTES ? g_try_malloc0(set->n_bytes) : huge_pages_take(set->n_bytes);
    return *words != NULL;
}

static void give_memory(void *words, size_t n_bytes)
{
    if (n_bytes < MAPPED_BYTES)
        g_free(words);
    else
        huge_pages_free(words, n_bytes);
}

static void find_span(AnnouncedKeys *set, const RubatoKeys *keys)
{
    RubatoKey low = keys_get(keys, 0), high = low;

    for (size_t i = 1; i < keys->n; i++) {
        const RubatoKey key = keys_get(keys, i);

        low = MIN(low, key);
        high = MAX(high, key);
    }
    set->first = low;
    set->n_span = high - low;
}

static void set_bits(const AnnouncedKeys *set, const RubatoKeys *keys)
{
    for (size_t i = 0; i < keys->n; i++) {
        const uint64_t far = keys_get(keys, i) - set->first;

        set->bits[far / 64] |= UINT64_C(1) << far % 64;
    }
}

/* Finds the slots of n keys from number `begin` on, where each search begins. */
static void find_slots(const AnnouncedKeys *set, const RubatoKeys *keys, size_t begin, size_t n,
                       const KeyHash *hash, uint64_t *slots)
{
    for (size_t i = 0; i < n; i++) {
        slots[i] = key_hash(hash, keys_get(keys, begin + i)) & (set->n_slots - 1);
        __builtin_prefetch(&set->slots[slots[i]]);
    }
}

/* The key's slot, or the free one where it would be. A third of all are free at least. */
static uint64_t *search(const AnnouncedKeys *set, uint64_t slot, uint64_t far)
{
    while (set->slots[slot] != 0 && set->slots[slot] != far)
        slot = (slot + 1) & (set->n_slots - 1);
    return &set->slots[slot];
}

static void fill_slots(const AnnouncedKeys *set, const RubatoKeys *keys, const KeyHash *hash)
{
    uint64_t slots[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(BLOCK, keys->n - begin);

        find_slots(set, keys, begin, n, hash, slots);
        for (size_t i = 0; i < n; i++) {
            const uint64_t far = keys_get(keys, begin + i) - set->first;

            if (far > 0)
                *search(set, slots[i], far) = far;
        }
    }
}

bool announced_keys_make(AnnouncedKeys *set, const RubatoKeys *keys, const KeyHash *hash)
{
    *set = (AnnouncedKeys){ 0 };
    if (keys->keys == NULL) {
        set->first = keys->first;
        set->n_span = keys->n - 1;
        return true;
    }
    find_span(set, keys);
    if (set->n_span / MOST_BITS < keys->n) {
        if (!take_memory(set, &set->bits, set->n_span / 64 + 1))
            return false;
        set_bits(set, keys);
        return true;
    }
    set->n_slots = 64;
    while (set->n_slots / 3 * 2 < keys->n)
        set->n_slots *= 2;
    if (!take_memory(set, &set->slots, set->n_slots))
        return false;
    fill_slots(set, keys, hash);
    return true;
}

void announced_keys_clear(AnnouncedKeys *set)
{
    give_memory(set->bits == NULL ? set->slots : set->bits, set->n_bytes);
}

static size_t find_in_slots(const AnnouncedKeys *set, const RubatoKeys *keys, const KeyHash *hash)
{
    uint64_t slots[BLOCK];

    for (size_t begin = 0; begin < keys->n; begin += BLOCK) {
        const size_t n = MIN(BLOCK, keys->n - begin);

        find_slots(set, keys, begin, n, hash, slots);
        for (size_t i = 0; i < n; i++) {
            const uint64_t far = keys_get(keys, begin + i) - set->first;

            if (far == 0 || *search(set, slots[i], far) != 0)
                return begin + i;
        }
    }
    return keys->n;
}

size_t announced_keys_find(const AnnouncedKeys *set, const RubatoKeys *keys, const KeyHash *hash)
{
    if (set->slots != NULL)
        return find_in_slots(set, keys, hash);
    for (size_t i = 0; i < keys->n; i++) {
        const uint64_t far = keys_get(keys, i) - set->first;

        if (far <= set->n_span && (set->bits == NULL || (set->bits[far / 64] >> far % 64 & 1) != 0))
            return i;
    }
    return keys->n;
}
