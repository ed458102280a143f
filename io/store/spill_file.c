/* A file that has no name, so that no crash but one between two calls leaves it behind. It is not
 * synchronised with the disk: it is of no use after a crash. */
#include "io/store/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "io/huge_pages.h"
#include "io/kernel_random.h"

/* A block that was given back, or is ready. */
typedef struct Spare Spare;
struct Spare {
    Spare *next;
};

/* Pages that were mapped together. */
typedef struct {
    unsigned char *memory;
    size_t n_bytes;
} Mapping;

struct SpillFile {
    /* immutable */
    char *directory;
    uint64_t most_bytes;

    _Atomic uint64_t n_written; /* where the next block goes */

    pthread_mutex_t lock;
    /* guarded by lock */
    int fd;      /* -1: it has not been made */
    int refusal; /* the errno of the first call that failed; 0: none has */
    uint64_t n_counted;
    uint64_t n_taken; /* bytes of all blocks that were taken */
    Spare *spares;
    size_t spare_bytes; /* of each of them */
    uint64_t n_spare;   /* bytes of all of them */

    /* guarded by lock: blocks that were made ready, apart from the others */
    GArray *mappings; /* of Mapping: where they lie */
    Spare *warm;      /* those that nobody has */
    size_t warm_bytes;
    uint64_t n_warm; /* how many these are */
    GArray *zeros;   /* of Mapping */
};

SpillFile *spill_file_new(const char *directory, uint64_t most_bytes)
{
    SpillFile *const spill = g_new0(SpillFile, 1);

    spill->directory = g_strdup(directory);
    spill->most_bytes = most_bytes;
    spill->fd = -1;
    spill->mappings = g_array_new(FALSE, FALSE, sizeof(Mapping));
    spill->zeros = g_array_new(FALSE, FALSE, sizeof(Mapping));
    pthread_mutex_init(&spill->lock, NULL);
    return spill;
}

/* The lock is held, or nobody else uses it. */
static void free_spares(SpillFile *spill)
{
    for (Spare *spare = spill->spares, *next; spare != NULL; spare = next) {
        next = spare->next;
        spill->n_counted -= spill->spare_bytes;
        g_free(spare);
    }
    spill->spares = NULL;
    spill->n_spare = 0;
}

static void unmap_all(GArray *mappings)
{
    for (guint i = 0; i < mappings->len; i++) {
        const Mapping *const mapping = &g_array_index(mappings, Mapping, i);

        huge_pages_free(mapping->memory, mapping->n_bytes);
    }
    g_array_unref(mappings);
}

void spill_file_free(SpillFile *spill)
{
    if (spill == NULL)
        return;
    free_spares(spill);
    unmap_all(spill->mappings);
    unmap_all(spill->zeros);
    if (spill->fd >= 0)
        close(spill->fd);
    pthread_mutex_destroy(&spill->lock);
    g_free(spill->directory);
    g_free(spill);
}

uint64_t spill_file_most_bytes(const SpillFile *spill)
{
    return spill->most_bytes;
}

/* ---- blocks of memory ---- */

static void *take_warm(SpillFile *spill)
{
    Spare *const block = spill->warm;

    spill->warm = block->next;
    spill->n_warm--;
    return block;
}

static void give_warm(SpillFile *spill, void *block)
{
    Spare *const warm = block;

    warm->next = spill->warm;
    spill->warm = warm;
    spill->n_warm++;
}

/* There are few mappings, and blocks are large. */
static bool was_warm(const SpillFile *spill, const unsigned char *block)
{
    bool was = false;

    for (guint i = 0; i < spill->mappings->len && !was; i++) {
        const Mapping *const mapping = &g_array_index(spill->mappings, Mapping, i);

        was = (uintptr_t)block - (uintptr_t)mapping->memory < mapping->n_bytes;
    }
    return was;
}

static void *take_spare(SpillFile *spill)
{
    Spare *const spare = spill->spares;

    spill->spares = spare->next;
    spill->n_spare -= spill->spare_bytes;
    return spare;
}

bool spill_file_take(SpillFile *spill, size_t n, void **block)
{
    bool fits = true;

    *block = NULL;
    pthread_mutex_lock(&spill->lock);
    if (spill->spares != NULL && spill->spare_bytes != n)
        free_spares(spill);
    if (spill->warm != NULL && spill->warm_bytes == n) {
        *block = take_warm(spill);
    } else if (spill->spares != NULL) {
        *block = take_spare(spill);
    } else {
        fits = n <= spill->most_bytes && spill->n_counted <= spill->most_bytes - n;
        *block = fits ? g_try_malloc(n) : NULL;
        spill->n_counted += *block != NULL ? n : 0;
    }
    spill->n_taken += *block != NULL ? n : 0;
    pthread_mutex_unlock(&spill->lock);
    return fits;
}

void spill_file_give_back(SpillFile *spill, void *block, size_t n)
{
    Spare *const spare = block;

    pthread_mutex_lock(&spill->lock);
    if (was_warm(spill, block)) {
        give_warm(spill, block);
        pthread_mutex_unlock(&spill->lock);
        return;
    }
    if (spill->spares != NULL && spill->spare_bytes != n)
        free_spares(spill);
    spill->spare_bytes = n;
    spare->next = spill->spares;
    spill->spares = spare;
    spill->n_spare += n;
    pthread_mutex_unlock(&spill->lock);
}

/* Pages that are in memory. False: there is no memory. Huge ones are cleared in less time. */
static bool map(size_t n_bytes, Mapping *mapping)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    volatile unsigned char *bytes;

    mapping->n_bytes = n_bytes;
    mapping->memory = huge_pages_take(n_bytes);
    if (mapping->memory == NULL)
        return false;
    bytes = mapping->memory;
    for (size_t i = 0; i < n_bytes; i += page_bytes)
        bytes[i] = 0;
    return true;
}

/* The lock is held. How many blocks are to be made ready; they count from now on. */
static size_t count_missing(SpillFile *spill, size_t n, size_t n_blocks)
{
    size_t n_missing = n_blocks > spill->n_warm ? n_blocks - (size_t)spill->n_warm : 0;

    if (n_missing == 0)
        return 0;
    free_spares(spill);
    n_missing = (size_t)MIN(n_missing, (spill->most_bytes - spill->n_counted) / n);
    spill->n_counted += n_missing * n;
    return n_missing;
}

void spill_file_warm(SpillFile *spill, size_t n, size_t n_blocks)
{
    Mapping mapping;
    size_t n_missing;
    bool ok;

    pthread_mutex_lock(&spill->lock);
    spill->warm_bytes = n;
    n_missing = count_missing(spill, n, n_blocks);
    pthread_mutex_unlock(&spill->lock);
    if (n_missing == 0)
        return;
    ok = map(n_missing * n, &mapping);
    pthread_mutex_lock(&spill->lock);
    if (ok)
        g_array_append_val(spill->mappings, mapping);
    else
        spill->n_counted -= n_missing * n;
    for (size_t i = 0; i < n_missing && ok; i++)
        give_warm(spill, mapping.memory + i * n);
    pthread_mutex_unlock(&spill->lock);
}

void spill_file_warm_zeros(SpillFile *spill, size_t n)
{
    Mapping mapping;

    if (!map(n, &mapping))
        return;
    pthread_mutex_lock(&spill->lock);
    g_array_append_val(spill->zeros, mapping);
    pthread_mutex_unlock(&spill->lock);
}

void *spill_file_take_zeros(SpillFile *spill, size_t n)
{
    void *memory = NULL;

    pthread_mutex_lock(&spill->lock);
    for (guint i = 0; i < spill->zeros->len && memory == NULL; i++) {
        const Mapping *const mapping = &g_array_index(spill->zeros, Mapping, i);

        if (mapping->n_bytes != n)
            continue;
        memory = mapping->memory;
        g_array_remove_index_fast(spill->zeros, i);
    }
    pthread_mutex_unlock(&spill->lock);
    return memory;
}

bool spill_file_has_half(SpillFile *spill)
{
    bool has;

    pthread_mutex_lock(&spill->lock);
    has = spill->n_counted - spill->n_spare - spill->n_warm * spill->warm_bytes <=
          spill->most_bytes / 2;
    pthread_mutex_unlock(&spill->lock);
    return has;
}

uint64_t spill_file_taken_bytes(SpillFile *spill)
{
    uint64_t n_taken;

    pthread_mutex_lock(&spill->lock);
    n_taken = spill->n_taken;
    pthread_mutex_unlock(&spill->lock);
    /* relaxed: a number, as in spill_file_write */
    return n_taken + atomic_load_explicit(&spill->n_written, memory_order_relaxed);
}

/* ---- the file ---- */

static int make_file(const char *directory)
{
    uint64_t random = 0;
    int fd;

    if (!kernel_random(&random))
        return -1;
    g_autofree char *path =
        g_strdup_printf("%s/" SPILL_FILE_PREFIX "%016" G_GINT64_MODIFIER "x", directory, random);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)unlink(path); /* if this fails, the next snapshot removes it */
    return fd;
}

/* The file; made with the first block. -1: it cannot be made. */
static int find_file(SpillFile *spill)
{
    int fd;

    pthread_mutex_lock(&spill->lock);
    if (spill->fd < 0)
        spill->fd = make_file(spill->directory);
    fd = spill->fd;
    pthread_mutex_unlock(&spill->lock);
    return fd;
}

/* some: what a call has returned that was to write or read bytes. Returns false. */
static bool note_refusal(SpillFile *spill, ssize_t some)
{
    const int refusal = some < 0 ? errno : EIO;

    pthread_mutex_lock(&spill->lock);
    if (spill->refusal == 0)
        spill->refusal = refusal;
    pthread_mutex_unlock(&spill->lock);
    return false;
}

char *spill_file_refusal(SpillFile *spill)
{
    int refusal;

    pthread_mutex_lock(&spill->lock);
    refusal = spill->refusal;
    pthread_mutex_unlock(&spill->lock);
    return refusal != 0 ? g_strdup_printf("%s: %s", spill->directory, g_strerror(refusal)) : NULL;
}

/* relaxed: it is a number, and nothing else follows from it */
bool spill_file_write(SpillFile *spill, const void *bytes, size_t n, uint64_t *offset)
{
    const uint64_t begin = atomic_fetch_add_explicit(&spill->n_written, n, memory_order_relaxed);
    const int fd = find_file(spill);

    for (size_t done = 0; done < n;) {
        const ssize_t some =
            fd < 0 ? -1 : pwrite(fd, (const char *)bytes + done, n - done, (off_t)(begin + done));

        if (some < 0 && fd >= 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return note_refusal(spill, some);
        done += (size_t)some;
    }
    *offset = begin;
    return true;
}

bool spill_file_read(SpillFile *spill, uint64_t offset, void *bytes, size_t n)
{
    const int fd = find_file(spill);

    for (size_t done = 0; done < n;) {
        const ssize_t some = pread(fd, (char *)bytes + done, n - done, (off_t)(offset + done));

        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return note_refusal(spill, some);
        done += (size_t)some;
    }
    return true;
}
