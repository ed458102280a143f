/* Handles: their opening and closing. */
#include "tables/handle.h"

#include "tables/tickets/ticket.h"

void table_handle_open(TableHandle *handle, TableClient *client, const char *type,
                       const char *free_call)
{
    handle->client = client;
    handle->type = type;
    handle->free_call = free_call;
    handle->next = client->handles;
    handle->has_tickets = false;
    client->handles = handle;
}

/* In a forked process nobody would end the tickets. */
static void wait_for_tickets(TableHandle *handle)
{
    if (handle->has_tickets && handle->client->n_forks == caller_n_forks())
        tickets_wait_for_handle(handle->client->tickets, handle);
}

void table_handle_close(TableHandle *handle)
{
    TableClient *client = handle->client;
    TableHandle **at;

    if (client == NULL)
        return;
    wait_for_tickets(handle);
    for (at = &client->handles; *at != handle; at = &(*at)->next)
        ;
    *at = handle->next;
    handle->client = NULL;
}

/* One line for all open handles on a table, because a loop may have left many. */
static void warn_of_open_handles(const TableClient *client, const char *task)
{
    const TableHandle *const last = client->handles;
    bool had_tickets = false;
    unsigned n_handles = 0;

    for (const TableHandle *handle = last; handle != NULL; handle = handle->next) {
        had_tickets |= handle->has_tickets;
        n_handles++;
    }
    if (n_handles == 0)
        return;
    g_autofree char *how_many =
        n_handles == 1 ? g_strdup("an open handle") : g_strdup_printf("%u open handles", n_handles);
    g_warning("worker %u of task %s has returned with %s on table %s; call %s before, or declare "
              "the handle g_autoptr(%s)%s",
              client->rank, task, how_many, client->route->spec->name, last->free_call, last->type,
              had_tickets ? "; its tickets end later than the worker's function otherwise" : "");
}

void table_handles_finish(TableClient *client, const char *task)
{
    warn_of_open_handles(client, task);
    while (client->handles != NULL) {
        TableHandle *const handle = client->handles;

        wait_for_tickets(handle);
        client->handles = handle->next;
        handle->client = NULL;
    }
}
