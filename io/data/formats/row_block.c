/* Growing arrays of rows. Runs on the caller's thread.
 *
 * Invariant: each array holds its capacity; an array that could not grow stays as it was. */
#include "io/data/formats/row_block.h"

#include <string.h>

#define ROWS_FIRST ((size_t)256)
#define ENTRIES_FIRST ((size_t)4096)
#define CAPACITY_MAX (SIZE_MAX / 64)

void row_block_init(RowBlock *block, bool has_fields)
{
    memset(block, 0, sizeof *block);
    block->has_fields = has_fields;
}

void row_block_clear(RowBlock *block)
{
    g_free(block->row_start);
    g_free(block->label);
    g_free(block->key);
    g_free(block->value);
    g_free(block->field);
    row_block_init(block, block->has_fields);
}

void row_block_reset(RowBlock *block)
{
    block->n_rows = block->n_entries = 0;
}

static bool resize(void *array, size_t n, size_t size)
{
    void **at = array;
    void *larger = n <= SIZE_MAX / size ? g_try_realloc(*at, n * size) : NULL;

    if (larger == NULL)
        return false;
    *at = larger;
    return true;
}

/* At least twice as much, so that a block grows in linear time. */
static bool next_capacity(size_t used, size_t capacity, size_t n, size_t first, size_t *next)
{
    if (n > CAPACITY_MAX - used || capacity > CAPACITY_MAX / 2)
        return false;
    *next = MAX(MAX(capacity * 2, used + n), first);
    return true;
}

bool row_block_grow_rows(RowBlock *block, size_t n)
{
    size_t capacity;

    if (!next_capacity(block->n_rows, block->rows_capacity, n, ROWS_FIRST, &capacity) ||
        !resize(&block->row_start, capacity + 1, sizeof *block->row_start) ||
        !resize(&block->label, capacity, sizeof *block->label))
        return false;
    if (block->rows_capacity == 0)
        block->row_start[0] = 0;
    block->rows_capacity = capacity;
    return true;
}

bool row_block_grow_entries(RowBlock *block, size_t n)
{
    size_t capacity;

    if (!next_capacity(block->n_entries, block->entries_capacity, n, ENTRIES_FIRST, &capacity) ||
        !resize(&block->key, capacity, sizeof *block->key) ||
        !resize(&block->value, capacity, sizeof *block->value) ||
        (block->has_fields && !resize(&block->field, capacity, sizeof *block->field)))
        return false;
    block->entries_capacity = capacity;
    return true;
}
