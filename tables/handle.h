/* What all handles have: the worker's client, and the list of the client's open handles.
 *
 * Threads: the worker's. */
#ifndef RUBATO_TABLES_HANDLE_H
#define RUBATO_TABLES_HANDLE_H

#include "tables/client/client.h"

/* The first member of every handle. */
struct TableHandle {
    TableClient *client; /* NULL: the worker has returned */
    TableHandle *next;   /* the client's */
    bool reads_cache;    /* its Gets go through the process cache, if the table has one */
    bool has_tickets;    /* it has started a request with a ticket */
};

/* Adds the handle to those of the client. All of it but reads_cache is set. */
void table_handle_open(TableHandle *handle, TableClient *client);

/* Waits for the handle's tickets, and takes it from the client. */
void table_handle_close(TableHandle *handle);

/* The worker has returned: waits for the tickets of its open handles, whose clients are gone
 * afterwards. If any had tickets, the log says that it was left open. */
void table_handles_finish(TableClient *client, const char *task);

static inline RubatoKeys table_keys_list(const RubatoKey *keys, size_t n)
{
    static const RubatoKey none;

    return (RubatoKeys){ .keys = keys == NULL ? &none : keys, .n = n };
}

static inline RubatoKeys table_keys_run(RubatoKey first, size_t n)
{
    return (RubatoKeys){ .first = first, .n = n };
}

static inline const RubatoTableSpec *table_handle_spec(const TableHandle *handle)
{
    return handle->client->route->spec;
}

#endif
