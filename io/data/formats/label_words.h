/* Labels that are words: each stands for its place, from 0, among all of them in the order of
 * their bytes.
 *
 * Threads: label_words_learn from one at a time; the rest reads only. */
#ifndef RUBATO_IO_DATA_FORMATS_LABEL_WORDS_H
#define RUBATO_IO_DATA_FORMATS_LABEL_WORDS_H

#include "io/data/formats/row_text.h"

#define LABEL_WORDS_MAX 65536u

typedef struct {
    GPtrArray *words; /* of char *, ascending, and NULL behind them; NULL: labels are numbers */
    bool known;       /* the model's: nothing is learned */
} LabelWords;

/* known: the model's words, ended by NULL; NULL: they will be learned. */
void label_words_init(LabelWords *labels, const char *const *known);
void label_words_clear(LabelWords *labels);

/* How many words there are. */
uint32_t label_words_n(const LabelWords *labels);

/* Whether labels are words that must be learned from all rows. */
bool label_words_are_learned(const LabelWords *labels);

/* Fills in what the keys tell of labels, if they are words. */
void label_words_describe(const LabelWords *labels, RubatoDataKeys *keys);

/* Takes a label; `at` is its place in the text, for the fault. */
bool label_words_learn(LabelWords *labels, const char *text, size_t size, const char *at,
                       RowFault *fault);

/* The place of a label; false if it is none of the words. */
bool label_words_find(const LabelWords *labels, const char *text, size_t size, float *place);

#endif
