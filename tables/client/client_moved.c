/* A client while a part of its table moves. What cannot be sent again waits until the move is over.
 * A Get for which its worker waits is sent again if a server that no longer has the part says so.
 * See tables/part_map.h for the two, and engine/server/server_parts.c for the move.
 *
 * A wait ends with the move, which waits for no worker: each step of a move is done by the thread
 * of a node's engine calls, and by servers. No step waits for a lost node.
 *
 * Threads: the client's worker, or that of the engine's call. */
#include "io/net/stall_clock.h"
#include "tables/client/client_private.h"

/* How long a cancellation may go unnoticed here. */
#define LOOK_MS 20

/* A Get is sent again this often by the same map. A server says CALL_MOVED only while a part moves:
 * then this node's map is closed, and has a greater number when it opens. It has the same number
 * only if the scheduler's node was lost in the middle of the move, which cancels the task. So once
 * is enough; more is a server that is damaged or lies, and the Get fails. */
#define MOST_AGAIN 100

static void say_closed(const TableClient *client, double waited_s)
{
    g_autofree char *who = table_client_name(client);

    g_message("%s waits until table %s takes changes again: a part of it moves to another server, "
              "or it is cut for a snapshot (for %.1f s so far)",
              who, client->route->spec->name, waited_s);
}

/* Waits until the map is open, and counts the time. RUBATO_ERROR_CANCELLED. */
static bool wait_open(TableClient *client, GError **error)
{
    const TableRoute *route = client->route;
    const uint64_t begun_ns = worker_stats_now_ns();
    StallClock clock;
    bool goes_on = true;

    stall_clock_start(&clock, route->stall_ms);
    while (goes_on && !part_map_wait(route->map, LOOK_MS)) {
        goes_on = table_client_check_cancelled(client, error);
        if (goes_on && stall_clock_strikes(&clock))
            say_closed(client, stall_clock_s(&clock));
    }
    client->stats.send_wait_ns += worker_stats_now_ns() - begun_ns;
    return goes_on;
}

bool table_client_begin_slowly(TableClient *client, GError **error)
{
    part_map_end(&client->sender);
    while (!part_map_begin_slowly(client->route->map, &client->sender))
        if (!wait_open(client, error))
            return false;
    return true;
}

bool table_client_may_send_again(TableClient *client, const Call *call, Resending *resending,
                                 GError **error)
{
    const TableRoute *route = client->route;

    /* relaxed: the call has ended, which orders it */
    if (atomic_load_explicit(&call->status, memory_order_relaxed) != CALL_MOVED)
        return false;
    g_clear_error(error);
    if (!table_client_check_cancelled(client, error) || !wait_open(client, error))
        return false;
    if (resending->number != part_map_number(route->map))
        *resending = (Resending){ .number = part_map_number(route->map) };
    if (++resending->n <= MOST_AGAIN)
        return true;
    return table_client_fail_moved(client, call, error);
}
