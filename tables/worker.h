/* A worker as the handles use it: its task and the tables that it may open.
 *
 * The engine makes one for each worker thread of a task.
 *
 * Threads: the worker's own. */
#ifndef RUBATO_TABLES_WORKER_H
#define RUBATO_TABLES_WORKER_H

#include <rubato/data.h>
#include <rubato/task.h>

#include "tables/client/client.h"

typedef struct TensorExchange TensorExchange;

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
    Actor *helper;           /* the node's helper thread */
    TensorExchange *tensors; /* its collectives: engine/collectives/ */
    Timeline *timeline;      /* NULL: there is none */
    uint32_t epoch;          /* of the task */
    const _Atomic bool *cancelled;
    bool (*barrier)(RubatoWorker *worker, GError **error);
    uint64_t first_clock; /* of a worker in the place of a lost one; else 0 */
    void *engine_data;

    /* set by worker_begin */
    uint64_t owner;   /* the number of its thread */
    uint32_t n_forks; /* forks that had led to its process */
    Tickets *tickets;

    /* worker thread only */
    TableClient **clients; /* by route; NULL: not opened yet */
    uint32_t n_readers;    /* data readers that it has opened */
    RubatoReader *readers; /* those that are open: io/data/deal/reader.h */
    bool is_in_step;       /* between rubato_worker_begin_step and _end_step */
    bool step_has_rows;    /* in it, rows of readers were said to be done */
    bool step_is_even;     /* it began with the same clock on all tables for which that counts */
    uint64_t step_clock;   /* with which it began: see engine/task/kept_rows.c */
    uint64_t step_at_once; /* how many changes that are applied at once had been made by then */
    uint64_t n_barriers, barrier_wait_ns;
};

/* The worker's first call on its thread. From now on no other thread may call for the worker. */
void worker_begin(RubatoWorker *worker);

/* False with RUBATO_ERROR_INVALID if the caller is not the worker's thread. */
bool worker_check_owner(const RubatoWorker *worker, GError **error);

/* The worker's client on a table, for a handle. The worker keeps the client and its clock until the
 * task ends. The first function is for tables with rows of one length. NULL with
 * RUBATO_ERROR_NOT_FOUND or _TYPE. (transfer none) */
TableClient *worker_open_table(RubatoWorker *worker, const char *table, RubatoDtype dtype,
                               GError **error);
TableClient *worker_open_shape(RubatoWorker *worker, const char *table, RubatoDtype dtype,
                               RubatoShape shape, GError **error);

/* The worker has returned. First, waits for the tickets of handles that it has left open. Then, if
 * servers still keep calls of handlers for it, waits for these: RUBATO_ERROR_HANDLER if one has
 * failed, and the worker was not told. Then frees the clients. */
void worker_close_tables(RubatoWorker *worker);
bool worker_has_calls(const RubatoWorker *worker);
bool worker_end_calls(RubatoWorker *worker, GError **error);
void worker_free_tables(RubatoWorker *worker);

/* Stops the readers that it has left open, and says so in the log. */
void worker_close_readers(RubatoWorker *worker);

#endif
