/* CSV: a column for the label, the others numbers or categories; an empty cell is no entry. A
 * number's key is its column; a category's a hash of column and text, or a code. Fields are
 * columns. Runs on the thread that parses; codes, and labels that are words, are learned before
 * that, by one thread.
 *
 * A category is identified by its hash of 64 bits: among a million categories two have the same
 * hash with a probability of 3e-8. */
#include "io/data/formats/csv_columns.h"
#include "io/data/formats/label_words.h"
#include "io/data/formats/text_hash.h"

extern const RowParserOps csv_format;

typedef struct {
    RowParser base;
    RubatoDataSpec spec;
    CsvColumns columns;
    GHashTable *codes; /* hash → code + 1; NULL: categories are hashed */
    LabelWords labels;
} CsvParser;

static RowParser *create(const RubatoDataSpec *spec, GError **error)
{
    CsvParser *parser = g_new0(CsvParser, 1);

    (void)error;
    parser->base.ops = &csv_format;
    parser->spec = *spec;
    csv_columns_init(&parser->columns, &parser->spec);
    if (spec->categories == RUBATO_CATEGORIES_CODED)
        parser->codes = g_hash_table_new(g_direct_hash, g_direct_equal);
    return &parser->base;
}

static void destroy(RowParser *base)
{
    CsvParser *parser = (CsvParser *)base;

    csv_columns_clear(&parser->columns);
    label_words_clear(&parser->labels);
    g_clear_pointer(&parser->codes, g_hash_table_unref);
    g_free(parser);
}

static bool check(const RubatoDataSpec *spec, GError **error)
{
    const char separator = spec->separator;

    if (separator != '"' && separator != '\n' && separator != '\r')
        return true;
    g_set_error(
        error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
        "a quote or the end of a line cannot part the cells of CSV; give another separator, "
        "such as \",\"");
    return false;
}

static RowFile *begin_file(RowParser *base, const RowText *head, RowFault *fault)
{
    CsvParser *parser = (CsvParser *)base;
    uint64_t first_row;
    RowFile *file;

    if (!csv_columns_begin_file(&parser->columns, head, &first_row, fault))
        return NULL;
    if (parser->columns.labels_are_words && parser->labels.words == NULL)
        label_words_init(&parser->labels,
                         parser->spec.keys != NULL ? parser->spec.keys->label_words : NULL);
    file = g_new0(RowFile, 1);
    file->first_row = first_row;
    return file;
}

static void describe_keys(const RowParser *base, RubatoDataKeys *keys)
{
    const CsvParser *parser = (const CsvParser *)base;
    const CsvColumns *columns = &parser->columns;

    keys->n_columns = columns->n_columns;
    keys->column_names = (const char *const *)columns->names;
    keys->label_column = columns->label;
    keys->n_categorical_columns = columns->n_categories;
    keys->categorical_columns = columns->categories;
    label_words_describe(&parser->labels, keys);
    if (columns->n_categories > 0 && parser->codes == NULL)
        keys->hash_bits = parser->spec.hash_bits != 0 ? parser->spec.hash_bits : 64;
}

/* ---- cells ---- */

static bool fault_in_column(const CsvParser *parser, uint32_t column, const CsvCell *cell,
                            const char *expected, RowFault *fault)
{
    char name[ROW_FAULT_MAX / 2], text[ROW_FAULT_MAX];

    csv_columns_describe(&parser->columns, column, name, sizeof name);
    g_snprintf(text, sizeof text, "%s in column %s", expected, name);
    return csv_cell_fault(fault, cell, text);
}

/* A number that is quoted or too large, or no number. *is_empty: the cell is empty. */
static bool read_odd_number(const CsvParser *parser, const char **at, uint32_t column,
                            float *number, bool *is_empty, RowFault *fault)
{
    DecimalStatus status = DECIMAL_NO_NUMBER;
    const char *end = NULL;
    CsvCell cell;

    if (!csv_read_cell(at, parser->columns.separator, &cell, fault))
        return false;
    *is_empty = cell.size == 0;
    if (*is_empty)
        return true;
    status = read_float(cell.text, &end, number);
    if (status == DECIMAL_OK && end == cell.text + cell.size)
        return true;
    return fault_in_column(parser, column, &cell,
                           status == DECIMAL_TOO_LARGE ? "a number within the range of a float"
                                                       : "a finite number",
                           fault);
}

static inline bool read_number(const CsvParser *parser, const char **at, uint32_t column,
                               float *number, bool *is_empty, RowFault *fault)
{
    const char *end;

    if (read_float(*at, &end, number) != DECIMAL_OK ||
        !csv_ends_cell(*end, parser->columns.separator))
        return read_odd_number(parser, at, column, number, is_empty, fault);
    *is_empty = false;
    *at = end;
    return true;
}

/* The hash of a cell's text; false if there is no memory for it. */
static bool hash_cell(const CsvCell *cell, uint32_t column, uint32_t n_bits, RubatoKey *key)
{
    if (!cell->has_quotes) {
        *key = text_hash(cell->text, cell->size, column, n_bits);
        return true;
    }
    size_t size;
    g_autofree char *text = csv_cell_text(cell, &size);
    if (text != NULL)
        *key = text_hash(text, size, column, n_bits);
    return text != NULL;
}

/* The code of a category; a new one gets the next, where codes are being learned. */
static bool code_of(CsvParser *learner, const CsvParser *parser, RubatoKey hash, RubatoKey *key)
{
    _Static_assert(sizeof(gpointer) >= sizeof(RubatoKey), "a hash is kept as a pointer");
    const gpointer known = g_hash_table_lookup(parser->codes, GSIZE_TO_POINTER(hash));
    gsize code = GPOINTER_TO_SIZE(known);

    if (code == 0 && learner == NULL)
        return false;
    if (code == 0) {
        code = g_hash_table_size(learner->codes) + 1u;
        g_hash_table_insert(learner->codes, GSIZE_TO_POINTER(hash), GSIZE_TO_POINTER(code));
    }
    *key = parser->columns.n_columns + code - 1;
    return true;
}

static bool read_category(CsvParser *learner, const CsvParser *parser, const char **at,
                          uint32_t column, RubatoKey *key, bool *is_empty, RowFault *fault)
{
    RubatoKey hash;
    CsvCell cell;

    if (!csv_read_cell(at, parser->columns.separator, &cell, fault))
        return false;
    *is_empty = cell.size == 0;
    if (*is_empty)
        return true;
    if (!hash_cell(&cell, column, parser->codes != NULL ? 0 : parser->spec.hash_bits, &hash))
        return row_fault_out_of_memory(fault, cell.text);
    *key = hash;
    return parser->codes == NULL || code_of(learner, parser, hash, key) ||
           fault_in_column(parser, column, &cell, "a category that was there at first", fault);
}

/* Whether a label's cell is one of the words, whatever quotes are in it. */
static bool find_label(const LabelWords *labels, const CsvCell *cell, float *label)
{
    size_t size;

    if (!cell->has_quotes)
        return label_words_find(labels, cell->text, cell->size, label);
    g_autofree char *text = csv_cell_text(cell, &size);
    return text != NULL && label_words_find(labels, text, size, label);
}

/* The number of a label that is a word; 0 while the words are being learned. */
static bool read_label_word(const CsvParser *learner, const CsvParser *parser, const char **at,
                            uint32_t column, float *label, RowFault *fault)
{
    CsvCell cell;

    if (!csv_read_cell(at, parser->columns.separator, &cell, fault))
        return false;
    if (cell.size == 0)
        return fault_in_column(parser, column, &cell, "a word as label", fault);
    if (learner != NULL || find_label(&parser->labels, &cell, label))
        return true;
    return fault_in_column(parser, column, &cell, "one of the labels of the model's rows", fault);
}

/* ---- rows ---- */

/* Reads the cell of a column into the row that is being made. */
static inline bool read_column(CsvParser *learner, const CsvParser *parser, const char **at,
                               uint32_t column, RowBlock *block, float *label, RowFault *fault)
{
    const char *const from = *at;
    const size_t n = block->n_entries;
    bool is_empty = false;

    block->value[n] = 1;
    switch ((CsvKind)parser->columns.kind[column]) {
    case CSV_KIND_LABEL:
        if (parser->labels.words != NULL)
            return read_label_word(learner, parser, at, column, label, fault);
        if (!read_number(parser, at, column, label, &is_empty, fault))
            return false;
        return !is_empty || fault_in_column(parser, column, &(CsvCell){ .text = from },
                                            "a finite number as label", fault);
    case CSV_KIND_NUMBER:
        if (!read_number(parser, at, column, &block->value[n], &is_empty, fault))
            return false;
        block->key[n] = column;
        break;
    case CSV_KIND_SKIPPED: {
        CsvCell cell;

        return csv_read_cell(at, parser->columns.separator, &cell, fault);
    }
    default:
        if (!read_category(learner, parser, at, column, &block->key[n], &is_empty, fault))
            return false;
    }
    block->field[n] = column;
    block->n_entries += !is_empty;
    return true;
}

static bool read_row(CsvParser *learner, const CsvParser *parser, const char **at, RowBlock *block,
                     RowFault *fault)
{
    const uint32_t n_columns = parser->columns.n_columns, absent = parser->columns.absent;
    const uint32_t n_cells = csv_columns_n_cells(&parser->columns);
    float label = 0;

    if (!row_block_want_rows(block, 1) || !row_block_want_entries(block, n_columns))
        return row_fault_out_of_memory(fault, *at);
    for (uint32_t cell = 0; cell < n_cells; cell++) {
        const uint32_t column = cell + (cell >= absent);

        if (!read_column(learner, parser, at, column, block, &label, fault))
            return false;
        if (cell + 1 == n_cells)
            break;
        if (ends_line(**at)) {
            row_fault(fault, *at, "%u cells, as in the first line", n_cells);
            g_snprintf(fault->found, sizeof fault->found, "%u", cell + 1);
            return false;
        }
        ++*at;
    }
    if (!ends_line(**at))
        return row_fault(fault, *at, "the end of the line behind %u cells", n_cells);
    if (!end_line(at, fault))
        return false;
    row_block_end_row(block, label);
    return true;
}

static bool read_rows(CsvParser *learner, const CsvParser *parser, const RowText *text,
                      RowBlock *block, RowFault *fault)
{
    const char *const end = text->bytes + text->size;

    for (const char *at = text->bytes; at < end;) {
        const char *first = csv_skip_blanks(at, parser->columns.separator);

        if (ends_line(*first) && end_line(&first, fault)) {
            at = first;
        } else if (!read_row(learner, parser, &at, block, fault)) {
            row_block_drop_row(block);
            return false;
        }
    }
    return true;
}

static bool parse(const RowParser *parser, const RowFile *file, const RowText *text,
                  RowBlock *block, RowFault *fault)
{
    (void)file;
    return read_rows(NULL, (const CsvParser *)parser, text, block, fault);
}

static RowLearning learns(const RowParser *base)
{
    const CsvParser *parser = (const CsvParser *)base;

    return parser->codes != NULL                      ? ROW_LEARNS_KEYS
           : label_words_are_learned(&parser->labels) ? ROW_LEARNS_LABELS
                                                      : ROW_LEARNS_NOTHING;
}

static bool learn_codes(CsvParser *parser, const RowText *text, RowFault *fault)
{
    RowBlock passed_over;
    bool ok;

    row_block_init(&passed_over, /* has_fields= */ true);
    ok = read_rows(parser, parser, text, &passed_over, fault);
    row_block_clear(&passed_over);
    return ok;
}

/* The label's cell of a line; false if the line has none. */
static bool find_label_cell(const CsvColumns *columns, const char *at, CsvCell *cell)
{
    const uint32_t place = columns->label - (columns->label > columns->absent);
    RowFault fault;

    for (uint32_t i = 0;; i++, at++) {
        if (!csv_read_cell(&at, columns->separator, cell, &fault))
            return false;
        if (i == place)
            return cell->size > 0 && memchr(cell->text, '\0', cell->size) == NULL;
        if (ends_line(*at))
            return false;
    }
}

/* Takes the labels of whole lines. A line that is no row is left to parse. */
static bool learn_labels(CsvParser *parser, const RowText *text, RowFault *fault)
{
    const char *const end = text->bytes + text->size;

    for (const char *at = text->bytes; at < end;
         at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1) {
        g_autofree char *unquoted = NULL;
        CsvCell cell;
        size_t size;

        if (!find_label_cell(&parser->columns, at, &cell))
            continue;
        size = cell.size;
        if (cell.has_quotes) {
            unquoted = csv_cell_text(&cell, &size);
            if (unquoted == NULL)
                return row_fault_out_of_memory(fault, at);
        }
        if (!label_words_learn(&parser->labels, unquoted != NULL ? unquoted : cell.text, size,
                               cell.text, fault))
            return false;
    }
    return true;
}

static bool learn(RowParser *base, const RowFile *file, const RowText *text, RowFault *fault)
{
    CsvParser *parser = (CsvParser *)base;

    (void)file;
    return (parser->codes == NULL || learn_codes(parser, text, fault)) &&
           (!label_words_are_learned(&parser->labels) || learn_labels(parser, text, fault));
}

static const char *const names[] = { "*.csv", NULL };

const RowParserOps csv_format = {
    .name = "csv",
    .names = names,
    .has_fields = true,
    .check = check,
    .create = create,
    .destroy = destroy,
    .begin_file = begin_file,
    .describe_keys = describe_keys,
    .learns = learns,
    .learn = learn,
    .parse = parse,
};
