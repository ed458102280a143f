/* The tickets of a worker: its requests that are under way. rubato/ticket.h tells their rules.
 *
 * Threads: the worker's, except tickets_poll, which any thread may call. */
#ifndef RUBATO_TABLES_TICKETS_TICKET_H
#define RUBATO_TABLES_TICKETS_TICKET_H

#include <rubato/ticket.h>

#include "tables/handle.h"
#include "tables/ragged/ragged_request.h"

/* helper: the node's helper thread. (transfer full) */
Tickets *tickets_new(Actor *helper);

/* No request may be under way. NULL is allowed. */
void tickets_free(Tickets *tickets);

/* What a worker asks of a table. */
typedef struct {
    MessageKind kind;   /* MESSAGE_GET, MESSAGE_ADD, MESSAGE_ADD_GET */
    RubatoKeys keys;    /* a list or a run */
    const void *deltas; /* of an Add */
    void *values;       /* of a Get; they stay until the ticket has ended */
    bool copies_keys;   /* whatever the options say */
} TableRequest;

/* Starts a request of the handle. options NULL: none. Returns 0 on error, and then never calls
 * back. The errors are those of blocking calls, and RUBATO_ERROR_MEMORY. */
RubatoTicket ticket_start(TableHandle *handle, const TableRequest *request,
                          const RubatoRequestOptions *options, GError **error);

static inline RubatoTicket ticket_get(TableHandle *handle, RubatoKeys keys, void *values,
                                      const RubatoRequestOptions *options, GError **error)
{
    const TableRequest request = { .kind = MESSAGE_GET, .keys = keys, .values = values };

    return ticket_start(handle, &request, options, error);
}

static inline RubatoTicket ticket_add(TableHandle *handle, RubatoKeys keys, const void *deltas,
                                      const RubatoRequestOptions *options, GError **error)
{
    const TableRequest request = { .kind = MESSAGE_ADD, .keys = keys, .deltas = deltas };

    return ticket_start(handle, &request, options, error);
}

static inline RubatoTicket ticket_add_get(TableHandle *handle, RubatoKeys keys, const void *deltas,
                                          void *values, const RubatoRequestOptions *options,
                                          GError **error)
{
    const TableRequest request = {
        .kind = MESSAGE_ADD_GET, .keys = keys, .deltas = deltas, .values = values
    };

    return ticket_start(handle, &request, options, error);
}

/* Starts a request to a table of ragged rows (ragged_request.h). */
RubatoTicket ticket_start_ragged(TableHandle *handle, const RaggedAsk *ask,
                                 const RubatoRequestOptions *options, GError **error);

/* Starts the call of a handler (rubato/handler.h). */
RubatoTicket ticket_start_handler(TableClient *client, const RubatoHandlerCall *asked,
                                  GBytes **result, const RubatoRequestOptions *options,
                                  GError **error);

/* A request that goes to no table. */
typedef struct {
    /* The worker waits for the call, which has not ended: returns when it has. Says in the log for
     * what it waits, after each while. */
    void (*wait)(void *server, Call *call);
    /* The log says for what the worker waits, if something else has waited for the call so long. */
    void (*say_stalled)(void *server, const Call *call, double waited_s);
    /* The worker is told that it has failed. NULL: nobody has to know. The worker's thread. */
    void (*note_failure)(void *server, const GError *failure);
    uint32_t stall_ms;
    void *server;

    /* The call has ended: frees the request. Returns why the request failed; NULL: it did not.
     * (transfer full) */
    GError *(*end)(void *request);
    void *request;
} TicketOutside;

/* A ticket for such a request, and its call, which has begun with one part besides the caller's:
 * the one who serves it ends that part, with CALL_FAILED if it failed. The caller ends its own by
 * call_sent. 0 with RUBATO_ERROR_MEMORY. */
RubatoTicket ticket_start_outside(Tickets *tickets, const TicketOutside *outside,
                                  const RubatoRequestOptions *options, Call **call, GError **error);

/* The request could not be made, and nobody has been given the call. */
void ticket_cancel_outside(Call *call);

/* rank: the worker's, for messages. */
bool tickets_wait(Tickets *tickets, uint32_t rank, RubatoTicket id, GError **error);
bool tickets_wait_any(Tickets *tickets, uint32_t rank, const RubatoTicket *ids, size_t n,
                      size_t *ended, GError **error);
bool tickets_wait_for(Tickets *tickets, uint32_t rank, RubatoTicket id, uint32_t timeout_ms,
                      GError **error);
bool tickets_wait_all(Tickets *tickets, GError **error);
bool tickets_poll(Tickets *tickets, RubatoTicket id);

/* Waits for the requests that the handle has started; NULL: for all. What failed is kept. */
void tickets_wait_for_handle(Tickets *tickets, const TableHandle *handle);

/* Waits until the client has no Get or Add under way on another node. Its worker. */
void tickets_wait_for_client(TableClient *client);

#endif
