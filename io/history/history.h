/* The history of a node: a file with each request that its workers made and what they saw, for
 * `rubato history check`. docs/history.md tells the format.
 *
 * A stream has the requests of one worker on one table, in the order in which they were made; or,
 * for requests by tickets, in which they ended. Streams collect records in chunks; a thread of the
 * history writes these. When the file cannot be written any more, the history says so in the log
 * and in the file, and drops what follows.
 *
 * Threads: a History, any; a stream, one at a time. */
#ifndef RUBATO_IO_HISTORY_HISTORY_H
#define RUBATO_IO_HISTORY_HISTORY_H

#include <rubato/request.h>

#define HISTORY_VARIABLE "RUBATO_HISTORY"

typedef struct History History;
typedef struct HistoryStream HistoryStream;

/* Kinds and flags of records: part of the format. */
typedef enum {
    HISTORY_GET = 1,
    HISTORY_ADD = 2,
    HISTORY_SET = 3, /* rows written between tasks */
    HISTORY_CLOCK = 4,
    HISTORY_ANNOUNCE = 5,
    HISTORY_HANDLER = 6, /* its result's hash and its name; its keys come next */
    HISTORY_TUNE = 7,
    HISTORY_RETIRE = 8, /* the worker makes no further requests on the table */
    HISTORY_HANDLER_KEYS = 9,
    HISTORY_HANDLER_PARTS = 10, /* the parts that its call goes to, in the place of keys */
    HISTORY_APPLIED = 11,       /* a server has run a call that writes */
    HISTORY_RAGGED = 12,        /* a request to ragged rows, on one part */
    HISTORY_RAGGED_RAN = 13,    /* a server has run one that writes */
} HistoryKind;

/* Added to the kind of a record that is packed. */
#define HISTORY_PACKED 128u

/* The "rank" of a server, whose streams have what it has applied. */
#define HISTORY_SERVER (UINT32_MAX - 1)

enum {
    HISTORY_RUN_OF_KEYS = 1, /* the first of consecutive keys stands for all */
    HISTORY_SAME_KEYS = 2,   /* those of the last record before it that has keys, in its chunk */
    HISTORY_FAILED = 4,      /* the call failed: nobody knows how much of it was done */
    HISTORY_OF_TICKET = 8,   /* it may have seen later Adds of its own worker */
    HISTORY_WRITES = 16,     /* the handler writes */
    HISTORY_LAST = 32,       /* the last record of what a server has applied */
    HISTORY_UNTOLD = 64,     /* a write whose worker went on before it was done */
    HISTORY_CLOCKED = 128,   /* a Clock to the record's clock comes in front of it */
};

/* Starts the file of this node in the folder. The folder is made if it is not there. n_nodes: with
 * which the run begins, each of which has a file; 0 of a node that comes later. NULL with
 * RUBATO_ERROR_IO. (transfer full) */
History *history_open(const char *folder, uint32_t node, uint32_t n_nodes, GError **error);

/* The same of a process that joins, in the place of a lost one or as a node that was not there:
 * node-ID-1.history, or the first number of which there is no file yet. */
History *history_open_again(const char *folder, uint32_t node, uint32_t n_nodes, GError **error);

/* Returns when all that was handed over before is in the file, as far as it can be written: it is
 * there if the process is killed then. Chunks that streams are filling are not handed over. */
void history_flush(History *history);

/* Writes what is left. NULL is allowed. */
void history_close(History *history);

/* How many collective calls this node has made, and how many tasks it has seen the end of. Its
 * engine's requests have this in the place of a clock. Any thread. */
uint64_t history_phase(History *history);
void history_next_phase(History *history);

/* The number of a call that the engine makes between tasks: no other of this node has it. Any
 * thread. */
uint64_t history_number_call(History *history);

/* A line about the node: tables and tasks. */
void history_say(History *history, const char *format, ...) G_GNUC_PRINTF(2, 3);

typedef struct {
    uint32_t epoch; /* of the task; 0: between tasks */
    uint32_t rank;
    uint32_t table;
    RubatoDtype dtype;
    uint32_t width;
} HistoryIdentity;

/* history NULL: NULL. (transfer full) */
HistoryStream *history_stream_new(History *history, const HistoryIdentity *identity);
void history_stream_free(HistoryStream *stream);

/* Hands over what the stream has. NULL is allowed. */
void history_stream_hand_over(HistoryStream *stream);

/* A record. n_adds: for an Add its number among the worker's Adds on the table, from 0; for others
 * how many of these were made before. rows: NULL, or one for each key. The keys are not copied into
 * it, and numbers that a file has side by side are not so here: what has just been stored in small
 * pieces and is read in one large one has to wait until all stores before it are done. */
typedef struct {
    HistoryKind kind;
    unsigned flags;
    uint64_t clock;
    const RubatoKeys *keys; /* NULL: none */
    uint64_t n_adds;
    const void *rows;
} HistoryRecord;

/* A worker's Clock is told with its next Get or Add if that follows, or when the stream is handed
 * over. */
void history_note(HistoryStream *stream, const HistoryRecord *record);

/* A call of a handler: the name and a hash of the result, then the record, which is of
 * HISTORY_HANDLER_KEYS. */
void history_note_handler(HistoryStream *stream, const HistoryRecord *record, const char *handler,
                          const void *result, size_t n_bytes);

/* A server has run the call of a handler that writes, on one part. */
typedef struct {
    uint32_t epoch;  /* of the caller's task; 0: between tasks */
    uint32_t rank;   /* the worker's; between tasks the id of the caller's node */
    uint64_t clock;  /* the worker's; between tasks 0 */
    uint64_t number; /* of the call: among those of its worker's clock, from 1 */
    uint32_t part;
} HistoryApplied;

/* Some of the rows that it has changed: for each key the row before, and the row after. They become
 * records number *n_records and following, and this is counted up. The stream is a server's. */
void history_note_applied(HistoryStream *stream, const HistoryApplied *applied,
                          const RubatoKeys *keys, const void *rows, uint32_t *n_records);

/* The call has run. Flags: HISTORY_FAILED, or 0. */
void history_note_applied_end(HistoryStream *stream, const HistoryApplied *applied, unsigned flags,
                              uint32_t n_records);

/* ---- ragged rows: history_ragged.c ---- */

/* What is asked: part of the format. */
typedef enum {
    HISTORY_RAGGED_LENGTHS = 1,
    HISTORY_RAGGED_GET,
    HISTORY_RAGGED_ADD,
    HISTORY_RAGGED_ASSIGN,
    HISTORY_RAGGED_APPEND,
    HISTORY_RAGGED_ERASE,
} HistoryRaggedOp;

/* A request to ragged rows of one part: what a worker has brought, or seen. */
typedef struct {
    HistoryRaggedOp op;
    unsigned flags;
    uint64_t clock;
    uint64_t n_adds; /* as in HistoryRecord; such a request that writes is an Add there */
    uint64_t number; /* as in HistoryApplied; 0: it reads */
    uint32_t part;
    RubatoKeys keys;
    const void *lengths; /* a number of 4 bytes for each key, of values; at any alignment; NULL:
                          * of an erase */
    const void *rows;    /* their values, one row behind the other; NULL: none */
} HistoryRagged;

/* Values that were written become part of the history; of those that were read a hash of each
 * row. */
void history_note_ragged(HistoryStream *stream, const HistoryRagged *request);

/* A server has run such a request that writes, as the part's `order`th, from 1 on; then the part's
 * rows have row_bytes bytes. Number 0: the part has come to this server, after so many. Flags:
 * HISTORY_FAILED, or 0. The stream is a server's. */
void history_note_ragged_ran(HistoryStream *stream, const HistoryApplied *applied, unsigned flags,
                             uint64_t order, uint64_t row_bytes);

/* The same as history_flush, and of this stream all. */
void history_stream_flush(HistoryStream *stream);

#endif
