/* Cuts between values. Pure functions. */
#include "apps/gbdt/gbdt_bins.h"

#include <math.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;

    return (left > right) - (left < right);
}

/* Between two values: above the lower one, and at most the higher one. */
static float middle(float low, float high)
{
    const float cut = low + (high - low) / 2;

    return cut > low && isfinite(cut) ? cut : high;
}

/* Cuts n ascending values. A bin ends where it has its share of the values that are left. Returns
 * how many cuts there are. */
static uint32_t cut_values(const float *values, size_t n, uint32_t n_bins, float *cuts)
{
    size_t n_different = n > 0, n_cuts = 0, begin = 0;

    for (size_t i = 1; i < n; i++)
        n_different += values[i] != values[i - 1];
    for (size_t i = 1; i < n && n_cuts + 1 < n_bins; i++) {
        const size_t n_left = n_bins - n_cuts;

        if (values[i] == values[i - 1] ||
            (n_different > n_bins && (i - begin) * n_left < n - begin))
            continue;
        cuts[n_cuts++] = middle(values[i - 1], values[i]);
        begin = i;
    }
    return (uint32_t)n_cuts;
}

void gbdt_bins_cut(GbdtBins *bins, const AppDense *rows, uint32_t n_bins)
{
    g_autofree float *values = g_new(float, rows->n_rows + 1);

    *bins = (GbdtBins){ .n_columns = rows->n_columns };
    bins->starts = g_new0(uint32_t, rows->n_columns + 1);
    bins->cuts = g_new0(float *, rows->n_columns);
    for (uint32_t c = 0; c < rows->n_columns; c++) {
        float cuts[GBDT_BINS_MAX];
        size_t n = 0;

        for (size_t row = 0; row < rows->n_rows; row++) {
            const float value = rows->values[row * rows->n_columns + c];

            if (!isnan(value))
                values[n++] = value;
        }
        qsort(values, n, sizeof *values, compare);
        const uint32_t n_cuts = cut_values(values, n, n_bins - 1, cuts);
        bins->cuts[c] = g_new(float, n_cuts + 1);
        memcpy(bins->cuts[c], cuts, n_cuts * sizeof *cuts);
        bins->starts[c + 1] = bins->starts[c] + n_cuts + 2; /* one more than cuts, and bin 0 */
    }
}

void gbdt_bins_clear(GbdtBins *bins)
{
    for (uint32_t c = 0; c < bins->n_columns; c++)
        g_free(bins->cuts[c]);
    g_free(bins->cuts);
    g_free(bins->starts);
    *bins = (GbdtBins){ .n_columns = 0 };
}

/* How many cuts are at most the value. */
static uint32_t count_below(const float *cuts, uint32_t n, float value)
{
    uint32_t low = 0;

    while (n > 0) {
        const uint32_t half = n / 2;

        if (cuts[low + half] <= value) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

void gbdt_bins_of(const GbdtBins *bins, const float *values, size_t n, uint8_t *result)
{
    for (size_t i = 0; i < n * bins->n_columns; i++) {
        const size_t c = i % bins->n_columns;
        const uint32_t n_cuts = bins->starts[c + 1] - bins->starts[c] - 2;

        result[i] =
            isnan(values[i]) ? 0 : (uint8_t)(1 + count_below(bins->cuts[c], n_cuts, values[i]));
    }
}
