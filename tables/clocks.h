/* The clocks of a task on one table, as one node knows them: those of its own workers exactly, of
 * the other nodes what they have told.
 *
 * Servers hear of a node's clock, not of each worker's: a worker's clock() only matters to them when
 * it was the node's slowest. So messages per iteration grow with the nodes and not with the workers.
 * (Tables whose model wants every worker's clock are told each.)
 *
 * Threads: any; a lock inside. */
#ifndef RUBATO_TABLES_CLOCKS_H
#define RUBATO_TABLES_CLOCKS_H

#include <pthread.h>
#include <rubato/request.h>

/* What a node tells the others: the clock of its slowest live worker, and which that is. */
typedef struct {
    uint64_t clock;   /* RUBATO_CLOCK_RETIRED: none of its workers is left */
    uint32_t slowest; /* rank */
} NodeClock;

typedef struct {
    /* immutable */
    uint32_t self; /* this node's number */
    uint32_t n_nodes;
    uint32_t first_rank; /* of this node's workers */
    uint32_t n_workers;  /* of this node */

    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t *workers;     /* this node's, by local rank */
    uint32_t n_at_minimum; /* how many of them have the node's clock */
    NodeClock *nodes;      /* by number; [self] is this node's */
    uint32_t told_slowest; /* the slowest worker that the others were told of last */
} Clocks;

/* workers_of[i]: the workers of node i in the task. */
void clocks_init(Clocks *clocks, uint32_t self, uint32_t n_nodes, const uint32_t *workers_of);
void clocks_clear(Clocks *clocks);

/* A worker of this node has come to a clock (RUBATO_CLOCK_RETIRED: its end). Whether the node's
 * clock has gone up with it; *news is what to tell of the node, in any case. */
bool clocks_advance(Clocks *clocks, uint32_t rank, uint64_t clock, NodeClock *news);

/* Another node has told its clock. Older news than what is known are ignored. */
void clocks_hear(Clocks *clocks, uint32_t node, NodeClock news);

/* The slowest worker that is known of, over all nodes: its clock, rank and node number. False when
 * none is left. */
bool clocks_slowest(Clocks *clocks, NodeClock *slowest, uint32_t *node);

/* Whether another worker than the one that was told last is this node's slowest by now, though the
 * node's clock has not changed; *news is then what to tell. Asked now and then, so that others name
 * the right worker when they wait. */
bool clocks_has_news(Clocks *clocks, NodeClock *news);

#endif
