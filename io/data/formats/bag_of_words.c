/* The bags of words of the UCI repository: three lines with the numbers of documents, words and
 * lines, then lines of `document word count`, those of a document together. A row is a document:
 * its keys are the numbers of its words, its values their counts, its label its own number. Runs on
 * the thread that parses.
 *
 * A document with a line that cannot be read is left out whole. */
#include "io/data/formats/row_text.h"

typedef struct {
    RowFile base;
    uint64_t n_documents, n_words;
} BagFile;

typedef struct {
    uint64_t document, word;
    float count;
} BagLine;

/* A whole number from 1, and what it counts. */
static bool read_number(const char **at, uint64_t max, const char *what, uint64_t *number,
                        RowFault *fault)
{
    const char *from = skip_blanks(*at);
    uint64_t value = 0;
    const DecimalStatus status = decimal_read_key(from, at, &value);

    if (status == DECIMAL_NO_NUMBER)
        return row_fault(fault, from, "the number of %s", what);
    if (status == DECIMAL_TOO_LARGE || value == 0 || value > max)
        return row_fault(fault, from, "the number of %s, from 1 to %" G_GUINT64_FORMAT, what, max);
    *number = value;
    return true;
}

static RowFile *begin_file(RowParser *parser, const RowText *head, RowFault *fault)
{
    static const char *const what[] = { "documents", "words", "lines" };
    BagFile *file = g_new0(BagFile, 1);
    uint64_t n_lines, *const number[] = { &file->n_documents, &file->n_words, &n_lines };
    const char *at = head->bytes;

    (void)parser;
    for (size_t i = 0; i < G_N_ELEMENTS(what); i++) {
        if (!read_number(&at, UINT64_MAX, what[i], number[i], fault)) {
            g_free(file);
            return NULL;
        }
        at = skip_blanks(at);
        if (!end_line(&at, fault)) {
            g_free(file);
            return NULL;
        }
    }
    file->base.first_row = (uint64_t)(at - head->bytes);
    return &file->base;
}

/* The document of a line; 0 if there is none. */
static uint64_t document_of(const char *line)
{
    uint64_t document = 0;

    line = skip_blanks(line);
    (void)decimal_read_key(line, &line, &document);
    return document;
}

static const char *line_behind(const char *at, const char *end)
{
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;

    return newline != NULL ? newline + 1 : NULL;
}

/* The first line behind the first one that belongs to another document. The result depends only on
 * the text from the same place on, not on the text before. */
static size_t find_row(const RowParser *parser, const RowFile *file, const RowText *text,
                       size_t from)
{
    const char *const end = text->bytes + text->size;
    const char *line = line_behind(text->bytes + from - 1, end), *next;
    uint64_t first = 0;

    (void)parser;
    (void)file;
    for (; line != NULL && (next = line_behind(line, end)) != NULL; line = next) {
        const uint64_t document = document_of(line);

        if (ends_line(*skip_blanks(line)))
            continue;
        if (first != 0 && document != first)
            return (size_t)(line - text->bytes);
        first = document;
    }
    return ROW_NOT_FOUND;
}

/* Into a zeroed line, whose document is set wherever it could be read. */
static bool read_line(const BagFile *file, const char **at, BagLine *line, RowFault *fault)
{
    DecimalStatus status;
    const char *from;

    if (!read_number(at, file->n_documents, "a document", &line->document, fault) ||
        !read_number(at, file->n_words, "a word", &line->word, fault))
        return false;
    from = skip_blanks(*at);
    status = read_float(from, at, &line->count);
    if (status != DECIMAL_OK)
        return row_fault_number(fault, from, status, "a count");
    if (line->count <= 0)
        return row_fault(fault, from, "a count above 0");
    *at = skip_blanks(*at);
    if (!ends_line(**at))
        return row_fault(fault, *at, "the end of the line behind document, word and count");
    return end_line(at, fault);
}

/* Where the lines of the document with the faulty line end. */
static const char *behind_document(const char *fault_at, const char *end, uint64_t document)
{
    const char *line = line_behind(fault_at, end);

    while (line != NULL && line < end && document_of(line) == document)
        line = line_behind(line, end);
    return line;
}

static bool parse(const RowParser *parser, const RowFile *base, const RowText *text,
                  RowBlock *block, RowFault *fault)
{
    const BagFile *file = (const BagFile *)base;
    const char *const end = text->bytes + text->size;
    uint64_t document = 0; /* whose row is being made */

    (void)parser;
    for (const char *at = text->bytes; at < end;) {
        const char *const from = at = skip_blanks(at);
        const bool is_empty = ends_line(*at);
        BagLine line = { 0 };
        bool ok;

        /* Two rows may end here: the one before, and this line's own after the loop. */
        if (!row_block_want_rows(block, 2) || !row_block_want_entries(block, 1)) {
            row_block_drop_row(block);
            return row_fault_out_of_memory(fault, at);
        }
        ok = is_empty ? end_line(&at, fault) : read_line(file, &at, &line, fault);
        if (ok && is_empty)
            continue;
        if (document != 0 && line.document != 0 && line.document != document) {
            row_block_end_row(block, (float)document);
            if (ok && line.document < document)
                ok = row_fault(fault, from,
                               "a document from %" G_GUINT64_FORMAT " on (they must ascend)",
                               document);
        }
        if (!ok) {
            row_block_drop_row(block);
            fault->resume =
                behind_document(fault->at, end, line.document != 0 ? line.document : document);
            return false;
        }
        document = line.document;
        block->key[block->n_entries] = line.word;
        block->value[block->n_entries++] = line.count;
    }
    if (document != 0)
        row_block_end_row(block, (float)document);
    return true;
}

static const char *const names[] = { "docword.*", "*.bow", NULL };

const RowParserOps bag_of_words_format = {
    .name = "bag_of_words",
    .names = names,
    .begin_file = begin_file,
    .find_row = find_row,
    .parse = parse,
};
