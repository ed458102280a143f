/* The shards and models that a server holds, and what happens without memory.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_inputs.h"
#include "engine/server/replicas/server_replicas.h"
#include "engine/server/server_parts.h"
#include "engine/server/server_private.h"

#include <rubato/error.h>
#include <string.h>

/* The memory for a task's error (its text, a message to the scheduler) comes from this reserve. */
#define RESERVE_BYTES ((size_t)1 << 20)

/* ---- without memory ---- */

void server_fill_reserve(Server *server)
{
    server->reserve = g_try_malloc(RESERVE_BYTES);
}

static char *describe_need(const Server *server, const Binding *binding)
{
    RubatoTableStats sum = { 0 };

    server_sum_table(server, binding->table, &sum);
    return g_strdup_printf("table %s: server %u (node %u) has no memory for what a request needs; "
                           "it holds %" G_GUINT64_FORMAT " rows in %" G_GUINT64_FORMAT
                           " bytes. Use more servers, or nodes with more memory",
                           binding->table_name, server->number,
                           server->office->node_ids[server->office->self], sum.n_rows, sum.n_bytes);
}

/* Fails the task, then allocates the reserve again. The rows that were there stay. */
void server_starve(Server *server, const Binding *binding)
{
    server->starved = false;
    g_clear_pointer(&server->reserve, g_free);

    g_autofree char *complaint = g_steal_pointer(&server->complaint);
    g_autofree char *text = complaint == NULL ? describe_need(server, binding) : NULL;

    if (server->fail_task != NULL)
        server->fail_task(server->user, binding->epoch,
                          complaint == NULL ? RUBATO_ERROR_MEMORY : RUBATO_ERROR_HANDLER,
                          complaint == NULL ? text : complaint);
    server_fill_reserve(server);
}

void server_overfill(Server *server, const Binding *binding, const Message *message)
{
    g_autofree char *text = g_strdup_printf(
        "table %s: server %u (node %u) keeps no more Gets of node %u that wait for a clock: their "
        "keys, and the rows that they will need, take more memory than is kept for one node. Ask "
        "for less at once, or use more servers",
        binding->table_name, server->number, server->office->node_ids[server->office->self],
        server->office->node_ids[message->node]);

    if (server->fail_task != NULL)
        server->fail_task(server->user, binding->epoch, RUBATO_ERROR_MEMORY, text);
}

/* ---- tables ---- */

void server_add_table(Server *server, uint32_t table, uint32_t n_parts)
{
    ServerTable *added = g_malloc0(sizeof *added + n_parts * sizeof(added->parts[0]));

    added->n_parts = n_parts;
    if (server->tables->len <= table)
        g_ptr_array_set_size(server->tables, (gint)table + 1);
    g_ptr_array_index(server->tables, table) = added;
}

/* ---- where shards are ---- */

static RubatoShard *find_shard(void *server, const char *table, uint32_t part, bool *exists)
{
    const GPtrArray *tables = ((Server *)server)->tables;

    for (uint32_t i = 0; i < tables->len; i++) {
        const ServerTable *found = server_find_table(server, i);

        for (uint32_t j = 0; found != NULL && j < found->n_parts; j++) {
            const RubatoShard *shard = found->parts[j].shard;

            if (shard == NULL)
                continue;
            if (strcmp(shard_spec(shard)->name, table) != 0)
                break; /* its other parts have the same name */
            *exists = true;
            return part < found->n_parts ? found->parts[part].shard : NULL;
        }
    }
    return NULL;
}

/* Logs a worker's first delta that is no number, unless another shard of this node has done so. */
static void say_no_number(void *user, uint32_t table, const char *name, uint32_t worker)
{
    const Server *server = user;
    g_autofree char *who = worker == BAD_GRADIENTS_NO_WORKER ? g_strdup("the engine")
                                                             : g_strdup_printf("worker %u", worker);

    if (server->no_numbers != NULL && no_numbers_are_first(server->no_numbers, table, worker))
        g_warning("table %s: %s has added a value that is no number, or infinite; training that "
                  "diverges does so: take smaller steps or scale the data "
                  "(rubato_engine_bad_gradients counts such values)",
                  name, who);
}

static void free_stream(gpointer stream)
{
    history_stream_free(stream);
}

static HistoryStream *find_stream(void *user, uint32_t table, const RubatoTableSpec *spec)
{
    Server *const server = user;
    const gpointer id = GUINT_TO_POINTER(table);
    HistoryStream *stream;

    if (server->streams == NULL)
        server->streams = g_hash_table_new_full(NULL, NULL, NULL, free_stream);
    stream = g_hash_table_lookup(server->streams, id);
    if (stream != NULL)
        return stream;
    stream =
        history_stream_new(server->history, &(HistoryIdentity){ .rank = HISTORY_SERVER,
                                                                .table = table,
                                                                .dtype = spec->dtype,
                                                                .width = MAX(spec->width, 1) });
    g_hash_table_insert(server->streams, id, stream);
    return stream;
}

static ShardPlace place_of(Server *server, uint32_t table, uint32_t part)
{
    const PostOffice *office = server->office;

    return (ShardPlace){ .table = table,
                         .part = part,
                         .node = office->node_ids[office->self],
                         .server = server,
                         .find_shard = find_shard,
                         .running = &office->servers[server->number].handler,
                         .find_stream = server->history == NULL ? NULL : find_stream,
                         .node_ids = office->node_ids,
                         .complaint = &server->complaint };
}

void server_place_shard(Server *server, RubatoShard *shard, uint32_t table, uint32_t part)
{
    ShardPlace place = place_of(server, table, part);

    place.say_no_number = say_no_number;
    shard_set_place(shard, &place);
}

void server_add_shard(Server *server, uint32_t table, uint32_t part, RubatoShard *shard)
{
    server_find_table(server, table)->parts[part].shard = shard;
    shard_set_alarm(shard, &server->starved);
    server_place_shard(server, shard, table, part);
}

void server_add_feed(Server *server, uint32_t table, uint32_t part, const uint32_t *replicas,
                     uint32_t n)
{
    server_find_table(server, table)->parts[part].fed =
        fed_part_new(server, table, part, replicas, n);
    shard_set_role(server_find_shard(server, table, part), SHARD_LEADS);
}

void server_add_replica(Server *server, uint32_t table, uint32_t part, uint32_t primary,
                        RubatoShard *shard)
{
    const ShardPlace place = place_of(server, table, part);

    server_find_table(server, table)->parts[part].replica =
        replica_new(server, table, part, primary, shard);
    shard_set_place(shard, &place); /* its primary says what is no number */
    shard_set_role(shard, SHARD_FOLLOWS);
    shard_set_alarm(shard, &server->starved);
}

RubatoShard *server_find_replica(const Server *server, uint32_t table, uint32_t part,
                                 uint64_t *position)
{
    const ServerTable *found = server_find_table(server, table);
    const Replica *replica =
        found != NULL && part < found->n_parts ? found->parts[part].replica : NULL;

    if (replica == NULL)
        return NULL;
    *position = replica->position;
    return replica->shard;
}

bool server_has_part(const Server *server, uint32_t table, uint32_t part)
{
    const ServerTable *const found = server_find_table(server, table);

    return found != NULL && part < found->n_parts &&
           (found->parts[part].shard != NULL || found->parts[part].replica != NULL);
}

void server_drop_table(Server *server, uint32_t table)
{
    ServerTable *dropped = server_find_table(server, table);

    if (dropped == NULL)
        return;
    for (uint32_t part = 0; part < dropped->n_parts; part++) {
        shard_free(dropped->parts[part].shard);
        fed_part_free(dropped->parts[part].fed);
        replica_free(dropped->parts[part].replica);
    }
    g_free(dropped);
    if (server->streams != NULL)
        g_hash_table_remove(server->streams, GUINT_TO_POINTER(table));
    g_ptr_array_index(server->tables, table) = NULL;
}

RubatoShard *server_find_shard(const Server *server, uint32_t table, uint32_t part)
{
    const ServerTable *found = server_find_table(server, table);

    return found != NULL && part < found->n_parts ? found->parts[part].shard : NULL;
}

void server_sum_table(const Server *server, uint32_t table, RubatoTableStats *sum)
{
    const ServerTable *summed = server_find_table(server, table);

    for (uint32_t part = 0; part < summed->n_parts; part++) {
        const RubatoShard *shard = summed->parts[part].shard;
        uint64_t n_rows, n_bytes;

        if (shard == NULL)
            continue;
        shard_size(shard, &n_rows, &n_bytes);
        sum->n_rows += n_rows;
        sum->n_bytes += n_bytes;
        sum->n_evicted += shard_uses(shard).n_evicted;
        sum->n_expired += shard_uses(shard).n_expired;
        sum->n_admitted += shard_admissions(shard).n_admitted;
        sum->n_refused += shard_admissions(shard).n_refused;
    }
}

void server_add_uses(const Server *server, uint32_t table, PartUse *uses)
{
    const ServerTable *const summed = server_find_table(server, table);

    for (uint32_t part = 0; summed != NULL && part < summed->n_parts; part++) {
        const PartUse *const use = &summed->parts[part].use;
        uint64_t n_rows, n_bytes = 0;

        if (summed->parts[part].shard != NULL)
            shard_size(summed->parts[part].shard, &n_rows, &n_bytes);
        uses[part].n_bytes += n_bytes;
        uses[part].n_requests += use->n_requests;
        uses[part].n_network_bytes += use->n_network_bytes;
    }
}

/* ---- models ---- */

/* The memory for an answer's rows is allocated when they are read, not while the Get is parked. */
static bool make_room(RubatoRequest *request, size_t n_bytes)
{
    return post_office_make_room(message_of_request(request), n_bytes);
}

/* The answer leaves before the server's owner handles anything else: see
 * get_for_other_node. */
static bool lend(RubatoRequest *request, const void *rows, size_t n_bytes)
{
    return post_office_lend(message_of_request(request), rows, n_bytes);
}

void server_end_model(Server *server, RubatoModel *model)
{
    RubatoRequest *request = model_free(model), *next;

    for (; request != NULL; request = next) {
        next = request->next;
        server_answer(server, message_of_request(request), CALL_CANCELLED);
    }
}

/* Adds of clocks that have passed are not lost. But a Get that waits until now is cancelled, also
 * if the clock has come that it waits for: its task has been. */
static void end_caught_up(Server *server, const Binding *binding, uint32_t part)
{
    RubatoModel *const model = binding->parts[part].model;
    RubatoRequest *request, *next;

    server_catch_up(server, binding, part);
    for (request = model == NULL ? NULL : model_take_answered(model); request != NULL;
         request = next) {
        next = request->next;
        server_answer(server, message_of_request(request), CALL_CANCELLED);
    }
    if (G_UNLIKELY(server->starved))
        server_starve(server, binding);
    server_end_model(server, model);
}

static void clear_binding(Server *server, Binding *binding)
{
    for (uint32_t i = 0; i < binding->n_here; i++) {
        FedPart *const fed = binding->parts[binding->here[i]].fed;

        if (fed != NULL)
            server_feed_end(server, fed, binding->epoch);
        end_caught_up(server, binding, binding->here[i]);
        input_sequences_free(binding->parts[binding->here[i]].had);
    }
    if (binding->arriving != NULL)
        server_end_model(server, binding->arriving);
    g_free(binding->here);
    g_free(binding->parts);
}

RubatoModel *server_begin_model(Server *server, const Binding *binding, RubatoShard *shard,
                                GError **error)
{
    RubatoModelSetup setup = binding->setup;
    RubatoModel *model;

    shard_range(shard, &setup.first_key, &setup.n_keys);
    model = model_new(&setup, shard, binding->n_nodes, error);
    if (model == NULL)
        return NULL;
    model_set_outbox(model, &server->actor.outbox);
    model->make_room = make_room;
    model->lend = lend;
    if (!model_traits(setup.spec)->per_worker_clocks)
        for (uint32_t node = 0; node < binding->n_nodes; node++)
            if (binding->workers_of[node] == 0)
                model_clock(model, node, RUBATO_CLOCK_RETIRED);
    return model;
}

/* What the part has had of each worker of the task. RUBATO_ERROR_MEMORY. (transfer full) */
static InputSequences *begin_sequences(const Binding *binding, GError **error)
{
    InputSequences *const had = input_sequences_new(binding->setup.n_workers);

    if (had == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for what its parts know of the task's workers",
                    binding->table_name);
    return had;
}

static bool begin_replica(Server *server, const Binding *binding, Replica *replica, GError **error)
{
    if (replica_find_model(replica, binding->epoch).model != NULL)
        return true; /* a new primary has told the task sooner */

    InputSequences *const had = begin_sequences(binding, error);
    RubatoModel *const model =
        had == NULL ? NULL : server_begin_model(server, binding, replica->shard, error);

    if (model == NULL) {
        input_sequences_free(had);
        return false;
    }
    replica_begin_task(replica, &(ReplicaModel){ binding->epoch, model, had });
    return true;
}

/* Whether a replica sees tasks begin by itself; to others its primary tells them. */
static bool sees_tasks(const Replica *replica)
{
    return replica != NULL && replica->made == 0;
}

/* The models of the replicas that are here. False: there is no memory for one. */
static bool begin_replicas(Server *server, const Binding *binding, const ServerTable *table,
                           GError **error)
{
    for (uint32_t part = 0; part < table->n_parts; part++)
        if (sees_tasks(table->parts[part].replica) &&
            !begin_replica(server, binding, table->parts[part].replica, error)) {
            for (uint32_t i = 0; i < part; i++)
                if (sees_tasks(table->parts[i].replica))
                    replica_end_task(table->parts[i].replica, binding->epoch);
            return false;
        }
    return true;
}

/* What a part with replicas needs for a task beside its model. False: there is no memory. */
static bool begin_fed(Server *server, const Binding *binding, BoundPart *part, GError **error)
{
    part->had = begin_sequences(binding, error);
    if (part->had == NULL)
        return false;
    if (server_feed_task(server, part->fed, binding))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: no memory to tell replicas of its parts of the task",
                binding->table_name);
    return false;
}

/* The model of a part that is here. False: there is no memory for it. */
static bool begin_part(Server *server, const Binding *binding, BoundPart *part, GError **error)
{
    part->model = server_begin_model(server, binding, part->shard, error);
    if (part->model == NULL || part->fed == NULL)
        return part->model != NULL;
    if (begin_fed(server, binding, part, error))
        return true;
    g_clear_pointer(&part->had, input_sequences_free);
    server_end_model(server, g_steal_pointer(&part->model));
    server_feed_end(server, part->fed, binding->epoch); /* now there is memory to tell the end */
    return false;
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
                        .parts = g_new0(BoundPart, used->n_parts),
                        .setup = *setup,
                        .n_nodes = n_nodes,
                        .workers_of = workers_of };

    for (uint32_t part = 0; part < used->n_parts; part++) {
        RubatoShard *shard = used->parts[part].shard;

        if (shard == NULL)
            continue;
        binding.parts[part] = (BoundPart){ .shard = shard, .fed = used->parts[part].fed };
        if (!begin_part(server, &binding, &binding.parts[part], error)) {
            clear_binding(server, &binding);
            return false;
        }
        binding.here[binding.n_here++] = part;
    }
    if (!begin_replicas(server, &binding, used, error)) {
        clear_binding(server, &binding);
        return false;
    }
    g_array_append_val(server->bindings, binding);
    return true;
}

void server_defer_adds(Server *server, uint32_t epoch, uint32_t table, DeferredAdds *adds)
{
    server_find_binding(server, epoch, table)->adds = adds;
}

void server_keep_lost_workers(Server *server, uint32_t epoch, uint32_t table)
{
    server_find_binding(server, epoch, table)->replaces = true;
}

/* In parts that have left (server_handover.c) workers of the task may wait, and the step that goes
 * on with these may never come to this node. */
static void end_given(Server *server, uint32_t epoch)
{
    for (guint i = 0; server->given != NULL && i < server->given->len; i++) {
        GArray *const models = ((MovingPart *)g_ptr_array_index(server->given, i))->models;

        for (guint at = models->len; at-- > 0;) {
            MovingModel one = g_array_index(models, MovingModel, at);

            if (one.epoch != epoch)
                continue;
            g_array_remove_index_fast(models, at);
            server_end_model(server, one.model);
            moving_model_clear(&one);
        }
    }
}

void server_end_task(Server *server, uint32_t epoch)
{
    server_drop_calls(server, epoch);
    end_given(server, epoch);
    for (guint i = server->bindings->len; i-- > 0;) {
        Binding binding = g_array_index(server->bindings, Binding, i);

        if (binding.epoch != epoch)
            continue;
        g_array_remove_index_fast(server->bindings, i);
        clear_binding(server, &binding);
    }
}
