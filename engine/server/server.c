/* Servers: what happens to a message that has reached its shard.
 *
 * A request of a task names its model by epoch, table and part. If the task is over here, the
 * request is answered as cancelled. So a request of one task never reaches another task. A clock
 * goes to the models of all parts of its table that are here. Requests of epoch 0 come from the
 * engine between tasks and go straight to the shard.
 *
 * The worker that sends a message within this process has checked it. Messages of other nodes are
 * checked here, before their sizes and keys are used. A wrong one is counted, logged and
 * refused. */
#include "engine/server/server.h"

#include "engine/server/request_ops.h"
#include "engine/server/server_private.h"
#include "models/update/bad_gradients.h"

static const char no_such_part[] = "a request for a part that is not here";

/* After so many refusals a server logs no more of them. */
enum { MAX_LOGGED_REFUSALS = 20 };

void server_answer(Server *server, Message *message, CallStatus status)
{
    message->status = status;
    message->is_answered = true;
    actor_answer(&server->actor, message);
}

static void refuse(Server *server, Message *message, const char *why)
{
    if (++server->n_refused <= MAX_LOGGED_REFUSALS)
        g_warning("server %u: node %u sent %s; dropped", server->number,
                  server->office->node_ids[message->node], why);
    server_answer(server, message, CALL_REFUSED);
}

/* What is wrong with a request of another node; NULL if nothing is. model NULL: between tasks. */
static const char *find_fault(const RubatoShard *shard, const RubatoModel *model,
                              const Message *message)
{
    const RequestOps *ops = request_ops[message->kind];
    const RubatoRequest *request = &message->request;
    const size_t row_bytes = request_row_bytes(ops, shard_spec(shard));
    const size_t input_bytes = ops->rows == REQUEST_INPUT ? request->keys.n * row_bytes : 0;

    if (request->keys.n > post_office_max_keys(row_bytes))
        return "a request with more keys than a message may have";
    if (message->input_bytes != input_bytes)
        return "a request whose values do not fit its keys";
    if (model != NULL && !model_request_ok(model, request))
        return "a request of no worker of the task";
    /* bad deltas are counted by worker: an invented worker must not get a count */
    if (model == NULL && request->worker != BAD_GRADIENTS_NO_WORKER)
        return "a request of a worker between tasks";
    return ops->find_fault == NULL ? NULL : ops->find_fault(shard, request);
}

static bool check_remote(Server *server, const RubatoShard *shard, const RubatoModel *model,
                         Message *message)
{
    const bool is_whole = message->status != CALL_NO_MEMORY;
    const char *fault = is_whole ? find_fault(shard, model, message) : NULL;

    if (fault != NULL) {
        refuse(server, message, fault);
        return false;
    }
    if (!is_whole) {
        server_answer(server, message, CALL_NO_MEMORY);
        server->starved = true;
        return false;
    }
    return true;
}

/* NULL where there is none. */
ServerTable *server_find_table(const Server *server, uint32_t table)
{
    return table < server->tables->len ? g_ptr_array_index(server->tables, table) : NULL;
}

static RubatoShard *find_shard(const ServerTable *table, uint32_t part)
{
    return part < table->n_parts ? table->parts[part].shard : NULL;
}

Binding *server_find_binding(Server *server, uint32_t epoch, uint32_t table)
{
    for (guint i = 0; i < server->bindings->len; i++) {
        Binding *binding = &g_array_index(server->bindings, Binding, i);

        if (binding->epoch == epoch && binding->table == table)
            return binding;
    }
    return NULL;
}

/* The memory for an answer's rows is allocated when they are read, not while the Get is parked. */
static bool make_room(RubatoRequest *request, size_t n_bytes)
{
    return post_office_make_room(message_of_request(request), n_bytes);
}

/* ---- without memory ---- */

/* The memory for a task's error (its text, a message to the scheduler) comes from this reserve. */
#define RESERVE_BYTES ((size_t)1 << 20)

static char *describe_need(const Server *server, const Binding *binding)
{
    uint64_t n_rows, n_bytes;

    server_table_size(server, binding->table, &n_rows, &n_bytes);
    return g_strdup_printf("table %s: server %u (node %u) has no memory for what a request needs; "
                           "it holds %" G_GUINT64_FORMAT " rows in %" G_GUINT64_FORMAT
                           " bytes. Use more servers, or nodes with more memory",
                           binding->table_name, server->number,
                           server->office->node_ids[server->office->self], n_rows, n_bytes);
}

/* Fails the task, then allocates the reserve again. The rows that were there stay. */
void server_starve(Server *server, const Binding *binding)
{
    server->starved = false;
    g_clear_pointer(&server->reserve, g_free);

    g_autofree char *text = describe_need(server, binding);
    if (server->fail_task != NULL)
        server->fail_task(server->user, binding->epoch, text);
    server->reserve = g_try_malloc(RESERVE_BYTES);
}

/* Sends back the requests that the model has answered. If memory was short, all get CALL_NO_MEMORY,
 * because some may hold no answer. */
static void empty_outbox(Server *server, RubatoModel *model)
{
    const CallStatus status = server->starved ? CALL_NO_MEMORY : CALL_OK;
    const uint64_t min_clock = rubato_model_min_clock(model);
    RubatoRequest *request = model_take_answered(model), *next;

    for (; request != NULL; request = next) {
        next = request->next;
        message_of_request(request)->min_clock = min_clock;
        server_answer(server, message_of_request(request), status);
    }
}

/* All models have the same sources and are told the same clocks: a clock that one ignores, all
 * ignore. */
static void handle_clock(Server *server, const Binding *binding, Message *message)
{
    for (uint32_t i = 0; i < binding->n_here; i++) {
        RubatoModel *model = binding->parts[binding->here[i]].model;

        if (server_is_leaving(server, binding->table, binding->here[i])) {
            server_pass_on_clock(server, message);
            continue;
        }
        model_clock(model, message->clock.source, message->clock.clock);
        empty_outbox(server, model);
    }
    server_answer(server, message, CALL_OK);
    if (G_UNLIKELY(server->starved))
        server_starve(server, binding);
}

static void handle_for_task(Server *server, Message *message)
{
    Binding *binding = server_find_binding(server, message->epoch, message->table);
    const BoundPart *part;

    if (binding == NULL) {
        server_answer(server, message, CALL_CANCELLED);
        return;
    }
    if (message->kind == MESSAGE_CLOCK) {
        handle_clock(server, binding, message);
        return;
    }
    if (message->kind > MESSAGE_CLOCK && request_ops[message->kind]->in_task == NULL) {
        refuse(server, message, "a request that belongs between tasks, in one");
        return;
    }
    part = message->part < binding->n_parts ? &binding->parts[message->part] : NULL;
    if (part == NULL || part->model == NULL) {
        if (!server_pass_on(server, message))
            refuse(server, message, no_such_part);
        return;
    }
    if (message->node != server->office->self &&
        !check_remote(server, part->shard, part->model, message)) {
        if (server->starved)
            server_starve(server, binding);
        return;
    }
    switch (message->kind) { /* the most frequent kinds; the array handles the others */
    case MESSAGE_GET:
        if (message->node_clock > 0)
            model_clock(part->model, message->node, message->node_clock);
        model_get(part->model, &message->request);
        break;
    case MESSAGE_ADD:
        model_add(part->model, &message->request);
        break;
    default:
        request_ops[message->kind]->in_task(part->model, &message->request);
        break;
    }
    empty_outbox(server, part->model);
    if (G_UNLIKELY(server->starved))
        server_starve(server, binding);
    if (!message->is_answered)
        post_office_park(message);
}

static bool has_room(const RubatoShard *shard, Message *message)
{
    const RequestOps *ops = request_ops[message->kind];
    const RubatoRequest *request = &message->request;

    return ops->rows != REQUEST_OUTPUT || request->output != NULL || request->keys.n == 0 ||
           post_office_make_room(message,
                                 request->keys.n * request_row_bytes(ops, shard_spec(shard)));
}

static void handle_past_models(Server *server, Message *message)
{
    const RequestOps *ops = request_ops[message->kind];
    const ServerTable *table = server_find_table(server, message->table);
    RubatoShard *shard;

    if (ops->between_tasks == NULL) {
        refuse(server, message, "a message that belongs to a task, without one");
        return;
    }
    if (table == NULL) {
        refuse(server, message, "a request for a table that is not here");
        return;
    }
    shard = find_shard(table, message->part);
    if (shard == NULL) {
        if (!server_pass_on(server, message))
            refuse(server, message, no_such_part);
        return;
    }
    if (message->node != server->office->self && !check_remote(server, shard, NULL, message)) {
        server->starved = false;
        return;
    }
    if (has_room(shard, message))
        ops->between_tasks(shard, &message->request);
    else
        server->starved = true;
    server_answer(server, message, server->starved ? CALL_NO_MEMORY : CALL_OK);
    server->starved = false;
}

/* Handles a message that needs no table, or a function to run as the owner. True if it was one. */
static bool handle_without_table(Server *server, Message *message)
{
    if (message->kind == MESSAGE_INVOKE)
        message->invoke(message, server);
    else if (!request_ops[message->kind]->is_empty)
        return false;
    else if (server_pass_on(server, message))
        return true;
    server_answer(server, message, CALL_OK);
    return true;
}

static void handle(Actor *actor, Message *message)
{
    Server *server = (Server *)actor;

    message->min_clock = UINT64_MAX;
    if (message->kind > MESSAGE_CLOCK && handle_without_table(server, message))
        return;
    if (message->epoch != 0)
        handle_for_task(server, message);
    else
        handle_past_models(server, message);
}

/* Replies to other nodes were queued: send them together. */
static void settled(Actor *actor)
{
    post_office_flush(((Server *)actor)->office);
}

static size_t held_by(const BoundPart *part)
{
    return part->model == NULL ? 0 : model_n_held(part->model) * shard_n_values(part->shard);
}

/* Estimates, in values, the requests that a clock or an announcement may release. 0 for other
 * messages: the message itself tells its size. */
static size_t find_work(Actor *actor, const Message *message)
{
    const Binding *binding;
    const RequestOps *ops = request_ops[message->kind];
    size_t work = 0;

    if (ops == NULL || !ops->releases)
        return 0;
    binding = server_find_binding((Server *)actor, message->epoch, message->table);
    if (binding == NULL)
        return 0;
    if (message->kind != MESSAGE_CLOCK)
        return message->part < binding->n_parts ? held_by(&binding->parts[message->part]) : 0;
    for (uint32_t i = 0; i < binding->n_here; i++)
        work += held_by(&binding->parts[binding->here[i]]);
    return work;
}

void server_init(Server *server, uint32_t number, PostOffice *office,
                 void (*fail_task)(void *user, uint32_t epoch, const char *text), void *user)
{
    actor_init(&server->actor, handle, settled);
    server->actor.find_work = find_work;
    server->number = number;
    server->office = office;
    server->tables = g_ptr_array_new();
    server->bindings = g_array_new(FALSE, FALSE, sizeof(Binding));
    server->n_refused = 0;
    server->fail_task = fail_task;
    server->user = user;
    server->leaving_to = NULL;
    server->starved = false;
    server->reserve = g_try_malloc(RESERVE_BYTES);
}

bool server_start(Server *server)
{
    char name[16];

    g_snprintf(name, sizeof name, "server %u", server->number);
    return actor_start(&server->actor, name);
}

void server_stop(Server *server)
{
    actor_stop(&server->actor);
}

void server_clear(Server *server)
{
    for (guint i = 0; i < server->tables->len; i++)
        server_drop_table(server, i);
    g_ptr_array_unref(server->tables);
    g_array_unref(server->bindings);
    g_free(server->reserve);
}

/* ---- functions as the owner ---- */

typedef struct {
    Message message; /* first: the handler finds it by the message */
    void (*function)(Server *server, void *data);
    void *data;
} Invocation;

static void invoke(Message *message, void *server)
{
    Invocation *invocation = (Invocation *)message;

    invocation->function(server, invocation->data);
}

static void end_invocation(Message *message)
{
    message_end_call(message);
    g_free(message);
}

void servers_post(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                  void *data, Call *call)
{
    call_add_parts(call, n);
    for (uint32_t i = 0; i < n; i++) {
        Invocation *invocation = g_new0(Invocation, 1);

        *invocation = (Invocation){ .message = { .kind = MESSAGE_INVOKE,
                                                 .call = call,
                                                 .invoke = invoke,
                                                 .end = end_invocation },
                                    .function = function,
                                    .data = data };
        actor_post(&servers[i].actor, &invocation->message);
    }
}

void servers_run(Server *servers, uint32_t n, void (*function)(Server *server, void *data),
                 void *data)
{
    Call call;

    call_begin(&call, NULL);
    servers_post(servers, n, function, data, &call);
    call_sent(&call);
    call_wait(&call, -1);
}

void server_add_table(Server *server, uint32_t table, uint32_t n_parts)
{
    ServerTable *added = g_malloc0(sizeof *added + n_parts * sizeof(added->parts[0]));

    added->n_parts = n_parts;
    if (server->tables->len <= table)
        g_ptr_array_set_size(server->tables, (gint)table + 1);
    g_ptr_array_index(server->tables, table) = added;
}

void server_add_shard(Server *server, uint32_t table, uint32_t part, RubatoShard *shard)
{
    server_find_table(server, table)->parts[part].shard = shard;
    shard_set_alarm(shard, &server->starved);
}

void server_drop_table(Server *server, uint32_t table)
{
    ServerTable *dropped = server_find_table(server, table);

    if (dropped == NULL)
        return;
    for (uint32_t part = 0; part < dropped->n_parts; part++)
        shard_free(dropped->parts[part].shard);
    g_free(dropped);
    g_ptr_array_index(server->tables, table) = NULL;
}

RubatoShard *server_find_shard(const Server *server, uint32_t table, uint32_t part)
{
    const ServerTable *found = server_find_table(server, table);

    return found == NULL ? NULL : find_shard(found, part);
}

void server_table_size(const Server *server, uint32_t table, uint64_t *n_rows, uint64_t *n_bytes)
{
    const ServerTable *sized = server_find_table(server, table);

    *n_rows = *n_bytes = 0;
    for (uint32_t part = 0; part < sized->n_parts; part++) {
        uint64_t rows, bytes;

        if (sized->parts[part].shard == NULL)
            continue;
        shard_size(sized->parts[part].shard, &rows, &bytes);
        *n_rows += rows;
        *n_bytes += bytes;
    }
}

/* ---- models ---- */

void server_end_model(Server *server, RubatoModel *model)
{
    RubatoRequest *request = model_free(model), *next;

    for (; request != NULL; request = next) {
        next = request->next;
        server_answer(server, message_of_request(request), CALL_CANCELLED);
    }
}

static void clear_binding(Server *server, Binding *binding)
{
    for (uint32_t i = 0; i < binding->n_here; i++)
        server_end_model(server, binding->parts[binding->here[i]].model);
    g_free(binding->here);
    g_free(binding->parts);
}

static RubatoModel *begin_model(Server *server, RubatoShard *shard, RubatoModelSetup setup,
                                uint32_t n_nodes, const uint32_t *workers_of, GError **error)
{
    RubatoModel *model;

    shard_range(shard, &setup.first_key, &setup.n_keys);
    model = model_new(&setup, shard, n_nodes, error);
    if (model == NULL)
        return NULL;
    model_set_outbox(model, &server->actor.outbox);
    model->make_room = make_room;
    if (!model_traits(setup.spec)->per_worker_clocks)
        for (uint32_t node = 0; node < n_nodes; node++)
            if (workers_of[node] == 0)
                model_clock(model, node, RUBATO_CLOCK_RETIRED);
    return model;
}

bool server_begin_task(Server *server, uint32_t epoch, uint32_t table,
                       const RubatoModelSetup *setup, uint32_t n_nodes, const uint32_t *workers_of,
                       GError **error)
{
    const ServerTable *used = server_find_table(server, table);
    Binding binding = { .epoch = epoch,
                        .table = table,
                        .table_name = setup->spec->name,
                        .n_parts = used->n_parts,
                        .here = g_new(uint32_t, used->n_parts),
                        .parts = g_new0(BoundPart, used->n_parts) };

    for (uint32_t part = 0; part < used->n_parts; part++) {
        RubatoShard *shard = used->parts[part].shard;

        if (shard == NULL)
            continue;
        binding.parts[part] = (BoundPart){
            .shard = shard,
            .model = begin_model(server, shard, *setup, n_nodes, workers_of, error),
        };
        if (binding.parts[part].model == NULL) {
            clear_binding(server, &binding);
            return false;
        }
        binding.here[binding.n_here++] = part;
    }
    g_array_append_val(server->bindings, binding);
    return true;
}

void server_end_task(Server *server, uint32_t epoch)
{
    for (guint i = server->bindings->len; i-- > 0;) {
        Binding binding = g_array_index(server->bindings, Binding, i);

        if (binding.epoch != epoch)
            continue;
        g_array_remove_index_fast(server->bindings, i);
        clear_binding(server, &binding);
    }
}
