/* libffm: lines of `label field:index:value field:index:value …`, in any order. Empty lines and
 * what follows a # are skipped. Runs on the thread that parses. */
#include "io/data/formats/sparse_text.h"

/* A number and the colon behind it. */
static bool read_number(const char *from, uint64_t max, const char **at, uint64_t *number,
                        const char *what, RowFault *fault)
{
    const DecimalStatus status = decimal_read_key(*at, at, number);

    if (status == DECIMAL_TOO_LARGE || (status == DECIMAL_OK && *number > max))
        return row_fault(fault, from, "%s up to %" G_GUINT64_FORMAT, what, max);
    if (status != DECIMAL_OK || **at != ':')
        return row_fault(fault, from, "field:index:value");
    (*at)++;
    return true;
}

static bool read_long(const char **at, uint64_t *field, RubatoKey *index, float *value,
                      RowFault *fault)
{
    const char *from = *at;

    return read_number(from, UINT32_MAX - 1, at, field, "a field", fault) &&
           read_number(from, UINT64_MAX, at, index, "an index", fault) &&
           sparse_read_number(at, value, "a finite number as value", fault);
}

static inline bool read_entry(const char **at, SparseRow *row, RowFault *fault)
{
    const char *from = *at;
    uint64_t digits, field = 0;
    const unsigned n = leading_digits(load_word(from), &digits);
    RubatoKey index;
    float value;

    if (n - 1 < SPARSE_SHORT_DIGITS && from[n] == ':' &&
        sparse_read_short(from + n + 1, &index, &value, at))
        field = number_of_digits(digits, n);
    else if (!read_long(at, &field, &index, &value, fault))
        return false;
    row->key[row->n] = index;
    row->field[row->n] = (uint32_t)field;
    row->value[row->n++] = value;
    return true;
}

static bool parse(const RowParser *parser, const RowFile *file, const RowText *text,
                  RowBlock *block, RowFault *fault)
{
    (void)file;
    return sparse_text_parse(parser, text, block, fault, read_entry);
}

extern const RowParserOps libffm_format;

static RowParser *create(const RubatoDataSpec *spec, GError **error)
{
    (void)error;
    return sparse_parser_create(&libffm_format, spec);
}

static const char *const names[] = { "*.ffm", "*.libffm", NULL };

const RowParserOps libffm_format = {
    .name = "libffm",
    .names = names,
    .has_fields = true,
    .create = create,
    .destroy = sparse_parser_destroy,
    .begin_file = sparse_parser_begin_file,
    .describe_keys = sparse_parser_describe_keys,
    .learns = sparse_parser_learns,
    .learn = sparse_parser_learn,
    .parse = parse,
};
