/* What an expiry implements: when the rows of a hash table expire.
 *
 * A row that has expired is absent: it reads the initial values, and the next write makes it anew.
 * This holds from the moment on at which the expiry says so, whether or not a server has removed
 * the row yet. An expiry sees a row's values and how long ago it was written, and nothing of
 * workers. A program, or a plug-in file, registers one of its own: plugin.h. A built-in one is a
 * file models/storage/expiry/<name>.c that ends in its constant RubatoExpiryOps, and a line in the
 * array of models/storage/expiry/expiry.c.
 *
 * Threads: the shard's present owner calls the ops, one thread at a time, and those of several
 * shards at the same time. None may block. */
#ifndef RUBATO_EXPIRY_OPS_H
#define RUBATO_EXPIRY_OPS_H

#include <rubato/table.h>

G_BEGIN_DECLS

/* What a table's time is counted in. */
typedef enum {
    RUBATO_TIME_CLOCKS, /* those of the slowest worker, of all tasks so far: the same on all servers
                         * that have the part or a replica of it */
    RUBATO_TIME_SECONDS, /* by the clock of the server's node: no table with replicas has it */
} RubatoTimeUnit;

typedef struct {
    const char *name;

    RubatoTimeUnit unit;

    /* Whether a table with this spec may have this expiry; the error says what to write instead.
     * May be NULL. */
    bool (*check)(const RubatoTableSpec *spec, GError **error);

    /* Whether a row has expired that was last written `age` units of time ago. `values` are its
     * values, without the update rule's state. All that the answer follows from is the arguments.
     * Once true, it stays true as the age grows. */
    bool (*expires)(const RubatoTableSpec *spec, RubatoKey key, const void *values, uint32_t age);

    /* Brings the values of a row that has not expired up to now, before a write: `age` is above 0.
     * May be NULL: values stay as they are. */
    void (*refresh)(const RubatoTableSpec *spec, void *values, uint32_t age);

    /* How much a row is worth at that age, for `evict = "score"`. The answer follows as that of
     * `expires` does. May be NULL: then tables cannot have it. */
    double (*score)(const RubatoTableSpec *spec, const void *values, uint32_t age);
} RubatoExpiryOps;

G_END_DECLS

#endif
