/* k-means: the arithmetic, without tables.
 *
 * Lloyd's algorithm: each row belongs to the nearest centre, and each centre moves to the mean of
 * its rows. Bounds on distances spare most of the work and change no result (G. Hamerly: Making
 * k-means even faster, SDM 2010): a row keeps its cluster without a look at any centre while the
 * bound on the distance to its own centre is below that on the distances to all others.
 *
 * Threads: any; a value has one at a time. */
#ifndef RUBATO_APPS_KMEANS_KMEANS_MODEL_H
#define RUBATO_APPS_KMEANS_KMEANS_MODEL_H

#include "apps/kit/scores/app_dense.h"

#define KMEANS_NONE UINT32_MAX /* no cluster yet */

/* Centres, as distances to many of them at once need them. */
typedef struct {
    uint32_t n_clusters, n_columns;
    float *values; /* n_clusters × n_columns */
    float *panels; /* the same, transposed, for some centres after the other */
    float *norms;  /* squared */
} KmeansCentres;

void kmeans_centres_init(KmeansCentres *centres, uint32_t n_clusters, uint32_t n_columns);
void kmeans_centres_clear(KmeansCentres *centres);

/* After values were changed. */
void kmeans_centres_update(KmeansCentres *centres);

/* The nearest centres of n rows, with the squared distances to them; of two that are equally near,
 * the first. */
void kmeans_classify(const KmeansCentres *centres, const float *rows, size_t n, uint32_t *clusters,
                     float *distances);

/* A sum of rows has this many numbers: how many they are, and a sum for each column. */
#define KMEANS_SUM_WIDTH(n_columns) ((size_t)(n_columns) + 1)

/* The centres that follow from sums; those of clusters without rows stay. Adds to how_far, which
 * may be NULL, how far each has moved. */
void kmeans_centres_follow(KmeansCentres *centres, const double *sums, float *how_far);

/* The rows of a worker, and where they belong. */
typedef struct {
    AppDense rows;
    double norm;       /* the sum of the squares of all values */
    float *norms;      /* n_rows: of each row */
    uint32_t *cluster; /* n_rows; KMEANS_NONE at first */
    float *upper;      /* n_rows: at least the distance to the own centre */
    float *lower;      /* n_rows: at most the distance to any other */
    double *sums;      /* n_clusters: of the rows of each cluster */
    KmeansCentres centres;
    float *how_far; /* n_clusters: at least the way of the centre since rows were assigned */
    bool is_assigned;
} KmeansShare;

/* After rows were read; centres are 0. RUBATO_ERROR_MEMORY. */
bool kmeans_share_init(KmeansShare *share, uint32_t n_clusters, GError **error);

/* A zeroed one is allowed. */
void kmeans_share_clear(KmeansShare *share);

/* Gives each row to its nearest centre. changes gets by how much the sums change. Returns how many
 * rows have changed their cluster. */
uint64_t kmeans_share_assign(KmeansShare *share, double *changes);

/* The sum of the squared distances of all rows to the centres that they were given to. */
double kmeans_share_inertia(const KmeansShare *share);

/* Adds some of the rows to the sums of their nearest centres; returns the sum of the squared
 * distances to them. */
double kmeans_share_add(const KmeansShare *share, const size_t *places, size_t n, double *sums);

#endif
