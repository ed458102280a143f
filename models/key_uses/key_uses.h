/* Which worker will use which key: the announced keys of unfinished iterations in a SparseSSP task.
 *
 * There are two kinds: "hash" for any keys, and "dense" with an array over the shard's range. Both
 * chain the uses of a key; they differ only in how they find the chain. The first announcements
 * that are long have a set of keys each instead, whatever the kind.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_KEY_USES_KEY_USES_H
#define RUBATO_MODELS_KEY_USES_KEY_USES_H

#include <rubato/model_ops.h>

#include "models/key_uses/announced_keys.h"

typedef struct KeyUses KeyUses;

/* A worker uses a key in an iteration. */
typedef struct {
    RubatoKey key;
    uint64_t iteration;
    uint32_t worker;
    uint32_t next; /* in the chain; KeyUses alone */
} KeyUse;

/* What each kind does in its own way: chains[chain_of(uses, key)] is the beginning of a key's
 * uses. */
typedef struct {
    const char *name;
    bool wants_range; /* only for a storage that holds a range of keys */

    /* Makes uses->chains and uses->n_chains; false with RUBATO_ERROR_MEMORY. */
    bool (*create)(KeyUses *uses, const RubatoModelSetup *setup, GError **error);

    size_t (*chain_of)(const KeyUses *uses, RubatoKey key);

    /* There are n_uses now: makes more chains, if the kind wants them. May be NULL. */
    void (*grow)(KeyUses *uses, uint32_t n_uses);
} KeyUsesOps;

/* An announcement of more keys than these is long. */
#define KEY_USES_SHORT_KEYS 1024u

/* A search looks into each set. So there are only so many, whatever the number of workers. */
#define KEY_USES_MOST_SETS 8u

/* A long announcement. */
typedef struct {
    const RubatoKeys *announced; /* tells it from the others */
    KeyUse use;                  /* of the key that was found last */
    AnnouncedKeys keys;
} KeyUsesOfOne;

struct KeyUses {
    const KeyUsesOps *ops;
    RubatoKey first_key;
    uint64_t n_chains;
    KeyHash key_hash;
    uint32_t *chains; /* indices of uses, KEY_USES_END if there is none */

    KeyUse *entries;
    uint32_t n_uses;      /* in chains */
    uint32_t n_touched;   /* of `entries` that were ever in use */
    uint32_t n_allocated; /* of `entries` */
    uint32_t first_free;  /* chain of entries that are free again */

    KeyUsesOfOne sets[KEY_USES_MOST_SETS];
    uint32_t n_sets;
};

/* The most keys of one iteration. A limit is needed because a few bytes can announce a run of any
 * length. */
#define KEY_USES_MAX_KEYS ((size_t)1 << 26)

#define KEY_USES_END 0u /* entry 0 is never used, so that fresh pages are empty chains */

/* The kind of that name, NULL if there is none; and the i-th kind's name, NULL past the last. */
const KeyUsesOps *key_uses_find_ops(const char *name);
const char *key_uses_name(size_t i);

/* NULL with RUBATO_ERROR_MEMORY. (transfer full) */
KeyUses *key_uses_new(const KeyUsesOps *ops, const RubatoModelSetup *setup, GError **error);
void key_uses_free(KeyUses *uses);

/* Enters that a worker uses the keys in an iteration. False, and nothing is entered, if there are
 * more than KEY_USES_MAX_KEYS or there is no memory. *keys stays where it is until they are removed
 * again. */
bool key_uses_add(KeyUses *uses, uint32_t worker, uint64_t iteration, const RubatoKeys *keys);

/* Removes the uses that were entered with this very struct of keys. */
void key_uses_remove(KeyUses *uses, uint32_t worker, uint64_t iteration, const RubatoKeys *keys);

/* A use of one of the keys in an iteration up to `last` by another worker than `reader`; NULL if
 * there is none. The pointer holds until they change. */
const KeyUse *key_uses_find(KeyUses *uses, const RubatoKeys *keys, uint64_t last, uint32_t reader);

#endif
