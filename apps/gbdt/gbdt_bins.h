/* Values as small numbers: a column's values are cut into at most 255 ranges, its bins. Bin 0 is
 * for rows without a value.
 *
 * Threads: any; a value that nobody changes has many. */
#ifndef RUBATO_APPS_GBDT_GBDT_BINS_H
#define RUBATO_APPS_GBDT_GBDT_BINS_H

#include "apps/kit/scores/app_dense.h"

#define GBDT_BINS_MAX 256

typedef struct {
    uint32_t n_columns;
    uint32_t *starts; /* n_columns + 1: the number of a column's first bin among all */
    float **cuts;     /* of each column, ascending: bin b > 0 has values below its cut b - 1 and not
                       * below the one before */
} GbdtBins;

/* Cuts columns so that bins have about as many of these rows each, or one value each if there are
 * no more than n_bins - 1. */
void gbdt_bins_cut(GbdtBins *bins, const AppDense *rows, uint32_t n_bins);

/* A zeroed one is allowed. */
void gbdt_bins_clear(GbdtBins *bins);

/* The bins of n rows, n × n_columns. NaN: there is no value. */
void gbdt_bins_of(const GbdtBins *bins, const float *values, size_t n, uint8_t *result);

/* All bins of all columns. */
static inline uint32_t gbdt_bins_n(const GbdtBins *bins)
{
    return bins->starts[bins->n_columns];
}

#endif
