/* RubatoKVTable: the worker's client on a table, tickets, and reads through the process cache. */
#include <rubato/kv_table.h>

#include "tables/process_cache.h"
#include "tables/tickets/ticket.h"
#include "tables/worker.h"

struct RubatoKVTable {
    TableHandle handle;
};

RubatoKVTable *rubato_worker_open_kv_table(RubatoWorker *worker, const char *table,
                                           RubatoDtype dtype, GError **error)
{
    TableClient *client;
    RubatoKVTable *opened;

    g_return_val_if_fail(worker != NULL && table != NULL, NULL);
    client = worker_open_table(worker, table, dtype, error);
    if (client == NULL)
        return NULL;
    opened = g_new0(RubatoKVTable, 1);
    table_handle_open(&opened->handle, client, "RubatoKVTable", "rubato_kv_table_free()");
    return opened;
}

/* The first handle that may use the cache makes it. If two make one at the same time, the second
 * one is freed. */
static void ensure_cache(TableRoute *route, Actor *helper)
{
    ProcessCache *none = NULL, *made;

    if (!route->traits->rows_may_be_cached || route->spec->cache == RUBATO_CACHE_NONE ||
        route->repeats || /* an Add to a cached row would show it twice */
        table_route_cache(route) != NULL)
        return;
    if (route->spec->cache == RUBATO_CACHE_REMOTE && route->office->network == NULL)
        return;
    made = process_cache_new(route, helper);
    /* release: with the acquire in table_route_cache */
    if (!atomic_compare_exchange_strong_explicit(&route->cache, &none, made, memory_order_acq_rel,
                                                 memory_order_acquire))
        process_cache_free(made);
}

RubatoKVTable *rubato_worker_open_kv_table_cached(RubatoWorker *worker, const char *table,
                                                  RubatoDtype dtype, GError **error)
{
    RubatoKVTable *opened = rubato_worker_open_kv_table(worker, table, dtype, error);
    TableClient *client;
    ProcessCache *cache;

    if (opened == NULL)
        return NULL;
    client = opened->handle.client;
    ensure_cache((TableRoute *)(uintptr_t)client->route, worker->helper);
    cache = table_route_cache(client->route);
    if (cache != NULL && client->adds_uncached) { /* cached rows may lack them */
        process_cache_forget(cache);
        client->adds_uncached = false;
    }
    opened->handle.reads_cache = true;
    return opened;
}

void rubato_kv_table_free(RubatoKVTable *table)
{
    if (table == NULL)
        return;
    table_handle_close(&table->handle);
    g_free(table);
}

uint32_t rubato_kv_table_width(const RubatoKVTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->handle.client->route->spec->width;
}

uint64_t rubato_kv_table_clock_value(const RubatoKVTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->handle.client->clock;
}

/* A Get of a table that has a cache; apart, so that other Gets save no registers for it. */
static G_NO_INLINE bool get_cached(TableClient *client, const RubatoKey *keys, size_t n,
                                   void *values, GError **error)
{
    const uint64_t begun_ns = table_client_time(client);
    uint32_t n_slices;
    Call call;

    if (!table_client_check(client, keys, n, error))
        return false;
    if (n == 0)
        return true;
    n_slices = slicer_cut(&client->slicer, client->route->partition, keys, n);
    if (n_slices == SLICER_NO_MEMORY)
        return table_client_fail_memory(client, error);
    if (!table_client_wait_room(client, client->slicer.slices, n_slices, error))
        return false;
    const TableAsk ask = { .kind = MESSAGE_GET,
                           .row_bytes = client->route->row_bytes,
                           .output = values };

    call_begin(&call, NULL);
    process_cache_send_get(client, &ask, client->slicer.slices, n_slices, &call, client->messages);
    call_sent(&call);
    if (!table_client_wait(client, &call, error))
        return false;
    table_client_count_get(client, &call);
    if (client->history != NULL)
        table_client_note_get(client, &(RubatoKeys){ .keys = keys, .n = n }, values);
    table_client_note_time(client, "Get", begun_ns, n);
    return true;
}

bool rubato_kv_table_get(RubatoKVTable *table, const RubatoKey *keys, size_t n, void *values,
                         GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    if (G_UNLIKELY(table->handle.reads_cache) &&
        table_route_cache(table->handle.client->route) != NULL)
        return get_cached(table->handle.client, keys, n, values, error);
    return table_client_get(table->handle.client, keys, n, values, error);
}

bool rubato_kv_table_add(RubatoKVTable *table, const RubatoKey *keys, size_t n, const void *deltas,
                         GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return table_client_add(table->handle.client, keys, n, deltas, error);
}

RubatoTicket rubato_kv_table_get_async(RubatoKVTable *table, const RubatoKey *keys, size_t n,
                                       void *values, const RubatoRequestOptions *options,
                                       GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail(values != NULL || n == 0, 0);
    return ticket_get(&table->handle, table_keys_list(keys, n), values, options, error);
}

RubatoTicket rubato_kv_table_add_async(RubatoKVTable *table, const RubatoKey *keys, size_t n,
                                       const void *deltas, const RubatoRequestOptions *options,
                                       GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail(deltas != NULL || n == 0, 0);
    return ticket_add(&table->handle, table_keys_list(keys, n), deltas, options, error);
}

bool rubato_kv_table_get_range(RubatoKVTable *table, RubatoKey first, size_t n, void *values,
                               GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return table_client_get_run(table->handle.client, first, n, values, error);
}

bool rubato_kv_table_add_range(RubatoKVTable *table, RubatoKey first, size_t n, const void *deltas,
                               GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return table_client_add_run(table->handle.client, first, n, deltas, error);
}

RubatoTicket rubato_kv_table_get_range_async(RubatoKVTable *table, RubatoKey first, size_t n,
                                             void *values, const RubatoRequestOptions *options,
                                             GError **error)
{
    g_return_val_if_fail(table != NULL, 0);
    g_return_val_if_fail(values != NULL || n == 0, 0);
    return ticket_get(&table->handle, table_keys_run(first, n), values, options, error);
}

RubatoTicket rubato_kv_table_add_range_async(RubatoKVTable *table, RubatoKey first, size_t n,
                                             const void *deltas,
                                             const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(table != NULL, 0);
    g_return_val_if_fail(deltas != NULL || n == 0, 0);
    return ticket_add(&table->handle, table_keys_run(first, n), deltas, options, error);
}

bool rubato_kv_table_add_get(RubatoKVTable *table, const RubatoKey *keys, size_t n,
                             const void *deltas, void *values, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, false);

    const RubatoKeys all = table_keys_list(keys, n);

    return table_client_add_get(table->handle.client, &all, deltas, values, error);
}

RubatoTicket rubato_kv_table_add_get_async(RubatoKVTable *table, const RubatoKey *keys, size_t n,
                                           const void *deltas, void *values,
                                           const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, 0);
    return ticket_add_get(&table->handle, table_keys_list(keys, n), deltas, values, options, error);
}

bool rubato_kv_table_add_get_range(RubatoKVTable *table, RubatoKey first, size_t n,
                                   const void *deltas, void *values, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, false);

    const RubatoKeys all = table_keys_run(first, n);

    return table_client_add_get(table->handle.client, &all, deltas, values, error);
}

RubatoTicket rubato_kv_table_add_get_range_async(RubatoKVTable *table, RubatoKey first, size_t n,
                                                 const void *deltas, void *values,
                                                 const RubatoRequestOptions *options,
                                                 GError **error)
{
    g_return_val_if_fail(table != NULL, 0);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, 0);
    return ticket_add_get(&table->handle, table_keys_run(first, n), deltas, values, options, error);
}

bool rubato_kv_table_clock(RubatoKVTable *table, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    return table_client_clock(table->handle.client, error);
}
