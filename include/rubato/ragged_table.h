/* RubatoRaggedTable: rows of any length.
 *
 * The table's spec has .shape = RUBATO_SHAPE_RAGGED; its dtype is any, RUBATO_U8 for bytes. A row
 * is a list of values. A row that was never written, or was erased, has none. A row may have up to
 * 128 MiB.
 *
 * A call names keys, in any order. An array of lengths belongs to them: one for each key, counted
 * in values. The values of the rows follow one another, in the order of the keys. The rows of
 * repeated keys are handled one after the other, in their order.
 *
 * The table's consistency model treats the calls like those of RubatoKVTable: lengths and get like
 * a Get; add, assign, append and erase like an Add. The writing calls return when each server has
 * done them or, under "bsp", kept them for the end of the clock. Then they are done by worker, and
 * those of one worker in the order in which it made them. Models with announced keys, such as
 * "sparse_ssp", are refused for such tables.
 *
 * An add must bring as many values for a row as the row has. Otherwise the call fails with
 * RUBATO_ERROR_INVALID: the text names the key and both lengths, and nothing is added to the rows
 * of that part of the table. Under "bsp" the lengths are those that the rows have when the clock
 * ends; if they are wrong then, the task fails.
 *
 * Errors of all calls:
 * RUBATO_ERROR_RANGE: a key is outside a dense table's range; nothing was sent.
 * RUBATO_ERROR_CANCELLED: the task failed elsewhere or was cancelled.
 * RUBATO_ERROR_MEMORY: there is no memory for the request.
 * RUBATO_ERROR_NETWORK: a server gave an impossible answer.
 *
 * Threads: the worker that opened the handle; any for the engine's calls. */
#ifndef RUBATO_RAGGED_TABLE_H
#define RUBATO_RAGGED_TABLE_H

#include <rubato/engine.h>
#include <rubato/ticket.h>

G_BEGIN_DECLS

typedef struct RubatoRaggedTable RubatoRaggedTable;

/* The most bytes of a row. */
#define RUBATO_RAGGED_MOST_ROW_BYTES ((size_t)128 << 20)

/* RUBATO_ERROR_NOT_FOUND: the task does not use the table. RUBATO_ERROR_TYPE: another dtype, or a
 * table with rows of one length. (transfer full) */
RUBATO_API RubatoRaggedTable *rubato_worker_open_ragged_table(RubatoWorker *worker,
                                                              const char *table, RubatoDtype dtype,
                                                              GError **error);

/* Waits for the handle's tickets. NULL is allowed. */
RUBATO_API void rubato_ragged_table_free(RubatoRaggedTable *table);

RUBATO_API uint64_t rubato_ragged_table_clock_value(const RubatoRaggedTable *table);

/* Reads the lengths of rows. */
RUBATO_API bool rubato_ragged_table_lengths(RubatoRaggedTable *table, const RubatoKey *keys,
                                            size_t n, uint32_t *lengths, GError **error);

/* Reads rows. *values becomes an array with the values of all rows; free it with g_free. It is NULL
 * if all rows are empty. (*values: transfer full) */
RUBATO_API bool rubato_ragged_table_get(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                                        uint32_t *lengths, void **values, GError **error);

/* The same into an array with room for n_values values. RUBATO_ERROR_RANGE: the rows have more; the
 * text says how many, lengths has the rows' lengths, and values stays as it was. */
RUBATO_API bool rubato_ragged_table_get_into(RubatoRaggedTable *table, const RubatoKey *keys,
                                             size_t n, uint32_t *lengths, void *values,
                                             size_t n_values, GError **error);

/* Adds to the values of rows that have these lengths. Integers wrap around. */
RUBATO_API bool rubato_ragged_table_add(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                                        const uint32_t *lengths, const void *deltas,
                                        GError **error);

/* Replaces all values of rows. */
RUBATO_API bool rubato_ragged_table_assign(RubatoRaggedTable *table, const RubatoKey *keys,
                                           size_t n, const uint32_t *lengths, const void *values,
                                           GError **error);

/* Puts values at the end of rows. RUBATO_ERROR_INVALID: a row would become longer than rows may be;
 * that row and the rows after it stay as they are. */
RUBATO_API bool rubato_ragged_table_append(RubatoRaggedTable *table, const RubatoKey *keys,
                                           size_t n, const uint32_t *lengths, const void *values,
                                           GError **error);

/* Removes all values of rows. */
RUBATO_API bool rubato_ragged_table_erase(RubatoRaggedTable *table, const RubatoKey *keys, size_t n,
                                          GError **error);

/* The same without a wait: ticket.h. The keys, lengths and values of a writing call are copied. The
 * memory that a reading call writes (lengths, values and *values) must stay until the ticket has
 * ended; then it has the rows. 0 on error; then the callback is never called. */
RUBATO_API RubatoTicket rubato_ragged_table_lengths_async(RubatoRaggedTable *table,
                                                          const RubatoKey *keys, size_t n,
                                                          uint32_t *lengths,
                                                          const RubatoRequestOptions *options,
                                                          GError **error);
RUBATO_API RubatoTicket rubato_ragged_table_get_async(RubatoRaggedTable *table,
                                                      const RubatoKey *keys, size_t n,
                                                      uint32_t *lengths, void **values,
                                                      const RubatoRequestOptions *options,
                                                      GError **error);
RUBATO_API RubatoTicket rubato_ragged_table_get_into_async(
    RubatoRaggedTable *table, const RubatoKey *keys, size_t n, uint32_t *lengths, void *values,
    size_t n_values, const RubatoRequestOptions *options, GError **error);
RUBATO_API RubatoTicket rubato_ragged_table_add_async(RubatoRaggedTable *table,
                                                      const RubatoKey *keys, size_t n,
                                                      const uint32_t *lengths, const void *deltas,
                                                      const RubatoRequestOptions *options,
                                                      GError **error);
RUBATO_API RubatoTicket rubato_ragged_table_assign_async(
    RubatoRaggedTable *table, const RubatoKey *keys, size_t n, const uint32_t *lengths,
    const void *values, const RubatoRequestOptions *options, GError **error);
RUBATO_API RubatoTicket rubato_ragged_table_append_async(
    RubatoRaggedTable *table, const RubatoKey *keys, size_t n, const uint32_t *lengths,
    const void *values, const RubatoRequestOptions *options, GError **error);
RUBATO_API RubatoTicket rubato_ragged_table_erase_async(RubatoRaggedTable *table,
                                                        const RubatoKey *keys, size_t n,
                                                        const RubatoRequestOptions *options,
                                                        GError **error);

/* Ends the worker's iteration on the table. */
RUBATO_API bool rubato_ragged_table_clock(RubatoRaggedTable *table, GError **error);

/* Between tasks, without a model. When the last two return, the rows have been written.
 * (*values: transfer full) */
RUBATO_API bool rubato_engine_get_ragged(RubatoEngine *engine, const char *table,
                                         const RubatoKey *keys, size_t n, uint32_t *lengths,
                                         void **values, GError **error);
RUBATO_API bool rubato_engine_assign_ragged(RubatoEngine *engine, const char *table,
                                            const RubatoKey *keys, size_t n,
                                            const uint32_t *lengths, const void *values,
                                            GError **error);
RUBATO_API bool rubato_engine_erase_ragged(RubatoEngine *engine, const char *table,
                                           const RubatoKey *keys, size_t n, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoRaggedTable, rubato_ragged_table_free)

G_END_DECLS

#endif
