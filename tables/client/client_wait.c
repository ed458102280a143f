/* How a client waits for a call to end, and how it ended. Waiting for room: client_room.c.
 *
 * Every wait ends with an answer, a refusal or a cancellation, and none is silent: after each
 * stall_ms the log says for whom it is.
 *
 * Threads: the client's worker; table_client_check_status any. */
#include "io/net/stall_clock.h"
#include "tables/client/client_private.h"

/* ---- how a call ended ---- */

char *table_client_name(const TableClient *client)
{
    return client->route->clocks == NULL ? g_strdup("the engine")
                                         : g_strdup_printf("worker %u", client->rank);
}

bool table_client_fail_owner(const TableClient *client, GError **error)
{
    const char *table = client->route->spec->name;

    if (client->n_forks != caller_n_forks())
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: its handle belongs to the process that this one was forked from; "
                    "nothing of an engine works in a forked process",
                    table);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s: the handle of worker %u is used by another thread; each worker "
                    "opens its own",
                    table, client->rank);
    return false;
}

bool table_client_fail_memory(const TableClient *client, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                "table %s: there is no memory for what a request needs, on this node or on a "
                "server's; a slice of the request may have been done",
                client->route->spec->name);
    return false;
}

/* The server of a node that was lost may have done it, or not. */
static bool fail_lost(const TableClient *client, uint32_t node, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                "table %s: node %u was lost before it answered a call of a handler; call again",
                client->route->spec->name, client->route->office->node_ids[node]);
    return false;
}

bool table_client_fail_moved(const TableClient *client, const Call *call, GError **error)
{
    const TableRoute *route = client->route;
    /* relaxed: the call has ended, which orders it */
    const uint32_t mover = atomic_load_explicit(&call->mover, memory_order_relaxed);

    if ((mover & CALL_MOVER_LOST) != 0)
        return fail_lost(client, mover & ~CALL_MOVER_LOST, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "table %s: node %u says that its server does not have a part, and part map %u "
                "gives the part to that server; end the run, for that node's memory or program is "
                "damaged",
                route->spec->name, route->office->node_ids[mover], part_map_number(route->map));
    return false;
}

bool table_client_check_call(const TableClient *client, const Call *call, GError **error)
{
    /* relaxed: the call has ended, which orders it */
    const CallStatus status = (CallStatus)atomic_load_explicit(&call->status, memory_order_relaxed);

    return status == CALL_MOVED ? table_client_fail_moved(client, call, error)
                                : table_client_check_status(client, status, error);
}

bool table_client_check_status(const TableClient *client, CallStatus status, GError **error)
{
    switch (status) {
    case CALL_OK:
        return true;
    case CALL_FAILED: /* who called the handler knows more */
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_HANDLER, "table %s: a handler failed",
                    client->route->spec->name);
        return false;
    case CALL_CANCELLED:
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "table %s: the task was cancelled",
                    client->route->spec->name);
        return false;
    case CALL_NO_MEMORY:
        table_client_fail_memory(client, error);
        return false;
    case CALL_MOVED: /* table_client_check_call knows more */
    case CALL_REFUSED:
        break;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: a server refused the request; the log of its node says why",
                client->route->spec->name);
    return false;
}

/* ---- waiting for a call, and saying for whom ---- */

/* The handler that the worker has called, and those that servers run: those of this node now,
 * others for some time. One of them may never end. */
static void append_handlers(const TableClient *client, GString *text)
{
    const PostOffice *office = client->route->office;

    if (client->handler != NULL)
        g_string_append_printf(text, ", whose handler %s it has called", client->handler);
    for (uint32_t i = 0; i < office->n_servers; i++) {
        /* relaxed: for this text alone */
        const char *name = atomic_load_explicit(&office->servers[i].handler, memory_order_relaxed);

        if (name != NULL && post_office_is_local(office, i))
            g_string_append_printf(text, "; server %u runs handler %s", i, name);
        else if (name != NULL)
            g_string_append_printf(text, "; server %u (node %u) runs handler %s", i,
                                   office->node_ids[office->servers[i].node], name);
    }
}

/* A Get waits for a clock if the slowest worker is behind the clock that the model asks for;
 * otherwise it waits for an answer that is late for another reason. */
void table_client_say_stalled(TableClient *client, const Call *call, double waited_s)
{
    const TableRoute *route = client->route;
    const char *table = route->spec->name;
    PostOffice *office = route->office;
    const uint64_t needed = client->awaited;
    g_autofree char *who = table_client_name(client);
    g_autoptr(GString) text = g_string_new(NULL);
    NodeClock slowest;
    uint32_t node = office->self;

    g_string_append_printf(text, "%s waits for ", who);
    if (route->clocks != NULL && clocks_slowest(route->clocks, &slowest, &node) &&
        slowest.clock < needed)
        g_string_append_printf(text,
                               "clock %" G_GUINT64_FORMAT
                               " of table %s; slowest is worker %u (node %u) at %" G_GUINT64_FORMAT,
                               needed, table, slowest.slowest, office->node_ids[node],
                               slowest.clock);
    else if (call == NULL)
        g_string_append_printf(
            text, "answers to what it has asked of table %s, before it asks for more", table);
    else if (post_office_waits_for(office, call, &node))
        g_string_append_printf(text, "an answer of node %u about table %s", office->node_ids[node],
                               table);
    else if (call->is_remote)
        g_string_append_printf(text,
                               "a server of its own node to answer about table %s, or another node "
                               "to take in the values that it was sent",
                               table);
    else
        g_string_append_printf(text, "a server of its own node to answer about table %s", table);
    table_client_append_silence(office, node, text);
    append_handlers(client, text);
    g_message("%s (for %.1f s so far)", text->str, waited_s);
}

/* Under a model that speculates, a Get may be answered before the min clock has reached that
 * clock. */
void table_client_report_wait(const TableClient *client)
{
    const TableRoute *route = client->route;
    const uint64_t spared = route->traits->takes_announcements ? route->spec->speculation : 0;

    if (route->report_wait != NULL && client->awaited > spared)
        route->report_wait(route->run, client->rank, route->table, client->awaited - spared);
}

/* Logs now and then for whom it waits. */
static void wait_long(TableClient *client, Call *call,
                      bool (*wait)(PostOffice *office, Call *call, int timeout_ms),
                      int64_t begun_ms)
{
    PostOffice *office = client->route->office;
    StallClock clock;

    stall_clock_start_at(&clock, client->route->stall_ms, begun_ms);
    if (wait(office, call, (int)MIN(TABLE_CLIENT_REPORT_MS, clock.stall_ms)))
        return;
    table_client_report_wait(client);
    while (!wait(office, call, stall_clock_left_ms(&clock)))
        if (stall_clock_strikes(&clock)) {
            table_client_report_wait(client); /* its collectives may have gone on meanwhile */
            table_client_say_stalled(client, call, stall_clock_s(&clock));
        }
}

/* Time is measured only if there is something to wait for. */
static void wait_and_count(TableClient *client, Call *call,
                           bool (*wait)(PostOffice *office, Call *call, int timeout_ms),
                           uint64_t *waited_ns)
{
    uint64_t begun_ns;

    if (call_has_ended(call))
        return;
    begun_ns = worker_stats_now_ns();
    wait_long(client, call, wait, (int64_t)(begun_ns / 1000000));
    *waited_ns += worker_stats_now_ns() - begun_ns;
    table_client_note_wait(client, client->awaited, begun_ns);
}

void table_client_wait_ended(TableClient *client, Call *call, uint64_t needed, uint64_t *waited_ns)
{
    client->awaited = needed;
    wait_and_count(client, call, post_office_wait, waited_ns);
}

static bool wait_by(TableClient *client, Call *call,
                    bool (*wait)(PostOffice *office, Call *call, int timeout_ms),
                    uint64_t *waited_ns, GError **error)
{
    wait_and_count(client, call, wait, waited_ns);
    return table_client_check_call(client, call, error);
}

bool table_client_fail_cancelled(const TableClient *client, GError **error)
{
    return table_client_check_status(client, CALL_CANCELLED, error);
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
