/* The engine: one per node. It owns the node's server threads and its part of every table, meets
 * the other nodes of the run, and runs tasks.
 *
 * Calls that create, drop and run are collective: every node makes the same ones in the same order.
 * A mismatch is an error on every node, and its text names both sides. Without a cluster file there
 * is a single process, and these calls concern it alone.
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

/* How an engine starts. A zeroed config is one process with one server thread. */
typedef struct {
    const char *cluster_file; /* NULL: one process */
    uint32_t node;            /* with cluster_file: which of its nodes this process is */
    uint32_t servers;         /* without: the number of server threads; 0 means 1 */
    uint32_t workers;         /* without: workers of a task that names no number; 0 means 1 */

    /* A call that blocks this long says in the log whom it waits for, and says so again each time
     * that it has waited as long once more. 0 means 10,000, or the file's. */
    uint32_t stall_ms;

    /* SIGINT, SIGTERM and SIGHUP (unless that is ignored) cancel the run in order; a second signal
     * ends the process at once. Set it only before other threads are started. */
    bool handle_signals;
} RubatoEngineConfig;

/* Starts an engine. With a cluster file it returns once every node of the file has arrived.
 * Returns NULL with RUBATO_ERROR_CONFIG, _NETWORK, _MISMATCH, _INVALID or _NODE_LOST.
 * (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new(const RubatoEngineConfig *config, GError **error);

/* The same from the command line: takes --cluster FILE, --node ID, --servers N, --workers N and
 * --plugin FILE (rubato_load_plugin) out of argv (--help prints them) and leaves the rest. What is
 * not given there comes from the environment variables RUBATO_CLUSTER and RUBATO_NODE, which
 * `rubato run` sets. Handles signals. (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new_from_args(int *argc, char ***argv, GError **error);

/* Leaves the run and stops every thread. It first waits until all living nodes have made this call
 * too, because they may still need this node's servers. NULL is allowed. */
RUBATO_API void rubato_engine_free(RubatoEngine *engine);

/* This node's id; 0 in a single process. */
RUBATO_API uint32_t rubato_engine_node(const RubatoEngine *engine);

/* The faults on demand of this run, as the environment variable RUBATO_FAULTS tells them; NULL:
 * there are none. (transfer none) */
RUBATO_API const char *rubato_engine_faults(const RubatoEngine *engine);

/* Nodes, and server threads of all nodes together. */
RUBATO_API uint32_t rubato_engine_n_nodes(const RubatoEngine *engine);
RUBATO_API uint32_t rubato_engine_n_servers(const RubatoEngine *engine);

/* The number of workers, over all nodes, of a task that names no number. */
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

/* Collective. Both: starts a task and waits for its end. */
RUBATO_API bool rubato_engine_run(RubatoEngine *engine, const RubatoTask *task, GError **error);

/* Collective. Waits until every node has come here. */
RUBATO_API bool rubato_engine_barrier(RubatoEngine *engine, GError **error);

/* Cancels every running task of the run, on all nodes. Every call that is blocked in one returns
 * RUBATO_ERROR_CANCELLED. Also from a task's function or a callback. */
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

/* Puts n rows of values into the table without its update rule. The rows get the state of new rows
 * with these values. Returns once the servers have them. */
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

/* Gives rows their initial values and state back. An absent row of hash storage stays absent. */
RUBATO_API bool rubato_engine_reset(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                    size_t n, GError **error);
RUBATO_API bool rubato_engine_reset_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                          size_t n, GError **error);

/* Changes a hyper-parameter of the table's update rule on every server; here 0 means the number 0.
 * The new number holds for all Adds that begin after the call has returned. Not collective: one
 * node's call is enough. */
RUBATO_API bool rubato_engine_tune(RubatoEngine *engine, const char *table, RubatoHyper hyper,
                                   double value, GError **error);

/* The keys of all rows that a table has, over all nodes, ascending. Of a dense table these are the
 * keys of its range; of a hash table, the keys that were added to (or also those that were read,
 * with create_on_get). A key that is added meanwhile may be missing. The call is not collective,
 * and like rubato_engine_get it is meant for the time between tasks. RUBATO_ERROR_INVALID if the
 * storage cannot list its keys, RUBATO_ERROR_NETWORK if a node reports more keys than there can
 * be. (*keys: transfer full, g_free) */
RUBATO_API bool rubato_engine_list_keys(RubatoEngine *engine, const char *table, RubatoKey **keys,
                                        size_t *n, GError **error);

/* Collective. Moves a part of a table to another server (0 to rubato_engine_n_servers - 1), with
 * its rows, the state beside them and, of each task that uses the table, clocks and requests that
 * wait. Also while tasks run, from a thread of none of them: what workers read and add is the same
 * as if the part had stayed. RUBATO_ERROR_NOT_FOUND, RUBATO_ERROR_RANGE for a table, part or server
 * that is not there; RUBATO_ERROR_MEMORY if another node has no memory for the part, which then
 * stays; RUBATO_ERROR_INVALID while another thread makes a collective call, or if the table's
 * storage cannot list its keys. */
RUBATO_API bool rubato_engine_move_part(RubatoEngine *engine, const char *table, uint32_t part,
                                        uint32_t server, GError **error);

/* Messages by kind. */
typedef struct {
    uint64_t gets, adds, clocks, announcements, fences, others, replies, controls;
} RubatoMessageCounts;

/* What this node and the others have sent to each other since the engine was made. Messages inside
 * a process are not counted. */
typedef struct {
    RubatoMessageCounts sent, received;
    uint64_t packets_sent, packets_received; /* the first time each, acknowledgements too */
    uint64_t packets_resent;
    uint64_t bytes_sent, bytes_received; /* of those packets, headers and all */
} RubatoEngineStats;

/* Counts so far. Also from a task's function or a callback. */
RUBATO_API void rubato_engine_stats(const RubatoEngine *engine, RubatoEngineStats *stats);

/* How much of a table this node's servers hold. */
typedef struct {
    uint64_t n_rows;
    uint64_t n_bytes;     /* of the rows, and of what the storage needs to find them */
    uint64_t row_bytes;   /* of one row's values */
    uint64_t state_bytes; /* of one row's state of the update rule */
} RubatoTableStats;

/* Not collective; also from a task's function. False with RUBATO_ERROR_NOT_FOUND. */
RUBATO_API bool rubato_engine_table_stats(RubatoEngine *engine, const char *table,
                                          RubatoTableStats *stats, GError **error);

/* The bad deltas that the workers of one rank have sent to the servers of all nodes, in all tasks
 * so far. Where `worker` is UINT32_MAX they came from the engine's own calls. */
typedef struct {
    uint32_t worker;
    uint64_t n_nan, n_infinite; /* deltas */
    uint64_t n_large;           /* deltas beyond the table's max_gradient */
    uint64_t n_refused_rows;    /* that were left out of an Add because of them */
} RubatoBadGradients;

/* The bad deltas of a table that the servers of all nodes have counted, ordered by worker; workers
 * that sent none are left out. Between tasks the counts are complete and the same for every node;
 * Adds that are made meanwhile may be missing. The caller frees *counts, an array of *n, with
 * g_free. Not collective; also from a task's function, but not from a callback.
 * RUBATO_ERROR_NOT_FOUND; RUBATO_ERROR_NODE_LOST if a node is missing; RUBATO_ERROR_NETWORK
 * where a node reports more than there can be. */
RUBATO_API bool rubato_engine_bad_gradients(RubatoEngine *engine, const char *table,
                                            RubatoBadGradients **counts, size_t *n, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoEngine, rubato_engine_free)

G_END_DECLS

#endif
