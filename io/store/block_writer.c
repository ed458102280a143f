/* Block files, written. A block is written as soon as it is full. Bytes that fill most of one are
 * not copied to it: they are written from where they lie.
 *
 * Blocks have no even length. So that the kernel caches the file in long pieces, it gets bytes from
 * one multiple of PIECE_BYTES to another; what is behind the last one is kept until more comes. */
#include <string.h>
#include <zstd.h>

#include "io/net/link/checksum.h"
#include "io/store/block_layout.h"
#include "io/store/store_file.h"

#include <rubato/error.h>

/* The level that is about as fast as a disk. */
#define ZSTD_LEVEL 1

/* So many bytes make a block with what waits. Then two blocks together are more than half full. */
#define APART_BYTES (BLOCK_FILE_MOST / 2)

/* Files that are written in such pieces are read, and written, about a fifth faster than in blocks
 * that begin anywhere. Longer ones gain little, and more bytes have to be kept. */
#define PIECE_BYTES ((size_t)256 << 10)

/* What a checksum has of a head. There is room for it before the present block. */
#define CHECKED_HEAD offsetof(BlockHead, checksum)

struct BlockWriter {
    StoreFile *file;
    RubatoPacking packing;
    uint64_t checksum;  /* of the last block */
    uint64_t n_written; /* bytes of the file */
    uint64_t n_bytes;   /* of the stream, in whole blocks */
    size_t n_waiting;   /* bytes of the present block */
    unsigned char *memory;
    unsigned char *block; /* in the memory */
    unsigned char *kept;  /* bytes of the file that it does not have yet; room for a head besides */
    size_t n_kept;        /* less than PIECE_BYTES, between two calls */
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
    writer->memory = g_try_malloc(CHECKED_HEAD + BLOCK_FILE_MOST);
    writer->kept = g_try_malloc(PIECE_BYTES + sizeof(BlockHead));
    if (writer->memory == NULL || writer->kept == NULL)
        return fail_memory(writer->file->path, error);
    writer->block = writer->memory + CHECKED_HEAD;
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

void block_writer_hold(BlockWriter *writer, bool holds)
{
    writer->file->is_held = holds;
}

/* Gives the file whole pieces of what is kept and these bytes; the rest is kept. */
static bool append(BlockWriter *writer, const void *bytes, size_t n, GError **error)
{
    const size_t n_out = (writer->n_kept + n) / PIECE_BYTES * PIECE_BYTES;
    const size_t n_of_kept = MIN(writer->n_kept, n_out), n_of_bytes = n_out - n_of_kept;

    if (n_out > 0 &&
        !writer->file->ops->append(writer->file, writer->kept, n_of_kept, bytes, n_of_bytes, error))
        return false;
    writer->n_kept -= n_of_kept;
    memmove(writer->kept, writer->kept + n_of_kept, writer->n_kept);
    memcpy(writer->kept + writer->n_kept, (const unsigned char *)bytes + n_of_bytes,
           n - n_of_bytes);
    writer->n_kept += n - n_of_bytes;
    return true;
}

/* The same with a head in front of them. */
static bool append_block(BlockWriter *writer, const BlockHead *head, const void *bytes, size_t n,
                         GError **error)
{
    memcpy(writer->kept + writer->n_kept, head, sizeof *head);
    writer->n_kept += sizeof *head;
    writer->n_written += sizeof *head + n;
    return append(writer, bytes, n, error);
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
    return append_block(writer, &head, stored, n_stored, error);
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

/* Writes what waits and these bytes as a block. */
static bool write_apart(BlockWriter *writer, const void *bytes, size_t n, GError **error)
{
    const size_t n_waiting = writer->n_waiting, n_all = n_waiting + n;
    BlockHead head = { .magic = BLOCK_MAGIC,
                       .kind = BLOCK_PLAIN,
                       .n_stored_bytes = (uint32_t)n_all,
                       .n_bytes = (uint32_t)n_all };

    memcpy(writer->memory, &head, CHECKED_HEAD);
    head.checksum =
        checksum_apart(writer->memory, CHECKED_HEAD + n_waiting, bytes, n, writer->checksum);
    writer->checksum = head.checksum;
    writer->n_waiting = 0;
    writer->n_bytes += n_all;
    writer->n_written += n;
    return append_block(writer, &head, writer->block, n_waiting, error) &&
           append(writer, bytes, n, error);
}

/* If they do not fit, the two blocks have more than one can. */
bool block_writer_begin_record(BlockWriter *writer, uint64_t n, GError **error)
{
    const bool fits = n <= BLOCK_FILE_MOST - writer->n_waiting;

    return fits || n > BLOCK_FILE_MOST || flush(writer, error);
}

bool block_writer_write(BlockWriter *writer, const void *bytes, size_t n, GError **error)
{
    if (writer->packer == NULL && n >= APART_BYTES && n <= BLOCK_FILE_MOST - writer->n_waiting)
        return write_apart(writer, bytes, n, error);
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

static void free_memory(BlockWriter *writer)
{
    ZSTD_freeCCtx(writer->packer); /* NULL is allowed */
    writer->packer = NULL;
    g_clear_pointer(&writer->packed, g_free);
    g_clear_pointer(&writer->memory, g_free);
    g_clear_pointer(&writer->kept, g_free);
}

bool block_writer_end(BlockWriter *writer, uint64_t number, BlockFileSum *sum, GError **error)
{
    if (!flush(writer, error))
        return false;

    const BlockEnd end = { .n_bytes = writer->n_bytes, .number = number };

    if (!write_block(writer, BLOCK_END, &end, sizeof end, 0, error) ||
        (writer->n_kept > 0 &&
         !writer->file->ops->append(writer->file, writer->kept, writer->n_kept, &end, 0, error)))
        return false;
    free_memory(writer);
    *sum = (BlockFileSum){ .n_bytes = writer->n_written, .checksum = writer->checksum };
    return true;
}

bool block_writer_keeps_much(const BlockWriter *writer)
{
    return writer->file->ops->settle == NULL;
}

bool block_writer_settle(BlockWriter *writer, bool *has_more, GError **error)
{
    *has_more = false;
    return writer->file->ops->settle == NULL ||
           writer->file->ops->settle(writer->file, has_more, error);
}

bool block_writer_sync(BlockWriter *writer, GError **error)
{
    return writer->file->ops->finish(writer->file, error);
}

bool block_writer_finish(BlockWriter *writer, uint64_t number, BlockFileSum *sum, GError **error)
{
    return block_writer_end(writer, number, sum, error) && block_writer_sync(writer, error);
}

void block_writer_free(BlockWriter *writer)
{
    if (writer == NULL)
        return;
    store_file_close(writer->file);
    free_memory(writer);
    g_free(writer);
}
