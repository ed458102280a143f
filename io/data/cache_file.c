/* Cache files, read.
 *
 * Blocks are read and not mapped: if somebody shortens a mapped file, a process that accesses it
 * gets SIGBUS. A block's checksum is compared each time that it is read; the first time it is also
 * checked that its arrays agree with one another.
 *
 * If there is memory for the whole file, blocks that are read more than once stay in memory. Other
 * blocks are read into images that are used again. Fresh memory would cost more than reading the
 * block, because the kernel makes and clears its pages. An image that was just used is also still
 * in the processor's cache when its block is checked and its rows are taken.
 *
 * Runs on any thread: in a CacheFile only counts, the marks of checked blocks, the kept blocks and
 * what the lock guards change. */
#include "io/data/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/data/cache_layout.h"
#include "io/net/link/checksum.h"

/* The most images that wait for their next block. */
#define MOST_FREE_IMAGES 16u

#define POPULATE_FROM_BYTES ((size_t)128 << 10)

/* Memory for one block after another. */
typedef struct Image Image;
struct Image {
    Image *next;      /* while no block is in it */
    CacheFile *cache; /* a reference, while one is */
    _Alignas(64) char bytes[];
};

struct CacheFile {
    _Atomic uint32_t n_refs;

    /* immutable */
    char *path;
    int fd;
    uint64_t size;
    CacheHeader header;
    CacheEntry *index;
    size_t image_bytes; /* of the largest block */

    _Atomic bool *checked; /* by block: it was read, and its arrays fit each other */
    _Atomic(DataBlock *)
        *blocks; /* by block: in memory to stay; NULL: the file is too large for that */

    pthread_mutex_t lock;
    /* guarded by lock */
    Image *images; /* free */
    unsigned n_images;
};

uint64_t cache_layout_checksum(const CacheHeader *header, const CacheEntry *index, uint64_t n)
{
    const uint64_t sum = checksum(header, offsetof(CacheHeader, checksum), 0);

    return checksum(index, n * sizeof *index, sum);
}

/* ---- opening ---- */

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
    return memcmp(header->magic, CACHE_MAGIC, sizeof header->magic) == 0 &&
           header->version == CACHE_VERSION && header->byte_order == CACHE_BYTE_ORDER_MARK &&
           header->header_bytes == sizeof *header && header->head_bytes == sizeof(BlockHead) &&
           header->file_bytes == size && memcmp(&header->key, key, sizeof *key) == 0 &&
           header->index_offset <= size && header->index_offset % 8 == 0 &&
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
        cache_layout_checksum(header, cache->index, header->n_blocks) != header->checksum)
        return false;
    for (uint64_t i = 0; i < header->n_blocks; i++) {
        if (cache->index[i].offset % 8 != 0 || cache->index[i].offset > cache->size ||
            cache->index[i].size > cache->size - cache->index[i].offset)
            return false;
        cache->image_bytes = MAX(cache->image_bytes, cache->index[i].size);
    }
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
    pthread_mutex_init(&cache->lock, NULL);
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
    for (Image *image = cache->images, *next; image != NULL; image = next) {
        next = image->next;
        g_free(image);
    }
    pthread_mutex_destroy(&cache->lock);
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

/* ---- blocks ---- */

/* Reads a block to `to`, which is its owner's; that is released with the block. NULL: the block
 * cannot be had, and nothing was released. */
static DataBlock *read_block(CacheFile *cache, uint64_t number, void *to, void *owner,
                             void (*release)(void *owner))
{
    const CacheEntry *entry = &cache->index[number];
    /* relaxed: only the mark is passed on; a thread that misses it checks once more */
    const bool checked = atomic_load_explicit(&cache->checked[number], memory_order_relaxed);
    DataBlock *block;

    if (!read_at(cache->fd, entry->offset, to, entry->size) ||
        checksum(to, entry->size, 0) != entry->checksum)
        return NULL;
    block =
        data_block_new_image(to, entry->size, checked ? IMAGE_CHECKED : IMAGE_NEW, owner, release);
    if (block != NULL)
        atomic_store_explicit(&cache->checked[number], true, memory_order_relaxed);
    return block;
}

/* The image that was used last, or a new one; NULL: no memory. */
static Image *take_image(CacheFile *cache)
{
    Image *image;

    pthread_mutex_lock(&cache->lock);
    image = cache->images;
    if (image != NULL) {
        cache->images = image->next;
        cache->n_images--;
    }
    pthread_mutex_unlock(&cache->lock);
    if (image == NULL)
        image = g_try_malloc(sizeof *image + cache->image_bytes);
    if (image == NULL)
        return NULL;
    image->cache = cache;
    atomic_fetch_add_explicit(&cache->n_refs, 1, memory_order_relaxed);
    return image;
}

static void give_image_back(void *owner)
{
    Image *image = owner;
    CacheFile *cache = image->cache;

    pthread_mutex_lock(&cache->lock);
    if (cache->n_images < MOST_FREE_IMAGES) {
        image->next = cache->images;
        cache->images = g_steal_pointer(&image);
        cache->n_images++;
    }
    pthread_mutex_unlock(&cache->lock);
    g_free(image);
    cache_file_unref(cache);
}

/* A block for the caller alone. */
static DataBlock *lend_block(CacheFile *cache, uint64_t number)
{
    Image *image = take_image(cache);
    DataBlock *block;

    if (image == NULL)
        return NULL;
    block = read_block(cache, number, image->bytes, image, give_image_back);
    if (block == NULL)
        give_image_back(image);
    return block;
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

/* Reads a block that stays. */
static DataBlock *keep_block(CacheFile *cache, uint64_t number)
{
    const size_t size = cache->index[number].size;
    g_autofree void *bytes = g_try_malloc(MAX(size, 1));
    DataBlock *kept = NULL, *block;

    if (bytes == NULL)
        return NULL;
    make_pages(bytes, size);
    block = read_block(cache, number, bytes, bytes, g_free);
    if (block == NULL)
        return NULL;
    bytes = NULL; /* the block's */
    if (atomic_compare_exchange_strong_explicit(&cache->blocks[number], &kept, block,
                                                memory_order_acq_rel, memory_order_acquire))
        return data_block_ref(block);
    data_block_unref(block); /* another thread was faster */
    return data_block_ref(kept);
}

DataBlock *cache_file_block(CacheFile *cache, uint64_t number, DatasetKeep keep)
{
    /* relaxed: an old value only keeps the block later */
    const bool was_read = atomic_load_explicit(&cache->checked[number], memory_order_relaxed);
    DataBlock *kept = NULL;

    if (cache->blocks != NULL) /* acquire: pairs with the exchange in keep_block, so that the
                                * block's contents are seen */
        kept = atomic_load_explicit(&cache->blocks[number], memory_order_acquire);
    if (kept != NULL)
        return data_block_ref(kept);
    if (cache->blocks != NULL && (was_read || keep == DATASET_KEEP_BLOCK))
        return keep_block(cache, number);
    return lend_block(cache, number);
}
