/* RubatoChunkTable: chunks of consecutive keys, and the element calls on the same data.
 *
 * Chunk i of a dense table holds chunk_size consecutive keys, from first_key + i × chunk_size on.
 * RubatoTableSpec.chunk_size says how many. The last chunk ends with the range and may be shorter.
 * In the flat arrays below the chunks follow one another in the order of the request, each with its
 * own length × width values.
 *
 * kv_table.h describes what all handles have in common.
 *
 * Threads: the worker that opened the handle. */
#ifndef RUBATO_CHUNK_TABLE_H
#define RUBATO_CHUNK_TABLE_H

#include <rubato/ticket.h>

G_BEGIN_DECLS

typedef struct RubatoChunkTable RubatoChunkTable;

/* As rubato_worker_open_kv_table. Also fails with RUBATO_ERROR_INVALID if the storage is not dense.
 * (transfer full) */
RUBATO_API RubatoChunkTable *rubato_worker_open_chunk_table(RubatoWorker *worker, const char *table,
                                                            RubatoDtype dtype, GError **error);
RUBATO_API void rubato_chunk_table_free(RubatoChunkTable *table);

RUBATO_API uint32_t rubato_chunk_table_width(const RubatoChunkTable *table);
RUBATO_API uint64_t rubato_chunk_table_clock_value(const RubatoChunkTable *table);

/* Chunks in the table, keys in each, and keys in chunk `chunk` (fewer in the last). */
RUBATO_API uint64_t rubato_chunk_table_n_chunks(const RubatoChunkTable *table);
RUBATO_API uint32_t rubato_chunk_table_chunk_size(const RubatoChunkTable *table);
RUBATO_API uint32_t rubato_chunk_table_chunk_length(const RubatoChunkTable *table, uint64_t chunk);

/* Reads whole chunks, adds to them, or does both in one round trip (see rubato_kv_table_add_get).
 * RUBATO_ERROR_RANGE for a chunk that the table does not have. */
RUBATO_API bool rubato_chunk_table_get_chunks(RubatoChunkTable *table, const uint64_t *chunks,
                                              size_t n, void *values, GError **error);
RUBATO_API bool rubato_chunk_table_add_chunks(RubatoChunkTable *table, const uint64_t *chunks,
                                              size_t n, const void *deltas, GError **error);
RUBATO_API bool rubato_chunk_table_add_get_chunks(RubatoChunkTable *table, const uint64_t *chunks,
                                                  size_t n, const void *deltas, void *values,
                                                  GError **error);

/* The same without a wait: see ticket.h and rubato_kv_table_get_async. */
RUBATO_API RubatoTicket rubato_chunk_table_get_chunks_async(RubatoChunkTable *table,
                                                            const uint64_t *chunks, size_t n,
                                                            void *values,
                                                            const RubatoRequestOptions *options,
                                                            GError **error);
RUBATO_API RubatoTicket rubato_chunk_table_add_chunks_async(RubatoChunkTable *table,
                                                            const uint64_t *chunks, size_t n,
                                                            const void *deltas,
                                                            const RubatoRequestOptions *options,
                                                            GError **error);

RUBATO_API RubatoTicket rubato_chunk_table_add_get_chunks_async(RubatoChunkTable *table,
                                                                const uint64_t *chunks, size_t n,
                                                                const void *deltas, void *values,
                                                                const RubatoRequestOptions *options,
                                                                GError **error);

/* These do the same as the calls of RubatoKVTable. */
RUBATO_API bool rubato_chunk_table_get(RubatoChunkTable *table, const RubatoKey *keys, size_t n,
                                       void *values, GError **error);
RUBATO_API bool rubato_chunk_table_add(RubatoChunkTable *table, const RubatoKey *keys, size_t n,
                                       const void *deltas, GError **error);
RUBATO_API RubatoTicket rubato_chunk_table_get_async(RubatoChunkTable *table, const RubatoKey *keys,
                                                     size_t n, void *values,
                                                     const RubatoRequestOptions *options,
                                                     GError **error);
RUBATO_API RubatoTicket rubato_chunk_table_add_async(RubatoChunkTable *table, const RubatoKey *keys,
                                                     size_t n, const void *deltas,
                                                     const RubatoRequestOptions *options,
                                                     GError **error);
RUBATO_API bool rubato_chunk_table_add_get(RubatoChunkTable *table, const RubatoKey *keys, size_t n,
                                           const void *deltas, void *values, GError **error);
RUBATO_API RubatoTicket rubato_chunk_table_add_get_async(RubatoChunkTable *table,
                                                         const RubatoKey *keys, size_t n,
                                                         const void *deltas, void *values,
                                                         const RubatoRequestOptions *options,
                                                         GError **error);
RUBATO_API bool rubato_chunk_table_clock(RubatoChunkTable *table, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoChunkTable, rubato_chunk_table_free)

G_END_DECLS

#endif
