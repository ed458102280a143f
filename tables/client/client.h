/* A worker's side of one table: the code that all handles share.
 *
 * A TableRoute describes a table to the workers of one task on one node; they share it. A
 * TableClient belongs to one worker. It has the worker's clock on the table and room for one
 * blocking call. All handles that the worker opens on the table share it.
 *
 * Threads: a TableRoute is immutable while the task runs; a TableClient belongs to its worker. */
#ifndef RUBATO_TABLES_CLIENT_CLIENT_H
#define RUBATO_TABLES_CLIENT_CLIENT_H

#include <rubato/error.h>
#include <rubato/handler.h>
#include <rubato/task.h>
#include <rubato/ticket.h>
#include <rubato/update_ops.h>

#include "io/history/history.h"
#include "io/net/caller.h"
#include "io/net/deferred_adds.h"
#include "io/net/post_office/post_office.h"
#include "io/timeline/timeline.h"
#include "tables/clocks.h"
#include "tables/joint.h"
#include "tables/part_map.h"
#include "tables/partition.h"

typedef struct LateIterations LateIterations;
typedef struct ProcessCache ProcessCache;

typedef struct TableRoute {
    const RubatoTableSpec *spec; /* every name given */
    const Partition *partition;
    PartMap *map;
    const RubatoUpdateOps *update;
    uint32_t table;     /* id */
    uint32_t epoch;     /* of the task; 0: outside any task, without a model */
    uint64_t hash_seed; /* of the table's hashes of keys, random */
    size_t row_bytes;
    const RubatoModelTraits *traits; /* of its model */
    bool lazy_clocks;                /* a Get brings the node's clock: see client_clock.c */
    bool collects_clocks;            /* clocks go by way of the root: see client_clock.c */
    bool takes_turns;                /* see client_deferred.c */
    DeferredAdds *deferred;          /* NULL: an Add is sent at once */
    const JointOps *joint;           /* NULL: keys are cut for each part */
    bool adds_jointly;               /* not only Gets */
    bool defers_jointly;             /* the Adds that `deferred` keeps may be whole */
    bool reads_beside;               /* beside the owners of servers: see server_joint.c */
    size_t least_joint_keys;         /* requests of fewer keys are cut, */
    size_t most_joint_keys;          /* and those of more keys than this or JOINT_MOST_KEYS... */
    Clocks *clocks;                  /* NULL outside a task */
    uint64_t max_kept_bytes;         /* see client_kept.c; 0: nothing is kept, or no task */
    bool replayable;                 /* whether a cache may apply an Add to its rows */
    /* Whether a hyper-parameter of the update rule may have a value. */
    bool (*check_tuning)(const RubatoTableSpec *spec, RubatoHyper hyper, double value,
                         GError **error);
    _Atomic(ProcessCache *) cache; /* created when the first handle that uses it is opened */
    PostOffice *office;
    const _Atomic bool *cancelled; /* set before post_office_cancel is called */
    uint32_t stall_ms;             /* how long a call waits before it logs for whom */
    /* Finds a handler, and checks a call of it before anything is sent. NULL with an error.
     * (transfer none) */
    const RubatoHandlerOps *(*find_handler)(const RubatoTableSpec *spec,
                                            const RubatoHandlerCall *call, GError **error);
    /* Called when a worker has waited for some time and continues to wait: its Get is not answered,
     * or its Add not sent, before the table's min clock reaches `clock`. NULL outside a task. No
     * lock is held. */
    void (*report_wait)(void *run, uint32_t rank, uint32_t table, uint64_t clock);
    /* Called before a clock of a worker is told, if lost workers are to be replaced: returns when
     * all that it has sent on all tables of its task is had, with replicas, or the task is
     * cancelled. NULL otherwise. No lock is held. */
    void (*settle)(void *run);
    bool repeats; /* workers in the place of lost ones make Adds again that rows may have */
    void *run;
    History *history;     /* NULL: none is kept */
    Timeline *timeline;   /* NULL: there is none */
    LateIterations *late; /* NULL: servers are told of each iteration as it begins */
} TableRoute;

typedef struct TableHandle TableHandle; /* handle.h */
typedef struct Tickets Tickets;         /* ticket.h */

typedef struct TableClient {
    const TableRoute *route;
    const _Atomic bool *is_watched; /* its requests go into the history, or the timeline */
    HistoryStream *history;         /* of its own requests; NULL: none is kept */
    uint64_t history_adds;          /* Adds that it has made, and calls of handlers that write, for
                                     * its history */
    uint64_t calls_clock, n_calls;  /* such calls of its last clock that has some */
    uint64_t owner;                 /* the number of the thread that made it */
    uint32_t n_forks;               /* forks that had led to its process */
    uint32_t rank;                  /* the worker's in the task */
    uint64_t clock;
    uint64_t lead; /* clocks by which its Gets may be ahead of the slowest worker */
    Slicer slicer;
    PartSender sender;
    bool announces;          /* a RubatoSparseKVClientTable tells its keys */
    bool adds_uncached;      /* it made Adds while there was no process cache */
    Message *messages;       /* of the blocking call: one for each part, or each server */
    Spinner spinner;         /* of the blocking call */
    Spinner turns;           /* see client_deferred.c */
    uint64_t turn_clock;     /* the clock at which it has last taken its turn */
    uint64_t waited_clock;   /* the clock at which it has last waited to read all parts; 0: never */
    uint64_t sent_clock;     /* the clock of the last Add that was sent; UINT64_MAX: none was */
    uint64_t awaited;        /* the min clock for which its present call waits; 0: none */
    uint64_t adding_bytes;   /* bytes of Adds of its present clock that servers keep */
    uint64_t n_write_calls;  /* of handlers that change rows */
    uint64_t kept_bytes;     /* bytes of Adds of earlier clocks that servers may still keep */
    uint64_t untold_bytes;   /* bytes of its Adds up to its last clock since servers were told */
    GArray *kept;            /* by clock; NULL until there are any */
    GPtrArray *kept_calls;   /* of handlers, by clock: see client_kept_calls.c; NULL: none */
    const char *handler;     /* that its present call calls; NULL: none */
    TableHandle *handles;    /* that are not freed yet */
    Tickets *tickets;        /* the worker's; NULL: the client is the engine's */
    size_t ticket_bytes;     /* that its tickets take; guarded by the lock of the tickets */
    size_t unheard_bytes;    /* sent to busy local servers since one last answered */
    RubatoWorkerStats stats; /* without what tickets read */

    pthread_mutex_t late_lock;
    /* guarded by late_lock */
    RubatoWorkerStats late;      /* Gets that ended on other threads */
    HistoryStream *late_history; /* of these; NULL until there are any, or none is kept */

    /* Of the worker again: where rows were at its last joint Get, which may be out of date, and the
     * clock at which it has last had rows fetched by that. */
    RowPlaces places;
    uint64_t fetched_clock;
} TableClient;

static inline uint32_t table_route_server(const TableRoute *route, const Slice *slice)
{
    return part_map_server(route->map, slice->part);
}

/* Whether a slice goes to a server of this node. */
static inline bool table_route_is_local(const TableRoute *route, const Slice *slice)
{
    return post_office_is_local(route->office, table_route_server(route, slice));
}

/* The number of the node to which a slice goes. */
static inline uint32_t table_route_node(const TableRoute *route, const Slice *slice)
{
    return route->office->servers[table_route_server(route, slice)].node;
}

/* NULL if there is none (yet). */
static inline ProcessCache *table_route_cache(const TableRoute *route)
{
    /* acquire: pairs with the release of the thread that created it */
    return atomic_load_explicit(&route->cache, memory_order_acquire);
}

/* ---- client.c ---- */

TableClient *table_client_new(const TableRoute *route, uint32_t rank);
void table_client_free(TableClient *client);

/* The blocking calls of the handles; errors as kv_table.h tells them. */
bool table_client_get(TableClient *client, const RubatoKey *keys, size_t n, void *values,
                      GError **error);
bool table_client_get_run(TableClient *client, RubatoKey first, size_t n, void *values,
                          GError **error);
bool table_client_add(TableClient *client, const RubatoKey *keys, size_t n, const void *deltas,
                      GError **error);
bool table_client_add_run(TableClient *client, RubatoKey first, size_t n, const void *deltas,
                          GError **error);

/* An Add and a Get in one, with one wait. */
bool table_client_add_get(TableClient *client, const RubatoKeys *keys, const void *deltas,
                          void *values, GError **error);

/* A request: its kind, and the input and output of its keys; NULL if there is none. */
typedef struct {
    MessageKind kind;
    size_t row_bytes;  /* of input and output, for each key */
    bool is_high;      /* of high priority */
    const void *input; /* only read */
    void *output;
} TableAsk;

/* Sends any request with keys, and waits until it is done. RUBATO_ERROR_MEMORY if a server had no
 * memory. For the engine's requests between tasks: there is no task that could fail instead. */
bool table_client_ask(TableClient *client, const TableAsk *ask, const RubatoKey *keys, size_t n,
                      GError **error);
bool table_client_ask_run(TableClient *client, const TableAsk *ask, RubatoKey first, size_t n,
                          GError **error);

/* Tells every part of the table a new value of a hyper-parameter of the update rule, in order with
 * the worker's Adds. */
bool table_client_tune(TableClient *client, RubatoHyper hyper, double value, GError **error);

/* Tells the keys of an iteration to every part. Only for tables whose model takes_announcements.
 * RUBATO_CLOCK_RETIRED with no keys: there are no more. */
bool table_client_announce(TableClient *client, uint64_t iteration, const RubatoKey *keys, size_t n,
                           GError **error);

/* Ends the worker's present iteration and gets the rows of the next one's keys, which are checked,
 * from all parts at once. False: nothing has been done. */
bool table_client_iterate_jointly(TableClient *client, const RubatoKey *keys, size_t n,
                                  void *values);

/* Before an Add to keys whose rows the worker has read: has them fetched, to be changed. */
void table_client_fetch_to_add(const TableClient *client, const RubatoKey *keys, size_t n);

/* Whether the worker can begin its next iteration, with these keys, by table_client_iterate; they
 * are checked. *n_slices is for this call, which is the client's next one. */
bool table_client_may_iterate(TableClient *client, const RubatoKey *keys, size_t n,
                              uint32_t *n_slices);

/* Announces the keys of the worker's next iteration, ends the present one, and gets the rows of the
 * keys, in one message to each part. */
bool table_client_iterate(TableClient *client, const RubatoKey *keys, size_t n, uint32_t n_slices,
                          void *values, GError **error);

/* ---- client_late.c ---- */

/* Has the workers of a route note their iterations (late_iterations.h), if its model and the run
 * allow it. For the engine, which makes the route and frees route->late. */
void table_route_note_iterations(TableRoute *route);

/* Ends the worker's present iteration and notes the keys of the next one, which are checked. False:
 * nothing has been done, and the next iteration has to begin in another way. */
bool table_client_begin_late(TableClient *client, const RubatoKey *keys, size_t n);

/* Then gets the rows of these keys. */
bool table_client_get_late(TableClient *client, const RubatoKey *keys, size_t n, void *values,
                           GError **error);

/* From now on servers are told of each iteration as it begins. Called before a request that they
 * may keep for others' iterations. */
void table_client_end_lateness_now(TableClient *client);
static inline void table_client_end_lateness(TableClient *client)
{
    if (G_UNLIKELY(client->route->late != NULL))
        table_client_end_lateness_now(client);
}

/* ---- client_ask.c ---- */

/* Tells every part of a table with replicas that this worker is in the place of a lost one. The
 * answer has the highest numbers of all parts. */
bool table_client_return(TableClient *client, ReturnAnswer *answer, GError **error);

/* Hands over what the history of the worker has. The second returns when it is in the file: it is
 * there if the process is killed then. */
void table_client_hand_over_history(TableClient *client);
void table_client_flush_history(TableClient *client);

/* Returns when the table's servers have handled everything that this thread sent them before, and
 * replicas have it, too. */
bool table_client_fence(TableClient *client, GError **error);

/* The parts of the calls above, for calls that do not block. */

/* Whether the keys are in the table; otherwise RUBATO_ERROR_RANGE names the first that is not. */
bool table_client_check(const TableClient *client, const RubatoKey *keys, size_t n, GError **error);
bool table_client_check_run(const TableClient *client, RubatoKey first, size_t n, GError **error);
bool table_client_check_keys(const TableClient *client, const RubatoKeys *keys, GError **error);

static inline bool table_client_is_cancelled(const TableClient *client)
{
    /* seq_cst: the canceller sets it likewise, before post_office_cancel sweeps */
    return atomic_load_explicit(client->route->cancelled, memory_order_seq_cst);
}

/* Whether the task continues; otherwise RUBATO_ERROR_CANCELLED. */
bool table_client_fail_cancelled(const TableClient *client, GError **error);
static inline bool table_client_check_cancelled(const TableClient *client, GError **error)
{
    return !table_client_is_cancelled(client) || table_client_fail_cancelled(client, error);
}

/* Before a request is sent: waits until the nodes of the slices have room for more requests. No
 * request passes once the worker may know that its task is cancelled, because servers and caches
 * answer until they know it too. RUBATO_ERROR_CANCELLED. */
bool table_client_wait_room_of_slices(TableClient *client, const Slice *slices, uint32_t n_slices,
                                      GError **error);
static inline bool table_client_wait_room(TableClient *client, const Slice *slices,
                                          uint32_t n_slices, GError **error)
{
    return table_client_check_cancelled(client, error) &&
           (client->route->office->network == NULL ||
            table_client_wait_room_of_slices(client, slices, n_slices, error));
}

/* Before an Add: waits while servers keep too much of this worker's earlier clocks.
 * RUBATO_ERROR_CANCELLED. */
bool table_client_wait_kept(TableClient *client, GError **error);
static inline bool table_client_wait_to_add(TableClient *client, GError **error)
{
    return G_LIKELY(client->kept_bytes <= client->route->max_kept_bytes) ||
           table_client_wait_kept(client, error);
}

/* What a server keeps of an Add besides its keys and deltas: malloc's bytes, and a place among the
 * requests that it keeps, in an array that has room for more. */
#define TABLE_CLIENT_ADD_BYTES (sizeof(RubatoRequest) + 40)

/* Counts an Add sent in these slices. */
void table_client_count_kept(TableClient *client, const Slice *slices, uint32_t n_slices);
static inline void table_client_count_add(TableClient *client, const Slice *slices,
                                          uint32_t n_slices)
{
    if (client->route->max_kept_bytes > 0)
        table_client_count_kept(client, slices, n_slices);
}

/* Sends a request in slices and returns without waiting. The call has begun; a part is added for
 * each message. messages (one for each slice), keys and rows stay until the call has ended. The
 * caller then calls call_sent. */
void table_client_send(TableClient *client, const TableAsk *ask, const Slice *slices,
                       uint32_t n_slices, Call *call, Message *messages);

/* The same for an Add, or an Add and Get, of keys: through the process cache, and counted. */
void table_client_send_add(TableClient *client, const TableAsk *ask, const RubatoKeys *keys,
                           uint32_t n_slices, const Slice *slices, Call *call, Message *messages);

/* Counts a Get made at the client's clock, for which the worker waited. */
void table_client_count_get(TableClient *client, const Call *call);

/* Counts a Get made at that clock, for which the worker did not wait. Any thread. */
void table_client_count_late_get(TableClient *client, uint64_t clock, const Call *call);

/* Adds the counts so far to *stats. */
void table_client_add_stats(TableClient *client, RubatoWorkerStats *stats);

/* ---- client_history.c ---- */

/* Records a request in the client's history, if one is kept. Called after the request; is_done:
 * whether it succeeded. */
void table_client_note_get(TableClient *client, const RubatoKeys *keys, const void *values);
void table_client_note_add(TableClient *client, const RubatoKeys *keys, const void *deltas,
                           bool is_done);
void table_client_note_add_get(TableClient *client, const RubatoKeys *keys, const void *deltas,
                               const void *values, bool is_done);

/* Records a Get that was made at that clock, after n_adds Adds, and has ended now. Any thread. */
void table_client_note_late_get(TableClient *client, uint64_t clock, uint64_t n_adds,
                                const RubatoKeys *keys, const void *values);

/* ---- client_timeline.c ---- */

/* Now, if the timeline is on; else 0. */
static inline uint64_t table_client_time(const TableClient *client)
{
    return timeline_now(client->route->timeline);
}

/* Records a call that has succeeded, or a wait; `what` is a literal. begun_ns 0: it is not
 * recorded. Not for a call that was refused: it may be that of a forked process, in which the
 * timeline's lock may be held for ever. */
void table_client_note_call(const TableClient *client, const char *what, uint64_t begun_ns,
                            size_t n_keys);
static inline void table_client_note_time(const TableClient *client, const char *what,
                                          uint64_t begun_ns, size_t n_keys)
{
    if (G_UNLIKELY(begun_ns != 0))
        table_client_note_call(client, what, begun_ns, n_keys);
}

/* The same for a request with a ticket, of that id, which may have ended on any thread. */
void table_client_note_ticket(const TableClient *client, const char *what, uint64_t id,
                              uint64_t begun_ns, size_t n_keys);

/* ---- client_clock.c ---- */

/* The worker ends its iteration on this table. RUBATO_ERROR_CANCELLED. */
bool table_client_clock(TableClient *client, GError **error);

/* The worker's function has returned: no worker waits for its clock on this table any more. */
void table_route_retire(const TableRoute *route, uint32_t rank);

/* A part of the table has moved, and may have missed clocks. Tells all servers of all nodes the
 * clocks of this node's workers. The caller may hold the engine's lock. */
void table_route_tell_again(const TableRoute *route);

/* Another node has sent a clock, or the root the common one. */
void table_route_hear(const TableRoute *route, uint32_t node, const WireClock *clock);

/* Tells other nodes which worker is the slowest now, if they know another one. It is asked now and
 * then: servers know the clocks already, and this only improves messages to the user. The root also
 * tells the common clock to nodes that it had left out. */
void table_route_tell_news(const TableRoute *route);

/* ---- client_deferred.c ---- */

/* Has the workers of a route defer their Adds, if its model and the run allow it. For the engine,
 * which makes the route and frees route->deferred. */
void table_route_defer_adds(TableRoute *route);

/* ---- client_handlers.c ---- */

/* Calls a handler and waits for its answers; errors as handler.h tells them. The call's table is
 * the client's. (*result: transfer full) */
bool table_client_call(TableClient *client, const RubatoHandlerCall *asked, GBytes **result,
                       GError **error);

/* ---- client_kept_calls.c ---- */

/* The worker's function has returned, and its clocks have retired or its task fails: waits until
 * all calls that servers keep for it have run. RUBATO_ERROR_HANDLER if one has failed and the
 * worker was not told. RUBATO_ERROR_CANCELLED. */
bool table_client_end_calls(TableClient *client, GError **error);

/* ---- client_wait.c ---- */

/* Waits for a call, and logs now and then for whom it waits. False with RUBATO_ERROR_CANCELLED, or
 * RUBATO_ERROR_INVALID if a server refused the request. */
bool table_client_wait(TableClient *client, Call *call, GError **error);

/* The min clock for which a Get made now waits. */
static inline uint64_t table_client_needed_clock(const TableClient *client)
{
    return client->clock > client->lead ? client->clock - client->lead : 0;
}

/* The same without the error: waits until the call has ended, and adds the time to *waited_ns.
 * needed: the min clock that it waits for; 0: none. */
void table_client_wait_ended(TableClient *client, Call *call, uint64_t needed, uint64_t *waited_ns);

/* A call waits this long before it reports its wait. */
#define TABLE_CLIENT_REPORT_MS 1000

/* If the worker waits for a min clock (client->awaited), tells the task so, once in a wait. */
void table_client_report_wait(const TableClient *client);

/* Logs for what a call waits: a min clock (client->awaited), or an answer. call NULL: all of the
 * worker's tickets. */
void table_client_say_stalled(TableClient *client, const Call *call, double waited_s);

/* Sets the error with which a call ended. True if it ended without one. Any thread. */
bool table_client_check_status(const TableClient *client, CallStatus status, GError **error);

/* The same by the call, which has ended: names the node that it was lost with, or that lies. */
bool table_client_check_call(const TableClient *client, const Call *call, GError **error);

/* Whether the calling thread created the client; otherwise RUBATO_ERROR_INVALID. */
bool table_client_fail_owner(const TableClient *client, GError **error);
static inline bool table_client_check_owner(const TableClient *client, GError **error)
{
    return G_LIKELY(client->owner == caller_thread) || table_client_fail_owner(client, error);
}

/* Sets RUBATO_ERROR_MEMORY and returns false. Any thread. */
bool table_client_fail_memory(const TableClient *client, GError **error);

#endif
