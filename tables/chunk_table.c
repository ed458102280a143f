/* RubatoChunkTable: chunks of consecutive keys over the worker's client on a dense table.
 *
 * Chunks that are asked for in a row and lie in a row become one run; others are written out as
 * keys. Either way a call is one request, so under every model all chunks of a call are read at one
 * clock. */
#include <rubato/chunk_table.h>

#include "tables/tickets/ticket.h"
#include "tables/worker.h"

struct RubatoChunkTable {
    TableHandle handle;
    uint64_t n_chunks;
    RubatoKey *keys; /* scratch: the keys of scattered chunks */
};

RubatoChunkTable *rubato_worker_open_chunk_table(RubatoWorker *worker, const char *table,
                                                 RubatoDtype dtype, GError **error)
{
    TableClient *client;
    RubatoChunkTable *opened;
    const RubatoTableSpec *spec;

    g_return_val_if_fail(worker != NULL && table != NULL, NULL);
    client = worker_open_table(worker, table, dtype, error);
    if (client == NULL)
        return NULL;
    spec = client->route->spec;
    if (!client->route->partition->dense) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s has %s storage; chunks need \"dense\"", spec->name, spec->storage);
        return NULL;
    }
    opened = g_new0(RubatoChunkTable, 1);
    table_handle_open(&opened->handle, client, "RubatoChunkTable", "rubato_chunk_table_free()");
    opened->n_chunks =
        spec->n_keys / spec->chunk_size + (spec->n_keys % spec->chunk_size != 0 ? 1 : 0);
    return opened;
}

void rubato_chunk_table_free(RubatoChunkTable *table)
{
    if (table == NULL)
        return;
    table_handle_close(&table->handle);
    g_free(table->keys);
    g_free(table);
}

uint32_t rubato_chunk_table_width(const RubatoChunkTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table_handle_spec(&table->handle)->width;
}

uint64_t rubato_chunk_table_clock_value(const RubatoChunkTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->handle.client->clock;
}

uint64_t rubato_chunk_table_n_chunks(const RubatoChunkTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->n_chunks;
}

uint32_t rubato_chunk_table_chunk_size(const RubatoChunkTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table_handle_spec(&table->handle)->chunk_size;
}

uint32_t rubato_chunk_table_chunk_length(const RubatoChunkTable *table, uint64_t chunk)
{
    g_return_val_if_fail(table != NULL, 0);

    const RubatoTableSpec *spec = table_handle_spec(&table->handle);

    if (chunk >= table->n_chunks)
        return 0;
    return (uint32_t)MIN((uint64_t)spec->chunk_size, spec->n_keys - chunk * spec->chunk_size);
}

/* The keys of the chunks, in *keys as a list or as a run. */
static bool find_keys(RubatoChunkTable *table, const uint64_t *chunks, size_t n, RubatoKeys *keys,
                      GError **error)
{
    const RubatoTableSpec *spec = table_handle_spec(&table->handle);
    bool in_a_row = true;
    size_t n_keys = 0;

    for (size_t i = 0; i < n; i++) {
        if (chunks[i] >= table->n_chunks) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_RANGE,
                        "table %s: chunk %" G_GUINT64_FORMAT " is outside its chunks 0 to "
                        "%" G_GUINT64_FORMAT,
                        spec->name, chunks[i], table->n_chunks - 1);
            return false;
        }
        in_a_row &= i == 0 || chunks[i] == chunks[i - 1] + 1;
        n_keys += rubato_chunk_table_chunk_length(table, chunks[i]);
    }
    *keys = (RubatoKeys){ .n = n_keys };
    if (in_a_row) {
        keys->first = spec->first_key + (n == 0 ? 0 : chunks[0]) * spec->chunk_size;
        return true;
    }
    table->keys = g_renew(RubatoKey, table->keys, n_keys);
    for (size_t i = 0, filled = 0; i < n; i++) {
        const uint32_t length = rubato_chunk_table_chunk_length(table, chunks[i]);

        for (uint32_t k = 0; k < length; k++)
            table->keys[filled++] = spec->first_key + chunks[i] * spec->chunk_size + k;
    }
    keys->keys = table->keys;
    return true;
}

bool rubato_chunk_table_get_chunks(RubatoChunkTable *table, const uint64_t *chunks, size_t n,
                                   void *values, GError **error)
{
    g_return_val_if_fail(table != NULL && (chunks != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);

    RubatoKeys keys;

    if (!find_keys(table, chunks, n, &keys, error))
        return false;
    if (keys.keys == NULL)
        return table_client_get_run(table->handle.client, keys.first, keys.n, values, error);
    return table_client_get(table->handle.client, keys.keys, keys.n, values, error);
}

bool rubato_chunk_table_add_chunks(RubatoChunkTable *table, const uint64_t *chunks, size_t n,
                                   const void *deltas, GError **error)
{
    g_return_val_if_fail(table != NULL && (chunks != NULL || n == 0), false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);

    RubatoKeys keys;

    if (!find_keys(table, chunks, n, &keys, error))
        return false;
    if (keys.keys == NULL)
        return table_client_add_run(table->handle.client, keys.first, keys.n, deltas, error);
    return table_client_add(table->handle.client, keys.keys, keys.n, deltas, error);
}

RubatoTicket rubato_chunk_table_get_chunks_async(RubatoChunkTable *table, const uint64_t *chunks,
                                                 size_t n, void *values,
                                                 const RubatoRequestOptions *options,
                                                 GError **error)
{
    g_return_val_if_fail(table != NULL && (chunks != NULL || n == 0), 0);
    g_return_val_if_fail(values != NULL || n == 0, 0);

    RubatoKeys keys;

    return find_keys(table, chunks, n, &keys, error)
               ? ticket_start(
                     &table->handle,
                     &(TableRequest){
                         .kind = MESSAGE_GET, .keys = keys, .values = values, .copies_keys = true },
                     options, error)
               : 0;
}

RubatoTicket rubato_chunk_table_add_chunks_async(RubatoChunkTable *table, const uint64_t *chunks,
                                                 size_t n, const void *deltas,
                                                 const RubatoRequestOptions *options,
                                                 GError **error)
{
    g_return_val_if_fail(table != NULL && (chunks != NULL || n == 0), 0);
    g_return_val_if_fail(deltas != NULL || n == 0, 0);

    RubatoKeys keys;

    return find_keys(table, chunks, n, &keys, error)
               ? ticket_start(
                     &table->handle,
                     &(TableRequest){
                         .kind = MESSAGE_ADD, .keys = keys, .deltas = deltas, .copies_keys = true },
                     options, error)
               : 0;
}

bool rubato_chunk_table_add_get_chunks(RubatoChunkTable *table, const uint64_t *chunks, size_t n,
                                       const void *deltas, void *values, GError **error)
{
    g_return_val_if_fail(table != NULL && (chunks != NULL || n == 0), false);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, false);

    RubatoKeys keys;

    return find_keys(table, chunks, n, &keys, error) &&
           table_client_add_get(table->handle.client, &keys, deltas, values, error);
}

RubatoTicket rubato_chunk_table_add_get_chunks_async(RubatoChunkTable *table,
                                                     const uint64_t *chunks, size_t n,
                                                     const void *deltas, void *values,
                                                     const RubatoRequestOptions *options,
                                                     GError **error)
{
    g_return_val_if_fail(table != NULL && (chunks != NULL || n == 0), 0);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, 0);

    RubatoKeys keys;

    return find_keys(table, chunks, n, &keys, error)
               ? ticket_start(&table->handle,
                              &(TableRequest){ .kind = MESSAGE_ADD_GET,
                                               .keys = keys,
                                               .deltas = deltas,
                                               .values = values,
                                               .copies_keys = true },
                              options, error)
               : 0;
}

bool rubato_chunk_table_get(RubatoChunkTable *table, const RubatoKey *keys, size_t n, void *values,
                            GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(values != NULL || n == 0, false);
    return table_client_get(table->handle.client, keys, n, values, error);
}

bool rubato_chunk_table_add(RubatoChunkTable *table, const RubatoKey *keys, size_t n,
                            const void *deltas, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail(deltas != NULL || n == 0, false);
    return table_client_add(table->handle.client, keys, n, deltas, error);
}

RubatoTicket rubato_chunk_table_get_async(RubatoChunkTable *table, const RubatoKey *keys, size_t n,
                                          void *values, const RubatoRequestOptions *options,
                                          GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail(values != NULL || n == 0, 0);
    return ticket_get(&table->handle, table_keys_list(keys, n), values, options, error);
}

RubatoTicket rubato_chunk_table_add_async(RubatoChunkTable *table, const RubatoKey *keys, size_t n,
                                          const void *deltas, const RubatoRequestOptions *options,
                                          GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail(deltas != NULL || n == 0, 0);
    return ticket_add(&table->handle, table_keys_list(keys, n), deltas, options, error);
}

bool rubato_chunk_table_add_get(RubatoChunkTable *table, const RubatoKey *keys, size_t n,
                                const void *deltas, void *values, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, false);

    const RubatoKeys all = table_keys_list(keys, n);

    return table_client_add_get(table->handle.client, &all, deltas, values, error);
}

RubatoTicket rubato_chunk_table_add_get_async(RubatoChunkTable *table, const RubatoKey *keys,
                                              size_t n, const void *deltas, void *values,
                                              const RubatoRequestOptions *options, GError **error)
{
    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    g_return_val_if_fail((deltas != NULL && values != NULL) || n == 0, 0);
    return ticket_add_get(&table->handle, table_keys_list(keys, n), deltas, values, options, error);
}

bool rubato_chunk_table_clock(RubatoChunkTable *table, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    return table_client_clock(table->handle.client, error);
}
