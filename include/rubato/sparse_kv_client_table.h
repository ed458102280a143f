/* RubatoSparseKVClientTable: the worker announces ahead of time which keys each iteration uses.
 *
 * The handle clocks itself: each Get after the first ends the iteration before it. A Get, and the
 * Adds that follow it, use the keys announced for the iteration. Under "sparse_ssp" a worker may
 * run `speculation` clocks beyond the staleness bound as long as no slower worker still uses one of
 * its keys. Under the other models the handle works too, but the announcements release no Get
 * earlier.
 *
 * Threads: the worker that opened the handle; the callback is called on that thread. */
#ifndef RUBATO_SPARSE_KV_CLIENT_TABLE_H
#define RUBATO_SPARSE_KV_CLIENT_TABLE_H

#include <rubato/ticket.h>

G_BEGIN_DECLS

typedef struct RubatoSparseKVClientTable RubatoSparseKVClientTable;

/* The keys of one iteration. */
typedef struct {
    const RubatoKey *keys;
    size_t n; /* 0: the iteration uses none */
} RubatoIteration;

/* Writes the keys of an iteration to *keys. It is called for iteration 0 (in the place of a lost
 * worker: rubato_worker_first_clock) and those behind it, once each, in this order; false: there
 * are no more. The callback owns the keys; they are copied before it is called again. */
typedef bool (*RubatoIterationFunc)(uint64_t iteration, RubatoIteration *keys, void *user_data);

/* Opens the table with all iterations in an array. The caller keeps the array until the handle is
 * freed. Errors: those of rubato_worker_open_kv_table, and RUBATO_ERROR_INVALID if the worker has
 * clocked the table or has opened such a handle on it before. (transfer full) */
RUBATO_API RubatoSparseKVClientTable *rubato_worker_open_sparse_kv_client_table(
    RubatoWorker *worker, const char *table, RubatoDtype dtype, const RubatoIteration *iterations,
    size_t n_iterations, GError **error);

/* The same with a callback, which is asked `speculation` iterations ahead, at least one.
 * (transfer full) */
RUBATO_API RubatoSparseKVClientTable *rubato_worker_open_sparse_kv_client_table_with(
    RubatoWorker *worker, const char *table, RubatoDtype dtype, RubatoIterationFunc next,
    void *user_data, GError **error);

RUBATO_API void rubato_sparse_kv_client_table_free(RubatoSparseKVClientTable *table);

RUBATO_API uint32_t rubato_sparse_kv_client_table_width(const RubatoSparseKVClientTable *table);
RUBATO_API uint64_t
rubato_sparse_kv_client_table_clock_value(const RubatoSparseKVClientTable *table);

/* The keys of the next Get; before the first Get, those of iteration 0. They stay valid until that
 * Get's iteration has ended. False if all iterations have been read. (transfer none) */
RUBATO_API bool rubato_sparse_kv_client_table_next(RubatoSparseKVClientTable *table,
                                                   RubatoIteration *keys);

/* Ends the iteration before, if there was one, and reads the rows of the next iteration's keys into
 * values: n × width values, in the order of the announced keys. RUBATO_ERROR_RANGE if all
 * iterations have been read. */
RUBATO_API bool rubato_sparse_kv_client_table_get(RubatoSparseKVClientTable *table, void *values,
                                                  GError **error);

/* Adds n × width deltas to the rows of the iteration that the last Get began. An iteration may make
 * this call any number of times. RUBATO_ERROR_INVALID before the first Get. */
RUBATO_API bool rubato_sparse_kv_client_table_add(RubatoSparseKVClientTable *table,
                                                  const void *deltas, GError **error);

/* Ends the iteration that the last Get began, which otherwise the next Get does: for a worker whose
 * clock belongs into a step (rubato_worker_begin_step). RUBATO_ERROR_INVALID before the first Get,
 * and if the iteration has ended, as of an Add then. */
RUBATO_API bool rubato_sparse_kv_client_table_clock(RubatoSparseKVClientTable *table,
                                                    GError **error);

/* Adds to the rows of the iteration that the last Get began, and reads them again, in one round
 * trip: see rubato_kv_table_add_get. RUBATO_ERROR_INVALID before the first Get. */
RUBATO_API bool rubato_sparse_kv_client_table_add_get(RubatoSparseKVClientTable *table,
                                                      const void *deltas, void *values,
                                                      GError **error);

/* The same without a wait: see ticket.h and rubato_kv_table_get_async. A Get ends the iteration
 * before it when it starts, not when its ticket ends. */
RUBATO_API RubatoTicket rubato_sparse_kv_client_table_get_async(RubatoSparseKVClientTable *table,
                                                                void *values,
                                                                const RubatoRequestOptions *options,
                                                                GError **error);
RUBATO_API RubatoTicket rubato_sparse_kv_client_table_add_async(RubatoSparseKVClientTable *table,
                                                                const void *deltas,
                                                                const RubatoRequestOptions *options,
                                                                GError **error);
RUBATO_API RubatoTicket rubato_sparse_kv_client_table_add_get_async(
    RubatoSparseKVClientTable *table, const void *deltas, void *values,
    const RubatoRequestOptions *options, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoSparseKVClientTable, rubato_sparse_kv_client_table_free)

G_END_DECLS

#endif
