/* See docs/replication.md.
 *
 * Without memory for an input, primary and replicas would differ from then on. A node that cannot
 * pass an input on, or cannot apply one that it has passed on, ends. */
#include "engine/server/replicas/server_inputs.h"

#include <string.h>

#include "engine/server/replicas/server_answers.h"
#include "engine/server/request_ops.h"
#include "io/net/network/network.h"

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
