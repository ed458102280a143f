/* The inside of a RubatoEngine, for the files that make it up:
 *
 *   engine.c      its life: making, leaving, freeing
 *   engine_tables.c, engine_rows.c, engine_tasks.c   the public calls on tables, on their rows, and
 *                 on tasks
 *   engine_history.c   which of these calls go into the history of the node
 *   engine_timeline.c   its timeline: where, from when to when
 *   engine_parts.c   moving a part to another server, step by step
 *   engine_placement.c   where parts and their replicas lie
 *   engine_balance.c   which of them go to a node that has joined
 *   engine_replicas.c   which tables can have replicas
 *   engine_recovery.c   what this node does when another one is lost, step by step
 *   engine_drain.c   what it does when parts leave a node; the call that drains one
 *   join/admit.c   what it does for a process that takes the place of a lost one
 *   join/serving.c   what it does if it is such a process
 *   join/newcomer.c   what becomes of the calls of its program
 *   join/resume.c   what it does when another process goes on as the scheduler
 *   join/scheduler_again.c   what it does if it is that process; its journal
 *   engine_lists.c   lists that servers send: keys, counts of bad deltas
 *   engine_stats.c   its statistics
 *   faults_on_demand.c   what RUBATO_FAULTS asks for
 *   engine_needs.c   what its tables have taken
 *   engine_services.c   requests to services of nodes, who lives
 *   engine_private.c   questions that these files share
 *   collective.c  calls that every node makes: propose, do, commit
 *   cluster/announce.c     how the nodes of a run without a cluster file gather
 *   cluster/announcer.c    what such a node hears and sends meanwhile
 *   cluster/rendezvous.c   how a node of a cluster finds the others
 *   control/dispatch.c    where control messages and the network's events go
 *   control/node_messages.c   what a node does with messages of the scheduler
 *
 * The folders of lower layers do not include this file: a task gets a TaskHost, the scheduler its
 * SchedulerOutput, a server its post office.
 *
 * Threads: as each member says. The order of locks: an engine's `lock` before a task run's. */
#ifndef RUBATO_ENGINE_ENGINE_PRIVATE_H
#define RUBATO_ENGINE_ENGINE_PRIVATE_H

#include <pthread.h>
#include <rubato/engine.h>
#include <rubato/error.h>

#include "engine/binding/thread_binding.h"
#include "engine/catalogue.h"
#include "engine/cluster/cluster_file.h"
#include "engine/cluster/rendezvous.h"
#include "engine/collective.h"
#include "engine/collectives/tensor_router.h"
#include "engine/control/dispatch.h"
#include "engine/control/long_handlers.h"
#include "engine/control/place_text.h"
#include "engine/control/refusals.h"
#include "engine/control/unheard.h"
#include "engine/faults_on_demand.h"
#include "engine/health/health.h"
#include "engine/join/newcomer.h"
#include "engine/join/serving.h"
#include "engine/placement/measured_needs.h"
#include "engine/scheduler/scheduler.h"
#include "engine/server/replicas/server_promote.h"
#include "engine/server/sweep/sweeper.h"
#include "engine/services/services.h"
#include "engine/signals.h"
#include "engine/snapshot/snapshot_asks.h"
#include "engine/task/task_host.h"
#include "io/history/history.h"
#include "io/net/log_sink.h"
#include "io/net/transport/faulty/faulty_channel.h"
#include "io/stream/stream_writers.h"
#include "io/timeline/timeline.h"

/* When, and why, a node was lost, or has left; no text: it is there. A spare node is lost likewise
 * until a process has joined as it. */
typedef struct {
    int64_t at_us; /* g_get_real_time */
    double silent_s;
    char *text;
    bool is_absent;       /* it is spare, and no process has been it yet */
    bool is_drained;      /* it has left, because it was drained */
    uint64_t incarnation; /* of the process */
    bool is_told;         /* the launcher knows it */
    bool serves;          /* another process has, or had, the place of the first one */
} NodeLoss;

/* A function that is called when the engine leaves. */
typedef struct {
    void (*function)(void *user_data);
    void *user_data;
} ExitCall;

/* What the present snapshot holds here: from when its CLOSE was heard to when its maps are open
 * again; to when its images have ended. */
typedef enum {
    CUT_HOLDS_NOTHING,
    CUT_HOLDS_IMAGES,
    CUT_HOLDS_MAPS,
} CutHolds;

typedef struct LedSnapshot LedSnapshot;   /* snapshot/led_snapshots.c */
typedef struct CutWork CutWork;           /* snapshot/snapshot_cut.h */
typedef struct WritePaceOps WritePaceOps; /* snapshot/write_pace.h */

struct RubatoEngine {
    /* immutable once made */
    RubatoEngineConfig config;
    Cluster *cluster;         /* NULL in a single process */
    Roster *roster;           /* on the scheduler's node of a run without a cluster file; or NULL */
    uint32_t self;            /* this node's number */
    uint32_t id;              /* its id */
    uint32_t n_nodes;         /* with those that are spare */
    bool is_new;              /* no process has been this node before, so it takes nobody's place */
    uint32_t *node_ids;       /* by number */
    char **node_names;        /* by number: "host:port"; of nodes that announce themselves the
                               * host, and of spare ones among these "any host" */
    uint32_t *servers_of;     /* by number */
    ServerCount server_count; /* of all nodes */
    uint32_t *workers_of;     /* by node number: workers of a task that names no number */
    uint32_t scheduler_node;  /* number */
    uint32_t heartbeat_ms;    /* at most a quarter of the timeout */
    uint32_t timeout_ms;
    uint32_t silence_ms; /* a node silent for this long is lost: a heartbeat and the timeout */
    uint32_t stall_ms;
    uint64_t incarnation;
    uint32_t n_forks;              /* forks that had led to its process */
    const TransportOps *transport; /* NULL: the transports that the cluster file names */
    History *history;              /* of RUBATO_HISTORY; NULL: none is kept */
    Timeline *timeline;            /* may be off */
    char *needs_folder;            /* of RUBATO_MEASURE; NULL: nothing is measured */
    MeasuredNeeds *needs;          /* of tables that were dropped; NULL likewise */
    FaultsOnDemand on_demand;      /* of RUBATO_FAULTS */
    WireFaults own_faults;
    WireFaults *faults; /* of all that it sends; NULL: none */
    FlowSizes sizes;
    LogSink log;                  /* of the lines of its threads, and of its calls */
    const CutWork *snapshot_work; /* of snapshots that the scheduler leads; NULL: their files */
    uint64_t copies_bytes;      /* the most memory for copies of rows while a snapshot is written */
    const WritePaceOps *pace;   /* of what is written beside training */
    _Atomic int64_t written_ns; /* when the last snapshot was, by the pace's clock; 0: none was */
    /* held during each call of the engine that changes a table with replicas: so these requests of
     * the node come to a part in the order of their numbers, as those of a worker do */
    pthread_mutex_t changing;
    pthread_mutex_t status_lock; /* held while a status is made; before `lock` */
    char *addresses; /* where this node receives, widest reach first; the first takes greetings */

    PostOffice office;
    Server *servers;            /* of this node */
    NoNumbers no_numbers;       /* that they have told */
    LongHandler *long_handlers; /* by server of this node; the thread that ticks */
    uint32_t n_servers;
    ThreadBinding *binding; /* NULL: threads are not bound */
    Sweeper sweeper;        /* of these servers */
    TaskHost task_host;
    Services *services;
    TensorRouter *tensors;
    Actor helper;         /* with a thread: callbacks, the process cache */
    Actor part_steps;     /* with a thread, which may wait: closes and opens part maps */
    Actor snapshot_steps; /* with a thread once it is needed: snapshots that the scheduler leads */
    SnapshotAsks snapshot_asks;
    GPtrArray *stream_writers; /* NULL until one is needed; the thread of the engine's calls */
    GPtrArray *owned_folders;  /* of WriterLock; NULL until one is needed; guarded by lock */
    Actor control;             /* without one: control messages, one at a time */
    Network *network;          /* NULL in a single process */
    Serving *serving;          /* NULL: it has not joined in the place of a lost node */
    Newcomer *newcomer;        /* its program; NULL: it serves only, or has not joined */
    SignalWatch *signals;      /* NULL: signals are the application's */
    bool was_asked; /* the program has been asked: of their thread; of the control actor's
                     * owner once a drain has begun at a signal */
    Health *health; /* NULL: no probes are answered */

    /* the control actor's owner only */
    Scheduler *scheduler; /* NULL on nodes where it does not run */
    Refusals refusals;    /* of processes that are not of the run */
    bool takes_snapshots; /* the thread of snapshot_steps has started */

    LedSnapshot *led; /* the thread of snapshot_steps only; NULL: none */

    DispatchTimes times;
    Unheard unheard;          /* by the scheduler, which runs on another node */
    _Atomic int64_t back_ms;  /* when this node came back to a new process of it; 0: never */
    uint64_t *told_ended;     /* by node: the process that was told as ended; the I/O thread */
    _Atomic uint64_t n_heard; /* messages of the scheduler that count: who receives adds to it */
    char *scheduler_address;  /* where it takes greetings; immutable once set. NULL: it is here */
    struct JournalFile *journal_file; /* of the scheduler on this node; NULL: there is none */
    SchedulerJournal journal;         /* the same; no functions */

    _Atomic uint64_t n_new_replicas;    /* of all nodes: see RubatoEngineStats */
    _Atomic uint64_t n_missed_versions; /* the same */
    _Atomic bool broken;   /* a node is lost, or a signal ended the run: no more requests */
    _Atomic bool is_over;  /* the same, or a signal that came here cancels it: for log_sink.h */
    _Atomic bool is_asked; /* a signal came here: likewise */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GPtrArray *tables; /* of Table, those that are there */
    GPtrArray *runs;   /* of RubatoTaskRun, from GO to its last wait */

    bool announces;           /* the nodes of a run without a cluster file still gather */
    bool is_ready;            /* the nodes have met */
    char *restored_from;      /* the directory of the snapshot that was restored last, or NULL; */
    uint64_t restored_number; /* and its number */
    uint32_t status_wait_ms;  /* a status waits so long for other nodes */
    bool status_ended;        /* no status tells of the run any more */
    RendezvousAnswer rendezvous;
    PresentCall call;

    char *broken_text; /* why `broken` */
    uint32_t broken_code;
    NodeLoss *losses;      /* by node number */
    bool *drains;          /* by node number: parts leave it, or have left it */
    uint64_t n_drains;     /* that this node has asked for, */
    GPtrArray *drain_asks; /* of DrainAsk, and which have not ended: engine_drain.c */
    struct {
        uint64_t number; /* of the drain that a signal has begun; 0: none has */
        int signal_number;
        bool (*interrupted)(RubatoEngine *engine, int signal_number); /* if it fails */
    } drained_at;
    uint32_t newest_map; /* of the newest step that followed a loss, or a process that joins */
    CutHolds cut_holds;  /* a snapshot, */
    uint32_t n_losses;   /* in a run that goes on, of which this node has heard */
    uint32_t cut_losses; /* before the present snapshot began */
    uint64_t n_told, n_told_done; /* to a process that serves, and what it has done of it */
    GArray *exits;                /* of ExitCall */
    bool had_newcomers;           /* a program has caught up, of this node or another one */
    bool is_ending;               /* rubato_engine_free has begun */
    bool scheduler_lost;          /* it will send nothing more */
    bool left;                    /* every node has left */
};

/* ---- engine_private.c ---- */

/* Whether the calling thread may make a call that waits for other workers or threads. A process
 * forked from the engine's, a worker in its task's function, and a callback may not.
 * RUBATO_ERROR_INVALID; `what` names the call in the message. */
bool engine_check_caller(const RubatoEngine *engine, const char *what, GError **error);

/* The same of a call that a worker may make in its task's function, because its wait ends with a
 * deadline. */
bool engine_check_caller_or_worker(const RubatoEngine *engine, const char *what, GError **error);

/* The same where there is no engine yet: whether the calling thread is in neither a task's function
 * nor a callback. */
bool engine_check_place(const char *what, GError **error);

/* Whether this process made the engine, and is not a fork of that process. */
bool engine_is_here(const RubatoEngine *engine);

/* Returns false if the engine is broken, and sets *error to the cause. The lock is held. */
bool engine_check(RubatoEngine *engine, GError **error);

/* What tests may give an engine instead of its usual parts. */
typedef struct {
    bool joins;                         /* as if JOIN_VARIABLE were set */
    const TransportOps *transport;      /* NULL: those that the cluster file names */
    WireFaults *faults;                 /* outlive the engine. NULL: as follows */
    const RubatoWireFaults *of_packets; /* copied. NULL: those of RUBATO_FAULTS */
    const FlowSizes *sizes;             /* NULL: FLOW_SIZES_USUAL */
    const CutWork *snapshot_work;       /* outlives the engine; NULL: files are written */
    uint64_t copies_bytes;              /* 0: 56 MiB */
    const WritePaceOps *pace;           /* outlives the engine; NULL: WRITE_PACE_USUAL */
} EngineParts;

/* As rubato_engine_new, of these parts. */
RubatoEngine *engine_new_of(const RubatoEngineConfig *config, const EngineParts *parts,
                            GError **error);

/* The table of that name, NULL with RUBATO_ERROR_NOT_FOUND. The lock is held. */
Table *engine_find_table(RubatoEngine *engine, const char *name, GError **error);

/* engine_hold_table also prevents the table's drop until it is released. The lock is held in
 * both. */
Table *engine_hold_table(RubatoEngine *engine, const char *name, GError **error);
void engine_release_table(RubatoEngine *engine, Table *table);

/* Tells the servers the clocks of tasks whose workers defer their Adds. A request that is sent next
 * then sees the Adds of all clocks that have passed. The lock is held. */
void engine_tell_deferred(RubatoEngine *engine);

/* The run of an epoch; NULL if there is none. The lock is held. The run may be used as long as the
 * lock is held. */
RubatoTaskRun *engine_find_run(RubatoEngine *engine, uint64_t epoch);

/* "node 1 (127.0.0.1:4102)". (transfer full) */
char *engine_node_text(const RubatoEngine *engine, uint32_t number);

/* Waits on `changed` for ms at most; the lock is held. */
void engine_wait_changed(RubatoEngine *engine, uint32_t ms);

/* Which nodes are lost; which have no workers, because they are lost, or serve only. The lock is
 * held. */
void engine_list_lost(const RubatoEngine *engine, bool *lost, bool *workerless);

/* Tells the launcher the lost nodes of which it has not been told: the run goes on without them.
 * With no lock held. */
void engine_tell_launcher(RubatoEngine *engine);

/* The collective call that all nodes do their part of: it may make a table, or drop one. A step of
 * the scheduler that comes meanwhile waits for its end. In a process that serves: the last thing
 * that it was told. 0: there is none. */
uint64_t engine_call_under_way(RubatoEngine *engine);

/* The same for what follows a loss: a snapshot, or its restoring, makes no table, and may take
 * long. */
uint64_t engine_short_call_under_way(RubatoEngine *engine);

/* Waits for the end of that call, or of the run. */
void engine_await_call(RubatoEngine *engine, uint64_t call);

/* The scheduler has said CLOSE of a snapshot; the snapshot holds no more than that; waits until it
 * does, or for the end of the run. */
void engine_begin_cut(RubatoEngine *engine);
void engine_release_cut(RubatoEngine *engine, CutHolds holds);
void engine_await_cut(RubatoEngine *engine, CutHolds holds);

/* Whether a node has been lost since the present snapshot began. */
bool engine_cut_is_torn(RubatoEngine *engine);

/* Where a part is from that map on. It uses *set. */
static inline PartPlace engine_place_of(const PlaceSet *set, uint32_t map)
{
    return (PartPlace){ .table = set->table,
                        .part = set->part,
                        .map = map,
                        .primary = set->servers[0],
                        .n_replicas = set->n - 1,
                        .replicas = set->servers + 1 };
}

/* ---- engine_tables.c ---- */

/* A process that serves makes the next table of what it was told (told_table.h), without parts. The
 * lock is not held. */
bool engine_take_table(RubatoEngine *engine, const char **lines, GError **error);

/* The same of a CREATE or DROP that others have proposed; refuses all other calls. */
void engine_serve_tables(RubatoEngine *engine, const ControlGo *go, const bool *lost,
                         GError **error);

/* The table of that number; NULL: there is none. Nobody makes or drops tables meanwhile. */
Table *engine_find_told_table(const RubatoEngine *engine, uint32_t id);

/* ---- engine_replicas.c ---- */

/* Whether the parts of a table can have the replicas that it is to have. RUBATO_ERROR_INVALID:
 * there are too few nodes, or the table is one that cannot have any. */
bool engine_check_replicas(const RubatoEngine *engine, const RubatoTableSpec *spec, GError **error);

/* From now on a table has replicas. */
void engine_prepare_replicas(RubatoEngine *engine);

/* ---- engine_placement.c ---- */

/* After the GO of a new table: puts its parts, and their replicas, on servers of nodes that are not
 * lost, by the cluster's strategy and within its limits. With too few nodes there are fewer
 * replicas, as of the parts that had been there. The same on all nodes. RUBATO_ERROR_NODE_LOST: no
 * server is left. RUBATO_ERROR_INVALID: a part fits nowhere. The lock is not held. */
bool engine_place_parts(RubatoEngine *engine, Table *table, GError **error);

/* Adds to *plan, as lines of engine/control/place_text.h, where parts are to have replicas that
 * have fewer than their table had at first: on living nodes that have none of the part, within the
 * limits of their servers, the emptiest ones first. What is on nodes that are drained does not
 * count. recover: an OPEN, whose lines say where the parts are. If a process has joined, or parts
 * have gone to it, then also lines of which parts go to it (engine_balance.h). Nothing is added if
 * no replica can be made.
 * *fault is set if a part cannot leave such a node. The lock is not held. */
void engine_place_copies(RubatoEngine *engine, const ControlRecover *recover, GString *plan,
                         GError **fault);

/* Whether a part fits on another server, within the limits. RUBATO_ERROR_INVALID. The lock is
 * held. */
bool engine_check_move(RubatoEngine *engine, const Table *table, uint32_t part, uint32_t to,
                       GError **error);

/* ---- engine_parts.c ---- */

/* A process that serves does its part of a move that others have proposed. */
void engine_serve_move(RubatoEngine *engine, const ControlGo *go, const bool *lost, GError **error);

/* ---- engine_recovery.c ---- */

/* Another node is lost: has the thread of part steps do the step of a CONTROL_RECOVER. */
void engine_recover(RubatoEngine *engine, const Control *control);

/* ---- engine_drain.c ---- */

/* A step that followed a loss, or so, is done: text and lines as in ControlRecover. */
void engine_report_step(RubatoEngine *engine, const ControlRecover *recover, const char *text,
                        const char *lines);

/* CLOSE and SETTLE where parts are handed over: the step is reported when the servers that may give
 * some have handled all that this node sent them; when replicas have all that those primaries
 * here have which are to be replaced. Both return at once. Thread of part steps. */
void engine_fence_nodes(RubatoEngine *engine, const ControlRecover *recover, const char *lines);
void engine_settle(RubatoEngine *engine, const ControlRecover *recover);

/* OPEN: what waits for an answer in parts that have left this node's servers goes to the new
 * primaries. Thread of part steps. */
void engine_pass_on_given(RubatoEngine *engine);

/* The scheduler says which nodes parts leave, or have left; how a drain that this node asked for
 * has ended. */
void engine_note_draining(RubatoEngine *engine, const char *lines);
void engine_hear_drained(RubatoEngine *engine, const ControlDrain *drained);

/* A signal came that asks the process to end. Returns whether the next one ends it at once. */
bool engine_interrupted(RubatoEngine *engine, int signal_number);

/* SIGTERM on a node that only serves, in a run that goes on without it: the node is drained and
 * leaves. False: it is another signal or node, and nothing is done. If the node cannot be drained,
 * `interrupted` is called, by the control actor's owner. The thread of signals. */
bool engine_drain_at_signal(RubatoEngine *engine, int signal_number,
                            bool (*interrupted)(RubatoEngine *engine, int signal_number));

/* ---- engine_begin.c ---- */

/* Begins an engine whose configuration and lists are there: faults on demand, the description of
 * the run, threads, and the rendezvous, which waits for the other nodes. If it fails,
 * rubato_engine_free ends what has begun. */
bool engine_begin(RubatoEngine *engine, GError **error);

/* ---- engine_history.c ---- */

/* Starts the history that the environment asks for. RUBATO_ERROR_IO. */
bool engine_begin_history(RubatoEngine *engine, GError **error);

/* A task has begun, or ended. */
void engine_note_task(RubatoEngine *engine, const RubatoTaskRun *run);
void engine_note_end(RubatoEngine *engine, const RubatoTaskRun *run, bool ok);

/* A program in the place of a lost one comes to the end of a task that ran without it. */
void engine_note_past_end(RubatoEngine *engine);

/* The run goes on without the node of this number. Any thread. */
void engine_note_lost_node(RubatoEngine *engine, uint32_t number);

/* A table was made, or is about to be dropped. All its rows are read at the end, once in a run. */
void engine_note_table(RubatoEngine *engine, const Table *table);
void engine_note_drop(RubatoEngine *engine, const char *table);

/* The same for all tables, at the engine's end. */
void engine_end_history(RubatoEngine *engine);

/* A node is lost, for this reason; the first one stays. The lock is held. */
void engine_note_loss(RubatoEngine *engine, uint32_t number, const char *text);

/* The same of a node that was lost before this process came into the run, or that is spare. Takes
 * the lock. */
void engine_note_earlier_loss(RubatoEngine *engine, uint32_t number);
void engine_note_absent(RubatoEngine *engine, uint32_t number);

/* ---- engine_timeline.c ---- */

/* Makes the timeline, and starts it if the environment asks for it. RUBATO_ERROR_IO. */
bool engine_begin_timeline(RubatoEngine *engine, GError **error);

/* Tells other nodes the time. Before other threads use the services. */
void engine_serve_clock(RubatoEngine *engine);

/* The nodes have met: if the timeline is on, tells it the time of the scheduler's node. */
void engine_set_timeline_clock(RubatoEngine *engine);

/* ---- engine_needs.c ---- */

/* Begins it, if the environment asks for it. RUBATO_ERROR_IO. */
bool engine_begin_needs(RubatoEngine *engine, GError **error);

/* Measures a table that no other call uses: its rows are dropped next. The lock is not held. */
void engine_measure_table(RubatoEngine *engine, const Table *table);

/* All nodes have left: measures the tables that are there, and writes the file. */
void engine_end_needs(RubatoEngine *engine);

/* ---- engine_lists.c ---- */

typedef struct TableClient TableClient;

/* The keys of a table, ascending. (*keys: transfer full) */
bool engine_list_keys(TableClient *client, RubatoKey **keys, size_t *n, GError **error);

/* The bad deltas that the servers of all nodes have counted, ordered by worker. (*counts: transfer
 * full) */
bool engine_bad_gradients(TableClient *client, RubatoBadGradients **counts, size_t *n,
                          GError **error);

#endif
