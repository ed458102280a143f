/* A history from inside: what its file and its streams share.
 *
 * Threads: told at each function. */
#ifndef RUBATO_IO_HISTORY_HISTORY_PRIVATE_H
#define RUBATO_IO_HISTORY_HISTORY_PRIVATE_H

#include "io/history/history.h"

#define HISTORY_MAGIC "RBTHIST5"
#define HISTORY_CHUNK_MAGIC UINT32_C(0x4b4e4843)

typedef struct {
    uint32_t magic;
    uint32_t n_bytes; /* that follow */
    uint32_t is_text; /* lines of history_say */
    uint32_t epoch, rank, table, dtype, width;
} HistoryChunkHeader;

/* As many as fit make a huge page. */
#define HISTORY_CHUNK_BYTES (((size_t)128 << 10) - sizeof(HistoryChunkHeader) - sizeof(void *))

typedef struct HistoryChunk HistoryChunk;
struct HistoryChunk {
    HistoryChunk *next;
    HistoryChunkHeader header;
    _Alignas(8) uint8_t bytes[HISTORY_CHUNK_BYTES]; /* right behind the header */
};

/* The node is about to ask something. From here on the file says so, whenever it is killed. */
void history_begin_requests(History *history);

typedef struct {
    uint8_t kind, flags;
    uint16_t zero;
    uint32_t n_keys;
    uint64_t clock;
    uint64_t n_adds;
    uint64_t n_bytes; /* of keys and rows, which follow */
} HistoryRecordHeader;

/* The most bytes that may follow a record's header. */
#define HISTORY_RECORD_MOST_BYTES (HISTORY_CHUNK_BYTES - sizeof(HistoryRecordHeader))

/* What a record has of a row: if that is of more bytes, a number of 8. */
#define HISTORY_MOST_ROW_BYTES ((size_t)64)

static inline size_t history_noted_bytes(size_t row_bytes)
{
    return row_bytes > HISTORY_MOST_ROW_BYTES ? 8 : row_bytes;
}

/* Puts a record of another form: the header has all of the record but its keys and rows, and the
 * number of keys; n_bytes, a multiple of 8, follow. Returns where they go. The stream's user. */
uint8_t *history_stream_put(HistoryStream *stream, const HistoryRecord *record, size_t n_keys,
                            size_t n_bytes);
RubatoDtype history_stream_dtype(const HistoryStream *stream);

/* Any thread. */
HistoryChunk *history_take_chunk(History *history);
void history_give_chunk(History *history, HistoryChunk *chunk);

#endif
