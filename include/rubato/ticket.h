/* Tickets: requests that are under way while the worker goes on.
 *
 * The calls of all handles whose names end in _async start a request and return its ticket at once.
 * The ticket ends when the request's answer has come and its callback, if it has one, has returned.
 * Tickets belong to the worker: one set of calls waits for those of all its handles and tables.
 *
 * A ticket that has ended with success leaves nothing behind and needs no wait. A ticket that has
 * failed is kept until the worker waits for it. Freeing a handle waits for the handle's requests.
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

/* Called once, when the request has been answered. error is NULL if it succeeded; the callback must
 * not free it. Callbacks run one at a time on the node's helper thread. They must not block, and
 * must not call handles or the worker. */
typedef void (*RubatoCallback)(RubatoTicket ticket, const GError *error, void *user_data);

/* What becomes of the arrays of keys and deltas. */
typedef enum {
    RUBATO_BUFFERS_COPIED,   /* they may be reused at once */
    RUBATO_BUFFERS_BORROWED, /* they must stay unchanged until the ticket has ended; servers of this
                              * node, and large messages to others, read them where they lie */
} RubatoBuffers;

/* Which requests go first, on the way to a server of another node and at the server. */
typedef enum {
    RUBATO_PRIORITY_NORMAL,
    RUBATO_PRIORITY_HIGH, /* before requests of normal priority that wait, but never before an
                           * earlier one of the same worker on the same table */
} RubatoPriority;

/* How a request is made. All members 0, or NULL instead of the options, means: no callback, copied
 * buffers, normal priority. */
typedef struct {
    RubatoCallback callback; /* NULL: none */
    void *user_data;         /* of the callback */
    RubatoBuffers buffers;
    RubatoPriority priority;
} RubatoRequestOptions;

/* Waits until the ticket has ended. False with the request's error, which is returned only once: a
 * later wait for the ticket returns true. For a ticket that ended with success it returns true at
 * once. RUBATO_ERROR_INVALID: the worker never got such a ticket. */
RUBATO_API bool rubato_worker_wait(RubatoWorker *worker, RubatoTicket ticket, GError **error);

/* The same for at most timeout_ms. After that it returns false with RUBATO_ERROR_TIMEOUT, and the
 * request is still under way: its arrays must stay, and the worker may wait for the ticket again.
 * With 0 it only looks. A Get with a deadline is rubato_kv_table_get_async and this call. */
RUBATO_API bool rubato_worker_wait_for(RubatoWorker *worker, RubatoTicket ticket,
                                       uint32_t timeout_ms, GError **error);

/* Waits until one of n tickets has ended, and writes its place in the array to *ended. Zeros in the
 * array are skipped. If the request failed, it returns false with the request's error; *ended is
 * written then, too. A ticket that had ended before counts, so the caller sets its place to 0
 * before the next call. RUBATO_ERROR_INVALID, with *ended = n: the array has no ticket, or one that
 * the worker never got. */
RUBATO_API bool rubato_worker_wait_any(RubatoWorker *worker, const RubatoTicket *tickets, size_t n,
                                       size_t *ended, GError **error);

/* Waits for all tickets of the worker. False with the error of one of those that failed. */
RUBATO_API bool rubato_worker_wait_all(RubatoWorker *worker, GError **error);

/* Whether the ticket has ended. Never waits. */
RUBATO_API bool rubato_worker_poll(RubatoWorker *worker, RubatoTicket ticket);

/* A scope at whose end all tickets of the worker have ended, however it is left. It is declared
 * behind the arrays that the requests use:
 *
 *     g_autofree float *values = g_new(float, n);
 *     g_autoptr(RubatoTicketScope) scope = rubato_worker_ticket_scope(worker);
 *
 * The scope drops the errors of requests; rubato_worker_wait_all before its end tells them. */
typedef struct RubatoTicketScope RubatoTicketScope;

/* (transfer full) */
RUBATO_API RubatoTicketScope *rubato_worker_ticket_scope(RubatoWorker *worker);

/* Waits for all tickets of the worker. NULL is allowed. */
RUBATO_API void rubato_ticket_scope_end(RubatoTicketScope *scope);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoTicketScope, rubato_ticket_scope_end)

G_END_DECLS

#endif
