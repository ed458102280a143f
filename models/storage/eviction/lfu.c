/* Least frequently used: a mark is a count of uses and the period of the last one. Counts fall by
 * half with each period, so what was often used long ago leaves, too. Of rows that were used
 * equally often, the one leaves whose last use is in the earlier period.
 *
 * Thread: any. */
#include "models/storage/eviction/eviction.h"

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

    return n_periods > COUNT_BITS ? 0 : (mark & MAX_COUNT) >> n_periods;
}

static uint32_t use(uint32_t mark, uint32_t now)
{
    const uint32_t count = count_of(mark, now);

    return period_of(now) << COUNT_BITS | (count < MAX_COUNT ? count + 1 : MAX_COUNT);
}

static size_t choose(const uint32_t *marks, size_t n, uint32_t now)
{
    uint32_t least = UINT32_MAX, longest = 0;
    size_t chosen = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t count = count_of(marks[i], now), age = n_periods_since(marks[i], now);

        if (count < least || (count == least && age > longest)) {
            least = count;
            longest = age;
            chosen = i;
        }
    }
    return chosen;
}

extern const EvictionOps lfu_eviction;

const EvictionOps lfu_eviction = { .name = "lfu", .use = use, .choose = choose };
