/* What the beginning of a CSV file shows: whether its first line names the columns, and whether
 * its labels are words.
 *
 * A column has numbers or words, whichever most of its cells below the first line are. A line of
 * names has words where the column has numbers, or words that do not come again in their columns.
 *
 * Threads: any; nothing is kept. */
#ifndef RUBATO_IO_DATA_FORMATS_CSV_EVIDENCE_H
#define RUBATO_IO_DATA_FORMATS_CSV_EVIDENCE_H

#include "io/data/formats/csv_columns.h"

/* How much of a file is looked at. */
#define CSV_EVIDENCE_BYTES ((size_t)64 * 1024)

typedef struct {
    bool is_header;        /* the first line */
    bool labels_are_words; /* if there is a column of labels */
} CsvEvidence;

/* Looks at a file. The columns have their kinds; first: their texts in the first line, n_columns;
 * `below`: whole lines, size bytes, ended by a newline and ROW_TEXT_PADDING bytes more; 0: none.
 * is_known_header: the spec says that the first line is one. */
CsvEvidence csv_evidence_find(const CsvColumns *columns, const char *const *first,
                              const char *below, size_t size, bool is_known_header);

/* Whether a cell is a number; or nothing. */
bool csv_is_number_or_empty(const char *text);

#endif
