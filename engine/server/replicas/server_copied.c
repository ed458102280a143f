/* A replica that is made: its image comes from its primary, and later inputs between slices of it
 * and behind it (server_copies.c).
 *
 * Until its image begins it takes in nothing. So what was under way to an earlier replica of the
 * part here, which was given up, does not count. The image of another map does not begin it.
 *
 * An input that comes between two slices is handled like any other, and its number counts. Of rows
 * that have not come yet it makes something that those rows replace, or nothing, where the primary
 * says which rows it makes (server_copies.c). The position is
 * told behind all of the image, because only then has the replica what the inputs stand for.
 *
 * Without memory for it, or if a piece of its image makes no sense, it is given up, and the primary
 * hears so at the end of the image.
 *
 * Thread: the server's owner. */
#include "engine/server/replicas/server_copied.h"

#include "engine/control/control.h"
#include "engine/server/replicas/server_answers.h"
#include "engine/server/replicas/server_calls.h"
#include "engine/server/replicas/server_replicas.h"
#include "engine/server/request_ops.h"

#include <string.h>

void server_expect_replica(Server *server, const PartPlace *place, RubatoShard *shard)
{
    ServerTable *const table = server_find_table(server, place->table);

    if (table == NULL || place->part >= table->n_parts || table->parts[place->part].shard != NULL ||
        table->parts[place->part].replica != NULL) {
        shard_free(shard);
        return;
    }
    server_add_replica(server, place->table, place->part, place->primary, shard);
    table->parts[place->part].replica->stage = REPLICA_EXPECTED;
    table->parts[place->part].replica->made = place->map;
}

static void drop_image(Replica *replica)
{
    replica->stage = REPLICA_GIVEN_UP;
    for (guint i = replica->models->len; i-- > 0;)
        replica_end_task(replica, g_array_index(replica->models, ReplicaModel, i).epoch);
    replica_drop_call(replica);
    g_clear_pointer(&replica->shard, shard_free);
}

/* Without one of its pieces an image is none. */
static void give_up(Server *server, Replica *replica)
{
    g_warning("server %u: %s a replica of part %u of table %s", server->number,
              server->starved ? "there is no memory for"
                              : "a piece that makes no sense has come for",
              replica->part, shard_spec(replica->shard)->name);
    server->starved = false;
    drop_image(replica);
}

/* Inputs that come before all rows have come make the rows of which it is told, and fail so. */
static void begin_image(Server *server, Replica *replica, uint64_t n_inputs)
{
    replica->stage = REPLICA_COMING;
    replica->position = n_inputs;
    if (!shard_tells_more(replica->shard) || shard_await_rows(replica->shard, true))
        return;
    server->starved = true;
    give_up(server, replica);
}

/* ---- tasks ---- */

/* False: it makes no sense. */
static bool begin_task(Server *server, Replica *replica, const Message *message)
{
    const uint32_t n_nodes = server->office->n_nodes, n_workers = message->request.worker;
    g_autofree uint32_t *workers_of = g_new0(uint32_t, n_nodes);
    const RubatoTableSpec *const spec = shard_spec(replica->shard);
    const Binding binding = { .epoch = message->epoch,
                              .table = replica->table,
                              .table_name = spec->name,
                              .setup = { .spec = spec,
                                         .n_workers = n_workers,
                                         .hash_seed = shard_hash_seed(replica->shard) },
                              .n_nodes = n_nodes,
                              .workers_of = workers_of };
    ReplicaModel of_task = { .epoch = message->epoch };

    if (message->epoch == 0 || n_workers == 0 || n_workers > CONTROL_MAX_WORKERS ||
        message->request.keys.n != n_nodes || !replica_has_words(message, sizeof *workers_of))
        return false;
    if (replica_find_model(replica, message->epoch).model != NULL)
        return true; /* of the primary before this one, or since its node began the task */
    memcpy(workers_of, message->request.input, n_nodes * sizeof *workers_of);
    of_task.had = input_sequences_new(n_workers);
    if (of_task.had != NULL)
        of_task.model = server_begin_model(server, &binding, replica->shard, NULL);
    if (of_task.model != NULL) {
        replica_begin_task(replica, &of_task);
        return true;
    }
    input_sequences_free(of_task.had);
    if (replica->stage != REPLICA_COMING)
        g_error("server %u: no memory for a task on a replica; the node ends here", server->number);
    server->starved = true;
    return true;
}

/* The last sequence numbers of senders. False: they make no sense. */
static bool set_had(Replica *replica, const Message *message)
{
    InputSequences *const had =
        message->epoch == 0 ? replica->had : replica_find_model(replica, message->epoch).had;
    const RubatoKeys *const keys = &message->request.keys;

    if (had == NULL || !replica_has_words(message, sizeof had->senders[0]) ||
        keys->first > had->n_senders || keys->n > had->n_senders - keys->first)
        return false;
    if (keys->n > 0)
        memcpy(&had->senders[keys->first], message->request.input,
               keys->n * sizeof had->senders[0]);
    return true;
}

/* A piece of a call that a model keeps, or of ragged rows. False: it makes no sense. */
static bool take_call(Server *server, Replica *replica, const Message *message)
{
    const ReplicaModel of_task = replica_find_model(replica, message->epoch);

    switch (replica_take_call_piece(replica, message)) {
    case FED_CALL_GOES_ON:
        return message->sequence == 0;
    case FED_CALL_NO_MEMORY:
        server->starved = true;
        return true;
    case FED_CALL_WHOLE:
        return of_task.model == NULL ? replica_assign_rows(replica, message)
                                     : replica_keep_call(replica, &of_task, message);
    case FED_CALL_NONSENSE:
        break;
    }
    return false;
}

/* ---- the image ---- */

/* Whether a request can be a piece of an image, in a task or not. What a call does is seen when it
 * is whole. */
static bool is_of_image(const RequestOps *ops, bool in_task)
{
    return ops != NULL &&
           (ops->is_input || ops->is_of_move || ops == request_ops[MESSAGE_HANDLER]) &&
           (in_task ? ops->in_task != NULL : ops->between_tasks != NULL);
}

/* False: it makes no sense, or has been answered. */
static bool apply_request(Server *server, Replica *replica, Message *message)
{
    RubatoModel *const model = replica_find_model(replica, message->epoch).model;
    const RequestOps *const ops =
        message->fed_kind < MESSAGE_N_KINDS ? request_ops[message->fed_kind] : NULL;
    RubatoRequest *const request = &message->request;

    if (!is_of_image(ops, message->epoch != 0) || (message->epoch != 0 && model == NULL)) {
        server_refuse(server, message, "a piece of a replica that makes no sense");
        return false;
    }
    message->kind = (MessageKind)message->fed_kind;
    if (!server_check_remote(server, replica->shard, model, message))
        return false;
    if (message->kind == MESSAGE_HANDLER) {
        if (take_call(server, replica, message))
            return true;
        server_refuse(server, message, "a piece of a call that makes no sense");
        return false;
    }
    if (model == NULL) {
        ops->between_tasks(replica->shard, request);
        return true;
    }
    ops->in_task(model, request);
    (void)model_take_answered(model); /* the request itself; there are no Gets */
    return true;
}

/* A request of the next input fails. False: it makes no sense. */
static bool expect_failure(const Replica *replica, const Message *message)
{
    const size_t n = message->request.keys.n;
    const char *const bytes = message->request.input;
    FedFailure failure;

    if (!replica_has_words(message, 1) || n < sizeof failure ||
        n > sizeof failure + SHARD_FAILURE_MOST_BYTES)
        return false;
    memcpy(&failure, bytes, sizeof failure);
    g_autofree char *some = g_strndup(bytes + sizeof failure, n - sizeof failure);
    g_autofree char *reason = g_utf8_make_valid(some, -1);

    return shard_expect_failure(replica->shard,
                                &(ShardFailure){ failure.write, failure.n_rows, reason });
}

/* What comes without a number, from the primary. */
static void take_piece(Server *server, Replica *replica, Message *message)
{
    const RubatoRequest *const request = &message->request;
    RubatoModel *const model = replica_find_model(replica, message->epoch).model;
    const bool is_coming = replica->stage == REPLICA_COMING;
    bool makes_sense = is_coming;

    if (message->fed_kind == FEED_TASK) {
        makes_sense = begin_task(server, replica, message);
    } else if (message->fed_kind == FEED_WHOLE) {
        makes_sense = replica->stage == REPLICA_FOLLOWS;
        replica->stage = makes_sense ? REPLICA_WHOLE : replica->stage;
        if (makes_sense)
            server_tell_primary(server, message, replica->primary, replica->made, POSITION_WHOLE);
    } else if (is_coming && message->fed_kind == FEED_SLICED) {
        server_tell_primary(server, message, replica->primary, replica->made, POSITION_SLICED);
    } else if (is_coming && message->fed_kind == FEED_MADE) {
        makes_sense = replica_has_words(message, sizeof(uint64_t)) &&
                      shard_expect_made(replica->shard, request->input, request->keys.n);
    } else if (is_coming && message->fed_kind == FEED_WORDS) {
        makes_sense = replica_has_words(message, sizeof(ShardWord)) &&
                      shard_set_admission_words(replica->shard, request->input, request->keys.n);
    } else if (is_coming && message->fed_kind == FEED_FAILS) {
        makes_sense = expect_failure(replica, message);
    } else if (is_coming && message->fed_kind == FEED_COPIED) {
        (void)shard_await_rows(replica->shard, false);
        replica->stage = REPLICA_FOLLOWS;
        server_tell_position(server, replica);
    } else if (is_coming && message->fed_kind == FEED_HAD) {
        makes_sense = set_had(replica, message);
    } else if (is_coming && message->fed_kind == FEED_CALLED) {
        makes_sense = replica_take_called(
            message->epoch == 0 ? replica->had : replica_find_model(replica, message->epoch).had,
            message);
    } else if (is_coming && message->fed_kind == FEED_ANSWERED) {
        makes_sense = replica_take_answer(replica_find_model(replica, message->epoch).had, message);
    } else if (is_coming && message->fed_kind == FEED_LOSS && model != NULL) {
        model_lose_workers(model, request->worker, (uint32_t)(request->clock >> 32),
                           (uint32_t)request->clock);
    } else if (is_coming) {
        if (!apply_request(server, replica, message)) {
            give_up(server, replica);
            return;
        }
    }
    if (server->starved ||
        (is_coming && !makes_sense && replica_is_from_primary(server, replica, message)))
        give_up(server, replica);
    if (makes_sense)
        server_answer(server, message, CALL_OK);
    else
        server_refuse(server, message, "a piece of a replica that makes no sense");
}

static void take_between_slices(Server *server, Replica *replica, Message *message)
{
    server_take_input(server, message);
    if (server->starved)
        give_up(server, replica);
}

/* ---- what comes when ---- */

static bool is_own_server(const Server *server, const Message *message)
{
    return message->request.worker < server->office->n_servers &&
           server->office->servers[message->request.worker].node == message->node;
}

/* The end of an image, or of a slice of it, that nothing here waits for. */
static void refuse_image(Server *server, Message *message)
{
    if (!is_own_server(server, message)) {
        server_refuse(server, message, "the end of an image that is of none of its servers");
        return;
    }
    server_tell_primary(server, message, message->request.worker, message->request.clock,
                        POSITION_GIVEN_UP);
    server_answer(server, message, CALL_OK);
}

bool server_take_of_copy(Server *server, Message *message)
{
    Replica *const replica = server_replica(server, message->table, message->part);
    const bool ends = message->fed_kind == FEED_SLICED || message->fed_kind == FEED_COPIED;
    const bool has_map =
        ends || message->fed_kind == FEED_COPY || message->fed_kind == FEED_GIVEN_UP;
    const bool fits = replica != NULL && (!has_map || replica->made == message->request.clock);
    const bool is_numbered = message->number != 0 && message->fed_kind != FEED_COPY;

    if (ends && (!fits || replica->stage != REPLICA_COMING)) {
        refuse_image(server, message);
        return true;
    }
    if (is_numbered && replica != NULL && replica->stage == REPLICA_COMING) {
        take_between_slices(server, replica, message);
        return true;
    }
    if (replica == NULL ||
        (is_numbered && (replica->stage == REPLICA_WHOLE || replica->stage == REPLICA_FOLLOWS)))
        return false;
    const bool is_from_primary = replica_is_from_primary(server, replica, message);
    /* which may do PROMOTE before this server, as for inputs: see server_replicas.c */
    const bool is_task_of_next = message->fed_kind == FEED_TASK &&
                                 (replica->is_deaf || replica->had_last) && !is_from_primary;

    if (message->fed_kind == FEED_GIVEN_UP && fits && is_from_primary && !replica->is_deaf &&
        (replica->stage == REPLICA_EXPECTED || replica->stage == REPLICA_COMING))
        drop_image(replica);
    if (replica->stage == REPLICA_EXPECTED || replica->stage == REPLICA_GIVEN_UP ||
        (replica->is_deaf && is_from_primary)) {
        if (message->fed_kind == FEED_COPY && fits && is_from_primary && !replica->is_deaf &&
            replica->stage == REPLICA_EXPECTED) {
            begin_image(server, replica, message->number);
        }
        server_answer(server, message, CALL_OK);
    } else if (is_numbered || (!is_from_primary && !is_task_of_next) ||
               message->fed_kind == FEED_COPY) {
        server_refuse(server, message, "a piece of a replica that makes no sense");
    } else {
        take_piece(server, replica, message);
    }
    return true;
}
