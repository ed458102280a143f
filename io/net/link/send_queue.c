/* Two lists of frames, and the order between them (io/net/priority_order.h).
 *
 * A packet has frames of one list. As long as both have some, their packets alternate: so a frame
 * of high priority waits for one packet of others at most, and those wait for one packet of high
 * priority.
 *
 * As long as no frame of high priority comes, the order is not asked: frames join the end of the
 * normal list. The first frame of high priority makes the order number all frames that wait. */
#include "io/net/link/send_queue.h"

enum { MOST_IN_A_ROW = 1 };

void send_queue_init(SendQueue *queue)
{
    *queue = (SendQueue){ 0 };
    priority_order_init(&queue->order, MOST_IN_A_ROW);
}

/* Requests of workers keep the order of worker and table. One that brings its node's clock stays
 * behind all that came before it, as a clock does. Replies keep that of their request,
 * because a long answer comes in several. What is done between tasks, or to parts that move, stays
 * in its place. */
static PriorityItem item_of(const WireHeader *header)
{
    const bool reads = header->kind == MESSAGE_GET || header->kind == MESSAGE_ADD_GET;
    const PriorityItem request = {
        .rule =
            reads && header->request.node_clock > 0 ? PRIORITY_RULE_CARRIES : PRIORITY_RULE_FREE,
        .is_high = header->is_high,
        .source = (uint64_t)header->request.worker << 32 ^ header->request.table,
    };

    switch (header->kind) {
    case MESSAGE_REPLY:
        return (PriorityItem){ .is_high = header->is_high, .source = header->reply.request_id };
    case MESSAGE_GET:
    case MESSAGE_ADD:
    case MESSAGE_ADD_GET:
    case MESSAGE_HANDLER:
    case MESSAGE_ANNOUNCE:
    case MESSAGE_TUNE:
        return request;
    case MESSAGE_SERVICE: /* in their order, but it is that of no worker's requests */
        return (PriorityItem){ .source = UINT64_MAX };
    case MESSAGE_TENSOR: /* the same */
        return (PriorityItem){ .source = UINT64_MAX - 1 };
    case MESSAGE_CLOCK:
    case MESSAGE_CONTROL:
        return (PriorityItem){ .rule = PRIORITY_RULE_FOLLOWS };
    default:
        return (PriorityItem){ .rule = PRIORITY_RULE_FIXED };
    }
}

static void append(SendQueue *queue, PriorityQueue to, Frame *first, Frame *last)
{
    last->next = NULL;
    if (queue->first[to] == NULL)
        queue->first[to] = first;
    else
        queue->last[to]->next = first;
    queue->last[to] = last;
}

static void sort(SendQueue *queue, Frame *frame)
{
    for (Frame *next; frame != NULL; frame = next) {
        const PriorityItem item = item_of(&frame->header);

        next = frame->next;
        append(queue, priority_order_join(&queue->order, &item, &frame->follows), frame, frame);
    }
}

void send_queue_add(SendQueue *queue, Frame *first, Frame *last, bool has_high)
{
    if (!has_high && (!queue->is_sorted || send_queue_is_empty(queue))) {
        queue->is_sorted = false;
        append(queue, PRIORITY_QUEUE_NORMAL, first, last);
        return;
    }
    if (!queue->is_sorted) {
        Frame *const rest = queue->first[PRIORITY_QUEUE_NORMAL];

        queue->first[PRIORITY_QUEUE_NORMAL] = NULL;
        queue->is_sorted = true;
        sort(queue, rest);
    }
    last->next = NULL;
    sort(queue, first);
}

/* How many frames in front of the normal ones may leave before a frame of high priority does; a
 * packet has at most that many. UINT32_MAX: as many as it can. */
static uint32_t count_due(const SendQueue *queue)
{
    uint32_t n = 0;

    if (queue->first[PRIORITY_QUEUE_HIGH] == NULL)
        return UINT32_MAX;
    for (const Frame *frame = queue->first[PRIORITY_QUEUE_NORMAL];
         frame != NULL && priority_order_is_due(&queue->order, frame->follows) &&
         n < PACKET_SMALL_MOST;
         frame = frame->next)
        n++;
    return n;
}

Packet *send_queue_take(SendQueue *queue, size_t joined_bytes)
{
    if (!queue->is_sorted)
        return packet_take(&queue->first[PRIORITY_QUEUE_NORMAL], joined_bytes, UINT32_MAX);

    const Frame *const first = queue->first[PRIORITY_QUEUE_NORMAL];
    const PriorityQueue from =
        priority_order_next(&queue->order, first == NULL ? 0 : first->follows);
    const uint32_t most = from == PRIORITY_QUEUE_HIGH ? UINT32_MAX : count_due(queue);
    Packet *const packet = packet_take(&queue->first[from], joined_bytes, most);

    priority_order_leave(&queue->order, from, packet->n_messages);
    return packet;
}

void send_queue_revoke(const SendQueue *queue)
{
    for (PriorityQueue which = 0; which < PRIORITY_QUEUE_N_QUEUES; which++)
        for (const Frame *frame = queue->first[which]; frame != NULL; frame = frame->next)
            packet_revoke(&frame->packet);
}

void send_queue_clear(SendQueue *queue)
{
    for (PriorityQueue which = 0; which < PRIORITY_QUEUE_N_QUEUES; which++)
        while (queue->first[which] != NULL) {
            Frame *const frame = queue->first[which];

            queue->first[which] = frame->next;
            frame_free(frame);
        }
    send_queue_init(queue);
}
