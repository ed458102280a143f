/* Tickets: requests for which their worker does not wait.
 *
 * DESIGN NOTE
 *
 * A ticket has a slot in its worker's list. Its id is the slot and the request's number, so an id
 * never names a later request. Only the worker starts requests. Hence a slot that the worker
 * waits for is not used again meanwhile, and the ticket's memory stays.
 *
 * The call of a ticket may end on any thread. With a callback, or if functions of the application
 * make its result, it goes on to the helper thread, which calls them. Then the ticket ends, under
 * the lock: with success its slot is free at once, so requests that nobody waits for leave nothing
 * behind; what failed stays until somebody asks. The thread that ends a ticket uses neither the
 * ticket nor the list afterwards, because the worker may free both.
 *
 * What is under way is bounded. A worker may have FlowSizes.ticket_bytes of unanswered requests on
 * a table; with more it first waits for some. Adds count, and Gets from other nodes. Gets from
 * local servers do not count: they take no memory but the ticket's own.
 *
 * A worker that waits for a ticket without a callback waits for its call, so it may receive the
 * answer itself (network_help.c). It then still waits for the thread that ends the ticket, which
 * has nothing left to do but that.
 *
 * Threads: see the header. */
#include "tables/ticket_private.h"

#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

enum {
    NUMBER_BITS = 40,
    MOST_SLOTS = 1 << (64 - NUMBER_BITS),
    MOST_FREE = 256,           /* tickets, with the memory of their last request, */
    MOST_FREE_BYTES = 4 << 10, /* as far as its copies were not larger, */
    MOST_FREE_KEYS = 1 << 10,  /* and its keys were not more */
};

#define NO_DEADLINE INT64_MAX

Tickets *tickets_new(Actor *helper)
{
    Tickets *tickets = g_new0(Tickets, 1);

    tickets->helper = helper;
    tickets->slots = g_ptr_array_new();
    tickets->empty = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    pthread_mutex_init(&tickets->lock, NULL);
    monotonic_cond_init(&tickets->changed);
    return tickets;
}

/* ---- the memory of a ticket ---- */

void ticket_drop_slicer(Ticket *ticket)
{
    if (ticket->partition != NULL)
        slicer_clear(&ticket->slicer);
    ticket->partition = NULL;
}

static void drop_memory(Ticket *ticket)
{
    ticket_drop_slicer(ticket);
    g_clear_error(&ticket->failure); /* nobody has asked for it */
    g_clear_pointer(&ticket->messages, g_free);
    g_clear_pointer(&ticket->copy, g_free);
    ticket->n_messages = 0;
    ticket->copy_bytes = 0;
}

/* The request is over: keeps what the next one can use. */
static void trim_memory(Ticket *ticket)
{
    if (ticket->copy_bytes > MOST_FREE_BYTES) {
        g_clear_pointer(&ticket->copy, g_free);
        ticket->copy_bytes = 0;
    }
    if (ticket->slicer.capacity > MOST_FREE_KEYS)
        ticket_drop_slicer(ticket);
}

static void free_ticket(Ticket *ticket)
{
    if (ticket == NULL)
        return;
    drop_memory(ticket);
    g_free(ticket);
}

void tickets_free(Tickets *tickets)
{
    if (tickets == NULL)
        return;
    for (guint i = 0; i < tickets->slots->len; i++)
        free_ticket(g_ptr_array_index(tickets->slots, i));
    g_array_unref(tickets->empty);
    g_ptr_array_unref(tickets->slots);
    pthread_cond_destroy(&tickets->changed);
    pthread_mutex_destroy(&tickets->lock);
    g_free(tickets);
}

/* ---- the end of a ticket ---- */

/* The lock is held. */
static void free_slot(Ticket *ticket)
{
    Tickets *tickets = ticket->tickets;

    trim_memory(ticket);
    ticket->state = TICKET_FREE;
    ticket->next_free = tickets->free;
    tickets->free = ticket;
    tickets->n_free++;
}

static CallStatus status_of(Ticket *ticket)
{
    /* relaxed: the call has ended, which orders it */
    return (CallStatus)atomic_load_explicit(&ticket->call.status, memory_order_relaxed);
}

static void end_ticket(Ticket *ticket)
{
    Tickets *tickets = ticket->tickets;
    const CallStatus status = status_of(ticket);

    if (ticket->reads && status == CALL_OK)
        table_client_count_late_get(ticket->client, ticket->clock, &ticket->call);
    pthread_mutex_lock(&tickets->lock);
    if (ticket->client != NULL)
        ticket->client->ticket_bytes -= ticket->bytes;
    if (status == CALL_OK) {
        free_slot(ticket);
    } else {
        ticket->status = status;
        ticket->state = TICKET_FAILED;
    }
    pthread_cond_broadcast(&tickets->changed);
    pthread_mutex_unlock(&tickets->lock);
}

RubatoTicket ticket_id(const Ticket *ticket)
{
    return (uint64_t)ticket->slot << NUMBER_BITS | ticket->number;
}

static uint64_t number_of(RubatoTicket id)
{
    return id & (((uint64_t)1 << NUMBER_BITS) - 1);
}

/* Sets the error with which a ticket ended: its failure, which goes with this, or the one that the
 * status stands for. True if it ended without one. client NULL: all that fails has a failure. */
static bool check_end(const TableClient *client, CallStatus status, GError *failure, GError **error)
{
    if (failure == NULL)
        return status == CALL_OK || table_client_check_status(client, status, error);
    g_propagate_error(error, failure);
    return false;
}

static void call_back(const Ticket *ticket, CallStatus status)
{
    g_autoptr(GError) error = NULL;

    check_end(ticket->client, status,
              ticket->failure == NULL ? NULL : g_error_copy(ticket->failure), &error);
    ticket->callback(ticket_id(ticket), error, ticket->user_data);
}

/* The helper thread. */
static void end_on_helper(Message *message, void *helper)
{
    Ticket *ticket = (Ticket *)((char *)message - offsetof(Ticket, to_helper));

    (void)helper;
    caller_place = CALLER_IN_CALLBACK;
    if (ticket->ends_on_helper)
        ticket->end_request(ticket);
    if (ticket->callback != NULL)
        call_back(ticket, status_of(ticket));
    caller_place = CALLER_OUTSIDE;
    end_ticket(ticket);
}

void ticket_call_ended(Call *call)
{
    Ticket *ticket = (Ticket *)call;

    if (ticket->ends_on_helper) {
        actor_post(ticket->tickets->helper, &ticket->to_helper);
        return;
    }
    if (ticket->end_request != NULL)
        ticket->end_request(ticket);
    /* before the callback, which may use the rows for something else */
    else if (ticket->reads && ticket->client->history != NULL && status_of(ticket) == CALL_OK)
        table_client_note_late_get(ticket->client, ticket->clock, ticket->n_adds, &ticket->keys,
                                   ticket->values);
    if (ticket->callback != NULL)
        actor_post(ticket->tickets->helper, &ticket->to_helper);
    else
        end_ticket(ticket);
}

/* ---- tickets for requests ---- */

static Ticket *pop_free(Tickets *tickets)
{
    Ticket *ticket = tickets->free;

    if (ticket != NULL) {
        tickets->free = ticket->next_free;
        tickets->n_free--;
    }
    return ticket;
}

/* After many requests at once. The worker does this, because it waits for no ticket now. */
static void free_surplus(Tickets *tickets)
{
    while (tickets->n_free > MOST_FREE) {
        Ticket *ticket = pop_free(tickets);

        g_ptr_array_index(tickets->slots, ticket->slot) = NULL;
        g_array_append_val(tickets->empty, ticket->slot);
        free_ticket(ticket);
    }
}

/* NULL if all slots are used. */
static Ticket *new_ticket(Tickets *tickets)
{
    const bool has_empty = tickets->empty->len > 0;
    Ticket *ticket;

    if (!has_empty && tickets->slots->len == MOST_SLOTS)
        return NULL;
    ticket = g_new0(Ticket, 1);
    ticket->tickets = tickets;
    ticket->to_helper = (Message){ .kind = MESSAGE_INVOKE, .invoke = end_on_helper };
    if (has_empty) {
        ticket->slot = g_array_index(tickets->empty, uint32_t, tickets->empty->len - 1);
        g_array_set_size(tickets->empty, tickets->empty->len - 1);
        g_ptr_array_index(tickets->slots, ticket->slot) = ticket;
    } else {
        ticket->slot = tickets->slots->len;
        g_ptr_array_add(tickets->slots, ticket);
    }
    return ticket;
}

Ticket *ticket_take(Tickets *tickets)
{
    Ticket *ticket;

    pthread_mutex_lock(&tickets->lock);
    free_surplus(tickets);
    ticket = tickets->free != NULL ? pop_free(tickets) : new_ticket(tickets);
    pthread_mutex_unlock(&tickets->lock);
    return ticket;
}

void ticket_set_under_way(Ticket *ticket)
{
    ticket->number = ++ticket->tickets->n_started;
    ticket->state = TICKET_UNDER_WAY;
}

void ticket_put_back(Ticket *ticket)
{
    Tickets *tickets = ticket->tickets;

    pthread_mutex_lock(&tickets->lock);
    free_slot(ticket);
    pthread_mutex_unlock(&tickets->lock);
}

/* ---- waiting ---- */

static bool fail_unknown(RubatoTicket id, uint32_t rank, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "worker %u: ticket %" G_GUINT64_FORMAT " was never given out", rank, id);
    return false;
}

/* The ticket that an id names, if it is under way or has failed; else NULL. The lock is held. */
static Ticket *find(const Tickets *tickets, RubatoTicket id)
{
    const uint64_t slot = id >> NUMBER_BITS;
    Ticket *ticket = slot < tickets->slots->len ? g_ptr_array_index(tickets->slots, slot) : NULL;

    return ticket != NULL && ticket->state != TICKET_FREE && ticket_id(ticket) == id ? ticket
                                                                                     : NULL;
}

/* Whether an id was ever given out; the lock is held. */
static bool is_known(const Tickets *tickets, RubatoTicket id)
{
    const uint64_t number = number_of(id);

    return number > 0 && number <= tickets->n_started && id >> NUMBER_BITS < tickets->slots->len;
}

/* Waits until a ticket that was under way has ended, and logs now and then for whom it waits. The
 * lock is not held. */
static void await_table(Ticket *ticket)
{
    Tickets *tickets = ticket->tickets;
    TableClient *client = ticket->client;
    const uint64_t needed =
        ticket->reads && ticket->clock > client->lead ? ticket->clock - client->lead : 0;
    StallClock clock;

    client->handler = ticket->handler;
    table_client_wait_ended(client, &ticket->call, needed,
                            ticket->reads ? &client->stats.get_wait_ns
                                          : &client->stats.send_wait_ns);
    client->handler = NULL;
    stall_clock_start(&clock, client->route->stall_ms);
    pthread_mutex_lock(&tickets->lock);
    while (ticket->state == TICKET_UNDER_WAY)
        if (stall_clock_wait(&clock, &tickets->changed, &tickets->lock) &&
            ticket->state == TICKET_UNDER_WAY)
            g_message(
                "worker %u waits for the helper thread, which ends a request to table %s (for "
                "%.1f s so far)",
                client->rank, client->route->spec->name, stall_clock_s(&clock));
    pthread_mutex_unlock(&tickets->lock);
}

/* The same for a request to something else. What is left after its call is a callback. */
static void await_outside(Ticket *ticket)
{
    Tickets *tickets = ticket->tickets;
    StallClock clock;

    if (!call_has_ended(&ticket->call))
        ticket->outside.wait(ticket->outside.server, &ticket->call);
    stall_clock_start(&clock, ticket->outside.stall_ms);
    pthread_mutex_lock(&tickets->lock);
    while (ticket->state == TICKET_UNDER_WAY)
        if (stall_clock_wait(&clock, &tickets->changed, &tickets->lock) &&
            ticket->state == TICKET_UNDER_WAY)
            g_message("a worker waits for the helper thread, which runs callbacks (for %.1f s so "
                      "far)",
                      stall_clock_s(&clock));
    pthread_mutex_unlock(&tickets->lock);
}

static void await(Ticket *ticket)
{
    if (ticket->client == NULL)
        await_outside(ticket);
    else
        await_table(ticket);
}

/* How a ticket has ended, which is told once. */
static CallStatus take_status(Ticket *ticket, GError **failure)
{
    Tickets *tickets = ticket->tickets;
    CallStatus status = CALL_OK;

    pthread_mutex_lock(&tickets->lock);
    if (ticket->state == TICKET_FAILED) {
        status = ticket->status;
        *failure = g_steal_pointer(&ticket->failure);
        free_slot(ticket);
    }
    pthread_mutex_unlock(&tickets->lock);
    return status;
}

/* Waits for a ticket if it is still under way. The worker alone starts requests, so the ticket's
 * slot stays its own. */
static bool wait_for(Ticket *ticket, TicketState state, GError **error)
{
    const TableClient *client = ticket->client;
    GError *failure = NULL;

    if (state == TICKET_UNDER_WAY)
        await(ticket);
    const CallStatus status = take_status(ticket, &failure);

    return check_end(client, status, failure, error);
}

bool tickets_wait(Tickets *tickets, uint32_t rank, RubatoTicket id, GError **error)
{
    TicketState state = TICKET_FREE;
    Ticket *ticket;
    bool known;

    pthread_mutex_lock(&tickets->lock);
    ticket = find(tickets, id);
    known = is_known(tickets, id);
    if (ticket != NULL)
        state = ticket->state;
    pthread_mutex_unlock(&tickets->lock);
    if (!known)
        return fail_unknown(id, rank, error);
    return ticket == NULL || wait_for(ticket, state, error);
}

/* A ticket in the array that has ended; n if there is none. The lock is held. */
static size_t find_ended(const Tickets *tickets, const RubatoTicket *ids, size_t n)
{
    size_t i = 0;

    for (; i < n; i++) {
        const Ticket *ticket = ids[i] == 0 ? NULL : find(tickets, ids[i]);

        if (ids[i] != 0 && (ticket == NULL || ticket->state != TICKET_UNDER_WAY))
            break;
    }
    return i;
}

/* The first ticket in the array that was never given out, NULL if there is none; *some is false if
 * there are only zeros. The lock is held. */
static const RubatoTicket *find_unknown(const Tickets *tickets, const RubatoTicket *ids, size_t n,
                                        bool *some)
{
    *some = false;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] != 0 && !is_known(tickets, ids[i]))
            return &ids[i];
        *some |= ids[i] != 0;
    }
    return NULL;
}

/* Waits until a ticket ends, the clock strikes or the deadline has come; may end early. Returns
 * whether the clock has struck. The lock is held. */
static bool wait_for_change(Tickets *tickets, StallClock *clock, int64_t deadline_ms)
{
    monotonic_wait(&tickets->changed, &tickets->lock, MIN(clock->strike_ms, deadline_ms));
    return stall_clock_strikes(clock);
}

/* The same for await_any, whose first ticket is for something else than a table. The lock is
 * held. */
static size_t await_any_outside(Tickets *tickets, const Ticket *first, const RubatoTicket *ids,
                                size_t n, int64_t deadline_ms)
{
    const TicketOutside outside = first->outside;
    StallClock clock;
    size_t ended;

    stall_clock_start(&clock, outside.stall_ms);
    while ((ended = find_ended(tickets, ids, n)) == n && monotonic_ms() < deadline_ms)
        if (wait_for_change(tickets, &clock, deadline_ms) && first->state == TICKET_UNDER_WAY)
            outside.say_stalled(outside.server, &first->call, stall_clock_s(&clock));
    return ended;
}

/* Waits until one of the tickets has ended, or the deadline has come; then it returns n. The lock
 * is held. */
static size_t await_any(Tickets *tickets, const RubatoTicket *ids, size_t n, int64_t deadline_ms)
{
    size_t ended = find_ended(tickets, ids, n);
    uint64_t begun_ns;
    const Ticket *first;
    TableClient *client;
    StallClock clock;
    size_t i = 0;

    if (ended < n)
        return ended;
    while (ids[i] == 0)
        i++;
    first = find(tickets, ids[i]);
    if (first->client == NULL)
        return await_any_outside(tickets, first, ids, n, deadline_ms);
    client = first->client;
    begun_ns = worker_stats_now_ns();
    stall_clock_start(&clock, client->route->stall_ms);
    client->awaited = first->reads && first->clock > client->lead ? first->clock - client->lead : 0;
    pthread_mutex_unlock(&tickets->lock);
    if (deadline_ms == NO_DEADLINE) /* a worker that will go on is in no deadlock */
        table_client_report_wait(client);
    pthread_mutex_lock(&tickets->lock);
    while ((ended = find_ended(tickets, ids, n)) == n && monotonic_ms() < deadline_ms)
        if (wait_for_change(tickets, &clock, deadline_ms) && find_ended(tickets, ids, n) == n)
            table_client_say_stalled(client, NULL, stall_clock_s(&clock));
    client->stats.get_wait_ns += worker_stats_now_ns() - begun_ns;
    return ended;
}

bool tickets_wait_any(Tickets *tickets, uint32_t rank, const RubatoTicket *ids, size_t n,
                      size_t *ended, GError **error)
{
    const RubatoTicket *unknown;
    Ticket *ticket;
    bool some;

    *ended = n;
    pthread_mutex_lock(&tickets->lock);
    unknown = find_unknown(tickets, ids, n, &some);
    if (unknown == NULL && some)
        *ended = await_any(tickets, ids, n, NO_DEADLINE);
    ticket = *ended < n ? find(tickets, ids[*ended]) : NULL;
    pthread_mutex_unlock(&tickets->lock);
    if (unknown != NULL)
        return fail_unknown(*unknown, rank, error);
    if (!some) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "worker %u waits for any of no tickets", rank);
        return false;
    }
    return ticket == NULL || wait_for(ticket, TICKET_FAILED, error);
}

bool tickets_wait_for(Tickets *tickets, uint32_t rank, RubatoTicket id, uint32_t timeout_ms,
                      GError **error)
{
    size_t ended = 0;
    bool known;

    pthread_mutex_lock(&tickets->lock);
    known = is_known(tickets, id);
    if (known)
        ended = await_any(tickets, &id, 1, monotonic_ms() + timeout_ms);
    pthread_mutex_unlock(&tickets->lock);
    if (!known)
        return fail_unknown(id, rank, error);
    if (ended == 0)
        return tickets_wait(tickets, rank, id, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                "worker %u: a request has not been answered in %u ms; it is still under way", rank,
                timeout_ms);
    return false;
}

/* Waits for the tickets of a handle, or for all (NULL). */
static void await_all(Tickets *tickets, const TableHandle *handle)
{
    for (guint i = 0; i < tickets->slots->len; i++) {
        Ticket *ticket = g_ptr_array_index(tickets->slots, i);
        bool is_meant;

        pthread_mutex_lock(&tickets->lock);
        is_meant = ticket != NULL && ticket->state == TICKET_UNDER_WAY &&
                   (handle == NULL || ticket->handle == handle);
        pthread_mutex_unlock(&tickets->lock);
        if (is_meant)
            await(ticket);
    }
}

bool tickets_wait_all(Tickets *tickets, GError **error)
{
    bool ok = true;

    await_all(tickets, NULL);
    for (guint i = 0; i < tickets->slots->len; i++) {
        Ticket *ticket = g_ptr_array_index(tickets->slots, i);
        GError *failure = NULL;
        const CallStatus status = ticket == NULL ? CALL_OK : take_status(ticket, &failure);

        if (status != CALL_OK)
            ok = check_end(ticket->client, status, failure, ok ? error : NULL) && ok;
    }
    return ok;
}

void tickets_wait_for_handle(Tickets *tickets, const TableHandle *handle)
{
    await_all(tickets, handle);
}

bool tickets_poll(Tickets *tickets, RubatoTicket id)
{
    const Ticket *ticket;
    bool has_ended;

    pthread_mutex_lock(&tickets->lock);
    ticket = find(tickets, id);
    has_ended = ticket == NULL || ticket->state != TICKET_UNDER_WAY;
    pthread_mutex_unlock(&tickets->lock);
    return has_ended;
}
