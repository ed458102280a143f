/* The process cache: rows that one worker of the node has read serve the others, as long as SSP's
 * bound allows.
 *
 * A row is tagged with the min clock at which it was read; it holds every Add of clocks below that.
 * A Get at clock c under staleness s may be served by a row tagged c - s or later. Misses are
 * fetched once, however many workers wait for them. Adds of this node's workers to a cached row are
 * also applied to the cache, in the order in which they go to the server. So a worker always sees
 * its own Adds. The design note is in process_cache.c.
 *
 * One for each table, task and node, shared by its workers.
 *
 * Threads: any worker of the task; fetches are completed on the node's helper thread. */
#ifndef RUBATO_TABLES_PROCESS_CACHE_H
#define RUBATO_TABLES_PROCESS_CACHE_H

#include "tables/client/client.h"

/* helper: the node's helper thread. The route outlives the cache. (transfer full) */
ProcessCache *process_cache_new(const TableRoute *route, Actor *helper);

/* Nothing may be in flight. NULL is allowed. */
void process_cache_free(ProcessCache *cache);

/* Whether the rows of a slice may be cached. */
bool process_cache_covers(const ProcessCache *cache, const Slice *slice);

/* Starts a Get of one part's slice of a call's keys, at the client's clock: fills what the cache
 * has at once, and asks the server for the rest. The call has begun; parts are added for what is
 * still to come. The slice may be reused at once, values (of the whole call) stay until it has
 * ended. */
void process_cache_get(ProcessCache *cache, TableClient *client, const Slice *slice, void *values,
                       Call *call);

/* Starts a Get of slices, at the client's clock: those that may be cached go through the table's
 * cache, if it has one, the others to their servers. As table_client_send. What goes through the
 * cache has normal priority: its answer serves workers whose Adds wait before it. */
void process_cache_send_get(TableClient *client, const TableAsk *ask, const Slice *slices,
                            uint32_t n_slices, Call *call, Message *messages);

/* Drops all rows: for a worker that has added without the cache. */
void process_cache_forget(ProcessCache *cache);

/* Around the sending of an Add: between the two, nobody reads through the cache. NULL is
 * allowed. */
void process_cache_begin_add(ProcessCache *cache, const RubatoKeys *keys, const void *deltas);
void process_cache_end_add(ProcessCache *cache);

typedef struct {
    uint64_t hits, misses, joins; /* keys: served at once; fetched; waited for another's fetch */
} ProcessCacheStats;

void process_cache_stats(ProcessCache *cache, ProcessCacheStats *stats);

#endif
