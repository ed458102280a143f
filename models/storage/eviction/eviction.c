/* The list of the orders of eviction.
 *
 * Thread: any. */
#include "models/storage/eviction/eviction.h"

#include <glib.h>
#include <string.h>

extern const EvictionOps lru_eviction, lfu_eviction, score_eviction;

static const EvictionOps *const evictions[] = { &lru_eviction, &lfu_eviction, &score_eviction };

const EvictionOps *eviction_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(evictions); i++)
        if (strcmp(evictions[i]->name, name) == 0)
            return evictions[i];
    return NULL;
}

const char *eviction_name(size_t i)
{
    return i < G_N_ELEMENTS(evictions) ? evictions[i]->name : NULL;
}
