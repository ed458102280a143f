/* Starting a request to a table of ragged rows with a ticket, and what its end does: the answers
 * are written where they belong before the ticket ends.
 *
 * Threads: starting, the worker's; the end, the one that ends the call. */
#include "tables/ragged/ragged_request.h"
#include "tables/tickets/ticket_private.h"

static void end_request(Ticket *ticket)
{
    RaggedRequest *const request = g_steal_pointer(&ticket->request);
    /* relaxed: the call has ended, which orders it */
    const CallStatus status =
        (CallStatus)atomic_load_explicit(&ticket->call.status, memory_order_relaxed);

    if ((status == CALL_OK || status == CALL_FAILED) &&
        !ragged_request_take(request, status, &ticket->failure))
        atomic_store_explicit(&ticket->call.status, CALL_FAILED, memory_order_relaxed);
    else if (ticket->client->history != NULL && ticket->reads && status == CALL_OK)
        ragged_history_note_late(request, ticket->clock, ticket->n_adds);
    ragged_request_free(request);
}

RubatoTicket ticket_start_ragged(TableHandle *handle, const RaggedAsk *ask,
                                 const RubatoRequestOptions *options, GError **error)
{
    TableClient *const client = handle->client;
    Ticket *ticket;
    RubatoTicket id;

    RaggedRequest *const request = ragged_request_new(client, ask, error);
    if (request == NULL)
        return 0;
    ticket = ticket_take_for(client, handle, options, error);
    if (ticket == NULL) {
        ragged_request_free(request);
        return 0;
    }
    ticket->reads = !ask->writes && ask->n > 0;
    ticket->bytes = ragged_request_bytes(request);
    if (!ticket_begin(ticket, error)) {
        ragged_request_free(request);
        ticket_put_back(ticket);
        return 0;
    }
    ticket->request = request;
    ticket->end_request = end_request;
    if (client->history != NULL) { /* before another thread may free the request */
        if (ask->writes)
            ragged_history_note(request, HISTORY_UNTOLD);
        ticket->n_adds = client->history_adds;
    }
    id = ticket_id(ticket);
    call_begin(&ticket->call, ticket_call_ended);
    (void)ragged_request_send(request, &ticket->call, NULL); /* the call has the error */
    call_sent(&ticket->call); /* it may have ended, and be gone for other threads, from here on */
    return id;
}
