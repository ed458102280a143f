/* A server from inside: what its files share.
 *
 *   server.c         its life
 *   server_handle.c  what happens to a message
 *   server_checks.c  what is checked of messages of other nodes
 *   server_handlers.c  calls of handlers: their bytes, and where they run
 *   server_joint.c  a Get or an Add of all parts of a table at once
 *   server_deferred.c  clocks, and the Adds that workers keep until one comes
 *   server_parts.c   parts that move
 *   moving_part.c    the state of a part, sent to another node
 *   server_feed.c    a part with replicas, on its primary
 *   server_inputs.c  what that passes on
 *   server_replicas.c  a replica
 *   server_calls.c   calls of handlers that write, on a part with replicas
 *   server_promote.c  a replica becomes the primary, and what others do then
 *   server_handover.c  a primary gives its part to one of its replicas
 *   server_copies.c  a primary makes replicas in the place of lost ones
 *   copy.c           what it sends for that
 *   server_copied.c  a replica that is made
 *   part_state.c     what a part has, as requests
 *   replica_feed.c   what the two know of each other
 *   server_tables.c  its shards, the models of tasks, answers
 *   server_invoke.c  functions as the owner
 *   sweep/           rows that expire
 *
 * server.c calls server_handle.c, which calls the next two; all of them call server_tables.c. No
 * file calls one above it.
 *
 * Threads: the server's owner. */
#ifndef RUBATO_ENGINE_SERVER_SERVER_PRIVATE_H
#define RUBATO_ENGINE_SERVER_SERVER_PRIVATE_H

#include "engine/server/server.h"
#include "models/model.h"
#include "models/shard/shard.h"
#include "models/shard/shard_roles.h"

typedef struct FedPart FedPart; /* server_feed.h */
typedef struct Replica Replica; /* server_replicas.h */

/* A table's parts on this server. */
typedef struct {
    uint32_t n_parts;
    struct {
        RubatoShard *shard; /* NULL: it is not here */
        FedPart *fed;       /* its replicas, if it is here and has some; else NULL */
        Replica *replica;   /* a replica of it is here; else NULL */
        PartUse use;        /* of its primary, while it was here; n_bytes stays 0 */
    } parts[];
} ServerTable;

/* A part that is here, in a task. */
typedef struct {
    RubatoShard *shard;
    RubatoModel *model;
    FedPart *fed;               /* NULL: it has no replicas */
    struct InputSequences *had; /* if it has some: of the task, by worker */
} BoundPart;

/* A task's models over one table. */
typedef struct {
    uint32_t epoch;
    uint32_t table;
    const char *table_name;
    uint32_t n_parts;
    uint32_t n_here;
    uint32_t *here;     /* the parts that are here, ascending */
    BoundPart *parts;   /* by part; model NULL: the part is not here */
    DeferredAdds *adds; /* that workers of this process keep until their clock has passed; NULL:
                         * they send all */

    /* for models that begin later */
    RubatoModelSetup setup;
    uint32_t n_nodes;
    const uint32_t *workers_of;
    bool replaces;         /* lost workers are replaced: no part retires them */
    RubatoModel *arriving; /* of the server's arrival; NULL: none */
} Binding;

/* ---- used for each message ---- */

static inline void server_answer(Server *server, Message *message, CallStatus status)
{
    message->status = status;
    message->is_answered = true;
    actor_answer(&server->actor, message);
}

/* NULL if there is none. */
static inline ServerTable *server_find_table(const Server *server, uint32_t table)
{
    return table < server->tables->len ? g_ptr_array_index(server->tables, table) : NULL;
}

static inline Binding *server_find_binding(Server *server, uint32_t epoch, uint32_t table)
{
    for (guint i = 0; i < server->bindings->len; i++) {
        Binding *binding = &g_array_index(server->bindings, Binding, i);

        if (binding->epoch == epoch && binding->table == table)
            return binding;
    }
    return NULL;
}

/* Sends back the requests that the model has answered. If memory was short, all get CALL_NO_MEMORY,
 * because some may hold no answer. */
static inline void server_empty_outbox(Server *server, RubatoModel *model)
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

/* ---- server_handle.c: what the actor calls ---- */

void server_handle(Actor *actor, Message *message);

/* The same, and counts the message as a use of its part. */
void server_handle_measured(Actor *actor, Message *message);

/* Replies to other nodes were queued: sends them together. */
void server_settled(Actor *actor);

/* Estimates, in values, the requests that a clock or an announcement may release. 0 for other
 * messages: the message itself tells its size. */
size_t server_find_work(Actor *actor, const Message *message);

/* ---- server_checks.c ---- */

/* Counts a message that makes no sense, logs what is wrong with it, and answers it. */
void server_refuse(Server *server, Message *message, const char *why);

/* Whether a message brings something of the part that the server expects. */
bool server_is_arriving(const Server *server, const Message *message);

/* Fails the task if a kept request of it has failed on a part with replicas. Its primary does so,
 * and its replicas too: the primary may be lost before it has said it. */
void server_tell_complaint(Server *server, uint32_t epoch);

/* Whether a request of another node can be handled. Otherwise it has been answered; for lack of
 * memory, server->starved is set. model NULL: between tasks. */
bool server_check_remote(Server *server, const RubatoShard *shard, const RubatoModel *model,
                         Message *message);

/* ---- server_handlers.c ---- */

/* Makes a MESSAGE_HANDLER ready to run on a shard. Returns the message, which may have moved in
 * memory. NULL: it has been answered, because more of its call is to come or something is wrong
 * with it. */
Message *server_take_call(Server *server, RubatoShard *shard, Message *message);

/* Drops the bytes of a task's incomplete calls. */
#define SERVER_ALL_EPOCHS UINT32_MAX
void server_drop_calls(Server *server, uint32_t epoch);

/* ---- server_deferred.c ---- */

/* A request has brought a clock of its node to a part: tells it to the model, and gives it the
 * deferred Adds that it makes due. 0: it has brought none. What the model answers is in its
 * outbox. */
void server_bring_clock(const Binding *binding, uint32_t part, const Message *message);

/* The same without a message, up to the Adds of that worker (UINT32_MAX: of all). binding->adds is
 * there. */
void server_bring_adds(const Binding *binding, uint32_t part, uint32_t node, uint64_t clock,
                       uint32_t last_worker);

/* The same of a MESSAGE_CLOCK. */
void server_take_clock(const Binding *binding, uint32_t part, const MessageClock *clock);

/* Whether due Adds may come to the model behind the clock that makes them due. */
bool server_adds_may_come_later(const RubatoModel *model);

/* A worker's Add that it has sent comes to a part, behind those that it has deferred: gives the
 * model these before. */
void server_take_earlier(const Binding *binding, const Message *message);

/* Brings a part's rows up to the clock of the node's workers, without a message: see the design
 * note. The caller empties the outbox, and looks whether the server has starved. */
void server_catch_up(Server *server, const Binding *binding, uint32_t part);

/* ---- server_tables.c ---- */

/* Tells a shard where it is: on this server, as that part of the table. */
void server_place_shard(Server *server, RubatoShard *shard, uint32_t table, uint32_t part);

/* Ends a model: requests parked in it are answered as cancelled. */
void server_end_model(Server *server, RubatoModel *model);

/* Allocates the memory that server_starve needs. */
void server_fill_reserve(Server *server);

/* Fails the task, because one of its requests failed for lack of memory. Then allocates the reserve
 * again. The rows that were there stay. */
void server_starve(Server *server, const Binding *binding);

/* Fails the task, because it has more Gets parked for the node of the message than a server keeps
 * for one. */
void server_overfill(Server *server, const Binding *binding, const Message *message);

/* Creates the model of a task over a shard. RUBATO_ERROR_MEMORY. (transfer full) */
RubatoModel *server_begin_model(Server *server, const Binding *binding, RubatoShard *shard,
                                GError **error);

/* ---- server_parts.c ---- */

/* The part is here from now on, in the binding's task. */
void server_bind_part(Binding *binding, uint32_t part, const BoundPart *bound);

/* It is not here any more. */
void server_unbind_part(Binding *binding, uint32_t part);

/* Frees what has come of the expected part, if a part is expected. */
void server_drop_arrival(Server *server);

#endif
