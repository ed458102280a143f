/* Lowest score: the row leaves that the table's expiry says is worth least now. Marks are not
 * looked at.
 *
 * Thread: any. */
#include "models/storage/eviction/eviction.h"

static uint32_t use(uint32_t mark, uint32_t now)
{
    (void)now;
    return mark;
}

extern const EvictionOps score_eviction;

const EvictionOps score_eviction = { .name = "score", .use = use };
