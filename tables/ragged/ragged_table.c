/* RubatoRaggedTable: the worker's client on a table whose rows have different lengths, and
 * tickets. */
#include <rubato/ragged_table.h>

#include "tables/ragged/ragged_request.h"
#include "tables/tickets/ticket.h"
#include "tables/worker.h"

struct RubatoRaggedTable {
    TableHandle handle;
};

RubatoRaggedTable *rubato_worker_open_ragged_table(RubatoWorker *worker, const char *table,
                                                   RubatoDtype dtype, GError **error)
{
    TableClient *client;
    RubatoRaggedTable *opened;

    g_return_val_if_fail(worker != NULL && table != NULL, NULL);
    client = worker_open_shape(worker, table, dtype, RUBATO_SHAPE_RAGGED, error);
    if (client == NULL)
        return NULL;
    opened = g_new0(RubatoRaggedTable, 1);
    table_handle_open(&opened->handle, client, "RubatoRaggedTable", "rubato_ragged_table_free()");
    return opened;
}

void rubato_ragged_table_free(RubatoRaggedTable *table)
{
    if (table == NULL)
        return;
    table_handle_close(&table->handle);
    g_free(table);
}

uint64_t rubato_ragged_table_clock_value(const RubatoRaggedTable *table)
{
    g_return_val_if_fail(table != NULL, 0);
    return table->handle.client->clock;
}

bool rubato_ragged_table_clock(RubatoRaggedTable *table, GError **error)
{
    g_return_val_if_fail(table != NULL, false);
    return table_client_clock(table->handle.client, error);
}

/* ---- what is asked ---- */

static RaggedAsk ask_lengths(const RubatoKey *keys, size_t n, uint32_t *lengths)
{
    return (RaggedAsk){ .name = "ragged.lengths", .keys = keys, .n = n, .lengths = lengths };
}

static RaggedAsk ask_get(const RubatoKey *keys, size_t n, uint32_t *lengths, void **values)
{
    return (RaggedAsk){
        .name = "ragged.get", .keys = keys, .n = n, .lengths = lengths, .taken = values
    };
}

static RaggedAsk ask_get_into(const RubatoKey *keys, size_t n, uint32_t *lengths, void *values,
                              size_t n_values)
{
    return (RaggedAsk){ .name = "ragged.get",
                        .keys = keys,
                        .n = n,
                        .lengths = lengths,
                        .into = values,
                        .n_room = n_values,
                        .fills = true };
}

static RaggedAsk ask_write(const char *name, const RubatoKey *keys, size_t n,
                           const uint32_t *lengths, const void *values)
{
    return (RaggedAsk){ .name = name,
                        .writes = true,
                        .keys = keys,
                        .n = n,
                        .given_lengths = lengths,
                        .given = values };
}

static RaggedAsk ask_add(const RubatoKey *keys, size_t n, const uint32_t *lengths,
                         const void *deltas)
{
    RaggedAsk ask = ask_write("ragged.add", keys, n, lengths, deltas);

    ask.is_whole = true;
    return ask;
}

static RaggedAsk ask_assign(const RubatoKey *keys, size_t n, const uint32_t *lengths,
                            const void *values)
{
    return ask_write("ragged.assign", keys, n, lengths, values);
}

static RaggedAsk ask_append(const RubatoKey *keys, size_t n, const uint32_t *lengths,
                            const void *values)
{
    return ask_write("ragged.append", keys, n, lengths, values);
}

static RaggedAsk ask_erase(const RubatoKey *keys, size_t n)
{
    return ask_write("ragged.erase", keys, n, NULL, NULL);
}

/* ---- with a wait ---- */

bool rubato_ragged_table_lengths(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                                 uint32_t *lengths, GError **error)
{
    const RaggedAsk ask = ask_lengths(keys, n, lengths);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), false);
    return ragged_request_run(table->handle.client, &ask, error);
}

bool rubato_ragged_table_get(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                             uint32_t *lengths, void **values, GError **error)
{
    const RaggedAsk ask = ask_get(keys, n, lengths, values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), false);
    g_return_val_if_fail(values != NULL, false);
    return ragged_request_run(table->handle.client, &ask, error);
}

bool rubato_ragged_table_get_into(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                                  uint32_t *lengths, void *values, size_t n_values, GError **error)
{
    const RaggedAsk ask = ask_get_into(keys, n, lengths, values, n_values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), false);
    g_return_val_if_fail(values != NULL || n_values == 0, false);
    return ragged_request_run(table->handle.client, &ask, error);
}

bool rubato_ragged_table_add(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                             const uint32_t *lengths, const void *deltas, GError **error)
{
    const RaggedAsk ask = ask_add(keys, n, lengths, deltas);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), false);
    return ragged_request_run(table->handle.client, &ask, error);
}

bool rubato_ragged_table_assign(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                                const uint32_t *lengths, const void *values, GError **error)
{
    const RaggedAsk ask = ask_assign(keys, n, lengths, values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), false);
    return ragged_request_run(table->handle.client, &ask, error);
}

bool rubato_ragged_table_append(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                                const uint32_t *lengths, const void *values, GError **error)
{
    const RaggedAsk ask = ask_append(keys, n, lengths, values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), false);
    return ragged_request_run(table->handle.client, &ask, error);
}

bool rubato_ragged_table_erase(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                               GError **error)
{
    const RaggedAsk ask = ask_erase(keys, n);

    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), false);
    return ragged_request_run(table->handle.client, &ask, error);
}

/* ---- with a ticket ---- */

RubatoTicket rubato_ragged_table_lengths_async(RubatoRaggedTable *table, const RubatoKey *keys,
                                               size_t n, uint32_t *lengths,
                                               const RubatoRequestOptions *options, GError **error)
{
    const RaggedAsk ask = ask_lengths(keys, n, lengths);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), 0);
    return ticket_start_ragged(&table->handle, &ask, options, error);
}

RubatoTicket rubato_ragged_table_get_async(RubatoRaggedTable *table, const RubatoKey *keys,
                                           size_t n, uint32_t *lengths, void **values,
                                           const RubatoRequestOptions *options, GError **error)
{
    const RaggedAsk ask = ask_get(keys, n, lengths, values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), 0);
    g_return_val_if_fail(values != NULL, 0);
    return ticket_start_ragged(&table->handle, &ask, options, error);
}

RubatoTicket rubato_ragged_table_get_into_async(RubatoRaggedTable *table, const RubatoKey *keys,
                                                size_t n, uint32_t *lengths, void *values,
                                                size_t n_values,
                                                const RubatoRequestOptions *options, GError **error)
{
    const RaggedAsk ask = ask_get_into(keys, n, lengths, values, n_values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), 0);
    g_return_val_if_fail(values != NULL || n_values == 0, 0);
    return ticket_start_ragged(&table->handle, &ask, options, error);
}

RubatoTicket rubato_ragged_table_add_async(RubatoRaggedTable *table, const RubatoKey *keys,
                                           size_t n, const uint32_t *lengths, const void *deltas,
                                           const RubatoRequestOptions *options, GError **error)
{
    const RaggedAsk ask = ask_add(keys, n, lengths, deltas);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), 0);
    return ticket_start_ragged(&table->handle, &ask, options, error);
}

RubatoTicket rubato_ragged_table_assign_async(RubatoRaggedTable *table, const RubatoKey *keys,
                                              size_t n, const uint32_t *lengths, const void *values,
                                              const RubatoRequestOptions *options, GError **error)
{
    const RaggedAsk ask = ask_assign(keys, n, lengths, values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), 0);
    return ticket_start_ragged(&table->handle, &ask, options, error);
}

RubatoTicket rubato_ragged_table_append_async(RubatoRaggedTable *table, const RubatoKey *keys,
                                              size_t n, const uint32_t *lengths, const void *values,
                                              const RubatoRequestOptions *options, GError **error)
{
    const RaggedAsk ask = ask_append(keys, n, lengths, values);

    g_return_val_if_fail(table != NULL && ((keys != NULL && lengths != NULL) || n == 0), 0);
    return ticket_start_ragged(&table->handle, &ask, options, error);
}

RubatoTicket rubato_ragged_table_erase_async(RubatoRaggedTable *table, const RubatoKey *keys,
                                             size_t n, const RubatoRequestOptions *options,
                                             GError **error)
{
    const RaggedAsk ask = ask_erase(keys, n);

    g_return_val_if_fail(table != NULL && (keys != NULL || n == 0), 0);
    return ticket_start_ragged(&table->handle, &ask, options, error);
}
