/* How a client waits, for a call to end or for room to send more, and how a call ended.
 *
 * Every wait ends with an answer, a refusal or a cancellation, and none is silent: after each
 * stall_ms the log says for whom it is.
 *
 * Threads: the client's worker; table_client_check_status any. */
#include "tables/client_private.h"

/* ---- how a call ended ---- */

bool table_client_fail_memory(const TableClient *client, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: there is no memory for what a request needs, on this node or on a "
                "server's; a part of the request may have been done",
                client->route->spec->name);
    return false;
}

bool table_client_check_status(const TableClient *client, CallStatus status, GError **error)
{
    switch (status) {
    case CALL_OK:
        return true;
    case CALL_CANCELLED:
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "table %s: the task was cancelled",
                    client->route->spec->name);
        return false;
    case CALL_NO_MEMORY:
        table_client_fail_memory(client, error);
        return false;
    case CALL_REFUSED:
        break;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: a server refused the request; the log of its node says why",
                client->route->spec->name);
    return false;
}

/* ---- waiting for a call, and saying for whom ---- */

static void append_silence(const PostOffice *office, uint32_t node, GString *text)
{
    if (node == office->self || office->network == NULL)
        return;
    g_string_append_printf(text, ", last heard %.1f s ago",
                           (double)(network_now_ms() - network_heard_ms(office->network, node)) /
                               1000);
}

/* A Get waits for a clock where the slowest worker is behind what the model asks for; otherwise for
 * an answer that is late for another reason. */
void table_client_say_stalled(TableClient *client, const Call *call, unsigned waited_ms)
{
    const TableRoute *route = client->route;
    const char *table = route->spec->name;
    PostOffice *office = route->office;
    const uint64_t needed = client->awaited;
    g_autoptr(GString) text = g_string_new(NULL);
    NodeClock slowest;
    uint32_t node = office->self;

    if (route->clocks == NULL)
        g_string_append(text, "the engine waits for ");
    else
        g_string_append_printf(text, "worker %u waits for ", client->rank);
    if (route->clocks != NULL && clocks_slowest(route->clocks, &slowest, &node) &&
        slowest.clock < needed)
        g_string_append_printf(text,
                               "clock %" G_GUINT64_FORMAT
                               " of table %s; slowest is worker %u (node %u) at %" G_GUINT64_FORMAT,
                               needed, table, slowest.slowest, office->node_ids[node],
                               slowest.clock);
    else if (post_office_waits_for(office, call, &node))
        g_string_append_printf(text, "an answer of node %u about table %s", office->node_ids[node],
                               table);
    else
        g_string_append_printf(text, "a server of its own node to answer about table %s", table);
    append_silence(office, node, text);
    g_message("%s (for %.1f s so far)", text->str, (double)waited_ms / 1000);
}

/* Time is taken only where there is something to wait for. */
static bool wait_by(TableClient *client, Call *call,
                    bool (*wait)(PostOffice *office, Call *call, int timeout_ms),
                    uint64_t *waited_ns, GError **error)
{
    const uint32_t stall_ms = client->route->stall_ms;

    if (!call_has_ended(call)) {
        const uint64_t begun_ns = worker_stats_now_ns();

        for (unsigned waited_ms = 0; !wait(client->route->office, call, (int)stall_ms);) {
            waited_ms += stall_ms;
            table_client_say_stalled(client, call, waited_ms);
        }
        *waited_ns += worker_stats_now_ns() - begun_ns;
    }
    return table_client_check_status(
        client, (CallStatus)atomic_load_explicit(&call->status, memory_order_relaxed), error);
}

bool table_client_wait(TableClient *client, Call *call, GError **error)
{
    client->awaited = table_client_needed_clock(client);
    return wait_by(client, call, post_office_wait, &client->stats.get_wait_ns, error);
}

bool table_client_wait_clock(TableClient *client, Call *call, uint64_t clock, GError **error)
{
    client->awaited = clock;
    return wait_by(client, call, post_office_wait, &client->stats.send_wait_ns, error);
}

static bool wait_only(PostOffice *office, Call *call, int timeout_ms)
{
    (void)office;
    return call_wait(call, timeout_ms);
}

bool table_client_wait_alone(TableClient *client, Call *call, GError **error)
{
    client->awaited = 0;
    return wait_by(client, call, wait_only, &client->stats.send_wait_ns, error);
}

/* ---- waiting for room ---- */

static bool is_cancelled(void *user)
{
    return table_client_is_cancelled(user);
}

static bool wait_room(TableClient *client, uint32_t node, GError **error)
{
    const TableRoute *route = client->route;
    PostOffice *office = route->office;
    unsigned waited_ms = 0;

    while (!network_wait_room(office->network, node, is_cancelled, client, (int)route->stall_ms)) {
        g_autoptr(GString) text = g_string_new(NULL);

        if (!table_client_check_cancelled(client, error))
            return false;
        waited_ms += route->stall_ms;
        append_silence(office, node, text);
        g_message("worker %u waits for node %u to take in what was sent to it%s (for %.1f s so "
                  "far)",
                  client->rank, office->node_ids[node], text->str, (double)waited_ms / 1000);
    }
    return true;
}

bool table_client_wait_room_of(TableClient *client, uint32_t node, GError **error)
{
    const uint64_t begun_ns = worker_stats_now_ns();
    const bool has_room = wait_room(client, node, error);

    client->stats.send_wait_ns += worker_stats_now_ns() - begun_ns;
    return has_room;
}
