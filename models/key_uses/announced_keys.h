/* The keys of one long announcement, in which others are looked up: a bit for each key from the
 * lowest to the highest, or a table by hash if they lie far apart. Both are made at once and freed
 * at once. Chains are entered and left key by key, with cache misses each time.
 *
 * Threads: one at a time. */
#ifndef RUBATO_MODELS_KEY_USES_ANNOUNCED_KEYS_H
#define RUBATO_MODELS_KEY_USES_ANNOUNCED_KEYS_H

#include <rubato/request.h>
#include <stdbool.h>

#include "io/key_hash.h"

typedef struct {
    RubatoKey first; /* the lowest key, */
    uint64_t n_span; /* and how far the highest is from it */
    uint64_t *bits;  /* NULL: see slots */
    uint64_t *slots; /* how far a key is from the lowest, which has none; 0: free. NULL as bits are:
                      * the set has all keys of the span */
    uint64_t n_slots; /* a power of two */
    size_t n_bytes;   /* of bits or slots */
} AnnouncedKeys;

/* Of one key or more. False: there is no memory. */
bool announced_keys_make(AnnouncedKeys *set, const RubatoKeys *keys, const KeyHash *hash);
void announced_keys_clear(AnnouncedKeys *set);

/* The number of the first of these keys that is in the set; keys->n if none is. */
size_t announced_keys_find(const AnnouncedKeys *set, const RubatoKeys *keys, const KeyHash *hash);

#endif
