/* Moving a part of a table to another server: what this node does in each step. The design note is
 * in server/server_parts.c.
 *
 * A node may be lost meanwhile in a run that goes on (docs/replication.md). Then the scheduler
 * fails the move, and leads all nodes to its end: the steps that follow the loss wait for that. So
 * no step here waits for a lost node. The thread of part steps, which does what follows a loss, has
 * no part in a move.
 *
 * Threads: that of the engine's calls. */
#include "engine/control/told_move.h"
#include "engine/engine_private.h"
#include "engine/server/server_parts.h"
#include "engine/task/task_run.h"
#include "io/net/stall_clock.h"
#include "models/shard/shard.h"
#include "models/storage/storage.h"

typedef struct {
    const char *name;
    uint32_t part, to; /* a server's number */
    const char *told;  /* in a process that serves; NULL: the call was made here */

    /* from CLOSE on */
    Table *table;       /* held by the collective call: no other one drops it meanwhile */
    uint32_t from;      /* a server's number */
    bool is_closed;     /* the map */
    MovingPart *moving; /* on the node of `from`, while it is in no server */
    bool is_ahead;      /* on the node of `from`: its rows are sent ahead */
    bool is_sent;       /* its state is on another node */
    bool is_expected;   /* on the node of `to`: the server has an arrival */
} Move;

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

/* Checks a move and finds its table. The lock is held. */
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

static bool is_lost(void *user, uint32_t node)
{
    RubatoEngine *const engine = user;

    pthread_mutex_lock(&engine->lock);
    const bool is_lost = engine->losses[node].text != NULL;
    pthread_mutex_unlock(&engine->lock);
    return is_lost;
}

static bool is_call(const Call *call, const void *data)
{
    return call == data;
}

/* Returns when the old server has handled all that this node sent it before. */
static bool fence(RubatoEngine *engine, const Move *move, GError **error)
{
    PostOffice *office = &engine->office;
    const uint32_t from = office->servers[move->from].node;
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
    while (!post_office_wait(office, &call, stall_clock_look_ms(&clock, PART_WAY_LOOK_MS))) {
        if (is_lost(engine, from))
            post_office_leave_calls(office, from, is_call, &call);
        if (stall_clock_strikes(&clock))
            g_message("part %u of table %s, which moves, waits for server %u to take in what was "
                      "sent to it (for %.1f s so far)",
                      move->part, move->name, move->from, stall_clock_s(&clock));
    }
    /* relaxed: the call has ended, which orders it */
    if (atomic_load_explicit(&call.status, memory_order_relaxed) == CALL_OK)
        return true;
    if (is_lost(engine, from))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "table %s: part %u did not move: node %u was lost", move->name, move->part,
                    office->node_ids[from]);
    else
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

/* Whether the node where the part is to go takes parts. The lock is held. */
static bool takes_parts(const RubatoEngine *engine, const Move *move, GError **error)
{
    const uint32_t node = engine->office.servers[move->to].node;

    if (!engine->call.lost[node] && !engine->drains[node])
        return true;
    g_set_error(error, RUBATO_ERROR,
                engine->call.lost[node] ? RUBATO_ERROR_NODE_LOST : RUBATO_ERROR_INVALID,
                "table %s: part %u cannot move to server %u: node %u %s", move->name, move->part,
                move->to, engine->node_ids[node],
                !engine->call.lost[node]         ? "is drained"
                : engine->losses[node].is_absent ? "is spare, and has not joined the run"
                                                 : "was lost");
    return false;
}

/* What a process that serves has been told. The lock is held. */
static bool read_told(RubatoEngine *engine, Move *move, GError **error)
{
    const Table *table = NULL;
    ToldMove told;

    if (told_move_read(move->told, &told))
        table = engine_find_told_table(engine, told.table);
    if (table == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "node %u, which has joined the run, was told a move that makes no sense",
                    engine->id);
        return false;
    }
    move->name = table->spec->name;
    move->part = told.part;
    move->to = told.to;
    return true;
}

static Table *begin_move(RubatoEngine *engine, Move *move, GError **error)
{
    Table *table = NULL;

    pthread_mutex_lock(&engine->lock);
    if (move->told == NULL || read_told(engine, move, error))
        table = find_moving(engine, move, error);
    if (table != NULL && !takes_parts(engine, move, error))
        table = NULL;
    pthread_mutex_unlock(&engine->lock);
    return table;
}

static PartWay way_of(RubatoEngine *engine, const Move *move)
{
    return (PartWay){ .office = &engine->office,
                      .server = move->to,
                      .cancelled = &engine->broken,
                      .is_lost = is_lost,
                      .user = engine,
                      .table_name = move->name,
                      .stall_ms = engine->stall_ms };
}

static bool prepare(RubatoEngine *engine, Move *move, GError **error)
{
    move->table = begin_move(engine, move, error);
    if (move->table == NULL)
        return false;
    Server *const to = find_server(engine, move->to);

    move->from = part_map_server(move->table->map, move->part);
    return move->from == move->to || to == NULL || find_server(engine, move->from) != NULL ||
           expect(engine, move, to, error);
}

/* Requests go on. Within a node nothing is sent. */
static bool send_ahead(RubatoEngine *engine, Move *move, GError **error)
{
    Server *const from = find_server(engine, move->from);
    const PartWay way = way_of(engine, move);

    if (from == NULL || find_server(engine, move->to) != NULL)
        return true;
    move->is_ahead = true;
    return moving_part_send_ahead(from, move->table->id, move->part, &way, error);
}

static bool close_map(RubatoEngine *engine, Move *move, GError **error)
{
    if (move->from == move->to)
        return true;
    part_map_close(move->table->map);
    move->is_closed = true;
    const uint32_t table = move->table->id;
    tell_clocks(engine, table);
    return fence(engine, move, error);
}

/* ---- SEND, INSTALL, TAKE_BACK ---- */

static bool send_part(RubatoEngine *engine, Move *move, GError **error)
{
    Server *from = find_server(engine, move->from);
    const PartWay way = way_of(engine, move);

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
        moving_part_free(g_steal_pointer(&move->moving)); /* with the notes of its shard */
    else if (move->moving != NULL)
        servers_put_part(to, g_steal_pointer(&move->moving));
    move->is_expected = move->is_ahead = false;
}

static void take_back(RubatoEngine *engine, Move *move)
{
    const PartWay way = way_of(engine, move);

    if (move->is_expected)
        servers_drop_arrival(find_server(engine, move->to));
    if (move->moving != NULL && is_lost(engine, engine->office.servers[move->to].node))
        moving_part_lose(move->moving, &way);
    if (move->moving != NULL)
        servers_put_part(find_server(engine, move->from), g_steal_pointer(&move->moving));
    if (move->is_ahead)
        servers_end_ahead(find_server(engine, move->from), move->table->id, move->part);
    move->is_expected = move->is_ahead = false;
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
    case CONTROL_STEP_PREPARE:
        return prepare(engine, move, error);
    case CONTROL_STEP_AHEAD:
        return send_ahead(engine, move, error);
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

static bool perform_move(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    return do_step(engine, go, data, error);
}

static void end_move(RubatoEngine *engine, Move *move)
{
    if (move->is_closed || move->is_expected || move->is_ahead || move->moving != NULL)
        give_up(engine, move);
}

/* Checks a move, and writes it for others. (transfer full) NULL: it cannot be made. */
static char *tell_move(RubatoEngine *engine, const Move *move, GError **error)
{
    const ServerAddress *const servers = engine->office.servers;
    char *told = NULL;

    pthread_mutex_lock(&engine->lock);
    const Table *const table = find_moving(engine, move, error);
    if (table != NULL)
        told = told_move_write(
            &(ToldMove){ .from_node = servers[part_map_server(table->map, move->part)].node,
                         .to_node = servers[move->to].node,
                         .table = table->id,
                         .part = move->part,
                         .to = move->to });
    pthread_mutex_unlock(&engine->lock);
    return told;
}

bool rubato_engine_move_part(RubatoEngine *engine, const char *table, uint32_t part,
                             uint32_t server, GError **error)
{
    Move move = { .name = table, .part = part, .to = server };
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    g_autofree char *told = NULL;
    bool moved;

    g_return_val_if_fail(engine != NULL && table != NULL, false);
    const bool catches_up = newcomer_catches_up(engine); /* the part may have moved before */
    told = tell_move(engine, &move, catches_up ? NULL : error);
    if (told == NULL && !catches_up)
        return false;
    text = g_strdup_printf("part %u of table %s", part, table);
    detail = g_strdup_printf("to server %u", server);
    moved = collective(engine,
                       &(CollectiveCall){ .what = CONTROL_CALL_MOVE,
                                          .text = text,
                                          .detail = detail,
                                          .told = told,
                                          .perform = perform_move,
                                          .data = &move },
                       error);
    end_move(engine, &move);
    return moved;
}

void engine_serve_move(RubatoEngine *engine, const ControlGo *go, const bool *lost, GError **error)
{
    g_autofree char *told = g_strdup(go->told);
    Move move = { .told = told };
    const CollectiveCall call = { .what = go->what,
                                  .text = "a move of the other nodes",
                                  .detail = "",
                                  .perform = perform_move,
                                  .data = &move };

    (void)collective_serve(engine, &call, go, lost, error);
    end_move(engine, &move);
}
