/* The address at which a node without a cluster file receives: see own_address.h. */
#include "engine/cluster/own_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rubato/error.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/cluster/host.h"
#include "io/number_text.h"

static socklen_t size_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* NULL: it is no address by which others could reach this machine. (transfer full) */
static char *number_of(const struct sockaddr *address)
{
    char text[NI_MAXHOST];

    if (address == NULL || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return NULL;
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *const in6 = (const void *)address;

        if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)) /* it would need the name of an interface */
            return NULL;
    }
    return getnameinfo(address, size_of(address), text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0
               ? g_strdup(text)
               : NULL;
}

/* ---- networks: "10.20.0.0/16", "fd00::/8" ---- */

typedef struct {
    int family; /* AF_UNSPEC: this is none */
    uint8_t bytes[sizeof(struct in6_addr)];
    unsigned n_bits; /* of them that its addresses share */
} AddressRange;

static AddressRange read_range(const char *text)
{
    static const AddressRange none = { .family = AF_UNSPEC };
    g_auto(GStrv) parts = g_strsplit(text, "/", 2);
    AddressRange range = { .family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET };
    uint64_t n_bits;

    if (g_strv_length(parts) != 2 || inet_pton(range.family, parts[0], range.bytes) != 1 ||
        !number_text_read(parts[1], 0, range.family == AF_INET ? 32 : 128, &n_bits))
        return none;
    range.n_bits = (unsigned)n_bits;
    return range;
}

static bool is_in_range(const AddressRange *range, const struct sockaddr *address)
{
    const void *const bytes =
        address->sa_family == AF_INET
            ? (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr
            : &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    const unsigned n_whole = range->n_bits / 8, n_left = range->n_bits % 8;
    const uint8_t *const own = bytes;

    return address->sa_family == range->family && memcmp(own, range->bytes, n_whole) == 0 &&
           (n_left == 0 || (own[n_whole] ^ range->bytes[n_whole]) >> (8 - n_left) == 0);
}

/* ---- interfaces ---- */

/* The address of the interface of that name, of version 4 if it has one, or the first one of that
 * network. `names` gets the names of all. (transfer full) */
static char *find_interface(const char *name, GString *names)
{
    const AddressRange range = read_range(name);
    struct ifaddrs *all = NULL;
    char *found = NULL;
    bool is_best = false;

    if (getifaddrs(&all) != 0)
        return NULL;
    for (const struct ifaddrs *each = all; each != NULL; each = each->ifa_next) {
        g_autofree char *address =
            (each->ifa_flags & IFF_UP) != 0 ? number_of(each->ifa_addr) : NULL;

        if (address == NULL)
            continue;
        g_string_append_printf(names, "%s%s (%s)", names->len > 0 ? ", " : "", each->ifa_name,
                               address);
        const bool is_meant = range.family != AF_UNSPEC ? is_in_range(&range, each->ifa_addr)
                                                        : strcmp(each->ifa_name, name) == 0;
        if (!is_meant || is_best)
            continue;
        is_best = range.family != AF_UNSPEC || each->ifa_addr->sa_family == AF_INET;
        g_free(found);
        found = g_steal_pointer(&address);
    }
    freeifaddrs(all);
    return found;
}

char *own_address_outward(void)
{
    struct ifaddrs *all = NULL;
    char *found = NULL;
    bool is_v4 = false;

    if (getifaddrs(&all) != 0)
        return g_strdup("127.0.0.1");
    for (const struct ifaddrs *each = all; each != NULL && !is_v4; each = each->ifa_next) {
        const bool leads_out =
            (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
        char *const address = leads_out ? number_of(each->ifa_addr) : NULL;

        if (address == NULL)
            continue;
        is_v4 = each->ifa_addr->sa_family == AF_INET;
        if (found == NULL || is_v4) {
            g_free(found);
            found = address;
        } else {
            g_free(address);
        }
    }
    freeifaddrs(all);
    return found != NULL ? found : g_strdup("127.0.0.1");
}

char *own_interface_of(const char *address)
{
    struct ifaddrs *all = NULL;
    char *name = NULL;

    if (getifaddrs(&all) != 0)
        return NULL;
    for (const struct ifaddrs *each = all; each != NULL && name == NULL; each = each->ifa_next) {
        g_autofree char *number = number_of(each->ifa_addr);

        if (number != NULL && strcmp(number, address) == 0)
            name = g_strdup(each->ifa_name);
    }
    freeifaddrs(all);
    return name;
}

char *host_address_of(const char *host, bool *is_own, GError **error)
{
    Host found = { 0 };

    if (!host_resolve(&found, host, "RUBATO_SCHEDULER", error))
        return NULL;
    char *const address = host_describe(&found);
    *is_own = found.local;
    host_clear(&found);
    return address;
}

char *own_address_of(const char *interface, GError **error)
{
    g_autoptr(GString) names = g_string_new(NULL);
    char *address = find_interface(interface, names);
    bool is_own = false;

    if (address != NULL)
        return address;
    address = host_address_of(interface, &is_own, NULL);
    if (is_own)
        return address;
    g_free(address);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                "RUBATO_INTERFACE is \"%s\", which is no interface of this machine that is up, no "
                "address of it, and no network in which it has one; there are %s",
                interface, names->len > 0 ? names->str : "none");
    return NULL;
}

/* Connecting a datagram socket sends nothing, but finds the route. */
char *own_address_towards(const char *host, GError **error)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST };
    struct addrinfo *to = NULL;
    struct sockaddr_storage own = { 0 };
    socklen_t size = sizeof own;
    char *address = NULL;

    if (getaddrinfo(host, "1", &hints, &to) == 0) {
        const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        if (fd != -1 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
            getsockname(fd, (struct sockaddr *)&own, &size) == 0)
            address = number_of((const struct sockaddr *)&own);
        if (fd != -1)
            close(fd);
        freeaddrinfo(to);
    }
    if (address == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "this machine has no way to the scheduler at %s; if it has one by another "
                    "interface, say so in RUBATO_INTERFACE",
                    host);
    return address;
}

bool address_is_loopback(const char *address)
{
    Host host = { 0 };

    if (!host_resolve(&host, address, "", NULL))
        return false;
    const bool is_loopback = host_is_loopback(&host);
    host_clear(&host);
    return is_loopback;
}
