/* How a client waits until nodes have room for what it sends.
 *
 * Each node takes in a window of requests from another one. Every wait here ends with room or with
 * a cancellation, and none is silent: after each stall_ms the log says for whom it is.
 *
 * Threads: the client's worker. */
#include <inttypes.h>

#include "io/net/stall_clock.h"
#include "tables/client/client_private.h"

void table_client_append_silence(const PostOffice *office, uint32_t node, GString *text)
{
    if (node == office->self || office->network == NULL)
        return;
    g_string_append_printf(text, ", last heard %.1f s ago",
                           (double)(network_now_ms() - network_heard_ms(office->network, node)) /
                               1000);
}

/* ---- one node ---- */

static bool is_cancelled(void *user)
{
    return table_client_is_cancelled(user);
}

static bool wait_room(TableClient *client, uint32_t node, GError **error)
{
    const TableRoute *route = client->route;
    PostOffice *office = route->office;
    g_autofree char *who = table_client_name(client);
    StallClock clock;

    stall_clock_start(&clock, route->stall_ms);
    while (!network_wait_room(office->network, node, is_cancelled, client,
                              stall_clock_left_ms(&clock))) {
        g_autoptr(GString) text = g_string_new(NULL);

        if (!table_client_check_cancelled(client, error))
            return false;
        if (!stall_clock_strikes(&clock))
            continue;
        table_client_append_silence(office, node, text);
        g_message(
            "%s waits for node %u to take in what was sent to it%s; %" PRIu64
            " bytes of requests are under way to its servers, and more of table %s have to wait "
            "for room (for %.1f s so far)",
            who, office->node_ids[node], text->str, network_charged_bytes(office->network, node),
            route->spec->name, stall_clock_s(&clock));
    }
    return true;
}

bool table_client_wait_room_of(TableClient *client, uint32_t node, GError **error)
{
    const uint64_t begun_ns = worker_stats_now_ns();
    const bool has_room = wait_room(client, node, error);

    client->stats.send_wait_ns += worker_stats_now_ns() - begun_ns;
    if (timeline_is_on(client->route->timeline))
        table_client_note_time(client, "wait for room of", begun_ns, 0);
    return has_room;
}

/* ---- the nodes of a request ---- */

/* What a server of this node gets of its own workers, it passes on to replicas without a wait. */
static bool wait_room_of_replicas(TableClient *client, uint32_t part, GError **error)
{
    const PartMap *map = client->route->map;
    const PostOffice *office = client->route->office;
    bool has_room = true;

    for (uint32_t i = 0; i < map->n_replicas && has_room; i++) {
        const uint32_t node = office->servers[part_map_replica(map, part, i)].node;

        if (node != office->self && !network_has_room(office->network, node))
            has_room = table_client_wait_room_of(client, node, error);
    }
    return has_room;
}

bool table_client_wait_room_of_slices(TableClient *client, const Slice *slices, uint32_t n_slices,
                                      GError **error)
{
    PostOffice *office = client->route->office;
    bool has_room = true;

    for (uint32_t i = 0; i < n_slices && has_room; i++) {
        const uint32_t node = table_route_node(client->route, &slices[i]);

        if (node != office->self && !network_has_room(office->network, node))
            has_room = table_client_wait_room_of(client, node, error);
        else if (node == office->self)
            has_room = wait_room_of_replicas(client, slices[i].part, error);
    }
    return has_room;
}

bool table_client_wait_room_of_all(TableClient *client, GError **error)
{
    const PostOffice *office = client->route->office;
    bool has_room = true;

    for (uint32_t node = 0; office->network != NULL && node < office->n_nodes && has_room; node++)
        if (node != office->self && !network_has_room(office->network, node))
            has_room = table_client_wait_room_of(client, node, error);
    return has_room;
}
