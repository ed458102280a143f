/* Turns keys into their places among the distinct keys.
 *
 * If the keys are close together, a table with a slot for each number of their range is enough.
 * Otherwise a hash table numbers the distinct keys in the order of their appearance; then these are
 * sorted, by radix, and the numbers are replaced. Runs on the caller's thread.
 *
 * Invariant: between calls the slots up to their capacity are unused memory, nothing more. */
#include "io/data/deal/key_coder.h"

#include <string.h>

#define SLOTS_FIRST ((size_t)1024)
#define NO_ID UINT32_MAX

/* A range of keys is small when it has at most this many numbers for each key. */
#define RANGE_PER_KEY 8u

void key_coder_init(KeyCoder *coder)
{
    memset(coder, 0, sizeof *coder);
}

void key_coder_clear(KeyCoder *coder)
{
    g_free(coder->keys);
    g_free(coder->sort_keys);
    g_free(coder->sort_ids);
    g_free(coder->ids);
    g_free(coder->slots);
    key_coder_init(coder);
}

static bool want(void *array, size_t n, size_t size)
{
    void **at = array;
    void *larger = g_try_realloc_n(*at, n, size);

    if (larger == NULL)
        return false;
    *at = larger;
    return true;
}

static bool want_keys(KeyCoder *coder, size_t n)
{
    if (n <= coder->keys_capacity)
        return true;
    n = MAX(n, coder->keys_capacity * 2);
    if (!want(&coder->keys, n, sizeof *coder->keys))
        return false;
    coder->keys_capacity = n;
    return true;
}

static bool want_slots(KeyCoder *coder, size_t n)
{
    if (n <= coder->slots_capacity)
        return true;
    if (!want(&coder->slots, n, sizeof *coder->slots))
        return false;
    coder->slots_capacity = n;
    return true;
}

static bool want_sort(KeyCoder *coder, size_t n)
{
    if (n <= coder->sort_capacity)
        return true;
    if (!want(&coder->sort_keys, n, sizeof *coder->sort_keys) ||
        !want(&coder->sort_ids, n, sizeof *coder->sort_ids) ||
        !want(&coder->ids, n, sizeof *coder->ids))
        return false;
    coder->sort_capacity = n;
    return true;
}

static bool code_in_range(KeyCoder *coder, const RubatoKey *key, size_t n, uint32_t *index,
                          RubatoKey low, size_t range)
{
    uint32_t *slots;
    size_t n_keys = 0;

    if (!want_slots(coder, range))
        return false;
    slots = coder->slots;
    memset(slots, 0, range * sizeof *slots);
    for (size_t i = 0; i < n; i++)
        slots[key[i] - low] = 1;
    for (size_t i = 0; i < range; i++)
        n_keys += slots[i];
    if (!want_keys(coder, n_keys))
        return false;
    coder->n_keys = 0;
    for (size_t i = 0; i < range; i++)
        if (slots[i] != 0) {
            slots[i] = (uint32_t)coder->n_keys;
            coder->keys[coder->n_keys++] = low + i;
        }
    for (size_t i = 0; i < n; i++)
        index[i] = slots[key[i] - low];
    return true;
}

static inline size_t slot_of(RubatoKey key, size_t mask)
{
    /* Fibonacci hashing (D. Knuth, The art of computer programming, 6.4), folded: keys may be
     * hashes or small numbers. */
    const uint64_t product = key * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(product ^ (product >> 32)) & mask;
}

/* Twice as many slots, with the keys so far. */
static bool grow_slots(KeyCoder *coder, size_t *n_slots)
{
    const size_t larger = *n_slots * 2, mask = larger - 1;

    if (!want_slots(coder, larger))
        return false;
    memset(coder->slots, 0xff, larger * sizeof *coder->slots);
    for (size_t i = 0; i < coder->n_keys; i++) {
        size_t at = slot_of(coder->keys[i], mask);

        while (coder->slots[at] != NO_ID)
            at = (at + 1) & mask;
        coder->slots[at] = (uint32_t)i;
    }
    *n_slots = larger;
    return true;
}

/* Numbers keys in the order in which they come. */
static bool number_keys(KeyCoder *coder, const RubatoKey *key, size_t n, uint32_t *index)
{
    size_t n_slots = SLOTS_FIRST / 2;

    coder->n_keys = 0;
    if (!grow_slots(coder, &n_slots) || !want_keys(coder, n_slots / 2))
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t at = slot_of(key[i], n_slots - 1);

        while (coder->slots[at] != NO_ID && coder->keys[coder->slots[at]] != key[i])
            at = (at + 1) & (n_slots - 1);
        if (coder->slots[at] == NO_ID) {
            coder->slots[at] = (uint32_t)coder->n_keys;
            coder->keys[coder->n_keys++] = key[i];
            index[i] = coder->slots[at];
            if (coder->n_keys >= n_slots / 2 &&
                (!grow_slots(coder, &n_slots) || !want_keys(coder, n_slots / 2)))
                return false;
        } else {
            index[i] = coder->slots[at];
        }
    }
    return true;
}

/* Sorts the numbered keys; afterwards ids[place] is the earlier number of the key there. Bytes in
 * which all keys agree need no pass. */
static bool sort_keys(KeyCoder *coder)
{
    const size_t n = coder->n_keys;
    RubatoKey different = 0;

    if (!want_sort(coder, MAX(coder->keys_capacity, n)))
        return false;
    for (size_t i = 0; i < n; i++) {
        coder->ids[i] = (uint32_t)i;
        different |= coder->keys[i] ^ coder->keys[0];
    }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        size_t at[256] = { 0 }, sum = 0;

        if ((different >> shift & 0xff) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            at[coder->keys[i] >> shift & 0xff]++;
        for (size_t digit = 0; digit < 256; digit++) {
            const size_t count = at[digit];

            at[digit] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) {
            const size_t to = at[coder->keys[i] >> shift & 0xff]++;

            coder->sort_keys[to] = coder->keys[i];
            coder->sort_ids[to] = coder->ids[i];
        }
        RubatoKey *const keys = coder->keys;
        uint32_t *const ids = coder->ids;
        coder->keys = coder->sort_keys;
        coder->ids = coder->sort_ids;
        coder->sort_keys = keys;
        coder->sort_ids = ids;
    }
    return true;
}

bool key_coder_code(KeyCoder *coder, const RubatoKey *key, size_t n, uint32_t *index)
{
    RubatoKey low = n > 0 ? key[0] : 0, high = low;

    for (size_t i = 1; i < n; i++) {
        low = MIN(low, key[i]);
        high = MAX(high, key[i]);
    }
    coder->n_keys = 0;
    if (n == 0)
        return true;
    if (high - low < RANGE_PER_KEY * (uint64_t)n)
        return code_in_range(coder, key, n, index, low, (size_t)(high - low) + 1);

    if (!number_keys(coder, key, n, index) || !sort_keys(coder))
        return false;
    /* the hash table is no longer needed: its memory now holds the place of each number */
    if (!want_slots(coder, coder->n_keys))
        return false;
    for (size_t i = 0; i < coder->n_keys; i++)
        coder->slots[coder->ids[i]] = (uint32_t)i;
    for (size_t i = 0; i < n; i++)
        index[i] = coder->slots[index[i]];
    return true;
}
