/* Where a reader gets its blocks from: what a split of the data implements.
 *
 * Threads: take, choose and absent from the reader's own thread; finish and give_back from it and
 * from the worker's, one at a time. */
#ifndef RUBATO_IO_DATA_DEAL_BLOCK_SOURCE_H
#define RUBATO_IO_DATA_DEAL_BLOCK_SOURCE_H

#include "io/data/dataset.h"

/* The right to read a block's rows in an epoch. */
typedef struct {
    uint32_t epoch;
    uint32_t input;
    uint64_t block;
    uint64_t n_read; /* rows, in the epoch's order, that another has read already */
    uint64_t end;    /* the row behind the last one, in that order; 0: the block's end */
} BlockTicket;

/* Whether they are of the same rows, whatever number of these has been read. */
static inline bool block_ticket_is_same(const BlockTicket *a, const BlockTicket *b)
{
    return a->epoch == b->epoch && a->input == b->input && a->block == b->block && a->end == b->end;
}

typedef struct BlockSource BlockSource;

typedef struct {
    /* The next block; false at the end and with an error. May wait. The epoch never decreases,
     * except for blocks that others gave back. */
    bool (*take)(BlockSource *source, BlockTicket *ticket, GError **error);

    /* There is no such block: the input ends before it. */
    void (*absent)(BlockSource *source, const BlockTicket *ticket);

    /* Keeps those of an order of all the block's rows that this reader reads, and returns how many
     * they are. NULL: it reads all. Such a source has no finish and no give_back. */
    size_t (*choose)(const BlockSource *source, const DataBlock *block, uint32_t *order);

    /* All rows of the block have been read; or n_read of them (including those that others read),
     * and no more will be. Both may be NULL. */
    void (*finish)(BlockSource *source, const BlockTicket *ticket);
    void (*give_back)(BlockSource *source, const BlockTicket *ticket);

    void (*destroy)(BlockSource *source);
} BlockSourceOps;

/* The first member of its struct. */
struct BlockSource {
    const BlockSourceOps *ops;
};

/* The share of one worker of n_workers, which follows from the dataset, the options and its rank.
 * (transfer full) */
BlockSource *fixed_split_new(RubatoDataset *dataset, const RubatoReaderOptions *options,
                             uint32_t rank, uint32_t n_workers);

/* The rows of one worker of n_workers whose keys at options->key_place are its own. (transfer
 * full) */
BlockSource *key_split_new(RubatoDataset *dataset, const RubatoReaderOptions *options,
                           uint32_t rank, uint32_t n_workers);

/* The order of a block's n rows in an epoch; NULL if they are not shuffled. It is written to
 * `order`, which has room for n. All workers that may read rows of one block have the same
 * order. */
const uint32_t *block_row_order(const RubatoDataset *dataset, const RubatoReaderOptions *options,
                                const BlockTicket *ticket, size_t n, uint32_t *order);

#endif
