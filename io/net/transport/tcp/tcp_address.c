/* Addresses of TCP. */
#include "io/net/transport/tcp/tcp_address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <rubato/error.h>

#include "io/number_text.h"

bool tcp_address_split(const char *scheme, const char *endpoint, char **host, char **port,
                       GError **error)
{
    const size_t n = strlen(scheme);
    const bool fits = g_str_has_prefix(endpoint, scheme) && g_str_has_prefix(endpoint + n, "://");
    const char *const start = fits ? endpoint + n + 3 : NULL;
    const char *const colon = start != NULL ? strrchr(start, ':') : NULL;
    uint64_t number;

    if (colon == NULL || colon == start || !number_text_read(colon + 1, 0, UINT16_MAX, &number)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "\"%s\" is no address: write %s://HOST:PORT with a port from 0 to 65535",
                    endpoint, scheme);
        return false;
    }
    const bool bracketed = *start == '[' && colon[-1] == ']';
    *host = bracketed ? g_strndup(start + 1, (gsize)(colon - start - 2))
                      : g_strndup(start, (gsize)(colon - start));
    *port = g_strdup(colon + 1);
    return true;
}

char *tcp_address_join(const char *scheme, const char *host, unsigned port)
{
    return g_strdup_printf(strchr(host, ':') != NULL ? "%s://[%s]:%u" : "%s://%s:%u", scheme, host,
                           port);
}

struct addrinfo *tcp_address_to_bind(const char *endpoint, const char *host, const char *port,
                                     GError **error)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE };
    struct addrinfo *found = NULL;
    const int code = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, port, &hints, &found);

    if (code == 0)
        return found;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "cannot bind %s: the host \"%s\" cannot be resolved: %s", endpoint, host,
                code == EAI_SYSTEM ? g_strerror(errno) : gai_strerror(code));
    return NULL;
}

struct addrinfo *tcp_address_to_connect(const char *endpoint, const char *host, const char *port,
                                        GError **error)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *found = NULL;

    if (getaddrinfo(host, port, &hints, &found) == 0)
        return found;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                "cannot connect to %s: \"%s\" is no number: nodes tell each other their addresses "
                "in numbers",
                endpoint, host);
    return NULL;
}

void tcp_address_text(const struct sockaddr *address, socklen_t size, char *text, size_t room)
{
    static const char mapped[] = "::ffff:"; /* begins an IPv4 address that an IPv6 socket has
                                             * accepted */

    if (getnameinfo(address, size, text, (socklen_t)room, NULL, 0, NI_NUMERICHOST) != 0)
        g_strlcpy(text, "an unknown address", room);
    else if (g_str_has_prefix(text, mapped) && strchr(text, '.') != NULL)
        memmove(text, text + strlen(mapped), strlen(text) - strlen(mapped) + 1);
}

char *tcp_address_of_socket(const char *scheme, int fd)
{
    struct sockaddr_storage address = { 0 };
    socklen_t size = sizeof address;
    char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";

    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0)
        (void)getnameinfo((const struct sockaddr *)&address, size, host, sizeof host, port,
                          sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    return tcp_address_join(scheme, host, (unsigned)strtoul(port, NULL, 10));
}
