/* The columns of CSV files. Runs on the thread that opens the files.
 *
 * The first file that has a line decides the number of columns, their roles and their names; every
 * other file must agree. If the spec has keys, the first file must agree with them. A first line
 * without the label gets an empty cell in its place, so that places in the line are numbers of
 * columns. */
#include "io/data/formats/csv_columns.h"

#include "io/data/formats/csv_evidence.h"

#define HEAD_LINE_MAX ((size_t)64 * 1024)

/* The cells of a first line. */
typedef struct {
    GPtrArray *texts;  /* of char * */
    GArray *is_number; /* of bool: a number or nothing */
    GArray *at;        /* of const char *: where each starts */
} FirstLine;

void csv_columns_init(CsvColumns *columns, const RubatoDataSpec *spec)
{
    *columns =
        (CsvColumns){ .spec = spec,
                      .separator = spec->separator != 0 ? spec->separator : ',',
                      .absent = RUBATO_NO_COLUMN,
                      .label = RUBATO_NO_COLUMN,
                      .keys = spec->keys != NULL && spec->keys->n_columns > 0 ? spec->keys : NULL };
}

void csv_columns_clear(CsvColumns *columns)
{
    g_free(columns->kind);
    g_free(columns->categories);
    g_strfreev(columns->names);
}

void csv_columns_describe(const CsvColumns *columns, uint32_t column, char *text, size_t size)
{
    if (columns->names == NULL)
        g_snprintf(text, size, "%u", column);
    else
        g_snprintf(text, size, "%u (%s)", column, columns->names[column]);
}

/* ---- the first line ---- */

static void first_line_init(FirstLine *line)
{
    line->texts = g_ptr_array_new_with_free_func(g_free);
    line->is_number = g_array_new(FALSE, FALSE, sizeof(bool));
    line->at = g_array_new(FALSE, FALSE, sizeof(const char *));
}

static void first_line_clear(FirstLine *line)
{
    g_ptr_array_free(line->texts, TRUE);
    g_array_free(line->is_number, TRUE);
    g_array_free(line->at, TRUE);
}

/* Adds an empty cell for one that is missing. */
static void first_line_insert(FirstLine *line, uint32_t column, const char *name)
{
    const bool is_number = true;
    const char *at = g_array_index(line->at, const char *, 0);

    g_ptr_array_insert(line->texts, (gint)column, g_strdup(name));
    g_array_insert_val(line->is_number, column, is_number);
    g_array_insert_val(line->at, column, at);
}

static bool split(const char *at, char separator, FirstLine *line, RowFault *fault)
{
    for (;; at++) {
        CsvCell cell;

        if (!csv_read_cell(&at, separator, &cell, fault))
            return false;
        char *text = csv_cell_text(&cell, NULL);
        if (text == NULL)
            return row_fault_out_of_memory(fault, at);
        const bool is_number = csv_is_number_or_empty(text);
        g_ptr_array_add(line->texts, text);
        g_array_append_val(line->is_number, is_number);
        g_array_append_val(line->at, cell.text);
        if (ends_line(*at))
            return true;
        if (line->texts->len == CSV_COLUMNS_MAX)
            return row_fault(fault, at, "the end of the line behind %u columns", CSV_COLUMNS_MAX);
    }
}

/* ---- which column is which ---- */

static bool is_column_number(const char *word)
{
    return *word != '\0' && strspn(word, "0123456789") == strlen(word);
}

/* Whether the spec calls a column by a name. */
static bool asks_by_name(const RubatoDataSpec *spec)
{
    if (spec->label_column != NULL && *spec->label_column != '\0' &&
        !is_column_number(spec->label_column))
        return true;
    for (const char *const *name = spec->categorical_columns; name != NULL && *name != NULL; name++)
        if (!is_column_number(*name))
            return true;
    return false;
}

/* The column that a word of the spec means. */
static bool find_column(const char *word, const FirstLine *line, bool has_header, uint32_t *column,
                        RowFault *fault)
{
    for (uint32_t i = 0; has_header && i < line->texts->len; i++)
        if (strcmp(line->texts->pdata[i], word) == 0) {
            *column = i;
            return true;
        }
    if (is_column_number(word)) {
        const guint64 number = g_ascii_strtoull(word, NULL, 10);

        if (number < line->texts->len) {
            *column = (uint32_t)number;
            return true;
        }
    }
    row_fault(fault, g_array_index(line->at, const char *, 0), "a column \"%.80s\"", word);
    if (has_header)
        g_snprintf(fault->found, sizeof fault->found, "%u others, the first is \"%.60s\"",
                   line->texts->len, (const char *)line->texts->pdata[0]);
    else
        g_snprintf(fault->found, sizeof fault->found, "%u columns without names, counted from 0",
                   line->texts->len);
    return false;
}

/* Which column the label is in, if any. */
static bool find_label(const CsvColumns *columns, const FirstLine *line, bool has_header,
                       uint32_t *column, RowFault *fault)
{
    const RubatoDataSpec *spec = columns->spec;
    const char *const word = spec->label_column != NULL ? spec->label_column : "0";

    if (columns->keys != NULL && spec->skip_labels &&
        (spec->label_column == NULL || *word == '\0')) {
        *column = columns->keys->label_column;
        return true;
    }
    *column = RUBATO_NO_COLUMN;
    return *word == '\0' || find_column(word, line, has_header, column, fault);
}

static void list_categories(CsvColumns *columns)
{
    columns->categories = g_new(uint32_t, columns->n_columns);
    for (uint32_t i = 0; i < columns->n_columns; i++)
        if (columns->kind[i] == CSV_KIND_CATEGORY)
            columns->categories[columns->n_categories++] = i;
}

static bool settle_kinds(CsvColumns *columns, const FirstLine *line, bool has_header,
                         RowFault *fault)
{
    const RubatoDataSpec *spec = columns->spec;
    g_autofree uint8_t *kind = g_new0(uint8_t, line->texts->len); /* CSV_KIND_NUMBER */
    uint32_t label, column;

    if (!find_label(columns, line, has_header, &label, fault))
        return false;
    if (label != RUBATO_NO_COLUMN)
        kind[label] = spec->skip_labels ? CSV_KIND_SKIPPED : CSV_KIND_LABEL;
    for (const char *const *name = spec->categorical_columns; name != NULL && *name != NULL;
         name++) {
        if (!find_column(*name, line, has_header, &column, fault))
            return false;
        if (column == label) {
            row_fault(fault, g_array_index(line->at, const char *, column),
                      "the label not to be a categorical column");
            g_snprintf(fault->found, sizeof fault->found, "that column %u is both", column);
            return false;
        }
        kind[column] = CSV_KIND_CATEGORY;
    }
    columns->kind = g_steal_pointer(&kind);
    columns->n_columns = line->texts->len;
    columns->label = label;
    list_categories(columns);
    return true;
}

/* Whether the cells that must be numbers below a header are numbers: then the first line of a
 * further file is no header. */
static bool looks_like_row(const CsvColumns *columns, const FirstLine *line)
{
    for (uint32_t i = 0; i < line->texts->len; i++)
        if ((columns->kind[i] == CSV_KIND_NUMBER ||
             (columns->kind[i] == CSV_KIND_LABEL && !columns->labels_are_words)) &&
            !g_array_index(line->is_number, bool, i))
            return false;
    return true;
}

/* ---- the model's columns ---- */

static bool mismatch(RowFault *fault)
{
    fault->is_mismatch = true;
    return false;
}

/* Whether the line has the number of the model's columns. If only the label is missing, and may be,
 * an empty cell is inserted for it. */
static bool fit_to_keys(CsvColumns *columns, FirstLine *line, RowFault *fault)
{
    const RubatoDataKeys *keys = columns->keys;
    const bool may_lack = columns->spec->skip_labels && keys->label_column != RUBATO_NO_COLUMN;

    if (line->texts->len == keys->n_columns)
        return true;
    if (may_lack && line->texts->len + 1 == keys->n_columns) {
        columns->absent = keys->label_column;
        first_line_insert(line, columns->absent,
                          keys->column_names != NULL ? keys->column_names[columns->absent] : "");
        return true;
    }
    row_fault(fault, g_array_index(line->at, const char *, 0),
              "%u columns%s, as in the model's rows", keys->n_columns,
              may_lack ? ", or all but the label" : "");
    g_snprintf(fault->found, sizeof fault->found, "%u", line->texts->len);
    return mismatch(fault);
}

/* Takes over the names of a header line. */
static bool compare_names(const RubatoDataKeys *keys, const FirstLine *line, RowFault *fault)
{
    if (keys == NULL || keys->column_names == NULL)
        return true;
    for (uint32_t i = 0; i < keys->n_columns; i++)
        if (strcmp(keys->column_names[i], line->texts->pdata[i]) != 0) {
            row_fault(fault, g_array_index(line->at, const char *, i),
                      "\"%.50s\", the name of column %u in the model's rows", keys->column_names[i],
                      i);
            g_snprintf(fault->found, sizeof fault->found, "\"%.50s\"",
                       (const char *)line->texts->pdata[i]);
            return mismatch(fault);
        }
    return true;
}

static bool compare_kinds(const CsvColumns *columns, const FirstLine *line, RowFault *fault)
{
    const RubatoDataKeys *keys = columns->keys;
    const char *const start = g_array_index(line->at, const char *, 0);

    if (columns->label != keys->label_column) {
        if (keys->label_column == RUBATO_NO_COLUMN)
            row_fault(fault, start, "no label, as in the model's rows");
        else
            row_fault(fault, start, "the label in column %u, as in the model's rows",
                      keys->label_column);
        if (columns->label == RUBATO_NO_COLUMN)
            g_strlcpy(fault->found, "none", sizeof fault->found);
        else
            g_snprintf(fault->found, sizeof fault->found, "it in column %u", columns->label);
        return mismatch(fault);
    }
    for (uint32_t i = 0, k = 0; i < columns->n_columns; i++) {
        const bool wanted = k < keys->n_categorical_columns && keys->categorical_columns[k] == i;
        const bool is_one = columns->kind[i] == CSV_KIND_CATEGORY;

        k += wanted;
        if (wanted == is_one)
            continue;
        row_fault(fault, g_array_index(line->at, const char *, i),
                  "column %u to be %s, as in the model's rows", i,
                  wanted ? "categorical" : "of numbers");
        g_strlcpy(fault->found, is_one ? "a categorical one" : "one of numbers",
                  sizeof fault->found);
        return mismatch(fault);
    }
    return true;
}

/* Whether the missing column is the label, by the names or by the spec. */
static bool check_absent(const CsvColumns *columns, const FirstLine *line, bool has_header,
                         RowFault *fault)
{
    const char *const label = columns->spec->label_column;

    if (columns->absent == RUBATO_NO_COLUMN ||
        (has_header && columns->keys->column_names != NULL) || (label != NULL && *label == '\0'))
        return true;
    row_fault(fault, g_array_index(line->at, const char *, 0), "%u columns, as in the model's rows",
              columns->n_columns);
    g_snprintf(fault->found, sizeof fault->found,
               "%u, and no names to show that only the label is missing",
               csv_columns_n_cells(columns));
    return mismatch(fault);
}

/* ---- files ---- */

/* Whether a line has these names; NULL: there are none that it could have. */
static bool has_names(const char *const *names, const FirstLine *line)
{
    for (uint32_t i = 0; names != NULL && i < line->texts->len; i++)
        if (strcmp(names[i], line->texts->pdata[i]) != 0)
            return false;
    return names != NULL;
}

/* The lines behind the first, as far as the head of the file has them as a whole; of the copy's
 * size. (transfer full) */
static char *copy_below(const RowText *head, const char *newline, size_t *size)
{
    const char *const end = head->bytes + head->size;
    const size_t n = newline != NULL ? MIN((size_t)(end - newline) - 1, CSV_EVIDENCE_BYTES) : 0;
    char *copy = g_malloc0(n + 1 + ROW_TEXT_PADDING);

    if (n > 0)
        memcpy(copy, newline + 1, n);
    *size = n;
    if (n > 0 && head->size < HEAD_LINE_MAX && copy[n - 1] != '\n')
        copy[(*size)++] = '\n'; /* the file ends here */
    while (*size > 0 && copy[*size - 1] != '\n')
        --*size;
    return copy;
}

/* The first file decides everything. */
static bool settle(CsvColumns *columns, FirstLine *line, const char *below, size_t below_size,
                   bool *has_header, RowFault *fault)
{
    const RubatoCsvHeader header = columns->spec->header;
    CsvEvidence evidence;

    if (columns->keys != NULL && !fit_to_keys(columns, line, fault))
        return false;
    *has_header = header == RUBATO_CSV_HEADER_YES ||
                  (header == RUBATO_CSV_HEADER_AUTO && asks_by_name(columns->spec));
    if (*has_header && !compare_names(columns->keys, line, fault))
        return false;
    if (!settle_kinds(columns, line, *has_header, fault))
        return false;
    evidence = csv_evidence_find(columns, (const char *const *)line->texts->pdata, below,
                                 below_size, *has_header);
    columns->labels_are_words =
        columns->keys != NULL ? columns->keys->label_words != NULL : evidence.labels_are_words;
    if (header == RUBATO_CSV_HEADER_AUTO && !*has_header) {
        *has_header = evidence.is_header ||
                      (columns->keys != NULL && has_names(columns->keys->column_names, line));
        if (*has_header && !compare_names(columns->keys, line, fault))
            return false;
    }
    if (columns->keys != NULL &&
        (!check_absent(columns, line, *has_header, fault) || !compare_kinds(columns, line, fault)))
        return false;
    if (*has_header) {
        columns->names = g_new0(char *, line->texts->len + 1);
        for (uint32_t i = 0; i < line->texts->len; i++)
            columns->names[i] = g_strdup(line->texts->pdata[i]);
    }
    return true;
}

/* Another file: it must be like the first. A file without a header may follow one with a header. */
static bool compare(const CsvColumns *columns, FirstLine *line, bool *has_header, RowFault *fault)
{
    const char *const start = g_array_index(line->at, const char *, 0);

    *has_header = false;
    if (line->texts->len != csv_columns_n_cells(columns)) {
        row_fault(fault, start, "%u columns, as in the first file", csv_columns_n_cells(columns));
        g_snprintf(fault->found, sizeof fault->found, "%u", line->texts->len);
        return false;
    }
    if (columns->absent != RUBATO_NO_COLUMN)
        first_line_insert(line, columns->absent,
                          columns->names != NULL ? columns->names[columns->absent] : "");
    if (columns->names == NULL)
        return true;
    *has_header = has_names((const char *const *)columns->names, line);
    if (*has_header ||
        (columns->spec->header == RUBATO_CSV_HEADER_AUTO && looks_like_row(columns, line)))
        return true;
    for (uint32_t i = 0; i < columns->n_columns; i++)
        if (strcmp(columns->names[i], line->texts->pdata[i]) != 0)
            return row_fault(fault, g_array_index(line->at, const char *, i),
                             "\"%.60s\", the name of column %u in the first file",
                             columns->names[i], i);
    return true;
}

static bool take_in(CsvColumns *columns, const char *text, const RowText *head, const char *newline,
                    bool *has_header, RowFault *fault)
{
    size_t below_size;
    g_autofree char *below = copy_below(head, newline, &below_size);
    FirstLine line;
    bool ok;

    first_line_init(&line);
    ok = split(text, columns->separator, &line, fault) &&
         (columns->n_columns == 0 ? settle(columns, &line, below, below_size, has_header, fault)
                                  : compare(columns, &line, has_header, fault));
    first_line_clear(&line);
    return ok;
}

bool csv_columns_begin_file(CsvColumns *columns, const RowText *head, uint64_t *first_row,
                            RowFault *fault)
{
    const char *const end = head->bytes + head->size;
    const char *from = head->bytes, *newline;
    bool has_header = false, ok;

    if (head->size >= 3 && memcmp(from, "\xef\xbb\xbf", 3) == 0)
        from += 3; /* the byte order mark that some programs put first */
    while (from < end && csv_ends_cell(*csv_skip_blanks(from, columns->separator), '\n'))
        if ((from = memchr(from, '\n', (size_t)(end - from))) == NULL || ++from == end) {
            *first_row = head->size; /* the file has only blanks */
            return true;
        }
    *first_row = (uint64_t)(from - head->bytes);
    if (from == end)
        return true;
    newline = memchr(from, '\n', (size_t)(end - from));
    if (newline == NULL && head->size >= HEAD_LINE_MAX)
        return row_fault(fault, from, "the first line to end within %zu bytes", HEAD_LINE_MAX);

    /* A copy that ends in a newline, whatever the file does. */
    const size_t size = (size_t)((newline != NULL ? newline : end) - from);
    g_autofree char *copy = g_malloc0(size + 1 + ROW_TEXT_PADDING);
    memcpy(copy, from, size);
    copy[size] = '\n';
    ok = take_in(columns, copy, head, newline, &has_header, fault);
    if (!ok)
        fault->at = from + (fault->at - copy);
    else if (has_header)
        *first_row += size + (newline != NULL);
    return ok;
}
