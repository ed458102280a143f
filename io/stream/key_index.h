/* Where the rows of some keys lie: a hash table with open addressing, at most 3/4 full.
 *
 * Threads: one at a time; key_index_find may run in several while nothing changes. */
#ifndef RUBATO_IO_STREAM_KEY_INDEX_H
#define RUBATO_IO_STREAM_KEY_INDEX_H

#include "io/key_hash.h"

typedef struct {
    RubatoKey *keys;
    void **rows;      /* of the keys beside them; NULL: the slot is free */
    uint64_t n_slots; /* a power of 2, or 0 */
    uint64_t n;
    KeyHash hash;
} KeyIndex;

/* Empty, without memory. */
KeyIndex key_index_make(void);
void key_index_clear(KeyIndex *index);

/* A copy that has room for n keys in all. False: there is no memory. */
bool key_index_copy(const KeyIndex *index, uint64_t n, KeyIndex *copy);

/* Whether it has room for n keys in all. */
bool key_index_has_room(const KeyIndex *index, uint64_t n);

/* NULL: it does not have the key. */
void *key_index_find(const KeyIndex *index, RubatoKey key);

/* Sets the row of a key, for which there is room, or removes the key (NULL). Returns the row
 * before, or NULL. */
void *key_index_exchange(KeyIndex *index, RubatoKey key, void *row);

#endif
