/* Cells of CSV. Runs on the thread that parses, keeps nothing. */
#include "io/data/formats/csv_cell.h"

#define SHOWN_MAX 24

static bool read_quoted(const char **at, char separator, CsvCell *cell, RowFault *fault)
{
    const char *const text = *at + 1, *end = text;

    *cell = (CsvCell){ .text = text };
    for (; *end != '\n'; end++) {
        if (*end != '"')
            continue;
        if (end[1] != '"')
            break;
        cell->has_quotes = true;
        end++;
    }
    if (*end == '\n')
        return row_fault(fault, end, "a closing quote on the same line");
    cell->size = (size_t)(end - text);
    *at = csv_skip_blanks(end + 1, separator);
    if (!csv_ends_cell(**at, separator))
        return row_fault(fault, *at, "\"%c\" or the end of the line behind a quoted cell",
                         separator);
    return true;
}

bool csv_read_cell(const char **at, char separator, CsvCell *cell, RowFault *fault)
{
    const char *const from = csv_skip_blanks(*at, separator), *end;

    *at = from;
    if (*from == '"')
        return read_quoted(at, separator, cell, fault);
    for (end = from; !csv_ends_cell(*end, separator); end++)
        ;
    *at = end;
    while (end > from && is_blank(end[-1]))
        end--;
    *cell = (CsvCell){ .text = from, .size = (size_t)(end - from) };
    return true;
}

bool csv_cell_fault(RowFault *fault, const CsvCell *cell, const char *expected)
{
    g_autofree char *shown = g_strndup(cell->text, MIN(cell->size, SHOWN_MAX));
    g_autofree char *escaped = g_strescape(shown, NULL);

    row_fault(fault, cell->text, "%s", expected);
    if (cell->size == 0)
        g_strlcpy(fault->found, "an empty cell", sizeof fault->found);
    else if (*cell->text != '\0') /* which the caller has a word for */
        g_snprintf(fault->found, sizeof fault->found, "\"%s\"", escaped);
    return false;
}

char *csv_cell_text(const CsvCell *cell, size_t *size)
{
    char *text = g_try_malloc(cell->size + 1), *to = text;

    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < cell->size; i++) {
        *to++ = cell->text[i];
        if (cell->has_quotes && cell->text[i] == '"')
            i++; /* its reference run */
    }
    *to = '\0';
    if (size != NULL)
        *size = (size_t)(to - text);
    return text;
}
