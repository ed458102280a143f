/* A task: a function that N workers run against tables, and what one of its workers can ask.
 *
 * Threads: calls that take a RubatoWorker come from that worker's own thread. */
#ifndef RUBATO_TASK_H
#define RUBATO_TASK_H

#include <rubato/table.h>

G_BEGIN_DECLS

typedef struct RubatoWorker RubatoWorker;
typedef struct RubatoTaskRun RubatoTaskRun;

/* What each worker runs. False with an error fails the task on every node. A worker that returns
 * is retired: nothing that it added is lost, and nobody waits for its clock any more. */
typedef bool (*RubatoTaskFunc)(RubatoWorker *worker, void *user_data, GError **error);

/* How many workers one node gives to a task. */
typedef struct {
    uint32_t node;
    uint32_t workers; /* 0: the node takes part without workers */
} RubatoAllocation;

typedef struct {
    const char *name;
    RubatoTaskFunc run;
    void *user_data;
    const char *const *tables; /* the tables it may open, ended by NULL; NULL: none */

    /* Workers: the same count on every node of the run that has workers in its cluster file; or a
     * list, in which nodes that it leaves out have none. Neither: each node's `workers` in the
     * cluster file, the engine's `workers` in a single process. */
    uint32_t workers_per_node;
    const RubatoAllocation *allocation;
    size_t n_allocation;
} RubatoTask;

/* 0 .. n_workers - 1, over all nodes of the task: by node in the cluster file's order of ids, then
 * by the rank on the node. */
RUBATO_API uint32_t rubato_worker_rank(const RubatoWorker *worker);

/* 0 .. workers of this node - 1. */
RUBATO_API uint32_t rubato_worker_local_rank(const RubatoWorker *worker);

/* The node id. */
RUBATO_API uint32_t rubato_worker_node(const RubatoWorker *worker);

/* Workers of the task, over all nodes; and on this node. */
RUBATO_API uint32_t rubato_worker_n_workers(const RubatoWorker *worker);
RUBATO_API uint32_t rubato_worker_n_local_workers(const RubatoWorker *worker);

/* An id that no other worker of this engine's life has, over all nodes and tasks. */
RUBATO_API uint64_t rubato_worker_id(const RubatoWorker *worker);

/* Waits until every worker of the task that has not retired is here. Afterwards each of them sees
 * what any of them added before, as far as the table's model lets it. */
RUBATO_API bool rubato_worker_barrier(RubatoWorker *worker, GError **error);

/* Gives a hyper-parameter of a table's update rule another number on every server: a schedule. 0 is
 * 0. It returns without waiting. Under "bsp" it holds from the worker's present clock on, for the
 * Adds of all workers; of several workers at one clock, that of the highest rank stays. Under the
 * other models it holds, on each server, from when it arrives: for all that this worker adds after
 * the call. Errors: RUBATO_ERROR_NOT_FOUND where the task does not name the table, _INVALID where
 * the rule has no such hyper-parameter or it may not have this number, _CANCELLED. */
RUBATO_API bool rubato_worker_tune(RubatoWorker *worker, const char *table, RubatoHyper hyper,
                                   double value, GError **error);

/* Buckets of RubatoWorkerStats.staleness; the last takes what is beyond. */
#define RUBATO_STALENESS_BUCKETS 64

/* What a worker has asked for so far, how long it waited, and how stale what it read was. All
 * members are uint64_t, so that a table row of RUBATO_I64 takes them and a task can tell a sum or a
 * list of its workers' through a table.
 *
 * The staleness of a Get is the worker's clock at the Get less the min clock at which its rows were
 * read, 0 where that had gone past; of rows from several servers, and from the process cache, the
 * lowest min clock counts. So what was read held every Add that any worker made at a clock below
 * the reader's less the staleness (and maybe later ones). It is 0 under "bsp", at most the table's
 * staleness s under "ssp", at most s + speculation under "sparse_ssp" (where the Adds that are
 * missing beyond s are known to be of other keys), and has no bound under "asp". */
typedef struct {
    uint64_t n_gets;   /* answered; calls without keys are not counted, here and below */
    uint64_t n_adds;   /* sent */
    uint64_t n_clocks; /* by clock, or by a handle that clocks itself */
    uint64_t n_barriers;

    /* Nanoseconds in which the worker was blocked. Under a model that makes Gets wait that is
     * mostly for other workers' clocks; the way to other nodes and back is in it too. */
    uint64_t get_wait_ns;     /* by Gets, and by waits for the tickets of Gets */
    uint64_t send_wait_ns;    /* until servers and nodes had taken in what it sent them */
    uint64_t barrier_wait_ns; /* in rubato_worker_barrier */

    uint64_t staleness_sum; /* over all Gets: by n_gets, the mean */
    uint64_t staleness_max;
    uint64_t staleness[RUBATO_STALENESS_BUCKETS]; /* Gets by staleness: 0, 1, …, and "or more" */
} RubatoWorkerStats;

/* Adds up what two tell; of the two highest, the higher. Any thread. */
RUBATO_API void rubato_worker_stats_add(RubatoWorkerStats *to, const RubatoWorkerStats *from);

/* What the worker has done on a table of its task since the task began; with NULL, on all of them
 * together, and in barriers (which belong to no table). Gets that are in flight count once their
 * tickets have ended. False with RUBATO_ERROR_NOT_FOUND where the task does not use the table. */
RUBATO_API bool rubato_worker_stats(const RubatoWorker *worker, const char *table,
                                    RubatoWorkerStats *stats, GError **error);

/* Whether the task was cancelled: a long computation that makes no other call may ask. */
RUBATO_API bool rubato_worker_cancelled(const RubatoWorker *worker);

G_END_DECLS

#endif
