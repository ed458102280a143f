/* A node's end of a TCP connection, by hand. */
#include "tests/support/network/tcp_hand.h"

#include <errno.h>
#include <poll.h>

#include "io/net/link/wire.h"

#define PATIENCE_MS 100000

/* Whether to call again after a transfer of n bytes (-1: errno): it moved some, or the socket is
 * ready now. */
static bool goes_on(const TcpHand *hand, ssize_t n, short events)
{
    struct pollfd polled = { .fd = hand->fd, .events = events };

    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return poll(&polled, 1, PATIENCE_MS) == 1;
    return n > 0;
}

bool tcp_hand_push_bytes(const TcpHand *hand, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    size_t done = 0;

    while (done < size) {
        const ssize_t n = send(hand->fd, at + done, size - done, MSG_NOSIGNAL);
        if (!goes_on(hand, n, POLLOUT))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool pull_bytes(const TcpHand *hand, void *bytes, size_t size)
{
    uint8_t *at = bytes;
    size_t done = 0;

    while (done < size) {
        const ssize_t n = recv(hand->fd, at + done, size - done, 0);
        if (!goes_on(hand, n, POLLIN))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

void tcp_hand_begin(TcpHand *hand, int fd, const HandshakeConfig *config)
{
    const HandshakeConfig plain = { .wanted_node = HANDSHAKE_ANY_NODE };
    uint8_t hello[HANDSHAKE_HELLO_BYTES];

    *hand = (TcpHand){ .fd = fd };
    handshake_init(&hand->handshake, HANDSHAKE_ROLE_CONNECTS, config != NULL ? config : &plain,
                   NULL);
    (void)tcp_hand_push_bytes(hand, hello, handshake_begin(&hand->handshake, hello));
}

bool tcp_hand_finish(TcpHand *hand)
{
    uint8_t answer[HANDSHAKE_HELLO_BYTES], finish[HANDSHAKE_HELLO_BYTES];
    size_t n;

    if (!pull_bytes(hand, answer, sizeof answer) ||
        handshake_take(&hand->handshake, answer, sizeof answer, finish, &n) != NULL ||
        !tcp_hand_push_bytes(hand, finish, n))
        return false;
    handshake_make_seals(&hand->handshake, &hand->sends, &hand->receives);
    return true;
}

bool tcp_hand_shake(TcpHand *hand, int fd, const HandshakeConfig *config)
{
    tcp_hand_begin(hand, fd, config);
    return tcp_hand_finish(hand);
}

bool tcp_hand_push(TcpHand *hand, const void *bytes, size_t size)
{
    g_autoptr(GByteArray) stream = tcp_stream_packet(&hand->sends, bytes, size);

    return tcp_hand_push_bytes(hand, stream->data, stream->len);
}

GByteArray *tcp_hand_pull(TcpHand *hand)
{
    uint8_t head[TCP_SIZE_BYTES], tag[SEAL_TAG_BYTES];

    if (!pull_bytes(hand, head, sizeof head))
        return NULL;
    g_autoptr(GByteArray) packet = g_byte_array_new();
    g_byte_array_set_size(packet, wire_load_u32(head));
    for (size_t at = 0; at < packet->len;) {
        const size_t most = tcp_piece_bytes(&hand->receives), n = MIN(most, packet->len - at);
        if (!pull_bytes(hand, packet->data + at, n) || !pull_bytes(hand, tag, sizeof tag) ||
            !seal_open(&hand->receives, packet->data + at, n, tag))
            return NULL;
        at += n;
    }
    return g_steal_pointer(&packet);
}
