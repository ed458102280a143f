/* Lists that a table's servers send: its keys, and the bad deltas that they counted. Each part is
 * asked for the length of its list, then for the list. A length from another node's server is
 * checked against the largest possible one.
 *
 * Threads: any; one client is used by one thread only. */
#include <stdlib.h>

#include "engine/engine_private.h"
#include "models/storage/storage.h"
#include "models/update/bad_gradients.h"
#include "tables/client/client.h"

/* A list that servers send: the request for its length, and the request for its entries. */
typedef struct {
    MessageKind count, list;
    size_t entry_bytes;
    uint64_t longest; /* the longest list that a server may have */
} List;

/* Asks each server for its slice. */
static bool ask(TableClient *client, const TableAsk *ask, const Slice *slices, uint32_t n_slices,
                GError **error)
{
    Call call;

    if (!table_client_wait_room(client, slices, n_slices, error))
        return false;
    call_begin(&call, NULL);
    table_client_send(client, ask, slices, n_slices, &call, client->messages);
    call_sent(&call);
    return table_client_wait(client, &call, error);
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

/* Finds the length of each part's list, and sets slices to these lists. Fails if a list is longer
 * than possible, or if all together are larger than any memory. */
static bool count_entries(TableClient *client, const List *list, Slice *slices, uint64_t *n_entries,
                          GError **error)
{
    const uint32_t n_parts = client->route->map->n_parts;
    const uint64_t most = SIZE_MAX / list->entry_bytes;
    g_autofree uint64_t *lengths = g_new0(uint64_t, n_parts);
    const TableAsk count = { .kind = list->count, .row_bytes = sizeof *lengths, .output = lengths };
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n_parts; i++)
        slices[i] = (Slice){ .part = i, .keys = { .n = 1 }, .row = i };
    if (!ask(client, &count, slices, n_parts, error))
        return false;
    for (uint32_t i = 0; i < n_parts; i++) {
        if (lengths[i] > list->longest || lengths[i] > most - sum)
            return fail_length(client, i, lengths[i], error);
        slices[i] = (Slice){ .part = i, .keys = { .n = (size_t)lengths[i] }, .row = (size_t)sum };
        sum += lengths[i];
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

/* Allocates memory for a list. (transfer full) */
static void *new_list(const TableClient *client, uint64_t n, size_t entry_bytes, GError **error)
{
    void *list =
        n <= SIZE_MAX / entry_bytes ? g_try_malloc_n((size_t)MAX(n, 1), entry_bytes) : NULL;

    if (list == NULL)
        fail_memory(client, n, error);
    return list;
}

/* The lists of all parts, one after the other; slices, one for each part, tell which entries belong
 * to which part. (*entries: transfer full) */
static bool list_all(TableClient *client, const List *list, Slice *slices, void **entries,
                     uint64_t *n_entries, GError **error)
{
    uint64_t n;

    if (!count_entries(client, list, slices, &n, error))
        return false;
    g_autofree void *made = new_list(client, n, list->entry_bytes, error);
    const TableAsk entries_of = { .kind = list->list,
                                  .row_bytes = list->entry_bytes,
                                  .output = made };
    if (made == NULL || !ask(client, &entries_of, slices, client->route->map->n_parts, error))
        return false;
    *entries = g_steal_pointer(&made);
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
    RubatoKey *list = new_list(client, partition->n_keys, sizeof **keys, error);

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
    static const List list = { .count = MESSAGE_COUNT_KEYS,
                               .list = MESSAGE_LIST_KEYS,
                               .entry_bytes = sizeof(RubatoKey),
                               .longest = UINT64_MAX };
    g_autofree Slice *slices = g_new(Slice, client->route->map->n_parts);
    void *entries;
    uint64_t n_rows;

    if (!can_list(client, error) || !list_all(client, &list, slices, &entries, &n_rows, error))
        return false;
    qsort(entries, (size_t)n_rows, sizeof **keys, compare_keys);
    *keys = entries;
    *n = (size_t)n_rows;
    return true;
}

bool engine_list_keys(TableClient *client, RubatoKey **keys, size_t *n, GError **error)
{
    return client->route->partition->dense ? list_range(client, keys, n, error)
                                           : list_rows(client, keys, n, error);
}

/* ---- bad deltas ---- */

/* One for each worker that a task may have, and one for deltas of no worker. */
#define MAX_COUNTS ((uint64_t)CLUSTER_MAX_NODES * CLUSTER_MAX_THREADS + 1)

static size_t find_longest(const Slice *slices, uint32_t n)
{
    size_t longest = 0;

    for (uint32_t i = 0; i < n; i++)
        longest = MAX(longest, slices[i].keys.n);
    return longest;
}

/* Adds a server's counts to those of n workers: ranks from 0, then the count of no worker. */
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

/* Moves the workers that sent bad deltas to the front. Returns their number. */
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
    static const List list = { .count = MESSAGE_COUNT_BAD_GRADIENTS,
                               .list = MESSAGE_LIST_BAD_GRADIENTS,
                               .entry_bytes = sizeof(BadCounts),
                               .longest = MAX_COUNTS };
    const uint32_t n_parts = client->route->map->n_parts;
    g_autofree Slice *slices = g_new(Slice, n_parts);
    g_autofree void *entries = NULL;
    uint64_t n_listed;

    if (!list_all(client, &list, slices, &entries, &n_listed, error))
        return false;
    const size_t n_sums = find_longest(slices, n_parts);
    RubatoBadGradients *sums = g_try_new0(RubatoBadGradients, MAX(n_sums, 1));
    if (sums == NULL)
        return fail_memory(client, n_sums, error);
    for (uint32_t i = 0; i < n_parts; i++)
        add_counts(sums, n_sums, (const BadCounts *)entries + slices[i].row, slices[i].keys.n);
    *counts = sums;
    *n = keep_bad(sums, n_sums);
    return true;
}
