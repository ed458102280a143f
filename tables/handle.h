/* What all handles have: the worker's client, and the list of the client's open handles.
 *
 * Threads: the worker's. */
#ifndef RUBATO_TABLES_HANDLE_H
#define RUBATO_TABLES_HANDLE_H

#include "tables/client/client.h"

/* The first member of every handle. */
struct TableHandle {
    TableClient *client;   /* NULL: the worker has returned */
    TableHandle *next;     /* the client's */
    bool reads_cache;      /* its Gets go through the process cache, if the table has one */
    bool has_tickets;      /* it has started a request with a ticket */
    const char *type;      /* for the log: "RubatoKVTable"; static */
    const char *free_call; /* that frees it, for the log, too */
};

/* Adds the handle to those of the client. All of it but reads_cache is set. */
void table_handle_open(TableHandle *handle, TableClient *client, const char *type,
                       const char *free_call);

/* Waits for the handle's tickets, and takes it from the client. */
void table_handle_close(TableHandle *handle);

/* The worker has returned: waits for the tickets of its open handles, whose clients are gone
 * afterwards. The log names the table, the worker, and the call that it has left out. */
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
