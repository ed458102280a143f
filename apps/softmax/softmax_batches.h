/* Which rows a worker takes in which step: each epoch goes through all rows in a seeded order of
 * its own, a step takes the next batch_size of them, and the workers share each step evenly. So
 * every row goes to one worker in each epoch, all workers make the same number of steps, and what
 * a step sees does not depend on how many they are.
 *
 * The order is a function, not an array: any worker may ask for any step, past or to come.
 *
 * Threads: any; a value belongs to one. */
#ifndef RUBATO_APPS_SOFTMAX_SOFTMAX_BATCHES_H
#define RUBATO_APPS_SOFTMAX_SOFTMAX_BATCHES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t n_rows, batch_size;
    uint32_t rank, n_workers;
    uint64_t seed;
    unsigned half_bits; /* the order permutes numbers of twice as many bits */
} SoftmaxBatches;

/* n_rows and batch_size are at least 1. */
void softmax_batches_init(SoftmaxBatches *batches, uint64_t n_rows, uint64_t batch_size,
                          uint32_t rank, uint32_t n_workers, uint64_t seed);

/* Steps in an epoch. */
uint64_t softmax_batches_per_epoch(const SoftmaxBatches *batches);

/* The most rows that a worker takes in a step. */
size_t softmax_batches_max(const SoftmaxBatches *batches);

/* Writes this worker's rows of a step (counted on through the epochs) and returns how many they
 * are; *n_step is how many the step has over all workers. */
size_t softmax_batches_take(const SoftmaxBatches *batches, uint64_t step, uint64_t *rows,
                            uint64_t *n_step);

/* The row at a place of an epoch's order. */
uint64_t softmax_batches_row(const SoftmaxBatches *batches, uint64_t epoch, uint64_t place);

#endif
