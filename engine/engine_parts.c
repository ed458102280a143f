/* Moving a part of a table to another server: what this node does in each step. The design note is
 * in server/server_parts.c.
 *
 * Threads: the thread of part steps does each step. The thread of the engine's calls hands it over
 * and waits, so one of the two has the Move at a time. */
#include "engine/engine_private.h"
#include "engine/server/server_parts.h"
#include "engine/task/task_run.h"
#include "io/net/stall_clock.h"
#include "models/shard/shard.h"
#include "models/storage/storage.h"

typedef struct {
    const char *name;
    uint32_t part, to; /* a server's number */

    /* from CLOSE on */
    Table *table;       /* held by the collective call: no other one drops it meanwhile */
    uint32_t from;      /* a server's number */
    bool is_closed;     /* the map */
    MovingPart *moving; /* on the node of `from`, while it is in no server */
    bool is_sent;       /* its state is on another node */
    bool is_expected;   /* on the node of `to`: the server has an arrival */
} Move;

/* Checks a move and finds its table. The lock is held. */
/* Whether the parts of a server still take no more than the table's max_bytes with this one. */
static bool has_share(const Table *table, const Move *move, GError **error)
{
    const PartMap *map = table->map;
    uint32_t n = 0;

    for (uint32_t part = 0; part < map->n_parts; part++)
        n += part != move->part && part_map_server(map, part) == move->to;
    if (table->spec->max_bytes == 0 || n < table->most_parts)
        return true;
    g_set_error(
        error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
        "table %s: part %u cannot move to server %u: its %u parts there have %" G_GUINT64_FORMAT
        " bytes each, and max_bytes leaves none for one more; move one away first",
        move->name, move->part, move->to, n, table->spec->max_bytes);
    return false;
}

static Table *find_moving(RubatoEngine *engine, const Move *move, GError **error)
{
    Table *table = engine_find_table(engine, move->name, error);

    if (table == NULL)
        return NULL;
    if (move->part >= table->map->n_parts) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                    "table %s: there is no part %u; it has parts 0 to %u", move->name, move->part,
                    table->map->n_parts - 1);
        return NULL;
    }
    if (move->to >= engine->office.n_servers) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                    "table %s: part %u cannot move to server %u; there are servers 0 to %u",
                    move->name, move->part, move->to, engine->office.n_servers - 1);
        return NULL;
    }
    if (table->map->n_replicas > 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: part %u cannot move: it has replicas", move->name, move->part);
        return NULL;
    }
    if (!has_share(table, move, error) ||
        !engine_check_move(engine, table, move->part, move->to, error))
        return NULL;
    if (!rubato_table_spec_holds_range(table->spec) &&
        storage_find(table->spec->storage)->list == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: part %u cannot move: its storage \"%s\" cannot list its keys",
                    move->name, move->part, table->spec->storage);
        return NULL;
    }
    return table;
}

/* The server of that number if it is on this node; otherwise NULL. */
static Server *find_server(const RubatoEngine *engine, uint32_t number)
{
    for (uint32_t i = 0; i < engine->n_servers; i++)
        if (engine->servers[i].number == number)
            return &engine->servers[i];
    return NULL;
}

/* ---- CLOSE ---- */

/* Returns when the old server has handled all that this node sent it before. */
static bool fence(RubatoEngine *engine, const Move *move, GError **error)
{
    PostOffice *office = &engine->office;
    Call call;
    Message message = { .kind = MESSAGE_FENCE,
                        .table = MESSAGE_NO_TABLE,
                        .server = move->from,
                        .node = office->self,
                        .call = &call,
                        .end = message_end_call };
    StallClock clock;

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    post_office_ask(office, &message);
    post_office_flush(office);
    /* seq_cst: engine_break sets it before it sweeps; one of the two sees the other */
    if (atomic_load_explicit(&engine->broken, memory_order_seq_cst))
        post_office_cancel(office, POST_OFFICE_ALL_EPOCHS);
    call_sent(&call);
    stall_clock_start(&clock, engine->stall_ms);
    while (!post_office_wait(office, &call, stall_clock_left_ms(&clock)))
        if (stall_clock_strikes(&clock))
            g_message("part %u of table %s, which moves, waits for server %u to take in what was "
                      "sent to it (for %.1f s so far)",
                      move->part, move->name, move->from, stall_clock_s(&clock));
    /* relaxed: the call has ended, which orders it */
    if (atomic_load_explicit(&call.status, memory_order_relaxed) == CALL_OK)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED,
                "table %s: part %u did not move: the run has ended", move->name, move->part);
    return false;
}

/* The new server makes room for what another node will send. */
static bool expect(RubatoEngine *engine, Move *move, Server *to, GError **error)
{
    const Table *table = move->table;
    Arrival arrival = { .node = engine->office.servers[move->from].node,
                        .table = table->id,
                        .part = move->part };
    RubatoKey first;
    uint64_t n;

    MEMORY_HOME_SCOPE(to->home);
    partition_range(&table->partition, move->part, &first, &n);
    arrival.shard = shard_new_seeded(table->spec, first, n, table->hash_seed, error);
    move->is_expected = arrival.shard != NULL && servers_expect_part(to, &arrival, error);
    if (!move->is_expected)
        g_prefix_error(error, "node %u: ", engine->id);
    return move->is_expected;
}

/* Tells the old server and the new one what they may not have heard of: see server_parts.c. */
static void tell_clocks(RubatoEngine *engine, uint32_t table)
{
    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < engine->runs->len; i++)
        task_run_tell_clocks(g_ptr_array_index(engine->runs, i), table);
    pthread_mutex_unlock(&engine->lock);
}

static bool close_map(RubatoEngine *engine, Move *move, GError **error)
{
    Server *to = find_server(engine, move->to);

    pthread_mutex_lock(&engine->lock);
    move->table = find_moving(engine, move, error);
    pthread_mutex_unlock(&engine->lock);
    if (move->table == NULL)
        return false;
    move->from = part_map_server(move->table->map, move->part);
    if (move->from == move->to)
        return true;
    part_map_close(move->table->map);
    move->is_closed = true;
    const uint32_t table = move->table->id;
    tell_clocks(engine, table);
    if (!fence(engine, move, error))
        return false;
    return to == NULL || find_server(engine, move->from) != NULL || expect(engine, move, to, error);
}

/* ---- SEND, INSTALL, TAKE_BACK ---- */

static bool send_part(RubatoEngine *engine, Move *move, GError **error)
{
    Server *from = find_server(engine, move->from);
    const PartWay way = { .office = &engine->office,
                          .server = move->to,
                          .cancelled = &engine->broken,
                          .table_name = move->name,
                          .stall_ms = engine->stall_ms };

    if (from == NULL || !move->is_closed)
        return true;
    move->moving = servers_take_part(from, move->table->id, move->part);
    if (find_server(engine, move->to) != NULL)
        return true;
    move->is_sent = moving_part_send_rows(move->moving, &way, error) &&
                    moving_part_send_models(move->moving, &way, error);
    return move->is_sent;
}

static void install(RubatoEngine *engine, Move *move)
{
    Server *to = find_server(engine, move->to);

    if (move->is_expected)
        servers_keep_arrival(to);
    else if (move->is_sent)
        moving_part_free(g_steal_pointer(&move->moving));
    else if (move->moving != NULL)
        servers_put_part(to, g_steal_pointer(&move->moving));
    move->is_expected = false;
}

static void take_back(RubatoEngine *engine, Move *move)
{
    if (move->is_expected)
        servers_drop_arrival(find_server(engine, move->to));
    if (move->moving != NULL)
        servers_put_part(find_server(engine, move->from), g_steal_pointer(&move->moving));
    move->is_expected = false;
}

/* ---- OPEN, REOPEN ---- */

static void open_map(RubatoEngine *engine, Move *move, uint32_t server, uint32_t number)
{
    if (!move->is_closed)
        return;
    tell_clocks(engine, move->table->id);
    part_map_open(move->table->map, move->part, server, number);
    move->is_closed = false;
}

/* No other collective call runs at the same time: so the table stays, and no task begins. */
static bool do_step(RubatoEngine *engine, const ControlGo *go, Move *move, GError **error)
{
    switch ((ControlStep)go->step) {
    case CONTROL_STEP_CLOSE:
        return close_map(engine, move, error);
    case CONTROL_STEP_SEND:
        return send_part(engine, move, error);
    case CONTROL_STEP_INSTALL:
        install(engine, move);
        break;
    case CONTROL_STEP_OPEN:
        open_map(engine, move, move->to, go->id);
        break;
    case CONTROL_STEP_TAKE_BACK:
        take_back(engine, move);
        break;
    case CONTROL_STEP_REOPEN:
        open_map(engine, move, move->from, go->id);
        break;
    default:
        break;
    }
    return true;
}

/* The scheduler's node was lost in the middle: nobody leads the move any more. */
static void give_up(RubatoEngine *engine, Move *move)
{
    take_back(engine, move);
    if (move->is_closed)
        open_map(engine, move, move->from, part_map_number(move->table->map));
}

/* ---- the thread of part steps ---- */

typedef struct {
    Message message; /* first: the thread finds the step by it */
    RubatoEngine *engine;
    const ControlGo *go; /* NULL: to give the move up */
    Move *move;
    GError *error;
    bool is_done;
} Step;

static void run_step(Message *message, void *actor)
{
    Step *step = (Step *)message;

    (void)actor;
    if (step->go != NULL)
        step->is_done = do_step(step->engine, step->go, step->move, &step->error);
    else
        give_up(step->engine, step->move);
    message->status = CALL_OK;
    message_end(message);
}

static bool hand_over(RubatoEngine *engine, const ControlGo *go, Move *move, GError **error)
{
    Call call;
    Step step = { .message = { .kind = MESSAGE_INVOKE,
                               .call = &call,
                               .invoke = run_step,
                               .end = message_end_call },
                  .engine = engine,
                  .go = go,
                  .move = move };

    call_begin(&call, NULL);
    call_add_parts(&call, 1);
    actor_post(&engine->part_steps, &step.message);
    call_sent(&call);
    call_wait(&call, -1);
    if (step.error != NULL)
        g_propagate_error(error, step.error);
    return step.is_done;
}

static bool perform_move(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    return hand_over(engine, go, data, error);
}

bool rubato_engine_move_part(RubatoEngine *engine, const char *table, uint32_t part,
                             uint32_t server, GError **error)
{
    Move move = { .name = table, .part = part, .to = server };
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    bool can_move, moved;

    g_return_val_if_fail(engine != NULL && table != NULL, false);
    pthread_mutex_lock(&engine->lock);
    can_move = find_moving(engine, &move, error) != NULL;
    pthread_mutex_unlock(&engine->lock);
    if (!can_move)
        return false;
    text = g_strdup_printf("part %u of table %s", part, table);
    detail = g_strdup_printf("to server %u", server);
    moved = collective(engine,
                       &(CollectiveCall){ .what = CONTROL_CALL_MOVE,
                                          .text = text,
                                          .detail = detail,
                                          .perform = perform_move,
                                          .data = &move },
                       error);
    if (move.is_closed || move.is_expected || move.moving != NULL)
        (void)hand_over(engine, NULL, &move, NULL);
    return moved;
}
