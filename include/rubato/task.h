/* A task: a function that N workers run on tables. The calls of such a worker.
 *
 * Threads: calls that take a RubatoWorker come from that worker's own thread. */
#ifndef RUBATO_TASK_H
#define RUBATO_TASK_H

#include <rubato/table.h>

G_BEGIN_DECLS

typedef struct RubatoWorker RubatoWorker;
typedef struct RubatoTaskRun RubatoTaskRun;

/* What each worker runs. False with an error fails the task on every node. A worker that returns
 * true is retired: all its Adds count, and no other worker waits for its clock any more. */
typedef bool (*RubatoTaskFunc)(RubatoWorker *worker, void *user_data, GError **error);

/* What becomes of a task if a node with workers of it is lost, and the run goes on, because its
 * tables have replicas. */
typedef enum {
    RUBATO_ON_LOSS_FAIL,     /* it fails with RUBATO_ERROR_NODE_LOST */
    RUBATO_ON_LOSS_CONTINUE, /* it goes on without these workers, also in collectives:
                              * docs/liveness.md. All its tables must have replicas, here and
                              * below */
    RUBATO_ON_LOSS_REPLACE,  /* it waits for a process in the place of the node, which has these
                              * workers again: rubato_worker_first_clock */
} RubatoOnLoss;

/* How long a task waits for lost workers to be replaced, if it does not say so: a minute. */
#define RUBATO_REPLACE_MS 60000u

/* How many workers one node gives to a task. */
typedef struct {
    uint32_t node;
    uint32_t workers; /* 0: the node takes part without workers */
} RubatoAllocation;

typedef struct RubatoTaskSnapshots RubatoTaskSnapshots; /* <rubato/snapshot.h> */
typedef struct RubatoTaskStream RubatoTaskStream;       /* <rubato/stream.h> */

/* Workers of a task, by rank. */
typedef struct {
    const uint32_t *ranks;
    size_t n;
} RubatoWorkerSet;

typedef struct {
    const char *name;
    RubatoTaskFunc run;
    void *user_data;
    const char *const *tables; /* the tables it may open, ended by NULL; NULL: none */

    /* How many workers: workers_per_node is the same number for every node that has workers in the
     * cluster file. Or allocation lists the nodes; a node that is not in the list has none. With
     * neither, each node has its `workers` of the cluster file, or in a single process the engine's
     * `workers`. */
    uint32_t workers_per_node;
    const RubatoAllocation *allocation;
    size_t n_allocation;

    const RubatoTaskSnapshots *snapshots; /* that the task takes by itself; NULL: none */
    const RubatoTaskStream *stream;       /* what streams out of it; NULL: nothing */
    RubatoOnLoss on_loss;

    /* With RUBATO_ON_LOSS_REPLACE: milliseconds from the loss of a node until another process has
     * taken over its workers, at most; then the task fails with RUBATO_ERROR_NODE_LOST. 0:
     * RUBATO_REPLACE_MS. Otherwise it has to be 0. */
    uint32_t replace_ms;

    /* Sets of workers that are there from the beginning, with the ids 1 to n_sets (collectives.h).
     * All nodes list the same: else the task fails, and says which they do not agree on. */
    const RubatoWorkerSet *sets;
    size_t n_sets;

    /* Allreduces that are decided at the same time, and agree in dtype, reduction and set, travel
     * together up to this many bytes of a worker's tensors. 0: RUBATO_FUSION_BYTES;
     * RUBATO_FUSION_OFF: each alone. All nodes give the same. */
    uint64_t fusion_bytes;

    /* A file with the cut-overs of allreduce between nodes (docs/howto/tune-collectives.md), read
     * by the node of rank 0. If it is not there they are measured while the task runs, and written
     * to it. NULL: the environment variable RUBATO_CUTOVERS names it, or they are fixed. */
    const char *cutovers;
} RubatoTask;

#define RUBATO_FUSION_BYTES ((uint64_t)64 << 20)
#define RUBATO_FUSION_OFF UINT64_MAX

/* 0 .. n_workers - 1, over all nodes of the task: by node in the order of the ids, then by the rank
 * on the node. */
RUBATO_API uint32_t rubato_worker_rank(const RubatoWorker *worker);

/* 0 .. workers of this node - 1. */
RUBATO_API uint32_t rubato_worker_local_rank(const RubatoWorker *worker);

/* The node id. */
RUBATO_API uint32_t rubato_worker_node(const RubatoWorker *worker);

/* How many workers the task has over all nodes, and on this node. */
RUBATO_API uint32_t rubato_worker_n_workers(const RubatoWorker *worker);
RUBATO_API uint32_t rubato_worker_n_local_workers(const RubatoWorker *worker);

/* An id that no other worker of this engine's life has, over all nodes and tasks. */
RUBATO_API uint64_t rubato_worker_id(const RubatoWorker *worker);

/* The clock with which the worker begins on all tables. 0, unless it is in the place of a lost
 * one, in a task with RUBATO_ON_LOSS_REPLACE. Then it is the first clock that any of the tables
 * lacks: its function has to go on with the iteration of that number, and to make the calls that
 * the lost worker made from there on, barriers too, in the same order and with the same keys. Each
 * change counts once. It does not wait in barriers that were passed; one behind the last clock of
 * an iteration is of the next one. UINT64_MAX cannot be: then the function is not called. */
RUBATO_API uint64_t rubato_worker_first_clock(const RubatoWorker *worker);

/* Waits until every worker of the task that has not retired has made this call. Afterwards each of
 * them sees all Adds that any of them made before, as far as the table's model allows it. Errors:
 * RUBATO_ERROR_CANCELLED. */
RUBATO_API bool rubato_worker_barrier(RubatoWorker *worker, GError **error);

/* Changes a hyper-parameter of a table's update rule on every server, for example for a schedule;
 * here 0 means the number 0. It returns without waiting. Under "bsp" the new number holds for the
 * Adds of all workers from this worker's present clock on. If several workers change it at one
 * clock, the one with the highest rank wins. Under the other models each server uses the new number
 * from its arrival on, so it holds for all that this worker adds after the call. Errors:
 * RUBATO_ERROR_NOT_FOUND if the task does not name the table, _INVALID if the rule has no such
 * hyper-parameter or it may not have this number, _CANCELLED. */
RUBATO_API bool rubato_worker_tune(RubatoWorker *worker, const char *table, RubatoHyper hyper,
                                   double value, GError **error);

/* How many numbers RubatoWorkerStats.staleness has. The last counts this staleness and more. */
#define RUBATO_STALENESS_BUCKETS 64

/* A worker's requests so far, how long it waited, and how stale the rows were that it read. All
 * members are uint64_t. So a table row of RUBATO_I64 can hold them, and a task can collect those of
 * its workers in a table.
 *
 * The staleness of a Get is the worker's clock at the Get minus the min clock at which its rows
 * were read, or 0 if the min clock was higher. If the rows came from several servers, or from the
 * process cache, the lowest min clock counts. So the rows held every Add that any worker made at a
 * clock below the reader's clock minus the staleness, and perhaps later ones. The staleness is 0
 * under "bsp", at most the table's staleness s under "ssp", and at most s + speculation under
 * "sparse_ssp" (there the Adds missing beyond s are of other keys). It has no bound under "asp". */
typedef struct {
    uint64_t n_gets;   /* answered; calls without keys are not counted, here and below */
    uint64_t n_adds;   /* sent */
    uint64_t n_clocks; /* by a clock call, or by a handle that clocks itself */
    uint64_t n_barriers;

    /* Nanoseconds in which the worker was blocked. Under a model that makes Gets wait, most of it
     * is for other workers' clocks; the time to other nodes and back is included. */
    uint64_t get_wait_ns;     /* by Gets, and by waits for the tickets of Gets */
    uint64_t send_wait_ns;    /* until servers and nodes had taken its messages */
    uint64_t barrier_wait_ns; /* in rubato_worker_barrier */

    uint64_t staleness_sum; /* over all Gets; divided by n_gets it is the mean */
    uint64_t staleness_max;
    uint64_t staleness[RUBATO_STALENESS_BUCKETS]; /* Gets by staleness: 0, 1, …, and "or more" */
} RubatoWorkerStats;

/* Adds `from` to `to`; staleness_max becomes the higher of the two. Any thread. */
RUBATO_API void rubato_worker_stats_add(RubatoWorkerStats *to, const RubatoWorkerStats *from);

/* The worker's numbers on a table of its task since the task began. With NULL as the table, those
 * on all its tables together and in barriers, which belong to no table. Gets in flight count once
 * their tickets have ended. RUBATO_ERROR_NOT_FOUND if the task does not use the table. */
RUBATO_API bool rubato_worker_stats(const RubatoWorker *worker, const char *table,
                                    RubatoWorkerStats *stats, GError **error);

/* Whether the task was cancelled. A long computation that makes no other call can ask this. */
RUBATO_API bool rubato_worker_cancelled(const RubatoWorker *worker);

G_END_DECLS

#endif
