/* RubatoKVTable: the worker's client on a table, and nothing else. */
#include <rubato/kv_table.h>

#include "tables/worker.h"

struct RubatoKVTable {
    TableClient *client;
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
    opened->client = client;
    return opened;
}

void rubato_kv_table_free(RubatoKVTable *table)
{
    g_free(table);
}

uint32_t rubato_kv_table_width(const RubatoKVTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->client->route->spec->width;
}

uint64_t rubato_kv_table_clock_value(const RubatoKVTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->client->clock;
}

bool rubato_kv_table_get(RubatoKVTable *table, const RubatoKey *keys, size_t n, void *values,
                         GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return table_client_get(table->client, keys, n, values, error);
}

bool rubato_kv_table_add(RubatoKVTable *table, const RubatoKey *keys, size_t n, const void *deltas,
                         GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return table_client_add(table->client, keys, n, deltas, error);
}

bool rubato_kv_table_get_range(RubatoKVTable *table, RubatoKey first, size_t n, void *values,
                               GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return table_client_get_run(table->client, first, n, values, error);
}

bool rubato_kv_table_add_range(RubatoKVTable *table, RubatoKey first, size_t n, const void *deltas,
                               GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return table_client_add_run(table->client, first, n, deltas, error);
}

bool rubato_kv_table_clock(RubatoKVTable *table, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    return table_client_clock(table->client, error);
}
