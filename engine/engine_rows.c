/* Rows between tasks, without any model: reading and writing them, their state, and the numbers of
 * update rules.
 *
 * Threads: any. Each call has a table client of its own, of no worker and no epoch. */
#include <rubato/handler.h>
#include <rubato/ragged_table.h>

#include "engine/engine_private.h"
#include "engine/server/request_ops.h"
#include "io/net/caller.h"
#include "models/handlers/handler.h"
#include "models/model.h"
#include "models/update/bad_gradients.h"
#include "models/update/rule.h"
#include "models/update/update.h"
#include "tables/client/client.h"
#include "tables/ragged/ragged_request.h"

typedef struct {
    const char *table;
    TableAsk ask;          /* all but its row_bytes, which depend on the table */
    const RubatoKey *keys; /* NULL: consecutive keys from `first` */
    RubatoKey first;
    size_t n;
} Access;

/* The bytes that a kind of request moves for each key. */
static bool find_row_bytes(const Table *table, MessageKind kind, size_t *row_bytes, GError **error)
{
    const RequestOps *ops = request_ops[kind];

    if (ops->is_of_even_rows && table->spec->shape == RUBATO_SHAPE_RAGGED) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TYPE,
                    "table %s has rows of different lengths; rubato_engine_get_ragged and its like "
                    "are for these",
                    table->spec->name);
        return false;
    }
    *row_bytes = request_row_bytes(ops, table->spec);
    if (*row_bytes > 0 || ops->rows == REQUEST_NO_ROWS)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: its update rule \"%s\" keeps no state", table->spec->name,
                table->spec->update);
    return false;
}

/* Whether requests of that kind have to come in their order. */
static bool changes_replicas(const PartMap *map, MessageKind kind)
{
    return map->n_replicas > 0 && request_ops[kind]->is_input;
}

/* Finds a table for a kind of request, and holds it until end_access. */
static bool begin_access(RubatoEngine *engine, const char *name, MessageKind kind,
                         TableRoute *route, size_t *row_bytes, GError **error)
{
    const bool is_past = newcomer_catches_up(engine); /* it sees rows of a later time */
    Table *table;
    bool ok;

    if (!engine_is_here(engine) || caller_place == CALLER_IN_CALLBACK ||
        caller_place == CALLER_IN_HANDLER) {
        g_autofree char *what = g_strdup_printf("table %s", name);
        return engine_check_caller(engine, what, error);
    }
    pthread_mutex_lock(&engine->lock);
    table = engine_hold_table(engine, name, error);
    ok = table != NULL && find_row_bytes(table, kind, row_bytes, error) &&
         engine_check(engine, error);
    if (table != NULL && !ok)
        engine_release_table(engine, table);
    if (ok)
        engine_tell_deferred(engine);
    pthread_mutex_unlock(&engine->lock);
    if (ok && changes_replicas(table->map, kind))
        pthread_mutex_lock(&engine->changing);
    if (ok)
        *route = (TableRoute){ .spec = table->spec,
                               .partition = &table->partition,
                               .map = table->map,
                               .traits = model_traits(table->spec),
                               .update = update_find(table->spec->update),
                               .check_tuning = rule_check_tuning,
                               .find_handler = handler_find_for,
                               .table = table->id,
                               .row_bytes = table->row_bytes,
                               .office = &engine->office,
                               .cancelled = &engine->broken,
                               .stall_ms = engine->stall_ms,
                               .history = is_past ? NULL : engine->history };
    return ok;
}

/* Outside a task only the engine's end cancels a call, so the error tells why the engine ended. */
static void propagate_cause(RubatoEngine *engine, GError *found, GError **error)
{
    bool intact = true;

    if (g_error_matches(found, RUBATO_ERROR, RUBATO_ERROR_CANCELLED)) {
        pthread_mutex_lock(&engine->lock);
        intact = engine_check(engine, error);
        pthread_mutex_unlock(&engine->lock);
    }
    if (intact)
        g_propagate_error(error, found);
    else
        g_error_free(found);
}

/* found: what went wrong; NULL if nothing did. */
static void end_access(RubatoEngine *engine, TableClient *client, MessageKind kind, GError *found,
                       GError **error)
{
    const TableRoute *route = client->route;

    if (changes_replicas(route->map, kind))
        pthread_mutex_unlock(&engine->changing);
    table_client_free(client);
    /* also if the process is killed */
    if (route->history != NULL && (request_ops[kind]->is_input || kind == MESSAGE_HANDLER))
        history_flush(route->history);
    pthread_mutex_lock(&engine->lock);
    engine_release_table(engine, engine_find_table(engine, route->spec->name, NULL));
    pthread_mutex_unlock(&engine->lock);
    if (found != NULL)
        propagate_cause(engine, found, error);
}

/* Whether a program that has yet to catch up changes rows: that would come in the middle of what
 * the others do, and the process before it has made the changes that belong here. */
static bool comes_too_late(RubatoEngine *engine, MessageKind kind)
{
    return request_ops[kind]->is_input && newcomer_catches_up(engine);
}

static bool access_table(RubatoEngine *engine, const Access *access, GError **error)
{
    TableAsk ask = access->ask;
    TableRoute route;
    LOG_SINK_SCOPE(&engine->log);
    TableClient *client;
    GError *found = NULL;
    bool ok;

    if (comes_too_late(engine, ask.kind))
        return true;
    if (!begin_access(engine, access->table, ask.kind, &route, &ask.row_bytes, error))
        return false;
    client = table_client_new(&route, BAD_GRADIENTS_NO_WORKER);
    ok = access->keys != NULL
             ? table_client_ask(client, &ask, access->keys, access->n, &found)
             : table_client_ask_run(client, &ask, access->first, access->n, &found);
    end_access(engine, client, ask.kind, found, error);
    return ok;
}

/* ---- the calls: most are an Access ---- */

bool rubato_engine_get(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_GET, .output = values },
                                   .keys = keys,
                                   .n = n },
                        error);
}

bool rubato_engine_get_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_GET, .output = values },
                                   .first = first,
                                   .n = n },
                        error);
}

bool rubato_engine_add(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       const void *deltas, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return access_table(
        engine,
        &(Access){
            .table = table, .ask = { .kind = MESSAGE_ADD, .input = deltas }, .keys = keys, .n = n },
        error);
}

bool rubato_engine_add_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             const void *deltas, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_ADD, .input = deltas },
                                   .first = first,
                                   .n = n },
                        error);
}

bool rubato_engine_set(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       const void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(
        engine,
        &(Access){
            .table = table, .ask = { .kind = MESSAGE_SET, .input = values }, .keys = keys, .n = n },
        error);
}

bool rubato_engine_set_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             const void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_SET, .input = values },
                                   .first = first,
                                   .n = n },
                        error);
}

bool rubato_engine_get_state(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                             size_t n, void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_GET_STATE, .output = states },
                                   .keys = keys,
                                   .n = n },
                        error);
}

bool rubato_engine_get_state_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                   size_t n, void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_GET_STATE, .output = states },
                                   .first = first,
                                   .n = n },
                        error);
}

bool rubato_engine_set_state(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                             size_t n, const void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_SET_STATE, .input = states },
                                   .keys = keys,
                                   .n = n },
                        error);
}

bool rubato_engine_set_state_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                   size_t n, const void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .ask = { .kind = MESSAGE_SET_STATE, .input = states },
                                   .first = first,
                                   .n = n },
                        error);
}

bool rubato_engine_reset(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                         GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    return access_table(
        engine, &(Access){ .table = table, .ask = { .kind = MESSAGE_RESET }, .keys = keys, .n = n },
        error);
}

bool rubato_engine_reset_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                               GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    return access_table(
        engine,
        &(Access){ .table = table, .ask = { .kind = MESSAGE_RESET }, .first = first, .n = n },
        error);
}

bool rubato_engine_list_keys(RubatoEngine *engine, const char *table, RubatoKey **keys, size_t *n,
                             GError **error)
{
    TableRoute route;
    size_t row_bytes;
    GError *found = NULL;

    g_return_val_if_fail(engine != NULL && table != NULL && keys != NULL && n != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!begin_access(engine, table, MESSAGE_LIST_KEYS, &route, &row_bytes, error))
        return false;
    TableClient *client = table_client_new(&route, BAD_GRADIENTS_NO_WORKER);
    const bool ok = engine_list_keys(client, keys, n, &found);
    end_access(engine, client, MESSAGE_LIST_KEYS, found, error);
    return ok;
}

bool rubato_engine_bad_gradients(RubatoEngine *engine, const char *table,
                                 RubatoBadGradients **counts, size_t *n, GError **error)
{
    TableRoute route;
    size_t row_bytes;
    GError *found = NULL;

    g_return_val_if_fail(engine != NULL && table != NULL && counts != NULL && n != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!begin_access(engine, table, MESSAGE_LIST_BAD_GRADIENTS, &route, &row_bytes, error))
        return false;
    TableClient *client = table_client_new(&route, BAD_GRADIENTS_NO_WORKER);
    const bool ok = engine_bad_gradients(client, counts, n, &found);
    end_access(engine, client, MESSAGE_LIST_BAD_GRADIENTS, found, error);
    return ok;
}

/* When this returns, the servers have the new value. */
bool rubato_engine_tune(RubatoEngine *engine, const char *table, RubatoHyper hyper, double value,
                        GError **error)
{
    TableRoute route;
    size_t row_bytes;
    GError *found = NULL;

    g_return_val_if_fail(engine != NULL && table != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (comes_too_late(engine, MESSAGE_TUNE))
        return true;
    if (!begin_access(engine, table, MESSAGE_TUNE, &route, &row_bytes, error))
        return false;
    TableClient *client = table_client_new(&route, BAD_GRADIENTS_NO_WORKER);
    const bool ok =
        table_client_tune(client, hyper, value, &found) && table_client_fence(client, &found);
    end_access(engine, client, MESSAGE_TUNE, found, error);
    return ok;
}

/* ---- calls of handlers ---- */

/* One that writes to a table with replicas comes in the order of its number, as changes do: see
 * begin_access. */
static void begin_call(RubatoEngine *engine, const TableRoute *route, bool writes)
{
    if (writes && route->map->n_replicas > 0)
        pthread_mutex_lock(&engine->changing);
}

static void end_call(RubatoEngine *engine, const TableRoute *route, bool writes)
{
    if (writes && route->map->n_replicas > 0)
        pthread_mutex_unlock(&engine->changing);
}

/* ---- rows of different lengths ---- */

static bool access_ragged(RubatoEngine *engine, const char *name, const RaggedAsk *ask,
                          GError **error)
{
    TableRoute route;
    size_t row_bytes;
    GError *found = NULL;

    LOG_SINK_SCOPE(&engine->log);
    if (ask->writes && newcomer_catches_up(engine))
        return true;
    if (!begin_access(engine, name, MESSAGE_HANDLER, &route, &row_bytes, error))
        return false;
    TableClient *client = table_client_new(&route, BAD_GRADIENTS_NO_WORKER);
    begin_call(engine, &route, ask->writes);
    const bool ok = ragged_request_run(client, ask, &found);
    end_call(engine, &route, ask->writes);
    end_access(engine, client, MESSAGE_HANDLER, found, error);
    return ok;
}

bool rubato_engine_get_ragged(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                              size_t n, uint32_t *lengths, void **values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && values != NULL, false);
    g_return_val_if_fail((keys != NULL && lengths != NULL) || n == 0, false);
    return access_ragged(
        engine, table,
        &(RaggedAsk){
            .name = "ragged.get", .keys = keys, .n = n, .lengths = lengths, .taken = values },
        error);
}

bool rubato_engine_assign_ragged(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                 size_t n, const uint32_t *lengths, const void *values,
                                 GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail((keys != NULL && lengths != NULL) || n == 0, false);
    return access_ragged(engine, table,
                         &(RaggedAsk){ .name = "ragged.assign",
                                       .writes = true,
                                       .keys = keys,
                                       .n = n,
                                       .given_lengths = lengths,
                                       .given = values },
                         error);
}

bool rubato_engine_erase_ragged(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                                size_t n, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    return access_ragged(
        engine, table, &(RaggedAsk){ .name = "ragged.erase", .writes = true, .keys = keys, .n = n },
        error);
}

bool rubato_engine_call_handler(RubatoEngine *engine, const RubatoHandlerCall *call,
                                GBytes **result, GError **error)
{
    TableRoute route;
    size_t row_bytes;
    GError *found = NULL;

    g_return_val_if_fail(engine != NULL && call != NULL && call->table != NULL, false);
    g_return_val_if_fail(call->handler != NULL, false);
    g_return_val_if_fail(call->arguments != NULL || call->n_argument_bytes == 0, false);
    g_return_val_if_fail(call->keys != NULL || call->n_keys == 0, false);
    LOG_SINK_SCOPE(&engine->log);
    const RubatoHandlerOps *const ops = handler_find(call->handler);
    const bool writes = ops != NULL && ops->access == RUBATO_ACCESS_WRITES;
    if (writes && newcomer_catches_up(engine)) {
        if (result != NULL)
            *result = g_bytes_new(NULL, 0);
        return true;
    }
    if (!begin_access(engine, call->table, MESSAGE_HANDLER, &route, &row_bytes, error))
        return false;
    TableClient *client = table_client_new(&route, BAD_GRADIENTS_NO_WORKER);
    begin_call(engine, &route, writes);
    const bool ok = table_client_call(client, call, result, &found);
    end_call(engine, &route, writes);
    end_access(engine, client, MESSAGE_HANDLER, found, error);
    return ok;
}
