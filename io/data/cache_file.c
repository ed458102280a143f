/* Cache files, read and written.
 *
 *   header   says whose cache it is, where the index lies, what all blocks hold together
 *   blocks   each at a multiple of 8 bytes
 *   index    offset, size and checksum of each block
 *
 * The header's checksum is over itself and the index. A file is written under a name of its own,
 * the header last, and renamed when all of it has reached the disk. Checksums are XXH3
 * (https://github.com/Cyan4973/xxHash).
 *
 * Blocks are read and not mapped: if somebody shortens a mapped file, a process that accesses it
 * gets SIGBUS. A block's checksum is compared each time that it is read; the first time it is also
 * checked that its arrays agree with one another. If there is memory for the whole file, blocks
 * stay in memory.
 *
 * Runs on any thread: in a CacheFile only counts, the marks of checked blocks and the kept blocks
 * change; in a writer, what its lock guards. */
#include "io/data/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC "rubatoDC"
#define VERSION 1u
#define BYTE_ORDER_MARK 0x01020304u
#define POPULATE_FROM_BYTES ((size_t)128 << 10)

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint32_t header_bytes;
    uint32_t head_bytes; /* of a block */
    CacheKey key;
    uint64_t n_blocks;
    uint64_t index_offset;
    uint64_t file_bytes;
    RubatoDataSummary summary;
    uint64_t checksum; /* last: of all before it, and of the index */
} CacheHeader;

typedef struct {
    uint64_t offset, size, checksum;
} CacheEntry;

struct CacheFile {
    _Atomic uint32_t n_refs;

    /* immutable */
    char *path;
    int fd;
    uint64_t size;
    CacheHeader header;
    CacheEntry *index;

    _Atomic bool *checked; /* by block: its arrays fit each other */
    _Atomic(DataBlock *)
        *blocks; /* by block: in memory to stay; NULL: the file is too large for that */
};

static uint64_t checksum_of(const CacheHeader *header, const CacheEntry *index, uint64_t n)
{
    const uint64_t sum = XXH3_64bits(header, offsetof(CacheHeader, checksum));

    return XXH3_64bits_withSeed(index, n * sizeof *index, sum);
}

/* ---- reading ---- */

/* Whether all bytes are there and can be read. */
static bool read_at(int fd, uint64_t offset, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(fd, (char *)bytes + done, size - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* Whether the file is complete, a cache of this kind, and of this key. */
static bool header_fits(const CacheHeader *header, uint64_t size, const CacheKey *key)
{
    return memcmp(header->magic, MAGIC, sizeof header->magic) == 0 && header->version == VERSION &&
           header->byte_order == BYTE_ORDER_MARK && header->header_bytes == sizeof *header &&
           header->head_bytes == sizeof(BlockHead) && header->file_bytes == size &&
           memcmp(&header->key, key, sizeof *key) == 0 && header->index_offset <= size &&
           header->index_offset % 8 == 0 &&
           header->n_blocks == (size - header->index_offset) / sizeof(CacheEntry);
}

/* Reads the index; whether it is that of the header. */
static bool read_index(CacheFile *cache)
{
    const CacheHeader *header = &cache->header;

    cache->index = g_try_new(CacheEntry, MAX(header->n_blocks, 1));
    if (cache->index == NULL ||
        !read_at(cache->fd, header->index_offset, cache->index,
                 header->n_blocks * sizeof *cache->index) ||
        checksum_of(header, cache->index, header->n_blocks) != header->checksum)
        return false;
    for (uint64_t i = 0; i < header->n_blocks; i++)
        if (cache->index[i].offset % 8 != 0 || cache->index[i].offset > cache->size ||
            cache->index[i].size > cache->size - cache->index[i].offset)
            return false;
    return true;
}

static bool open_file(CacheFile *cache, const CacheKey *key)
{
    struct stat status;

    cache->fd = open(cache->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (cache->fd < 0 || fstat(cache->fd, &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    cache->size = (uint64_t)status.st_size;
    return read_at(cache->fd, 0, &cache->header, sizeof cache->header) &&
           header_fits(&cache->header, cache->size, key) && read_index(cache);
}

CacheFile *cache_file_open(const char *path, const CacheKey *key, uint64_t resident_bytes)
{
    CacheFile *cache = g_new0(CacheFile, 1);

    cache->n_refs = 1;
    cache->path = g_strdup(path);
    if (open_file(cache, key))
        cache->checked = g_try_malloc0_n(MAX(cache->header.n_blocks, 1), sizeof *cache->checked);
    if (cache->checked != NULL && cache->size <= resident_bytes)
        cache->blocks = g_try_malloc0_n(MAX(cache->header.n_blocks, 1), sizeof *cache->blocks);
    if (cache->checked == NULL)
        g_clear_pointer(&cache, cache_file_unref);
    return cache;
}

void cache_file_unref(CacheFile *cache)
{
    /* acquire and release pair with one another, so that the last thread sees what all others
     * did */
    if (cache == NULL || atomic_fetch_sub_explicit(&cache->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    for (uint64_t i = 0; cache->blocks != NULL && i < cache->header.n_blocks; i++)
        data_block_unref(cache->blocks[i]);
    if (cache->fd >= 0)
        close(cache->fd);
    g_free(cache->blocks);
    g_free(cache->checked);
    g_free(cache->index);
    g_free(cache->path);
    g_free(cache);
}

const char *cache_file_path(const CacheFile *cache)
{
    return cache->path;
}

uint64_t cache_file_n_blocks(const CacheFile *cache)
{
    return cache->header.n_blocks;
}

const RubatoDataSummary *cache_file_summary(const CacheFile *cache)
{
    return &cache->header.summary;
}

/* Has the kernel make the pages of fresh memory at once: a fault for each of them costs more than
 * reading the bytes into it. Older kernels refuse this, and the pages are made one by one. */
static void make_pages(void *bytes, size_t size)
{
#ifdef MADV_POPULATE_WRITE
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = (page - (uintptr_t)bytes % page) % page;

    if (size >= POPULATE_FROM_BYTES)
        (void)madvise((char *)bytes + before, (size - before) / page * page, MADV_POPULATE_WRITE);
#else
    (void)bytes;
    (void)size;
#endif
}

/* Memory for a block, or NULL. */
static void *allocate_image(size_t size)
{
    void *const image = g_try_malloc(MAX(size, 1));

    if (image != NULL)
        make_pages(image, size);
    return image;
}

static DataBlock *read_block(CacheFile *cache, uint64_t number)
{
    const CacheEntry *entry = &cache->index[number];
    /* relaxed: only the mark is passed on; a thread that misses it checks once more */
    const bool checked = atomic_load_explicit(&cache->checked[number], memory_order_relaxed);
    g_autofree void *image = allocate_image(entry->size);
    DataBlock *block;

    if (image == NULL || !read_at(cache->fd, entry->offset, image, entry->size) ||
        XXH3_64bits(image, entry->size) != entry->checksum)
        return NULL;
    block = data_block_new_image(image, entry->size, checked ? IMAGE_CHECKED : IMAGE_NEW, image,
                                 g_free);
    if (block == NULL)
        return NULL;
    image = NULL; /* the block's */
    atomic_store_explicit(&cache->checked[number], true, memory_order_relaxed);
    return block;
}

DataBlock *cache_file_block(CacheFile *cache, uint64_t number)
{
    DataBlock *kept = NULL, *block;

    if (cache->blocks != NULL) /* acquire: pairs with the exchange below, so that the block's
                                * contents are seen */
        kept = atomic_load_explicit(&cache->blocks[number], memory_order_acquire);
    if (kept != NULL)
        return data_block_ref(kept);
    block = read_block(cache, number);
    if (block == NULL || cache->blocks == NULL)
        return block;
    if (atomic_compare_exchange_strong_explicit(&cache->blocks[number], &kept, block,
                                                memory_order_acq_rel, memory_order_acquire))
        return data_block_ref(block);
    data_block_unref(block); /* another thread was faster */
    return data_block_ref(kept);
}

/* ---- writing ---- */

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
                         .checksum = XXH3_64bits(block->head, block->image_bytes) };

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
        .version = VERSION,
        .byte_order = BYTE_ORDER_MARK,
        .header_bytes = sizeof header,
        .head_bytes = sizeof(BlockHead),
        .key = writer->key,
        .n_blocks = n_blocks,
        .index_offset = writer->end,
        .file_bytes = writer->end + n_blocks * sizeof *index,
        .summary = writer->summary,
    };

    memcpy(header.magic, MAGIC, sizeof header.magic);
    header.checksum = checksum_of(&header, index, n_blocks);
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
