/* Rows made from a factorisation machine whose weights are known, so that a program that learns one
 * can be compared with the best possible model.
 *
 * Each row has one entry of value 1 in each field. Its score is that of the true model, and its
 * label is drawn by the score. Everything depends on the spec's seed and the row's number, so
 * another range of numbers is a test set.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_DATA_FACTOR_ROWS_H
#define TESTS_SUPPORT_DATA_FACTOR_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t n_fields;
    uint32_t n_values;  /* of each field; the keys of field f are f × n_values + 1, … */
    uint32_t n_factors; /* of the true model */
    bool field_aware;   /* a value has other factors against each field */
    bool ratings;       /* the label is the score and some noise; otherwise −1 or 1, logistic */
    double skew;        /* value n_values × u^skew, u even in [0, 1); 0 means 1: all alike */
    double linear;      /* standard deviation of the linear terms' part of the score */
    double pairs;       /* … and of the pairs' */
    uint64_t seed;
} FactorRows;

/* Writes rows first .. first + n - 1, as libffm if the path ends in .ffm, otherwise as libsvm. True
 * scores and labels go to arrays of n, unless these are NULL. False with errno if the file cannot
 * be written. */
bool factor_rows_write(const FactorRows *spec, const char *path, uint64_t first, size_t n,
                       double *scores, double *labels);

#endif
