/* The inside of a RubatoEngine, for the files that make it up:
 *
 *   engine.c      its life: making, leaving, freeing
 *   engine_tables.c, engine_rows.c, engine_tasks.c   the public calls on tables, on their rows, and
 *                 on tasks
 *   engine_parts.c   moving a part to another server
 *   engine_lists.c   lists that servers tell: keys, counts of bad deltas
 *   engine_stats.c   what it tells of itself in numbers
 *   engine_private.c   what these files ask it
 *   collective.c  calls that every node makes: propose, do, commit
 *   cluster/rendezvous.c   how a node of a cluster finds the others
 *   dispatch.c    where control messages and the network's events go
 *   node_messages.c   what a node does with what the scheduler says
 *
 * The rooms below it do not see it: a task gets a TaskHost, the scheduler its SchedulerOutput, a
 * server its post office.
 *
 * Threads: as each member says. The order of locks: an engine's `lock` before a task run's. */
#ifndef RUBATO_ENGINE_ENGINE_PRIVATE_H
#define RUBATO_ENGINE_ENGINE_PRIVATE_H

#include <pthread.h>
#include <rubato/engine.h>
#include <rubato/error.h>

#include "engine/catalogue.h"
#include "engine/cluster/cluster_file.h"
#include "engine/cluster/rendezvous.h"
#include "engine/collective.h"
#include "engine/dispatch.h"
#include "engine/scheduler/scheduler.h"
#include "engine/server/server.h"
#include "engine/signals.h"
#include "engine/task/task_host.h"

struct RubatoEngine {
    /* immutable once made */
    RubatoEngineConfig config;
    Cluster *cluster; /* NULL in a single process */
    uint32_t self;    /* this node's number */
    uint32_t id;      /* its id */
    uint32_t n_nodes;
    uint32_t *node_ids;      /* by number */
    char **node_names;       /* by number: "host:port" */
    uint32_t *servers_of;    /* by number */
    uint32_t *workers_of;    /* by number: of a task that names no number */
    uint32_t scheduler_node; /* number */
    uint32_t heartbeat_ms;   /* at most a quarter of the timeout */
    uint32_t timeout_ms;
    uint32_t silence_ms; /* who is not heard of for so long is lost: a heartbeat and the timeout */
    uint32_t stall_ms;
    uint64_t incarnation;
    uint32_t n_forks;              /* that had led to its process */
    const TransportOps *transport; /* NULL: those that the cluster file asks for */
    FlowSizes sizes;
    char *addresses; /* where this node receives, from far to near; the first takes greetings */

    PostOffice office;
    Server *servers; /* of this node */
    uint32_t n_servers;
    TaskHost task_host;
    Actor helper;         /* with a thread: callbacks, the process cache */
    Actor control;        /* without one: control messages, one at a time */
    Network *network;     /* NULL in a single process */
    SignalWatch *signals; /* NULL: signals are the application's */

    /* the control actor's owner only */
    Scheduler *scheduler; /* NULL on nodes where it does not run */

    DispatchTimes times;

    _Atomic bool broken; /* a node is lost, or a signal ended the run: no more requests */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GPtrArray *tables; /* of Table, those that are there */
    GPtrArray *runs;   /* of RubatoTaskRun, from GO until its last wait */

    RendezvousAnswer rendezvous;
    PresentCall call;

    char *broken_text; /* why `broken` */
    uint32_t broken_code;
    bool scheduler_lost; /* nothing more will come from it */
    bool left;           /* every node has left */
};

/* ---- engine_private.c ---- */

/* Whether the calling thread may make a call that waits for other workers or threads: not one
 * forked from the engine's process, nor a worker in its task's function, nor a callback.
 * RUBATO_ERROR_INVALID; `what` is the call, for the message. */
bool engine_check_caller(const RubatoEngine *engine, const char *what, GError **error);

/* Whether this is the process that has made the engine, and not one forked from it. */
bool engine_is_here(const RubatoEngine *engine);

/* Sets *error to why the engine is broken. Returns false where it is. The lock is held. */
bool engine_check(RubatoEngine *engine, GError **error);

/* As rubato_engine_new, over a transport that no cluster file names: tests put their faults
 * there. */
RubatoEngine *engine_new_over(const RubatoEngineConfig *config, const TransportOps *transport,
                              GError **error);

/* The same with other sizes than the usual ones: tests make them small. */
RubatoEngine *engine_new_sized(const RubatoEngineConfig *config, const TransportOps *transport,
                               const FlowSizes *sizes, GError **error);

/* The table of that name, NULL with RUBATO_ERROR_NOT_FOUND. The lock is held. */
Table *engine_find_table(RubatoEngine *engine, const char *name, GError **error);

/* The same, and keeps it from being dropped until it is released. The lock is held in both. */
Table *engine_hold_table(RubatoEngine *engine, const char *name, GError **error);
void engine_release_table(RubatoEngine *engine, Table *table);

/* The run of an epoch, NULL where there is none. The lock is held, and as long as it is, the run
 * may be used. */
RubatoTaskRun *engine_find_run(RubatoEngine *engine, uint64_t epoch);

/* "node 1 (127.0.0.1:4102)". (transfer full) */
char *engine_node_text(const RubatoEngine *engine, uint32_t number);

/* Waits on `changed` for ms at most; the lock is held. */
void engine_wait_changed(RubatoEngine *engine, uint32_t ms);

/* ---- engine_lists.c ---- */

typedef struct TableClient TableClient;

/* The keys of a table, ascending. (*keys: transfer full) */
bool engine_list_keys(TableClient *client, RubatoKey **keys, size_t *n, GError **error);

/* The bad deltas that the servers of all nodes have counted, ordered by worker. (*counts: transfer
 * full) */
bool engine_bad_gradients(TableClient *client, RubatoBadGradients **counts, size_t *n,
                          GError **error);

#endif
