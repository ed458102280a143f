/* What an update rule implements: what an Add does to a row.
 *
 * A new one is a file models/update_<name>.c that ends in its constant RubatoUpdateOps, and a line
 * in the array of models/update.c. The loops run over plain arrays of one dtype, so that the
 * compiler vectorises them.
 *
 * Threads: the shard's present owner, one thread at a time; none may block. */
#ifndef RUBATO_UPDATE_OPS_H
#define RUBATO_UPDATE_OPS_H

#include <rubato/table.h>

G_BEGIN_DECLS

typedef struct {
    const char *name;

    /* Whether a process cache may replay the rule on its own copy of a row and come to the
     * server's result (up to rounding). */
    bool replayable;

    /* Whether a table may have this rule. May be NULL. */
    bool (*check)(const RubatoTableSpec *spec, GError **error);

    /* Applies n_values consecutive deltas to n_values consecutive values. */
    void (*apply)(RubatoDtype dtype, void *values, const void *deltas, size_t n_values);

    /* Applies a row of `width` deltas to each of n rows, in order; rows may repeat. Row i takes the
     * deltas at i × width, or at at[i] × width where `at` is not NULL. */
    void (*apply_rows)(RubatoDtype dtype, uint32_t width, void *const *rows, const void *deltas,
                       const uint32_t *at, size_t n);
} RubatoUpdateOps;

G_END_DECLS

#endif
