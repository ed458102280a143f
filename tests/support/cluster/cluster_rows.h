/* Tables of ten rows for tests of clusters: made, added to, and read.
 *
 * Threads: inside a node, the one that calls. */
#ifndef TESTS_SUPPORT_CLUSTER_CLUSTER_ROWS_H
#define TESTS_SUPPORT_CLUSTER_CLUSTER_ROWS_H

#include "tests/support/cluster/cluster_run.h"

#define CLUSTER_ROWS 10

/* A table of that many keys, with staleness 1 if the model has one. */
bool cluster_create_rows(RubatoEngine *engine, const char *name, const char *model, GError **error);

/* Checks that each of its rows has this value. */
bool cluster_expect_rows(RubatoEngine *engine, const char *table, float expected, GError **error);

/* Adds 1 to all keys of a table in each of n clocks. */
bool cluster_add_ones(RubatoWorker *worker, const char *name, uint32_t n_clocks, GError **error);

#endif
