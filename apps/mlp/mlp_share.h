/* The rows of a worker, which it keeps in memory, and which of them it takes in which step: in each
 * epoch all of them once, in another order.
 *
 * Threads: the worker's. */
#ifndef RUBATO_APPS_MLP_MLP_SHARE_H
#define RUBATO_APPS_MLP_MLP_SHARE_H

#include <stdint.h>

#include "apps/kit/scores/app_dense.h"

typedef struct {
    AppDense rows;
    uint32_t *order; /* NULL: there are no rows yet */
    uint64_t epoch;  /* of the order, from 0 */
    uint64_t seed;
} MlpShare;

/* The rows are there: gets ready to take them. RUBATO_ERROR_MEMORY. */
bool mlp_share_init(MlpShare *share, uint64_t seed, GError **error);
void mlp_share_clear(MlpShare *share);

/* The most rows that a step takes. */
size_t mlp_share_most(const MlpShare *share, uint64_t steps_of_epoch);

/* How many rows a step takes; step: from 0, over all epochs. */
size_t mlp_share_count(const MlpShare *share, uint64_t steps_of_epoch, uint64_t step);

/* Copies the step's rows and their labels; their number. */
size_t mlp_share_take(MlpShare *share, uint64_t steps_of_epoch, uint64_t step, float *rows,
                      float *labels);

#endif
