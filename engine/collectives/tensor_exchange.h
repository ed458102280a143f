/* The collectives on tensors of a task's workers on this node: their requests, from the call to its
 * end.
 *
 *   worker_collectives.c  the public calls: checks, blocking or with a ticket
 *   tensor_exchange.c     the workers' requests meet; waiting; who does the work
 *   tensor_matcher.c      which requests belong together (a pure state machine)
 *   tensor_work.c         the work of one operation, in chunks
 *   tensor_math.c         loops over values
 *   tensor_request.c      what a worker asks: checks, comparison, words
 *
 * A lower file of this list calls none above it. A collective *call* (engine/collective.c) is
 * something else: nodes make it together, to create a table or to run a task.
 *
 * Threads: as each function says. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_EXCHANGE_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_EXCHANGE_H

#include "engine/collectives/tensor_work.h"
#include "io/net/call.h"

typedef struct TensorExchange TensorExchange;

/* n_workers: of the task, n_local of them on this node. The name of the task must outlive the
 * exchange. (transfer full) */
TensorExchange *tensor_exchange_new(const char *task, uint32_t n_workers, uint32_t n_local,
                                    uint32_t stall_ms);

/* No worker uses it any more. NULL is allowed. */
void tensor_exchange_free(TensorExchange *exchange);

/* A worker's request. Its memory stays until the call has ended; `failure` is set before that. */
typedef struct {
    const char *name;
    TensorPart part;
    Call *call; /* has begun, with a part that the exchange ends */
    GError *failure;
    bool is_async; /* the worker may not wait for it */
} TensorEntry;

typedef struct {
    Call call;
    uint32_t last;
    GError *failure;
} TensorJoin;

/* Whether the task's workers are all on this node: RUBATO_ERROR_INVALID. Any thread. */
bool tensor_exchange_check(const TensorExchange *exchange, GError **error);
uint32_t tensor_exchange_n_workers(const TensorExchange *exchange);
uint32_t tensor_exchange_stall_ms(const TensorExchange *exchange);

/* Takes the request in. False with an error: then its call does not end. The worker's thread. */
bool tensor_exchange_ask(TensorExchange *exchange, uint32_t rank, TensorEntry *entry,
                         GError **error);
bool tensor_exchange_join(TensorExchange *exchange, uint32_t rank, TensorJoin *join,
                          GError **error);

/* Waits until the call has ended, and does what there is to do meanwhile. The worker's thread. */
void tensor_exchange_wait(TensorExchange *exchange, uint32_t rank, Call *call);

/* Says in the log for whom the call waits. Any thread. */
void tensor_exchange_say_stalled(TensorExchange *exchange, const Call *call, double waited_s);

/* The worker has returned. Its own thread, or that which could not start it. */
void tensor_exchange_leave(TensorExchange *exchange, uint32_t rank);

/* The task is cancelled: what is pending fails. Does not block. Any thread. */
void tensor_exchange_cancel(TensorExchange *exchange);

#endif
