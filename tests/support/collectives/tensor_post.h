/* Pieces of tensors on their way between simulated nodes: what routers (tensor_router.h) send goes
 * into a list, from which the test delivers it in any order.
 *
 * A test that uses it is linked with the functions of the network that are here
 * (tests/CMakeLists.txt). The network of a node is tensor_post_network(number).
 *
 * Threads: one. */
#ifndef TESTS_SUPPORT_COLLECTIVES_TENSOR_POST_H
#define TESTS_SUPPORT_COLLECTIVES_TENSOR_POST_H

#include "engine/collectives/tensor_router.h"

typedef struct {
    bool (*is_starved)(void);  /* there is no memory for a message */
    bool (*has_no_room)(void); /* to send */
    void (*sent)(void);        /* also called while a thread waits for room */
} TensorPostHooks;

void tensor_post_begin(const TensorPostHooks *hooks);

/* No message may be left, on its way or kept. */
void tensor_post_end(void);

/* Only for comparisons: it has no memory. */
Network *tensor_post_network(uint32_t node);

/* How many messages are on their way. */
uint32_t tensor_post_count(void);

/* How many were queued for the next one to take along, since the process began. */
uint32_t tensor_post_n_queued(void);

/* Messages so far whose values are those of another message. */
uint32_t tensor_post_n_shared(void);

/* Which of them may be delivered, instead of that one: SIZES come before ROWS. *to: for whom. */
uint32_t tensor_post_choose(uint32_t which, uint32_t *to);

/* A node that lends no memory. */
#define TENSOR_POST_FAR UINT32_MAX

/* Takes a message out of the list; drops one. tensor_post_take: (transfer full, incoming_free) */
Incoming *tensor_post_take(uint32_t which);
void tensor_post_drop(uint32_t which);

/* Drops what is on its way to the node, and from it. */
void tensor_post_drop_of(uint32_t node);

/* A message that nobody has sent: these bytes. (transfer full, incoming_free) */
Incoming *tensor_post_forge(uint32_t from, uint32_t epoch, const void *bytes, size_t n);

#endif
