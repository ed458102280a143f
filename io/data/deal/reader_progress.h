/* How far the worker of a reader has come, for threads that want to know.
 *
 * The reader tells each batch that its worker gets: the worker's place is the last row that it got,
 * not what was read ahead. So the place does not depend on the reader's own thread.
 *
 * Threads: init and clear from the owner of the memory; the rest from any. */
#ifndef RUBATO_IO_DATA_DEAL_READER_PROGRESS_H
#define RUBATO_IO_DATA_DEAL_READER_PROGRESS_H

#include <pthread.h>

#include "io/data/deal/block_source.h"

typedef struct {
    bool has_block;      /* it has got a row; else the next two say nothing */
    BlockTicket place;   /* the block of its last row; n_read: its rows that the worker has got,
                          * with those that others had read before */
    uint64_t block_rows; /* of that block, those that this reader reads */
    uint64_t n_blocks;   /* of which it has got the last row */
    uint64_t n_rows;     /* that it has got, of all epochs */
    int64_t begun_us;    /* g_get_monotonic_time: when it opened the reader */
    int64_t told_us;     /* when it got its last batch, or ended */
    bool has_ended;      /* it gets no more rows */
    bool has_read_all;   /* because it found the end: it has ended */
} ReaderPosition;

typedef struct {
    pthread_mutex_t lock;
    ReaderPosition position; /* guarded by lock */
} ReaderProgress;

void reader_progress_init(ReaderProgress *progress);
void reader_progress_clear(ReaderProgress *progress);

/* Replaces the position; a later one of the same reader has at least as many rows. */
void reader_progress_tell(ReaderProgress *progress, const ReaderPosition *position);

/* What was told last. */
ReaderPosition reader_progress_get(ReaderProgress *progress);

#endif
