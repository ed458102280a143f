/* A set of keys that a bit map stands for, so that noting one takes a few instructions and never
 * memory. Of a range of keys it has a bit for each key. Of any keys it has a bit for each value of
 * a hash: then it also has some keys that nobody noted.
 *
 * A snapshot that holds changes alone covers such a set. Each row whose key it covers is in it as
 * it was then, or was not there then. All other rows are as in the snapshot before. A key that is
 * covered although its row did not change costs some bytes, and nothing else.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STORE_KEY_COVER_H
#define RUBATO_IO_STORE_KEY_COVER_H

#include <rubato/request.h>

#include "io/key_hash.h"

typedef struct {
    uint64_t *words; /* NULL: it has no memory, and no keys can be noted */
    uint64_t n_bits;
    bool is_range;   /* bit i is of key first + i */
    RubatoKey first; /* else the seed of the hash */
    KeyHash hash;
} KeyCover;

static inline uint64_t key_cover_n_words(uint64_t n_bits)
{
    return n_bits / 64 + (n_bits % 64 != 0);
}

/* An empty set; first is the seed of a hash if it is no range. False: there is no memory. */
bool key_cover_init(KeyCover *cover, bool is_range, RubatoKey first, uint64_t n_bits);

/* For a set whose words come from elsewhere. */
void key_cover_set_hash(KeyCover *cover);
void key_cover_clear(KeyCover *cover);

/* Keys of a range are in it. */
static inline uint64_t key_cover_bit(const KeyCover *cover, RubatoKey key)
{
    if (cover->is_range)
        return key - cover->first;
    return (uint64_t)((unsigned __int128)key_hash(&cover->hash, key) * cover->n_bits >> 64);
}

static inline void key_cover_add(KeyCover *cover, RubatoKey key)
{
    const uint64_t bit = key_cover_bit(cover, key);

    cover->words[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* Also for a key outside its range. */
static inline bool key_cover_has(const KeyCover *cover, RubatoKey key)
{
    const uint64_t bit = key_cover_bit(cover, key);

    return bit < cover->n_bits && (cover->words[bit / 64] >> bit % 64 & 1) != 0;
}

/* The keys of a request. */
void key_cover_add_keys(KeyCover *cover, const RubatoKeys *keys);

/* Adds all of another set. False: its bits stand for other keys. */
bool key_cover_merge(KeyCover *cover, const KeyCover *other);

#endif
