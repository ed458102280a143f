/* A set of keys. It grows in small steps: no call takes long, however many keys there are.
 *
 * Threads: one at a time. */
#ifndef RUBATO_MODELS_SHARD_KEY_SET_H
#define RUBATO_MODELS_SHARD_KEY_SET_H

#include "io/key_hash.h"

enum { KEY_SET_PIECES = 1024 };

/* Open addressing; 0 marks an empty slot. */
typedef struct {
    RubatoKey *slots; /* a power of two of them; NULL: none yet */
    uint32_t n_slots;
    uint32_t n_used;
} KeySetPiece;

typedef struct {
    KeyHash hash;
    bool has_zero;
    KeySetPiece *pieces; /* by some bits of a key's hash */
} KeySet;

typedef enum {
    KEY_SET_ADDED,
    KEY_SET_HAD, /* it was there */
    KEY_SET_NO_MEMORY,
} KeySetAdded;

void key_set_init(KeySet *set, uint64_t seed);
void key_set_clear(KeySet *set);

KeySetAdded key_set_add(KeySet *set, RubatoKey key);
bool key_set_has(const KeySet *set, RubatoKey key);

#endif
