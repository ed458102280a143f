/* Lists that a table's servers tell: of its keys, and of the bad deltas that they counted. Each
 * part is asked how long its list is, then for the list. What the servers of other nodes say of
 * lengths is not believed beyond what can be.
 *
 * Threads: any; a client from one. */
#include <stdlib.h>

#include "engine/engine_private.h"
#include "models/storage/storage.h"
#include "models/update/bad_gradients.h"
#include "tables/client.h"

/* Asks for slices of the list. */
static bool ask_list(TableClient *client, const Slice *slices, uint32_t n_slices, void *list,
                     uint64_t *shortest, GError **error)
{
    Call call;

    if (!table_client_wait_room(client, slices, n_slices, error))
        return false;
    call_begin(&call, NULL);
    table_client_send(client, MESSAGE_GET, slices, n_slices, list, &call, client->messages);
    call_sent(&call);
    if (!table_client_wait(client, &call, error))
        return false;
    *shortest = atomic_load_explicit(&call.min_clock, memory_order_relaxed); /* it has ended */
    return true;
}

static bool fail_length(const TableClient *client, uint32_t part, uint64_t n, GError **error)
{
    const PostOffice *office = client->route->office;
    const uint32_t server = part_map_server(client->route->map, part);

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "table %s: server %u (node %u) says that the list of part %u has %" G_GUINT64_FORMAT
                " entries, which cannot be; end the run, for that node's "
                "memory or program is damaged",
                client->route->spec->name, server, office->node_ids[office->servers[server].node],
                part, n);
    return false;
}

/* How long the list of each part is: it says so to a Get of nothing. slices become these lists. No
 * list may have more than `longest` entries, nor all together more than any memory holds. */
static bool count_entries(TableClient *client, uint64_t longest, Slice *slices, uint64_t *n_entries,
                          GError **error)
{
    const uint64_t most = SIZE_MAX / client->route->row_bytes;
    uint64_t none, sum = 0;

    for (uint32_t i = 0; i < client->route->map->n_parts; i++) {
        uint64_t n;

        slices[i] = (Slice){ .part = i };
        if (!ask_list(client, &slices[i], 1, &none, &n, error))
            return false;
        if (n > longest || n > most - sum)
            return fail_length(client, i, n, error);
        slices[i].keys.n = (size_t)n;
        slices[i].row = (size_t)sum;
        sum += n;
    }
    *n_entries = sum;
    return true;
}

static bool fail_memory(const TableClient *client, uint64_t n, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: no memory for a list of %" G_GUINT64_FORMAT " entries",
                client->route->spec->name, n);
    return false;
}

/* Room for a list. (transfer full) */
static void *new_list(const TableClient *client, uint64_t n, GError **error)
{
    const size_t bytes = client->route->row_bytes;
    void *list = n <= SIZE_MAX / bytes ? g_try_malloc_n((size_t)MAX(n, 1), bytes) : NULL;

    if (list == NULL)
        fail_memory(client, n, error);
    return list;
}

/* The lists of all parts, one after the other; slices, one for each part, tell which is whose.
 * (*list: transfer full) */
static bool list_all(TableClient *client, uint64_t longest, Slice *slices, void **list,
                     uint64_t *n_entries, GError **error)
{
    const uint32_t n_parts = client->route->map->n_parts;
    uint64_t n, shortest;

    if (!count_entries(client, longest, slices, &n, error))
        return false;
    g_autofree void *made = new_list(client, n, error);
    if (made == NULL || !ask_list(client, slices, n_parts, made, &shortest, error))
        return false;
    *list = g_steal_pointer(&made);
    *n_entries = n;
    return true;
}

/* ---- keys ---- */

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
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
    g_autofree Slice *slices = g_new(Slice, client->route->map->n_parts);
    void *list;
    uint64_t n_rows;

    if (!can_list(client, error) || !list_all(client, UINT64_MAX, slices, &list, &n_rows, error))
        return false;
    qsort(list, (size_t)n_rows, sizeof **keys, compare_keys);
    *keys = list;
    *n = (size_t)n_rows;
    return true;
}

bool engine_list_keys(TableClient *client, RubatoKey **keys, size_t *n, GError **error)
{
    return client->route->partition->dense ? list_range(client, keys, n, error)
                                           : list_rows(client, keys, n, error);
}

/* ---- bad deltas ---- */

/* One for each worker that a task may have, and nobody's. */
#define MAX_COUNTS ((uint64_t)CLUSTER_MAX_NODES * CLUSTER_MAX_THREADS + 1)

static size_t find_longest(const Slice *slices, uint32_t n)
{
    size_t longest = 0;

    for (uint32_t i = 0; i < n; i++)
        longest = MAX(longest, slices[i].keys.n);
    return longest;
}

/* Adds a part's counts to those of n workers: rank 0 and so on, and nobody behind them. */
static void add_counts(RubatoBadGradients *sums, size_t n, const BadCounts *counts, size_t n_counts)
{
    for (size_t number = 0; number < n_counts; number++) {
        RubatoBadGradients *sum = &sums[number == 0 ? n - 1 : number - 1];

        sum->worker = bad_gradients_worker((uint32_t)number);
        sum->n_nan += counts[number].n_nan;
        sum->n_infinite += counts[number].n_infinite;
        sum->n_large += counts[number].n_large;
        sum->n_refused_rows += counts[number].n_refused_rows;
    }
}

/* Moves those of which something bad came to the front; how many they are. */
static size_t keep_bad(RubatoBadGradients *sums, size_t n)
{
    size_t n_kept = 0;

    for (size_t i = 0; i < n; i++)
        if (sums[i].n_nan + sums[i].n_infinite + sums[i].n_large > 0)
            sums[n_kept++] = sums[i];
    return n_kept;
}

bool engine_bad_gradients(TableClient *client, RubatoBadGradients **counts, size_t *n,
                          GError **error)
{
    const uint32_t n_parts = client->route->map->n_parts;
    g_autofree Slice *slices = g_new(Slice, n_parts);
    g_autofree void *list = NULL;
    uint64_t n_listed;

    if (!list_all(client, MAX_COUNTS, slices, &list, &n_listed, error))
        return false;
    const size_t n_sums = find_longest(slices, n_parts);
    RubatoBadGradients *sums = g_try_new0(RubatoBadGradients, MAX(n_sums, 1));
    if (sums == NULL)
        return fail_memory(client, n_sums, error);
    for (uint32_t i = 0; i < n_parts; i++)
        add_counts(sums, n_sums, (const BadCounts *)list + slices[i].row, slices[i].keys.n);
    *counts = sums;
    *n = keep_bad(sums, n_sums);
    return true;
}
