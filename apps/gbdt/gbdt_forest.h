/* Trees, as a table has them and as rows walk through them.
 *
 * The row of a node has four floats. The key says which node it is: 1 is the root, and the children
 * of n are 2 n and 2 n + 1. Nodes that no row of the table has are leaves of value 0.
 *
 * Threads: any that only read. */
#ifndef RUBATO_APPS_GBDT_GBDT_FOREST_H
#define RUBATO_APPS_GBDT_GBDT_FOREST_H

#include <rubato/rubato.h>

#define GBDT_DEPTH_MAX 12
#define GBDT_NODE_BITS 16

/* In a node's row. */
enum {
    GBDT_NODE_COLUMN,       /* one more than the column of the split; 0: a leaf */
    GBDT_NODE_CUT,          /* values below it go left */
    GBDT_NODE_MISSING_LEFT, /* 1: rows without a value go left, too */
    GBDT_NODE_VALUE,        /* of a leaf: what it adds to the score */
    GBDT_NODE_WIDTH,
};

/* Trees of a round come one after the other, one for each score of a row. */
static inline RubatoKey gbdt_node_key(uint64_t tree, uint32_t node)
{
    return tree << GBDT_NODE_BITS | node;
}

typedef struct {
    uint64_t first, n_trees;
    size_t *starts; /* n_trees + 1: where a tree's node 0, which does not exist, is in nodes */
    float *nodes;   /* GBDT_NODE_WIDTH each */
} GbdtForest;

/* Reads the trees whose nodes have these n keys, which ascend, and all trees between them; a key
 * without a row is a leaf of value 0. RUBATO_ERROR_FORMAT if a node has a column from n_columns on,
 * as a damaged model may have. If it fails, *forest must still be cleared. Main, or a worker before
 * it has changed the table. */
bool gbdt_forest_read(GbdtForest *forest, RubatoEngine *engine, const char *table,
                      const RubatoKey *keys, size_t n, uint32_t n_columns, GError **error);

/* A zeroed one is allowed. */
void gbdt_forest_clear(GbdtForest *forest);

/* Adds to the n_scores scores of a row what the trees say. NaN: the row has no value. */
void gbdt_forest_score(const GbdtForest *forest, const float *values, uint32_t n_scores,
                       double *scores);

#endif
