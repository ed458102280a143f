/* Calls of handlers by ticket. The request owns the calls of parts and their answers; slices,
 * messages, and copies of keys and arguments if these are not borrowed, are the ticket's.
 *
 * A call that reads is sent like one that writes, that is, like an Add: the part map does not
 * change until all of the call is posted. So it is never sent again. When the last part has
 * answered, the helper thread makes the result, and ends the ticket.
 *
 * A call that writes makes the process cache forget its rows once it is posted. The servers get it
 * before all that is fetched afterwards.
 *
 * Threads: the worker's; the end, the helper's. */
#include <string.h>

#include "tables/client/client_handlers.h"
#include "tables/process_cache.h"
#include "tables/tickets/ticket_private.h"

/* What a part takes besides its keys and arguments, here and on its server. */
#define BYTES_OF_PART 512

typedef struct {
    Calling calling;
    RubatoHandlerCall asked; /* what calling.asked points to */
    GBytes **result;         /* the caller's; NULL: nobody wants it */
} HandlerRequest;

static void free_request(HandlerRequest *request)
{
    if (request->calling.calls != NULL)
        calling_clear(&request->calling);
    g_free(request->calling.calls);
    g_free(request);
}

static void end_request(Ticket *ticket)
{
    HandlerRequest *const request = g_steal_pointer(&ticket->request);
    /* relaxed: the call has ended, which orders it */
    const CallStatus status =
        (CallStatus)atomic_load_explicit(&ticket->call.status, memory_order_relaxed);

    if ((status == CALL_OK || status == CALL_FAILED) &&
        !calling_take_result(&request->calling, status, request->result, &ticket->failure))
        atomic_store_explicit(&ticket->call.status, CALL_FAILED, memory_order_relaxed);
    free_request(request);
}

/* False: there is no memory. */
static bool copy_buffers(Ticket *ticket, RubatoHandlerCall *asked)
{
    const size_t key_bytes =
        asked->scope == RUBATO_SCOPE_KEYS ? asked->n_keys * sizeof(RubatoKey) : 0;
    const size_t bytes = key_bytes + asked->n_argument_bytes;

    if (bytes == 0)
        return true;
    char *const copy = ticket_prepare_copy(ticket, bytes);
    if (copy == NULL)
        return false;
    if (key_bytes > 0)
        asked->keys = memcpy(copy, asked->keys, key_bytes);
    if (asked->n_argument_bytes > 0)
        asked->arguments = memcpy(copy + key_bytes, asked->arguments, asked->n_argument_bytes);
    return true;
}

/* Cuts the call into its parts. False: there is no memory. */
static bool cut(Ticket *ticket, Calling *calling)
{
    const RubatoHandlerCall *const asked = calling->asked;
    const size_t key_bytes =
        asked->scope == RUBATO_SCOPE_KEYS ? asked->n_keys * sizeof(RubatoKey) : 0;

    ticket_prepare_slicer(ticket);
    calling->slicer = &ticket->slicer;
    if (!calling_cut(calling))
        return false;
    ticket->n_slices = calling->n_slices;
    ticket_prepare_messages(ticket);
    calling->messages = ticket->messages;
    calling->calls = g_new0(HandlerCall, calling->n_slices);
    ticket->bytes = key_bytes + calling->n_slices * (BYTES_OF_PART + asked->n_argument_bytes);
    return true;
}

static void post(Ticket *ticket, Calling *calling)
{
    TableClient *const client = ticket->client;
    const bool writes = calling_writes(calling);
    ProcessCache *const cache = table_route_cache(client->route);

    if (table_client_is_cancelled(client) || !table_client_begin_sending(client, NULL)) {
        call_add_parts(&ticket->call, 1);
        call_end_part(&ticket->call, CALL_CANCELLED, UINT64_MAX);
        return;
    }
    if (writes)
        client->adds_uncached |= cache == NULL;
    calling_post(calling, &ticket->call,
                 writes ? 0 : table_client_clock_to_bring(client, ticket->is_high));
    table_client_end_sending(client);
    if (!writes)
        return;
    calling_count_write(calling);
    if (cache != NULL)
        process_cache_forget(cache);
}

/* It will be done, unless its task fails. What a call reads is not told. */
static void note(const Calling *calling)
{
    if (calling->client->history != NULL && calling_writes(calling))
        table_client_note_handler(calling->client, calling->asked, calling->number, NULL,
                                  /* is_done= */ true);
}

/* Waits for room, then lets the ticket be under way. */
static bool begin(Ticket *ticket, const Calling *calling, GError **error)
{
    return (!calling_writes(calling) || table_client_wait_to_add(ticket->client, error)) &&
           ticket_wait_room(ticket, error) && ticket_begin(ticket, error);
}

/* Prepares the ticket and its request; then the ticket is under way. */
static bool prepare(Ticket *ticket, HandlerRequest *request, RubatoBuffers buffers, GError **error)
{
    Calling *const calling = &request->calling;

    ticket->is_high = calling->is_high;
    ticket->reads = !calling_writes(calling);
    ticket->handler = calling->ops->name;
    if ((buffers == RUBATO_BUFFERS_COPIED && !copy_buffers(ticket, &request->asked)) ||
        !cut(ticket, calling))
        return table_client_fail_memory(ticket->client, error);
    return begin(ticket, calling, error);
}

/* The call goes on without its ticket, which ends at once. */
static RubatoTicket start_kept(const HandlerRequest *request, const RubatoRequestOptions *options,
                               GError **error)
{
    const Calling *const calling = &request->calling;
    Ticket *const ticket = ticket_take_for(calling->client, NULL, options, error);

    if (ticket == NULL)
        return 0;
    ticket->reads = false;
    ticket->bytes = 0;
    ticket->n_slices = 0;
    if (!calling_keep(calling, error) || !ticket_begin(ticket, error)) {
        ticket_put_back(ticket);
        return 0;
    }
    note(calling);
    if (request->result != NULL)
        *request->result = g_bytes_new(NULL, 0);
    const RubatoTicket id = ticket_id(ticket);
    call_begin(&ticket->call, ticket_call_ended);
    call_sent(&ticket->call); /* it may have ended, and be gone for other threads, from here on */
    return id;
}

RubatoTicket ticket_start_handler(TableClient *client, const RubatoHandlerCall *asked,
                                  GBytes **result, const RubatoRequestOptions *options,
                                  GError **error)
{
    static const RubatoRequestOptions usual = { 0 };
    const RubatoRequestOptions *const given = options != NULL ? options : &usual;
    HandlerRequest *const request = g_new0(HandlerRequest, 1);
    Ticket *ticket = NULL;

    request->asked = *asked;
    request->result = result;
    request->calling = (Calling){ .client = client,
                                  .asked = &request->asked,
                                  .is_high = table_client_is_high(client, given->priority) };
    const bool ok = calling_check(&request->calling, error);
    if (ok && calling_is_kept(&request->calling)) {
        const RubatoTicket id = start_kept(request, given, error);

        free_request(request);
        return id;
    }
    if (ok)
        ticket = ticket_take_for(client, NULL, given, error);
    if (ticket != NULL && !prepare(ticket, request, given->buffers, error)) {
        ticket_put_back(ticket);
        ticket = NULL;
    }
    if (ticket == NULL) {
        free_request(request);
        return 0;
    }
    ticket->request = request;
    ticket->end_request = end_request;
    ticket->ends_on_helper = true;
    note(&request->calling);
    const RubatoTicket id = ticket_id(ticket);
    call_begin(&ticket->call, ticket_call_ended);
    post(ticket, &request->calling);
    call_sent(&ticket->call); /* it may have ended, and be gone for other threads, from here on */
    return id;
}
