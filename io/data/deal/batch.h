/* Makes batches from rows of blocks, and keeps the memory of batches that were given back.
 *
 * Threads: a builder has one owner; batches may be given back from any thread. */
#ifndef RUBATO_IO_DATA_DEAL_BATCH_H
#define RUBATO_IO_DATA_DEAL_BATCH_H

#include "io/data/data_block.h"

/* Some rows of a batch, that came with one ticket. */
typedef struct {
    uint64_t ticket;
    size_t n_rows;
} BatchSpan;

typedef struct BatchPool BatchPool;

/* (transfer full) */
BatchPool *batch_pool_new(void);

/* Batches that are still out keep it until they come back. */
void batch_pool_unref(BatchPool *pool);

typedef struct BatchBuilder BatchBuilder;

/* (transfer full) */
BatchBuilder *batch_builder_new(BatchPool *pool);
void batch_builder_free(BatchBuilder *builder);

/* Rows in the batch that is being made. */
size_t batch_builder_n_rows(const BatchBuilder *builder);

/* Appends the n rows at places first .. first + n - 1 of an order of the block's rows; NULL: as
 * they are. False if there is no memory. */
bool batch_builder_add(BatchBuilder *builder, const DataBlock *block, const uint32_t *order,
                       size_t first, size_t n, uint64_t ticket);

/* Ends the batch, which has a row at least. NULL if there is no memory. (transfer full) */
RubatoBatch *batch_builder_finish(BatchBuilder *builder, uint32_t epoch);

/* Where the rows of a batch came from. (transfer none) */
const BatchSpan *batch_spans(const RubatoBatch *batch, size_t *n);

#endif
