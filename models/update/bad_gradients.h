/* Bad deltas: finding them fast, and counting them by worker.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_UPDATE_BAD_GRADIENTS_H
#define RUBATO_MODELS_UPDATE_BAD_GRADIENTS_H

#include <rubato/table.h>

/* Deltas of no worker: those that the engine adds between tasks. */
#define BAD_GRADIENTS_NO_WORKER UINT32_MAX

/* The counts of one worker: a row of the list that a server sends. */
typedef struct {
    uint64_t n_nan, n_infinite, n_large; /* deltas */
    uint64_t n_refused_rows;
} BadCounts;

/* All zero: nothing was counted. Counts are never removed and keep their numbers, so the list may
 * be read piece by piece while more is counted. Its length follows from the highest rank; the code
 * that accepts Adds checks ranks first. */
typedef struct {
    GArray *counts; /* of BadCounts: number 0 is nobody's, 1 + r that of rank r; NULL: none yet */
} BadGradients;

void bad_gradients_clear(BadGradients *bad);

/* Whether n deltas of f32 or f64 are all numbers of at most this size. */
bool deltas_are_good(RubatoDtype dtype, const void *deltas, size_t n, double largest);

/* Counts, for a worker, what is bad among n deltas, and whether their row is refused. Returns
 * whether these are the first of the worker that are infinite or not a number. */
bool bad_gradients_count(BadGradients *bad, uint32_t worker, RubatoDtype dtype, const void *deltas,
                         size_t n, double largest, bool is_refused);

/* How long the list of counts is. */
uint32_t bad_gradients_length(const BadGradients *bad);

/* Copies n counts from number `first` on; these exist. */
void bad_gradients_read(const BadGradients *bad, size_t first, size_t n, BadCounts *counts);

/* Replaces n counts, from number `first` on. */
void bad_gradients_set(BadGradients *bad, uint32_t first, uint32_t n, const BadCounts *counts);

/* The worker of a number. */
static inline uint32_t bad_gradients_worker(uint32_t number)
{
    return number - 1; /* BAD_GRADIENTS_NO_WORKER if it is 0 */
}

#endif
