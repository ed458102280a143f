/* See priority_order.h.
 *
 * Items are numbered by queue, as they join: the first one is 1. So an item waits exactly while its
 * number is above n_left of its queue, and nobody has to keep a list of sources: the number of a
 * source's last item says whether any of its items wait.
 *
 * Why normal items wait for a bounded time: an item has to follow only high ones that came before
 * it, and those leave in their order. After them, turns alternate as most_in_a_row says. */
#include "io/net/priority_order.h"

#include <assert.h>
#include <stddef.h>

#include <rubato/mix.h>

void priority_order_init(PriorityOrder *order, uint32_t most_in_a_row)
{
    assert(most_in_a_row > 0);
    *order = (PriorityOrder){ .most_in_a_row = most_in_a_row };
}

static size_t hash(uint64_t source)
{
    return rubato_mix64(source) % PRIORITY_ORDER_SOURCES;
}

static bool has_waiting(const PriorityOrder *order, PriorityQueue queue, uint64_t number)
{
    return number > order->n_left[queue];
}

PriorityQueue priority_order_join(PriorityOrder *order, const PriorityItem *item, uint64_t *follows)
{
    const size_t at = hash(item->source);
    uint64_t *const last_normal = &order->last[PRIORITY_QUEUE_NORMAL][at];
    uint64_t *const last_high = &order->last[PRIORITY_QUEUE_HIGH][at];

    *follows = 0;
    if (item->rule == PRIORITY_RULE_FREE && item->is_high &&
        !has_waiting(order, PRIORITY_QUEUE_NORMAL, *last_normal) &&
        !has_waiting(order, PRIORITY_QUEUE_NORMAL, order->fixed)) {
        *last_high = ++order->n_joined[PRIORITY_QUEUE_HIGH];
        return PRIORITY_QUEUE_HIGH;
    }
    order->n_joined[PRIORITY_QUEUE_NORMAL]++;
    if (item->rule == PRIORITY_RULE_FREE || item->rule == PRIORITY_RULE_CARRIES)
        *last_normal = order->n_joined[PRIORITY_QUEUE_NORMAL];
    if (item->rule == PRIORITY_RULE_FIXED)
        order->fixed = order->n_joined[PRIORITY_QUEUE_NORMAL];
    *follows = item->rule == PRIORITY_RULE_FREE ? *last_high : order->n_joined[PRIORITY_QUEUE_HIGH];
    return PRIORITY_QUEUE_NORMAL;
}

PriorityQueue priority_order_next(const PriorityOrder *order, uint64_t follows)
{
    if (priority_order_waiting(order, PRIORITY_QUEUE_HIGH) == 0)
        return PRIORITY_QUEUE_NORMAL;
    if (priority_order_waiting(order, PRIORITY_QUEUE_NORMAL) == 0 ||
        !priority_order_is_due(order, follows))
        return PRIORITY_QUEUE_HIGH;
    return order->n_in_a_row < order->most_in_a_row ? PRIORITY_QUEUE_HIGH : PRIORITY_QUEUE_NORMAL;
}

void priority_order_leave(PriorityOrder *order, PriorityQueue queue, uint64_t n)
{
    order->n_left[queue] += n;
    order->n_in_a_row =
        queue == PRIORITY_QUEUE_HIGH && priority_order_waiting(order, PRIORITY_QUEUE_NORMAL) > 0
            ? order->n_in_a_row + 1
            : 0;
}
