/* Block files, read. A block is checked before any of it is used: first that its head can be one,
 * then its checksum, then what it unpacks to. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "io/net/link/checksum.h"
#include "io/store/block_layout.h"

#include <rubato/error.h>

struct BlockReader {
    char *path;
    int fd;
    BlockFileSum sum;
    uint64_t checksum; /* of the last block */
    uint64_t offset;   /* in the file: of the next block */
    uint64_t n_bytes;  /* of the stream, in the blocks that were read */
    size_t n_here;     /* bytes of the present block */
    size_t n_used;     /* of those */
    bool ended;
    uint64_t number;
    unsigned char *block;  /* as the stream has it */
    unsigned char *stored; /* as it lies on disk */
    ZSTD_DCtx *unpacker;
};

static bool fail_at(const char *path, uint64_t offset, GError **error, const char *what)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: the block at byte %" G_GUINT64_FORMAT " is damaged: %s", path, offset, what);
    return false;
}

static bool fail(const BlockReader *reader, const char *what, GError **error)
{
    return fail_at(reader->path, reader->offset, error, what);
}

static bool fail_read(const char *path, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s", path,
                g_strerror(errno));
    return false;
}

static int open_file(const char *path, uint64_t *n_bytes, GError **error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0) {
        fail_read(path, error);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (!S_ISREG(status.st_mode)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s: is not a regular file", path);
        close(fd);
        return -1;
    }
    *n_bytes = (uint64_t)status.st_size;
    return fd;
}

BlockReader *block_reader_new(const char *path, uint64_t seed, const BlockFileSum *sum,
                              GError **error)
{
    g_autoptr(BlockReader) reader = g_new0(BlockReader, 1);
    uint64_t n_bytes;

    reader->path = g_strdup(path);
    reader->sum = *sum;
    reader->checksum = seed;
    reader->fd = open_file(path, &n_bytes, error);
    if (reader->fd < 0)
        return NULL;
    if (n_bytes != sum->n_bytes) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: has %" G_GUINT64_FORMAT " bytes, and was written with %" G_GUINT64_FORMAT,
                    path, n_bytes, sum->n_bytes);
        return NULL;
    }
    (void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* only a hint */
    reader->block = g_try_malloc(BLOCK_FILE_MOST);
    reader->stored = g_try_malloc(BLOCK_FILE_MOST);
    reader->unpacker = ZSTD_createDCtx();
    if (reader->block == NULL || reader->stored == NULL || reader->unpacker == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory to read it", path);
        return NULL;
    }
    return g_steal_pointer(&reader);
}

/* Reads n bytes of the file. False at its end, too. */
static bool read_at(int fd, const char *path, uint64_t offset, void *bytes, size_t n,
                    GError **error)
{
    for (size_t done = 0; done < n;) {
        const ssize_t some = pread(fd, (char *)bytes + done, n - done, (off_t)(offset + done));

        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0)
            return fail_read(path, error);
        if (some == 0)
            return fail_at(path, offset, error, "the file ends in it");
        done += (size_t)some;
    }
    return true;
}

/* What is wrong with a head; NULL if nothing is. */
static const char *find_fault(const BlockHead *head)
{
    const uint32_t n = head->n_bytes, n_stored = head->n_stored_bytes;

    if (head->magic != BLOCK_MAGIC)
        return "it does not begin as blocks do";
    switch (head->kind) {
    case BLOCK_PLAIN:
        return n > 0 && n <= BLOCK_FILE_MOST && n_stored == n ? NULL : "its length cannot be";
    case BLOCK_ZSTD:
        return n <= BLOCK_FILE_MOST && n_stored > 0 && n_stored < n ? NULL : "its length cannot be";
    case BLOCK_END:
        return n == 0 && n_stored == sizeof(BlockEnd) ? NULL : "its length cannot be";
    default:
        return "it is of no known kind";
    }
}

static bool read_end(BlockReader *reader, GError **error)
{
    BlockEnd end;

    memcpy(&end, reader->stored, sizeof end);
    if (end.n_bytes != reader->n_bytes)
        return fail(reader, "there are other blocks before it than it says", error);
    if (reader->offset + sizeof(BlockHead) + sizeof end != reader->sum.n_bytes)
        return fail(reader, "the file goes on behind its end", error);
    if (reader->checksum != reader->sum.checksum)
        return fail(reader, "the file is another one than its manifest says", error);
    reader->number = end.number;
    reader->ended = true;
    return true;
}

static bool unpack(BlockReader *reader, const BlockHead *head, GError **error)
{
    const size_t n = ZSTD_decompressDCtx(reader->unpacker, reader->block, BLOCK_FILE_MOST,
                                         reader->stored, head->n_stored_bytes);

    return (!ZSTD_isError(n) && n == head->n_bytes) || fail(reader, "it cannot be unpacked", error);
}

static bool read_block(BlockReader *reader, GError **error)
{
    const char *fault;
    BlockHead head;

    if (!read_at(reader->fd, reader->path, reader->offset, &head, sizeof head, error))
        return false;
    fault = find_fault(&head);
    if (fault != NULL)
        return fail(reader, fault, error);

    unsigned char *to = head.kind == BLOCK_PLAIN ? reader->block : reader->stored;

    if (!read_at(reader->fd, reader->path, reader->offset + sizeof head, to, head.n_stored_bytes,
                 error))
        return false;
    if (head.checksum != checksum_apart(&head, offsetof(BlockHead, checksum), to,
                                        head.n_stored_bytes, reader->checksum))
        return fail(reader, "its checksum is that of other bytes", error);
    reader->checksum = head.checksum;
    if (head.kind == BLOCK_END)
        return read_end(reader, error);
    if (head.kind == BLOCK_ZSTD && !unpack(reader, &head, error))
        return false;
    reader->offset += sizeof head + head.n_stored_bytes;
    reader->n_bytes += head.n_bytes;
    reader->n_here = head.n_bytes;
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

        memcpy((unsigned char *)bytes + done, reader->block + reader->n_used, some);
        reader->n_used += some;
        done += some;
    }
    return true;
}

const void *block_reader_borrow(BlockReader *reader, size_t n)
{
    const unsigned char *bytes = reader->block + reader->n_used;

    if (n > reader->n_here - reader->n_used || (uintptr_t)bytes % sizeof(uint64_t) != 0)
        return NULL;
    reader->n_used += n;
    return bytes;
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
    if (reader->fd >= 0)
        close(reader->fd);
    ZSTD_freeDCtx(reader->unpacker);
    g_free(reader->stored);
    g_free(reader->block);
    g_free(reader->path);
    g_free(reader);
}

bool block_file_read_end(const char *path, BlockFileSum *sum, uint64_t *number, GError **error)
{
    struct {
        BlockHead head;
        BlockEnd end;
    } last;
    uint64_t n_bytes;
    const int fd = open_file(path, &n_bytes, error);
    bool ok;

    if (fd < 0)
        return false;
    if (n_bytes < sizeof last)
        ok = fail_at(path, 0, error, "the file ends in it");
    else
        ok = read_at(fd, path, n_bytes - sizeof last, &last, sizeof last, error);
    close(fd);
    if (!ok)
        return false;
    if (find_fault(&last.head) != NULL || last.head.kind != BLOCK_END)
        return fail_at(path, n_bytes - sizeof last, error, "it does not end the file");
    *sum = (BlockFileSum){ .n_bytes = n_bytes, .checksum = last.head.checksum };
    *number = last.end.number;
    return true;
}
