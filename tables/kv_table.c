/* RubatoKVTable: the worker's client on a table, and tickets. */
#include <rubato/kv_table.h>

#include "tables/ticket.h"
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

bool rubato_kv_table_get(RubatoKVTable *table, const RubatoKey *keys, size_t n, void *values,
                         GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
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
