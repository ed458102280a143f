/* The list of a table's keys: each server is asked how many rows it has, then for their keys.
 *
 * Threads: any; a client from one. */
#include <stdlib.h>

#include "engine/node.h"
#include "models/storage.h"
#include "tables/client.h"

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
}

/* Asks servers for their parts of the list. */
static bool ask_list(TableClient *client, const Part *parts, uint32_t n_parts, RubatoKey *keys,
                     uint64_t *least_rows, GError **error)
{
    Call call;

    if (!table_client_wait_room(client, parts, n_parts, error))
        return false;
    call_begin(&call, NULL);
    table_client_send(client, MESSAGE_GET, parts, n_parts, keys, &call, client->messages);
    call_sent(&call);
    if (!table_client_wait(client, &call, error))
        return false;
    *least_rows = atomic_load_explicit(&call.min_clock, memory_order_relaxed); /* it has ended */
    return true;
}

/* How many rows each server has: it answers so to a Get of no rows. parts become their lists. */
static bool count_rows(TableClient *client, Part *parts, uint32_t n_servers, uint64_t *n_rows,
                       GError **error)
{
    RubatoKey none;

    *n_rows = 0;
    for (uint32_t i = 0; i < n_servers; i++) {
        uint64_t n;

        parts[i] = (Part){ .server = i };
        if (!ask_list(client, &parts[i], 1, &none, &n, error))
            return false;
        parts[i].keys.n = (size_t)n;
        parts[i].row = (size_t)*n_rows;
        *n_rows += n;
    }
    return true;
}

/* Room for the list. (transfer full) */
static RubatoKey *new_list(const TableClient *client, uint64_t n, GError **error)
{
    RubatoKey *list = n <= SIZE_MAX / sizeof *list ? g_try_new(RubatoKey, MAX(n, 1)) : NULL;

    if (list == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for the list of its %" G_GUINT64_FORMAT " keys",
                    client->route->spec->name, n);
    return list;
}

static bool list_range(const TableClient *client, RubatoKey **keys, size_t *n, GError **error)
{
    const Partition *partition = client->route->partition;
    RubatoKey *list = new_list(client, partition->n_keys, error);

    if (list == NULL)
        return false;
    for (uint64_t i = 0; i < partition->n_keys; i++)
        list[i] = partition->first_key + i;
    *keys = list;
    *n = (size_t)partition->n_keys;
    return true;
}

static bool can_list(const TableClient *client, GError **error)
{
    const RubatoTableSpec *spec = client->route->spec;

    if (storage_find(spec->storage)->list != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: its storage \"%s\" cannot tell its keys", spec->name, spec->storage);
    return false;
}

static bool list_rows(TableClient *client, RubatoKey **keys, size_t *n, GError **error)
{
    const uint32_t n_servers = client->route->partition->n_servers;
    g_autofree Part *parts = g_new0(Part, n_servers);
    uint64_t n_rows, least_rows;

    if (!can_list(client, error) || !count_rows(client, parts, n_servers, &n_rows, error))
        return false;
    g_autofree RubatoKey *list = new_list(client, n_rows, error);
    if (list == NULL || !ask_list(client, parts, n_servers, list, &least_rows, error))
        return false;
    qsort(list, (size_t)n_rows, sizeof *list, compare_keys);
    *keys = g_steal_pointer(&list);
    *n = (size_t)n_rows;
    return true;
}

bool engine_list_keys(TableClient *client, RubatoKey **keys, size_t *n, GError **error)
{
    return client->route->partition->dense ? list_range(client, keys, n, error)
                                           : list_rows(client, keys, n, error);
}
