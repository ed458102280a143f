/* Gives a data format arbitrary text, and compares the rows that it accepts with the promises of
 * every format. */
#ifndef TESTS_FUZZ_FUZZ_ROWS_H
#define TESTS_FUZZ_FUZZ_ROWS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/data/formats/row_parser.h"

#define HEAD_BYTES ((size_t)64 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The text with its padding and nothing behind it. (transfer full) */
static inline char *padded_copy(const void *bytes, size_t size, bool add_newline,
                                size_t *padded_size)
{
    char *text;

    *padded_size = size + (add_newline && size > 0 && ((const char *)bytes)[size - 1] != '\n');
    text = malloc(*padded_size + ROW_TEXT_PADDING);
    if (text == NULL)
        abort();
    memset(text, '\n', *padded_size);
    memset(text + *padded_size, 0, ROW_TEXT_PADDING);
    if (size > 0)
        memcpy(text, bytes, size);
    return text;
}

static inline void check_fault(const RowFault *fault, const RowText *text)
{
    if (fault->at < text->bytes || fault->at > text->bytes + text->size ||
        fault->expected[0] == '\0' || fault->out_of_memory)
        abort();
}

static inline void check_rows(const RowBlock *rows, size_t size)
{
    /* A row takes a byte at least, as does an entry. */
    if (rows->n_rows > size || rows->n_entries > 2 * size)
        abort();
    if (rows->n_rows == 0)
        return;
    if (rows->row_start[0] != 0 || rows->row_start[rows->n_rows] != rows->n_entries)
        abort();
    for (size_t i = 0; i < rows->n_rows; i++)
        if (!isfinite(rows->label[i]) || rows->row_start[i] > rows->row_start[i + 1])
            abort();
    for (size_t e = 0; e < rows->n_entries; e++)
        if (!isfinite(rows->value[e]))
            abort();
}

/* Parses (or learns) a text, going on behind faulty rows; how many of these there were. */
static inline size_t parse_all(RowParser *parser, const RowFile *file, RowText text,
                               RowBlock *block)
{
    const char *const end = text.bytes + text.size;
    size_t n_bad = 0;

    while (text.size > 0) {
        RowFault fault = { .at = NULL };
        const char *next;

        if (block != NULL ? parser->ops->parse(parser, file, &text, block, &fault)
                          : parser->ops->learn(parser, file, &text, &fault))
            break;
        check_fault(&fault, &text);
        n_bad++;
        next = fault.resume;
        if (next == NULL && (parser->ops->binary || fault.at == end))
            break;
        if (next == NULL)
            next = (const char *)memchr(fault.at, '\n', (size_t)(end - fault.at)) + 1;
        if (next <= text.bytes || next > end)
            abort(); /* it would never end */
        text.offset += (uint64_t)(next - text.bytes);
        text.size = (size_t)(end - next);
        text.bytes = next;
    }
    return n_bad;
}

/* Two blocks that meet somewhere hold the rows of the whole. */
static inline void check_cut(RowParser *parser, const RowFile *file, const RowText *text,
                             const RowBlock *whole, size_t from)
{
    RowText first = *text, second = *text;
    RowBlock parts;
    size_t at = row_parser_find_row(parser, file, text, from);

    if (at == ROW_NOT_FOUND)
        return;
    if (at < from || at > text->size)
        abort();
    first.size = at;
    second.bytes += at;
    second.size -= at;
    second.offset += at;
    row_block_init(&parts, parser->ops->has_fields);
    if (parse_all(parser, file, first, &parts) + parse_all(parser, file, second, &parts) != 0 ||
        parts.n_rows != whole->n_rows || parts.n_entries != whole->n_entries ||
        (whole->n_entries > 0 &&
         memcmp(parts.key, whole->key, whole->n_entries * sizeof *whole->key) != 0))
        abort();
    row_block_clear(&parts);
}

static inline void fuzz_rows(const RubatoDataSpec *spec, const uint8_t *data, size_t size)
{
    const RowParserOps *ops = row_parser_ops(spec, "", NULL);
    RowParser *parser = row_parser_create(ops, spec, NULL);
    size_t head_size, text_size;
    char *head_bytes = padded_copy(data, MIN(size, HEAD_BYTES), false, &head_size);
    const RowText head = { .bytes = head_bytes, .size = head_size };
    RowFault fault;
    RowFile *file = row_parser_begin_file(parser, &head, &fault);

    if (file == NULL) {
        check_fault(&fault, &head);
    } else {
        const size_t first = (size_t)MIN(file->first_row, size);
        char *bytes = padded_copy(data + first, size - first, !ops->binary, &text_size);
        const RowText text = { .bytes = bytes, .size = text_size, .offset = first };
        RowBlock whole;

        row_block_init(&whole, ops->has_fields);
        if (row_parser_learns(parser))
            parse_all(parser, file, text, NULL);
        const size_t n_bad = parse_all(parser, file, text, &whole);
        check_rows(&whole, size);
        if (n_bad == 0 && text_size > 1)
            check_cut(parser, file, &text, &whole, 1 + (data[size / 2] * 257u) % (text_size - 1));
        row_block_clear(&whole);
        free(bytes);
    }
    row_parser_end_file(parser, file);
    row_parser_destroy(parser);
    free(head_bytes);
}

#endif
