/* A task's run from inside: what the files of a run share.
 *
 *   task_run.c          its life: making, what the scheduler says of it, its data, its end
 *   task_run_tables.c   its tables on this node: routes, models, clocks
 *   task_run_workers.c  its workers on this node: threads, waits in barriers, retirement
 *   task_run_status.c   how far they are, for `rubato status`
 *
 * Each file changes its own members. A change that concerns several files goes through the
 * functions below.
 *
 * Threads: each member and function names its own. */
#ifndef RUBATO_ENGINE_TASK_TASK_RUN_PRIVATE_H
#define RUBATO_ENGINE_TASK_TASK_RUN_PRIVATE_H

#include "engine/collectives/tensor_exchange.h"
#include "engine/task/barrier.h"
#include "engine/task/step_gate.h"
#include "engine/task/task_run.h"
#include "io/net/fence.h"
#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

typedef struct WorkerThread WorkerThread;
typedef struct ClockEar ClockEar;

struct RubatoTaskRun {
    void *data; /* the caller's */

    /* immutable once prepared */
    const TaskHost *host;
    char *name;
    RubatoTaskFunc function;
    void *user_data;
    const RubatoWorkerSet *sets; /* as user_data: stays while workers run */
    size_t n_sets;
    uint32_t epoch;
    uint32_t past_epoch;  /* see task_run_set_past */
    uint32_t *workers_of; /* by node number */
    bool had_losses;      /* a node was lost before the task began, whoever has its place now */
    uint32_t n_workers;
    uint32_t first_rank; /* of this node's workers */
    RubatoOnLoss on_loss;
    uint32_t replace_ms;    /* 0: lost workers are not replaced */
    uint64_t *first_clocks; /* by worker of this node; NULL: 0 */
    uint64_t *heard_clocks; /* by worker and table: what a part of it has heard of the lost one */
    uint64_t *had_until;    /* likewise, by table and worker: as in a ReturnAnswer */
    uint64_t *repeated;     /* likewise: barriers that were passed, to which it comes again */
    uint64_t fusion_bytes;  /* RUBATO_FUSION_OFF: none */
    char *cutovers;         /* their file; NULL: they are fixed */
    TensorTuning *tuning;   /* on the node of rank 0 */
    Table **tables;
    TableRoute *routes;
    Clocks *clocks; /* by table */
    ClockEar *ears; /* by table: receive the clocks of other nodes */
    size_t n_tables;
    WorkerThread *workers; /* of this node */
    uint32_t n_local;

    _Atomic bool *returned;         /* by worker of this node: its function has returned */
    _Atomic bool cancelled;         /* set before post_office_cancel sweeps */
    _Atomic uint32_t n_ending;      /* workers of this node of which something is left */
    _Atomic bool had_late_calls;    /* one of them had calls that ran after its function */
    bool servers_wait;              /* immutable once prepared: see task_end.c */
    _Atomic uint32_t n_counting;    /* servers of this node that do not count all as retired yet */
    _Atomic uint32_t n_before_done; /* what TASK_DONE waits for: the workers, and the servers */
    _Atomic bool failed;     /* a worker of this node has failed: no barrier is passed any more */
    Barrier barrier;         /* of this node's workers */
    StepGate *steps;         /* theirs; others may hold it longer than the run lives */
    FenceMemory *fenced;     /* of the worker that fences: one does at a time */
    TensorExchange *tensors; /* their collectives */
    bool is_linked;          /* they are with workers of other nodes */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    uint32_t end_code; /* the first cause; CONTROL_OK if there is none */
    char *end_text;
    bool ended;              /* TASK_END has come */
    bool servers_were_told;  /* to count all as retired, or that the task is cancelled */
    Call counting;           /* which they do */
    GPtrArray *node_readers; /* of NodeReader, by reader; NULL for readers not opened */
    Call teardown;           /* ends the models after the task has ended */
};

/* Any thread that does not hold the run's lock. */
static inline void task_run_tell_scheduler(const RubatoTaskRun *run, const Control *control)
{
    run->host->tell_scheduler(run->host->user, control);
}

/* Any thread. A thread that asks another node reads the flag after it registers; task_run_cancel
 * sets the flag before it sweeps. */
static inline bool task_run_is_cancelled(const RubatoTaskRun *run)
{
    return atomic_load_explicit(&run->cancelled, memory_order_seq_cst);
}

/* ---- task_run_tables.c ---- */

/* The thread of the engine's calls. */

/* Creates the route to each table for the workers. The run has its epoch. The
 * functions: see TableRoute. */
void task_run_make_routes(RubatoTaskRun *run,
                          void (*report_wait)(void *run, uint32_t rank, uint32_t table,
                                              uint64_t clock),
                          void (*settle)(void *run));

/* Frees what the run created for its tables, when no thread uses it any more. */
void task_run_clear_routes(RubatoTaskRun *run);

/* Creates the task's models on this node's servers: on all of them or on none. */
bool task_run_begin_models(RubatoTaskRun *run, GError **error);

/* Ends them and waits until the servers have done so. */
void task_run_end_models(RubatoTaskRun *run);

/* The same without waiting: begins the call `teardown`. Any thread that holds the run's lock. */
void task_run_post_end_models(RubatoTaskRun *run);

/* ---- task_end.c ---- */

/* Once the routes are made, before clocks are heard. */
void task_run_init_end(RubatoTaskRun *run);

/* Nothing is left of this node's workers. Says TASK_DONE, if servers have not to be waited for. Any
 * thread that holds no lock of the task. */
void task_run_workers_have_ended(RubatoTaskRun *run);

/* Looks whether all workers of all nodes have retired, and lets this node's servers count that. Any
 * thread that does not hold the run's lock; it may hold that of the listeners. */
void task_run_look_retired(RubatoTaskRun *run);

/* The task is cancelled: servers are not waited for. The run's lock is held. */
void task_run_cancel_end(RubatoTaskRun *run);

/* Waits until servers do nothing of this any more. The thread that waits for the task, once it has
 * ended or was cancelled. */
void task_run_wait_end(RubatoTaskRun *run);

/* ---- task_run_workers.c ---- */

/* The worker of that rank calls this when it has waited for some time for a table's clock and
 * continues to wait: see report_wait of TableRoute. No lock is held. */
void task_run_report_wait(void *run, uint32_t rank, uint32_t table, uint64_t clock);

/* The same in a collective: see report_wait of TensorPlace. */
void task_run_report_collective(void *run, uint32_t rank, const char *asked);

/* Before a clock of a worker of this node is told: see `settle` of TableRoute. The worker's thread;
 * data: the run. */
void task_run_settle(void *data);

/* Waits until the threads of this node's workers have ended. The thread that waits for the task. */
void task_run_join_workers(RubatoTaskRun *run);

#endif
