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
#include "tables/tickets/ticket_private.h"

#include "io/net/monotonic.h"

enum {
    NUMBER_BITS = TICKET_NUMBER_BITS,
    MOST_SLOTS = 1 << (64 - NUMBER_BITS),
    MOST_FREE = 256,           /* tickets, with the memory of their last request, */
    MOST_FREE_BYTES = 4 << 10, /* as far as its copies were not larger, */
    MOST_FREE_KEYS = 1 << 10,  /* and its keys were not more */
};

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

void ticket_free_slot(Ticket *ticket)
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

    if (ticket->ops->count != NULL)
        ticket->ops->count(ticket, status);
    pthread_mutex_lock(&tickets->lock);
    if (ticket->ops->release != NULL)
        ticket->ops->release(ticket);
    if (status == CALL_OK) {
        ticket_free_slot(ticket);
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

bool ticket_check_end(const Ticket *ticket, CallStatus status, GError *failure, GError **error)
{
    if (failure == NULL)
        return status == CALL_OK || ticket->ops->check(ticket, status, error);
    g_propagate_error(error, failure);
    return false;
}

static void call_back(const Ticket *ticket, CallStatus status)
{
    g_autoptr(GError) error = NULL;

    ticket_check_end(ticket, status, ticket->failure == NULL ? NULL : g_error_copy(ticket->failure),
                     &error);
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
    ticket_free_slot(ticket);
    pthread_mutex_unlock(&tickets->lock);
}
