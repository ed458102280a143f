/* libsvm: lines of `label index:value index:value …`, indices ascending. Empty lines and what
 * follows a # are skipped. Runs on the thread that parses. */
#include "io/data/formats/sparse_text.h"

static bool read_long(const char **at, RubatoKey *index, float *value, RowFault *fault)
{
    const char *end = *at;
    const DecimalStatus status = decimal_read_key(*at, &end, index);

    if (status == DECIMAL_TOO_LARGE)
        return row_fault(fault, *at, "an index up to 18446744073709551615");
    if (status != DECIMAL_OK || *end != ':')
        return row_fault(fault, *at, "index:value");
    *at = end + 1;
    return sparse_read_number(at, value, "a finite number as value", fault);
}

static inline bool read_entry(const char **at, SparseRow *row, RowFault *fault)
{
    const char *from = *at;
    RubatoKey index;
    float value;

    if (!sparse_read_short(from, &index, &value, at) && !read_long(at, &index, &value, fault))
        return false;
    if (row->n > row->first && index <= row->key[row->n - 1])
        return row_fault(fault, from, "an index above %" G_GUINT64_FORMAT " (they must ascend)",
                         row->key[row->n - 1]);
    row->key[row->n] = index;
    row->value[row->n++] = value;
    return true;
}

static bool parse(const RowParser *parser, const RowFile *file, const RowText *text,
                  RowBlock *block, RowFault *fault)
{
    (void)file;
    return sparse_text_parse(parser, text, block, fault, read_entry);
}

extern const RowParserOps libsvm_format;

static RowParser *create(const RubatoDataSpec *spec, GError **error)
{
    (void)error;
    return sparse_parser_create(&libsvm_format, spec);
}

static const char *const names[] = { "*.svm", "*.libsvm", "*.svmlight", NULL };

const RowParserOps libsvm_format = {
    .name = "libsvm",
    .names = names,
    .create = create,
    .destroy = sparse_parser_destroy,
    .begin_file = sparse_parser_begin_file,
    .describe_keys = sparse_parser_describe_keys,
    .learns = sparse_parser_learns,
    .learn = sparse_parser_learn,
    .parse = parse,
};
