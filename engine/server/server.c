/* Servers: what happens to a message that has reached its shard.
 *
 * A request of a task finds the model that its epoch and table name; one whose task is over here is
 * answered as cancelled, so what belonged to one task never reaches another. Requests of epoch 0
 * come from the engine between tasks and go straight to the shard.
 *
 * Messages of this process were checked by the worker that sent them. Those of other nodes are
 * checked here, before their sizes and keys are used: a wrong one is counted, logged and
 * refused. */
#include "engine/server/server.h"

#include "models/model.h"
#include "models/shard.h"
#include "models/update/bad_gradients.h"

typedef struct {
    uint32_t epoch;
    uint32_t table;
    const char *table_name;
    RubatoShard *shard;
    RubatoModel *model;
} Binding;

/* After so many refusals a server says no more of them. */
enum { MAX_LOGGED_REFUSALS = 20 };

static void answer(Server *server, Message *message, CallStatus status)
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
    answer(server, message, CALL_REFUSED);
}

/* Whether a kind of message may have its subject, in a task or between tasks. */
static bool subject_ok(const Message *message, bool in_task)
{
    switch (message->request.subject) {
    case RUBATO_SUBJECT_ROWS:
        return true;
    case RUBATO_SUBJECT_HYPER:
        return message->kind == MESSAGE_ADD;
    case RUBATO_SUBJECT_STATE:
        return !in_task && (message->kind == MESSAGE_ADD || message->kind == MESSAGE_GET);
    case RUBATO_SUBJECT_VALUES:
    case RUBATO_SUBJECT_INITIAL:
        return !in_task && message->kind == MESSAGE_ADD;
    case RUBATO_SUBJECT_KEYS:
    case RUBATO_SUBJECT_BAD_GRADIENTS:
        return !in_task && message->kind == MESSAGE_GET;
    }
    return false;
}

/* What is wrong with the keys of a request of another node, NULL where nothing is. */
static const char *find_key_fault(const RubatoShard *shard, const RubatoRequest *request)
{
    switch (request->subject) {
    case RUBATO_SUBJECT_HYPER:
        return shard_hyper_ok(shard, &request->keys, request->values)
                   ? NULL
                   : "a hyper-parameter that cannot be";
    case RUBATO_SUBJECT_KEYS:
    case RUBATO_SUBJECT_BAD_GRADIENTS:
        return shard_numbers_ok(shard, request->subject, &request->keys)
                   ? NULL
                   : "a number of what this server does not have";
    default:
        return shard_keys_ok(shard, &request->keys) ? NULL : "a key that this server does not hold";
    }
}

/* What is wrong with a request of another node, NULL where nothing is. */
static const char *find_fault(const RubatoShard *shard, const RubatoModel *model,
                              const Message *message)
{
    const RubatoRequest *request = &message->request;
    const size_t row_bytes = shard_subject_bytes(shard, request->subject);
    /* an announcement is of keys alone, as many as fit */
    const size_t carried_bytes = message->kind == MESSAGE_ANNOUNCE ? 0 : row_bytes;

    if (request->keys.n > post_office_max_keys(carried_bytes))
        return "a request with more keys than a message may have";
    if (message->kind == MESSAGE_ADD && message->value_bytes != request->keys.n * row_bytes)
        return "an Add whose deltas do not fit its keys";
    if (!subject_ok(message, model != NULL))
        return "a request for what cannot be asked";
    if (model != NULL && !model_request_ok(model, request))
        return "a request of no worker of the task";
    /* bad deltas are counted by worker: an invented one must not get a count */
    if (model == NULL && request->worker != BAD_GRADIENTS_NO_WORKER)
        return "a request of a worker between tasks";
    return find_key_fault(shard, request);
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
        answer(server, message, CALL_NO_MEMORY);
        server->starved = true;
        return false;
    }
    return true;
}

static Binding *find_binding(Server *server, uint32_t epoch, uint32_t table)
{
    for (guint i = 0; i < server->bindings->len; i++) {
        Binding *binding = &g_array_index(server->bindings, Binding, i);

        if (binding->epoch == epoch && binding->table == table)
            return binding;
    }
    return NULL;
}

/* The memory for the rows of an answer is taken when they are read, not while the Get is parked. */
static bool make_room(RubatoRequest *request, size_t row_bytes)
{
    return post_office_make_room(message_of_request(request), row_bytes);
}

/* ---- without memory ---- */

/* What the error of a task takes (text, a message to the scheduler) comes out of this. */
#define RESERVE_BYTES ((size_t)1 << 20)

static char *describe_need(const Server *server, const Binding *binding)
{
    uint64_t n_rows, n_bytes;

    shard_size(binding->shard, &n_rows, &n_bytes);
    return g_strdup_printf("table %s: server %u (node %u) has no memory for what a request needs; "
                           "it holds %" G_GUINT64_FORMAT " rows in %" G_GUINT64_FORMAT
                           " bytes. Use more servers, or nodes with more memory",
                           binding->table_name, server->number,
                           server->office->node_ids[server->office->self], n_rows, n_bytes);
}

/* Fails the task, and takes up memory for the next time. What was there stays. */
static void starve(Server *server, const Binding *binding)
{
    server->starved = false;
    g_clear_pointer(&server->reserve, g_free);

    g_autofree char *text = describe_need(server, binding);
    if (server->fail_task != NULL)
        server->fail_task(server->user, binding->epoch, text);
    server->reserve = g_try_malloc(RESERVE_BYTES);
}

/* Sends back what the model has answered. Where memory was short, some of it may be no answer. */
static void empty_outbox(Server *server, RubatoModel *model)
{
    const CallStatus status = server->starved ? CALL_NO_MEMORY : CALL_OK;
    const uint64_t min_clock = rubato_model_min_clock(model);
    RubatoRequest *request = model_take_answered(model), *next;

    for (; request != NULL; request = next) {
        next = request->next;
        message_of_request(request)->min_clock = min_clock;
        answer(server, message_of_request(request), status);
    }
}

static void handle_for_task(Server *server, Message *message)
{
    Binding *binding = find_binding(server, message->epoch, message->table);
    const bool from_here = message->node == server->office->self;

    if (binding == NULL) {
        answer(server, message, CALL_CANCELLED);
        return;
    }
    if (!from_here && message->kind != MESSAGE_CLOCK &&
        !check_remote(server, binding->shard, binding->model, message)) {
        if (server->starved)
            starve(server, binding);
        return;
    }
    switch (message->kind) {
    case MESSAGE_GET:
        if (message->node_clock > 0)
            model_clock(binding->model, message->node, message->node_clock);
        model_get(binding->model, &message->request);
        break;
    case MESSAGE_ADD:
        model_add(binding->model, &message->request);
        break;
    case MESSAGE_ANNOUNCE:
        model_announce(binding->model, &message->request);
        break;
    case MESSAGE_CLOCK:
        model_clock(binding->model, message->request.worker, message->request.clock);
        answer(server, message, CALL_OK);
        break;
    default:
        refuse(server, message, "a message that no server takes");
        return;
    }
    empty_outbox(server, binding->model);
    if (G_UNLIKELY(server->starved))
        starve(server, binding);
    if (!message->is_answered)
        post_office_park(message);
}

/* The answer to a Get of a list tells how long that is, for there are no clocks. */
static bool read_past_models(RubatoShard *shard, Message *message)
{
    const RubatoSubject subject = message->request.subject;

    if (message->request.values == NULL && message->request.keys.n > 0 &&
        !make_room(&message->request, shard_subject_bytes(shard, subject)))
        return false;
    shard_read(shard, &message->request);
    if (subject == RUBATO_SUBJECT_KEYS || subject == RUBATO_SUBJECT_BAD_GRADIENTS)
        message->min_clock = shard_n_listed(shard, subject);
    return true;
}

static void handle_past_models(Server *server, Message *message)
{
    RubatoShard *shard = message->table < server->shards->len
                             ? g_ptr_array_index(server->shards, message->table)
                             : NULL;

    if (shard == NULL) {
        refuse(server, message, "a request for a table that is not here");
        return;
    }
    if (message->node != server->office->self && !check_remote(server, shard, NULL, message)) {
        server->starved = false;
        return;
    }
    switch (message->kind) {
    case MESSAGE_GET:
        if (!read_past_models(shard, message))
            server->starved = true;
        break;
    case MESSAGE_ADD:
        shard_write(shard, &message->request);
        break;
    default:
        refuse(server, message, "a message that belongs to a task, without one");
        return;
    }
    answer(server, message, server->starved ? CALL_NO_MEMORY : CALL_OK);
    server->starved = false;
}

static void handle(Actor *actor, Message *message)
{
    Server *server = (Server *)actor;

    message->min_clock = UINT64_MAX;
    if (message->kind == MESSAGE_INVOKE) {
        message->invoke(message, server);
        answer(server, message, CALL_OK);
    } else if (message->kind == MESSAGE_FENCE) {
        answer(server, message, CALL_OK);
    } else if (message->epoch != 0) {
        handle_for_task(server, message);
    } else {
        handle_past_models(server, message);
    }
}

/* Replies to other nodes were queued: they go out together. */
static void settled(Actor *actor)
{
    post_office_flush(((Server *)actor)->office);
}

/* In values: what a clock or an announcement may release. The rest is as long as its message
 * says. */
static size_t find_work(Actor *actor, const Message *message)
{
    const Binding *binding;

    if (message->kind != MESSAGE_CLOCK && message->kind != MESSAGE_ANNOUNCE)
        return 0;
    binding = find_binding((Server *)actor, message->epoch, message->table);
    return binding == NULL ? 0 : model_n_held(binding->model) * shard_n_values(binding->shard);
}

void server_init(Server *server, uint32_t number, PostOffice *office,
                 void (*fail_task)(void *user, uint32_t epoch, const char *text), void *user)
{
    actor_init(&server->actor, handle, settled);
    server->actor.find_work = find_work;
    server->number = number;
    server->office = office;
    server->shards = g_ptr_array_new();
    server->bindings = g_array_new(FALSE, FALSE, sizeof(Binding));
    server->n_refused = 0;
    server->fail_task = fail_task;
    server->user = user;
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
    for (guint i = 0; i < server->shards->len; i++)
        shard_free(g_ptr_array_index(server->shards, i));
    g_ptr_array_unref(server->shards);
    g_array_unref(server->bindings);
    g_free(server->reserve);
}

/* ---- functions as the owner ---- */

typedef struct {
    Message message; /* first: the invoked message finds it */
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

void server_add_shard(Server *server, uint32_t table, RubatoShard *shard)
{
    if (server->shards->len <= table)
        g_ptr_array_set_size(server->shards, (gint)table + 1);
    g_ptr_array_index(server->shards, table) = shard;
    shard_set_alarm(shard, &server->starved);
}

void server_drop_shard(Server *server, uint32_t table)
{
    if (table >= server->shards->len)
        return;
    shard_free(g_ptr_array_index(server->shards, table));
    g_ptr_array_index(server->shards, table) = NULL;
}

bool server_begin_task(Server *server, uint32_t epoch, uint32_t table,
                       const RubatoModelSetup *setup, uint32_t n_nodes, const uint32_t *workers_of,
                       GError **error)
{
    Binding binding = { .epoch = epoch,
                        .table = table,
                        .table_name = setup->spec->name,
                        .shard = g_ptr_array_index(server->shards, table) };

    binding.model = model_new(setup, binding.shard, n_nodes, error);
    if (binding.model == NULL)
        return false;
    model_set_outbox(binding.model, &server->actor.outbox);
    binding.model->make_room = make_room;
    if (!model_traits(setup->spec)->per_worker_clocks)
        for (uint32_t node = 0; node < n_nodes; node++)
            if (workers_of[node] == 0)
                model_clock(binding.model, node, RUBATO_CLOCK_RETIRED);
    g_array_append_val(server->bindings, binding);
    return true;
}

void server_end_task(Server *server, uint32_t epoch)
{
    for (guint i = server->bindings->len; i-- > 0;) {
        Binding binding = g_array_index(server->bindings, Binding, i);
        RubatoRequest *request, *next;

        if (binding.epoch != epoch)
            continue;
        g_array_remove_index_fast(server->bindings, i);
        for (request = model_free(binding.model); request != NULL; request = next) {
            next = request->next;
            answer(server, message_of_request(request), CALL_CANCELLED);
        }
    }
}
