/* Block files, read. Blocks are checked before any of them is used (block_fetch.c). */
#include <string.h>

#include "io/store/block_fetch.h"
#include "io/store/store_file.h"

#include <rubato/error.h>

struct BlockReader {
    char *path;
    BlockFetch *fetch;
    BlockFileSum sum;
    FetchedBlock block; /* the present one */
    uint64_t n_bytes;   /* of the stream, in the blocks that were read */
    size_t n_here;      /* bytes of the present block */
    size_t n_used;      /* of those */
    bool ended;
    uint64_t number;
};

static bool fail(const BlockReader *reader, const char *what, GError **error)
{
    return block_fail_at(reader->path, reader->block.offset, error, what);
}

BlockReader *block_reader_new(const char *path, uint64_t seed, const BlockFileSum *sum,
                              GError **error)
{
    g_autoptr(BlockReader) reader = g_new0(BlockReader, 1);

    reader->path = g_strdup(path);
    reader->sum = *sum;
    reader->fetch = block_fetch_new(path, seed, sum->n_bytes, error);
    return reader->fetch == NULL ? NULL : g_steal_pointer(&reader);
}

static bool read_end(BlockReader *reader, GError **error)
{
    const FetchedBlock *const block = &reader->block;
    BlockEnd end;

    memcpy(&end, block->bytes, sizeof end);
    if (end.n_bytes != reader->n_bytes)
        return fail(reader, "there are other blocks before it than it says", error);
    if (block->offset + sizeof(BlockHead) + sizeof end != reader->sum.n_bytes)
        return fail(reader, "the file goes on behind its end", error);
    if (block->head.checksum != reader->sum.checksum)
        return fail(reader, "the file is another one than its manifest says", error);
    reader->number = end.number;
    reader->ended = true;
    return true;
}

static bool read_block(BlockReader *reader, GError **error)
{
    if (!block_fetch_next(reader->fetch, &reader->block, error))
        return false;
    if (reader->block.head.kind == BLOCK_END)
        return read_end(reader, error);
    reader->n_bytes += reader->block.head.n_bytes;
    reader->n_here = reader->block.head.n_bytes;
    reader->n_used = 0;
    return true;
}

bool block_reader_at_end(BlockReader *reader, bool *at_end, GError **error)
{
    if (!reader->ended && reader->n_used == reader->n_here && !read_block(reader, error))
        return false;
    *at_end = reader->ended;
    return true;
}

bool block_reader_read(BlockReader *reader, void *bytes, size_t n, GError **error)
{
    for (size_t done = 0; done < n;) {
        bool at_end;

        if (!block_reader_at_end(reader, &at_end, error))
            return false;
        if (at_end)
            return fail(reader, "the file ends too early", error);

        const size_t some = MIN(n - done, reader->n_here - reader->n_used);

        memcpy((unsigned char *)bytes + done, reader->block.bytes + reader->n_used, some);
        reader->n_used += some;
        done += some;
    }
    return true;
}

const void *block_reader_borrow(BlockReader *reader, size_t n)
{
    const unsigned char *bytes = reader->block.bytes + reader->n_used;

    if (n > reader->n_here - reader->n_used || (uintptr_t)bytes % sizeof(uint64_t) != 0)
        return NULL;
    reader->n_used += n;
    return bytes;
}

bool block_reader_skip(BlockReader *reader, GError **error)
{
    while (!reader->ended) {
        reader->n_used = reader->n_here;
        if (!read_block(reader, error))
            return false;
    }
    return true;
}

uint64_t block_reader_position(const BlockReader *reader)
{
    return reader->n_bytes - reader->n_here + reader->n_used;
}

const char *block_reader_path(const BlockReader *reader)
{
    return reader->path;
}

uint64_t block_reader_number(const BlockReader *reader)
{
    return reader->number;
}

void block_reader_free(BlockReader *reader)
{
    if (reader == NULL)
        return;
    block_fetch_free(reader->fetch);
    g_free(reader->path);
    g_free(reader);
}

/* The last bytes of a file. */
typedef struct {
    BlockHead head;
    BlockEnd end;
} Last;

static bool read_last(StoreFile *file, uint64_t n_bytes, Last *last, GError **error)
{
    const uint64_t offset = n_bytes - sizeof *last;
    size_t n_read;

    if (n_bytes < sizeof *last)
        return block_fail_at(file->path, 0, error, "the file ends in it");
    if (!file->ops->read(file, offset, last, sizeof *last, &n_read, error))
        return false;
    if (n_read < sizeof *last)
        return block_fail_at(file->path, offset, error, "the file ends in it");
    return (block_head_fault(&last->head) == NULL && last->head.kind == BLOCK_END) ||
           block_fail_at(file->path, offset, error, "it does not end the file");
}

bool block_file_read_end(const char *path, BlockFileSum *sum, uint64_t *number, GError **error)
{
    uint64_t n_bytes;
    StoreFile *const file = store_file_open(path, &n_bytes, error);
    Last last;
    const bool ok = file != NULL && read_last(file, n_bytes, &last, error);

    store_file_close(file);
    if (!ok)
        return false;
    *sum = (BlockFileSum){ .n_bytes = n_bytes, .checksum = last.head.checksum };
    *number = last.end.number;
    return true;
}
