/* Where rows lie. */
#include "io/stream/key_index.h"

#include <glib.h>

#include "io/kernel_random.h"

#define LEAST_SLOTS 64u

KeyIndex key_index_make(void)
{
    KeyIndex index = { .n_slots = 0 };
    uint64_t seed = 0;

    /* Without random bits, keys that somebody chose may collide; nothing else is lost. */
    (void)kernel_random(&seed);
    index.hash = key_hash_make(seed);
    return index;
}

void key_index_clear(KeyIndex *index)
{
    g_clear_pointer(&index->keys, g_free);
    g_clear_pointer(&index->rows, g_free);
    index->n_slots = index->n = 0;
}

bool key_index_has_room(const KeyIndex *index, uint64_t n)
{
    return n <= index->n_slots / 4 * 3;
}

/* The slot of the key, or the free one where it would be. */
static uint64_t find_slot(const KeyIndex *index, RubatoKey key)
{
    uint64_t slot = key_hash(&index->hash, key) & (index->n_slots - 1);

    while (index->rows[slot] != NULL && index->keys[slot] != key)
        slot = (slot + 1) & (index->n_slots - 1);
    return slot;
}

bool key_index_copy(const KeyIndex *index, uint64_t n, KeyIndex *copy)
{
    KeyIndex made = { .n_slots = LEAST_SLOTS, .n = index->n, .hash = index->hash };

    while (!key_index_has_room(&made, n) && made.n_slots <= UINT64_MAX / 4)
        made.n_slots *= 2;
    made.keys = g_try_new(RubatoKey, made.n_slots);
    made.rows = g_try_new0(void *, made.n_slots);
    if (made.keys == NULL || made.rows == NULL || !key_index_has_room(&made, n)) {
        key_index_clear(&made);
        return false;
    }
    for (uint64_t i = 0; i < index->n_slots; i++)
        if (index->rows[i] != NULL) {
            const uint64_t slot = find_slot(&made, index->keys[i]);

            made.keys[slot] = index->keys[i];
            made.rows[slot] = index->rows[i];
        }
    *copy = made;
    return true;
}

void *key_index_find(const KeyIndex *index, RubatoKey key)
{
    return index->n_slots == 0 ? NULL : index->rows[find_slot(index, key)];
}

/* Frees a slot. Keys behind it, up to the next free slot, move where they are found again. */
static void remove_slot(KeyIndex *index, uint64_t slot)
{
    const uint64_t mask = index->n_slots - 1;
    uint64_t next = (slot + 1) & mask;

    for (; index->rows[next] != NULL; next = (next + 1) & mask) {
        const uint64_t home = key_hash(&index->hash, index->keys[next]) & mask;

        /* It stays if its home lies behind the slot that is free now, up to itself. */
        if (((next - home) & mask) < ((next - slot) & mask))
            continue;
        index->keys[slot] = index->keys[next];
        index->rows[slot] = index->rows[next];
        slot = next;
    }
    index->rows[slot] = NULL;
    index->n--;
}

void *key_index_exchange(KeyIndex *index, RubatoKey key, void *row)
{
    const uint64_t slot = index->n_slots == 0 ? 0 : find_slot(index, key);
    void *const before = index->n_slots == 0 ? NULL : index->rows[slot];

    if (row == NULL) {
        if (before != NULL)
            remove_slot(index, slot);
        return before;
    }
    index->n += before == NULL;
    index->keys[slot] = key;
    index->rows[slot] = row;
    return before;
}
