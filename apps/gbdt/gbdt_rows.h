/* A worker's rows while a tree grows: their bins, their gradients, and which node each is in.
 *
 * Nodes of a level have slots: those of the children of slot s are 2 s and 2 s + 1.
 *
 * Threads: one at a time. */
#ifndef RUBATO_APPS_GBDT_GBDT_ROWS_H
#define RUBATO_APPS_GBDT_GBDT_ROWS_H

#include "apps/gbdt/gbdt_bins.h"
#include "apps/gbdt/gbdt_split.h"

/* A gradient and its slope: fixed-point numbers, as in a histogram. */
typedef int64_t GbdtPair __attribute__((vector_size(16), aligned(8), may_alias));

typedef struct {
    size_t n_rows;
    uint32_t n_columns;
    uint32_t n_scores;
    uint8_t *bins;   /* n_rows × n_columns */
    float *labels;   /* n_rows; of classes: their places */
    double *scores;  /* n_rows × n_scores, with the bits that gbdt_forest_score gives */
    GbdtPair *pairs; /* n_scores × n_rows */

    /* the tree that grows */
    uint32_t *order;        /* n_rows: those of a node stand together */
    uint32_t *other;        /* n_rows: for sorting */
    size_t *begins;         /* n_nodes_max + 1, of the level's slots */
    size_t *next;           /* the same of the next level */
    int64_t *histograms;    /* of the level's slots, as the table's rows */
    int64_t *parents;       /* of the level before */
    size_t histogram_width; /* GBDT_HISTOGRAM_WIDTH */
} GbdtRows;

/* Takes over labels; rows have the bins of the values. Levels have at most n_nodes_max nodes.
 * RUBATO_ERROR_MEMORY; then *rows must still be cleared. */
bool gbdt_rows_init(GbdtRows *rows, const AppDense *dense, const GbdtBins *bins, uint32_t n_scores,
                    uint32_t n_nodes_max, GError **error);

/* A zeroed one is allowed. */
void gbdt_rows_clear(GbdtRows *rows);

/* All rows into the root of the tree for a score. */
void gbdt_rows_begin_tree(GbdtRows *rows);

/* Fills the histograms of a level's slots, listed in slots: the root's, or those of both children
 * of nodes that were split. */
void gbdt_rows_fill(GbdtRows *rows, const GbdtBins *bins, uint32_t score, uint32_t level,
                    const uint32_t *slots, size_t n);

/* The rows of the level's slots go to their children by the heads, GBDT_HEAD numbers for each slot;
 * those without a split have no children. */
void gbdt_rows_split(GbdtRows *rows, uint32_t level, const int64_t *heads);

/* Adds a leaf's value to the score of the rows in a slot of the present level. */
void gbdt_rows_add(GbdtRows *rows, uint32_t slot, uint32_t score, float value);

#endif
