/* A dataset: its inputs in order, and their blocks, parsed, from a cache, from memory or from the
 * files.
 *
 * Threads: any; see rubato/data.h for the public calls. */
#ifndef RUBATO_IO_DATA_DATASET_H
#define RUBATO_IO_DATA_DATASET_H

#include "io/data/data_block.h"
#include "io/data/input/input.h"

/* Memory that a thread keeps from block to block. */
typedef struct {
    TextBuffer text;
    RowBlock rows;
    KeyCoder coder;
} BlockScratch;

void block_scratch_init(BlockScratch *scratch);
void block_scratch_clear(BlockScratch *scratch);

RubatoDataset *dataset_ref(RubatoDataset *dataset);

uint32_t dataset_n_inputs(const RubatoDataset *dataset);
Input *dataset_input(const RubatoDataset *dataset, uint32_t input);

/* The blocks of an input; INPUT_BLOCKS_UNKNOWN as there. */
uint64_t dataset_n_blocks(const RubatoDataset *dataset, uint32_t input);

/* Whether its blocks cost the same in any order. */
bool dataset_in_any_order(const RubatoDataset *dataset, uint32_t input);

/* A block of an input, by number. *block is NULL if the input ends before it.
 * (transfer full) */
bool dataset_block(RubatoDataset *dataset, uint32_t input, uint64_t number, DatasetKeep keep,
                   BlockScratch *scratch, DataBlock **block, GError **error);

#endif
