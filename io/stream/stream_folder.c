/* The directory of a stream. */
#include "io/stream/stream_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <rubato/stream.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "io/store/snapshot_folder.h"

#define LOCK_NAME ".writer"
#define MOST_HOLDER 256

struct StreamLock {
    int fd;
};

/* ---- kinds of streams ---- */

typedef struct {
    const char *scheme;
    const char *form; /* for messages */
    /* The directory of versions that the rest of a URI names; NULL: it names none. (transfer
     * full) */
    char *(*find)(const char *rest);
} StreamOps;

/* file:///DIR names no host. */
static char *find_directory(const char *rest)
{
    return *rest != '\0' ? g_strdup(g_str_has_prefix(rest, "///") ? rest + 2 : rest) : NULL;
}

static const StreamOps kinds[] = {
    { .scheme = "file:",
      .form = "file:DIR, the directory of its versions",
      .find = find_directory },
};

char *stream_folder_find(const char *uri, GError **error)
{
    g_autoptr(GString) forms = g_string_new(NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        char *const directory = uri != NULL && g_str_has_prefix(uri, kinds[i].scheme)
                                    ? kinds[i].find(uri + strlen(kinds[i].scheme))
                                    : NULL;

        if (directory != NULL)
            return directory;
        g_string_append_printf(forms, "%s%s", i > 0 ? ", or " : "", kinds[i].form);
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "a stream to \"%s\": it is named by %s",
                uri != NULL ? uri : "", forms->str);
    return NULL;
}

bool rubato_stream_check(const char *uri, GError **error)
{
    g_autofree char *directory = stream_folder_find(uri, error);

    return directory != NULL;
}

/* ---- the lock ---- */

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

void stream_lock_release(StreamLock *lock)
{
    if (lock == NULL)
        return;
    close(lock->fd);
    g_free(lock);
}
