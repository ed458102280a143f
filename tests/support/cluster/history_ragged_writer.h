/* Writes histories of a table of ragged rows by hand: of two workers of one task and a server that
 * has one part, whose rows have values of 4 bytes.
 *
 * Threads: the test's. */
#ifndef TESTS_SUPPORT_CLUSTER_HISTORY_RAGGED_WRITER_H
#define TESTS_SUPPORT_CLUSTER_HISTORY_RAGGED_WRITER_H

#include "tests/support/cluster/history_writer.h"

typedef struct {
    History *history;
    HistoryStream *workers[WRITER_WORKERS], *server;
    uint64_t clocks[WRITER_WORKERS], n_adds[WRITER_WORKERS];
    uint64_t n_calls[WRITER_WORKERS]; /* of its clock */
    uint64_t order;                   /* what the server has run */
    uint64_t row_bytes;               /* as the server counts them */
} RaggedWriter;

/* The file of a node, with what each node says. (transfer full) */
History *ragged_writer_open_node(uint32_t node, const char *model);
HistoryStream *ragged_writer_new_server(History *history);

void ragged_writer_begin(RaggedWriter *writer, const char *model);

/* The task ends, and row 5 is read: n values. */
void ragged_writer_end(RaggedWriter *writer, uint32_t n, const int32_t *values);

/* A worker writes n values to row 5. Returns the number of the call. */
uint64_t ragged_writer_ask(RaggedWriter *writer, uint32_t worker, HistoryRaggedOp op,
                           unsigned flags, uint32_t n, const int32_t *values);

/* The server has run a call that the worker has made at that clock: the rows have got so many bytes
 * more, or fewer. */
void ragged_writer_run(RaggedWriter *writer, uint32_t worker, uint64_t clock, uint64_t number,
                       int64_t more_bytes);

/* Both. */
void ragged_writer_do(RaggedWriter *writer, uint32_t worker, HistoryRaggedOp op, uint32_t n,
                      const int32_t *values, int64_t more_bytes);

/* A worker reads rows from 5 on: their lengths, and values. */
void ragged_writer_get(RaggedWriter *writer, uint32_t worker, size_t n_rows,
                       const uint32_t *lengths, const int32_t *values);
void ragged_writer_tick(RaggedWriter *writer);

#endif
