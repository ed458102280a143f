/* Sets of keys: many small tables of open addressing, each of which grows by itself.
 *
 * Threads: one at a time. */
#include "models/shard/key_set.h"

#include <glib.h>

#define FIRST_SLOTS 16u

void key_set_init(KeySet *set, uint64_t seed)
{
    set->hash = key_hash_make(seed);
    set->has_zero = false;
    set->pieces = g_new0(KeySetPiece, KEY_SET_PIECES);
}

void key_set_clear(KeySet *set)
{
    for (uint32_t i = 0; set->pieces != NULL && i < KEY_SET_PIECES; i++)
        g_free(set->pieces[i].slots);
    g_clear_pointer(&set->pieces, g_free);
}

/* The slot that has the key, or the empty one in which it would be. The piece has an empty one. */
static RubatoKey *find_slot(const KeySetPiece *piece, uint64_t hash, RubatoKey key)
{
    uint32_t i = (uint32_t)(hash >> 32) & (piece->n_slots - 1);

    while (piece->slots[i] != 0 && piece->slots[i] != key)
        i = (i + 1) & (piece->n_slots - 1);
    return &piece->slots[i];
}

static bool grow(const KeySet *set, KeySetPiece *piece)
{
    KeySetPiece grown = { .n_slots = MAX(FIRST_SLOTS, 2 * piece->n_slots),
                          .n_used = piece->n_used };

    grown.slots = g_try_new0(RubatoKey, grown.n_slots);
    if (grown.slots == NULL)
        return false;
    for (uint32_t i = 0; i < piece->n_slots; i++) {
        const RubatoKey key = piece->slots[i];

        if (key != 0)
            *find_slot(&grown, key_hash(&set->hash, key), key) = key;
    }
    g_free(piece->slots);
    *piece = grown;
    return true;
}

static KeySetPiece *piece_of(const KeySet *set, uint64_t hash)
{
    return &set->pieces[hash % KEY_SET_PIECES];
}

KeySetAdded key_set_add(KeySet *set, RubatoKey key)
{
    const uint64_t hash = key_hash(&set->hash, key);
    KeySetPiece *const piece = piece_of(set, hash);
    RubatoKey *slot;

    if (key == 0) {
        const bool had = set->has_zero;

        set->has_zero = true;
        return had ? KEY_SET_HAD : KEY_SET_ADDED;
    }
    if (piece->n_used >= piece->n_slots / 2 && !grow(set, piece))
        return KEY_SET_NO_MEMORY;
    slot = find_slot(piece, hash, key);
    if (*slot == key)
        return KEY_SET_HAD;
    *slot = key;
    piece->n_used++;
    return KEY_SET_ADDED;
}

bool key_set_has(const KeySet *set, RubatoKey key)
{
    const uint64_t hash = key_hash(&set->hash, key);
    const KeySetPiece *const piece = piece_of(set, hash);

    if (key == 0)
        return set->has_zero;
    return piece->slots != NULL && *find_slot(piece, hash, key) == key;
}
