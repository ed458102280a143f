/* A call of a handler by a client, step by step: what calls that block and calls by ticket share.
 *
 * Threads: the client's worker; calling_take_result and calling_clear any, once the call has
 * ended. */
#ifndef RUBATO_TABLES_CLIENT_CLIENT_HANDLERS_H
#define RUBATO_TABLES_CLIENT_CLIENT_HANDLERS_H

#include "io/net/handler_call.h"
#include "tables/client/client_private.h"

typedef struct {
    TableClient *client;
    const RubatoHandlerCall *asked;
    Slicer *slicer; /* whose memory the slices have */
    bool is_high;
    const RubatoHandlerOps *ops;
    const Slice *slices; /* one for each part that the call reaches */
    uint32_t n_slices;
    uint64_t number;    /* of a call that writes, for a history; 0: there is none */
    HandlerCall *calls; /* by slice */
    Message *messages;
} Calling;

/* Checks what is asked, and sets `ops`. The errors of rubato_worker_call_handler. */
bool calling_check(Calling *calling, GError **error);

/* Sets slices and n_slices. False: no memory. */
bool calling_cut(Calling *calling);

/* Sends the call to all its parts; `calls` and `messages` have a place for each. */
void calling_post(Calling *calling, Call *call, uint64_t node_clock);

/* A call that writes was sent: counts it among the client's Adds. */
void calling_count_write(const Calling *calling);

/* The result of a call that has ended with CALL_OK, or the error of one that has ended with
 * CALL_FAILED. (*result: transfer full) */
bool calling_take_result(const Calling *calling, CallStatus status, GBytes **result,
                         GError **error);

/* Whether servers keep the call until its clock has ended. Then the caller does not wait for it: it
 * gives the call, once checked, to calling_keep, and a later clock says whether it has failed. The
 * errors of an Add, and RUBATO_ERROR_MEMORY. */
bool calling_is_kept(const Calling *calling);
bool calling_keep(const Calling *calling, GError **error);

/* Frees the answers. */
void calling_clear(Calling *calling);

static inline bool calling_writes(const Calling *calling)
{
    return calling->ops->access == RUBATO_ACCESS_WRITES;
}

#endif
