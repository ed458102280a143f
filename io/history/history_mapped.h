/* The file of a node's records that outlive their process.
 *
 * Threads: any. */
#ifndef RUBATO_IO_HISTORY_HISTORY_MAPPED_H
#define RUBATO_IO_HISTORY_HISTORY_MAPPED_H

#include <pthread.h>
#include <stdatomic.h>

#include "io/history/history_private.h"

/* A multiple of the size of a page. */
#define HISTORY_SLOT_BYTES ((size_t)256 << 10)

/* Behind the last record there are zeros. */
typedef struct {
    HistoryChunkHeader header;
    _Alignas(8) uint8_t bytes[HISTORY_SLOT_BYTES - sizeof(HistoryChunkHeader)];
} HistorySlot;

typedef struct {
    char *path; /* immutable; NULL: not initialised */
    pthread_mutex_t lock;
    /* guarded by lock */
    int fd;         /* -1: no slot was taken yet, or none can be mapped */
    size_t n_slots; /* in the file */
    bool is_impossible;
} HistoryMapped;

/* path: of the node's first file. */
void history_mapped_init(HistoryMapped *mapped, const char *path);
void history_mapped_clear(HistoryMapped *mapped);

/* What was written before a thread is killed is in the file: only the compiler may not change the
 * order of what stands before and behind this. */
static inline void history_order_stores(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* A new slot for a chunk with this header, but for its n_bytes. NULL: *failure is an errno if there
 * were slots before, and 0 if none can be mapped here. (transfer full) */
HistorySlot *history_mapped_take(HistoryMapped *mapped, const HistoryChunkHeader *header,
                                 int *failure);
void history_mapped_give(HistorySlot *slot);

/* The same from the node's history. NULL: it can have none, or has failed, which it says. */
HistorySlot *history_take_slot(History *history, const HistoryChunkHeader *header);

#endif
