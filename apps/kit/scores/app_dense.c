/* Rows as a dense matrix, read batch by batch. */
#include "apps/kit/scores/app_dense.h"

#include <string.h>

void app_dense_clear(AppDense *dense)
{
    g_free(dense->values);
    g_free(dense->labels);
    *dense = (AppDense){ .values = NULL };
}

bool app_dense_columns(RubatoDataset *rows, const char *source, uint32_t *n_columns, GError **error)
{
    RubatoDataSummary summary;

    if (!rubato_dataset_summary(rows, &summary, error))
        return false;
    if (summary.n_entries == 0 || summary.max_key >= APP_DENSE_COLUMNS_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    summary.n_entries == 0
                        ? "%s: expected rows with values, found none"
                        : "%s: keys go up to %" G_GUINT64_FORMAT ", and a matrix has at most %u "
                          "columns; words become columns with --hash-bits 10, for example",
                    source, summary.max_key, APP_DENSE_COLUMNS_MAX);
        return false;
    }
    *n_columns = (uint32_t)summary.max_key + 1;
    return true;
}

/* Makes room for more rows. */
static bool grow(AppDense *dense, size_t n_more, size_t *n_max, GError **error)
{
    const size_t n = dense->n_rows + n_more, row_bytes = dense->n_columns * sizeof(float);

    if (n <= *n_max)
        return true;
    const size_t n_new = MAX(n, 2 * *n_max);
    float *values =
        n_new <= SIZE_MAX / row_bytes ? g_try_realloc(dense->values, n_new * row_bytes) : NULL;
    if (values != NULL)
        dense->values = values;
    float *labels = values != NULL ? g_try_realloc_n(dense->labels, n_new, sizeof *labels) : NULL;
    if (labels == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for a matrix of %zu rows and %u columns", n_new, dense->n_columns);
        return false;
    }
    dense->labels = labels;
    *n_max = n_new;
    return true;
}

bool app_dense_read(AppDense *dense, RubatoReader *reader, uint32_t n_columns, float absent,
                    const AppFeatures *scaling, GError **error)
{
    g_autoptr(RubatoReader) own = reader;
    g_autoptr(RubatoBatch) batch = NULL;
    AppScaledBatch scaled = { .values = NULL };
    size_t n_max = 0;
    bool good = reader != NULL;

    *dense = (AppDense){ .n_columns = n_columns };
    while (good && rubato_reader_next(own, &batch, error)) {
        const RubatoBatch *rows = scaling != NULL ? &scaled.batch : batch;

        good = (scaling == NULL || app_scaled_batch_fill(&scaled, scaling, batch, error)) &&
               grow(dense, batch->n_rows, &n_max, error) &&
               rubato_batch_fill_matrix(rows, 0, n_columns, absent,
                                        dense->values + dense->n_rows * n_columns, error);
        if (good) {
            memcpy(dense->labels + dense->n_rows, batch->label,
                   batch->n_rows * sizeof *batch->label);
            dense->n_rows += batch->n_rows;
        }
    }
    app_scaled_batch_clear(&scaled);
    return good && !rubato_reader_failed(own);
}
