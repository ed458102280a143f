/* A worker's side of a table from inside: what the files of a client share.
 *
 *   client.c        its life, the checks of keys, Get and Add, statistics
 *   client_ask.c    any request, with a wait for its answer; tuning; fences
 *   client_joint.c  Get, Add and iterations of all parts at once
 *   client_kept.c   what servers keep of its Adds: how much, and waiting until it is less
 *   client_kept_calls.c  calls of handlers that servers keep
 *   client_late.c   iterations of which servers are told late, or never
 *   client_announce.c  announcing the keys of iterations, and beginning the next one
 *   client_change.c  changes of tables with replicas, until they are acknowledged
 *   client_ahead.c  how far ahead the clock may be, and waiting before requests that are too early
 *   client_clock.c  the clock: telling it to others
 *   client_deferred.c  Adds that wait for their clock, and who has them applied
 *   client_handlers.c  calling handlers
 *   client_history.c   what goes into the history of the node
 *   client_timeline.c  what goes into the timeline of the node
 *   client_moved.c  sending while a part moves
 *   client_wait.c   waiting for calls, logging for whom, and how a call ended
 *   client_room.c   waiting for room to send
 *
 * Threads: the client's worker. */
#ifndef RUBATO_TABLES_CLIENT_CLIENT_PRIVATE_H
#define RUBATO_TABLES_CLIENT_CLIENT_PRIVATE_H

#include "tables/client/client.h"
#include "tables/worker_stats.h"

/* From so many keys of a slice on, a server has much to do for it. */
#define TABLE_CLIENT_MANY_KEYS 512u

/* ---- client.c ---- */

/* Sets each field separately: clearing the whole message first costs a tenth of a Get of one key.
 * Fields that the server sets, fields of other kinds, and the server are not set. */
static inline __attribute__((always_inline)) void table_client_set_message(
    Message *message, const TableClient *client, const TableAsk *ask, const Slice *slice,
    Call *call)
{
    const TableRoute *route = client->route;
    const size_t at = slice->row * ask->row_bytes;

    message->kind = ask->kind;
    message->status = CALL_OK;
    message->is_answered = false;
    message->is_packed = false;
    message->is_high = ask->is_high;
    message->epoch = route->epoch;
    message->table = route->table;
    message->part = slice->part;
    message->node = route->office->self;
    message->call = call;
    message->end = call == NULL ? NULL : message_end_call;
    message->request.worker = client->rank;
    message->request.clock = client->clock;
    message->request.keys = slice->keys;
    message->request.input = ask->input == NULL ? NULL : (const char *)ask->input + at;
    message->request.output = ask->output == NULL ? NULL : (char *)ask->output + at;
    message->row_bytes = ask->row_bytes;
    message->node_clock = 0;
    message->sequence = 0;
}

/* As table_client_send, for a Get before which servers have been told of all iterations. */
void table_client_send_told(TableClient *client, const TableAsk *ask, const Slice *slices,
                            uint32_t n_slices, Call *call, Message *messages);

/* Called after a request to another node: ends the request if the task was cancelled before. */
void table_client_cancel_if_late(TableClient *client);

/* Whether a request of this priority goes before others. No request does under a model with
 * announced keys, because there nothing may overtake a worker's clock; nor if the table has
 * replicas, because its primaries know by the order of a worker's requests which ones they had. */
static inline bool table_client_is_high(const TableClient *client, RubatoPriority priority)
{
    return priority == RUBATO_PRIORITY_HIGH && !client->route->traits->takes_announcements &&
           client->route->map->n_replicas == 0;
}

/* ---- client_joint.c ---- */

/* Whether so many keys of a table whose route has joint requests may be read by one. */
bool table_client_may_read_jointly(const TableRoute *route, size_t n);

/* Get and Add of checked keys of a table whose route has them. False: nothing has been done, and
 * the keys are to be cut. */
bool table_client_get_jointly(TableClient *client, const RubatoKey *keys, size_t n, void *values);
bool table_client_add_jointly(TableClient *client, const RubatoKey *keys, size_t n,
                              const void *deltas);

/* Of one of several workers: announces the keys of the client's clock, of which the slicer has a
 * slice for each part, and tells all parts that the worker has come to it. False: nothing has been
 * done, because a Get of these keys would not be answered beside owners, or a server is busy. */
bool table_client_begin_jointly(TableClient *client, const RubatoKey *keys, size_t n);

/* ---- client_late.c ---- */

/* Before the worker tells servers of an iteration in another way: has the one told that it has
 * noted, because they take announcements in order. */
void table_client_tell_noted_now(TableClient *client);
static inline void table_client_tell_noted(TableClient *client)
{
    if (G_UNLIKELY(client->route->late != NULL))
        table_client_tell_noted_now(client);
}

/* ---- client_announce.c ---- */

/* Announces the iteration of a worker of this node to all parts, by this worker, whose slicer stays
 * as it is. Between table_client_begin_sending and table_client_end_sending. False: there is no
 * memory. */
bool table_client_announce_of(TableClient *client, uint32_t rank, uint64_t iteration,
                              const RubatoKeys *keys);

/* A Get that began an iteration, at begun_ns, has been answered, and is counted. */
void table_client_note_read(TableClient *client, const RubatoKeys *keys, const void *values,
                            uint64_t begun_ns);

/* A Get that began an iteration has been answered. */
void table_client_note_begun(TableClient *client, const Call *call, const RubatoKeys *keys,
                             const void *values, uint64_t begun_ns);

/* ---- client_kept.c ---- */

/* The clock client->clock has ended. */
void table_client_keep(TableClient *client);

/* Everything of the clocks below this one has been released. */
void table_client_drop_kept(TableClient *client, uint64_t min_clock);

/* A Get for which the worker waited is answered. If it had no lead, it has brought the worker's own
 * clock, and so told all of its Adds to the parts that it went to. Inline, for it is on the way of
 * each Get. */
static inline __attribute__((always_inline)) void table_client_note_answered(TableClient *client,
                                                                             Call *call,
                                                                             uint32_t n_slices)
{
    table_client_count_get(client, call);
    if (client->kept_bytes > 0) {
        /* relaxed: the call has ended */
        table_client_drop_kept(client,
                               atomic_load_explicit(&call->min_clock, memory_order_relaxed));
        if (client->lead == 0 && n_slices == client->route->map->n_parts)
            client->untold_bytes = 0;
    }
    client->unheard_bytes = 0;
}

/* ---- client_kept_calls.c ---- */

/* Before the client's clock ends: waits until its calls of earlier clocks have run.
 * RUBATO_ERROR_HANDLER if one has failed, which is told once. There are calls. */
bool table_client_end_earlier_calls(TableClient *client, GError **error);

/* ---- client_change.c ---- */

/* Sends an Add, a tuning or an announcement of a table with replicas. Of one that goes to another
 * node a copy is kept until it is acknowledged; a large one to a server of this node waits between
 * its pieces. False: there is no memory for it. */
bool table_client_tell_replicated(TableClient *client, Message *message);

/* The same for one that brings rows, to a server of this node, and that message->call waits for. As
 * post_office_ask. */
void table_client_ask_replicated(const TableClient *client, Message *message);

/* False if there is no memory to send the whole message. */
static inline bool table_client_tell(TableClient *client, Message *message)
{
    const size_t n_bytes = post_office_tell(client->route->office, message);

    if (n_bytes == POST_OFFICE_UNSENT)
        return false;
    client->unheard_bytes += n_bytes;
    return true;
}

/* Tells a server a change of its part. False: as above. */
static inline bool table_client_tell_change(TableClient *client, Message *message)
{
    if (G_LIKELY(client->route->map->n_replicas == 0))
        return table_client_tell(client, message);
    return table_client_tell_replicated(client, message);
}

/* ---- client_ahead.c ---- */

/* By how many clocks a Get may be ahead of the slowest worker and still be answered without a
 * wait. */
uint64_t table_route_lead(const TableRoute *route);

/* Whether a Get at the client's clock has no need of the wait below. */
bool table_client_others_have_come(const TableClient *client);

/* Called before a Get of the slicer's slices, at a clock above the lead. If its servers would only
 * keep it for other workers of this node, gives these workers a moment to reach the clock. */
void table_client_wait_for_others(TableClient *client, uint32_t n_slices);

/* The same for a Get of all parts, which are on this node. Returns whether the others have come to
 * the clock that it needs. */
bool table_client_wait_until_others_come(TableClient *client);

/* The same before table_client_iterate, after table_client_count_clock: a Get further ahead than
 * staleness and speculation is always kept, and one of so many keys beyond the staleness takes
 * servers long. */
void table_client_wait_before_iterating(TableClient *client, size_t n_keys);

/* ---- client_clock.c ---- */

/* The worker has ended its iteration, and its next request tells each part of the table so. For
 * models that want every worker's clock, in a run of one process. The second function shows the
 * clock to the workers that wait for it. */
void table_client_count_clock(TableClient *client);
void table_client_show_clock(TableClient *client);

/* Tells the clock of a worker, or of this node, to every server of this node. */
void table_route_tell_clock_here(const TableRoute *route, uint32_t source, uint64_t clock);

/* The node's clock, which a Get brings to the servers; 0 if they are told in another way. */
uint64_t table_client_clock_to_tell(const TableClient *client);

/* The same for a Get that servers keep until the node has come to `needed`. */
uint64_t table_client_clock_to_await(const TableClient *client, uint64_t needed);

/* Called before a Get of high priority. It may be handled before Adds of others that came before
 * it. The clock counts these, so the Get brings none: if it needs one, that is told here by itself,
 * and stays behind them. */
void table_client_tell_before(TableClient *client);

/* The clock that a request that reads brings. It is asked for right before the request is sent. */
static inline uint64_t table_client_clock_to_bring(TableClient *client, bool is_high)
{
    if (!is_high)
        return table_client_clock_to_tell(client);
    table_client_tell_before(client);
    return 0;
}

/* Where Gets bring the clock: tells the servers the node's clock now. */
void table_client_tell_lazy_clock(TableClient *client);

/* ---- client_deferred.c ---- */

/* Whether an Add made now is deferred. */
static inline bool table_client_defers(const TableClient *client)
{
    return client->route->deferred != NULL && client->sent_clock != client->clock;
}

/* Defers an Add. RUBATO_ERROR_CANCELLED. RUBATO_ERROR_MEMORY: a slice of it may have been done. */
bool table_client_defer(TableClient *client, const Slice *slices, uint32_t n_slices,
                        const void *deltas, GError **error);

/* Called before a Get of these slices, if it is the first of its clock. */
void table_client_take_turn(TableClient *client, const Slice *slices, uint32_t n_slices);

/* In its turn the worker has its Adds taken by all parts, and those behind it have theirs. */
typedef enum {
    JOINT_TURN_MISSED, /* parts may have taken some */
    JOINT_TURN_TAKEN,
    JOINT_TURN_READ, /* and the rows have been read */
} JointTurn;

/* Before a wait in such a Get: has rows fetched that it will need. */
void table_client_fetch_rows(TableClient *client, const JointAsk *ask);

JointTurn table_client_take_turn_jointly(TableClient *client, const JointAsk *ask,
                                         uint64_t *min_clock);

/* ---- client_history.c ---- */

void table_client_begin_history(TableClient *client);
void table_client_end_history(TableClient *client);

/* A request without rows. */
void table_client_note(TableClient *client, HistoryKind kind, uint64_t clock);
void table_client_note_keys(TableClient *client, HistoryKind kind, uint64_t clock,
                            const RubatoKeys *keys);

/* The number of the next call of a handler that writes, also of a request to ragged rows
 * (handler_call.h); 0 without a history. */
uint64_t table_client_number_call(TableClient *client);

/* A call of a handler. number: of one that writes; 0: it reads. */
void table_client_note_handler(TableClient *client, const RubatoHandlerCall *asked, uint64_t number,
                               GBytes *result, bool is_done);

/* A request to ragged rows of one part, which has its clock and n_adds from the client; or one by a
 * ticket that reads, which has them. The second on any thread. */
void table_client_note_ragged(TableClient *client, HistoryRagged *request);
void table_client_note_late_ragged(TableClient *client, const HistoryRagged *request);

/* A request of the engine. */
void table_client_note_ask(TableClient *client, const TableAsk *ask, const RubatoKeys *keys,
                           bool is_done);

/* ---- client_timeline.c ---- */

/* Sets client->is_watched. Its history has begun. */
void table_client_begin_watch(TableClient *client);

/* Records a wait of the client, which has ended: for this min clock; 0: for something else. */
void table_client_note_wait(const TableClient *client, uint64_t clock, uint64_t begun_ns);

/* Whether a call has to note what it does. Calls that need not spare all else by this one look. */
static inline bool table_client_is_watched(const TableClient *client)
{
    /* relaxed: history and timeline look again */
    return G_UNLIKELY(atomic_load_explicit(client->is_watched, memory_order_relaxed));
}

/* ---- client_moved.c ---- */

/* Between the two calls the client looks up servers and posts messages that it could not send
 * again. It waits for nothing meanwhile. If a part moves, the first one waits until the move is
 * over; false with RUBATO_ERROR_CANCELLED. */
bool table_client_begin_slowly(TableClient *client, GError **error);
static inline bool table_client_begin_sending(TableClient *client, GError **error)
{
    return G_LIKELY(part_map_begin(client->route->map, &client->sender)) ||
           table_client_begin_slowly(client, error);
}
static inline void table_client_end_sending(TableClient *client)
{
    part_map_end(&client->sender);
}

/* How often a Get was sent by a map of that number; all zero at first. */
typedef struct {
    uint32_t number, n;
} Resending;

/* Called when a Get for which the client waited has failed. Whether it has to be sent again,
 * because a part has moved: then *error is cleared, and the map is open. */
bool table_client_may_send_again(TableClient *client, const Call *call, Resending *resending,
                                 GError **error);

/* ---- client_wait.c ---- */

/* Fails with RUBATO_ERROR_NETWORK: an answer was CALL_MOVED, and nothing has moved. Or with
 * RUBATO_ERROR_NODE_LOST, if the node was lost instead. */
bool table_client_fail_moved(const TableClient *client, const Call *call, GError **error);

/* As table_client_wait, but this thread handles no messages of others meanwhile, and the time
 * counts as sending. */
bool table_client_wait_alone(TableClient *client, Call *call, GError **error);

/* As table_client_wait, for a min clock, before an Add; the time counts as sending. */
bool table_client_wait_clock(TableClient *client, Call *call, uint64_t clock, GError **error);

/* Who waits, for the log: "worker 3", or "the engine". (transfer full) */
char *table_client_name(const TableClient *client);

/* ---- client_room.c ---- */

/* Says how long nothing has come from another node. */
void table_client_append_silence(const PostOffice *office, uint32_t node, GString *text);

/* Waits until all nodes have room for messages to every server. */
bool table_client_wait_room_of_all(TableClient *client, GError **error);

/* Waits until a node that has no room has some, and counts the time. RUBATO_ERROR_CANCELLED. */
bool table_client_wait_room_of(TableClient *client, uint32_t node, GError **error);

#endif
