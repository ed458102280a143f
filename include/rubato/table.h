/* What a table is: its name, shape, storage, consistency model and update rule.
 *
 * A spec is plain data that the caller owns; the engine copies what it keeps. A field left 0 or
 * NULL has the default that stands beside it.
 *
 * Threads: any. */
#ifndef RUBATO_TABLE_H
#define RUBATO_TABLE_H

#include <rubato/types.h>

G_BEGIN_DECLS

/* Which rows a RubatoKVClientTable may serve from its node's process cache (under "ssp" only). */
typedef enum {
    RUBATO_CACHE_REMOTE, /* rows that live on other nodes */
    RUBATO_CACHE_ALL,    /* rows of this node's servers too */
    RUBATO_CACHE_NONE,
} RubatoCache;

typedef struct {
    const char *name;  /* unique in the engine */
    RubatoDtype dtype; /* RUBATO_F32 */
    uint32_t width;    /* values in a row; 0 means 1 */

    /* Storage: "dense" holds the keys first_key .. first_key + n_keys - 1, "hash" any 64-bit key.
     * NULL means "dense" where n_keys is given and "hash" where it is not. */
    const char *storage;
    RubatoKey first_key;
    uint64_t n_keys;
    bool create_on_get; /* hash: a Get of an absent key creates its row */

    /* Consistency: "asp" (the default), "bsp", "ssp" or "sparse_ssp". */
    const char *model;
    uint32_t staleness;   /* ssp, sparse_ssp: clocks that a reader may be ahead of the slowest */
    uint32_t speculation; /* sparse_ssp: clocks beyond it that a reader without conflicts may be */
    const char *record;   /* sparse_ssp: who uses which key, "hash" (the default) or "dense" */

    /* What an Add does to a row: "add" (the default) or "assign". */
    const char *update;

    /* The value of a row that nobody has written: "constant" (the default) is init_value,
     * "uniform" lies in [init_low, init_high), "normal" has init_mean and init_stddev. Each value
     * follows from seed, key and column alone, whatever the number of servers. */
    const char *init;
    double init_value;
    double init_low, init_high;
    double init_mean, init_stddev;
    uint64_t seed;

    uint32_t chunk_size; /* RubatoChunkTable: keys in a chunk; 0 means 1 */

    /* Which server holds a key: "range" (even ranges, the default of "dense"), "hash" (the default
     * of "hash") or "bounds": server i holds the keys below bounds[i] that no server before it
     * holds, the last server the rest; n_bounds is the number of servers less one. */
    const char *partition;
    const RubatoKey *bounds;
    size_t n_bounds;

    RubatoCache cache;
} RubatoTableSpec;

G_END_DECLS

#endif
