/* Lines of `label index:value …` or `label field:index:value …`: what libsvm and libffm share. The
 * compiler makes one loop for each of them. Their labels are numbers, or words (sparse_labels.c).
 *
 * Threads: as row_parser.h says. */
#ifndef RUBATO_IO_DATA_FORMATS_SPARSE_TEXT_H
#define RUBATO_IO_DATA_FORMATS_SPARSE_TEXT_H

#include "io/data/formats/label_words.h"
#include "io/data/formats/row_text.h"

#define SPARSE_SHORT_DIGITS 5

static inline bool sparse_ends_word(char c)
{
    return is_blank(c) || ends_line(c) || c == '#';
}

/* What both formats store of a spec. */
typedef struct {
    RowParser base;
    bool skips_labels;              /* every label is 0 */
    const char *const *known_words; /* of the model's labels; NULL: they are numbers, or unknown */
    bool has_keys;                  /* the spec says what labels are */
    bool has_rows;                  /* a file has begun that shows what labels are */
    LabelWords labels;
} SparseParser;

/* Ops of the format. */
RowParser *sparse_parser_create(const RowParserOps *ops, const RubatoDataSpec *spec);
void sparse_parser_destroy(RowParser *parser);
RowFile *sparse_parser_begin_file(RowParser *parser, const RowText *head, RowFault *fault);
void sparse_parser_describe_keys(const RowParser *parser, RubatoDataKeys *keys);
RowLearning sparse_parser_learns(const RowParser *parser);
bool sparse_parser_learn(RowParser *parser, const RowFile *file, const RowText *text,
                         RowFault *fault);

/* Reads a label that is a word, or is not looked at. */
bool sparse_read_label_word(const SparseParser *parser, const char **at, float *label,
                            RowFault *fault);

/* Where the entries of the present row go. */
typedef struct {
    RowBlock *block;
    size_t n, capacity; /* entries of the block, those of the present row included */
    size_t first;       /* the row's */
    RubatoKey *key;
    float *value;
    uint32_t *field;
} SparseRow;

static inline SparseRow sparse_row(RowBlock *block, size_t first)
{
    return (SparseRow){ .block = block,
                        .n = block->n_entries,
                        .capacity = block->entries_capacity,
                        .first = first,
                        .key = block->key,
                        .value = block->value,
                        .field = block->field };
}

/* Room for one more. */
static inline bool sparse_row_want(SparseRow *row)
{
    if (row->n < row->capacity)
        return true;
    row->block->n_entries = row->n;
    if (!row_block_grow_entries(row->block, 1))
        return false;
    *row = sparse_row(row->block, row->first);
    return true;
}

/* Reads the usual kind of entry from eight bytes at once: an index of up to five digits, a colon, a
 * value of one digit, a blank or newline. False for any other entry. */
static inline bool sparse_read_short(const char *at, RubatoKey *index, float *value,
                                     const char **end)
{
    const uint64_t word = load_word(at);
    uint64_t digits;
    const unsigned n = leading_digits(word, &digits);

    if (n - 1 >= SPARSE_SHORT_DIGITS)
        return false;
    const uint64_t tail = word >> (8 * n);
    const uint8_t value_digit = (uint8_t)((tail >> 8 & 0xff) - '0');
    const uint8_t behind = (uint8_t)(tail >> 16 & 0xff);

    if ((tail & 0xff) != ':' || value_digit > 9 || (behind != ' ' && behind != '\n'))
        return false;
    *index = number_of_digits(digits, n);
    *value = (float)value_digit;
    *end = at + n + 2;
    return true;
}

/* Ends a line, or a comment and its line. */
static inline bool sparse_end_line(const char **at, const char *end, RowFault *fault)
{
    if (**at == '#')
        *at = memchr(*at, '\n', (size_t)(end - *at));
    return end_line(at, fault);
}

/* A number that fills its word. */
static inline bool sparse_read_number(const char **at, float *number, const char *expected,
                                      RowFault *fault)
{
    const char *end = *at;
    const DecimalStatus status = read_float(*at, &end, number);

    if (status != DECIMAL_OK || !sparse_ends_word(*end))
        return row_fault_number(fault, *at, status, expected);
    *at = end;
    return true;
}

/* Appends the entry at *at, which is no blank; *at is then behind it. */
typedef bool (*SparseReadEntry)(const char **at, SparseRow *row, RowFault *fault);

static inline bool sparse_read_label(const SparseParser *parser, const char **at, float *label,
                                     RowFault *fault)
{
    return parser->skips_labels || parser->labels.words != NULL
               ? sparse_read_label_word(parser, at, label, fault)
               : sparse_read_number(at, label, "a finite number as label", fault);
}

/* Reads the row at *at; *at is then behind its line. */
static inline __attribute__((always_inline)) bool sparse_read_row(const SparseParser *parser,
                                                                  const char **at, const char *end,
                                                                  RowBlock *block, RowFault *fault,
                                                                  SparseReadEntry read_entry)
{
    SparseRow row;
    float label = 0;

    if (!row_block_want_rows(block, 1))
        return row_fault_out_of_memory(fault, *at);
    if (!sparse_read_label(parser, at, &label, fault))
        return false;
    row = sparse_row(block, block->n_entries);
    for (*at = skip_blanks(*at); !sparse_ends_word(**at); *at = skip_blanks(*at))
        if (!sparse_row_want(&row))
            return row_fault_out_of_memory(fault, *at);
        else if (!read_entry(at, &row, fault))
            return false;
    if (!sparse_end_line(at, end, fault))
        return false;
    block->n_entries = row.n;
    row_block_end_row(block, label);
    return true;
}

/* Reads all rows; read_entry comes into the loop. */
static inline __attribute__((always_inline)) bool sparse_text_parse(const RowParser *base,
                                                                    const RowText *text,
                                                                    RowBlock *block,
                                                                    RowFault *fault,
                                                                    SparseReadEntry read_entry)
{
    const SparseParser *parser = (const SparseParser *)base;
    const char *const end = text->bytes + text->size;

    for (const char *at = text->bytes; at < end;) {
        at = skip_blanks(at);
        if (sparse_ends_word(*at) ? sparse_end_line(&at, end, fault)
                                  : sparse_read_row(parser, &at, end, block, fault, read_entry))
            continue;
        row_block_drop_row(block);
        return false;
    }
    return true;
}

#endif
