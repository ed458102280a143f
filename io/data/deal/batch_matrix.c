/* The rows of a batch as a dense matrix. Runs on the caller's thread. */
#include <rubato/data.h>
#include <string.h>

/* Whether all keys are columns. They ascend, so the ends tell. */
static bool check_keys(const RubatoBatch *batch, RubatoKey first, size_t n_columns, GError **error)
{
    const RubatoKey ends[] = { batch->n_keys > 0 ? batch->keys[0] : first,
                               batch->n_keys > 0 ? batch->keys[batch->n_keys - 1] : first };

    for (size_t i = 0; i < G_N_ELEMENTS(ends) && batch->n_keys > 0; i++)
        if (ends[i] < first || ends[i] - first >= n_columns) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                        "a batch has key %" G_GUINT64_FORMAT
                        ", and the matrix has %zu columns from key %" G_GUINT64_FORMAT " on",
                        ends[i], n_columns, first);
            return false;
        }
    return true;
}

bool rubato_batch_fill_matrix(const RubatoBatch *batch, RubatoKey first, size_t n_columns,
                              float *matrix, GError **error)
{
    g_return_val_if_fail(batch != NULL, false);
    g_return_val_if_fail(matrix != NULL || batch->n_rows == 0 || n_columns == 0, false);
    if (!check_keys(batch, first, n_columns, error))
        return false;
    for (size_t row = 0; row < batch->n_rows && n_columns > 0; row++) {
        float *to = matrix + row * n_columns;

        memset(to, 0, n_columns * sizeof *to);
        for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
            to[batch->keys[batch->index[e]] - first] += batch->value[e];
    }
    return true;
}
