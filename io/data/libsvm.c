/* Reads libsvm files: a buffer takes in blocks of bytes, whole lines of it are parsed where they
 * lie, the rest of a line moves to the front of the buffer.
 *
 * Invariant: every line that is parsed ends in a newline, which is what stops all inner loops; one
 * is put behind a last line that has none. Runs on the caller's thread. */
#include "io/data/libsvm.h"

#include <string.h>

#include "io/data/decimal.h"

#define BLOCK_BYTES ((size_t)256 * 1024)
#define LINE_MAX_BYTES ((size_t)1 << 30)
#define ROWS_FIRST ((size_t)1024)
#define ENTRIES_FIRST ((size_t)16 * 1024)
#define FOUND_MAX 24

typedef struct {
    const char *name;
    size_t line; /* from 1 */

    size_t n_rows, rows_capacity; /* row_start has one more */
    size_t n_entries, entries_capacity;
    uint32_t n_columns;
    size_t *row_start;
    uint32_t *index;
    float *value;
    float *label;
} Parser;

static void parser_clear(Parser *parser)
{
    g_free(parser->row_start);
    g_free(parser->index);
    g_free(parser->value);
    g_free(parser->label);
}

/* NULL where there is no memory: the array then stays as it was. */
static void *resized(void *array, size_t n, size_t size)
{
    if (n > SIZE_MAX / size)
        return NULL;
    return g_try_realloc(array, MAX(n, 1) * size);
}

static bool out_of_memory(const Parser *parser, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "%s:%zu: no memory for more than %zu rows with %zu entries; split the file",
                parser->name, parser->line, parser->n_rows, parser->n_entries);
    return false;
}

static bool resize_rows(Parser *parser, size_t n)
{
    if (n >= SIZE_MAX / 2)
        return false;
    size_t *row_start = resized(parser->row_start, n + 1, sizeof *row_start);
    if (row_start == NULL)
        return false;
    parser->row_start = row_start;
    float *label = resized(parser->label, n, sizeof *label);
    if (label == NULL)
        return false;
    parser->label = label;
    parser->rows_capacity = n;
    return true;
}

static bool resize_entries(Parser *parser, size_t n)
{
    if (n >= SIZE_MAX / 2)
        return false;
    uint32_t *index = resized(parser->index, n, sizeof *index);
    if (index == NULL)
        return false;
    parser->index = index;
    float *value = resized(parser->value, n, sizeof *value);
    if (value == NULL)
        return false;
    parser->value = value;
    parser->entries_capacity = n;
    return true;
}

static inline bool ends_token(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#';
}

static inline const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Reports what stands at `at`, up to the next blank, in place of what was expected. */
static bool malformed(const Parser *parser, const char *line, const char *at, GError **error,
                      const char *expected)
{
    size_t length = 0;

    while (length < FOUND_MAX && !ends_token(at[length]))
        length++;
    g_autofree char *token = g_strndup(at, length);
    g_autofree char *found = g_strescape(token, NULL);
    const char *quote = "\"";
    const char *what = found;
    if (length == 0 || token[0] == '\0') {
        quote = "";
        what = length > 0                   ? "a zero byte"
               : *at == '\n' || *at == '\r' ? "the end of the line"
               : *at == '#'                 ? "a comment"
                                            : "a blank";
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s:%zu:%zu: expected %s, found %s%s%s",
                parser->name, parser->line, (size_t)(at - line) + 1, expected, quote, what, quote);
    return false;
}

/* A number that fills its token. */
static bool parse_number(const Parser *parser, const char *line, const char **at,
                         const char *expected, float *number, GError **error)
{
    const char *end = *at;
    const DecimalStatus status = decimal_read_float(*at, &end, number);

    if (status == DECIMAL_TOO_LARGE)
        return malformed(parser, line, *at, error, "a number within the range of a float");
    if (status != DECIMAL_OK || !ends_token(*end))
        return malformed(parser, line, *at, error, expected);
    *at = end;
    return true;
}

static bool parse_entry(Parser *parser, const char *line, const char **at, uint32_t *last,
                        GError **error)
{
    const char *end = *at;
    uint32_t index = 0;

    if (parser->n_entries == parser->entries_capacity &&
        !resize_entries(parser, parser->entries_capacity * 2))
        return out_of_memory(parser, error);

    const DecimalStatus status = decimal_read_index(*at, &end, &index);
    if (status == DECIMAL_NO_NUMBER || (status == DECIMAL_OK && *end != ':'))
        return malformed(parser, line, *at, error, "index:value");
    if (status == DECIMAL_TOO_LARGE || index == 0)
        return malformed(parser, line, *at, error, "an index from 1 to 4294967295");
    if (index <= *last) {
        char expected[80];

        g_snprintf(expected, sizeof expected, "an index above %u (they must ascend)", *last);
        return malformed(parser, line, *at, error, expected);
    }
    end++;
    if (!parse_number(parser, line, &end, "a finite number as value",
                      &parser->value[parser->n_entries], error))
        return false;
    parser->index[parser->n_entries++] = index;
    *last = index;
    *at = end;
    return true;
}

/* Parses the line at `line`; *next is then behind its newline. */
static bool parse_line(Parser *parser, const char *line, const char **next, GError **error)
{
    const char *at = skip_blanks(line);
    uint32_t last = 0;

    if (!ends_token(*at)) {
        if (parser->n_rows == parser->rows_capacity &&
            !resize_rows(parser, parser->rows_capacity * 2))
            return out_of_memory(parser, error);
        if (!parse_number(parser, line, &at, "a finite number as label",
                          &parser->label[parser->n_rows], error))
            return false;
        for (at = skip_blanks(at); !ends_token(*at); at = skip_blanks(at))
            if (!parse_entry(parser, line, &at, &last, error))
                return false;
        parser->row_start[++parser->n_rows] = parser->n_entries;
        parser->n_columns = MAX(parser->n_columns, last);
    }
    if (*at == '#')
        while (*at != '\n')
            at++;
    else if (*at == '\r')
        at++;
    if (*at != '\n')
        return malformed(parser, line, at, error, "the end of the line behind a carriage return");
    *next = at + 1;
    parser->line++;
    return true;
}

static bool parse_lines(Parser *parser, const char *text, const char *end, GError **error)
{
    while (text < end)
        if (!parse_line(parser, text, &text, error))
            return false;
    return true;
}

static bool parse_source(Parser *parser, ByteSource *source, GError **error)
{
    size_t capacity = BLOCK_BYTES, filled = 0, got;
    g_autofree char *buffer = g_try_malloc(capacity + 1);

    if (buffer == NULL || !resize_rows(parser, ROWS_FIRST) ||
        !resize_entries(parser, ENTRIES_FIRST))
        return out_of_memory(parser, error);
    parser->row_start[0] = 0;

    for (;;) {
        if (!byte_source_read(source, buffer + filled, capacity - filled, &got, error))
            return false;
        const bool at_end = got < capacity - filled;
        filled += got;
        if (at_end && filled > 0 && buffer[filled - 1] != '\n')
            buffer[filled++] = '\n'; /* capacity leaves room for it */

        size_t whole = filled;
        while (whole > 0 && buffer[whole - 1] != '\n')
            whole--;
        if (!parse_lines(parser, buffer, buffer + whole, error))
            return false;
        if (at_end)
            return true;
        filled -= whole;
        memmove(buffer, buffer + whole, filled);
        if (filled < capacity)
            continue;
        if (capacity >= LINE_MAX_BYTES) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "%s:%zu:%zu: expected the end of the line within 2^30 bytes", parser->name,
                        parser->line, filled);
            return false;
        }
        char *larger = resized(buffer, capacity * 2 + 1, 1);
        if (larger == NULL)
            return out_of_memory(parser, error);
        buffer = larger;
        capacity *= 2;
    }
}

RubatoSparseRows *libsvm_read(ByteSource *source, GError **error)
{
    Parser parser = { .name = byte_source_name(source), .line = 1 };

    if (!parse_source(&parser, source, error)) {
        parser_clear(&parser);
        return NULL;
    }
    if (parser.n_rows == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s:%zu:1: expected a row (label index:value ...), found the end of the file",
                    parser.name, parser.line);
        parser_clear(&parser);
        return NULL;
    }
    /* Gives back what doubling took too much; shrinking does not fail, and if, harms nobody. */
    (void)resize_rows(&parser, parser.n_rows);
    (void)resize_entries(&parser, parser.n_entries);

    RubatoSparseRows *rows = g_new0(RubatoSparseRows, 1);
    rows->n_rows = parser.n_rows;
    rows->n_entries = parser.n_entries;
    rows->n_columns = parser.n_columns;
    rows->row_start = parser.row_start;
    rows->index = parser.index;
    rows->value = parser.value;
    rows->label = parser.label;
    return rows;
}

RubatoSparseRows *rubato_libsvm_load(const char *path, GError **error)
{
    g_return_val_if_fail(path != NULL, NULL);

    g_autoptr(ByteSource) source = byte_source_open(path, error);
    return source != NULL ? libsvm_read(source, error) : NULL;
}

void rubato_sparse_rows_free(RubatoSparseRows *rows)
{
    if (rows == NULL)
        return;
    g_free((void *)rows->row_start);
    g_free((void *)rows->index);
    g_free((void *)rows->value);
    g_free((void *)rows->label);
    g_free(rows);
}
