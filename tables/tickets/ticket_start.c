/* Starting a request with a ticket: the ticket owns the slices and the messages, and copies of keys
 * and deltas if these are not borrowed.
 *
 * Thread: the worker's. */
#include <string.h>

#include "io/net/stall_clock.h"
#include "tables/process_cache.h"
#include "tables/tickets/ticket_private.h"

/* What a slice takes besides its keys and rows, here and on its server. */
#define BYTES_OF_ASKING 512

/* The largest request that goes past a full window, and how many windows may be full then: twice as
 * many as a call that is sent in pieces fills. */
#define MOST_HIGH_BYTES ((size_t)64 << 10)
#define HIGH_WINDOWS 32

char *ticket_prepare_copy(Ticket *ticket, size_t bytes)
{
    if (bytes > ticket->copy_bytes) {
        g_free(ticket->copy);
        ticket->copy = g_try_malloc(bytes);
        ticket->copy_bytes = ticket->copy == NULL ? 0 : bytes;
    }
    return ticket->copy;
}

/* Points the request at copies of its keys and deltas. False: there is no memory. */
static bool copy_buffers(Ticket *ticket, TableRequest *request, size_t row_bytes, bool copies_rows)
{
    RubatoKeys *keys = &request->keys;
    const size_t key_bytes = keys->keys == NULL ? 0 : keys->n * sizeof(RubatoKey);
    const size_t input_bytes = copies_rows && request->deltas != NULL ? keys->n * row_bytes : 0;
    const size_t bytes = key_bytes + input_bytes;

    if (bytes > 0 && ticket_prepare_copy(ticket, bytes) == NULL)
        return false;
    if (key_bytes > 0) {
        memcpy(ticket->copy, keys->keys, key_bytes);
        keys->keys = (const RubatoKey *)(void *)ticket->copy;
    }
    if (input_bytes > 0) {
        memcpy(ticket->copy + key_bytes, request->deltas, input_bytes);
        request->deltas = ticket->copy + key_bytes;
    }
    return true;
}

void ticket_prepare_slicer(Ticket *ticket)
{
    const Partition *const partition = ticket->client->route->partition;

    if (ticket->partition == partition)
        return;
    ticket_drop_slicer(ticket);
    slicer_init(&ticket->slicer, partition);
    ticket->partition = partition;
}

void ticket_prepare_messages(Ticket *ticket)
{
    if (ticket->n_slices <= ticket->n_messages)
        return;
    ticket->messages = g_renew(Message, ticket->messages, ticket->n_slices);
    ticket->n_messages = ticket->n_slices;
}

/* Cuts the keys into slices, each with a message. False: there is no memory. */
static bool cut(Ticket *ticket, const RubatoKeys *keys)
{
    ticket_prepare_slicer(ticket);
    ticket->n_slices = slicer_cut_keys(&ticket->slicer, ticket->partition, keys);
    if (ticket->n_slices == SLICER_NO_MEMORY)
        return false;
    ticket_prepare_messages(ticket);
    return true;
}

/* What counts of a request in client->ticket_bytes. */
static size_t count_bytes(const Ticket *ticket, const TableRequest *request)
{
    const TableRoute *route = ticket->client->route;
    const bool adds = request->kind != MESSAGE_GET;
    size_t bytes = 0;

    for (uint32_t i = 0; i < ticket->n_slices; i++) {
        const Slice *slice = &ticket->slicer.slices[i];

        if (adds || !table_route_is_local(route, slice))
            bytes += BYTES_OF_ASKING + slice->keys.n * (sizeof(RubatoKey) + route->row_bytes);
    }
    return bytes;
}

/* Whether a request of high priority need not wait for the windows of its nodes, which large pushes
 * fill: it is small, and far less is under way than its receiver takes (TAKEN_WINDOWS in
 * network.c). */
static bool goes_past_window(const Ticket *ticket)
{
    const TableRoute *route = ticket->client->route;
    const PostOffice *office = route->office;

    if (!ticket->is_high || office->network == NULL || ticket->bytes > MOST_HIGH_BYTES)
        return false;
    for (uint32_t i = 0; i < ticket->n_slices; i++) {
        const uint32_t node = table_route_node(route, &ticket->slicer.slices[i]);

        if (node != office->self && network_is_full(office->network, node, HIGH_WINDOWS))
            return false;
    }
    return true;
}

/* Waits until less than FlowSizes.ticket_bytes are under way; the lock is held. Each ticket is
 * answered or cancelled, so this ends. */
static void wait_for_less(Tickets *tickets, TableClient *client)
{
    const TableRoute *route = client->route;
    const uint64_t begun_ns = worker_stats_now_ns();
    StallClock clock;

    stall_clock_start(&clock, route->stall_ms);
    client->awaited = table_client_needed_clock(client);
    while (client->ticket_bytes >= route->office->sizes.ticket_bytes)
        if (stall_clock_wait(&clock, &tickets->changed, &tickets->lock) &&
            client->ticket_bytes >= route->office->sizes.ticket_bytes)
            table_client_say_stalled(client, NULL, stall_clock_s(&clock));
    client->stats.get_wait_ns += worker_stats_now_ns() - begun_ns;
}

void tickets_wait_for_client(TableClient *client)
{
    Tickets *const tickets = client->tickets;
    const uint64_t begun_ns = worker_stats_now_ns();
    StallClock clock;

    stall_clock_start(&clock, client->route->stall_ms);
    client->awaited = table_client_needed_clock(client);
    pthread_mutex_lock(&tickets->lock);
    while (client->ticket_bytes > 0)
        if (stall_clock_wait(&clock, &tickets->changed, &tickets->lock) && client->ticket_bytes > 0)
            table_client_say_stalled(client, NULL, stall_clock_s(&clock));
    pthread_mutex_unlock(&tickets->lock);
    client->stats.get_wait_ns += worker_stats_now_ns() - begun_ns;
}

bool ticket_wait_room(Ticket *ticket, GError **error)
{
    return goes_past_window(ticket) ||
           table_client_wait_room(ticket->client, ticket->slicer.slices, ticket->n_slices, error);
}

bool ticket_begin(Ticket *ticket, GError **error)
{
    Tickets *tickets = ticket->tickets;
    TableClient *client = ticket->client;

    pthread_mutex_lock(&tickets->lock);
    if (ticket->bytes > 0 && client->ticket_bytes >= client->route->office->sizes.ticket_bytes)
        wait_for_less(tickets, client);
    const bool goes_on = table_client_check_cancelled(client, error);
    if (goes_on) {
        client->ticket_bytes += ticket->bytes;
        ticket_set_under_way(ticket);
    }
    pthread_mutex_unlock(&tickets->lock);
    return goes_on;
}

/* Waits for room, then lets the ticket be under way. RUBATO_ERROR_CANCELLED. */
static bool begin(Ticket *ticket, const TableRequest *request, GError **error)
{
    if (request->kind != MESSAGE_GET && request->keys.n > 0 &&
        !table_client_wait_to_add(ticket->client, error))
        return false;
    ticket->bytes = count_bytes(ticket, request);
    return ticket_wait_room(ticket, error) && ticket_begin(ticket, error);
}

static void send_add(Ticket *ticket, const TableRequest *request)
{
    const TableAsk ask = { .kind = request->kind,
                           .row_bytes = ticket->client->route->row_bytes,
                           .is_high = ticket->is_high,
                           .input = request->deltas,
                           .output = request->values };

    table_client_send_add(ticket->client, &ask, &request->keys, ticket->n_slices,
                          ticket->slicer.slices, &ticket->call, ticket->messages);
}

static void send_get(Ticket *ticket, const TableRequest *request)
{
    TableClient *client = ticket->client;
    const TableAsk ask = { .kind = MESSAGE_GET,
                           .row_bytes = client->route->row_bytes,
                           .is_high = ticket->is_high,
                           .output = request->values };

    if (ticket->handle->reads_cache)
        process_cache_send_get(client, &ask, ticket->slicer.slices, ticket->n_slices, &ticket->call,
                               ticket->messages);
    else
        table_client_send(client, &ask, ticket->slicer.slices, ticket->n_slices, &ticket->call,
                          ticket->messages);
}

/* For the history, before a callback that may use the rows for something else. */
static void note_rows(Ticket *ticket)
{
    /* relaxed: the call has ended, which orders it */
    if (atomic_load_explicit(&ticket->call.status, memory_order_relaxed) == CALL_OK)
        table_client_note_late_get(ticket->client, ticket->clock, ticket->n_adds, &ticket->keys,
                                   ticket->values);
}

static RubatoTicket fail_memory(Ticket *ticket, const TableClient *client, GError **error)
{
    ticket_put_back(ticket);
    table_client_fail_memory(client, error);
    return 0;
}

Ticket *ticket_take_for(TableClient *client, TableHandle *handle,
                        const RubatoRequestOptions *options, GError **error)
{
    Ticket *const ticket = ticket_take(client->tickets);

    if (ticket == NULL) {
        table_client_fail_memory(client, error);
        return NULL;
    }
    if (handle != NULL)
        handle->has_tickets = true;
    ticket->ops = &ticket_table_ops;
    ticket->stall_ms = client->route->stall_ms;
    ticket->handle = handle;
    ticket->client = client;
    ticket->callback = options == NULL ? NULL : options->callback;
    ticket->user_data = options == NULL ? NULL : options->user_data;
    ticket->clock = client->clock;
    ticket->end_request = NULL;
    ticket->ends_on_helper = false;
    ticket->handler = NULL;
    ticket->is_high = false;
    ticket->begun_ns = 0;
    return ticket;
}

RubatoTicket ticket_start(TableHandle *handle, const TableRequest *asked,
                          const RubatoRequestOptions *options, GError **error)
{
    static const RubatoRequestOptions usual = { 0 };
    TableClient *client = handle->client;
    TableRequest request = *asked;
    RubatoTicket id;
    Ticket *ticket;

    if (options == NULL)
        options = &usual;
    if (!table_client_check_keys(client, &request.keys, error))
        return 0;
    ticket = ticket_take_for(client, handle, options, error);
    if (ticket == NULL)
        return 0;
    ticket->is_high = table_client_is_high(client, options->priority);
    ticket->reads = request.kind != MESSAGE_ADD && request.keys.n > 0;
    const bool copies = options->buffers == RUBATO_BUFFERS_COPIED;
    if (((copies || request.copies_keys) &&
         !copy_buffers(ticket, &request, client->route->row_bytes, copies)) ||
        !cut(ticket, &request.keys))
        return fail_memory(ticket, client, error);
    if (!begin(ticket, &request, error)) {
        ticket_put_back(ticket);
        return 0;
    }
    if (client->history != NULL) {
        if (request.kind != MESSAGE_GET && request.keys.n > 0)
            table_client_note_add(client, &request.keys, request.deltas, /* is_done= */ true);
        ticket->keys = request.keys;
        ticket->values = request.values;
        ticket->n_adds = client->history_adds;
        ticket->end_request = ticket->reads ? note_rows : NULL;
    }
    id = ticket_id(ticket);
    ticket->begun_ns = table_client_time(client);
    ticket->n_keys = request.keys.n;
    call_begin(&ticket->call, ticket_call_ended);
    if (request.keys.n > 0 && request.kind == MESSAGE_GET)
        send_get(ticket, &request);
    else if (request.keys.n > 0)
        send_add(ticket, &request);
    call_sent(&ticket->call); /* it may have ended, and be gone for other threads, from here on */
    return id;
}
