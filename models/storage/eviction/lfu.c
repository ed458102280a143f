/* Least frequently used: a mark is a count of uses and the period of the last one. Counts fall by
 * half with each period, so what was often used long ago leaves, too. Of rows that were used
 * equally often, the one leaves whose last use is in the earlier period.
 *
 * Thread: any. */
#include "models/storage/eviction/eviction.h"

#include <glib.h>

#define COUNT_BITS 16u
#define MAX_COUNT ((UINT32_C(1) << COUNT_BITS) - 1)
#define PERIOD_MASK (EVICTION_MARK_MASK >> COUNT_BITS)
#define PERIOD_BITS 13u /* 8 times as many uses as there is room for rows */

static uint32_t period_of(uint32_t now)
{
    return now >> PERIOD_BITS & PERIOD_MASK;
}

static uint32_t n_periods_since(uint32_t mark, uint32_t now)
{
    return (period_of(now) - (mark >> COUNT_BITS)) & PERIOD_MASK;
}

static uint32_t count_of(uint32_t mark, uint32_t now)
{
    const uint32_t n_periods = n_periods_since(mark, now);

    return (mark & MAX_COUNT) >> MIN(n_periods, COUNT_BITS);
}

static uint32_t use(uint32_t mark, uint32_t now)
{
    const uint32_t count = count_of(mark, now);

    return period_of(now) << COUNT_BITS | (count < MAX_COUNT ? count + 1 : MAX_COUNT);
}

/* As in lru.c, without a jump: count, age and position are the parts of one number. */
static size_t choose(const uint32_t *marks, size_t n, uint32_t now)
{
    uint64_t last = 0;

    for (size_t i = 0; i < n; i++) {
        const uint64_t uncounted = MAX_COUNT - count_of(marks[i], now);
        const uint64_t age = n_periods_since(marks[i], now);

        last = MAX(last, uncounted << 48 | age << 32 | (UINT32_MAX - i));
    }
    return UINT32_MAX - (uint32_t)last;
}

extern const EvictionOps lfu_eviction;

const EvictionOps lfu_eviction = { .name = "lfu", .use = use, .choose = choose };
