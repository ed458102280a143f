/* Who writes to the directory of a stream. */
#include "io/stream/stream_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "io/store/snapshot_folder.h"

#define LOCK_NAME ".writer"
#define MOST_HOLDER 256

struct StreamLock {
    int fd;
};

/* Who holds it, as its file says; empty if it does not. (transfer full) */
static char *read_holder(int fd)
{
    char text[MOST_HOLDER];
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);

    text[MAX(n, 0)] = '\0';
    return g_utf8_make_valid(g_strchomp(text), -1);
}

/* For the message that others get. A disk that does not take it does no harm. */
static void write_holder(int fd)
{
    g_autofree char *text =
        g_strdup_printf("process %ld on %s\n", (long)getpid(), g_get_host_name());
    const size_t n = strlen(text);

    if (ftruncate(fd, 0) == 0)
        (void)!pwrite(fd, text, MIN(n, MOST_HOLDER - 1), 0);
}

static void set_error(int fd, const char *path, GError **error)
{
    const int code = errno;
    g_autofree char *holder = NULL;

    if (code != EWOULDBLOCK) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be locked: %s", path,
                    g_strerror(code));
        return;
    }
    holder = read_holder(fd);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                "%s: another run streams into this directory: %s", path,
                *holder != '\0' ? holder : "it does not say which process");
}

StreamLock *stream_lock_take(const char *directory, GError **error)
{
    g_autofree char *path = g_build_filename(directory, LOCK_NAME, NULL);
    StreamLock *lock;
    int fd;

    if (!snapshot_folder_make_directory(directory, error))
        return NULL;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        set_error(fd, path, error);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    write_holder(fd);
    lock = g_new0(StreamLock, 1);
    lock->fd = fd;
    return lock;
}

bool stream_folder_sync(const char *directory, GError **error)
{
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = fd >= 0 && syncfs(fd) == 0;

    if (!ok)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be synchronised: %s",
                    directory, g_strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok;
}

void stream_lock_release(StreamLock *lock)
{
    if (lock == NULL)
        return;
    close(lock->fd);
    g_free(lock);
}
