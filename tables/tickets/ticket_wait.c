/* Waiting for tickets, and how their ends are told to the worker. See the design note in ticket.c.
 *
 * Threads: the worker's; tickets_poll any. */
#include "tables/tickets/ticket_private.h"

#include "io/net/monotonic.h"
#include "io/net/stall_clock.h"

#define NO_DEADLINE INT64_MAX

static bool fail_unknown(RubatoTicket id, uint32_t rank, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "worker %u: ticket %" G_GUINT64_FORMAT " was never given out", rank, id);
    return false;
}

/* The ticket that an id names, if it is under way or has failed; else NULL. The lock is held. */
static Ticket *find(const Tickets *tickets, RubatoTicket id)
{
    const uint64_t slot = id >> TICKET_NUMBER_BITS;
    Ticket *ticket = slot < tickets->slots->len ? g_ptr_array_index(tickets->slots, slot) : NULL;

    return ticket != NULL && ticket->state != TICKET_FREE && ticket_id(ticket) == id ? ticket
                                                                                     : NULL;
}

/* Whether an id was ever given out; the lock is held. */
static bool is_known(const Tickets *tickets, RubatoTicket id)
{
    const uint64_t number = id & (((uint64_t)1 << TICKET_NUMBER_BITS) - 1);

    return number > 0 && number <= tickets->n_started &&
           id >> TICKET_NUMBER_BITS < tickets->slots->len;
}

/* Waits until a ticket that was under way has ended, and logs now and then for whom it waits: first
 * for its call, then for the thread that ends it. The lock is not held. */
static void await(Ticket *ticket)
{
    Tickets *tickets = ticket->tickets;
    StallClock clock;

    ticket->ops->wait(ticket);
    stall_clock_start(&clock, ticket->stall_ms);
    pthread_mutex_lock(&tickets->lock);
    while (ticket->state == TICKET_UNDER_WAY)
        if (stall_clock_wait(&clock, &tickets->changed, &tickets->lock) &&
            ticket->state == TICKET_UNDER_WAY)
            ticket->ops->say_helper(ticket, stall_clock_s(&clock));
    pthread_mutex_unlock(&tickets->lock);
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
        ticket_free_slot(ticket);
    }
    pthread_mutex_unlock(&tickets->lock);
    if (*failure != NULL)
        ticket_note_failure(ticket, *failure);
    return status;
}

/* Waits for a ticket if it is still under way. The worker alone starts requests, so the ticket's
 * slot stays its own. */
static bool wait_for(Ticket *ticket, TicketState state, GError **error)
{
    GError *failure = NULL;

    if (state == TICKET_UNDER_WAY)
        await(ticket);
    const CallStatus status = take_status(ticket, &failure);

    return ticket_check_end(ticket, status, failure, error);
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

/* Waits until one of the tickets has ended, or the deadline has come; then it returns n. The lock
 * is held, but not all the time. */
static size_t await_any(Tickets *tickets, const RubatoTicket *ids, size_t n, int64_t deadline_ms)
{
    size_t ended = find_ended(tickets, ids, n);
    const Ticket *first;
    uint64_t begun_ns;
    StallClock clock;
    size_t i = 0;

    if (ended < n)
        return ended;
    while (ids[i] == 0)
        i++;
    first = find(tickets, ids[i]);
    begun_ns = worker_stats_now_ns();
    stall_clock_start(&clock, first->stall_ms);
    if (first->ops->begin_any != NULL) {
        pthread_mutex_unlock(&tickets->lock);
        first->ops->begin_any(first, deadline_ms == NO_DEADLINE);
        pthread_mutex_lock(&tickets->lock);
    }
    while ((ended = find_ended(tickets, ids, n)) == n && monotonic_ms() < deadline_ms)
        if (wait_for_change(tickets, &clock, deadline_ms) && find_ended(tickets, ids, n) == n)
            first->ops->say_stalled(first, stall_clock_s(&clock));
    if (first->ops->count_wait != NULL)
        first->ops->count_wait(first, worker_stats_now_ns() - begun_ns);
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
            ok = ticket_check_end(ticket, status, failure, ok ? error : NULL) && ok;
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
