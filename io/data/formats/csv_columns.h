/* The columns of CSV files: given by a spec and the first line of each file.
 *
 * Columns have numbers from 0; keys, fields and hashes are made from these. A line has a cell for
 * each column, in this order. Only the label's column may be absent, if the spec's keys say which
 * it is.
 *
 * Threads: columns_begin_file from one at a time; the rest is read only. */
#ifndef RUBATO_IO_DATA_FORMATS_CSV_COLUMNS_H
#define RUBATO_IO_DATA_FORMATS_CSV_COLUMNS_H

#include "io/data/formats/csv_cell.h"

#define CSV_COLUMNS_MAX 1000000u

typedef enum {
    CSV_KIND_NUMBER,
    CSV_KIND_CATEGORY,
    CSV_KIND_LABEL,
    CSV_KIND_SKIPPED, /* a label that is not used */
} CsvKind;

typedef struct {
    const RubatoDataSpec *spec;
    const RubatoDataKeys *keys; /* what the columns must be; NULL: anything */
    char separator;
    uint32_t n_columns; /* 0: no file had a line yet */
    uint32_t absent;    /* the column without cells, a label; RUBATO_NO_COLUMN: none */
    uint32_t label;     /* RUBATO_NO_COLUMN: none */
    uint8_t *kind;      /* CsvKind of each */
    bool labels_are_words;
    char **names;         /* NULL: there is no header; ended by NULL */
    uint32_t *categories; /* n_categories columns, ascending */
    uint32_t n_categories;
} CsvColumns;

/* The cells of a line. */
static inline uint32_t csv_columns_n_cells(const CsvColumns *columns)
{
    return columns->n_columns - (columns->absent != RUBATO_NO_COLUMN);
}

/* The spec stays the caller's. */
void csv_columns_init(CsvColumns *columns, const RubatoDataSpec *spec);
void csv_columns_clear(CsvColumns *columns);

/* Reads the first line of a file, and compares it with that of the first file. *first_row is then
 * the offset of the first row. */
bool csv_columns_begin_file(CsvColumns *columns, const RowText *head, uint64_t *first_row,
                            RowFault *fault);

/* "3 (age)", as messages call a column. */
void csv_columns_describe(const CsvColumns *columns, uint32_t column, char *text, size_t size);

#endif
