/* Nearest centres, and the bounds that spare the search for them. Pure functions.
 *
 * Distances are |x|² − 2 x·c + |c|². A block of rows meets a panel of centres at once, so that each
 * value that is loaded is used several times. */
#include "apps/kmeans/kmeans_model.h"

#include <math.h>
#include <rubato/vector_clones.h>
#include <string.h>

#define PANEL 16 /* centres */
#define BLOCK 4  /* rows */

/* Bounds are sums of many roundings: a row whose bounds are as near as this is looked at. */
#define BOUNDS_APART 0.9999f

typedef float Lanes __attribute__((vector_size(PANEL * sizeof(float)), aligned(sizeof(float))));

static uint32_t n_panels(const KmeansCentres *centres)
{
    return (centres->n_clusters - 1) / PANEL + 1;
}

void kmeans_centres_init(KmeansCentres *centres, uint32_t n_clusters, uint32_t n_columns)
{
    *centres = (KmeansCentres){ .n_clusters = n_clusters, .n_columns = n_columns };
    const size_t n_padded = (size_t)n_panels(centres) * PANEL;

    centres->values = g_new0(float, (size_t)n_clusters *n_columns);
    centres->panels = g_new0(float, n_padded *n_columns);
    centres->norms = g_new0(float, n_padded);
}

void kmeans_centres_clear(KmeansCentres *centres)
{
    g_free(centres->values);
    g_free(centres->panels);
    g_free(centres->norms);
    *centres = (KmeansCentres){ .values = NULL };
}

static float norm_of(const float *values, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    return (float)sum;
}

void kmeans_centres_update(KmeansCentres *centres)
{
    const uint32_t n_columns = centres->n_columns;

    for (uint32_t c = 0; c < n_panels(centres) * PANEL; c++)
        centres->norms[c] = INFINITY; /* of no centre: nothing is near it */
    for (uint32_t c = 0; c < centres->n_clusters; c++) {
        const float *values = centres->values + (size_t)c * n_columns;
        float *panel = centres->panels + (size_t)(c / PANEL) * n_columns * PANEL;

        for (uint32_t i = 0; i < n_columns; i++)
            panel[(size_t)i * PANEL + c % PANEL] = values[i];
        centres->norms[c] = norm_of(values, n_columns);
    }
}

/* Of a row: the nearest centre, its squared distance less the row's norm, and the second one's. */
typedef struct {
    uint32_t cluster;
    float first, second;
} Nearest;

static inline __attribute__((always_inline)) void take_nearest(Nearest *nearest, uint32_t c,
                                                               float distance)
{
    if (distance < nearest->first) {
        nearest->second = nearest->first;
        nearest->first = distance;
        nearest->cluster = c;
    } else if (distance < nearest->second) {
        nearest->second = distance;
    }
}

/* Rows that are fewer than a block stand in it more than once. */
RUBATO_VECTOR_CLONES
static void find_nearest(const KmeansCentres *centres, const float *const rows[BLOCK],
                         Nearest nearest[BLOCK])
{
    const uint32_t n_columns = centres->n_columns;

    for (int r = 0; r < BLOCK; r++)
        nearest[r] = (Nearest){ .first = INFINITY, .second = INFINITY };
    for (uint32_t p = 0; p < n_panels(centres); p++) {
        const float *panel = centres->panels + (size_t)p * n_columns * PANEL;
        const float *norms = centres->norms + (size_t)p * PANEL;
        Lanes dot0 = { 0 }, dot1 = { 0 }, dot2 = { 0 }, dot3 = { 0 };

        for (uint32_t i = 0; i < n_columns; i++) {
            const Lanes values = *(const Lanes *)(const void *)(panel + (size_t)i * PANEL);

            dot0 += rows[0][i] * values;
            dot1 += rows[1][i] * values;
            dot2 += rows[2][i] * values;
            dot3 += rows[3][i] * values;
        }
        for (uint32_t c = 0; c < PANEL && p * PANEL + c < centres->n_clusters; c++) {
            take_nearest(&nearest[0], p * PANEL + c, norms[c] - 2 * dot0[c]);
            take_nearest(&nearest[1], p * PANEL + c, norms[c] - 2 * dot1[c]);
            take_nearest(&nearest[2], p * PANEL + c, norms[c] - 2 * dot2[c]);
            take_nearest(&nearest[3], p * PANEL + c, norms[c] - 2 * dot3[c]);
        }
    }
}

void kmeans_classify(const KmeansCentres *centres, const float *rows, size_t n, uint32_t *clusters,
                     float *distances)
{
    const uint32_t n_columns = centres->n_columns;

    for (size_t from = 0; from < n; from += BLOCK) {
        const float *block[BLOCK];
        Nearest nearest[BLOCK];

        for (size_t r = 0; r < BLOCK; r++)
            block[r] = rows + MIN(from + r, n - 1) * n_columns;
        find_nearest(centres, block, nearest);
        for (size_t r = 0; r < BLOCK && from + r < n; r++) {
            const float norm = norm_of(block[r], n_columns);

            clusters[from + r] = nearest[r].cluster;
            distances[from + r] = MAX(0, nearest[r].first + norm);
        }
    }
}

void kmeans_centres_follow(KmeansCentres *centres, const double *sums, float *how_far)
{
    const uint32_t n_columns = centres->n_columns;

    for (uint32_t c = 0; c < centres->n_clusters; c++) {
        const double *sum = sums + c * KMEANS_SUM_WIDTH(n_columns);
        float *values = centres->values + (size_t)c * n_columns;
        double moved = 0;

        for (uint32_t i = 0; i < n_columns && sum[0] > 0; i++) {
            const float value = (float)(sum[1 + i] / sum[0]);
            const double difference = (double)value - (double)values[i];

            moved += difference * difference;
            values[i] = value;
        }
        if (how_far != NULL)
            how_far[c] += (float)sqrt(moved);
    }
    kmeans_centres_update(centres);
}

bool kmeans_share_init(KmeansShare *share, uint32_t n_clusters, GError **error)
{
    const size_t n = share->rows.n_rows;

    share->cluster = g_try_new(uint32_t, n + 1);
    share->upper = g_try_new(float, 3 * (n + 1));
    share->sums = g_try_new0(double, n_clusters *KMEANS_SUM_WIDTH(share->rows.n_columns));
    share->how_far = g_new0(float, n_clusters);
    kmeans_centres_init(&share->centres, n_clusters, share->rows.n_columns);
    if (share->cluster == NULL || share->upper == NULL || share->sums == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for the clusters of %zu rows", n);
        return false;
    }
    share->lower = share->upper + n;
    share->norms = share->lower + n;
    for (size_t row = 0; row < n; row++) {
        share->cluster[row] = KMEANS_NONE;
        share->norms[row] =
            norm_of(share->rows.values + row * share->rows.n_columns, share->rows.n_columns);
        share->norm += (double)share->norms[row];
    }
    return true;
}

void kmeans_share_clear(KmeansShare *share)
{
    app_dense_clear(&share->rows);
    g_free(share->cluster);
    g_free(share->upper);
    g_free(share->sums);
    g_free(share->how_far);
    kmeans_centres_clear(&share->centres);
    *share = (KmeansShare){ .norm = 0 };
}

/* Whether a row may have another nearest centre now, after the centres have moved. */
static bool may_change(KmeansShare *share, size_t row, float most)
{
    const uint32_t cluster = share->cluster[row];

    if (cluster == KMEANS_NONE)
        return true;
    share->upper[row] += share->how_far[cluster];
    share->lower[row] -= most;
    return !(share->upper[row] < share->lower[row] * BOUNDS_APART);
}

RUBATO_VECTOR_CLONES
static void add_row(double *sum, const float *values, uint32_t n, double factor)
{
    sum[0] += factor;
    for (uint32_t i = 0; i < n; i++)
        sum[1 + i] += factor * (double)values[i];
}

static bool assign_row(KmeansShare *share, size_t row, const Nearest *nearest, double *changes)
{
    const uint32_t n_columns = share->rows.n_columns, before = share->cluster[row];
    const size_t width = KMEANS_SUM_WIDTH(n_columns);
    const float *values = share->rows.values + row * n_columns;
    const float norm = share->norms[row];

    share->upper[row] = sqrtf(MAX(0, nearest->first + norm));
    share->lower[row] = sqrtf(MAX(0, nearest->second + norm));
    if (before == nearest->cluster)
        return false;
    if (before != KMEANS_NONE)
        add_row(changes + before * width, values, n_columns, -1);
    add_row(changes + nearest->cluster * width, values, n_columns, 1);
    share->cluster[row] = nearest->cluster;
    return true;
}

uint64_t kmeans_share_assign(KmeansShare *share, double *changes)
{
    const KmeansCentres *centres = &share->centres;
    const size_t width = KMEANS_SUM_WIDTH(centres->n_columns), n_rows = share->rows.n_rows;
    uint64_t n_changed = 0;
    float most = 0;

    for (uint32_t c = 0; c < centres->n_clusters; c++)
        most = MAX(most, share->how_far[c]);
    memset(changes, 0, centres->n_clusters * width * sizeof *changes);
    for (size_t row = 0; row < n_rows;) {
        const float *block[BLOCK];
        size_t places[BLOCK], n = 0;
        Nearest nearest[BLOCK];

        for (; n < BLOCK && row < n_rows; row++)
            if (may_change(share, row, most))
                places[n++] = row;
        for (size_t r = 0; r < BLOCK && n > 0; r++)
            block[r] = share->rows.values + places[MIN(r, n - 1)] * centres->n_columns;
        if (n > 0)
            find_nearest(centres, block, nearest);
        for (size_t r = 0; r < n; r++)
            n_changed += assign_row(share, places[r], &nearest[r], changes);
    }
    for (size_t i = 0; i < centres->n_clusters * width; i++)
        share->sums[i] += changes[i];
    memset(share->how_far, 0, centres->n_clusters * sizeof *share->how_far);
    share->is_assigned = true;
    return n_changed;
}

double kmeans_share_inertia(const KmeansShare *share)
{
    const KmeansCentres *centres = &share->centres;
    const uint32_t n_columns = centres->n_columns;
    double inertia = share->norm;

    for (uint32_t c = 0; c < centres->n_clusters; c++) {
        const double *sum = share->sums + c * KMEANS_SUM_WIDTH(n_columns);
        const float *values = centres->values + (size_t)c * n_columns;
        double dot = 0, norm = 0;

        for (uint32_t i = 0; i < n_columns; i++) {
            dot += (double)values[i] * sum[1 + i];
            norm += (double)values[i] * (double)values[i];
        }
        inertia += sum[0] * norm - 2 * dot;
    }
    return MAX(0, inertia);
}

double kmeans_share_add(const KmeansShare *share, const size_t *places, size_t n, double *sums)
{
    const uint32_t n_columns = share->rows.n_columns;
    double inertia = 0;

    for (size_t from = 0; from < n; from += BLOCK) {
        const float *block[BLOCK];
        Nearest nearest[BLOCK];

        for (size_t r = 0; r < BLOCK; r++)
            block[r] = share->rows.values + places[MIN(from + r, n - 1)] * n_columns;
        find_nearest(&share->centres, block, nearest);
        for (size_t r = 0; r < BLOCK && from + r < n; r++) {
            add_row(sums + nearest[r].cluster * KMEANS_SUM_WIDTH(n_columns), block[r], n_columns,
                    1);
            inertia += (double)MAX(0, nearest[r].first + share->norms[places[from + r]]);
        }
    }
    return inertia;
}
