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
 * Without memory for an input, primary and replicas would differ from then on. A node that cannot
 * pass an input on, or cannot apply one that it has passed on, ends.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_feed.h"

#include <string.h>

#include "engine/server/replicas/server_answers.h"
#include "engine/server/request_ops.h"
#include "io/net/network/network.h"

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

/* ---- inputs ---- */

bool server_try_push_input(Server *server, const FedPart *fed, uint32_t replica, Message *input,
                           uint8_t kind)
{
    PostOffice *const office = server->office;

    input->kind = MESSAGE_FEED;
    input->fed_kind = kind;
    input->table = fed->table;
    input->part = fed->part;
    input->node = office->self;
    input->server = replica;
    if (!post_office_push(office, input))
        return false;
    network_flush_soon(office->network, office->servers[replica].node);
    return true;
}

void server_push_input(Server *server, const FedPart *fed, uint32_t replica, Message *input,
                       uint8_t kind)
{
    if (!server_try_push_input(server, fed, replica, input, kind))
        g_error("no memory to pass an input on to server %u, which has a replica of a part; "
                "the node ends here",
                replica);
}

/* What a worker of this node has sent to a part of this node has no number. It is not sent again:
 * if the part is lost, so is the worker. */
bool server_has_not_had(InputSequences *had, uint32_t sender, const Message *message)
{
    return message->sequence == 0 || input_sequences_take(had, sender, message->sequence);
}

void server_pass_on(Server *server, FedPart *fed, Message *input, MessageKind kind)
{
    const size_t n_bytes = server_input_bytes(input);

    input->number = replica_feed_count(&fed->feed);
    for (uint32_t i = 0; i < fed->feed.n_replicas; i++) {
        replica_feed_note_bytes(&fed->feed, i, n_bytes);
        server_push_input(server, fed, fed->feed.replicas[i].server, input, (uint8_t)kind);
    }
}

/* To one that does not have all rows yet, alone, and without a number. It may have been dropped
 * since the input began. */
static void tell_more(Server *server, FedPart *fed, Message *message, MessageKind kind)
{
    const size_t n_bytes = server_input_bytes(message);

    for (uint32_t i = 0; i < fed->feed.n_replicas; i++)
        if (fed->feed.replicas[i].is_told) {
            replica_feed_note_bytes(&fed->feed, i, n_bytes);
            server_push_input(server, fed, fed->feed.replicas[i].server, message, (uint8_t)kind);
        }
}

/* Sends words that belong together, as rows of as many bytes, by server_pass_on or tell_more. */
static void send_words(Server *server, FedPart *fed, const void *words, size_t n, size_t bytes,
                       uint8_t kind,
                       void (*send)(Server *server, FedPart *fed, Message *message,
                                    MessageKind kind))
{
    const size_t most = post_office_max_keys(bytes);

    for (size_t begin = 0; begin < n; begin += most) {
        Message message = { .row_bytes = bytes,
                            .request = { .keys = { .first = begin, .n = MIN(n - begin, most) },
                                         .input = (const char *)words + begin * bytes } };

        send(server, fed, &message, (MessageKind)kind);
    }
}

static void tell_made_rows(Server *server, FedPart *fed, const RubatoShard *shard)
{
    size_t n;
    const uint64_t *const places = shard_made(shard, &n);

    send_words(server, fed, places, n, sizeof *places, FEED_MADE, tell_more);
}

static void tell_admission_words(Server *server, FedPart *fed, const RubatoShard *shard)
{
    size_t n;
    const ShardWord *const words = shard_words(shard, &n);

    send_words(server, fed, words, n, sizeof *words, FEED_WORDS, tell_more);
}

static void tell_failures(Server *server, FedPart *fed, const RubatoShard *shard)
{
    size_t n;
    const ShardFailure *const failures = shard_failures(shard, &n);

    for (size_t i = 0; i < n; i++) {
        const FedFailure failure = { failures[i].write, failures[i].n_rows };
        const size_t n_all = strlen(failures[i].reason);
        const size_t n_reason = MIN(n_all, SHARD_FAILURE_MOST_BYTES);
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        Message message = { .row_bytes = 1 };

        g_byte_array_append(bytes, (const guint8 *)&failure, sizeof failure);
        g_byte_array_append(bytes, (const guint8 *)failures[i].reason, (guint)n_reason);
        message.request = (RubatoRequest){ .keys = { .n = bytes->len }, .input = bytes->data };
        tell_more(server, fed, &message, FEED_FAILS);
    }
}

/* Replicas hear first which rows an input evicts, or makes, or that it fails. So the primary of a
 * table that evicts rows, or of one that tells more while a replica is made, has handled an input
 * before it passes it on. */
void server_begin_input(Server *server, FedPart *fed, RubatoShard *shard, Message *input,
                        MessageKind kind)
{
    shard_note_more(shard, G_UNLIKELY(replica_feed_find_told(&fed->feed) != NULL));
    if (G_UNLIKELY(shard_goes_first(shard)))
        shard_begin_input(shard);
    else
        server_pass_on(server, fed, input, kind);
}

void server_end_input(Server *server, FedPart *fed, RubatoShard *shard, Message *input,
                      MessageKind kind)
{
    const ShardEviction *evictions;
    size_t n;

    if (G_LIKELY(!shard_goes_first(shard)))
        return;
    shard_end_input(shard);
    tell_made_rows(server, fed, shard);
    tell_admission_words(server, fed, shard);
    tell_failures(server, fed, shard);
    evictions = shard_evictions(shard, &n);
    send_words(server, fed, evictions, n, sizeof *evictions, FEED_EVICTED, server_pass_on);
    server_pass_on(server, fed, input, kind);
}

void server_check_memory(const Server *server)
{
    if (server->starved)
        g_error("server %u: no memory for an input that replicas have got; the node ends here",
                server->number);
}

/* Passes a request on as inputs of fed_kind, in pieces of the size of a message. take gets each
 * piece. */
static void feed_pieces(Server *server, FedPart *fed, RubatoShard *shard, const Message *message,
                        MessageKind kind, MessageKind fed_kind,
                        void (*take)(void *user, RubatoRequest *piece), void *user)
{
    const RequestOps *ops = request_ops[kind];
    const RubatoRequest *request = &message->request;
    const size_t row_bytes =
        ops->rows == REQUEST_NO_ROWS ? 0 : request_row_bytes(ops, shard_spec(shard));
    const size_t most = post_office_max_keys(row_bytes);
    size_t begin = 0;

    /* a request of another node is one piece, as it was one message: it has one number */
    do {
        const size_t n = MIN(most, request->keys.n - begin);
        /* a selection's positions count from the start of all rows */
        const size_t at = request->keys.at != NULL ? 0 : begin * row_bytes;
        Message input = { .is_packed = message->is_packed,
                          .epoch = message->epoch,
                          .row_bytes = row_bytes,
                          .request = *request,
                          .sequence = message->sequence };
        RubatoRequest *const piece = &input.request;

        piece->keys = message_keys_from(&request->keys, begin, n);
        piece->output = NULL;
        if (piece->input != NULL)
            piece->input = (const char *)piece->input + at;
        if (kind == MESSAGE_ANNOUNCE && n < request->keys.n && request->n_announced == 0)
            piece->n_announced = request->keys.n;
        server_begin_input(server, fed, shard, &input, fed_kind);
        RubatoRequest taken = *piece; /* may be cut as it is taken */
        take(user, &taken);
        server_end_input(server, fed, shard, &input, fed_kind);
        begin += n;
    } while (begin < request->keys.n);
    server_check_memory(server);
}

bool server_skip_had(InputSequences *had, RubatoRequest *change, size_t row_bytes)
{
    const bool is_tuning = row_bytes == 0;
    const size_t n = is_tuning ? 1 : change->keys.n;
    const size_t n_had = (size_t)input_sequences_advance(had, change->worker, change->clock, n);

    if (G_LIKELY(n_had == 0))
        return true;
    if (n_had == n)
        return false;
    if (change->keys.at == NULL) /* a selection's positions count from the start of all rows */
        change->input = (const char *)change->input + n_had * row_bytes;
    change->keys = message_keys_from(&change->keys, n_had, n - n_had);
    return true;
}

/* A whole announcement of which a part is left is one in pieces, of which the first were had. */
bool server_skip_announced(InputSequences *had, RubatoRequest *told)
{
    const size_t n = told->keys.n;
    const size_t n_had =
        (size_t)input_sequences_announce(had, told->worker, told->clock, told->keys.n);

    if (G_LIKELY(n_had == 0))
        return true;
    if (n_had >= n)
        return false;
    if (told->n_announced == 0)
        told->n_announced = n;
    told->keys = message_keys_from(&told->keys, n_had, n - n_had);
    return true;
}

/* Replicas have got the piece, and skip the same of it. So it is with announcements. */
static void add(void *user, RubatoRequest *piece)
{
    const BoundPart *const part = user;

    if (server_skip_had(part->had, piece, shard_row_bytes(part->shard)))
        model_take_deferred(part->model, piece);
}

void server_feed_add(Server *server, const BoundPart *part, const Message *message)
{
    const MessageKind fed_kind = server_keeps_answer(part, message) ? MESSAGE_ADD_GET : MESSAGE_ADD;

    feed_pieces(server, part->fed, part->shard, message, MESSAGE_ADD, fed_kind, add,
                (void *)(uintptr_t)part);
}

static void announce(void *user, RubatoRequest *piece)
{
    const BoundPart *const part = user;

    if (server_skip_announced(part->had, piece))
        model_take_announcement(part->model, piece);
}

/* Primary and replicas get the same pieces, also of what a worker of this node has sent in one. */
void server_feed_announcement(Server *server, const BoundPart *part, const Message *message)
{
    feed_pieces(server, part->fed, part->shard, message, MESSAGE_ANNOUNCE, MESSAGE_ANNOUNCE,
                announce, (void *)(uintptr_t)part);
}

void server_feed_tuning(Server *server, const BoundPart *part, Message *message)
{
    Message input = *message;

    server_begin_input(server, part->fed, part->shard, &input, MESSAGE_TUNE);
    if (server_skip_had(part->had, &message->request, /* row_bytes= */ 0))
        model_tune(part->model, &message->request);
    else
        rubato_model_finish(part->model, &message->request);
    server_end_input(server, part->fed, part->shard, &input, MESSAGE_TUNE);
    server_check_memory(server);
}

/* The part hears nothing more of the process before: its node has been left. */
ReturnAnswer server_feed_return(Server *server, const BoundPart *part, const Message *message)
{
    const uint32_t rank = message->request.worker;
    const bool is_own = part->model->ops->traits.per_worker_clocks;
    Message input = { .epoch = message->epoch, .request = { .worker = rank } };

    server_pass_on(server, part->fed, &input, (MessageKind)FEED_RETURN);
    return (ReturnAnswer){ .clock = rubato_model_clock(part->model, is_own ? rank : message->node),
                           .had_until = input_sequences_return(part->had, rank) };
}

void server_feed_clock(Server *server, const BoundPart *part, const Message *message)
{
    const MessageClock *const clock = &message->clock;
    Message input = { .epoch = message->epoch,
                      .request = { .worker = clock->source, .clock = clock->clock } };

    if (part->fed->is_settled || clock->map < part->fed->map ||
        clock->source >= model_n_sources(part->model) ||
        clock->clock <= rubato_model_clock(part->model, clock->source))
        return; /* it changes nothing; or the part that goes on hears it when maps open */
    server_begin_input(server, part->fed, part->shard, &input, MESSAGE_CLOCK);
    model_clock(part->model, clock->source, clock->clock);
    server_end_input(server, part->fed, part->shard, &input, MESSAGE_CLOCK);
    server_check_memory(server);
    server_tell_complaint(server, message->epoch);
}

void server_feed_loss(Server *server, const BoundPart *part, uint32_t epoch, uint32_t node,
                      uint32_t first, uint32_t n)
{
    Message input = { .epoch = epoch,
                      .request = { .worker = node, .clock = (uint64_t)first << 32 | n } };

    server_begin_input(server, part->fed, part->shard, &input, (MessageKind)FEED_LOSS);
    model_lose_workers(part->model, node, first, n);
    server_end_input(server, part->fed, part->shard, &input, (MessageKind)FEED_LOSS);
    server_check_memory(server);
    server_tell_complaint(server, epoch);
}

typedef struct {
    const RequestOps *ops;
    RubatoShard *shard;
} Apply;

static void apply(void *user, RubatoRequest *piece)
{
    const Apply *to = user;

    to->ops->between_tasks(to->shard, piece);
}

void server_feed_past_models(Server *server, FedPart *fed, RubatoShard *shard,
                             const Message *message)
{
    Apply to = { request_ops[message->kind], shard };
    Message of_node = *message;

    of_node.request.clock = message->node; /* whose sequence numbers it has */
    feed_pieces(server, fed, shard, &of_node, message->kind, message->kind, apply, &to);
}

/* Each piece of keys is an input of its own. They are those of Gets that have been answered, or
 * are about to be: their answers wait for this, too. */
void server_feed_created(Server *server, FedPart *fed, RubatoShard *shard)
{
    g_autoptr(GArray) wanted = shard_take_wanted(shard);
    const size_t most = post_office_max_keys(sizeof(RubatoKey));
    const bool was_starved = server->starved;

    if (wanted == NULL || fed->is_settled) /* a later Get creates them where the part is then */
        return;
    server->starved = false;
    for (size_t begin = 0; begin < wanted->len; begin += most) {
        const RubatoKey *const keys = &g_array_index(wanted, RubatoKey, begin);
        const size_t n = MIN(wanted->len - begin, most);
        Message input = { .row_bytes = sizeof *keys,
                          .request = { .keys = { .n = n }, .input = keys } };

        server_begin_input(server, fed, shard, &input, (MessageKind)FEED_CREATED);
        shard_create_rows(shard, keys, n);
        server_end_input(server, fed, shard, &input, (MessageKind)FEED_CREATED);
    }
    server_check_memory(server);
    server->starved = was_starved;
}

void server_feed_time(Server *server, FedPart *fed, RubatoShard *shard)
{
    Message input = { .request = { .clock = server->seconds } };

    if (!shard_counts(shard, RUBATO_TIME_SECONDS) || fed->is_settled ||
        shard_uses(shard).time >= server->seconds)
        return;
    server_pass_on(server, fed, &input, (MessageKind)FEED_TIME);
    shard_reach_time(shard, server->seconds);
}

bool server_feed_task_to(Server *server, const FedPart *fed, uint32_t replica, const Binding *task)
{
    Message input = { .epoch = task->epoch,
                      .row_bytes = sizeof *task->workers_of,
                      .request = { .worker = task->setup.n_workers,
                                   .keys = { .n = task->n_nodes },
                                   .input = task->workers_of } };

    return server_try_push_input(server, fed, replica, &input, FEED_TASK);
}

bool server_feed_task(Server *server, const FedPart *fed, const Binding *task)
{
    bool ok = true;

    for (uint32_t i = 0; i < fed->feed.n_replicas && ok; i++)
        if (fed->feed.replicas[i].made > 0)
            ok = server_feed_task_to(server, fed, fed->feed.replicas[i].server, task);
    return ok;
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
