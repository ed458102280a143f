/* RubatoKVClientTable: asynchronous use, through the node's helper thread and its process cache.
 *
 * get_async and add_async return a ticket at once. A ticket ends when its answer has come. `poll`
 * asks whether it has ended; `wait` waits and returns how it ended. A callback, if one was given,
 * runs once on the node's helper thread. The handle keeps a ticket until somebody waits for it; a
 * ticket whose callback was told of success needs no wait. Freeing the handle waits for all
 * requests in flight and their callbacks.
 *
 * Process cache (tables under "ssp"): a row that one worker of the node has read serves all its
 * workers as long as the staleness bound allows. Concurrent misses on a row are fetched once. A
 * worker always sees its own Adds. RubatoTableSpec.cache says which rows are cached.
 *
 * kv_table.h describes what all handles have in common.
 *
 * Threads: the worker that opened the handle. Callbacks run on the helper thread, one at a time;
 * they must not block and must not call the handle. */
#ifndef RUBATO_KV_CLIENT_TABLE_H
#define RUBATO_KV_CLIENT_TABLE_H

#include <rubato/task.h>

G_BEGIN_DECLS

typedef struct RubatoKVClientTable RubatoKVClientTable;

/* Names a request of one handle; never 0. */
typedef uint64_t RubatoTicket;

/* error is NULL if the request succeeded; it belongs to the caller of the callback. */
typedef void (*RubatoCallback)(RubatoTicket ticket, const GError *error, void *user_data);

/* (transfer full) */
RUBATO_API RubatoKVClientTable *rubato_worker_open_kv_client_table(RubatoWorker *worker,
                                                                   const char *table,
                                                                   RubatoDtype dtype,
                                                                   GError **error);
RUBATO_API void rubato_kv_client_table_free(RubatoKVClientTable *table);

RUBATO_API uint32_t rubato_kv_client_table_width(const RubatoKVClientTable *table);
RUBATO_API uint64_t rubato_kv_client_table_clock_value(const RubatoKVClientTable *table);

/* As those of RubatoKVTable. */
RUBATO_API bool rubato_kv_client_table_get(RubatoKVClientTable *table, const RubatoKey *keys,
                                           size_t n, void *values, GError **error);
RUBATO_API bool rubato_kv_client_table_add(RubatoKVClientTable *table, const RubatoKey *keys,
                                           size_t n, const void *deltas, GError **error);
RUBATO_API bool rubato_kv_client_table_get_range(RubatoKVClientTable *table, RubatoKey first,
                                                 size_t n, void *values, GError **error);
RUBATO_API bool rubato_kv_client_table_add_range(RubatoKVClientTable *table, RubatoKey first,
                                                 size_t n, const void *deltas, GError **error);
RUBATO_API bool rubato_kv_client_table_clock(RubatoKVClientTable *table, GError **error);

/* Starts a Get. keys may be reused at once; values must stay until the ticket has ended, and then
 * holds the rows. callback may be NULL. Returns 0 on error, and then never calls back. If tickets
 * for more than 16 MiB of keys and rows wait for other nodes, it first waits until some of them are
 * answered. */
RUBATO_API RubatoTicket rubato_kv_client_table_get_async(RubatoKVClientTable *table,
                                                         const RubatoKey *keys, size_t n,
                                                         void *values, RubatoCallback callback,
                                                         void *user_data, GError **error);

/* Starts an Add. Its ticket ends when the servers have applied it or, under "bsp", kept it for the
 * end of the clock. keys and deltas may be reused at once. */
RUBATO_API RubatoTicket rubato_kv_client_table_add_async(RubatoKVClientTable *table,
                                                         const RubatoKey *keys, size_t n,
                                                         const void *deltas,
                                                         RubatoCallback callback, void *user_data,
                                                         GError **error);

/* Waits until the ticket has ended and its callback has returned; false with the request's error.
 * For a ticket that was waited for before it returns true at once; an unknown ticket is
 * RUBATO_ERROR_INVALID. */
RUBATO_API bool rubato_kv_client_table_wait(RubatoKVClientTable *table, RubatoTicket ticket,
                                            GError **error);

/* Waits for all tickets of the handle; false with the first error. */
RUBATO_API bool rubato_kv_client_table_wait_all(RubatoKVClientTable *table, GError **error);

/* Whether the ticket has ended. Never waits. */
RUBATO_API bool rubato_kv_client_table_poll(RubatoKVClientTable *table, RubatoTicket ticket);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoKVClientTable, rubato_kv_client_table_free)

G_END_DECLS

#endif
