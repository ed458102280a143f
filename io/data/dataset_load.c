/* Datasets read whole. Runs on the caller's thread. */
#include "io/data/dataset_state.h"
#include "io/data/held_out.h"

static bool load_input(RubatoDataset *dataset, Input *input, RowBlock *rows, TextBuffer *buffer,
                       GError **error)
{
    bool there = true;

    for (uint64_t block = 0; there; block++) {
        const size_t first = rows->n_rows;
        uint64_t n_bad = 0;
        RowText text;

        if (!input_read(input, block, buffer, &text, &there, error))
            return false;
        if (there && !input_parse(input, &text, rows, &dataset->bad_rows, &n_bad, error))
            return false;
        if (there)
            held_out_filter(dataset->spec, text.offset, first, rows);
    }
    return true;
}

static bool give_rows(RowBlock *block, RubatoRows *rows)
{
    /* room for the first row's start, and for arrays that are never NULL */
    if (!row_block_want_rows(block, 1) || !row_block_want_entries(block, 1))
        return false;
    block->row_start[block->n_rows] = block->n_entries;
    rows->n_rows = block->n_rows;
    rows->n_entries = block->n_entries;
    for (size_t i = 0; i < block->n_entries; i++)
        rows->max_key = MAX(rows->max_key, block->key[i]);
    if (block->field != NULL)
        for (size_t i = 0; i < block->n_entries; i++)
            rows->n_fields = MAX(rows->n_fields, MIN(block->field[i], UINT32_MAX - 1) + 1);
    rows->row_start = g_steal_pointer(&block->row_start);
    rows->key = g_steal_pointer(&block->key);
    rows->field = g_steal_pointer(&block->field);
    rows->value = g_steal_pointer(&block->value);
    rows->label = g_steal_pointer(&block->label);
    return true;
}

RubatoRows *rubato_dataset_load(const RubatoDataSpec *spec, GError **error)
{
    g_return_val_if_fail(spec != NULL, NULL);

    RubatoDataSpec plain = *spec;
    plain.cache = RUBATO_DATA_CACHE_NONE;
    g_autoptr(RubatoDataset) dataset = rubato_dataset_open(&plain, error);
    if (dataset == NULL)
        return NULL;

    TextBuffer buffer = { NULL, 0 };
    g_autoptr(RubatoRows) rows = g_new0(RubatoRows, 1);
    RowBlock block;
    bool ok = true;

    row_block_init(&block, dataset->parser->ops->has_fields);
    for (uint32_t i = 0; ok && i < dataset->n_parts; i++)
        ok = load_input(dataset, dataset->parts[i].input, &block, &buffer, error);
    if (ok && block.n_rows == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: expected a row, found the end of the file", spec->paths[0]);
        ok = false;
    } else if (ok && !give_rows(&block, rows)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory for its rows",
                    spec->paths[0]);
        ok = false;
    }
    text_buffer_clear(&buffer);
    row_block_clear(&block);
    return ok ? g_steal_pointer(&rows) : NULL;
}

void rubato_rows_free(RubatoRows *rows)
{
    if (rows == NULL)
        return;
    g_free((void *)(uintptr_t)rows->row_start);
    g_free((void *)(uintptr_t)rows->key);
    g_free((void *)(uintptr_t)rows->field);
    g_free((void *)(uintptr_t)rows->value);
    g_free((void *)(uintptr_t)rows->label);
    g_free(rows);
}
