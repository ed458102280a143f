/* Addresses and secrets of served followers. */
#include "engine/serving/serving_address.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rubato/error.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/cluster/host.h"
#include "engine/cluster/secret_source.h"
#include "engine/serving/name_lookup.h"
#include "io/net/monotonic.h"
#include "io/net/transport/tcp/tcp_address.h"

#define SCHEME "tcp"
#define BACKLOG 128

bool serving_find_secret(const char *file, RunSecret *secret, bool *has_secret, GError **error)
{
    const Cluster no_cluster = { .path = NULL };
    SecretOrigin origin;

    if (file != NULL) {
        *has_secret = secret_read_file(file, secret, error);
        return *has_secret;
    }
    if (!secret_find(&no_cluster, secret, &origin, error))
        return false;
    *has_secret = origin != SECRET_ORIGIN_NONE;
    return true;
}

/* ---- listening ---- */

static int fail(const char *address, const char *what, int code, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "%s %s: %s%s", what, address,
                g_strerror(code), code == EADDRINUSE ? TCP_ADDRESS_TAKEN : "");
    return -1;
}

static bool check_reach(const char *address, const char *host, bool has_secret, GError **error)
{
    Host found = { 0 };

    if (has_secret)
        return true;
    if (strcmp(host, "*") != 0) {
        if (!host_resolve(&found, host, address, error))
            return false;
        const bool is_loopback = host_is_loopback(&found);
        host_clear(&found);
        if (is_loopback)
            return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "%s can be reached from other machines, so a follower there needs a secret, which "
                "its programs know, too: `rubato secret FILE` makes one",
                address);
    return false;
}

static int listen_at(const struct addrinfo *at)
{
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int one = 1;

    if (fd == -1)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int code = errno;
    close(fd);
    errno = code;
    return -1;
}

int serving_listen(const char *address, bool has_secret, GError **error)
{
    g_autofree char *host = NULL, *port = NULL;
    int fd;

    if (!tcp_address_split(SCHEME, address, &host, &port, error) ||
        !check_reach(address, host, has_secret, error))
        return -1;
    struct addrinfo *const found = tcp_address_to_bind(address, host, port, error);
    if (found == NULL)
        return -1;
    fd = listen_at(found);
    const int code = errno;
    freeaddrinfo(found);
    return fd != -1 ? fd : fail(address, "cannot listen at", code, error);
}

/* ---- connecting ---- */

/* 0, or what is wrong. Poll returns at end_ms at the latest. */
static int wait_connected(int fd, int64_t end_ms)
{
    struct pollfd ready = { .fd = fd, .events = POLLOUT };
    int code = 0, n;
    socklen_t size = sizeof code;

    do {
        const int64_t left_ms = end_ms - monotonic_ms();

        n = poll(&ready, 1, (int)CLAMP(left_ms, 0, G_MAXINT));
    } while (n < 0 && errno == EINTR);
    if (n == 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

static int connect_at(const struct addrinfo *at, int64_t end_ms)
{
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd == -1)
        return -1;
    const int code = connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0
                     : errno == EINPROGRESS                        ? wait_connected(fd, end_ms)
                                                                   : errno;
    if (code == 0)
        return fd;
    close(fd);
    errno = code;
    return -1;
}

int serving_connect_to(const char *address, int64_t end_ms, GError **error)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    g_autofree char *host = NULL, *port = NULL;
    struct addrinfo *found = NULL;
    int fd = -1, code = ETIMEDOUT;

    if (!tcp_address_split(SCHEME, address, &host, &port, error))
        return -1;
    const int looked_up = name_lookup(host, port, &hints, end_ms, &found);
    if (looked_up == EAI_AGAIN && monotonic_ms() >= end_ms) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                    "%s: nobody has said in time where the host \"%s\" is", address, host);
        return -1;
    }
    if (looked_up != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s: the host \"%s\" cannot be resolved", address, host);
        return -1;
    }
    for (const struct addrinfo *at = found; at != NULL && fd == -1; at = at->ai_next) {
        fd = connect_at(at, end_ms);
        code = errno;
    }
    freeaddrinfo(found);
    if (fd == -1 && code == ETIMEDOUT)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT, "%s has not answered in time",
                    address);
    else if (fd == -1)
        fail(address, "no follower answers at", code, error);
    return fd;
}
