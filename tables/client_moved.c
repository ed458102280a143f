/* Fences for what a client has sent while parts moved. Such a message may be late: on its way to a
 * server that no longer has the part. That server passes it on. What the client sends next, by the
 * newer map, must not overtake it. So the client sends a fence for the part and waits for it. The
 * client does not know any more which server had the part when it looked. So it asks all servers.
 * Each server that has had the part passes the fence on, behind the message that came before. See
 * engine/server/server_parts.c.
 *
 * Parts move between servers of one process alone. So all of them are here, and each answers.
 *
 * Threads: the client's worker. */
#include "tables/client_private.h"

void table_client_fence_slices(TableClient *client, const Slice *slices, uint32_t n_slices)
{
    const TableRoute *route = client->route;
    const uint32_t n_servers = route->office->n_servers;
    g_autofree Message *fences = g_new0(Message, (size_t)n_slices * n_servers);
    Message *fence = fences;
    Call call;

    call_begin(&call, NULL);
    call_add_parts(&call, n_slices * n_servers);
    for (uint32_t i = 0; i < n_slices; i++)
        for (uint32_t server = 0; server < n_servers; server++, fence++) {
            *fence = (Message){ .kind = MESSAGE_FENCE,
                                .epoch = route->epoch,
                                .table = route->table,
                                .part = slices[i].part,
                                .server = server,
                                .node = route->office->self,
                                .call = &call,
                                .end = message_end_call };
            post_office_ask(route->office, fence);
        }
    call_sent(&call);
    call_wait(&call, -1);
}

void table_client_end_sending_to_all(TableClient *client, uint32_t number)
{
    const uint32_t n_parts = client->route->map->n_parts;

    if (G_LIKELY(part_map_number(client->route->map) == number))
        return;
    for (uint32_t part = 0; part < n_parts; part++)
        table_client_fence_slices(client, &(Slice){ .part = part }, 1);
}
