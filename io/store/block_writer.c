/* Block files, written. A block is written as soon as it is full, with one call of writev.
 *
 * fsync comes once, at the end: a file that is not finished is never read. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

#include "io/net/link/checksum.h"
#include "io/store/block_layout.h"

#include <rubato/error.h>

/* The level that is about as fast as a disk. */
#define ZSTD_LEVEL 1

struct BlockWriter {
    char *path;
    int fd;
    RubatoPacking packing;
    uint64_t checksum;  /* of the last block */
    uint64_t n_written; /* bytes on disk */
    uint64_t n_bytes;   /* of the stream, in whole blocks */
    size_t n_waiting;   /* bytes of the present block */
    unsigned char *block;
    size_t n_packed_most;
    void *packed; /* NULL: nothing is packed */
    ZSTD_CCtx *packer;
};

static bool fail(const BlockWriter *writer, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be %s: %s", writer->path, what,
                g_strerror(errno));
    return false;
}

static bool fail_memory(const char *path, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory to write it", path);
    return false;
}

static bool make_room(BlockWriter *writer, GError **error)
{
    writer->block = g_try_malloc(BLOCK_FILE_MOST);
    if (writer->block == NULL)
        return fail_memory(writer->path, error);
    if (writer->packing != RUBATO_PACKING_ZSTD)
        return true;
    writer->n_packed_most = ZSTD_compressBound(BLOCK_FILE_MOST);
    writer->packed = g_try_malloc(writer->n_packed_most);
    writer->packer = ZSTD_createCCtx();
    return (writer->packed != NULL && writer->packer != NULL) || fail_memory(writer->path, error);
}

BlockWriter *block_writer_new(const char *path, uint64_t seed, RubatoPacking packing,
                              GError **error)
{
    g_autoptr(BlockWriter) writer = g_new0(BlockWriter, 1);

    writer->path = g_strdup(path);
    writer->packing = packing;
    writer->checksum = seed;
    writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        fail(writer, "created", error);
        return NULL;
    }
    return make_room(writer, error) ? g_steal_pointer(&writer) : NULL;
}

/* Writes both, whatever the kernel takes at a time. */
static bool write_both(BlockWriter *writer, const void *head, size_t n_head, const void *rest,
                       size_t n_rest, GError **error)
{
    const size_t n = n_head + n_rest;

    for (size_t done = 0; done < n;) {
        const size_t of_rest = done > n_head ? done - n_head : 0;
        const struct iovec parts[] = {
            { .iov_base = (char *)(uintptr_t)head + MIN(done, n_head),
              .iov_len = n_head - MIN(done, n_head) },
            { .iov_base = (char *)(uintptr_t)rest + of_rest, .iov_len = n_rest - of_rest },
        };
        const ssize_t written = writev(writer->fd, parts, G_N_ELEMENTS(parts));

        if (written < 0 && errno == EINTR)
            continue;
        if (written == 0) /* no file system does so; it would never end */
            errno = ENOSPC;
        if (written <= 0)
            return fail(writer, "written", error);
        done += (size_t)written;
    }
    writer->n_written += n;
    return true;
}

static bool write_block(BlockWriter *writer, BlockKind kind, const void *stored, size_t n_stored,
                        size_t n_bytes, GError **error)
{
    BlockHead head = { .magic = BLOCK_MAGIC,
                       .kind = kind,
                       .n_stored_bytes = (uint32_t)n_stored,
                       .n_bytes = (uint32_t)n_bytes };

    head.checksum =
        checksum_apart(&head, offsetof(BlockHead, checksum), stored, n_stored, writer->checksum);
    writer->checksum = head.checksum;
    return write_both(writer, &head, sizeof head, stored, n_stored, error);
}

/* Writes the present block, packed if that makes it smaller. */
static bool flush(BlockWriter *writer, GError **error)
{
    const size_t n = writer->n_waiting;
    size_t n_packed = n;

    if (n == 0)
        return true;
    if (writer->packer != NULL) {
        n_packed = ZSTD_compressCCtx(writer->packer, writer->packed, writer->n_packed_most,
                                     writer->block, n, ZSTD_LEVEL);
        if (ZSTD_isError(n_packed))
            n_packed = n;
    }
    writer->n_waiting = 0;
    writer->n_bytes += n;
    return n_packed < n ? write_block(writer, BLOCK_ZSTD, writer->packed, n_packed, n, error)
                        : write_block(writer, BLOCK_PLAIN, writer->block, n, n, error);
}

bool block_writer_write(BlockWriter *writer, const void *bytes, size_t n, GError **error)
{
    for (size_t done = 0; done < n;) {
        const size_t some = MIN(n - done, BLOCK_FILE_MOST - writer->n_waiting);

        memcpy(writer->block + writer->n_waiting, (const unsigned char *)bytes + done, some);
        writer->n_waiting += some;
        done += some;
        if (writer->n_waiting == BLOCK_FILE_MOST && !flush(writer, error))
            return false;
    }
    return true;
}

/* What close says is heard, too: some file systems tell only then that a write has failed. */
static bool close_file(BlockWriter *writer, GError **error)
{
    const int fd = writer->fd;

    writer->fd = -1;
    return close(fd) == 0 || fail(writer, "closed", error);
}

bool block_writer_finish(BlockWriter *writer, uint64_t number, BlockFileSum *sum, GError **error)
{
    if (!flush(writer, error))
        return false;

    const BlockEnd end = { .n_bytes = writer->n_bytes, .number = number };

    if (!write_block(writer, BLOCK_END, &end, sizeof end, 0, error))
        return false;
    if (fsync(writer->fd) != 0)
        return fail(writer, "synchronised with the disk", error);
    if (!close_file(writer, error))
        return false;
    *sum = (BlockFileSum){ .n_bytes = writer->n_written, .checksum = writer->checksum };
    return true;
}

void block_writer_free(BlockWriter *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    ZSTD_freeCCtx(writer->packer);
    g_free(writer->packed);
    g_free(writer->block);
    g_free(writer->path);
    g_free(writer);
}
