/* Finds the secret of a run: see secret_source.h. */
#define _GNU_SOURCE
#include "engine/cluster/secret_source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/cluster/host.h"
#include "io/number_text.h"

/* The first number after the standard streams. */
#define LEAST_FD 3

/* ---- making ---- */

/* Writes the digits and a line end, and waits until they are on the disk. */
static bool write_digits(int fd, const RunSecret *secret)
{
    char line[RUN_SECRET_DIGITS + 1];

    run_secret_format(secret, line);
    line[RUN_SECRET_DIGITS] = '\n';
    const ssize_t n = write(fd, line, sizeof line);
    run_secret_wipe(line, sizeof line);
    if (n >= 0 && n < (ssize_t)sizeof line)
        errno = ENOSPC;
    return n == (ssize_t)sizeof line && fsync(fd) == 0;
}

bool secret_make_file(const char *path, GError **error)
{
    g_auto(RunSecret) secret = { { 0 } };

    if (!run_secret_draw(&secret, error))
        return false;
    /* The file has this mode from the beginning; a umask can only remove bits. */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd == -1) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot make the secret file %s: %s%s",
                    path, g_strerror(errno),
                    errno == EEXIST ? "; it is left as it is: remove it first, or use it" : "");
        return false;
    }
    const bool is_written = write_digits(fd, &secret);
    const int failure = errno;
    if (close(fd) == 0 && is_written)
        return true;
    unlink(path);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot write the secret file %s: %s", path,
                g_strerror(is_written ? errno : failure));
    return false;
}

char *secret_file_path(const Cluster *cluster)
{
    if (cluster->secret_file == NULL)
        return NULL;
    g_autofree char *path = g_canonicalize_filename(cluster->path, NULL);
    g_autofree char *folder = g_path_get_dirname(path);
    return g_canonicalize_filename(cluster->secret_file, folder);
}

/* ---- descriptors ---- */

int secret_to_descriptor(const RunSecret *secret, GError **error)
{
    const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    const int made = memfd_create("rubato-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int fd = made != -1 ? fcntl(made, F_DUPFD_CLOEXEC, LEAST_FD) : -1;
    char digits[RUN_SECRET_DIGITS + 1];

    run_secret_format(secret, digits);
    const bool is_made = fd != -1 &&
                         pwrite(fd, digits, RUN_SECRET_DIGITS, 0) == RUN_SECRET_DIGITS &&
                         fcntl(fd, F_ADD_SEALS, seals) == 0;
    const int failure = errno;
    run_secret_wipe(digits, sizeof digits);
    if (made != -1)
        close(made);
    if (is_made)
        return fd;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot keep the secret of the run: %s",
                g_strerror(failure));
    if (fd != -1)
        close(fd);
    return -1;
}

/* Keeps the secret where a second engine of this process finds it: in descriptor `fd`, or in any if
 * fd is -1. Programs that this process starts do not inherit it. */
static bool keep(const RunSecret *secret, int fd, GError **error)
{
    const int kept = secret_to_descriptor(secret, error);

    if (kept == -1)
        return false;
    if (fd != -1 && fd != kept) {
        const bool is_moved = dup3(kept, fd, O_CLOEXEC) == fd;
        close(kept);
        if (!is_moved)
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                        "cannot keep the secret of the run: %s", g_strerror(errno));
        return is_moved;
    }
    g_autofree char *number = g_strdup_printf("%d", kept);
    g_setenv(SECRET_FD_VARIABLE, number, TRUE);
    return true;
}

/* Whether the descriptor can hold a secret: it was made by secret_to_descriptor, or is a pipe with
 * data, as a shell hands it on. */
static bool is_source(int fd, bool *is_kept)
{
    struct pollfd polled = { .fd = fd, .events = POLLIN };
    struct stat status;
    const int seals = fcntl(fd, F_GET_SEALS);

    *is_kept = seals != -1 && (seals & F_SEAL_WRITE) != 0;
    return *is_kept || (fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) &&
                        poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0);
}

static bool find_by_descriptor(const char *number, RunSecret *secret, GError **error)
{
    uint64_t fd;
    bool is_kept;

    if (!number_text_read(number, 3, G_MAXINT32, &fd) || !is_source((int)fd, &is_kept)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    SECRET_FD_VARIABLE
                    " is %s, and there is no secret behind that descriptor; it is "
                    "set by `rubato run` for its nodes alone: unset it",
                    number);
        return false;
    }
    if (!is_kept)
        return secret_file_read_digits((int)fd, SECRET_FD_VARIABLE, secret, error) &&
               keep(secret, (int)fd, error);
    if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "cannot read " SECRET_FD_VARIABLE ": %s",
                    g_strerror(errno));
        return false;
    }
    return secret_file_read_digits((int)fd, SECRET_FD_VARIABLE, secret, error);
}

/* Overwrites it also in the memory in which the kernel shows the environment to this user's other
 * processes. */
static bool take_variable(RunSecret *secret, GError **error)
{
    char *const value = (char *)g_getenv(SECRET_VARIABLE);
    const size_t length = strlen(value);
    const bool is_read = run_secret_parse(value, length, secret, error);

    if (!is_read)
        g_prefix_error(error, SECRET_VARIABLE ": ");
    run_secret_wipe(value, length);
    g_unsetenv(SECRET_VARIABLE);
    return is_read && keep(secret, -1, error);
}

bool secret_find(const Cluster *cluster, RunSecret *secret, SecretOrigin *origin, GError **error)
{
    const char *const number = g_getenv(SECRET_FD_VARIABLE);
    g_autofree char *path = secret_file_path(cluster);
    bool is_found = true;

    *origin = SECRET_ORIGIN_NONE;
    if (g_getenv(SECRET_VARIABLE) != NULL) {
        is_found = take_variable(secret, error);
        *origin = SECRET_ORIGIN_FROM_VARIABLE;
    } else if (number != NULL) {
        is_found = find_by_descriptor(number, secret, error);
        *origin = SECRET_ORIGIN_FROM_DESCRIPTOR;
    } else if (path != NULL) {
        is_found = secret_read_file(path, secret, error);
        *origin = SECRET_ORIGIN_FROM_FILE;
    }
    if (!is_found)
        *origin = SECRET_ORIGIN_NONE;
    return is_found;
}

/* ---- what may be done without ---- */

#define NO_SECRET                                                                                 \
    "this run has no secret by which nodes know each other; start all nodes with `rubato run`, "  \
    "which makes one, or give all of them the same secret_file (`rubato secret FILE` makes one) " \
    "or " SECRET_VARIABLE "; insecure = true; in the file does without"
static bool check_host(const Cluster *cluster, const char *what, const char *host, unsigned line,
                       GError **error)
{
    g_autofree char *where = g_strdup_printf("%s:%u", cluster->path, line);
    Host found = { 0 };

    if (!host_resolve(&found, host, where, error))
        return false;
    const bool is_loopback = host_is_loopback(&found);
    host_clear(&found);
    if (!is_loopback)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "%s: the host of %s, %s, can be reached from other machines, and " NO_SECRET,
                    where, what, host);
    return is_loopback;
}

/* Whether all hosts are loopback. */
static bool check_hosts(const Cluster *cluster, GError **error)
{
    if (!check_host(cluster, "the scheduler", cluster->scheduler_host, cluster->scheduler_line,
                    error))
        return false;
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *const node = &cluster->nodes[i];
        g_autofree char *name = g_strdup_printf("node %u", node->id);
        if (!check_host(cluster, name, node->host, node->line, error))
            return false;
    }
    return true;
}

bool secret_check_cluster(const Cluster *cluster, SecretOrigin origin, GError **error)
{
    if (origin != SECRET_ORIGIN_NONE)
        return true;
    if (cluster->encrypt || cluster->authenticate) {
        g_set_error(
            error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
            "%s:%u: %s = true; needs a secret, and there is none; start all nodes with "
            "`rubato run`, which makes one, or give all of them the same secret_file (`rubato "
            "secret FILE` makes one) or " SECRET_VARIABLE,
            cluster->path, cluster->encrypt ? cluster->encrypt_line : cluster->authenticate_line,
            cluster->encrypt ? "encrypt" : "authenticate");
        return false;
    }
    return cluster->insecure || check_hosts(cluster, error);
}
