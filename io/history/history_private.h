/* A history from inside: what its file and its streams share.
 *
 * Threads: told at each function. */
#ifndef RUBATO_IO_HISTORY_HISTORY_PRIVATE_H
#define RUBATO_IO_HISTORY_HISTORY_PRIVATE_H

#include "io/history/history.h"

#define HISTORY_MAGIC "RBTHIST1"
#define HISTORY_CHUNK_MAGIC UINT32_C(0x4b4e4843)
#define HISTORY_CHUNK_BYTES ((size_t)128 << 10)

typedef struct {
    uint32_t magic;
    uint32_t n_bytes; /* that follow */
    uint32_t is_text; /* lines of history_say */
    uint32_t epoch, rank, table, dtype, width;
} HistoryChunkHeader;

typedef struct HistoryChunk HistoryChunk;
struct HistoryChunk {
    HistoryChunk *next;
    HistoryChunkHeader header;
    _Alignas(8) uint8_t bytes[HISTORY_CHUNK_BYTES]; /* right behind the header */
};

/* The node is about to ask something. From here on the file says so, whenever it is killed. */
void history_begin_requests(History *history);

/* Any thread. */
HistoryChunk *history_take_chunk(History *history);
void history_give_chunk(History *history, HistoryChunk *chunk);

#endif
