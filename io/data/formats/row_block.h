/* Rows that a parser appends to: arrays that grow.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_DATA_FORMATS_ROW_BLOCK_H
#define RUBATO_IO_DATA_FORMATS_ROW_BLOCK_H

#include <rubato/types.h>

/* Row i has the entries row_start[i] .. row_start[i + 1] - 1; row_start[0] is 0. A parser makes
 * room, writes entries behind n_entries, and ends the row. Entries behind row_start[n_rows] belong
 * to no row yet and may be dropped. Make room for a row before writing its entries. */
typedef struct {
    size_t n_rows, n_entries;
    size_t rows_capacity, entries_capacity;
    size_t *row_start; /* rows_capacity + 1 */
    float *label;      /* rows_capacity */
    RubatoKey *key;    /* entries_capacity, as the two that follow */
    float *value;
    uint32_t *field; /* NULL unless has_fields */
    bool has_fields;
} RowBlock;

void row_block_init(RowBlock *block, bool has_fields);
void row_block_clear(RowBlock *block);

/* Makes it empty and keeps the memory. */
void row_block_reset(RowBlock *block);

/* Makes room for n more; false if there is no memory. */
bool row_block_grow_rows(RowBlock *block, size_t n);
bool row_block_grow_entries(RowBlock *block, size_t n);

/* Makes room for n more; if there is room already, this costs one comparison. */
static inline bool row_block_want_rows(RowBlock *block, size_t n)
{
    return block->rows_capacity - block->n_rows >= n || row_block_grow_rows(block, n);
}

static inline bool row_block_want_entries(RowBlock *block, size_t n)
{
    return block->entries_capacity - block->n_entries >= n || row_block_grow_entries(block, n);
}

/* Makes the entries since the last row a row. There must be room for it. */
static inline void row_block_end_row(RowBlock *block, float label)
{
    block->label[block->n_rows] = label;
    block->row_start[++block->n_rows] = block->n_entries;
}

/* Takes back the entries since the last row. */
static inline void row_block_drop_row(RowBlock *block)
{
    block->n_entries = block->n_rows > 0 ? block->row_start[block->n_rows] : 0;
}

#endif
