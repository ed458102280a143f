/* Records that outlive their process: the second file of a node.
 *
 * It consists of slots of one size, and each has one chunk. A stream fills the chunk through a
 * mapping of the slot, so a record is in the file as soon as it is in memory, whenever the process
 * is killed, and without a call of the system. It does not outlive the machine. A slot has its room
 * on the disk before it is mapped: a write to a mapping could not be refused.
 *
 * Not every file system has such mappings. If the first slot cannot be mapped, there is no second
 * file, and streams wait for the writer instead.
 *
 * Threads: any. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/history/history_mapped.h"

#define SUFFIX ".history"

G_STATIC_ASSERT(sizeof(HistorySlot) == HISTORY_SLOT_BYTES);

void history_mapped_init(HistoryMapped *mapped, const char *path)
{
    const size_t n_name = strlen(path) - strlen(SUFFIX);

    *mapped =
        (HistoryMapped){ .fd = -1, .path = g_strdup_printf("%.*s.mapped", (int)n_name, path) };
    pthread_mutex_init(&mapped->lock, NULL);
}

void history_mapped_clear(HistoryMapped *mapped)
{
    if (mapped->path == NULL)
        return;
    if (mapped->fd >= 0)
        close(mapped->fd);
    pthread_mutex_destroy(&mapped->lock);
    g_free(mapped->path);
}

/* With the lock. */
static HistorySlot *map_next(HistoryMapped *mapped)
{
    const off_t at = (off_t)(mapped->n_slots * HISTORY_SLOT_BYTES);
    void *slot;

    if (mapped->fd < 0)
        mapped->fd = open(mapped->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (mapped->fd < 0)
        return NULL;
    errno = posix_fallocate(mapped->fd, at, HISTORY_SLOT_BYTES);
    if (errno != 0)
        return NULL;
    slot = mmap(NULL, HISTORY_SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, mapped->fd, at);
    if (slot == MAP_FAILED)
        return NULL;
    mapped->n_slots++;
    return slot;
}

/* Leaves no file without a slot. With the lock. */
static void give_up(HistoryMapped *mapped)
{
    if (mapped->fd >= 0) {
        unlink(mapped->path);
        close(mapped->fd);
    }
    mapped->fd = -1;
    mapped->is_impossible = true;
}

HistorySlot *history_mapped_take(HistoryMapped *mapped, const HistoryChunkHeader *header,
                                 int *failure)
{
    HistorySlot *slot = NULL;

    *failure = 0;
    pthread_mutex_lock(&mapped->lock);
    if (!mapped->is_impossible) {
        slot = map_next(mapped);
        if (slot == NULL && mapped->n_slots == 0)
            give_up(mapped);
        else if (slot == NULL)
            *failure = errno;
    }
    pthread_mutex_unlock(&mapped->lock);
    if (slot == NULL)
        return NULL;
    slot->header.n_bytes = sizeof slot->bytes;
    slot->header.epoch = header->epoch;
    slot->header.rank = header->rank;
    slot->header.table = header->table;
    slot->header.dtype = header->dtype;
    slot->header.width = header->width;
    history_order_stores();
    slot->header.magic = header->magic;
    history_order_stores();
    return slot;
}

void history_mapped_give(HistorySlot *slot)
{
    munmap(slot, HISTORY_SLOT_BYTES);
}
