/* The engine: one per node. It owns the node's server threads and the parts of tables that these
 * hold. It meets the other nodes of the run, and runs tasks.
 *
 * Calls that create, drop and run are collective: every node makes the same ones in the same order.
 * A mismatch is an error on every node, and its text names both sides. Without a cluster file there
 * is a single process, and these calls concern it alone.
 *
 * Errors of the calls on rows: RUBATO_ERROR_NOT_FOUND if there is no such table, _RANGE for a key
 * outside a dense table's range, _MEMORY, and what ended the run, such as _NODE_LOST.
 *
 * Threads: collective calls come from one thread at a time; everything else from any thread. Inside
 * a task's function only these are allowed: rubato_engine_cancel, rubato_engine_stats,
 * rubato_engine_table_stats, rubato_engine_bad_gradients and the calls on rows. Inside a callback
 * only the first two are. */
#ifndef RUBATO_ENGINE_H
#define RUBATO_ENGINE_H

#include <rubato/table.h>
#include <rubato/task.h>

G_BEGIN_DECLS

typedef struct RubatoEngine RubatoEngine;

/* What a node of a run without a cluster file does. */
typedef enum {
    RUBATO_ROLE_NONE, /* no such run */
    RUBATO_ROLE_SCHEDULER,
    RUBATO_ROLE_SERVER, /* holds parts of tables */
    RUBATO_ROLE_WORKER, /* runs the workers of tasks */
    RUBATO_ROLE_NODE, /* both: one of several equal nodes, of which node 0 is the scheduler, too */
} RubatoRole;

/* A node of a run without a cluster file. Servers and workers announce themselves to the scheduler,
 * which waits for as many as it was told, and gives each an id. The scheduler's own node is node 0,
 * and has neither servers nor workers. A run of equal nodes has no other roles. */
typedef struct {
    RubatoRole role;
    const char *scheduler; /* "HOST:PORT", where the scheduler listens; the same for all nodes */
    uint32_t servers, workers; /* scheduler: how many nodes of each role it waits for; an equal
                                * node: its server threads and workers, as in a cluster file */
    uint32_t threads;      /* a server's threads, or a worker node's workers in a task that names
                            * no number; of the scheduler: the threads of servers that take spare
                            * places; 0 means 1 */
    uint32_t node;         /* the id that a server or worker wants to have, from 1; 0: any; the id
                            * of an equal node, from 0 */
    const char *interface; /* "eth0", or an address: where this node receives. NULL: the address
                            * from which it reaches the scheduler; the scheduler: its own HOST */
    const char *settings;  /* entries of a cluster file, such as "timeout_ms = 9000;". A node uses
                            * its own until it has found the scheduler, and then the scheduler's.
                            * NULL: the defaults */
    uint32_t nodes;        /* of an equal node: how many there are */
    uint32_t spares;       /* scheduler: how many servers may come as new ones once the run has
                            * begun, which does not wait for them; their ids are behind those of the
                            * others. Equal node: how many such nodes there may be, which have as
                            * many server threads and workers as node 0 */
} RubatoAnnouncement;

/* Reads RUBATO_ROLE, and with it RUBATO_SCHEDULER, RUBATO_SERVERS, RUBATO_WORKERS, RUBATO_THREADS,
 * RUBATO_SPARES, RUBATO_NODE, RUBATO_NODES, RUBATO_PORT, RUBATO_INTERFACE and RUBATO_SETTINGS;
 * `rubato scheduler`, `server`, `worker` and `task` set them. Without RUBATO_ROLE the role is
 * RUBATO_ROLE_NONE, unless a job system, such as Slurm or mpirun, has started this process as one
 * of several: then it is RUBATO_ROLE_NODE, and the job system says what RUBATO_NODE, RUBATO_NODES
 * and RUBATO_SCHEDULER do not. RUBATO_ROLE=alone asks for RUBATO_ROLE_NONE in any case. The strings
 * are valid as long as the environment does not change. MPICH's mpiexec is asked only once, and its
 * answer is kept in RUBATO_JOB_ANSWER. False with RUBATO_ERROR_INVALID if a variable is wrong or
 * missing, or with RUBATO_ERROR_NETWORK if mpirun does not tell where the first process runs. */
RUBATO_API bool rubato_announcement_from_environment(RubatoAnnouncement *announcement,
                                                     GError **error);

/* How much a line of the log matters. */
typedef enum {
    RUBATO_LOG_MESSAGE,  /* the run goes on: for whom a call waits, what a node does about a loss */
    RUBATO_LOG_WARNING,  /* something is wrong, and no call tells it */
    RUBATO_LOG_CRITICAL, /* the program misuses the library */
    RUBATO_LOG_NOTHING,  /* as log_level: no line at all */
} RubatoLogLevel;

/* Takes a line of the log. It may come from several threads at once, and must not block. Of the
 * engine it may only ask the number of its node. */
typedef void (*RubatoLogFunc)(RubatoLogLevel level, const char *text, RubatoEngine *engine,
                              void *user_data);

/* How an engine starts. A zeroed config is one process with one server thread. */
typedef struct {
    const char *cluster_file; /* NULL: one process */
    uint32_t node;            /* with cluster_file: which of its nodes this process is */
    uint32_t servers;         /* in one process: the number of server threads; 0 means 1 */
    uint32_t workers;         /* in one process: workers of a task that names no number; 0: 1 */

    /* Whether threads are bound to cores: each server to one of its own, workers to those that no
     * server of the node has. With numa they are, too, and the rows of a server are in memory of
     * the NUMA node of its core. Nodes of one host share its cores out. True also if the cluster
     * file says so. Without hwloc, and where the system does not allow it, the engine does not
     * start: RUBATO_ERROR_INVALID. */
    bool bind_cores, numa;

    /* After this many milliseconds a call that still waits says in the log for whom, and again
     * after each further stall_ms. 0 means 10,000, or the cluster file's number. */
    uint32_t stall_ms;

    /* The first SIGINT, SIGTERM or SIGHUP cancels the run in order (SIGHUP only if the process does
     * not ignore it). A second signal ends the process at once. SIGTERM on a node without workers
     * other than the scheduler's, in a run whose tables have replicas, drains the node: calls then
     * fail with RUBATO_ERROR_SERVED, and the run goes on; if that is impossible, it is as any other
     * signal. Set it only if the process has no other threads yet. */
    bool handle_signals;

    /* With handle_signals: called at the first of these signals, on a thread of the engine. True:
     * the program ends in its own way; only the next signal cancels the run, and a third ends the
     * process at once. NULL: nobody is asked. It may return false, too, for a signal to be noticed
     * only. */
    bool (*take_signal)(int signal_number, void *user_data);
    void *signal_data; /* its user_data */

    /* The lines of this engine's threads, workers and calls: which are written (those of this level
     * and above), and who writes them (NULL: GLib's log, in the domain "rubato"). What no engine
     * causes goes to GLib's log: the reading of data outside a task, a call without an engine. Both
     * work by g_log_set_handler of that domain, so a program with a handler of its own for it
     * leaves them out. */
    RubatoLogLevel log_level;
    RubatoLogFunc log;
    void *log_data; /* its user_data */

    /* In place of a cluster file. NULL, or RUBATO_ROLE_NONE in it: none. The caller may free it
     * once rubato_engine_new has returned. */
    const RubatoAnnouncement *announcement;

    /* Of a process that takes the place of a lost node, the program runs: its calls end as those of
     * the run have ended, until it has caught up with the others. Then the node has workers again,
     * in tasks that begin from there on. What it changes in tables between its calls has no effect
     * before. Without it such a process serves until the run ends, and rubato_engine_new returns
     * NULL with RUBATO_ERROR_SERVED. It has no effect on any other process. RUBATO_CATCH_UP=1 in
     * the environment does the same. */
    bool catches_up;
} RubatoEngineConfig;

/* Starts an engine. With a cluster file, or an announcement, it returns once every node has
 * arrived; they have the file's rendezvous_ms, or that of the settings. The engine copies the
 * config. Returns NULL with RUBATO_ERROR_CONFIG, _IO, _NETWORK, _MISMATCH, _INVALID, _MEMORY,
 * _CANCELLED (by a signal) or _NODE_LOST. (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new(const RubatoEngineConfig *config, GError **error);

/* The same from the command line: takes --cluster FILE, --node ID, --servers N, --workers N,
 * --bind-cores, --numa and --plugin FILE (rubato_load_plugin) out of argv and leaves the rest.
 * --help prints these flags and ends the program. A cluster file and a node that no flag names come
 * from the environment variables RUBATO_CLUSTER and RUBATO_NODE, which `rubato run` sets. Without
 * these, RUBATO_ROLE and the variables with it make the process a node. The engine handles signals.
 * (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new_from_args(int *argc, char ***argv, GError **error);

/* Leaves the run and stops every thread. It first waits until all living nodes have made this call
 * too, because they may still need this node's servers. In a task's function, a callback, a service
 * or a handler, where it would wait for itself, it frees nothing, and the log says so. NULL is
 * allowed. */
RUBATO_API void rubato_engine_free(RubatoEngine *engine);

/* This node's id; 0 in a single process. */
RUBATO_API uint32_t rubato_engine_node(const RubatoEngine *engine);

/* Whether the program of this process, which has taken the place of a lost node, has yet to catch
 * up with the others (catches_up of the config): its next call may be one that the run has made.
 * Tables are as the others have them now, so one may have other rows than at this call of the
 * others, or may have been dropped. Any thread. */
RUBATO_API bool rubato_engine_catches_up(RubatoEngine *engine);

/* The faults on demand of this run, as the environment variable RUBATO_FAULTS gives them; NULL if
 * there are none. (transfer none) */
RUBATO_API const char *rubato_engine_faults(const RubatoEngine *engine);

/* Which threads of this node are bound to which cores, on a line for people; NULL if none are.
 * (transfer none) */
RUBATO_API const char *rubato_engine_binding(const RubatoEngine *engine);

/* How many nodes the run has, and how many server threads on all nodes together: also those of
 * spare nodes, which may join later. */
RUBATO_API uint32_t rubato_engine_n_nodes(const RubatoEngine *engine);
RUBATO_API uint32_t rubato_engine_n_servers(const RubatoEngine *engine);

/* The number of workers, over all nodes that are not spare, of a task that names no number. */
RUBATO_API uint32_t rubato_engine_n_workers(const RubatoEngine *engine);

/* Collective. Creates a table over all servers of the run.
 * Errors: RUBATO_ERROR_INVALID, _EXISTS, _NOT_FOUND (an unknown model, storage, rule, initialiser
 * or partition: the message lists the known ones), _MEMORY, _MISMATCH, _NODE_LOST. */
RUBATO_API bool rubato_engine_create_table(RubatoEngine *engine, const RubatoTableSpec *spec,
                                           GError **error);

/* Collective. Drops a table and its rows. A table that a running task uses is refused. */
RUBATO_API bool rubato_engine_drop_table(RubatoEngine *engine, const char *name, GError **error);

/* Collective. Starts a task and returns once every node has it ready. The engine copies the task;
 * user_data and what it points to stay the caller's until the task has ended.
 * Returns a handle for rubato_task_run_wait, NULL on error. (transfer full) */
RUBATO_API RubatoTaskRun *rubato_engine_start(RubatoEngine *engine, const RubatoTask *task,
                                              GError **error);

/* Waits until the task has ended on every node and frees the handle. False with the task's first
 * failure: RUBATO_ERROR_TASK_FAILED names the worker and node, _CANCELLED, _NODE_LOST,
 * _DEADLOCK. */
RUBATO_API bool rubato_task_run_wait(RubatoTaskRun *run, GError **error);

/* The same of n tasks: waits for all of them, also if some fail, and frees their handles. An
 * element may be NULL, as of a task that could not be started; afterwards all are. False with the
 * error of the first one in the array that has failed. */
RUBATO_API bool rubato_task_runs_wait_all(RubatoTaskRun **runs, size_t n, GError **error);

/* Waits for a task's end, however it ends, and frees the handle: for g_autoptr. NULL is allowed.
 * The engine must not be freed before. In a task's function or a callback it frees nothing, and the
 * log says so. */
RUBATO_API void rubato_task_run_free(RubatoTaskRun *run);

/* Collective. Starts a task and waits for its end: rubato_engine_start and rubato_task_run_wait. */
RUBATO_API bool rubato_engine_run(RubatoEngine *engine, const RubatoTask *task, GError **error);

/* Collective. Waits until every node has made this call. */
RUBATO_API bool rubato_engine_barrier(RubatoEngine *engine, GError **error);

/* Cancels every running task of the run, on all nodes. Every call that is blocked in such a task
 * fails with RUBATO_ERROR_CANCELLED. A task's function or a callback may make this call, too. */
RUBATO_API void rubato_engine_cancel(RubatoEngine *engine);

/* Reads the rows of n keys, in the keys' order, into values (n × width values of the table's
 * dtype). It does not ask the consistency model, so it is meant for the time between tasks. */
RUBATO_API bool rubato_engine_get(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                  size_t n, void *values, GError **error);

/* The same for the rows of the keys first .. first + n - 1. */
RUBATO_API bool rubato_engine_get_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                        size_t n, void *values, GError **error);

/* Applies n rows of deltas by the table's update rule. Returns once the servers have applied
 * them. */
RUBATO_API bool rubato_engine_add(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                  size_t n, const void *deltas, GError **error);

/* The same for the rows of the keys first .. first + n - 1. */
RUBATO_API bool rubato_engine_add_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                        size_t n, const void *deltas, GError **error);

/* Writes n rows of values to the table, without its update rule. The rows get the state that new
 * rows with these values have. Returns once the servers have them. */
RUBATO_API bool rubato_engine_set(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                  size_t n, const void *values, GError **error);
RUBATO_API bool rubato_engine_set_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                        size_t n, const void *values, GError **error);

/* Reads and writes the state that the update rule keeps beside each row: n × state width values of
 * the table's dtype, which docs/update-rules.md describes for each rule. Writing creates absent
 * rows. RUBATO_ERROR_INVALID if the rule keeps no state. */
RUBATO_API bool rubato_engine_get_state(RubatoEngine *engine, const char *table,
                                        const RubatoKey *keys, size_t n, void *states,
                                        GError **error);
RUBATO_API bool rubato_engine_get_state_range(RubatoEngine *engine, const char *table,
                                              RubatoKey first, size_t n, void *states,
                                              GError **error);
RUBATO_API bool rubato_engine_set_state(RubatoEngine *engine, const char *table,
                                        const RubatoKey *keys, size_t n, const void *states,
                                        GError **error);
RUBATO_API bool rubato_engine_set_state_range(RubatoEngine *engine, const char *table,
                                              RubatoKey first, size_t n, const void *states,
                                              GError **error);

/* Sets rows back to their initial values and state. An absent row of hash storage stays absent. */
RUBATO_API bool rubato_engine_reset(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                    size_t n, GError **error);
RUBATO_API bool rubato_engine_reset_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                          size_t n, GError **error);

/* Changes a hyper-parameter of the table's update rule on every server; here 0 means the number 0.
 * The new number holds for all Adds that begin after the call has returned. Not collective: one
 * node's call is enough. RUBATO_ERROR_INVALID if the rule has no such hyper-parameter, or it may
 * not have this number. */
RUBATO_API bool rubato_engine_tune(RubatoEngine *engine, const char *table, RubatoHyper hyper,
                                   double value, GError **error);

/* The keys of all rows that a table has, over all nodes, ascending. For a dense table these are the
 * keys of its range. For a hash table they are the keys that were added to and, with create_on_get,
 * those that were read. A key that is added during the call may be missing. The call is not
 * collective, and like rubato_engine_get it is meant for the time between tasks.
 * RUBATO_ERROR_INVALID if the storage cannot list its keys, RUBATO_ERROR_NETWORK if a node reports
 * more keys than there can be. (*keys: transfer full, g_free) */
RUBATO_API bool rubato_engine_list_keys(RubatoEngine *engine, const char *table, RubatoKey **keys,
                                        size_t *n, GError **error);

/* Collective. Moves a part of a table to another server (0 to rubato_engine_n_servers - 1). The
 * part takes along its rows, the state beside them and, for each task that uses the table, clocks
 * and waiting requests. Tasks may run meanwhile: their workers read and add the same as if the part
 * had stayed. A worker's thread cannot make this call. Errors: RUBATO_ERROR_NOT_FOUND if there is
 * no such table, RUBATO_ERROR_RANGE if there is no such part or server, RUBATO_ERROR_MEMORY if the
 * other node has no memory for the part, which then stays where it was, RUBATO_ERROR_INVALID while
 * another thread makes a collective call, or if the table's storage cannot list its keys, if the
 * table has replicas, or if the other node is drained, RUBATO_ERROR_NODE_LOST if the other node is
 * lost, or one of the two meanwhile. */
RUBATO_API bool rubato_engine_move_part(RubatoEngine *engine, const char *table, uint32_t part,
                                        uint32_t server, GError **error);

/* Drains the node of that id, which may be this one: all parts and replicas of its servers go to
 * servers of other nodes, while tasks and requests go on. After that it serves nothing, gets no
 * part any more, and may be ended; a task with workers there goes on as after the loss of any node.
 * Returns when it has nothing left. Not collective: one node's call is enough, also from a worker's
 * thread. Tables and tasks that are made meanwhile begin when it has ended. A node that has been
 * drained already is drained. Errors: RUBATO_ERROR_INVALID if there is no such node, if the
 * scheduler runs there, if a part there has no replicas, if too few other nodes have room for the
 * parts and their replicas, or while another node is drained; RUBATO_ERROR_NODE_LOST if the node is
 * lost, before or meanwhile; RUBATO_ERROR_CANCELLED if the run ends. After an error the node keeps
 * the parts that have not left it. */
RUBATO_API bool rubato_engine_drain_node(RubatoEngine *engine, unsigned node, GError **error);

/* Messages by kind. */
typedef struct {
    uint64_t gets, adds, clocks, announcements, fences, others, replies, controls;
} RubatoMessageCounts;

/* What this node and the others have sent to each other since the engine was made, and what was
 * made, or missed, meanwhile. Messages inside a process are not counted. */
typedef struct {
    RubatoMessageCounts sent, received;
    uint64_t packets_sent, packets_received; /* each counted once; acknowledgements too */
    uint64_t packets_resent;
    uint64_t bytes_sent, bytes_received; /* of those packets, with their headers */
    uint64_t new_replicas;    /* of parts, that servers of all nodes have made in the place of lost
                               * ones */
    uint64_t missed_versions; /* tasks that have ended well without the last version of their
                               * stream; on the node with worker 0 */
} RubatoEngineStats;

/* Counts so far. A task's function or a callback may make this call, too. */
RUBATO_API void rubato_engine_stats(const RubatoEngine *engine, RubatoEngineStats *stats);

/* How much of a table this node's servers hold. */
typedef struct {
    uint64_t n_rows;
    uint64_t n_bytes;     /* of the rows, and of what the storage needs to find them */
    uint64_t row_bytes;   /* of one row's values */
    uint64_t state_bytes; /* of the state that the update rule keeps for one row, and, if rows
                           * expire, of when it was written */
    uint64_t n_evicted;   /* rows so far, of a table with max_bytes */
    uint64_t n_expired;   /* rows removed so far, of a table with `expire` */

    /* of a table with `admit`, so far: rows that Adds have made, and rows that were left out of an
     * Add because their keys were not admitted */
    uint64_t n_admitted, n_refused;
} RubatoTableStats;

/* Not collective. A task's function may make this call, a callback may not. RUBATO_ERROR_NOT_FOUND
 * if there is no such table. */
RUBATO_API bool rubato_engine_table_stats(RubatoEngine *engine, const char *table,
                                          RubatoTableStats *stats, GError **error);

/* The bad deltas that the workers of one rank have sent to the servers of all nodes, in all tasks
 * so far. If `worker` is UINT32_MAX, they came from the engine's own calls. */
typedef struct {
    uint32_t worker;
    uint64_t n_nan, n_infinite; /* deltas */
    uint64_t n_large;           /* deltas beyond the table's max_gradient */
    uint64_t n_refused_rows;    /* rows that were left out of an Add because of them */
} RubatoBadGradients;

/* The bad deltas of a table that the servers of all nodes have counted, ordered by worker; workers
 * that sent none are left out. Between tasks the counts are complete and the same for every node.
 * Adds that are made during the call may be missing. The caller frees *counts, an array of *n, with
 * g_free. Not collective. A task's function may make this call, a callback may not. Errors:
 * RUBATO_ERROR_NOT_FOUND if there is no such table, RUBATO_ERROR_NODE_LOST if a node is missing,
 * RUBATO_ERROR_NETWORK if a node reports more than there can be. */
RUBATO_API bool rubato_engine_bad_gradients(RubatoEngine *engine, const char *table,
                                            RubatoBadGradients **counts, size_t *n, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoEngine, rubato_engine_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoTaskRun, rubato_task_run_free)

G_END_DECLS

#endif
