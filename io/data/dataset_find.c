/* Searches a row in a dataset's files, to say where it is. Blocks carry no line numbers, so the
 * files are read again: first whole blocks and then, within the block that has the row, line by
 * line.
 *
 * Runs on the caller's thread; what is shared is only read. */
#include "io/data/dataset_state.h"

#include <string.h>

/* Whether a text has a row of the label. Rows that cannot be read have none. */
static bool has_label(Input *input, const RowText *text, float label, RowBlock *rows)
{
    uint64_t n_bad = 0;

    row_block_reset(rows);
    (void)input_parse(input, text, rows, /* bad_rows= */ NULL, &n_bad, NULL);
    for (size_t i = 0; i < rows->n_rows; i++)
        if (rows->label[i] == label)
            return true;
    return false;
}

/* Where the next row may start behind a place, or where the text ends. A line of text is a row or a
 * part of one, which has the label of the whole. */
static size_t step(const RubatoDataset *dataset, Input *input, const RowText *text, size_t at)
{
    const char *newline;

    if (dataset->parser->ops->binary) {
        const size_t next =
            row_parser_find_row(dataset->parser, input_row_file(input), text, at + 1);
        return MIN(text->size, next);
    }
    newline = memchr(text->bytes + at, '\n', text->size - at);
    return newline != NULL ? (size_t)(newline - text->bytes) + 1 : text->size;
}

/* The offset of the first row of the label in a block that has one. */
static uint64_t find_row(const RubatoDataset *dataset, Input *input, const RowText *text,
                         float label, RowBlock *rows)
{
    size_t at = 0;

    for (size_t next; at < text->size; at = next) {
        next = step(dataset, input, text, at);
        const RowText row = { .bytes = text->bytes + at,
                              .size = next - at,
                              .offset = text->offset + at };
        if (has_label(input, &row, label, rows))
            break;
    }
    return text->offset + at;
}

/* NULL: not in this input. */
static char *find_in(RubatoDataset *dataset, Input *input, float label, BlockScratch *scratch)
{
    bool there = true;

    for (uint64_t block = 0; there; block++) {
        RowText text;

        if (!input_read(input, block, &scratch->text, &text, &there, NULL))
            break;
        if (there && has_label(input, &text, label, &scratch->rows))
            return input_row_place(input, find_row(dataset, input, &text, label, &scratch->rows));
    }
    return NULL;
}

/* The same of rows in memory: "NAME: row N", from 0. */
static char *find_in_memory(Part *part, float label)
{
    uint64_t n_rows = 0;

    for (uint64_t number = 0;; number++) {
        g_autoptr(DataBlock) block = dataset_find_kept(part, number);

        if (block == NULL)
            return NULL;
        for (size_t i = 0; i < block->head->n_rows; i++, n_rows++)
            if (block->label[i] == label)
                return g_strdup_printf("%s: row %" G_GUINT64_FORMAT, input_path(part->input),
                                       n_rows);
    }
}

char *rubato_dataset_find_label(RubatoDataset *dataset, float label)
{
    char *place = NULL;
    BlockScratch scratch;

    g_return_val_if_fail(dataset != NULL, NULL);
    block_scratch_init(&scratch);
    scratch.rows.has_fields = dataset->parser->ops->has_fields;
    for (uint32_t i = 0; place == NULL && i < dataset->n_parts; i++)
        place = dataset->parts[i].in_memory
                    ? find_in_memory(&dataset->parts[i], label)
                    : find_in(dataset, dataset->parts[i].input, label, &scratch);
    block_scratch_clear(&scratch);
    return place;
}
