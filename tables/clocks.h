/* The clocks of a task on one table, as one node knows them: the exact clocks of its own workers,
 * and the clocks that the other nodes have sent.
 *
 * Servers are told a node's clock, not each worker's: a worker's clock() matters to them only if
 * the worker was the node's slowest. So messages per iteration grow with the nodes and not with the
 * workers. (Tables whose model wants every worker's clock are told each.)
 *
 * Threads: any; one at a time for each worker's rank in clocks_advance. */
#ifndef RUBATO_TABLES_CLOCKS_H
#define RUBATO_TABLES_CLOCKS_H

#include <pthread.h>
#include <rubato/request.h>
#include <stdatomic.h>

/* What a node tells the others: the clock of its slowest live worker, and which that is. */
typedef struct {
    uint64_t clock;   /* RUBATO_CLOCK_RETIRED: none of its workers is left */
    uint32_t slowest; /* rank */
} NodeClock;

/* A worker's clock, in a cache line of its own: only this worker writes it, each time. */
typedef struct {
    _Alignas(64) _Atomic uint64_t clock;
} WorkerClock;

/* What all workers of the node read at each clock, and the one that moves the node's clock
 * writes. */
typedef struct {
    _Alignas(64) _Atomic uint64_t clock; /* the node's: its slowest live worker's */
    _Atomic uint32_t slowest;           /* local rank of a worker that had it when last looked at */
    _Atomic uint64_t wanted;            /* the highest clock for which a Get may wait at a server */
    _Alignas(64) _Atomic uint64_t told; /* the clock that the node's servers were told last */
    _Atomic uint32_t told_slowest;      /* the slowest worker that the others were told of last */
} OwnClock;

typedef struct {
    /* immutable */
    uint32_t self; /* this node's number */
    uint32_t n_nodes;
    uint32_t first_rank; /* of this node's workers */
    uint32_t n_workers;  /* of this node */

    OwnClock *own;
    WorkerClock *workers; /* this node's, by local rank */

    uint32_t *first_ranks; /* immutable: by node, and then the number of all workers */

    pthread_mutex_t lock;
    /* guarded by lock */
    NodeClock *nodes; /* by number; [self] is not used */
    /* All nodes have reached it: what the root has spread, or has told this one. */
    NodeClock common;
    uint32_t named; /* the node of its slowest worker, if that is known; else n_nodes */
    bool is_late;   /* the root's: not all nodes were told the common clock */
} Clocks;

/* workers_of[i]: the workers of node i in the task. */
void clocks_init(Clocks *clocks, uint32_t self, uint32_t n_nodes, const uint32_t *workers_of);
void clocks_clear(Clocks *clocks);

/* A worker of this node has reached a clock (RUBATO_CLOCK_RETIRED: its end). Returns whether the
 * node's clock has gone up with it. In any case *news becomes what the others must be told. */
bool clocks_advance(Clocks *clocks, uint32_t rank, uint64_t clock, NodeClock *news);

/* What the other nodes must be told about this node now. */
NodeClock clocks_news(Clocks *clocks);

/* All servers of this node were told the node's clock. If a thread sees that in clocks_told and
 * then sends a request to one of them, the clock arrives before the request. */
void clocks_tell(Clocks *clocks, uint64_t clock);
uint64_t clocks_told(const Clocks *clocks);

/* Whether all workers of the node have reached a clock. The node's own clock may follow a moment
 * later; every Add that its workers made at earlier clocks has been posted. *n_passed: how many
 * workers have been seen there; 0 at the first look. */
bool clocks_have_reached(const Clocks *clocks, uint64_t clock, uint32_t *n_passed);

/* The node's clock. Every Add that its workers made at earlier clocks has been posted. */
uint64_t clocks_own(const Clocks *clocks);

/* Where that clock is, for those who load it themselves, with acquire. */
const _Atomic uint64_t *clocks_own_address(const Clocks *clocks);

/* The clock of a worker of this node. */
uint64_t clocks_of_worker(const Clocks *clocks, uint32_t rank);

/* For tables with lazy clocks. Called before a Get that servers keep until the node has reached a
 * clock. Returns the node's clock, which the Get brings to them. If it is too low, the worker that
 * moves it sees in clocks_are_awaited that it must tell them. */
uint64_t clocks_await(Clocks *clocks, uint64_t clock);
bool clocks_are_awaited(const Clocks *clocks);

/* Another node has sent its clock. An older clock is ignored. */
void clocks_hear(Clocks *clocks, uint32_t node, NodeClock news);

/* Another node is lost, and its workers count as retired. Nothing that it has sent is heard any
 * more. */
void clocks_lose(Clocks *clocks, uint32_t node);

/* The root has told the common clock, which all nodes have reached, and the slowest worker. */
void clocks_hear_common(Clocks *clocks, NodeClock common);

/* Whether that clock is RUBATO_CLOCK_RETIRED: all workers of all nodes have retired. */
bool clocks_all_have_retired(Clocks *clocks);

/* On the root, after it has heard a clock or its own has moved: calls `tell` if the lowest clock of
 * all nodes has gone up, at last to RUBATO_CLOCK_RETIRED; with CLOCKS_NEWS also if another worker
 * is the slowest now, or not all nodes were told the last time. `tell` returns whether all were
 * told. Calls come one at a time, the lowest clock first, with the lock held; `tell` may not call
 * these functions. */
typedef enum { CLOCKS_HIGHER, CLOCKS_NEWS } ClocksSpread;
void clocks_spread(Clocks *clocks, ClocksSpread what, bool (*tell)(void *user, NodeClock common),
                   void *user);

/* The slowest known worker of all nodes: its clock, rank and node number. False if none is left. */
bool clocks_slowest(Clocks *clocks, NodeClock *slowest, uint32_t *node);

/* Whether this node's slowest worker is now another one than the one told last, although the node's
 * clock has not changed; *news then becomes what to tell. It is asked now and then, so that others
 * name the right worker when they wait. */
bool clocks_has_news(Clocks *clocks, NodeClock *news);

#endif
