/* Bad deltas: finding them fast, and counting them by worker.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_BAD_GRADIENTS_H
#define RUBATO_MODELS_BAD_GRADIENTS_H

#include <rubato/engine.h>

/* All zero: nothing was counted. */
typedef struct {
    GHashTable *by_worker; /* rank → RubatoBadGradients; NULL until there is one */
} BadGradients;

void bad_gradients_clear(BadGradients *bad);

/* Whether n deltas of f32 or f64 are all numbers of at most this size. */
bool deltas_are_good(RubatoDtype dtype, const void *deltas, size_t n, double largest);

/* Counts, for a worker, what is bad among n deltas, and whether their row is refused. */
void bad_gradients_count(BadGradients *bad, uint32_t worker, RubatoDtype dtype, const void *deltas,
                         size_t n, double largest, bool is_refused);

/* Adds what was counted to an array of RubatoBadGradients, which is ordered by worker. */
void bad_gradients_collect(const BadGradients *bad, GArray *counts);

#endif
