/* Tickets for requests to something else than a table. See ticket.h.
 *
 * Thread: the worker's. */
#include "tables/tickets/ticket_private.h"

/* ---- waiting ---- */

static void wait_for_call(Ticket *ticket)
{
    if (!call_has_ended(&ticket->call))
        ticket->outside.wait(ticket->outside.server, &ticket->call);
}

static void say_stalled(const Ticket *ticket, double waited_s)
{
    ticket->outside.say_stalled(ticket->outside.server, &ticket->call, waited_s);
}

/* What is left after the call is a callback. */
static void say_helper(const Ticket *ticket, double waited_s)
{
    (void)ticket;
    g_message("a worker waits for the helper thread, which runs callbacks (for %.1f s so far)",
              waited_s);
}

/* All that fails has a failure. */
static bool check(const Ticket *ticket, CallStatus status, GError **error)
{
    (void)ticket;
    (void)error;
    return status == CALL_OK;
}

static const TicketOps outside_ops = {
    .wait = wait_for_call,
    .say_stalled = say_stalled,
    .say_helper = say_helper,
    .check = check,
};

void ticket_note_failure(const Ticket *ticket, const GError *failure)
{
    if (ticket->ops == &outside_ops && ticket->outside.note_failure != NULL)
        ticket->outside.note_failure(ticket->outside.server, failure);
}

/* ---- starting and ending ---- */

/* On the thread that ends the call. */
static void end_outside(Ticket *ticket)
{
    ticket->failure = ticket->outside.end(ticket->outside.request);
}

RubatoTicket ticket_start_outside(Tickets *tickets, const TicketOutside *outside,
                                  const RubatoRequestOptions *options, Call **call, GError **error)
{
    Ticket *const ticket = ticket_take(tickets);

    if (ticket == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "too many requests are under way; wait for some of them");
        return 0;
    }
    ticket->ops = &outside_ops;
    ticket->stall_ms = outside->stall_ms;
    ticket->handle = NULL;
    ticket->client = NULL;
    ticket->outside = *outside;
    ticket->callback = options == NULL ? NULL : options->callback;
    ticket->user_data = options == NULL ? NULL : options->user_data;
    ticket->reads = false;
    ticket->is_high = false;
    ticket->ends_on_helper = false;
    ticket->end_request = end_outside;
    ticket->handler = NULL;
    ticket->bytes = 0;
    ticket->n_slices = 0;
    pthread_mutex_lock(&tickets->lock);
    ticket_set_under_way(ticket);
    pthread_mutex_unlock(&tickets->lock);
    call_begin(&ticket->call, ticket_call_ended);
    call_add_parts(&ticket->call, 1);
    *call = &ticket->call;
    return ticket_id(ticket);
}

void ticket_cancel_outside(Call *call)
{
    Ticket *const ticket = (Ticket *)call;

    ticket->end_request = NULL;
    ticket_put_back(ticket);
}
