/* A file that has no name, so that no crash but one between two calls leaves it behind. It is not
 * synchronised with the disk: it is of no use after a crash. */
#include "io/store/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "io/kernel_random.h"

/* A block that was given back. */
typedef struct Spare Spare;
struct Spare {
    Spare *next;
};

struct SpillFile {
    /* immutable */
    char *directory;
    uint64_t most_bytes;

    _Atomic uint64_t n_written; /* where the next block goes */

    pthread_mutex_t lock;
    /* guarded by lock */
    int fd; /* -1: it has not been made */
    uint64_t n_counted;
    Spare *spares;
    size_t spare_bytes; /* of each of them */
    uint64_t n_spare;   /* bytes of all of them */
};

SpillFile *spill_file_new(const char *directory, uint64_t most_bytes)
{
    SpillFile *const spill = g_new0(SpillFile, 1);

    spill->directory = g_strdup(directory);
    spill->most_bytes = most_bytes;
    spill->fd = -1;
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

void spill_file_free(SpillFile *spill)
{
    if (spill == NULL)
        return;
    free_spares(spill);
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
    if (spill->spares != NULL) {
        *block = take_spare(spill);
    } else {
        fits = n <= spill->most_bytes && spill->n_counted <= spill->most_bytes - n;
        *block = fits ? g_try_malloc(n) : NULL;
        spill->n_counted += *block != NULL ? n : 0;
    }
    pthread_mutex_unlock(&spill->lock);
    return fits;
}

void spill_file_give_back(SpillFile *spill, void *block, size_t n)
{
    Spare *const spare = block;

    pthread_mutex_lock(&spill->lock);
    if (spill->spares != NULL && spill->spare_bytes != n)
        free_spares(spill);
    spill->spare_bytes = n;
    spare->next = spill->spares;
    spill->spares = spare;
    spill->n_spare += n;
    pthread_mutex_unlock(&spill->lock);
}

bool spill_file_has_half(SpillFile *spill)
{
    bool has;

    pthread_mutex_lock(&spill->lock);
    has = spill->n_counted - spill->n_spare <= spill->most_bytes / 2;
    pthread_mutex_unlock(&spill->lock);
    return has;
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
            return false;
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
            return false;
        done += (size_t)some;
    }
    return true;
}
