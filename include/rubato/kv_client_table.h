/* RubatoKVClientTable: reads through the node's process cache.
 *
 * Process cache (tables under "ssp"): a row that one worker of the node has read serves all its
 * workers as long as the staleness bound allows. Concurrent misses on a row are fetched once. A
 * worker always sees its own Adds. RubatoTableSpec.cache says which rows are cached. Gets of ranges
 * do not use the cache. Under other models the handle works like a RubatoKVTable.
 *
 * kv_table.h describes what all handles have in common.
 *
 * Threads: the worker that opened the handle. */
#ifndef RUBATO_KV_CLIENT_TABLE_H
#define RUBATO_KV_CLIENT_TABLE_H

#include <rubato/ticket.h>

G_BEGIN_DECLS

typedef struct RubatoKVClientTable RubatoKVClientTable;

/* As rubato_worker_open_kv_table. (transfer full) */
RUBATO_API RubatoKVClientTable *rubato_worker_open_kv_client_table(RubatoWorker *worker,
                                                                   const char *table,
                                                                   RubatoDtype dtype,
                                                                   GError **error);
RUBATO_API void rubato_kv_client_table_free(RubatoKVClientTable *table);

RUBATO_API uint32_t rubato_kv_client_table_width(const RubatoKVClientTable *table);
RUBATO_API uint64_t rubato_kv_client_table_clock_value(const RubatoKVClientTable *table);

/* These do the same as the calls of RubatoKVTable. */
RUBATO_API bool rubato_kv_client_table_get(RubatoKVClientTable *table, const RubatoKey *keys,
                                           size_t n, void *values, GError **error);
RUBATO_API bool rubato_kv_client_table_add(RubatoKVClientTable *table, const RubatoKey *keys,
                                           size_t n, const void *deltas, GError **error);
RUBATO_API bool rubato_kv_client_table_get_range(RubatoKVClientTable *table, RubatoKey first,
                                                 size_t n, void *values, GError **error);
RUBATO_API bool rubato_kv_client_table_add_range(RubatoKVClientTable *table, RubatoKey first,
                                                 size_t n, const void *deltas, GError **error);
RUBATO_API bool rubato_kv_client_table_add_get(RubatoKVClientTable *table, const RubatoKey *keys,
                                               size_t n, const void *deltas, void *values,
                                               GError **error);
RUBATO_API bool rubato_kv_client_table_add_get_range(RubatoKVClientTable *table, RubatoKey first,
                                                     size_t n, const void *deltas, void *values,
                                                     GError **error);
RUBATO_API RubatoTicket rubato_kv_client_table_add_get_async(RubatoKVClientTable *table,
                                                             const RubatoKey *keys, size_t n,
                                                             const void *deltas, void *values,
                                                             const RubatoRequestOptions *options,
                                                             GError **error);
RUBATO_API RubatoTicket rubato_kv_client_table_add_get_range_async(
    RubatoKVClientTable *table, RubatoKey first, size_t n, const void *deltas, void *values,
    const RubatoRequestOptions *options, GError **error);
RUBATO_API bool rubato_kv_client_table_clock(RubatoKVClientTable *table, GError **error);

/* These do the same as the calls of RubatoKVTable. */
RUBATO_API RubatoTicket rubato_kv_client_table_get_async(RubatoKVClientTable *table,
                                                         const RubatoKey *keys, size_t n,
                                                         void *values,
                                                         const RubatoRequestOptions *options,
                                                         GError **error);
RUBATO_API RubatoTicket rubato_kv_client_table_add_async(RubatoKVClientTable *table,
                                                         const RubatoKey *keys, size_t n,
                                                         const void *deltas,
                                                         const RubatoRequestOptions *options,
                                                         GError **error);
RUBATO_API RubatoTicket rubato_kv_client_table_get_range_async(RubatoKVClientTable *table,
                                                               RubatoKey first, size_t n,
                                                               void *values,
                                                               const RubatoRequestOptions *options,
                                                               GError **error);
RUBATO_API RubatoTicket rubato_kv_client_table_add_range_async(RubatoKVClientTable *table,
                                                               RubatoKey first, size_t n,
                                                               const void *deltas,
                                                               const RubatoRequestOptions *options,
                                                               GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoKVClientTable, rubato_kv_client_table_free)

G_END_DECLS

#endif
