/* The rows of a batch as a dense matrix. Runs on the caller's thread. */
#include <rubato/data.h>

/* Whether all keys are columns. They ascend, so the ends tell. */
static bool check_keys(const RubatoBatch *batch, RubatoKey first, size_t n_columns, GError **error)
{
    const RubatoKey ends[] = { batch->n_keys > 0 ? batch->keys[0] : first,
                               batch->n_keys > 0 ? batch->keys[batch->n_keys - 1] : first };

    for (size_t i = 0; i < G_N_ELEMENTS(ends) && batch->n_keys > 0; i++)
        if (ends[i] < first || ends[i] - first >= n_columns) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                        "a row has key %" G_GUINT64_FORMAT
                        ": there are %zu columns, from key %" G_GUINT64_FORMAT " on",
                        ends[i], n_columns, first);
            return false;
        }
    return true;
}

bool rubato_batch_fill_matrix(const RubatoBatch *batch, RubatoKey first, size_t n_columns,
                              float absent, float *matrix, GError **error)
{
    g_return_val_if_fail(batch != NULL, false);
    g_return_val_if_fail(matrix != NULL || batch->n_rows == 0 || n_columns == 0, false);
    if (!check_keys(batch, first, n_columns, error))
        return false;
    for (size_t row = 0; row < batch->n_rows && n_columns > 0; row++) {
        const size_t begin = batch->row_start[row], end = batch->row_start[row + 1];
        float *to = matrix + row * n_columns;

        for (size_t c = 0; c < n_columns; c++)
            to[c] = absent;
        for (size_t e = begin; e < end; e++)
            to[batch->keys[batch->index[e]] - first] = 0;
        for (size_t e = begin; e < end; e++)
            to[batch->keys[batch->index[e]] - first] += batch->value[e];
    }
    return true;
}
