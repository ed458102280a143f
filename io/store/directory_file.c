/* Files of snapshots in a directory.
 *
 * fsync comes once, at the end: a file that is not finished is never read. The disk is told to take
 * what has been written long before that, so that it works while the next bytes are made. But who
 * tells it waits where it has much to do. So while a file is held, it is told later. Who would have
 * the disk do other things between may have it take the bytes piece by piece before fsync. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/store/store_file.h"

#include <rubato/error.h>

/* The disk is told of so many bytes at a time: enough for it to work at its full speed. */
#define START_BYTES ((uint64_t)8 << 20)

/* The same of a file that is held. More would make others wait, for the kernel lets so many bytes
 * wait for the disk as are a share of its memory. */
#define HELD_BYTES ((uint64_t)2 << 30)

typedef struct {
    StoreFile file;
    int fd;
    uint64_t n_written;
    uint64_t n_started; /* of those that the disk was told to take */
    uint64_t n_settled; /* of those that it took, as it said */
} DirectoryFile;

static bool fail(const DirectoryFile *file, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be %s: %s", file->file.path, what,
                g_strerror(errno));
    return false;
}

static DirectoryFile *file_new(const char *path, int fd)
{
    DirectoryFile *const file = g_new0(DirectoryFile, 1);

    file->file.ops = &directory_file_ops;
    file->file.path = g_strdup(path);
    file->fd = fd;
    return file;
}

static void file_close(StoreFile *base)
{
    DirectoryFile *const file = (DirectoryFile *)base;

    if (file->fd >= 0)
        close(file->fd);
    g_free(file->file.path);
    g_free(file);
}

/* ---- writing ---- */

static StoreFile *file_create(const char *path, GError **error)
{
    DirectoryFile *const file =
        file_new(path, open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));

    if (file->fd >= 0)
        return &file->file;
    fail(file, "created", error);
    file_close(&file->file);
    return NULL;
}

/* Has the disk begin with what has been written. It may do nothing: fsync waits for all bytes, and
 * tells what failed. */
static void start_disk(DirectoryFile *file)
{
    const uint64_t n = file->n_written - file->n_started;

    if (n < (file->file.is_held ? HELD_BYTES : START_BYTES))
        return;
    (void)sync_file_range(file->fd, (off_t)file->n_started, (off_t)n, SYNC_FILE_RANGE_WRITE);
    file->n_started = file->n_written;
}

/* Whatever the kernel takes at a time. */
static bool file_append(StoreFile *base, const void *head, size_t n_head, const void *rest,
                        size_t n_rest, GError **error)
{
    DirectoryFile *const file = (DirectoryFile *)base;
    const size_t n = n_head + n_rest;

    for (size_t done = 0; done < n;) {
        const size_t of_rest = done > n_head ? done - n_head : 0;
        const struct iovec parts[] = {
            { .iov_base = (char *)(uintptr_t)head + MIN(done, n_head),
              .iov_len = n_head - MIN(done, n_head) },
            { .iov_base = (char *)(uintptr_t)rest + of_rest, .iov_len = n_rest - of_rest },
        };
        const ssize_t written = writev(file->fd, parts, G_N_ELEMENTS(parts));

        if (written < 0 && errno == EINTR)
            continue;
        if (written == 0) /* no file system does so; it would never end */
            errno = ENOSPC;
        if (written <= 0)
            return fail(file, "written", error);
        done += (size_t)written;
    }
    file->n_written += n;
    start_disk(file);
    return true;
}

/* Bytes that could not be written are told once for each open file, here or by fsync. What else may
 * be wrong is that a file system cannot do it: then fsync does. */
static bool file_settle(StoreFile *base, bool *has_more, GError **error)
{
    DirectoryFile *const file = (DirectoryFile *)base;
    const uint64_t n = MIN(file->n_written - file->n_settled, START_BYTES);
    const unsigned wait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const bool ok =
        n == 0 || sync_file_range(file->fd, (off_t)file->n_settled, (off_t)n, wait) == 0;

    if (!ok && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        return fail(file, "synchronised with the disk", error);
    file->n_settled = ok ? file->n_settled + n : file->n_written;
    file->n_started = MAX(file->n_started, file->n_settled);
    *has_more = file->n_settled < file->n_written;
    return true;
}

/* What close says is heard, too: some file systems tell only then that a write has failed. */
static bool file_finish(StoreFile *base, GError **error)
{
    DirectoryFile *const file = (DirectoryFile *)base;
    const int fd = file->fd;

    if (!base->is_for_kernel && fsync(fd) != 0)
        return fail(file, "synchronised with the disk", error);
    file->fd = -1;
    return close(fd) == 0 || fail(file, "closed", error);
}

/* ---- reading ---- */

static StoreFile *file_open(const char *path, uint64_t *n_bytes, GError **error)
{
    DirectoryFile *const file = file_new(path, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status;

    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        fail(file, "read", error);
    } else if (!S_ISREG(status.st_mode)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s: is not a regular file", path);
    } else {
        *n_bytes = (uint64_t)status.st_size;
        (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* only a hint */
        return &file->file;
    }
    file_close(&file->file);
    return NULL;
}

static bool file_read(StoreFile *base, uint64_t offset, void *bytes, size_t n, size_t *n_read,
                      GError **error)
{
    const DirectoryFile *const file = (const DirectoryFile *)base;

    *n_read = 0;
    while (*n_read < n) {
        const ssize_t some =
            pread(file->fd, (char *)bytes + *n_read, n - *n_read, (off_t)(offset + *n_read));

        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0)
            return fail(file, "read", error);
        if (some == 0)
            return true;
        *n_read += (size_t)some;
    }
    return true;
}

const StoreFileOps directory_file_ops = {
    .create = file_create,
    .append = file_append,
    .settle = file_settle,
    .finish = file_finish,
    .open = file_open,
    .read = file_read,
    .close = file_close,
};
