/* Trees. Pure functions, but for the reading. */
#include "apps/gbdt/gbdt_forest.h"

#include <math.h>
#include <string.h>

#define READ_AT_ONCE 65536
#define TREES_MAX (UINT64_C(1) << 28)

static uint64_t tree_of(RubatoKey key)
{
    return key >> GBDT_NODE_BITS;
}

static uint32_t node_of(RubatoKey key)
{
    return (uint32_t)(key & ((1u << GBDT_NODE_BITS) - 1));
}

/* Each tree has room for its last node and all before it; a node's children may be missing. */
static void place_trees(GbdtForest *forest, const RubatoKey *keys, size_t n)
{
    g_autofree uint32_t *last = NULL;

    forest->first = n > 0 ? tree_of(keys[0]) : 0;
    forest->n_trees = n > 0 ? tree_of(keys[n - 1]) - forest->first + 1 : 0;
    last = g_new0(uint32_t, forest->n_trees + 1);
    forest->starts = g_new0(size_t, forest->n_trees + 1);
    for (size_t i = 0; i < n; i++) /* keys ascend */
        last[tree_of(keys[i]) - forest->first] = node_of(keys[i]);
    for (uint64_t t = 0; t < forest->n_trees; t++)
        forest->starts[t + 1] = forest->starts[t] + last[t] + 1;
    forest->nodes = g_new0(float, (forest->starts[forest->n_trees] + 1) * GBDT_NODE_WIDTH);
}

static bool check_node(const float *node, RubatoKey key, uint32_t n_columns, GError **error)
{
    const float column = node[GBDT_NODE_COLUMN];

    if (column >= 0 && column <= (float)n_columns && column == floorf(column) &&
        node_of(key) < 1u << (GBDT_DEPTH_MAX + 1))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "node %u of tree %" G_GUINT64_FORMAT " splits column %g of %u", node_of(key),
                tree_of(key), (double)column - 1, n_columns);
    return false;
}

bool gbdt_forest_read(GbdtForest *forest, RubatoEngine *engine, const char *table,
                      const RubatoKey *keys, size_t n, uint32_t n_columns, GError **error)
{
    g_autofree float *rows = g_new(float, (size_t)READ_AT_ONCE *GBDT_NODE_WIDTH);

    *forest = (GbdtForest){ .n_trees = 0 };
    if (n > 0 && tree_of(keys[n - 1]) >= TREES_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "there is a tree %" G_GUINT64_FORMAT,
                    tree_of(keys[n - 1]));
        return false;
    }
    place_trees(forest, keys, n);
    for (size_t from = 0; from < n; from += READ_AT_ONCE) {
        const size_t n_now = MIN(READ_AT_ONCE, n - from);

        if (!rubato_engine_get(engine, table, keys + from, n_now, rows, error))
            return false;
        for (size_t i = 0; i < n_now; i++) {
            const float *row = rows + i * GBDT_NODE_WIDTH;
            const RubatoKey key = keys[from + i];

            if (!check_node(row, key, n_columns, error))
                return false;
            const size_t start = forest->starts[tree_of(key) - forest->first];

            memcpy(forest->nodes + (start + node_of(key)) * GBDT_NODE_WIDTH, row,
                   GBDT_NODE_WIDTH * sizeof *row);
        }
    }
    return true;
}

void gbdt_forest_clear(GbdtForest *forest)
{
    g_free(forest->starts);
    g_free(forest->nodes);
    *forest = (GbdtForest){ .n_trees = 0 };
}

static double score_tree(const float *nodes, size_t n, const float *values)
{
    for (size_t node = 1; node < n;) {
        const float *row = nodes + node * GBDT_NODE_WIDTH;

        if (row[GBDT_NODE_COLUMN] == 0)
            return (double)row[GBDT_NODE_VALUE];
        const float value = values[(size_t)row[GBDT_NODE_COLUMN] - 1];
        const bool left =
            isnan(value) ? row[GBDT_NODE_MISSING_LEFT] > 0 : value < row[GBDT_NODE_CUT];
        node = 2 * node + !left;
    }
    return 0;
}

void gbdt_forest_score(const GbdtForest *forest, const float *values, uint32_t n_scores,
                       double *scores)
{
    for (uint64_t t = 0; t < forest->n_trees; t++)
        scores[(forest->first + t) % n_scores] +=
            score_tree(forest->nodes + forest->starts[t] * GBDT_NODE_WIDTH,
                       forest->starts[t + 1] - forest->starts[t], values);
}
