/* The memory of rows that are about to come, made ready.
 *
 * The rows of a new table of zeros have no memory yet: the kernel clears each page at its first
 * write, which takes longer than reading the page's rows. So while rows of a snapshot are read, a
 * thread has the kernel do so from the last row on, towards the thread that fills them from the
 * first one on. Memory that is there already stays as it is. A replica of a part gets its memory
 * before its rows come, too.
 *
 * Threads: start and stop belong to one thread; fill: the shard's owner. */
#ifndef RUBATO_ENGINE_PARTS_READY_MEMORY_H
#define RUBATO_ENGINE_PARTS_READY_MEMORY_H

#include "engine/engine_private.h"

typedef struct ReadyMemory ReadyMemory;

/* For the rows of `n` keys from `first` on that lie on this node's servers. NULL: it is not worth a
 * thread, or there is none. */
ReadyMemory *ready_memory_start(RubatoEngine *engine, const Table *table, RubatoKey first,
                                uint64_t n);

/* Waits until the thread has ended, some milliseconds. NULL is allowed. */
void ready_memory_stop(ReadyMemory *ready);

/* The same for all rows of a shard, on this thread, unless it would take no time that counts. Ends
 * earlier if `stops`, which it asks about each millisecond. */
void ready_memory_fill(const RubatoShard *shard, bool (*stops)(const void *user), const void *user);

#endif
