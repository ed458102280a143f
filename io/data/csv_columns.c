/* The columns of CSV files. Runs on the thread that opens the files.
 *
 * The first file that has a line settles how many there are, which they are, and their names; every
 * other must agree. */
#include "io/data/csv_columns.h"

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
        (CsvColumns){ .spec = spec, .separator = spec->separator != 0 ? spec->separator : ',' };
}

void csv_columns_clear(CsvColumns *columns)
{
    g_free(columns->kind);
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

static bool is_number_or_empty(const char *text)
{
    g_autofree char *padded = g_malloc0(strlen(text) + ROW_TEXT_PADDING);
    const char *end = padded;
    float number;

    memcpy(padded, text, strlen(text));
    return *text == '\0' || (read_float(padded, &end, &number) == DECIMAL_OK && *end == '\0');
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
        const bool is_number = is_number_or_empty(text);
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

static bool settle_kinds(CsvColumns *columns, const FirstLine *line, bool has_header,
                         RowFault *fault)
{
    const RubatoDataSpec *spec = columns->spec;
    const char *const label = spec->label_column != NULL ? spec->label_column : "0";
    g_autofree uint8_t *kind = g_new0(uint8_t, line->texts->len); /* CSV_NUMBER */
    uint32_t column;

    if (*label != '\0') {
        if (!find_column(label, line, has_header, &column, fault))
            return false;
        kind[column] = CSV_LABEL;
    }
    for (const char *const *name = spec->categorical_columns; name != NULL && *name != NULL;
         name++) {
        if (!find_column(*name, line, has_header, &column, fault))
            return false;
        if (kind[column] == CSV_LABEL) {
            row_fault(fault, g_array_index(line->at, const char *, column),
                      "the label not to be a categorical column");
            g_snprintf(fault->found, sizeof fault->found, "that column %u is both", column);
            return false;
        }
        kind[column] = CSV_CATEGORY;
    }
    columns->kind = g_steal_pointer(&kind);
    columns->n_columns = line->texts->len;
    return true;
}

/* Whether what must be numbers below a header are: then the line is none. */
static bool looks_like_row(const CsvColumns *columns, const FirstLine *line)
{
    for (uint32_t i = 0; i < line->texts->len; i++)
        if (columns->kind[i] != CSV_CATEGORY && !g_array_index(line->is_number, bool, i))
            return false;
    return true;
}

/* The first file: settles everything. */
static bool settle(CsvColumns *columns, const FirstLine *line, bool *has_header, RowFault *fault)
{
    const RubatoCsvHeader header = columns->spec->header;

    *has_header = header == RUBATO_CSV_HEADER_YES ||
                  (header == RUBATO_CSV_HEADER_AUTO && asks_by_name(columns->spec));
    if (!settle_kinds(columns, line, *has_header, fault))
        return false;
    if (header == RUBATO_CSV_HEADER_AUTO && !*has_header)
        *has_header = !looks_like_row(columns, line);
    if (*has_header) {
        columns->names = g_new0(char *, line->texts->len + 1);
        for (uint32_t i = 0; i < line->texts->len; i++)
            columns->names[i] = g_strdup(line->texts->pdata[i]);
    }
    return true;
}

/* Another file: it must be like the first. One without a header may follow one that has one. */
static bool compare(const CsvColumns *columns, const FirstLine *line, bool *has_header,
                    RowFault *fault)
{
    const char *const start = g_array_index(line->at, const char *, 0);

    *has_header = false;
    if (line->texts->len != columns->n_columns) {
        row_fault(fault, start, "%u columns, as in the first file", columns->n_columns);
        g_snprintf(fault->found, sizeof fault->found, "%u", line->texts->len);
        return false;
    }
    if (columns->names == NULL ||
        (columns->spec->header == RUBATO_CSV_HEADER_AUTO && looks_like_row(columns, line)))
        return true;
    for (uint32_t i = 0; i < columns->n_columns; i++)
        if (strcmp(columns->names[i], line->texts->pdata[i]) != 0)
            return row_fault(fault, g_array_index(line->at, const char *, i),
                             "\"%.60s\", the name of column %u in the first file",
                             columns->names[i], i);
    *has_header = true;
    return true;
}

static bool take_in(CsvColumns *columns, const char *text, bool *has_header, RowFault *fault)
{
    FirstLine line;
    bool ok;

    first_line_init(&line);
    ok = split(text, columns->separator, &line, fault) &&
         (columns->n_columns == 0 ? settle(columns, &line, has_header, fault)
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
            *first_row = head->size; /* nothing but blanks */
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
    ok = take_in(columns, copy, &has_header, fault);
    if (!ok)
        fault->at = from + (fault->at - copy);
    else if (has_header)
        *first_row += size + (newline != NULL);
    return ok;
}
