/* Resolves hosts and tries ports: see host.h.
 *
 * Thread: the caller's; the only state is the list of interfaces, asked anew each time. */
#include "engine/cluster/host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        return (ntohl(in->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    }
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)address;
        return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
    }
    return false;
}

static bool is_same(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *left = (const void *)a;
        const struct sockaddr_in *right = (const void *)b;
        return left->sin_addr.s_addr == right->sin_addr.s_addr;
    }
    if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *left = (const void *)a;
        const struct sockaddr_in6 *right = (const void *)b;
        return IN6_ARE_ADDR_EQUAL(&left->sin6_addr, &right->sin6_addr);
    }
    return false;
}

static bool is_local(const struct sockaddr *address, const struct ifaddrs *interfaces)
{
    if (is_loopback(address))
        return true;
    for (; interfaces != NULL; interfaces = interfaces->ifa_next)
        if (interfaces->ifa_addr != NULL && is_same(address, interfaces->ifa_addr))
            return true;
    return false;
}

/* The first address of the host that is this machine's, or NULL. */
static const struct addrinfo *find_local(const struct addrinfo *address)
{
    struct ifaddrs *interfaces = NULL;

    if (getifaddrs(&interfaces) != 0)
        interfaces = NULL; /* loopback is known without */
    while (address != NULL && !is_local(address->ai_addr, interfaces))
        address = address->ai_next;
    freeifaddrs(interfaces);
    return address;
}

bool host_resolve(Host *host, const char *name, const char *where, GError **error)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *addresses;
    const int failure = getaddrinfo(name, NULL, &hints, &addresses);

    if (failure != 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s: the host '%s' cannot be resolved: %s; write a name or an address that "
                    "this machine knows",
                    where, name, failure == EAI_SYSTEM ? g_strerror(errno) : gai_strerror(failure));
        return false;
    }
    host->addresses = addresses;
    host->local = find_local(addresses) != NULL;
    return true;
}

void host_clear(Host *host)
{
    if (host->addresses != NULL)
        freeaddrinfo(host->addresses);
    host->addresses = NULL;
}

bool host_is_loopback(const Host *host)
{
    for (const struct addrinfo *each = host->addresses; each != NULL; each = each->ai_next)
        if (!is_loopback(each->ai_addr))
            return false;
    return true;
}

char *host_describe(const Host *host)
{
    char text[NI_MAXHOST];

    if (getnameinfo(host->addresses->ai_addr, host->addresses->ai_addrlen, text, sizeof text, NULL,
                    0, NI_NUMERICHOST) != 0)
        return g_strdup("?");
    return g_strdup(text);
}

int host_try_port(const Host *host, uint16_t port)
{
    const struct addrinfo *local = find_local(host->addresses);
    struct sockaddr_storage address;
    const int on = 1;

    if (local == NULL) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    memcpy(&address, local->ai_addr, local->ai_addrlen);
    if (address.ss_family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)&address)->sin6_port = htons(port);

    /* Binds as the transport does: a port whose last connections are still closing is free. */
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, (const struct sockaddr *)&address, local->ai_addrlen) == 0 && listen(fd, 1) == 0)
        return fd;

    const int failure = errno;
    if (fd >= 0)
        close(fd);
    errno = failure;
    return -1;
}
