/* A replica of a part, on a server of another node than its primary (docs/replication.md). It gets
 * the inputs of the part in the order in which the primary has handled them, and no Gets. So its
 * rows, its rule's state and its models are those of the primary, as of its position.
 *
 * The models of a task begin here when the task begins on this node, before any worker runs. They
 * end when the end of the task comes as an input, behind all others, and not when this node ends
 * the task. If a task could not begin on the primary's node, its model here stays until the table
 * is dropped.
 *
 * One position tells of all inputs before it. So it is sent behind the last of several inputs that
 * came together.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_replicas.h"

#include "engine/server/replicas/server_answers.h"
#include "engine/server/replicas/server_calls.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_inputs.h"
#include "engine/server/request_ops.h"

Replica *replica_new(const Server *server, uint32_t table, uint32_t part, uint32_t primary,
                     RubatoShard *shard)
{
    Replica *replica = g_new(Replica, 1);

    *replica = (Replica){ .table = table,
                          .part = part,
                          .primary = primary,
                          .shard = shard,
                          .had = input_sequences_new(server->office->n_nodes),
                          .models = g_array_new(FALSE, FALSE, sizeof(ReplicaModel)) };
    return replica;
}

static void end_model(const ReplicaModel *model)
{
    model_free(model->model);
    input_sequences_free(model->had);
}

void replica_free(Replica *replica)
{
    if (replica == NULL)
        return;
    for (guint i = 0; i < replica->models->len; i++)
        end_model(&g_array_index(replica->models, ReplicaModel, i));
    g_array_unref(replica->models);
    input_sequences_free(replica->had);
    g_free(replica->call_bytes);
    if (replica->shard != NULL)
        shard_free(replica->shard);
    g_free(replica);
}

Replica *server_replica(const Server *server, uint32_t table, uint32_t part)
{
    const ServerTable *found = server_find_table(server, table);

    return found != NULL && part < found->n_parts ? found->parts[part].replica : NULL;
}

/* ---- models ---- */

void replica_begin_task(Replica *replica, const ReplicaModel *model)
{
    g_array_append_vals(replica->models, model, 1);
}

ReplicaModel replica_find_model(const Replica *replica, uint32_t epoch)
{
    for (guint i = 0; i < replica->models->len; i++)
        if (g_array_index(replica->models, ReplicaModel, i).epoch == epoch)
            return g_array_index(replica->models, ReplicaModel, i);
    return (ReplicaModel){ 0 };
}

void replica_end_task(Replica *replica, uint32_t epoch)
{
    for (guint i = replica->models->len; i-- > 0;)
        if (g_array_index(replica->models, ReplicaModel, i).epoch == epoch) {
            end_model(&g_array_index(replica->models, ReplicaModel, i));
            g_array_remove_index_fast(replica->models, i);
        }
}

/* ---- inputs ---- */

bool replica_is_from_primary(const Server *server, const Replica *replica, const Message *message)
{
    return message->node == server->office->servers[replica->primary].node;
}

/* One that does not count yet can be given up (server_copied.c). */
static void end_if_starved(const Server *server, const Replica *replica, const char *what)
{
    if (server->starved && replica->stage != REPLICA_COMING)
        g_error("server %u: no memory for %s; the node ends here", server->number, what);
}

/* Whether the sender may be the primary, as far as this server knows. */
static bool may_send(const Server *server, const Replica *replica, const Message *message)
{
    const bool is_from_primary = replica_is_from_primary(server, replica, message);

    return replica->is_deaf ? !is_from_primary : is_from_primary || replica->had_last;
}

/* Whether there are such inputs of a task, or between tasks. */
static bool can_be(const RequestOps *ops, bool in_task)
{
    return ops != NULL && (ops->is_input || ops == request_ops[MESSAGE_HANDLER]) &&
           (in_task ? ops->in_task != NULL : ops->between_tasks != NULL);
}

/* Whether pieces of a call of a handler, the next one among them, can be an input. */
static bool take_call_piece(Server *server, Replica *replica, const Message *message)
{
    const FedCallState state = replica_take_call_piece(replica, message);

    server->starved = server->starved || state == FED_CALL_NO_MEMORY;
    end_if_starved(server, replica, "an input of a replica");
    return state == FED_CALL_GOES_ON ? message->sequence == 0
                                     : state == FED_CALL_WHOLE && message->sequence != 0 &&
                                           replica_can_run_call(replica, message);
}

static bool is_primarys_own(uint8_t fed_kind)
{
    return fed_kind == FEED_EVICTED || fed_kind == FEED_CREATED || fed_kind == FEED_TIME;
}

/* Whether what the primary has done by itself can be done here, too. */
static bool can_do_own(const Replica *replica, const Message *message)
{
    const RubatoShard *const shard = replica->shard;

    if (message->epoch != 0 || message->sequence != 0)
        return false;
    if (message->fed_kind == FEED_EVICTED)
        return replica_has_words(message, sizeof(ShardEviction)) && shard_is_bounded(shard);
    if (message->fed_kind == FEED_CREATED)
        return replica_has_words(message, sizeof(RubatoKey)) && shard_spec(shard)->create_on_get;
    return replica_has_words(message, 0) && message->request.keys.n == 0 &&
           shard_counts(shard, RUBATO_TIME_SECONDS);
}

/* Whether the input is one that the primary may send. Otherwise it has been answered.
 *
 * If the primary's node is lost, the input is the new primary's: its server may do PROMOTE before
 * this one, and pass on the end of a task at once. It passes nothing on to replicas that are to be
 * given up. The same holds if the primary has handed the part over. */
static bool check_input(Server *server, Replica *replica, Message *message,
                        const RubatoModel *model)
{
    const bool is_answered = message->fed_kind == MESSAGE_ADD_GET; /* an Add, and its rows */
    const MessageKind kind = is_answered ? MESSAGE_ADD : (MessageKind)message->fed_kind;
    const RequestOps *ops = message->fed_kind < MESSAGE_N_KINDS ? request_ops[kind] : NULL;
    const bool is_last = message->fed_kind == FEED_LAST;
    const bool is_of_task = kind == MESSAGE_CLOCK || message->fed_kind == FEED_LOSS ||
                            message->fed_kind == FEED_RETURN || kind == FEED_END;
    const bool is_bare = is_of_task || is_last;

    if (is_primarys_own(message->fed_kind)) {
        if (may_send(server, replica, message) && can_do_own(replica, message))
            return true;
        server_refuse(server, message, "what a primary does by itself, and makes no sense");
        return false;
    }
    if (!may_send(server, replica, message) || (!is_bare && !can_be(ops, message->epoch != 0)) ||
        (is_bare && (message->request.keys.n > 0 || message->input_bytes > 0)) ||
        (message->epoch != 0 && kind != FEED_END && model == NULL) ||
        (message->epoch == 0 && is_of_task) || (message->epoch != 0 && is_last) ||
        (is_answered && message->epoch == 0) ||
        (message->fed_kind == FEED_RETURN && !model_request_ok(model, &message->request))) {
        server_refuse(server, message, "an input of a replica that makes no sense");
        return false;
    }
    if (is_bare)
        return true;
    message->kind = kind;
    if (!server_check_remote(server, replica->shard, model, message)) {
        end_if_starved(server, replica, "an input of a replica");
        return false;
    }
    if (kind == MESSAGE_HANDLER && !take_call_piece(server, replica, message)) {
        if (server->starved)
            server_answer(server, message, CALL_OK); /* the replica is given up */
        else
            server_refuse(server, message, "a piece of a call of a handler that makes no sense");
        return false;
    }
    return true;
}

/* What belongs to a request of a worker in a task. */
static void apply_in_task(Replica *replica, const ReplicaModel *of_task, Message *message)
{
    const RequestOps *const ops = request_ops[message->kind];
    const size_t row_bytes = request_row_bytes(ops, shard_spec(replica->shard));
    const RubatoKeys keys = message->request.keys;

    if (message->kind == MESSAGE_ANNOUNCE
            ? server_skip_announced(of_task->had, &message->request)
            : server_skip_had(of_task->had, &message->request, row_bytes))
        ops->in_task(of_task->model, &message->request);
    if (message->fed_kind == MESSAGE_ADD_GET)
        replica_keep_answer(replica, of_task, message, &keys);
}

static void apply_own(Replica *replica, const Message *message)
{
    const RubatoRequest *const request = &message->request;

    if (message->fed_kind == FEED_CREATED)
        shard_create_rows(replica->shard, request->input, request->keys.n);
    else
        shard_reach_time(replica->shard, request->clock);
}

static void apply(Replica *replica, Message *message, const ReplicaModel *of_task)
{
    RubatoModel *const model = of_task->model;
    RubatoRequest *const request = &message->request;

    if (message->fed_kind == FEED_LAST) {
        replica->had_last = true;
        return;
    }
    if (message->fed_kind == FEED_END) {
        replica_end_task(replica, message->epoch);
        return;
    }
    if (is_primarys_own(message->fed_kind))
        apply_own(replica, message);
    else if (message->fed_kind == FEED_LOSS)
        model_lose_workers(model, request->worker, (uint32_t)(request->clock >> 32),
                           (uint32_t)request->clock);
    else if (message->fed_kind == FEED_RETURN)
        input_sequences_return(of_task->had, request->worker);
    else if (message->fed_kind == MESSAGE_HANDLER && message->sequence != 0)
        replica_run_call(replica, of_task, message);
    else if (message->fed_kind == MESSAGE_HANDLER)
        return; /* the last piece does it */
    else if (message->fed_kind == MESSAGE_CLOCK)
        model_clock(model, request->worker, request->clock);
    else if (model != NULL)
        apply_in_task(replica, of_task, message);
    else
        request_ops[message->fed_kind]->between_tasks(replica->shard, request);
    if (model != NULL) /* the input itself: it is answered below; there are no Gets */
        (void)model_take_answered(model);
}

/* Whether the input has the number that is next, and is one that the part has not had. */
static bool is_next(Replica *replica, const ReplicaModel *of_task, const Message *message)
{
    const bool is_between = message->epoch == 0;
    InputSequences *const had = is_between ? replica->had : of_task->had;
    const uint64_t sender = is_between ? message->request.clock : message->request.worker;

    if (replica_take(&replica->position, message->number) != INPUT_NEXT)
        return false;
    if (message->sequence == 0)
        return true;
    if (had == NULL || sender >= had->n_senders)
        return false;
    return message->fed_kind == MESSAGE_HANDLER
               ? input_sequences_take_call(had, (uint32_t)sender, message->sequence)
               : input_sequences_take(had, (uint32_t)sender, message->sequence);
}

static void take(Server *server, Replica *replica, Message *message)
{
    const ReplicaModel of_task = replica_find_model(replica, message->epoch);
    RubatoModel *const model = of_task.model;

    if (!check_input(server, replica, message, model))
        return;
    if (!is_next(replica, &of_task, message)) {
        server_refuse(server, message, "an input of a replica out of its order");
        return;
    }
    if (message->fed_kind == FEED_EVICTED) {
        shard_expect_evictions(replica->shard, message->request.input, message->request.keys.n);
    } else {
        shard_begin_told_input(replica->shard);
        apply(replica, message, &of_task);
        shard_end_told_input(replica->shard);
    }
    end_if_starved(server, replica, "what an input of a replica needs");
    server_tell_complaint(server, message->epoch);
    server_answer(server, message, CALL_OK);
}

/* Whether the message that is handled next tells this replica's position, too. */
static bool more_follow(const Server *server, const Replica *replica)
{
    const Message *const next = server->actor.taken;

    return next != NULL && server->actor.taken_high == NULL && next->kind == MESSAGE_FEED &&
           next->table == replica->table && next->part == replica->part && next->number != 0;
}

void server_tell_primary(const Server *server, const Message *about, uint32_t primary,
                         uint64_t made, uint64_t number)
{
    const Message position = { .kind = MESSAGE_POSITION,
                               .table = about->table,
                               .part = about->part,
                               .server = primary,
                               .number = number,
                               .request = { .worker = server->number, .clock = made } };

    if (!post_office_push(server->office, &position))
        g_error("no memory for a message without keys or rows; the node ends here");
}

void server_tell_position(const Server *server, const Replica *replica)
{
    const Message about = { .table = replica->table, .part = replica->part };

    server_tell_primary(server, &about, replica->primary, replica->made, replica->position);
}

void server_take_input(Server *server, Message *message)
{
    Replica *const replica = server_replica(server, message->table, message->part);

    if (replica == NULL || /* of a table that has been dropped */
        (replica->is_deaf && replica_is_from_primary(server, replica, message))) {
        server_answer(server, message, CALL_OK);
        return;
    }
    take(server, replica, message);
    if (!more_follow(server, replica) && !replica->is_deaf && replica->stage != REPLICA_COMING)
        server_tell_position(server, replica);
}

size_t server_find_input_work(const Server *server, const Message *message)
{
    const Replica *const replica = server_replica(server, message->table, message->part);
    const RubatoModel *const model =
        replica == NULL ? NULL : replica_find_model(replica, message->epoch).model;

    return model == NULL ? 0 : model_n_held(model) * shard_n_values(replica->shard);
}
