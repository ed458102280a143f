/* What happens to a message that has reached its server.
 *
 * A request of a task names its model by epoch, table and part. If the task is over here, the
 * request is answered as cancelled. So a request of one task never reaches another task. A clock
 * goes to the models of all parts of its table that are here. Requests of epoch 0 come from the
 * engine between tasks and go straight to the shard.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_answers.h"
#include "engine/server/replicas/server_calls.h"
#include "engine/server/replicas/server_copied.h"
#include "engine/server/replicas/server_copies.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_inputs.h"
#include "engine/server/replicas/server_replicas.h"
#include "engine/server/request_ops.h"
#include "engine/server/server_private.h"
#include "io/net/handler_call.h"
#include "io/net/monotonic.h"

#include <string.h>

static const char no_such_part[] = "a request for a part that is not here";
static const char no_such_move[] = "the state of a part that does not move";

/* All models have the same sources and are told the same clocks: a clock that one ignores, all
 * ignore. */
static void handle_clock(Server *server, const Binding *binding, Message *message)
{
    for (uint32_t i = 0; i < binding->n_here; i++) {
        const BoundPart *const part = &binding->parts[binding->here[i]];

        if (G_UNLIKELY(part->fed != NULL)) {
            server_feed_time(server, part->fed, part->shard);
            server_feed_clock(server, part, message);
            server_empty_fed(server, part);
            continue;
        }
        server_take_clock(binding, binding->here[i], &message->clock);
        server_empty_outbox(server, part->model);
    }
    server_answer(server, message, CALL_OK);
    if (G_UNLIKELY(server->starved))
        server_starve(server, binding);
}

void server_retire_all(Server *server, uint32_t epoch, uint32_t table)
{
    const MessageClock last = { .source = MESSAGE_CLOCK_OF_ALL, .clock = RUBATO_CLOCK_RETIRED };
    const Binding *const binding = server_find_binding(server, epoch, table);

    for (uint32_t i = 0; binding != NULL && i < binding->n_here; i++) {
        const uint32_t part = binding->here[i];

        if (binding->parts[part].fed != NULL)
            continue;
        server_take_clock(binding, part, &last);
        server_empty_outbox(server, binding->parts[part].model);
    }
    if (G_UNLIKELY(server->starved) && binding != NULL)
        server_starve(server, binding);
}

/* Whether a model may keep a Get until a clock comes: no model does so up to the min clock, nor up
 * to its staleness. */
static bool may_wait(const BoundPart *part, const RubatoRequest *request)
{
    const uint64_t min_clock = rubato_model_min_clock(part->model);
    const RubatoLead lead = part->model->ops->traits.lead;

    return lead != RUBATO_LEAD_UNBOUNDED && request->clock > min_clock &&
           (lead == RUBATO_LEAD_NONE ||
            request->clock - min_clock > shard_spec(part->shard)->staleness);
}

/* Before a Get comes to its model. Returns the message, which may lie elsewhere now. */
static inline Message *prepare_get(const Server *server, const Binding *binding,
                                   const BoundPart *part, Message *message)
{
    if (G_UNLIKELY(binding->adds != NULL))
        server_bring_clock(binding, message->part, message);
    else if (message->node_clock > 0)
        model_clock(part->model, message->node, message->node_clock);
    if (message->node != server->office->self && may_wait(part, &message->request))
        return post_office_detach(message);
    return message;
}

/* The part is not here. A request that reads may be sent again, by the present map. Nobody sends
 * others to a server that does not have the part. */
static void answer_without_part(Server *server, Message *message, uint32_t n_parts)
{
    if (message->part < n_parts && request_ops[message->kind]->is_sent_again)
        server_answer(server, message, CALL_MOVED);
    else
        server_refuse(server, message, no_such_part);
}

/* What is kept for a parked request beside its message. */
static size_t held_bytes(const RubatoShard *shard, const Message *message)
{
    return message->kind == MESSAGE_HANDLER ? message->request.handler_call->n_payload_bytes
                                            : message->request.keys.n * shard_row_bytes(shard);
}

/* Takes the request out of the model's outbox. */
static void take_out(RubatoModel *model, const RubatoRequest *request)
{
    RubatoRequest **link = model->outbox;

    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
}

/* Handles a Get of another node. False: its answer has left, and it must not be touched. */
static bool get_for_other_node(Server *server, const BoundPart *part, Message *message)
{
    RubatoModel *const model = part->model;
    RubatoRequest *lent;

    model->lends = &message->request;
    model_get(model, &message->request);
    lent = model->lent;
    model->lends = model->lent = NULL;
    if (lent == NULL)
        return true;
    /* Its answer leaves at once: when the token is free, another owner may change the rows. */
    take_out(model, lent);
    message->min_clock = rubato_model_min_clock(model);
    message->status = CALL_OK;
    message_end(message);
    server_empty_outbox(server, model);
    return false;
}

/* Before a request other than a Get, an Add or a clock comes to a model whose Adds are deferred. */
static void prepare_for_deferred(const Binding *binding, const Message *message)
{
    const bool calls = message->kind == MESSAGE_HANDLER;

    if (calls && message->request.handler_call->ops->access != RUBATO_ACCESS_WRITES)
        server_bring_clock(binding, message->part, message);
    else if (calls || message->kind == MESSAGE_ADD_GET)
        server_take_earlier(binding, message);
}

/* The request that its model has not answered stays with it. */
static void park(Server *server, const Binding *binding, const BoundPart *part, Message *message)
{
    if (!message->is_answered &&
        G_UNLIKELY(!post_office_park(message, held_bytes(part->shard, message))))
        server_overfill(server, binding, message);
}

/* Whether a request changes the part, which goes to its replicas. */
static bool is_input(const Message *message)
{
    return request_ops[message->kind]->is_input || message->kind == MESSAGE_ADD_GET ||
           server_is_change_call(message);
}

/* What is wrong with a request of a part with replicas; NULL if nothing is. */
static const char *find_fault_for_fed(const Server *server, const Message *message)
{
    if (is_input(message) && message->node != server->office->self && message->sequence == 0)
        return "a change of a part with replicas, and waits for no answer";
    if (message->node != server->office->self && message_brings_clock(message))
        return "a clock with a request of a part with replicas, which would miss it";
    return NULL;
}

/* A request that changes a part, and was sent again. The part has had it. */
static void answer_again(Server *server, const Binding *binding, const BoundPart *part,
                         Message *message)
{
    if (message->kind != MESSAGE_ADD_GET) {
        server_answer_fed(server, part->fed, message, CALL_OK);
        return;
    }
    message->request.input = NULL;
    message = prepare_get(server, binding, part, message);
    if (!server_answer_as_before(part, message))
        model_get(part->model, &message->request);
    server_empty_fed(server, part);
    park(server, binding, part, message);
}

static bool has_room(const RubatoShard *shard, Message *message)
{
    const RequestOps *ops = request_ops[message->kind];
    const RubatoRequest *request = &message->request;

    return ops->rows != REQUEST_OUTPUT || request->output != NULL || request->keys.n == 0 ||
           post_office_make_room(message,
                                 request->keys.n * request_row_bytes(ops, shard_spec(shard)));
}

/* A process has the place of a lost one, and asks what this part has heard of a worker. It may ask
 * twice, if the part gets another primary: it sends no change before it has all answers. */
static void take_return(Server *server, const BoundPart *part, Message *message)
{
    const ReturnAnswer answer = server_feed_return(server, part, message);

    if (has_room(part->shard, message))
        memcpy(message->request.output, &answer, sizeof answer);
    else
        server->starved = true;
    server_answer_fed(server, part->fed, message, server->starved ? CALL_NO_MEMORY : CALL_OK);
}

/* The model has got the request. */
static void end_for_fed(Server *server, const Binding *binding, const BoundPart *part,
                        Message *message)
{
    server_empty_fed(server, part);
    if (G_UNLIKELY(server->starved))
        server_starve(server, binding);
    park(server, binding, part, message);
}

/* A request of a part with replicas. */
static void handle_for_fed(Server *server, const Binding *binding, const BoundPart *part,
                           Message *message)
{
    const bool adds = message->kind == MESSAGE_ADD || message->kind == MESSAGE_ADD_GET;
    const char *fault;

    if (message->kind == MESSAGE_HANDLER) {
        message = server_take_call(server, part->shard, message);
        if (message == NULL)
            return;
    }
    fault = find_fault_for_fed(server, message);
    if (fault != NULL) {
        server_refuse(server, message, fault);
        return;
    }
    server_feed_time(server, part->fed, part->shard);
    if (message->kind == MESSAGE_RETURN) {
        take_return(server, part, message);
        if (server->starved)
            server_starve(server, binding);
        return;
    }
    if (server_is_change_call(message)) {
        server_end_slices(server, message->table, message->part);
        server_take_change_call(server, part, message);
        end_for_fed(server, binding, part, message);
        return;
    }
    if (is_input(message) && !server_has_not_had(part->had, message->request.worker, message)) {
        answer_again(server, binding, part, message);
        return;
    }
    if (adds)
        server_feed_add(server, part, message);
    switch (message->kind) {
    case MESSAGE_ANNOUNCE:
        server_feed_announcement(server, part, message);
        rubato_model_finish(part->model, &message->request);
        break;
    case MESSAGE_ADD:
        rubato_model_finish(part->model, &message->request);
        break;
    case MESSAGE_ADD_GET:
        message->request.input = NULL;
        message = prepare_get(server, binding, part, message);
        if (server_repeat_answer(part, message))
            break;
        model_get(part->model, &message->request);
        server_keep_answer(part, message);
        break;
    case MESSAGE_GET:
        message = prepare_get(server, binding, part, message);
        model_get(part->model, &message->request);
        break;
    case MESSAGE_TUNE:
        server_feed_tuning(server, part, message);
        break;
    default:
        request_ops[message->kind]->in_task(part->model, &message->request);
        break;
    }
    end_for_fed(server, binding, part, message);
}

static void handle_for_task(Server *server, Message *message)
{
    Binding *binding = server_find_binding(server, message->epoch, message->table);
    const BoundPart *part;
    BoundPart arriving;

    if (binding == NULL) {
        server_answer(server, message, CALL_CANCELLED);
        return;
    }
    if (message->kind == MESSAGE_CLOCK) {
        handle_clock(server, binding, message);
        return;
    }
    if (message->kind > MESSAGE_CLOCK && request_ops[message->kind]->in_task == NULL) {
        server_refuse(server, message, "a request that belongs between tasks, in one");
        return;
    }
    part = message->part < binding->n_parts ? &binding->parts[message->part] : NULL;
    if (part == NULL || part->model == NULL) {
        arriving = (BoundPart){ .shard = server->arrival.shard, .model = binding->arriving };
        if (arriving.model == NULL || !server_is_arriving(server, message)) {
            answer_without_part(server, message, binding->n_parts);
            return;
        }
        part = &arriving;
    }
    if (message->node != server->office->self &&
        !server_check_remote(server, part->shard, part->model, message)) {
        if (server->starved)
            server_starve(server, binding);
        return;
    }
    if (G_UNLIKELY(part->fed != NULL)) {
        handle_for_fed(server, binding, part, message);
        return;
    }
    switch (message->kind) { /* the most frequent kinds; the array handles the others */
    case MESSAGE_GET:
        message = prepare_get(server, binding, part, message);
        if (message->node == server->office->self) {
            model_get(part->model, &message->request);
        } else if (!get_for_other_node(server, part, message)) {
            if (G_UNLIKELY(server->starved))
                server_starve(server, binding);
            return;
        }
        break;
    case MESSAGE_ADD:
        if (G_UNLIKELY(binding->adds != NULL))
            server_take_earlier(binding, message);
        model_add(part->model, &message->request);
        break;
    default:
        if (request_ops[message->kind]->is_of_move && part != &arriving) {
            server_refuse(server, message, no_such_move);
            return;
        }
        if (message->kind == MESSAGE_HANDLER) {
            message = server_take_call(server, part->shard, message);
            if (message == NULL)
                return;
        }
        if (G_UNLIKELY(binding->adds != NULL))
            prepare_for_deferred(binding, message);
        if (message->kind == MESSAGE_ADD_GET)
            message = prepare_get(server, binding, part, message);
        request_ops[message->kind]->in_task(part->model, &message->request);
        break;
    }
    server_empty_outbox(server, part->model);
    if (G_UNLIKELY(server->starved))
        server_starve(server, binding);
    park(server, binding, part, message);
}

/* A request between tasks of a part with replicas. */
static void handle_fed_past_models(Server *server, FedPart *fed, RubatoShard *shard,
                                   Message *message)
{
    const RequestOps *ops = request_ops[message->kind];
    const char *const fault = find_fault_for_fed(server, message);

    if (fault != NULL) {
        server_refuse(server, message, fault);
        return;
    }
    server_feed_time(server, fed, shard);
    if (server_is_change_call(message)) {
        server_end_slices(server, message->table, message->part);
        server_take_call_between(server, fed, shard, message);
        return;
    }
    if (ops->is_input && !server_has_not_had(fed->had, message->node, message)) {
        server_answer_fed(server, fed, message, CALL_OK);
        return;
    }
    if (ops->is_input)
        server_feed_past_models(server, fed, shard, message);
    else if (has_room(shard, message))
        ops->between_tasks(shard, &message->request);
    else
        server->starved = true;
    server_feed_created(server, fed, shard);
    server_answer_fed(server, fed, message, server->starved ? CALL_NO_MEMORY : CALL_OK);
    server->starved = false;
}

static void handle_past_models(Server *server, Message *message)
{
    const RequestOps *ops = request_ops[message->kind];
    const ServerTable *table = server_find_table(server, message->table);
    RubatoShard *shard;

    if (ops->between_tasks == NULL) {
        server_refuse(server, message, "a message that belongs to a task, without one");
        return;
    }
    if (table == NULL) {
        server_refuse(server, message, "a request for a table that is not here");
        return;
    }
    shard = message->part < table->n_parts ? table->parts[message->part].shard : NULL;
    if (shard == NULL && server_is_arriving(server, message)) {
        shard = server->arrival.shard;
    } else if (shard == NULL) {
        answer_without_part(server, message, table->n_parts);
        return;
    } else if (ops->is_of_move) {
        server_refuse(server, message, no_such_move);
        return;
    }
    if (message->node != server->office->self &&
        !server_check_remote(server, shard, NULL, message)) {
        server->starved = false;
        return;
    }
    if (message->kind == MESSAGE_HANDLER) {
        message = server_take_call(server, shard, message);
        if (message == NULL)
            return;
    }
    if (G_UNLIKELY(table->parts[message->part].fed != NULL)) {
        handle_fed_past_models(server, table->parts[message->part].fed, shard, message);
        return;
    }
    if (has_room(shard, message))
        ops->between_tasks(shard, &message->request);
    else
        server->starved = true;
    server_answer(server, message, server->starved ? CALL_NO_MEMORY : CALL_OK);
    server->starved = false;
}

/* A fence of a task that names a part is answered with the part's min clock. */
static void bring_min_clock(Server *server, Message *message)
{
    const Binding *const binding =
        message->epoch == 0 ? NULL : server_find_binding(server, message->epoch, message->table);
    const BoundPart *const part =
        binding != NULL && message->part < binding->n_parts ? &binding->parts[message->part] : NULL;

    if (part != NULL && part->model != NULL)
        message->min_clock = rubato_model_min_clock(part->model);
}

/* Handles a message that needs no table, or a function to run as the owner. True if it was one. */
static bool handle_without_table(Server *server, Message *message)
{
    const ServerTable *table;
    FedPart *fed;

    switch (message->kind) {
    case MESSAGE_INVOKE:
        message->invoke(message, server);
        break;
    case MESSAGE_FEED:
        if (!server_take_of_copy(server, message))
            server_take_input(server, message);
        return true;
    case MESSAGE_POSITION:
        server_take_position(server, message);
        if (G_UNLIKELY(server->copies != NULL))
            server_make_copies(server);
        return true;
    default:
        if (!request_ops[message->kind]->is_empty)
            return false;
        break;
    }
    /* a fence may ask for the min clock of a part, and for its replicas */
    table = server_find_table(server, message->table);
    if (table != NULL && message->kind == MESSAGE_FENCE)
        bring_min_clock(server, message);
    fed = table != NULL && message->part < table->n_parts ? table->parts[message->part].fed : NULL;
    if (fed != NULL && message->kind != MESSAGE_INVOKE)
        server_answer_fed(server, fed, message, CALL_OK);
    else
        server_answer(server, message, CALL_OK);
    return true;
}

/* What may be handled beside readers, which read rows of a single value (server_joint.c): what
 * changes no rows, and Adds to a list of keys, which store each value at once. */
static bool spares_readers(const Message *message)
{
    switch (message->kind) {
    case MESSAGE_GET:
    case MESSAGE_CLOCK:
    case MESSAGE_ANNOUNCE:
    case MESSAGE_ITERATE:
    case MESSAGE_FENCE:
        return true;
    case MESSAGE_ADD:
        return message->request.keys.keys != NULL;
    default:
        return false;
    }
}

static void handle(Server *server, Message *message)
{
    if (!spares_readers(message))
        actor_exclude_readers(&server->actor);
    message->min_clock = UINT64_MAX;
    if (message->kind > MESSAGE_CLOCK && handle_without_table(server, message))
        return;
    if (message->epoch != 0)
        handle_for_task(server, message);
    else
        handle_past_models(server, message);
}

/* Whether an Add is of a task, and of a part that is here and has no replicas: so a model has it,
 * which needs its input no longer than the call, or copies it (rubato_model_keep). */
static bool goes_to_model(Server *server, const Message *message)
{
    const Binding *const binding = server_find_binding(server, message->epoch, message->table);
    const BoundPart *const part =
        message->epoch != 0 && binding != NULL && message->part < binding->n_parts
            ? &binding->parts[message->part]
            : NULL;

    return part != NULL && part->model != NULL && part->fed == NULL;
}

/* An Add whose input lies in memory of the transport. The token is held, so nobody else has seen
 * the message when its input is copied. */
static void handle_lent(Server *server, Message *message)
{
    if (!goes_to_model(server, message))
        post_office_own(message);
    handle(server, message);
    if (!message->is_answered && post_office_is_lent(message))
        post_office_own(message);
}

/* Measures what other nodes ask, on any thread: the receiving one wants to know what it may handle
 * itself. */
void server_handle(Actor *actor, Message *message)
{
    Server *const server = (Server *)actor;
    const bool is_foreign = message->kind != MESSAGE_CLOCK && message->node != server->office->self;
    const size_t n_values = is_foreign ? message_n_values(message) : 0;

    if (n_values < INLINE_WORK_MEASURED) {
        handle(server, message);
        return;
    }
    const int64_t began_ns = monotonic_coarse_ns();
    if (post_office_is_lent(message))
        handle_lent(server, message);
    else
        handle(server, message); /* which may have ended it */
    inline_work_learn(&server->office->inline_work, n_values, monotonic_coarse_ns() - began_ns);
}

/* Keys and rows count as they are, though they may be packed on their way. */
static void count_use(Server *server, const Message *message)
{
    const RequestOps *const ops = request_ops[message->kind];
    ServerTable *const table =
        ops != NULL && !ops->is_empty ? server_find_table(server, message->table) : NULL;
    const RubatoShard *const shard =
        table != NULL && message->part < table->n_parts ? table->parts[message->part].shard : NULL;

    if (shard == NULL)
        return;
    PartUse *const use = &table->parts[message->part].use;
    const size_t n_ways = ops->rows == REQUEST_BOTH ? 2 : 1;
    const size_t row_bytes = n_ways * request_row_bytes(ops, shard_spec(shard));

    use->n_requests++;
    if (message->node != server->office->self)
        use->n_network_bytes += message->request.keys.n * (sizeof(RubatoKey) + row_bytes);
}

void server_handle_measured(Actor *actor, Message *message)
{
    count_use((Server *)actor, message);
    server_handle(actor, message);
}

/* Replies to other nodes were queued: send them together. */
void server_settled(Actor *actor)
{
    post_office_flush(((Server *)actor)->office);
}

static size_t held_by(const BoundPart *part)
{
    return part->model == NULL ? 0 : model_n_held(part->model) * shard_n_values(part->shard);
}

/* What a request that reads may do besides reading. */
static size_t work_before_reading(const Binding *binding, const Message *message)
{
    const RubatoModel *const model =
        message->part < binding->n_parts ? binding->parts[message->part].model : NULL;

    return model == NULL ? 0 : model_n_to_look_at(model);
}

/* Estimates, in values, the requests that a clock or an announcement may release, and what a Get
 * has to look at first. Else 0: the message itself tells its size. */
size_t server_find_work(Actor *actor, const Message *message)
{
    const Binding *binding;
    const RequestOps *ops = request_ops[message->kind];
    size_t work = 0;

    const bool releases = ops != NULL && (ops->releases || message_brings_clock(message));

    if (ops == NULL || (!releases && message->kind != MESSAGE_GET &&
                        message->kind != MESSAGE_ADD_GET && message->kind != MESSAGE_HANDLER))
        return 0;
    if (message->kind == MESSAGE_FEED)
        return server_find_input_work((Server *)actor, message);
    binding = server_find_binding((Server *)actor, message->epoch, message->table);
    if (binding == NULL)
        return 0;
    if (!releases)
        return work_before_reading(binding, message);
    if (message->kind != MESSAGE_CLOCK)
        return message->part < binding->n_parts ? held_by(&binding->parts[message->part]) : 0;
    for (uint32_t i = 0; i < binding->n_here; i++)
        work += held_by(&binding->parts[binding->here[i]]);
    return work;
}
