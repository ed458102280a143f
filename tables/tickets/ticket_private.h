/* Tickets from inside: what the files of tickets share.
 *
 *   ticket.c          their slots and memory, and how they end
 *   ticket_wait.c     waiting for them
 *   ticket_table.c    what all requests to tables have in common
 *   ticket_start.c    requests to a table of rows of one length
 *   ticket_ragged.c   requests to a table of ragged rows
 *   ticket_handler.c  calls of handlers
 *   ticket_outside.c  requests to something else than a table
 *
 * Threads: as each member says. */
#ifndef RUBATO_TABLES_TICKETS_TICKET_PRIVATE_H
#define RUBATO_TABLES_TICKETS_TICKET_PRIVATE_H

#include "tables/client/client_private.h"
#include "tables/tickets/ticket.h"

typedef enum {
    TICKET_FREE,
    TICKET_UNDER_WAY,
    TICKET_FAILED, /* it has ended, and nobody has asked how */
} TicketState;

typedef struct Ticket Ticket;

/* What a request is to, a table or something else. Members that may be NULL say so. */
typedef struct {
    /* Waits until the ticket's call has ended. The log says for what, after each while. */
    void (*wait)(Ticket *ticket);

    /* The worker begins to wait until one of several tickets has ended, this one the first of them;
     * is_for_ever: whatever that takes. May be NULL. */
    void (*begin_any)(const Ticket *ticket, bool is_for_ever);

    /* That has taken so long: the log says for what it waits. The lock is held. */
    void (*say_stalled)(const Ticket *ticket, double waited_s);

    /* The same once the call has ended, and the thread that ends the ticket has not done so. */
    void (*say_helper)(const Ticket *ticket, double waited_s);

    /* The worker has waited so long, after begin_any. May be NULL. */
    void (*count_wait)(const Ticket *ticket, uint64_t waited_ns);

    /* The ticket ends so. On the thread that ends it; may be NULL. */
    void (*count)(const Ticket *ticket, CallStatus status);

    /* The same: it is under way no more. The lock is held; may be NULL. */
    void (*release)(Ticket *ticket);

    /* Sets the error that a status stands for. True if it stands for none. Any thread. */
    bool (*check)(const Ticket *ticket, CallStatus status, GError **error);
} TicketOps;

extern const TicketOps ticket_table_ops;

struct Ticket {
    Call call; /* first: the call's end finds the ticket */
    Message to_helper;

    /* immutable */
    Tickets *tickets;
    uint32_t slot;

    /* of the present request; set by the worker */
    uint64_t number; /* see ticket_id */
    const TicketOps *ops;
    uint32_t stall_ms; /* how long the worker waits before the log says so */
    const TableHandle *handle;
    TableClient *client;   /* of a request to a table; else NULL */
    TicketOutside outside; /* of one to something else */
    RubatoCallback callback;
    void *user_data;
    bool reads;
    bool is_high;
    uint64_t clock;    /* the worker's at the request */
    uint64_t begun_ns; /* for the timeline, with n_keys; 0: nothing was recorded then */
    size_t n_keys;
    size_t bytes; /* counted in client->ticket_bytes */
    uint32_t n_slices;
    /* Runs when the call has ended, before the ticket does, on the same thread or on the helper's:
     * takes what the answers say out of the request and frees it. NULL: there is nothing to do. */
    void (*end_request)(Ticket *ticket);
    bool ends_on_helper; /* because end_request calls functions of the application */
    void *request;       /* of the file that has end_request */
    const char *handler; /* the name of the handler that it calls, for messages; or NULL */
    GError *failure;     /* of a call that has ended with CALL_FAILED; NULL: its status says all */

    /* for the history, if one is kept: of a request that reads */
    RubatoKeys keys;
    const void *values;
    uint64_t n_adds;

    /* its memory, kept for the next request */
    const Partition *partition; /* that the slicer is for; NULL: it has none */
    Slicer slicer;
    Message *messages;
    uint32_t n_messages;
    char *copy; /* of keys and deltas */
    size_t copy_bytes;

    /* guarded by lock */
    TicketState state;
    CallStatus status;
    Ticket *next_free;
};

struct Tickets {
    Actor *helper;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a ticket has ended */
    /* guarded by lock */
    GPtrArray *slots;   /* of Ticket; NULL where there is none. Only the worker changes it */
    GArray *empty;      /* of uint32_t: the slots where there is none */
    uint64_t n_started; /* requests */
    Ticket *free;       /* the last one that was freed comes first */
    size_t n_free;
};

/* The bits of an id that are the number of the request; the others are the slot. */
enum { TICKET_NUMBER_BITS = 40 };

/* A free ticket, for the next request; NULL: too many are under way. And the same ticket, if the
 * request was not made. */
Ticket *ticket_take(Tickets *tickets);
void ticket_put_back(Ticket *ticket);

/* The same, set up for a request of a client with these options, which may be NULL. handle NULL:
 * the request is the worker's own. NULL with RUBATO_ERROR_MEMORY. */
Ticket *ticket_take_for(TableClient *client, TableHandle *handle,
                        const RubatoRequestOptions *options, GError **error);

/* Prepares what a request needs: a slicer for the table of its client; a message for each of
 * n_slices; so many bytes for copies, NULL if there is no memory. */
void ticket_prepare_slicer(Ticket *ticket);
void ticket_prepare_messages(Ticket *ticket);
char *ticket_prepare_copy(Ticket *ticket, size_t bytes);

/* Waits until the nodes of the first n_slices slices have room. RUBATO_ERROR_CANCELLED. */
bool ticket_wait_room(Ticket *ticket, GError **error);

/* Waits until less than FlowSizes.ticket_bytes are under way, and counts ticket->bytes; then the
 * ticket is under way. RUBATO_ERROR_CANCELLED. */
bool ticket_begin(Ticket *ticket, GError **error);

/* The ticket is under way. The lock is held. */
void ticket_set_under_way(Ticket *ticket);

/* The id of the ticket's present request: its number among the worker's, and the slot. */
RubatoTicket ticket_id(const Ticket *ticket);

/* Sets the error with which a ticket ended: its failure, which goes with this, or the one that the
 * status stands for. True if it ended without one. */
bool ticket_check_end(const Ticket *ticket, CallStatus status, GError *failure, GError **error);

/* The request is over, and has been told: its slot is free. The lock is held. */
void ticket_free_slot(Ticket *ticket);

/* The worker is told of the failure, which it is once. Its own thread. */
void ticket_note_failure(const Ticket *ticket, const GError *failure);

/* The end of a ticket's call, for call_begin. */
void ticket_call_ended(Call *call);

/* Its slices are for another table, or take too much memory: drops the slicer. */
void ticket_drop_slicer(Ticket *ticket);

#endif
