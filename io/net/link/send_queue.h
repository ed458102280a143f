/* The frames that wait to be packed for a node. Frames of high priority go first where the orders
 * of docs/wire.md, "Priority", allow it.
 *
 * Threads: the holder of the peer's token. */
#ifndef RUBATO_IO_NET_LINK_SEND_QUEUE_H
#define RUBATO_IO_NET_LINK_SEND_QUEUE_H

#include "io/net/link/packet.h"
#include "io/net/priority_order.h"

typedef struct {
    PriorityOrder order;
    Frame *first[PRIORITY_QUEUE_N_QUEUES];
    Frame *last[PRIORITY_QUEUE_N_QUEUES]; /* valid where there is a first */
    bool is_sorted; /* `order` has the frames; otherwise all of them have normal priority */
} SendQueue;

void send_queue_init(SendQueue *queue);

/* Puts a list of frames into the queue. first and last: of the list; has_high: whether one of the
 * frames has high priority. (transfer full) */
void send_queue_add(SendQueue *queue, Frame *first, Frame *last, bool has_high);

static inline bool send_queue_is_empty(const SendQueue *queue)
{
    return queue->first[PRIORITY_QUEUE_NORMAL] == NULL && queue->first[PRIORITY_QUEUE_HIGH] == NULL;
}

/* The next packet, as packet_take makes it; the queue is not empty. (transfer full) */
Packet *send_queue_take(SendQueue *queue, size_t joined_bytes);

/* packet_revoke for each frame. */
void send_queue_revoke(const SendQueue *queue);

/* Frees all frames. */
void send_queue_clear(SendQueue *queue);

#endif
