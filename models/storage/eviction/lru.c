/* Least recently used: a mark is the time of the last use.
 *
 * Thread: any. */
#include "models/storage/eviction/eviction.h"

static uint32_t use(uint32_t mark, uint32_t now)
{
    (void)mark;
    return now;
}

static size_t choose(const uint32_t *marks, size_t n, uint32_t now)
{
    uint32_t oldest = 0;
    size_t chosen = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t age = (now - marks[i]) & EVICTION_MARK_MASK;

        if (age > oldest) {
            oldest = age;
            chosen = i;
        }
    }
    return chosen;
}

extern const EvictionOps lru_eviction;

const EvictionOps lru_eviction = { .name = "lru", .use = use, .choose = choose };
