/* Which of two queues an item joins, and which queue is next: one for items of high priority, one
 * for the rest. A pure state machine; the items stay with the caller.
 *
 * An item has a source, for example a worker and a table. These rules hold:
 *   - Items of one source leave in the order in which they came. So an item of high priority joins
 *     the queue of normal items while an earlier item of its source waits there. A normal item does
 *     not leave before the high items of its source that came before it.
 *   - An item that follows all, or carries one that does, leaves after all items that came before
 *     it.
 *   - Nothing overtakes a fixed item. It also follows all.
 *   - No starvation: while a normal item waits, and all items that it must follow have left, at
 *     most most_in_a_row turns are of high items.
 *
 * Sources are told apart by a hash of PRIORITY_ORDER_SOURCES values. The items of two sources with
 * the same hash keep their order, too: no order is lost, but a high item may wait for normal items
 * that are not of its source. With 9 sources that have normal items waiting, about one high item in
 * eight meets one of them. With more than 64 workers most do: then a high item goes before those
 * normal items that came after it, and waits for others as an item without priority would. The
 * other rules hold as before. More hashes would make this rarer, and each server and each peer
 * larger.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_NET_PRIORITY_ORDER_H
#define RUBATO_IO_NET_PRIORITY_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    PRIORITY_QUEUE_NORMAL,
    PRIORITY_QUEUE_HIGH,
    PRIORITY_QUEUE_N_QUEUES,
} PriorityQueue;

typedef enum {
    PRIORITY_RULE_FREE,    /* has no order with other sources */
    PRIORITY_RULE_FOLLOWS, /* leaves after all that came before it; high items may overtake it */
    PRIORITY_RULE_CARRIES, /* the same, but high items of its source may not overtake it */
    PRIORITY_RULE_FIXED,   /* the same, but nothing may overtake it */
} PriorityRule;

typedef struct {
    PriorityRule rule;
    bool is_high; /* only of PRIORITY_RULE_FREE */
    uint64_t source;
} PriorityItem;

enum { PRIORITY_ORDER_SOURCES = 64 };

typedef struct {
    uint64_t n_joined[PRIORITY_QUEUE_N_QUEUES], n_left[PRIORITY_QUEUE_N_QUEUES];
    /* by hash of a source: how many items had joined the queue when its last item had */
    uint64_t last[PRIORITY_QUEUE_N_QUEUES][PRIORITY_ORDER_SOURCES];
    uint64_t fixed; /* the same for the last fixed item, which joined the normal ones */
    uint32_t most_in_a_row, n_in_a_row;
} PriorityOrder;

void priority_order_init(PriorityOrder *order, uint32_t most_in_a_row);

/* An item comes. Returns the queue at whose end the caller puts it. The caller keeps *follows with
 * the item: how many high items must have left before it; 0: none. */
PriorityQueue priority_order_join(PriorityOrder *order, const PriorityItem *item,
                                  uint64_t *follows);

/* Whether a normal item with this number may leave. */
static inline bool priority_order_is_due(const PriorityOrder *order, uint64_t follows)
{
    return follows <= order->n_left[PRIORITY_QUEUE_HIGH];
}

/* The queue whose first item is next; one of the two at least is not empty. follows: of the first
 * normal item. */
PriorityQueue priority_order_next(const PriorityOrder *order, uint64_t follows);

/* The first n items of a queue leave, as one turn. */
void priority_order_leave(PriorityOrder *order, PriorityQueue queue, uint64_t n);

/* How many items of a queue wait. */
static inline uint64_t priority_order_waiting(const PriorityOrder *order, PriorityQueue queue)
{
    return order->n_joined[queue] - order->n_left[queue];
}

#endif
