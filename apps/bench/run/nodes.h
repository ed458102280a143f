/* Clusters for the cases of more than one node.
 *
 * Threads: main. */
#ifndef RUBATO_APPS_BENCH_RUN_NODES_H
#define RUBATO_APPS_BENCH_RUN_NODES_H

#include "apps/bench/bench.h"

/* Runs a function in node 0, with how the others have been started. */
bool nodes_run(const BenchCase *what, const BenchOptions *options,
               bool (*function)(RubatoEngine *engine, const BenchStart *start, void *data,
                                GError **error),
               void *data, GError **error);

#endif
