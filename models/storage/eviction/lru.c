/* Least recently used: a mark is the time of the last use.
 *
 * Thread: any. */
#include "models/storage/eviction/eviction.h"

#include <glib.h>

static uint32_t use(uint32_t mark, uint32_t now)
{
    (void)mark;
    return now;
}

/* The oldest is the largest of the ages with their positions behind them: without a jump, since
 * nobody can predict which it is. Of equal ones the first. */
static size_t choose(const uint32_t *marks, size_t n, uint32_t now)
{
    uint64_t oldest = 0;

    for (size_t i = 0; i < n; i++) {
        const uint64_t age = (now - marks[i]) & EVICTION_MARK_MASK;

        oldest = MAX(oldest, age << 32 | (UINT32_MAX - i));
    }
    return UINT32_MAX - (uint32_t)oldest;
}

extern const EvictionOps lru_eviction;

const EvictionOps lru_eviction = { .name = "lru", .use = use, .choose = choose };
