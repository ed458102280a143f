/* What comes by the network for the backend "own": see tensor_backend.h.
 *
 * Threads: backend_own_take is called by the thread that receives; the other by any. */
#ifndef RUBATO_ENGINE_COLLECTIVES_BACKEND_BACKEND_OWN_H
#define RUBATO_ENGINE_COLLECTIVES_BACKEND_BACKEND_OWN_H

#include "engine/collectives/flow/tensor_message.h"
#include "io/net/network/network.h"

/* Reads a MESSAGE_TENSOR and finds where its piece lies. NULL, or what is wrong. If its bytes are
 * NULL then, they lie in memory that the node does not lend to this process. In any case it is
 * given back by the other call. */
const char *backend_own_take(Network *network, Incoming *incoming, TensorMessage *message);

void backend_own_drop(Incoming *incoming);

#endif
