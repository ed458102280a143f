/* A replica becomes the primary of its part, because the node of its primary is lost
 * (docs/replication.md).
 *
 * The shard and the models stay as they are: they are what those of the primary were, as of the
 * replica's position. From now on they are bound to tasks like those of any part. What the primary
 * was still to be told, workers send again.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_promote.h"

#include <rubato/error.h>

#include "engine/server/replicas/server_copies.h"
#include "engine/server/replicas/server_feed.h"
#include "engine/server/replicas/server_handover.h"
#include "engine/server/replicas/server_inputs.h"
#include "engine/server/replicas/server_replicas.h"

void server_leave_node(Server *server, uint32_t node)
{
    server_forget_copies(server);
    for (guint i = 0; i < server->tables->len; i++) {
        const ServerTable *table = server_find_table(server, i);

        for (uint32_t part = 0; table != NULL && part < table->n_parts; part++) {
            Replica *const replica = table->parts[part].replica;

            if (table->parts[part].fed != NULL)
                server_drop_replicas_of(server, table->parts[part].fed, node);
            if (replica == NULL || server->office->servers[replica->primary].node != node)
                continue;
            replica->is_deaf = true;
            if (replica->shard != NULL) /* the input that evicts rows does not come */
                shard_end_told_input(replica->shard);
        }
    }
    server_check_settled(server);
}

typedef struct {
    Message message; /* first: the handler finds it by the message */
    uint32_t node;
} Leave;

static void leave(Message *message, void *server)
{
    server_leave_node(server, ((const Leave *)message)->node);
}

static void free_leave(Message *message)
{
    g_free(message);
}

void servers_post_leave(Server *servers, uint32_t n, uint32_t node)
{
    for (uint32_t i = 0; i < n; i++) {
        Leave *const message = g_new(Leave, 1);

        *message = (Leave){
            .message = { .kind = MESSAGE_INVOKE, .invoke = leave, .end = free_leave },
            .node = node,
        };
        actor_post(&servers[i].actor, &message->message);
    }
}

void server_list_parts(const Server *server, uint32_t number, GArray *parts)
{
    const ServerTable *table = server_find_table(server, number);

    for (uint32_t part = 0; table != NULL && part < table->n_parts; part++) {
        const Replica *const replica = table->parts[part].replica;
        const HeldPart held = { .table = number,
                                .part = part,
                                .is_primary = replica == NULL,
                                .position = replica == NULL ? 0 : replica->position };

        if (replica == NULL ? table->parts[part].shard != NULL : replica->stage == REPLICA_WHOLE)
            g_array_append_val(parts, held);
    }
}

/* A task that has ended here meanwhile ends for the part, and for its other replicas. */
static void bind_model(Server *server, FedPart *fed, RubatoShard *shard,
                       const ReplicaModel *of_task)
{
    Binding *const binding = server_find_binding(server, of_task->epoch, fed->table);

    if (binding == NULL) {
        server_feed_end(server, fed, of_task->epoch);
        server_end_model(server, of_task->model);
        input_sequences_free(of_task->had);
        return;
    }
    server_bind_part(
        binding, fed->part,
        &(BoundPart){ .shard = shard, .model = of_task->model, .fed = fed, .had = of_task->had });
}

/* A task that its primary told after the part's last input, or did not come to tell. */
static void bind_fresh(Server *server, FedPart *fed, RubatoShard *shard, Binding *binding)
{
    BoundPart bound = { .shard = shard, .fed = fed };

    bound.had = input_sequences_new(binding->setup.n_workers);
    if (bound.had != NULL)
        bound.model = server_begin_model(server, binding, shard, NULL);
    if (bound.model != NULL) {
        server_bind_part(binding, fed->part, &bound);
        return;
    }
    input_sequences_free(bound.had);
    if (server->fail_task != NULL)
        server->fail_task(server->user, binding->epoch, RUBATO_ERROR_MEMORY,
                          "no memory for what a task has on a part with another primary");
}

/* The primary before may have told a task to some of the replicas only. Each of them must know it
 * before the first input, which it would refuse. */
static void tell_tasks(Server *server, const FedPart *fed)
{
    for (guint i = 0; i < server->bindings->len; i++) {
        const Binding *const binding = &g_array_index(server->bindings, Binding, i);

        if (binding->table == fed->table && binding->parts[fed->part].model != NULL &&
            !server_feed_task(server, fed, binding))
            g_error("server %u: no memory to tell a task to replicas; the node ends here",
                    server->number);
    }
}

static void promote(Server *server, const PartPlace *place)
{
    ServerTable *const table = server_find_table(server, place->table);
    Replica *const replica = g_steal_pointer(&table->parts[place->part].replica);
    FedPart *const fed = fed_part_new(server, place->table, place->part, NULL, 0);

    fed->map = place->map;
    fed->feed.n_inputs = replica->position;
    input_sequences_free(fed->had);
    fed->had = g_steal_pointer(&replica->had);
    for (uint32_t i = 0; i < place->n_replicas; i++)
        replica_feed_add(&fed->feed, place->replicas[i], place->map, replica->position);
    table->parts[place->part].fed = fed;
    server_add_shard(server, place->table, place->part, replica->shard);
    shard_set_role(replica->shard, SHARD_LEADS);
    for (guint i = 0; i < replica->models->len; i++)
        bind_model(server, fed, replica->shard, &g_array_index(replica->models, ReplicaModel, i));
    for (guint i = 0; i < server->bindings->len && replica->made > 0; i++) {
        Binding *const binding = &g_array_index(server->bindings, Binding, i);

        if (binding->table == place->table && binding->parts[place->part].model == NULL)
            bind_fresh(server, fed, replica->shard, binding);
    }
    tell_tasks(server, fed);
    g_array_set_size(replica->models, 0);
    replica->shard = NULL;
    replica_free(replica);
}

/* A replica has another primary, and tells it what it has had of it already; or it is none any
 * more, because it has missed inputs that the new primary has had. */
static void follow(Server *server, const PartPlace *place)
{
    ServerTable *const table = server_find_table(server, place->table);
    Replica *const replica = table->parts[place->part].replica;

    for (uint32_t i = 0; i < place->n_replicas; i++)
        if (place->replicas[i] == server->number) {
            if (replica->primary != place->primary)
                replica->made = place->map;
            replica->primary = place->primary;
            replica->is_deaf = replica->had_last = false;
            server_tell_position(server, replica);
            return;
        }
    table->parts[place->part].replica = NULL;
    replica_free(replica);
}

void server_set_place(Server *server, const PartPlace *place)
{
    const ServerTable *table = server_find_table(server, place->table);

    if (table == NULL || place->part >= table->n_parts)
        return;
    if (table->parts[place->part].fed != NULL && place->primary == server->number)
        server_keep_part(server, place);
    else if (table->parts[place->part].fed != NULL)
        server_give_part(server, place);
    else if (table->parts[place->part].replica != NULL && place->primary == server->number)
        promote(server, place);
    else if (table->parts[place->part].replica != NULL)
        follow(server, place);
}

/* A task that began after the loss has no workers there. */
void server_lose_workers(Server *server, uint32_t node)
{
    for (guint i = 0; i < server->bindings->len; i++) {
        const Binding *const binding = &g_array_index(server->bindings, Binding, i);
        uint32_t first = 0;

        if (binding->replaces)
            continue;
        for (uint32_t before = 0; before < node; before++)
            first += binding->workers_of[before];
        for (uint32_t j = 0; j < binding->n_here && binding->workers_of[node] > 0; j++) {
            const BoundPart *const part = &binding->parts[binding->here[j]];

            if (part->fed == NULL)
                continue;
            server_feed_loss(server, part, binding->epoch, node, first, binding->workers_of[node]);
            server_empty_fed(server, part);
        }
    }
}
