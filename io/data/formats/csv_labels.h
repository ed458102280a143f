/* Labels that are words: each stands for its place, from 0, among all of them in the order of
 * their bytes.
 *
 * Threads: csv_labels_learn from one at a time; the rest reads only. */
#ifndef RUBATO_IO_DATA_FORMATS_CSV_LABELS_H
#define RUBATO_IO_DATA_FORMATS_CSV_LABELS_H

#include "io/data/formats/csv_columns.h"

#define CSV_LABELS_MAX 65536u

typedef struct {
    GPtrArray *words; /* of char *, ascending, and NULL behind them; NULL: labels are numbers */
    bool known;       /* the model's: nothing is learned */
} CsvLabels;

/* known: the model's words, ended by NULL; NULL: they will be learned. */
void csv_labels_init(CsvLabels *labels, const char *const *known);
void csv_labels_clear(CsvLabels *labels);

/* How many words there are. */
uint32_t csv_labels_n(const CsvLabels *labels);

/* Takes the labels of whole lines. A line that is no row is left to the parser. */
bool csv_labels_learn(CsvLabels *labels, const CsvColumns *columns, const RowText *text,
                      RowFault *fault);

/* The place of a cell's text; false if it is none of the words. */
bool csv_labels_find(const CsvLabels *labels, const CsvCell *cell, float *place);

#endif
