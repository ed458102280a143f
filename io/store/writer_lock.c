#include "io/store/writer_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/store/snapshot_folder.h"
#include "io/store/store_file.h"

#define LOCK_NAME ".writer"
#define MOST_HOLDER 256

struct WriterLock {
    int fd;          /* -1: of a bucket */
    char *directory; /* as it was named */
};

/* Who holds it, as its file says; empty if it does not. (transfer full) */
static char *read_holder(int fd)
{
    char text[MOST_HOLDER];
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);

    text[MAX(n, 0)] = '\0';
    return g_utf8_make_valid(g_strchomp(text), -1);
}

/* (transfer full) */
static char *own_name(void)
{
    return g_strdup_printf("process %ld on %s, which", (long)getpid(), g_get_host_name());
}

/* For the message that others get. A disk that does not take it does no harm. */
static void write_holder(int fd, const char *does)
{
    g_autofree char *own = own_name();
    g_autofree char *text = g_strdup_printf("%s %s there\n", own, does);
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
    g_autofree char *own = own_name();
    if (g_str_has_prefix(holder, own)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                    "%s: this directory has a writer already: %s; that is this process, and "
                    "snapshots and streams need a directory each",
                    path, holder);
        return;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: this directory has a writer already: %s",
                path, *holder != '\0' ? holder : "it does not say which process");
}

/* Some file systems have no locks, such as Lustre without its option flock. */
static bool lock_file(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno == ENOLCK || errno == ENOSYS ||
           errno == EOPNOTSUPP;
}

static WriterLock *lock_new(int fd, const char *directory)
{
    WriterLock *const lock = g_new0(WriterLock, 1);

    lock->fd = fd;
    lock->directory = g_strdup(directory);
    return lock;
}

WriterLock *writer_lock_take(const char *directory, const char *does, GError **error)
{
    g_autofree char *path = g_build_filename(directory, LOCK_NAME, NULL);
    int fd;

    if (!snapshot_folder_make_directory(directory, error))
        return NULL;
    if (store_is_bucket(directory))
        return lock_new(-1, directory);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || !lock_file(fd)) {
        set_error(fd, path, error);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    write_holder(fd, does);
    return lock_new(fd, directory);
}

bool writer_lock_is_of(const WriterLock *lock, const char *directory)
{
    g_autofree char *path = g_build_filename(directory, LOCK_NAME, NULL);
    struct stat own, other;

    if (lock->fd < 0 || store_is_bucket(directory))
        return strcmp(lock->directory, directory) == 0;
    return fstat(lock->fd, &own) == 0 && stat(path, &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
}

void writer_lock_release(WriterLock *lock)
{
    if (lock == NULL)
        return;
    if (lock->fd >= 0)
        close(lock->fd);
    g_free(lock->directory);
    g_free(lock);
}
