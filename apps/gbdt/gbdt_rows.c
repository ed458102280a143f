/* Histograms of rows. Of two siblings only the one with fewer rows is counted; the other has what
 * is left of its parent. */
#include "apps/gbdt/gbdt_rows.h"

#include <string.h>

#define AHEAD 8 /* rows whose bins are fetched into the cache */

bool gbdt_rows_init(GbdtRows *rows, const AppDense *dense, const GbdtBins *bins, uint32_t n_scores,
                    uint32_t n_nodes_max, GError **error)
{
    const size_t n = dense->n_rows, width = GBDT_HISTOGRAM_WIDTH(gbdt_bins_n(bins));

    *rows = (GbdtRows){
        .n_rows = n, .n_columns = bins->n_columns, .n_scores = n_scores, .histogram_width = width
    };
    rows->bins = g_try_malloc(n * bins->n_columns + 1);
    rows->labels = g_try_new(float, n + 1);
    rows->scores = g_try_new0(double, n *n_scores + 1);
    rows->pairs = g_try_new(GbdtPair, n * n_scores + 1);
    rows->order = g_try_new(uint32_t, n + 1);
    rows->other = g_try_new(uint32_t, n + 1);
    rows->begins = g_try_new0(size_t, n_nodes_max + 1);
    rows->next = g_try_new0(size_t, n_nodes_max + 1);
    rows->histograms = g_try_new0(int64_t, (n_nodes_max / 2) * width);
    rows->parents = g_try_new0(int64_t, (n_nodes_max / 2) * width);
    if (rows->bins == NULL || rows->labels == NULL || rows->scores == NULL || rows->pairs == NULL ||
        rows->order == NULL || rows->other == NULL || rows->begins == NULL || rows->next == NULL ||
        rows->histograms == NULL || rows->parents == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for %zu rows and histograms of %zu numbers", n, width);
        return false;
    }
    if (n == 0) /* a worker may have none, and then dense has no memory */
        return true;
    gbdt_bins_of(bins, dense->values, n, rows->bins);
    memcpy(rows->labels, dense->labels, n * sizeof *rows->labels);
    return true;
}

void gbdt_rows_clear(GbdtRows *rows)
{
    g_free(rows->bins);
    g_free(rows->labels);
    g_free(rows->scores);
    g_free(rows->pairs);
    g_free(rows->order);
    g_free(rows->other);
    g_free(rows->begins);
    g_free(rows->next);
    g_free(rows->histograms);
    g_free(rows->parents);
    *rows = (GbdtRows){ .n_rows = 0 };
}

void gbdt_rows_begin_tree(GbdtRows *rows)
{
    for (size_t i = 0; i < rows->n_rows; i++)
        rows->order[i] = (uint32_t)i;
    rows->begins[0] = 0;
    rows->begins[1] = rows->n_rows;
}

static int64_t *histogram_of(const GbdtRows *rows, int64_t *histograms, uint32_t slot)
{
    return histograms + slot * rows->histogram_width;
}

/* Counts the rows of a slot. */
static void count(const GbdtRows *rows, const GbdtBins *bins, uint32_t score, uint32_t slot)
{
    GbdtPair *sums = (GbdtPair *)(void *)(histogram_of(rows, rows->histograms, slot) + GBDT_HEAD);
    const GbdtPair *pairs = rows->pairs + score * rows->n_rows;
    const uint32_t n_columns = rows->n_columns, *starts = bins->starts;
    const size_t end = rows->begins[slot + 1];

    memset(histogram_of(rows, rows->histograms, slot), 0,
           rows->histogram_width * sizeof *rows->histograms);
    for (size_t i = rows->begins[slot]; i < end; i++) {
        const size_t row = rows->order[i];
        const uint8_t *bin = rows->bins + row * n_columns;
        const GbdtPair pair = pairs[row];

        if (i + AHEAD < end) {
            const size_t ahead = rows->order[i + AHEAD];

            __builtin_prefetch(rows->bins + ahead * n_columns);
            __builtin_prefetch(&pairs[ahead]);
        }
        for (uint32_t c = 0; c < n_columns; c++)
            sums[starts[c] + bin[c]] += pair;
    }
}

/* What a sibling leaves of the parent. */
static void subtract(const GbdtRows *rows, uint32_t slot)
{
    const int64_t *parent = histogram_of(rows, rows->parents, slot / 2);
    const int64_t *sibling = histogram_of(rows, rows->histograms, slot ^ 1);
    int64_t *own = histogram_of(rows, rows->histograms, slot);

    memset(own, 0, GBDT_HEAD * sizeof *own);
    for (size_t i = GBDT_HEAD; i < rows->histogram_width; i++)
        own[i] = parent[i] - sibling[i];
}

static size_t size_of(const GbdtRows *rows, uint32_t slot)
{
    return rows->begins[slot + 1] - rows->begins[slot];
}

void gbdt_rows_fill(GbdtRows *rows, const GbdtBins *bins, uint32_t score, uint32_t level,
                    const uint32_t *slots, size_t n)
{
    if (level == 0) {
        count(rows, bins, score, 0);
        return;
    }
    for (size_t i = 0; i < n; i += 2) { /* siblings stand together */
        const uint32_t left = slots[i], right = slots[i] + 1;
        const bool left_is_smaller = size_of(rows, left) < size_of(rows, right);

        count(rows, bins, score, left_is_smaller ? left : right);
        subtract(rows, left_is_smaller ? right : left);
    }
}

/* Puts the rows of a slot that go left in front of the others; returns how many they are. */
static size_t sort_slot(GbdtRows *rows, uint32_t slot, const int64_t *head)
{
    const size_t begin = rows->begins[slot], end = rows->begins[slot + 1];
    const size_t column = (size_t)head[GBDT_COLUMN];
    const uint8_t last = (uint8_t)head[GBDT_BIN];
    const bool missing_left = head[GBDT_MISSING_LEFT] != 0;
    size_t n_left = 0, n_right = 0;

    for (size_t i = begin; i < end; i++) {
        const uint32_t row = rows->order[i];
        const uint8_t bin = rows->bins[row * rows->n_columns + column];
        const bool left = bin == 0 ? missing_left : bin <= last;

        rows->order[begin + n_left] = row;
        rows->other[n_right] = row;
        n_left += left;
        n_right += !left;
    }
    memcpy(rows->order + begin + n_left, rows->other, n_right * sizeof *rows->other);
    return n_left;
}

void gbdt_rows_split(GbdtRows *rows, uint32_t level, const int64_t *heads)
{
    for (uint32_t slot = 0; slot < 1u << level; slot++) {
        const int64_t *head = heads + (size_t)slot * GBDT_HEAD;
        const size_t begin = rows->begins[slot], end = rows->begins[slot + 1];

        rows->next[2 * slot] = begin;
        rows->next[2 * slot + 1] =
            head[GBDT_COLUMN] >= 0 ? begin + sort_slot(rows, slot, head) : end;
        rows->next[2 * slot + 2] = end;
    }
    size_t *begins = rows->begins;
    rows->begins = rows->next;
    rows->next = begins;
    int64_t *histograms = rows->histograms;
    rows->histograms = rows->parents;
    rows->parents = histograms;
}

void gbdt_rows_add(GbdtRows *rows, uint32_t slot, uint32_t score, float value)
{
    for (size_t i = rows->begins[slot]; i < rows->begins[slot + 1]; i++)
        rows->scores[(size_t)rows->order[i] * rows->n_scores + score] += (double)value;
}
