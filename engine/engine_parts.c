/* Moving a part of a table to another server.
 *
 * Threads: that of the engine's calls. */
#include "engine/engine_private.h"

typedef struct {
    const char *table;
    uint32_t part, server;
} Move;

/* Checks a move and finds its table. The lock is held. */
static Table *find_moving(RubatoEngine *engine, const Move *move, GError **error)
{
    Table *table = engine_find_table(engine, move->table, error);

    if (table == NULL)
        return NULL;
    if (move->part >= table->map->n_parts) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                    "table %s: there is no part %u; it has parts 0 to %u", move->table, move->part,
                    table->map->n_parts - 1);
        return NULL;
    }
    if (move->server >= engine->office.n_servers) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                    "table %s: part %u cannot move to server %u; there are servers 0 to %u",
                    move->table, move->part, move->server, engine->office.n_servers - 1);
        return NULL;
    }
    return table;
}

/* No other collective call runs at the same time: so the table stays, and no task begins. */
static bool perform_move(RubatoEngine *engine, uint32_t id, uint64_t seed, void *data,
                         GError **error)
{
    const Move *move = data;
    Table *table;

    (void)id;
    (void)seed;
    pthread_mutex_lock(&engine->lock);
    table = find_moving(engine, move, error);
    pthread_mutex_unlock(&engine->lock);
    if (table == NULL)
        return false;
    servers_move_part(&engine->servers[part_map_server(table->map, move->part)],
                      &engine->servers[move->server], table->id, move->part, table->map);
    return true;
}

bool rubato_engine_move_part(RubatoEngine *engine, const char *table, uint32_t part,
                             uint32_t server, GError **error)
{
    Move move = { .table = table, .part = part, .server = server };
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    bool can_move;

    g_return_val_if_fail(engine != NULL && table != NULL, false);
    if (engine->n_nodes > 1) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: part %u cannot move; parts move between the servers of a single "
                    "process, not in a cluster",
                    table, part);
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    can_move = find_moving(engine, &move, error) != NULL;
    pthread_mutex_unlock(&engine->lock);
    if (!can_move)
        return false;
    text = g_strdup_printf("part %u of table %s", part, table);
    detail = g_strdup_printf("to server %u", server);
    return collective(engine,
                      &(CollectiveCall){ .what = CONTROL_CALL_MOVE,
                                         .text = text,
                                         .detail = detail,
                                         .perform = perform_move,
                                         .data = &move },
                      error);
}
