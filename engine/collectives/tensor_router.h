/* The collectives on tensors of all tasks of a node that has other nodes: from whom their messages
 * come, and how they are sent.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_TENSOR_ROUTER_H
#define RUBATO_ENGINE_COLLECTIVES_TENSOR_ROUTER_H

#include "engine/collectives/backend/tensor_backend.h"
#include "engine/collectives/tensor_exchange.h"
#include "engine/control/control.h"
#include "io/net/post_office/post_office.h"

typedef struct TensorRouter TensorRouter;

/* Office must outlive it. tell_scheduler: as in TaskHost. (transfer full) */
TensorRouter *tensor_router_new(PostOffice *office,
                                void (*tell_scheduler)(void *user, const Control *control),
                                void *user);

/* Opens the backend of that name (tensor_backend.h). The nodes have met, and all of them do it,
 * before the first task. RUBATO_ERROR_CONFIG, _NETWORK. */
bool tensor_router_open(TensorRouter *router, const char *name, GError **error);

/* Closes it, if it is open. No exchange is left. patience_ms: how long it may wait for others. */
void tensor_router_close(TensorRouter *router, unsigned patience_ms);

/* No exchange is left. NULL is allowed. */
void tensor_router_free(TensorRouter *router);

/* What comes for the task goes to the exchange, and what the exchange sends goes by the backend;
 * until the other call, which waits for threads that are just bringing it something. */
void tensor_router_add(TensorRouter *router, uint32_t epoch, TensorExchange *exchange);
void tensor_router_remove(TensorRouter *router, uint32_t epoch);

/* A MESSAGE_TENSOR came; takes it over. Returns what is wrong with it; NULL if nothing is. Does not
 * block. */
const char *tensor_router_receive(TensorRouter *router, Incoming *incoming);

/* A MESSAGE_TENSOR of the node is arriving, as NetworkHandler.begin_direct says; the end of that,
 * also when the router is gone (NULL). One thread at a time. */
bool tensor_router_begin_direct(TensorRouter *router, uint32_t node, const WireHeader *header,
                                const void *first, DirectRead *direct);
void tensor_router_end_direct(TensorRouter *router, DirectRead *direct);

/* Some time has passed: see tensor_exchange_tick. Does not block. One thread at a time. */
void tensor_router_tick(TensorRouter *router);

/* The coordinator has decided. False: it makes no sense. Does not block. One thread at a time. */
bool tensor_router_decide(TensorRouter *router, const ControlTensors *decide);

#endif
