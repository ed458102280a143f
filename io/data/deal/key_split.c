/* The split by key: all rows with the same key at a place come to one worker, in every epoch.
 *
 * Each worker goes through all blocks, in the order that a single worker has in the fixed split,
 * and reads the rows that are its own. Only the key, and the number of workers, decide whose a row
 * is.
 *
 * Runs on the reader's thread. */
#include <rubato/mix.h>

#include "io/data/deal/block_source.h"

typedef struct {
    BlockSource source;
    BlockSource *all; /* a fixed split with one worker */
    uint32_t place;   /* of the key, in a row */
    uint32_t rank, n_workers;
} KeySplit;

static bool take(BlockSource *source, BlockTicket *ticket, GError **error)
{
    const KeySplit *split = (KeySplit *)source;

    return split->all->ops->take(split->all, ticket, error);
}

static void absent(BlockSource *source, const BlockTicket *ticket)
{
    const KeySplit *split = (KeySplit *)source;

    split->all->ops->absent(split->all, ticket);
}

/* Rows without a key at this place have one worker, too. */
static bool is_own(const KeySplit *split, const DataBlock *block, uint32_t row)
{
    const uint32_t entry = block->row_start[row];
    const bool has_key = block->row_start[row + 1] - entry > split->place;
    const RubatoKey key = has_key ? block->keys[block->index[entry + split->place]] : 0;

    return rubato_mix64(key) % split->n_workers == split->rank;
}

static size_t choose(const BlockSource *source, const DataBlock *block, uint32_t *order)
{
    const KeySplit *split = (const KeySplit *)source;
    size_t n = 0;

    for (size_t i = 0; i < block->head->n_rows; i++)
        if (is_own(split, block, order[i]))
            order[n++] = order[i];
    return n;
}

static void destroy(BlockSource *source)
{
    KeySplit *split = (KeySplit *)source;

    split->all->ops->destroy(split->all);
    g_free(split);
}

static const BlockSourceOps key_split_ops = {
    .take = take, .absent = absent, .choose = choose, .destroy = destroy
};

BlockSource *key_split_new(RubatoDataset *dataset, const RubatoReaderOptions *options,
                           uint32_t rank, uint32_t n_workers)
{
    KeySplit *split = g_new(KeySplit, 1);

    *split = (KeySplit){ .source = { &key_split_ops },
                         .all = fixed_split_new(dataset, options, 0, 1),
                         .place = options->key_place,
                         .rank = rank,
                         .n_workers = n_workers };
    return &split->source;
}
