/* The home of the shards that a thread makes: see memory_home.h. */
#include "models/storage/memory_home.h"

static _Thread_local const MemoryHome *present;

const MemoryHome *memory_home(void)
{
    return present;
}

const MemoryHome *memory_home_set(const MemoryHome *home)
{
    const MemoryHome *const before = present;

    present = home;
    return before;
}
