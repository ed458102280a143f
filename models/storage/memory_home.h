/* Where the memory of rows is to lie: on a machine with several NUMA nodes, near the cores of the
 * shard's server. Storages and admissions take the home when they are made, and show it each range
 * of memory that they map, before anything is written to it.
 *
 * Threads: a scope belongs to the thread that makes a shard. A home may be used by any; it outlives
 * the shards that were made with it. */
#ifndef RUBATO_MODELS_STORAGE_MEMORY_HOME_H
#define RUBATO_MODELS_STORAGE_MEMORY_HOME_H

#include <glib.h>

typedef struct MemoryHome MemoryHome;
struct MemoryHome {
    /* Memory of whole pages was mapped. If it cannot lie here, it lies anywhere. */
    void (*take)(const MemoryHome *home, void *memory, size_t n_bytes);
};

/* The home of shards that the calling thread makes; NULL: memory lies where it is first written
 * to. */
const MemoryHome *memory_home(void);

/* Makes it another one, and returns the one before. */
const MemoryHome *memory_home_set(const MemoryHome *home);

/* Shows memory to a home. Both may be NULL. */
static inline void memory_home_take(const MemoryHome *home, void *memory, size_t n_bytes)
{
    if (home != NULL && memory != NULL)
        home->take(home, memory, n_bytes);
}

/* Shards that the calling thread makes until the end of the block have this home:
 *
 *     MEMORY_HOME_SCOPE(server->home); */
typedef struct {
    const MemoryHome *before;
} MemoryHomeScope;

static inline void memory_home_scope_end(MemoryHomeScope *scope)
{
    memory_home_set(scope->before);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MemoryHomeScope, memory_home_scope_end)

#define MEMORY_HOME_SCOPE(home) \
    G_GNUC_UNUSED g_auto(MemoryHomeScope) memory_home_scope = { memory_home_set(home) }

#endif
