/* Handles: their opening and closing. */
#include "tables/handle.h"

#include "tables/ticket.h"

void table_handle_open(TableHandle *handle, TableClient *client)
{
    handle->client = client;
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

void table_handles_finish(TableClient *client, const char *task)
{
    bool had_tickets = false;

    for (const TableHandle *handle = client->handles; handle != NULL; handle = handle->next)
        had_tickets |= handle->has_tickets;
    if (had_tickets)
        g_warning("worker %u of task %s has returned with an open handle on table %s; free it "
                  "before, for its tickets end later than the worker's function otherwise",
                  client->rank, task, client->route->spec->name);
    while (client->handles != NULL) {
        TableHandle *const handle = client->handles;

        wait_for_tickets(handle);
        client->handles = handle->next;
        handle->client = NULL;
    }
}
