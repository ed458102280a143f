/* The engine: one per node. It owns the node's server threads and its part of every table, meets
 * the other nodes of the run, and runs tasks.
 *
 * Calls that create, drop and run are collective: every node makes the same ones in the same order,
 * and a mismatch is an error on every node that names both sides. In a single process, where no
 * cluster file is given, the same calls concern that process alone.
 *
 * Threads: collective calls come from one thread at a time; everything else from any thread. No
 * call of this header may come from inside a task's function or a callback, except
 * rubato_engine_cancel, rubato_engine_stats and, in a task's function but not in a callback, the
 * calls on rows, rubato_engine_table_stats and rubato_engine_bad_gradients. */
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
    uint32_t stall_ms;   /* a call that blocks this long says whom it waits for, and says so again
                               * after each further such time; 0 means 10,000, or the file's */
    bool handle_signals; /* SIGINT, SIGTERM and SIGHUP, unless that is ignored, cancel the run in
                               * order, a second one ends the process at once. Set it only before
                               * other threads were started */
} RubatoEngineConfig;

/* Starts an engine. With a cluster file it returns once every node of the file has arrived.
 * Returns NULL with RUBATO_ERROR_CONFIG, _NETWORK, _MISMATCH, _INVALID or _NODE_LOST.
 * (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new(const RubatoEngineConfig *config, GError **error);

/* The same from the command line: takes --cluster FILE, --node ID, --servers N and --workers N out
 * of argv (--help prints them) and leaves the rest. What is not given there comes from the
 * environment variables RUBATO_CLUSTER and RUBATO_NODE, which `rubato run` sets. Handles signals.
 * (transfer full) */
RUBATO_API RubatoEngine *rubato_engine_new_from_args(int *argc, char ***argv, GError **error);

/* Leaves the run and stops every thread. Waits until all nodes have come here too, as long as they
 * live, for they may still need this node's servers. NULL is allowed. */
RUBATO_API void rubato_engine_free(RubatoEngine *engine);

/* This node's id; 0 in a single process. */
RUBATO_API uint32_t rubato_engine_node(const RubatoEngine *engine);

/* Nodes, and server threads of all nodes together. */
RUBATO_API uint32_t rubato_engine_n_nodes(const RubatoEngine *engine);
RUBATO_API uint32_t rubato_engine_n_servers(const RubatoEngine *engine);

/* Workers of all nodes together that a task gets which names no number. */
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

/* Cancels every running task of the run, on all nodes: whoever is blocked in one returns
 * RUBATO_ERROR_CANCELLED. Also from a task's function or a callback. */
RUBATO_API void rubato_engine_cancel(RubatoEngine *engine);

/* Reads the rows of n keys, in the keys' order, into values (n × width values of the table's
 * dtype), past any consistency model: meant for between tasks. */
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

/* Puts values, n rows of them, into their rows past the update rule. The rows get the state of
 * fresh ones that were made with these values. Returns once the servers have them. */
RUBATO_API bool rubato_engine_set(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                  size_t n, const void *values, GError **error);
RUBATO_API bool rubato_engine_set_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                        size_t n, const void *values, GError **error);

/* Reads and writes the state that the update rule keeps beside each row: n × state width values of
 * the table's dtype, which docs/update-rules.md tells for each rule. Writing makes rows that are
 * absent. RUBATO_ERROR_INVALID where the rule keeps no state. */
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

/* Gives rows their initial values and state back. A row of hash storage that is not there stays
 * so. */
RUBATO_API bool rubato_engine_reset(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                    size_t n, GError **error);
RUBATO_API bool rubato_engine_reset_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                          size_t n, GError **error);

/* Gives a hyper-parameter of the table's update rule another number, on every server; 0 is 0. It
 * holds for all Adds that come after the call has returned. Not collective: one node's call is
 * enough. */
RUBATO_API bool rubato_engine_tune(RubatoEngine *engine, const char *table, RubatoHyper hyper,
                                   double value, GError **error);

/* The keys of all rows that a table has, over all nodes, ascending: of a dense table those of its
 * range, of a hash table those that somebody has added to (or, where the table says so, read). What
 * is added meanwhile, here or on another node, may be missing. Like rubato_engine_get it is meant
 * for between tasks, and not collective. RUBATO_ERROR_INVALID where the table's storage cannot tell
 * its keys, RUBATO_ERROR_NETWORK where a node tells of more than there can be. (*keys: transfer
 * full, g_free) */
RUBATO_API bool rubato_engine_list_keys(RubatoEngine *engine, const char *table, RubatoKey **keys,
                                        size_t *n, GError **error);

/* Messages by kind. */
typedef struct {
    uint64_t gets, adds, clocks, announcements, fences, others, replies, controls;
} RubatoMessageCounts;

/* What this node and the others have said to each other since the engine was made. Messages that
 * stay inside a process are not counted. */
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
    uint64_t n_bytes;     /* that the rows take, and what is kept to find them */
    uint64_t row_bytes;   /* of one row's values */
    uint64_t state_bytes; /* of what the update rule keeps beside them */
} RubatoTableStats;

/* Not collective; also from a task's function. False with RUBATO_ERROR_NOT_FOUND. */
RUBATO_API bool rubato_engine_table_stats(RubatoEngine *engine, const char *table,
                                          RubatoTableStats *stats, GError **error);

/* Bad deltas that came from the workers of one rank to the servers of all nodes, in all tasks so
 * far; from the engine's own calls between tasks where `worker` is UINT32_MAX. */
typedef struct {
    uint32_t worker;
    uint64_t n_nan, n_infinite; /* deltas */
    uint64_t n_large;           /* deltas beyond the table's max_gradient */
    uint64_t n_refused_rows;    /* that were left out of an Add because of them */
} RubatoBadGradients;

/* What the servers of all nodes have counted of a table, ordered by worker; workers of which
 * nothing bad came are not there. Any node gets the same, which between tasks is all there is; of
 * what is added meanwhile some may be missing. *counts, of *n, is the caller's to free with g_free.
 * Not collective; also from a task's function, but not from a callback. RUBATO_ERROR_NOT_FOUND;
 * RUBATO_ERROR_NODE_LOST where not all nodes are there; RUBATO_ERROR_NETWORK where one of them
 * tells of more than there can be. */
RUBATO_API bool rubato_engine_bad_gradients(RubatoEngine *engine, const char *table,
                                            RubatoBadGradients **counts, size_t *n, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoEngine, rubato_engine_free)

G_END_DECLS

#endif
