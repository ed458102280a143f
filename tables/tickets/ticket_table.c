/* What tickets of requests to tables do that others do not: how their worker waits for a call and
 * says so, and what is counted.
 *
 * Threads: as TicketOps says. */
#include "tables/tickets/ticket_private.h"

/* The min clock for which the request waits; 0: none. */
static uint64_t needed_clock(const Ticket *ticket)
{
    const uint64_t lead = ticket->client->lead;

    return ticket->reads && ticket->clock > lead ? ticket->clock - lead : 0;
}

static void wait_for_call(Ticket *ticket)
{
    TableClient *client = ticket->client;

    client->handler = ticket->handler;
    table_client_wait_ended(client, &ticket->call, needed_clock(ticket),
                            ticket->reads ? &client->stats.get_wait_ns
                                          : &client->stats.send_wait_ns);
    client->handler = NULL;
}

/* A worker that waits until a deadline is in no deadlock. */
static void begin_any(const Ticket *ticket, bool is_for_ever)
{
    ticket->client->awaited = needed_clock(ticket);
    if (is_for_ever)
        table_client_report_wait(ticket->client);
}

static void say_stalled(const Ticket *ticket, double waited_s)
{
    table_client_say_stalled(ticket->client, NULL, waited_s);
}

static void say_helper(const Ticket *ticket, double waited_s)
{
    g_message("worker %u waits for the helper thread, which ends a request to table %s (for %.1f s "
              "so far)",
              ticket->client->rank, ticket->client->route->spec->name, waited_s);
}

static void count_wait(const Ticket *ticket, uint64_t waited_ns)
{
    ticket->client->stats.get_wait_ns += waited_ns;
}

static void count(const Ticket *ticket, CallStatus status)
{
    if (G_UNLIKELY(ticket->begun_ns != 0))
        table_client_note_ticket(ticket->client, ticket->reads ? "Get" : "Add", ticket_id(ticket),
                                 ticket->begun_ns, ticket->n_keys);
    if (ticket->reads && status == CALL_OK)
        table_client_count_late_get(ticket->client, ticket->clock, &ticket->call);
}

static void release(Ticket *ticket)
{
    ticket->client->ticket_bytes -= ticket->bytes;
}

static bool check(const Ticket *ticket, CallStatus status, GError **error)
{
    return status == CALL_MOVED ? table_client_check_call(ticket->client, &ticket->call, error)
                                : table_client_check_status(ticket->client, status, error);
}

const TicketOps ticket_table_ops = {
    .wait = wait_for_call,
    .begin_any = begin_any,
    .say_stalled = say_stalled,
    .say_helper = say_helper,
    .count_wait = count_wait,
    .count = count,
    .release = release,
    .check = check,
};
