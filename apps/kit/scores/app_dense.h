/* Rows as a dense matrix: the value of key j of a row stands in column j.
 *
 * Threads: any; a value belongs to one. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_DENSE_H
#define RUBATO_APPS_KIT_SCORES_APP_DENSE_H

#include <rubato/data.h>

#include "apps/kit/scores/app_features.h"

/* The most columns of a matrix. */
#define APP_DENSE_COLUMNS_MAX (1u << 20)

typedef struct {
    size_t n_rows;
    uint32_t n_columns;
    float *values; /* n_rows × n_columns */
    float *labels; /* n_rows */
} AppDense;

void app_dense_clear(AppDense *dense);

/* How many columns rows need. RUBATO_ERROR_FORMAT, with the flag's value as the rows' name, if they
 * have no entry, or keys that are too large for a matrix, such as hashes of words. */
bool app_dense_columns(RubatoDataset *rows, const char *source, uint32_t *n_columns,
                       GError **error);

/* Reads all that a reader gives, in its order, and frees the reader. The reader may be NULL after
 * an error; then the result is false, too. absent: the value where a row has no entry. scaling: by
 * what values are standardised; NULL: they are not. RUBATO_ERROR_RANGE if a row has a key that is
 * no column, RUBATO_ERROR_MEMORY. If it fails, *dense must still be cleared. (reader: transfer
 * full) */
bool app_dense_read(AppDense *dense, RubatoReader *reader, uint32_t n_columns, float absent,
                    const AppFeatures *scaling, GError **error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(AppDense, app_dense_clear)

#endif
