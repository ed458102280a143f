/* Files that hold a secret. */
#include "io/net/secure/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <rubato/error.h>
#include <sys/stat.h>
#include <unistd.h>

/* At most this much of a file is read. Any correct file is shorter. */
#define MOST_BYTES ((size_t)4 * RUN_SECRET_DIGITS)

/* Reads what is there, or as much as fits; -1 with errno. The nodes that inherit a descriptor share
 * its offset and read at the same time, so that offset is neither used nor moved, but for pipes,
 * which have none. */
static ssize_t read_all(int fd, char *text, size_t size)
{
    size_t at = 0;
    ssize_t n;

    do {
        n = pread(fd, text + at, size - at, (off_t)at);
        if (n == -1 && errno == ESPIPE)
            n = read(fd, text + at, size - at);
        at += n > 0 ? (size_t)n : 0;
    } while ((n > 0 && at < size) || (n == -1 && errno == EINTR));
    return n == -1 ? -1 : (ssize_t)at;
}

bool secret_file_read_digits(int fd, const char *name, RunSecret *secret, GError **error)
{
    char text[MOST_BYTES];
    const ssize_t n = read_all(fd, text, sizeof text);
    const int failure = errno;
    bool is_read = false;

    if (n < 0)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot read %s: %s", name,
                    g_strerror(failure));
    else
        is_read = run_secret_parse(text, (size_t)n, secret, error);
    if (n >= 0 && !is_read)
        g_prefix_error(error, "%s: ", name);
    run_secret_wipe(text, sizeof text);
    return is_read;
}

/* What is wrong with the file that was opened; NULL: nothing. (transfer full) */
static char *find_fault(int fd, const char *path)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        return g_strdup_printf("cannot look at the secret file %s: %s", path, g_strerror(errno));
    if (!S_ISREG(status.st_mode))
        return g_strdup_printf("the secret file %s is no file of bytes", path);
    if (status.st_uid != geteuid())
        return g_strdup_printf(
            "the secret file %s belongs to user %u, and this process runs as user "
            "%u; give each user a file of their own",
            path, (unsigned)status.st_uid, (unsigned)geteuid());
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return g_strdup_printf("others than its owner may use the secret file %s (mode %04o); say "
                               "chmod 600 %s, or make a new one if somebody may have read it",
                               path, (unsigned)(status.st_mode & 07777), path);
    return NULL;
}

bool secret_read_file(const char *path, RunSecret *secret, GError **error)
{
    g_autofree char *name = g_strdup_printf("the secret file %s", path);
    /* Does not wait if the path is a FIFO. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd == -1) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                    "cannot open %s: %s; `rubato secret %s` makes one", name, g_strerror(errno),
                    path);
        return false;
    }
    g_autofree char *fault = find_fault(fd, path);
    const bool is_read = fault == NULL && secret_file_read_digits(fd, name, secret, error);
    if (fault != NULL)
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG, fault);
    close(fd);
    return is_read;
}
