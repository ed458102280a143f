/* Cells of a line of CSV (RFC 4180, but a cell does not go over lines): plain or in quotes, "" for
 * a quote within those; blanks around a cell do not count.
 *
 * Threads: any. */
#ifndef RUBATO_IO_DATA_FORMATS_CSV_CELL_H
#define RUBATO_IO_DATA_FORMATS_CSV_CELL_H

#include "io/data/formats/row_text.h"

typedef struct {
    const char *text; /* within quotes: without them, as it stands in the file */
    size_t size;
    bool has_quotes; /* "" in it stands for " */
} CsvCell;

static inline const char *csv_skip_blanks(const char *at, char separator)
{
    while (is_blank(*at) && *at != separator)
        at++;
    return at;
}

static inline bool csv_ends_cell(char c, char separator)
{
    return c == separator || ends_line(c);
}

/* Reads the cell at *at; *at is then at the separator or the end of the line behind it. */
bool csv_read_cell(const char **at, char separator, CsvCell *cell, RowFault *fault);

/* Says what a cell has instead of what was expected. */
bool csv_cell_fault(RowFault *fault, const CsvCell *cell, const char *expected);

/* A cell's text without its quotes, ended by zero; NULL if there is no memory. (transfer full) */
char *csv_cell_text(const CsvCell *cell, size_t *size);

#endif
