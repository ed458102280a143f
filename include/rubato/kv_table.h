/* RubatoKVTable: the usual handle.
 *
 * The table's consistency model decides what a Get may and must see: docs/consistency.md. A worker
 * has one clock on each table; several handles of one worker on one table share it.
 *
 * Common to all calls of the handles for rows of one length:
 * - n keys come in any order; a key may be repeated. n = 0 does nothing. values and deltas hold n ×
 *   width values of the table's dtype; row i belongs to keys[i].
 * - The caller owns keys, values and deltas, and may reuse them when the call returns. Rows come
 *   straight into values: if a call fails after it was sent, values may hold some of the rows, or
 *   parts of them.
 * - RUBATO_ERROR_RANGE: a key is outside a dense table's range. Nothing was sent, nothing written.
 *   RUBATO_ERROR_CANCELLED: the task failed elsewhere or was cancelled.
 *   RUBATO_ERROR_MEMORY: this node has no memory for the request.
 *
 * Threads: the worker that opened the handle. It closes the handle before its function returns. */
#ifndef RUBATO_KV_TABLE_H
#define RUBATO_KV_TABLE_H

#include <rubato/ticket.h>

G_BEGIN_DECLS

typedef struct RubatoKVTable RubatoKVTable;

/* Opens a table of the task. Errors: RUBATO_ERROR_NOT_FOUND if the task does not name the table,
 * RUBATO_ERROR_TYPE if the table has another dtype. (transfer full) */
RUBATO_API RubatoKVTable *rubato_worker_open_kv_table(RubatoWorker *worker, const char *table,
                                                      RubatoDtype dtype, GError **error);

/* The same; the handle reads through the node's process cache, if the table is under "ssp". A row
 * that one worker of the node has read then serves all its workers as long as the staleness bound
 * allows. Concurrent misses on a row are fetched once. A worker always sees its own Adds.
 * RubatoTableSpec.cache says which rows are cached. Gets of ranges, and Gets after Adds in one
 * round trip, do not use the cache. (transfer full) */
RUBATO_API RubatoKVTable *rubato_worker_open_kv_table_cached(RubatoWorker *worker,
                                                             const char *table, RubatoDtype dtype,
                                                             GError **error);

/* Closes the handle. Its Adds stay. The call waits for the requests that have tickets of this
 * handle, and for their callbacks. NULL is allowed. */
RUBATO_API void rubato_kv_table_free(RubatoKVTable *table);

/* Values in a row. */
RUBATO_API uint32_t rubato_kv_table_width(const RubatoKVTable *table);

/* The worker's clock on the table: how many iterations it has finished. */
RUBATO_API uint64_t rubato_kv_table_clock_value(const RubatoKVTable *table);

/* Reads the rows of the keys into values. It waits until the table's model allows it. */
RUBATO_API bool rubato_kv_table_get(RubatoKVTable *table, const RubatoKey *keys, size_t n,
                                    void *values, GError **error);

/* Sends the deltas to their rows; returns without waiting for the servers. Deltas of a repeated
 * key accumulate. */
RUBATO_API bool rubato_kv_table_add(RubatoKVTable *table, const RubatoKey *keys, size_t n,
                                    const void *deltas, GError **error);

/* The same for the consecutive keys first .. first + n - 1. */
RUBATO_API bool rubato_kv_table_get_range(RubatoKVTable *table, RubatoKey first, size_t n,
                                          void *values, GError **error);
RUBATO_API bool rubato_kv_table_add_range(RubatoKVTable *table, RubatoKey first, size_t n,
                                          const void *deltas, GError **error);

/* Adds the deltas, then reads the rows, like an Add followed by a Get, but in one round trip.
 * values gets the rows that the model shows at this clock: under "bsp" without these deltas. Under
 * "asp" no other Add comes between the two, also if a server's node is lost meanwhile: for the
 * worker's last 64 of these requests to a part, and 64 KiB of their rows. */
RUBATO_API bool rubato_kv_table_add_get(RubatoKVTable *table, const RubatoKey *keys, size_t n,
                                        const void *deltas, void *values, GError **error);
RUBATO_API bool rubato_kv_table_add_get_range(RubatoKVTable *table, RubatoKey first, size_t n,
                                              const void *deltas, void *values, GError **error);

/* The same without a wait: see ticket.h. The ticket of an Add ends when the servers have applied it
 * or, under "bsp", kept it for the end of the clock. The caller keeps values until the ticket has
 * ended; then they hold the rows. Returns 0 on error; then the callback is never called. While the
 * worker has 16 MiB of requests under way on the table, these calls first wait for some answers. */
RUBATO_API RubatoTicket rubato_kv_table_get_async(RubatoKVTable *table, const RubatoKey *keys,
                                                  size_t n, void *values,
                                                  const RubatoRequestOptions *options,
                                                  GError **error);
RUBATO_API RubatoTicket rubato_kv_table_add_async(RubatoKVTable *table, const RubatoKey *keys,
                                                  size_t n, const void *deltas,
                                                  const RubatoRequestOptions *options,
                                                  GError **error);
RUBATO_API RubatoTicket rubato_kv_table_get_range_async(RubatoKVTable *table, RubatoKey first,
                                                        size_t n, void *values,
                                                        const RubatoRequestOptions *options,
                                                        GError **error);
RUBATO_API RubatoTicket rubato_kv_table_add_range_async(RubatoKVTable *table, RubatoKey first,
                                                        size_t n, const void *deltas,
                                                        const RubatoRequestOptions *options,
                                                        GError **error);
RUBATO_API RubatoTicket rubato_kv_table_add_get_async(RubatoKVTable *table, const RubatoKey *keys,
                                                      size_t n, const void *deltas, void *values,
                                                      const RubatoRequestOptions *options,
                                                      GError **error);
RUBATO_API RubatoTicket rubato_kv_table_add_get_range_async(RubatoKVTable *table, RubatoKey first,
                                                            size_t n, const void *deltas,
                                                            void *values,
                                                            const RubatoRequestOptions *options,
                                                            GError **error);

/* Ends the worker's iteration on the table. RUBATO_ERROR_CANCELLED. RUBATO_ERROR_HANDLER if a call
 * of an earlier clock has failed since (handler.h): this is told once, and the clock is not
 * made. */
RUBATO_API bool rubato_kv_table_clock(RubatoKVTable *table, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoKVTable, rubato_kv_table_free)

G_END_DECLS

#endif
