/* Tickets: requests that are under way while the worker goes on.
 *
 * The calls of all handles whose names end in _async start a request and return its ticket at once.
 * The ticket ends when the request's answer has come and its callback, if it has one, has returned.
 * Tickets belong to the worker: one set of calls waits for those of all its handles and tables.
 *
 * A ticket that has ended with success leaves nothing behind and needs no wait. One that has failed
 * is kept until somebody waits for it. Freeing a handle waits for the requests that were started by
 * it.
 *
 * Order: the requests of a worker on a table come to the servers in the order in which they were
 * started, blocking ones included. A request belongs to the clock at which it was started.
 *
 * Threads: the worker's own, except rubato_worker_poll, which any thread may call while the
 * worker's function runs. Callbacks run on the node's helper thread. */
#ifndef RUBATO_TICKET_H
#define RUBATO_TICKET_H

#include <rubato/task.h>

G_BEGIN_DECLS

/* Names a request of one worker; never 0. */
typedef uint64_t RubatoTicket;

/* Called once, when the request has been answered. error is NULL if it succeeded; it belongs to the
 * caller. Callbacks run one at a time on the node's helper thread; they must not block, and must
 * not call handles or the worker. */
typedef void (*RubatoCallback)(RubatoTicket ticket, const GError *error, void *user_data);

/* What becomes of the arrays of keys and deltas. */
typedef enum {
    RUBATO_BUFFERS_COPIED,   /* they may be reused at once */
    RUBATO_BUFFERS_BORROWED, /* they stay unchanged until the ticket has ended: nothing is copied
                              * before it is sent */
} RubatoBuffers;

/* How a request is made. All zero, or NULL in its place: no callback, copied buffers. */
typedef struct {
    RubatoCallback callback; /* NULL: none */
    void *user_data;         /* of the callback */
    RubatoBuffers buffers;
} RubatoRequestOptions;

/* Waits until the ticket has ended; false with the request's error, which is told once. For a
 * ticket that ended with success, or was waited for before, it returns true at once.
 * RUBATO_ERROR_INVALID: the worker never got such a ticket. */
RUBATO_API bool rubato_worker_wait(RubatoWorker *worker, RubatoTicket ticket, GError **error);

/* Waits until one of n tickets has ended; zeros among them are skipped. *ended is its place in the
 * array, also if its request failed: then this returns false with the request's error. One that had
 * ended before counts, so the caller sets its place to 0 before it calls again.
 * RUBATO_ERROR_INVALID, with *ended = n: there is no ticket among them, or one that the worker
 * never got. */
RUBATO_API bool rubato_worker_wait_any(RubatoWorker *worker, const RubatoTicket *tickets, size_t n,
                                       size_t *ended, GError **error);

/* Waits for all tickets of the worker; false with the error of one that failed. */
RUBATO_API bool rubato_worker_wait_all(RubatoWorker *worker, GError **error);

/* Whether the ticket has ended. Never waits. */
RUBATO_API bool rubato_worker_poll(RubatoWorker *worker, RubatoTicket ticket);

G_END_DECLS

#endif
