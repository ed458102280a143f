/* The bytes of packets on a connection, and their protection. */
#include "io/net/transport/tcp/tcp_stream.h"

#include <netinet/in.h>
#include <string.h>

#include "io/net/link/wire.h"

GByteArray *tcp_stream_packet(Seal *seal, const uint8_t *bytes, size_t size)
{
    const size_t most = tcp_piece_bytes(seal);
    GByteArray *const stream = g_byte_array_new();
    uint8_t head[TCP_SIZE_BYTES], tag[SEAL_TAG_BYTES];
    size_t at = 0;

    wire_store_u32(head, (uint32_t)size);
    g_byte_array_append(stream, head, sizeof head);
    do {
        const size_t n = MIN(most, size - at);
        const guint begin = stream->len;

        g_byte_array_append(stream, bytes + at, (guint)n);
        seal_close(seal, bytes + at, n, stream->data + begin, tag);
        g_byte_array_append(stream, tag, sizeof tag);
        at += n;
    } while (at < size);
    return stream;
}

/* The 16 bytes of an IPv6 address, or of the IPv6 form of an IPv4 address. */
static bool address_bytes(const struct sockaddr_storage *address, uint8_t bytes[16])
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

    if (address->ss_family == AF_INET6) {
        memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
        return true;
    }
    memcpy(bytes, mapped, sizeof mapped);
    memcpy(bytes + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    return address->ss_family == AF_INET;
}

/* Whether the connection stays within this host. */
static bool is_within_host(int fd)
{
    static const uint8_t loopback[16] = { [15] = 1 }, mapped[13] = { [10] = 0xff, 0xff, 127 };
    struct sockaddr_storage one, other;
    socklen_t one_size = sizeof one, other_size = sizeof other;
    uint8_t here[16], there[16];

    memset(&one, 0, sizeof one);
    memset(&other, 0, sizeof other);
    if (getsockname(fd, (struct sockaddr *)&one, &one_size) != 0 ||
        getpeername(fd, (struct sockaddr *)&other, &other_size) != 0)
        return false;
    if (one.ss_family == AF_UNIX)
        return true;
    if (!address_bytes(&one, here) || !address_bytes(&other, there))
        return false;
    return memcmp(there, loopback, 16) == 0 || memcmp(there, mapped, sizeof mapped) == 0 ||
           memcmp(here, there, 16) == 0;
}

HandshakeConfig tcp_stream_config(const TransportConfig *config, int fd)
{
    /* Without a secret, a MAC would protect no better than a checksum. */
    const bool is_within = is_within_host(fd);
    const bool has_mac = config->authenticate || (config->secret != NULL && !is_within);

    return (HandshakeConfig){
        .secret = config->secret,
        .node = config->self,
        .incarnation = config->incarnation,
        .wanted_node = HANDSHAKE_ANY_NODE,
        .protection = config->encrypt ? PROTECTION_ENCRYPT
                      : has_mac       ? PROTECTION_MAC
                      : is_within     ? PROTECTION_NONE
                                      : PROTECTION_CHECKSUM,
    };
}

void tcp_stream_bound(int fd)
{
    const int size = TCP_NEAR_BYTES;

    /* an error is ignored: without the bound the connection is only slower */
    if (is_within_host(fd))
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}
