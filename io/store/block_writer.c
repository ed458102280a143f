/* Block files, written. A block is written as soon as it is full. */
#include <string.h>
#include <zstd.h>

#include "io/net/link/checksum.h"
#include "io/store/block_layout.h"
#include "io/store/store_file.h"

#include <rubato/error.h>

/* The level that is about as fast as a disk. */
#define ZSTD_LEVEL 1

struct BlockWriter {
    StoreFile *file;
    RubatoPacking packing;
    uint64_t checksum;  /* of the last block */
    uint64_t n_written; /* bytes of the file */
    uint64_t n_bytes;   /* of the stream, in whole blocks */
    size_t n_waiting;   /* bytes of the present block */
    unsigned char *block;
    size_t n_packed_most;
    void *packed; /* NULL: nothing is packed */
    ZSTD_CCtx *packer;
};

static bool fail_memory(const char *path, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory to write it", path);
    return false;
}

static bool make_room(BlockWriter *writer, GError **error)
{
    writer->block = g_try_malloc(BLOCK_FILE_MOST);
    if (writer->block == NULL)
        return fail_memory(writer->file->path, error);
    if (writer->packing != RUBATO_PACKING_ZSTD)
        return true;
    writer->n_packed_most = ZSTD_compressBound(BLOCK_FILE_MOST);
    writer->packed = g_try_malloc(writer->n_packed_most);
    writer->packer = ZSTD_createCCtx();
    return (writer->packed != NULL && writer->packer != NULL) ||
           fail_memory(writer->file->path, error);
}

BlockWriter *block_writer_new(const char *path, uint64_t seed, RubatoPacking packing,
                              GError **error)
{
    g_autoptr(BlockWriter) writer = g_new0(BlockWriter, 1);

    writer->packing = packing;
    writer->checksum = seed;
    writer->file = store_file_create(path, error);
    return writer->file != NULL && make_room(writer, error) ? g_steal_pointer(&writer) : NULL;
}

void block_writer_leave_to_kernel(BlockWriter *writer)
{
    writer->file->is_for_kernel = true;
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
    writer->n_written += sizeof head + n_stored;
    return writer->file->ops->append(writer->file, &head, sizeof head, stored, n_stored, error);
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

bool block_writer_begin_record(BlockWriter *writer, uint64_t n, GError **error)
{
    const bool fits = n <= BLOCK_FILE_MOST - writer->n_waiting;
    const bool would_fit = n <= BLOCK_FILE_MOST && writer->n_waiting >= BLOCK_FILE_MOST / 2;

    return fits || !would_fit || flush(writer, error);
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

bool block_writer_finish(BlockWriter *writer, uint64_t number, BlockFileSum *sum, GError **error)
{
    if (!flush(writer, error))
        return false;

    const BlockEnd end = { .n_bytes = writer->n_bytes, .number = number };

    if (!write_block(writer, BLOCK_END, &end, sizeof end, 0, error) ||
        !writer->file->ops->finish(writer->file, error))
        return false;
    *sum = (BlockFileSum){ .n_bytes = writer->n_written, .checksum = writer->checksum };
    return true;
}

void block_writer_free(BlockWriter *writer)
{
    if (writer == NULL)
        return;
    store_file_close(writer->file);
    ZSTD_freeCCtx(writer->packer);
    g_free(writer->packed);
    g_free(writer->block);
    g_free(writer);
}
