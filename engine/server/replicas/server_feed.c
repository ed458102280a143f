/* A part with replicas, on the server that is its primary (docs/replication.md).
 *
 * Each input of the part gets a number, goes to the replicas, and then to the model, or to the
 * shard between tasks. An answer leaves when all replicas have every input that the part had when
 * the answer was made. What a model parks is held only once it is answered.
 *
 * An input for a replica never waits for room. What is under way to replicas is bounded all the
 * same: a request of another node keeps its room in that node's window until its answer leaves, and
 * so does an Add for which nobody waits; a worker of this node waits, before it adds and between
 * the pieces of a large change, for room in the window to the replica's node
 * (tables/client/client_change.c). To a replica that is made, inputs go between the slices of its
 * image, and if more bytes of them are under way than that, answers wait for it, too.
 *
 * A local message may be on its sender's stack. Its sender waits for the call, and not for the
 * message. So the call is held, and not the message.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_feed.h"

#include <string.h>

#include "engine/server/replicas/server_inputs.h"

/* An answer that waits for replicas. */
typedef struct {
    HeldAnswer held;  /* first: the feed chains it */
    Message *message; /* NULL: its call alone is held */
    Call *call;
    uint32_t epoch;
    CallStatus status;
    uint64_t min_clock;
} Held;

FedPart *fed_part_new(const Server *server, uint32_t table, uint32_t part, const uint32_t *replicas,
                      uint32_t n)
{
    FedPart *fed = g_new(FedPart, 1);

    fed->table = table;
    fed->part = part;
    fed->map = 1;
    fed->is_settled = false;
    fed->untold_ends = NULL;
    replica_feed_init(&fed->feed, 0);
    for (uint32_t i = 0; i < n; i++)
        replica_feed_add(&fed->feed, replicas[i], 0, 0);
    fed->had = input_sequences_new(server->office->n_nodes);
    return fed;
}

/* ---- answers ---- */

static void end_held(Held *held)
{
    if (held->message != NULL) {
        held->message->status = held->status;
        held->message->min_clock = held->min_clock;
        message_end(held->message);
    } else {
        call_end_part(held->call, held->status, held->min_clock);
    }
    g_free(held);
}

/* The answers may leave now. */
static void release(Server *server, HeldAnswer *first)
{
    for (HeldAnswer *next; first != NULL; first = next) {
        next = first->next;
        end_held((Held *)first);
    }
    post_office_flush(server->office);
}

void server_keep_replicas(Server *server, FedPart *fed, const uint32_t *replicas, uint32_t n)
{
    for (uint32_t i = fed->feed.n_replicas; i-- > 0;) {
        const uint32_t number = fed->feed.replicas[i].server;
        bool stays = false;

        for (uint32_t j = 0; j < n; j++)
            stays = stays || replicas[j] == number;
        if (!stays)
            release(server, replica_feed_drop(&fed->feed, number));
    }
}

void server_drop_replica(Server *server, FedPart *fed, uint32_t replica)
{
    release(server, replica_feed_drop(&fed->feed, replica));
}

void server_drop_replicas_of(Server *server, FedPart *fed, uint32_t node)
{
    for (uint32_t i = fed->feed.n_replicas; i-- > 0;) {
        const uint32_t number = fed->feed.replicas[i].server;

        if (server->office->servers[number].node == node)
            release(server, replica_feed_drop(&fed->feed, number));
    }
}

/* Whether anybody gets an answer to it, or it takes room in the window of its node. */
static bool is_awaited(const Server *server, const Message *message)
{
    return message->end != NULL && (message->call != NULL || message->node != server->office->self);
}

void server_answer_fed(Server *server, FedPart *fed, Message *message, CallStatus status)
{
    Held *held;

    if (!is_awaited(server, message) || replica_feed_safe(&fed->feed) == fed->feed.n_inputs) {
        server_answer(server, message, status);
        return;
    }
    held = g_new(Held, 1);
    *held = (Held){ .message = message->end == message_end_call ? NULL : message,
                    .call = message->call,
                    .epoch = message->epoch,
                    .status = status,
                    .min_clock = message->min_clock };
    message->is_answered = true;
    replica_feed_hold(&fed->feed, &held->held);
    post_office_flush(server->office); /* what the answer waits for */
}

void server_empty_fed(Server *server, const BoundPart *part)
{
    const CallStatus status = server->starved ? CALL_NO_MEMORY : CALL_OK;
    const uint64_t min_clock = rubato_model_min_clock(part->model);
    RubatoRequest *request, *next;

    server_feed_created(server, part->fed, part->shard);
    request = model_take_answered(part->model);
    for (; request != NULL; request = next) {
        next = request->next;
        message_of_request(request)->min_clock = min_clock;
        server_answer_fed(server, part->fed, message_of_request(request), status);
    }
}

/* ---- primaries that are to be replaced ---- */

static bool are_settled(const Server *server)
{
    for (guint i = 0; i < server->tables->len; i++) {
        const ServerTable *const table = server_find_table(server, i);

        for (uint32_t part = 0; table != NULL && part < table->n_parts; part++) {
            const FedPart *const fed = table->parts[part].fed;

            if (fed != NULL && fed->is_settled &&
                replica_feed_safe(&fed->feed) != fed->feed.n_inputs)
                return false;
        }
    }
    return true;
}

void server_end_settling(Server *server, CallStatus status)
{
    Call *const call = g_steal_pointer(&server->settling);

    if (call != NULL)
        call_end_part(call, status, 0);
}

void server_check_settled(Server *server)
{
    if (G_UNLIKELY(server->settling != NULL) && are_settled(server))
        server_end_settling(server, CALL_OK);
}

/* ---- positions ---- */

/* A replica that cannot be made is none. */
static PositionVerdict hear(Server *server, FedPart *fed, const Message *message,
                            HeldAnswer **released)
{
    const uint32_t replica = message->request.worker, made = (uint32_t)message->request.clock;
    const FedReplica *const found = replica_feed_find(&fed->feed, replica, made);

    if (message->number < POSITION_SLICED)
        return replica_feed_hears(&fed->feed, replica, made, message->number, released);
    *released = NULL;
    if (message->number == POSITION_WHOLE)
        replica_feed_hears_whole(&fed->feed, replica, made);
    else if (message->number == POSITION_SLICED)
        *released = replica_feed_hears_slice(&fed->feed, replica, made);
    else if (found != NULL && !found->counts)
        release(server, replica_feed_drop(&fed->feed, replica));
    return POSITION_HEARD;
}

/* All that has been acknowledged, or shown, without this replica is under way to it already, in
 * front of this. Whatever is from now on waits for it. */
static void tell_whole(Server *server, const FedPart *fed, uint32_t replica)
{
    server_push_input(server, fed, replica, &(Message){ .number = 0 }, FEED_WHOLE);
}

void server_take_position(Server *server, Message *message)
{
    const uint32_t replica = message->request.worker;
    const ServerTable *table = server_find_table(server, message->table);
    FedPart *fed =
        table != NULL && message->part < table->n_parts ? table->parts[message->part].fed : NULL;
    HeldAnswer *released;
    PositionVerdict verdict;

    if (fed == NULL ||
        fed->feed.n_replicas == 0) { /* the table was dropped, or the run has ended */
        server_answer(server, message, CALL_OK);
        return;
    }
    if (replica >= server->office->n_servers || replica == server->number ||
        server->office->servers[replica].node != message->node ||
        (verdict = hear(server, fed, message, &released)) == POSITION_WRONG) {
        server_refuse(server, message, "a position of a replica that makes no sense");
        return;
    }
    server_answer(server, message, CALL_OK);
    if (verdict == POSITION_COUNTS)
        tell_whole(server, fed, replica);
    if (released != NULL)
        release(server, released);
    server_check_settled(server);
}

/* ---- the end of a task, of a table, of the run ---- */

/* Cancels the answers that `is_over` says, and keeps the others. */
static void cancel(FedPart *fed, bool (*is_over)(const Held *held, uint32_t number),
                   uint32_t number)
{
    HeldAnswer *left = NULL, **left_end = &left;

    for (HeldAnswer *first = replica_feed_take_held(&fed->feed), *next; first != NULL;
         first = next) {
        Held *const held = (Held *)first;

        next = first->next;
        if (is_over(held, number)) {
            held->status = CALL_CANCELLED;
            end_held(held);
        } else {
            *left_end = first;
            left_end = &first->next;
        }
    }
    *left_end = NULL;
    replica_feed_put_held(&fed->feed, left);
}

static bool is_of_epoch(const Held *held, uint32_t epoch)
{
    return held->epoch == epoch;
}

static bool is_of_node(const Held *held, uint32_t node)
{
    return held->message == NULL || held->message->node == node;
}

static bool is_any(const Held *held, uint32_t number)
{
    (void)held;
    (void)number;
    return true;
}

void server_feed_last(Server *server, FedPart *fed)
{
    Message input = { .epoch = 0 };

    server_pass_on(server, fed, &input, (MessageKind)FEED_LAST);
    fed->is_settled = true;
}

void server_feed_go_on(Server *server, FedPart *fed)
{
    g_autoptr(GArray) ends = g_steal_pointer(&fed->untold_ends);

    fed->is_settled = false;
    for (guint i = 0; ends != NULL && i < ends->len; i++)
        server_feed_end(server, fed, g_array_index(ends, uint32_t, i));
}

void server_await_settled(Server *server, Call *call)
{
    server_end_settling(server, CALL_CANCELLED);
    call_add_parts(call, 1);
    server->settling = call;
    post_office_flush(server->office); /* the last inputs */
    server_check_settled(server);
}

/* A primary that has had its last input tells no end: the next one does, or this one if it stays.
 * Where the run has ended for this node alone, the task goes on for the others: one of the replicas
 * becomes its primary, and needs the model. So none is told that the task is over. */
void server_feed_end(Server *server, FedPart *fed, uint32_t epoch)
{
    Message input = { .epoch = epoch };

    if (fed->is_settled) {
        if (fed->untold_ends == NULL)
            fed->untold_ends = g_array_new(FALSE, FALSE, sizeof epoch);
        g_array_append_val(fed->untold_ends, epoch);
    } else if (!atomic_load_explicit(&server->office->has_ended, memory_order_relaxed)) {
        /* relaxed: set before whatever ends the task was sent to this server */
        server_pass_on(server, fed, &input, FEED_END);
    }
    cancel(fed, is_of_epoch, epoch);
    post_office_flush(server->office);
}

void fed_part_free(FedPart *fed)
{
    if (fed == NULL)
        return;
    cancel(fed, is_any, 0);
    g_clear_pointer(&fed->untold_ends, g_array_unref);
    input_sequences_free(fed->had);
    g_free(fed);
}

/* Another node does not know yet that the run has ended, and would take a cancelled answer for the
 * end of a task. So it gets none. Its own end of the run ends its wait. */
void server_end_feeds(Server *server)
{
    for (guint i = 0; i < server->tables->len; i++) {
        const ServerTable *table = server_find_table(server, i);

        for (uint32_t part = 0; table != NULL && part < table->n_parts; part++) {
            FedPart *fed = table->parts[part].fed;

            if (fed == NULL)
                continue;
            cancel(fed, is_of_node, server->office->self);
            fed->feed.n_replicas = 0;
        }
    }
    server_check_settled(server);
}
