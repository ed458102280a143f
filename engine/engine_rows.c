/* Rows between tasks: reading and writing them, their state, and the numbers of update rules, past
 * any model.
 *
 * Threads: any. Each call has a table client of its own, of no worker and no epoch. */
#include "engine/engine_private.h"
#include "io/net/caller.h"
#include "models/model.h"
#include "models/update/bad_gradients.h"
#include "models/update/rule.h"
#include "models/update/update.h"
#include "tables/client.h"

typedef struct {
    const char *table;
    RubatoSubject subject;
    bool writes;
    const RubatoKey *keys; /* NULL: the run from first */
    RubatoKey first;
    size_t n;
    void *values; /* written or, where the call writes, only read */

    /* RUBATO_SUBJECT_HYPER */
    RubatoHyper hyper;
    double number;
} Access;

static void *only_read(const void *values)
{
    return (void *)(uintptr_t)values;
}

/* The bytes of what an access moves for each key. */
static size_t subject_bytes(const Table *table, RubatoSubject subject)
{
    switch (subject) {
    case RUBATO_SUBJECT_STATE:
        return table->state_bytes;
    case RUBATO_SUBJECT_INITIAL:
        return 0;
    case RUBATO_SUBJECT_KEYS:
        return sizeof(RubatoKey);
    case RUBATO_SUBJECT_BAD_GRADIENTS:
        return sizeof(BadCounts);
    default:
        return table->row_bytes;
    }
}

static bool check_state(const Table *table, const Access *access, GError **error)
{
    if (access->subject != RUBATO_SUBJECT_STATE || table->state_bytes > 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: its update rule \"%s\" keeps no state", table->spec->name,
                table->spec->update);
    return false;
}

static bool begin_access(RubatoEngine *engine, const Access *access, TableRoute *route,
                         GError **error)
{
    Table *table;
    bool ok;

    if (!engine_is_here(engine) || caller_place == CALLER_IN_CALLBACK) {
        g_autofree char *what = g_strdup_printf("table %s", access->table);
        return engine_check_caller(engine, what, error);
    }
    pthread_mutex_lock(&engine->lock);
    table = engine_hold_table(engine, access->table, error);
    ok = table != NULL && check_state(table, access, error) && engine_check(engine, error);
    if (table != NULL && !ok)
        engine_release_table(engine, table);
    pthread_mutex_unlock(&engine->lock);
    if (ok)
        *route = (TableRoute){ .spec = table->spec,
                               .partition = &table->partition,
                               .map = table->map,
                               .traits = model_traits(table->spec),
                               .update = update_find(table->spec->update),
                               .check_tuning = rule_check_tuning,
                               .table = table->id,
                               .row_bytes = subject_bytes(table, access->subject),
                               .office = &engine->office,
                               .cancelled = &engine->broken,
                               .stall_ms = engine->stall_ms };
    return ok;
}

static void end_access(RubatoEngine *engine, const TableRoute *route)
{
    pthread_mutex_lock(&engine->lock);
    engine_release_table(engine, engine_find_table(engine, route->spec->name, NULL));
    pthread_mutex_unlock(&engine->lock);
}

static bool access_rows(TableClient *client, const Access *access, GError **error)
{
    client->subject = access->subject;
    if (!access->writes)
        return access->keys != NULL
                   ? table_client_get(client, access->keys, access->n, access->values, error)
                   : table_client_get_run(client, access->first, access->n, access->values, error);
    /* the servers have it when this returns */
    if (access->subject == RUBATO_SUBJECT_HYPER)
        return table_client_tune(client, access->hyper, access->number, error) &&
               table_client_fence(client, error);
    if (access->keys != NULL)
        return table_client_write(client, access->keys, access->n, access->values, error);
    return table_client_write_run(client, access->first, access->n, access->values, error);
}

/* Outside a task nothing is cancelled but by the engine's end: why that came is what to tell. */
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

static bool access_table(RubatoEngine *engine, const Access *access, GError **error)
{
    TableRoute route;
    TableClient *client;
    GError *found = NULL;
    bool ok;

    if (!begin_access(engine, access, &route, error))
        return false;
    client = table_client_new(&route, BAD_GRADIENTS_NO_WORKER);
    ok = access_rows(client, access, &found);
    table_client_free(client);
    end_access(engine, &route);
    if (!ok)
        propagate_cause(engine, found, error);
    return ok;
}

/* A client that asks the servers for their lists, NULL where there can be none. To be ended. */
static TableClient *begin_list(RubatoEngine *engine, const char *table, RubatoSubject subject,
                               TableRoute *route, GError **error)
{
    TableClient *client;

    if (!begin_access(engine, &(Access){ .table = table, .subject = subject }, route, error))
        return NULL;
    client = table_client_new(route, BAD_GRADIENTS_NO_WORKER);
    client->subject = subject;
    return client;
}

/* found: what went wrong, NULL where nothing did. */
static void end_list(RubatoEngine *engine, TableClient *client, GError *found, GError **error)
{
    const TableRoute *route = client->route;

    table_client_free(client);
    end_access(engine, route);
    if (found != NULL)
        propagate_cause(engine, found, error);
}

/* ---- the calls: each is an Access, or a list ---- */

bool rubato_engine_get(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(engine, &(Access){ .table = table, .keys = keys, .n = n, .values = values },
                        error);
}

bool rubato_engine_get_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(
        engine, &(Access){ .table = table, .first = first, .n = n, .values = values }, error);
}

bool rubato_engine_add(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       const void *deltas, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return access_table(
        engine,
        &(Access){
            .table = table, .writes = true, .keys = keys, .n = n, .values = only_read(deltas) },
        error);
}

bool rubato_engine_add_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             const void *deltas, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return access_table(
        engine,
        &(Access){
            .table = table, .writes = true, .first = first, .n = n, .values = only_read(deltas) },
        error);
}

bool rubato_engine_set(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                       const void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_VALUES,
                                   .writes = true,
                                   .keys = keys,
                                   .n = n,
                                   .values = only_read(values) },
                        error);
}

bool rubato_engine_set_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                             const void *values, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_VALUES,
                                   .writes = true,
                                   .first = first,
                                   .n = n,
                                   .values = only_read(values) },
                        error);
}

bool rubato_engine_get_state(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                             size_t n, void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_STATE,
                                   .keys = keys,
                                   .n = n,
                                   .values = states },
                        error);
}

bool rubato_engine_get_state_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                   size_t n, void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_STATE,
                                   .first = first,
                                   .n = n,
                                   .values = states },
                        error);
}

bool rubato_engine_set_state(RubatoEngine *engine, const char *table, const RubatoKey *keys,
                             size_t n, const void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_STATE,
                                   .writes = true,
                                   .keys = keys,
                                   .n = n,
                                   .values = only_read(states) },
                        error);
}

bool rubato_engine_set_state_range(RubatoEngine *engine, const char *table, RubatoKey first,
                                   size_t n, const void *states, GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    g_return_val_if_fail(states != NULL || n == 0, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_STATE,
                                   .writes = true,
                                   .first = first,
                                   .n = n,
                                   .values = only_read(states) },
                        error);
}

bool rubato_engine_reset(RubatoEngine *engine, const char *table, const RubatoKey *keys, size_t n,
                         GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL && (keys != NULL || n == 0), false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_INITIAL,
                                   .writes = true,
                                   .keys = keys,
                                   .n = n },
                        error);
}

bool rubato_engine_reset_range(RubatoEngine *engine, const char *table, RubatoKey first, size_t n,
                               GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_INITIAL,
                                   .writes = true,
                                   .first = first,
                                   .n = n },
                        error);
}

bool rubato_engine_list_keys(RubatoEngine *engine, const char *table, RubatoKey **keys, size_t *n,
                             GError **error)
{
    TableRoute route;
    GError *found = NULL;

    g_return_val_if_fail(engine != NULL && table != NULL && keys != NULL && n != NULL, false);
    TableClient *client = begin_list(engine, table, RUBATO_SUBJECT_KEYS, &route, error);
    if (client == NULL)
        return false;
    const bool ok = engine_list_keys(client, keys, n, &found);
    end_list(engine, client, found, error);
    return ok;
}

bool rubato_engine_bad_gradients(RubatoEngine *engine, const char *table,
                                 RubatoBadGradients **counts, size_t *n, GError **error)
{
    TableRoute route;
    GError *found = NULL;

    g_return_val_if_fail(engine != NULL && table != NULL && counts != NULL && n != NULL, false);
    TableClient *client = begin_list(engine, table, RUBATO_SUBJECT_BAD_GRADIENTS, &route, error);
    if (client == NULL)
        return false;
    const bool ok = engine_bad_gradients(client, counts, n, &found);
    end_list(engine, client, found, error);
    return ok;
}

bool rubato_engine_tune(RubatoEngine *engine, const char *table, RubatoHyper hyper, double value,
                        GError **error)
{
    g_return_val_if_fail(engine != NULL && table != NULL, false);
    return access_table(engine,
                        &(Access){ .table = table,
                                   .subject = RUBATO_SUBJECT_HYPER,
                                   .writes = true,
                                   .hyper = hyper,
                                   .number = value },
                        error);
}
