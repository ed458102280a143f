/* Cache files, written.
 *
 * A file is written under a name of its own, the header last, and renamed when all of it has
 * reached the disk.
 *
 * Runs on any thread: in a writer only what its lock guards changes. */
#include "io/data/cache_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "io/data/cache_layout.h"
#include "io/net/link/checksum.h"

struct CacheWriter {
    /* immutable */
    char *path;
    char *temporary;
    CacheKey key;
    int fd;

    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t end;  /* where the next block goes */
    GArray *index; /* of CacheEntry, by block */
    RubatoDataSummary summary;
};

static bool write_failed(const CacheWriter *writer, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be written: %s", writer->path,
                g_strerror(errno));
    return false;
}

static bool write_at(const CacheWriter *writer, uint64_t offset, const void *bytes, size_t size,
                     GError **error)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n =
            pwrite(writer->fd, (const char *)bytes + done, size - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return write_failed(writer, error);
        done += (size_t)n;
    }
    return true;
}

CacheWriter *cache_writer_new(const char *path, const CacheKey *key, GError **error)
{
    g_autoptr(CacheWriter) writer = g_new0(CacheWriter, 1);

    writer->path = g_strdup(path);
    writer->temporary = g_strconcat(path, ".XXXXXX", NULL);
    writer->key = *key;
    writer->end = sizeof(CacheHeader);
    writer->index = g_array_new(FALSE, TRUE, sizeof(CacheEntry));
    pthread_mutex_init(&writer->lock, NULL);
    writer->fd = g_mkstemp_full(writer->temporary, O_RDWR | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        write_failed(writer, error);
        g_clear_pointer(&writer->temporary, g_free);
        return NULL;
    }
    return g_steal_pointer(&writer);
}

bool cache_writer_add(CacheWriter *writer, uint64_t number, const DataBlock *block, GError **error)
{
    CacheEntry entry = { .size = block->image_bytes,
                         .checksum = checksum(block->head, block->image_bytes, 0) };

    const RubatoDataSummary summary = data_block_summary(block);

    pthread_mutex_lock(&writer->lock);
    entry.offset = writer->end;
    writer->end += (entry.size + 7) / 8 * 8;
    if (number >= writer->index->len)
        g_array_set_size(writer->index, (guint)number + 1);
    g_array_index(writer->index, CacheEntry, number) = entry;
    data_summary_add(&writer->summary, &summary);
    pthread_mutex_unlock(&writer->lock);
    return write_at(writer, entry.offset, block->head, entry.size, error);
}

bool cache_writer_finish(CacheWriter *writer, uint64_t n_blocks, GError **error)
{
    const CacheEntry *index = (const CacheEntry *)(const void *)writer->index->data;
    CacheHeader header = {
        .version = CACHE_VERSION,
        .byte_order = CACHE_BYTE_ORDER_MARK,
        .header_bytes = sizeof header,
        .head_bytes = sizeof(BlockHead),
        .key = writer->key,
        .n_blocks = n_blocks,
        .index_offset = writer->end,
        .file_bytes = writer->end + n_blocks * sizeof *index,
        .summary = writer->summary,
    };

    memcpy(header.magic, CACHE_MAGIC, sizeof header.magic);
    header.checksum = cache_layout_checksum(&header, index, n_blocks);
    if (!write_at(writer, writer->end, index, n_blocks * sizeof *index, error) ||
        !write_at(writer, 0, &header, sizeof header, error))
        return false;
    if (fdatasync(writer->fd) != 0 || g_rename(writer->temporary, writer->path) != 0)
        return write_failed(writer, error);
    g_clear_pointer(&writer->temporary, g_free);
    return true;
}

void cache_writer_free(CacheWriter *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->temporary != NULL)
        g_unlink(writer->temporary);
    g_array_free(writer->index, TRUE);
    pthread_mutex_destroy(&writer->lock);
    g_free(writer->temporary);
    g_free(writer->path);
    g_free(writer);
}
