/* Parts of a table that move while a task runs, for nodes of a cluster run.
 *
 * Threads: cluster_run_moving from the node's main thread, cluster_await_moves from workers. */
#ifndef TESTS_SUPPORT_CLUSTER_CLUSTER_MOVES_H
#define TESTS_SUPPORT_CLUSTER_CLUSTER_MOVES_H

#include "tests/support/engine/engine_fixture.h"

typedef struct {
    const char *table;
    uint32_t n_parts, n_moves;
    Event moved; /* raised by each move of this node */
} ClusterMoves;

/* Runs a task, and meanwhile moves any part to any server, n_moves times. Collective: each node
 * makes the same moves. */
bool cluster_run_moving(RubatoEngine *engine, const RubatoTask *task, ClusterMoves *moves,
                        GError **error);

/* Worker 0 goes on only when as much of the moves is done as the clock is of all clocks. While it
 * waits, others wait for its clock, and what they asked moves with its part. The moves wait for no
 * worker. */
bool cluster_await_moves(RubatoWorker *worker, ClusterMoves *moves, uint64_t clock,
                         uint64_t n_clocks, GError **error);

#endif
