/* A worker as the handles see it: which task it works for and the tables that it may open.
 *
 * The engine makes one for each worker thread of a task.
 *
 * Threads: the worker's own. */
#ifndef RUBATO_TABLES_WORKER_H
#define RUBATO_TABLES_WORKER_H

#include <rubato/task.h>

#include "tables/client.h"

struct RubatoWorker {
    /* immutable */
    uint64_t id;
    uint32_t rank;
    uint32_t local_rank;
    uint32_t node_id;
    uint32_t n_workers;
    uint32_t n_local_workers;
    const char *task; /* its name */
    TableRoute *routes;
    size_t n_routes;
    Actor *helper; /* the node's helper thread */
    const _Atomic bool *cancelled;
    bool (*barrier)(RubatoWorker *worker, GError **error);
    void *engine_data;

    /* set by worker_begin */
    uint64_t owner;   /* the number of its thread */
    uint32_t n_forks; /* that had led to its process */

    /* worker thread only */
    TableClient **clients; /* by route; NULL: not opened yet */
    uint32_t n_readers;    /* of data, that it has opened */
    uint64_t n_barriers, barrier_wait_ns;
};

/* The worker's first call on its thread: the thread is from now on the worker's only one. */
void worker_begin(RubatoWorker *worker);

/* False with RUBATO_ERROR_INVALID where another thread calls than the worker's. */
bool worker_check_owner(const RubatoWorker *worker, GError **error);

/* What a handle needs of a table: the worker's client on it. The worker keeps it, and with it the
 * clock, until the task ends. NULL with RUBATO_ERROR_NOT_FOUND or _TYPE. (transfer none) */
TableClient *worker_open_table(RubatoWorker *worker, const char *table, RubatoDtype dtype,
                               GError **error);

/* Waits for the tickets of handles that the worker has left open, and frees the clients. */
void worker_close_tables(RubatoWorker *worker);

#endif
