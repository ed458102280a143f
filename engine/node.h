/* The inside of a RubatoEngine: what the files of engine/ share.
 *
 *   engine.c      its life: making, leaving, freeing
 *   engine_tables.c, engine_rows.c, engine_tasks.c   the public calls on tables, on their rows, and
 *                 on tasks
 *   engine_lists.c   lists that servers tell: keys, counts of bad deltas
 *   engine_stats.c   what it tells of itself in numbers
 *   node.c        what these files ask it
 *   rendezvous.c  how a node of a cluster finds the others
 *   control.c, control_messages.c   what nodes and scheduler say to one another
 *   node_messages.c   what a node does with what the scheduler says
 *   dispatch.c    where control messages and the network's events go
 *   collective.c  calls that every node makes: propose, do, commit
 *   task_run.c, task_run_tables.c, task_run_workers.c   a task on this node: its life; its tables;
 *                 its workers and barriers
 *   node_reader.c        the data that a task's workers read here
 *   server.c      the servers
 *
 * Threads: as each member says. The order of locks: an engine's `lock` before a task run's. */
#ifndef RUBATO_ENGINE_NODE_H
#define RUBATO_ENGINE_NODE_H

#include <pthread.h>
#include <rubato/engine.h>
#include <rubato/error.h>

#include "engine/catalogue.h"
#include "engine/cluster/cluster_file.h"
#include "engine/control.h"
#include "engine/scheduler/scheduler.h"
#include "engine/server/server.h"

typedef struct SignalWatch SignalWatch;

/* How far this node is with its present collective call. */
typedef enum {
    CALL_STAGE_NONE,
    CALL_STAGE_PROPOSED,
    CALL_STAGE_GO,
    CALL_STAGE_COMMITTED,
} CallStage;

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
    Actor helper;         /* with a thread: callbacks, the process cache */
    Actor control;        /* without one: control messages, one at a time */
    Network *network;     /* NULL in a single process */
    SignalWatch *signals; /* NULL: signals are the application's */

    /* the control actor's owner only */
    Scheduler *scheduler; /* NULL on nodes where it does not run */
    int64_t refused_ms;   /* when it last said who was refused */
    int64_t missed_ms;    /* when it last said who has not come to the rendezvous */

    /* I/O thread only */
    int64_t beat_ms;    /* when this node last sent a beat */
    int64_t tick_ms;    /* when it last looked at the time */
    int64_t resumed_ms; /* when it last found that it had been stopped for long */

    _Atomic bool broken; /* a node is lost, or a signal ended the run: no more requests */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GPtrArray *tables; /* of Table, those that are there */
    GPtrArray *runs;   /* of RubatoTaskRun, from GO until its last wait */

    /* rendezvous */
    bool welcome;
    char *refusal; /* NULL: none came */
    uint32_t refusal_code;

    /* the present collective call, of which there is one at a time */
    uint64_t n_calls;
    CallStage stage;
    uint32_t go_id;
    uint64_t go_seed;
    uint32_t commit_code;
    char *commit_text;

    char *broken_text; /* why `broken` */
    uint32_t broken_code;
    bool scheduler_lost; /* nothing more will come from it */
    bool interrupted;    /* a signal or rubato_engine_cancel came, also during the rendezvous */
    bool left;           /* every node has left */
};

/* ---- dispatch.c ---- */

void dispatch_init(RubatoEngine *engine);

/* Sends a control message to the scheduler, wherever it runs. Any thread. */
void engine_tell_scheduler(RubatoEngine *engine, const Control *control);

/* Sends a greeting to the scheduler, which listens at that endpoint. Not the I/O thread. */
void dispatch_greet(RubatoEngine *engine, const char *scheduler, const Control *greeting);

/* Tells a node that it is given up. It may only have been stopped, and finds that when it goes
 * on. */
void dispatch_say_last_word(RubatoEngine *engine, uint32_t node, const char *text);

/* Makes the scheduler on its node. */
void dispatch_start_scheduler(RubatoEngine *engine);

/* What the network calls. */
extern const NetworkHandler dispatch_network_handler;

/* No more requests, no more calls: wakes everybody. Any thread; the first cause stays. */
void engine_break(RubatoEngine *engine, uint32_t code, const char *text);

/* ---- rendezvous.c ---- */

/* Opens the network and waits until all nodes of the cluster file are here. */
bool rendezvous(RubatoEngine *engine, GError **error);

/* ---- collective.c ---- */

typedef struct {
    ControlCall what;
    const char *text;   /* "table weights" */
    const char *detail; /* the arguments in words */
    uint64_t seed;      /* a proposal: that of the node which comes first holds for all */

    /* This node's part, on the calling thread, between GO and READY; id and seed are
     * GO's. May be NULL. */
    bool (*perform)(RubatoEngine *engine, uint32_t id, uint64_t seed, void *data, GError **error);

    /* Takes it back where another node could not do its own. May be NULL. */
    void (*undo)(RubatoEngine *engine, uint32_t id, void *data);
    void *data;
} CollectiveCall;

bool collective(RubatoEngine *engine, const CollectiveCall *call, GError **error);

/* ---- node.c ---- */

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

/* "node 1 (127.0.0.1:4102)". (transfer full) */
char *engine_node_text(const RubatoEngine *engine, uint32_t number);

/* Waits on `changed` for ms at most; the lock is held. */
void engine_wait_changed(RubatoEngine *engine, uint32_t ms);

/* ---- engine_lists.c ---- */

typedef struct TableClient TableClient;

/* The keys of a table, ascending; the client's rows are of one key, its subject
 * RUBATO_SUBJECT_KEYS. (*keys: transfer full) */
bool engine_list_keys(TableClient *client, RubatoKey **keys, size_t *n, GError **error);

/* The bad deltas that the servers of all nodes have counted, ordered by worker; the client's rows
 * are BadCounts, its subject RUBATO_SUBJECT_BAD_GRADIENTS. (*counts: transfer full) */
bool engine_bad_gradients(TableClient *client, RubatoBadGradients **counts, size_t *n,
                          GError **error);

/* ---- task_run.c: any thread that holds the engine's lock ---- */

/* The run of an epoch, NULL where there is none. */
RubatoTaskRun *task_run_find(RubatoEngine *engine, uint64_t epoch);

void task_run_cancel(RubatoTaskRun *run, uint32_t code, const char *text);
void task_run_blocks(RubatoTaskRun *run, const ControlBlocks *blocks);
void task_run_end(RubatoTaskRun *run, uint32_t code, const char *text);

/* ---- task_run_tables.c: any thread that holds the engine's lock ---- */

/* Tells the others this node's clocks on the run's tables, where they have changed. */
void task_run_tell_news(RubatoTaskRun *run);

/* A clock of another node came. */
void task_run_hear_clock(RubatoTaskRun *run, uint32_t node, const WireHeader *header);

/* ---- task_run_workers.c: any thread that holds the engine's lock ---- */

/* Every node has arrived in a barrier. */
void task_run_release(RubatoTaskRun *run, uint64_t round);

#endif
