/* A connection to a TcpReceiver: see tcp_line.h. */
#include "tests/support/network/tcp_line.h"

#include <check.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

const HandshakeConfig TCP_LINE_OWN = { .node = 1,
                                       .incarnation = 11,
                                       .wanted_node = HANDSHAKE_ANY_NODE };

TcpLine tcp_line_open_silent(void)
{
    TcpLine line = { .pool = block_pool_new(), .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    line.fd = fds[0];
    line.receiver =
        tcp_receiver_new(7, fds[1], line.epoll_fd, "10.0.0.1", line.pool, &TCP_LINE_OWN);
    return line;
}

TcpLine tcp_line_open(Protection protection)
{
    const HandshakeConfig other = {
        .node = 2, .incarnation = 12, .wanted_node = 1, .protection = protection
    };
    TcpLine line = tcp_line_open_silent();

    tcp_hand_begin(&line.hand, line.fd, &other);
    ck_assert(tcp_receiver_read(line.receiver));
    ck_assert(!line.receiver->is_proven);
    ck_assert(tcp_hand_finish(&line.hand));
    ck_assert(tcp_receiver_read(line.receiver));
    ck_assert(line.receiver->is_proven);
    return line;
}

void tcp_line_close(TcpLine *line)
{
    tcp_receiver_free(line->receiver);
    if (line->fd != -1)
        close(line->fd);
    close(line->epoll_fd);
    block_pool_free(line->pool);
}

uint8_t tcp_line_byte(size_t k, size_t i)
{
    return (uint8_t)(k * 31 + i * 7 + (i >> 8));
}

GByteArray *tcp_line_stream(TcpLine *line, const size_t *sizes, size_t n)
{
    GByteArray *const stream = g_byte_array_new();

    for (size_t k = 0; k < n; k++) {
        g_autofree uint8_t *bytes = g_malloc(sizes[k] + 1);

        for (size_t i = 0; i < sizes[k]; i++)
            bytes[i] = tcp_line_byte(k, i);
        g_autoptr(GByteArray) packet = tcp_stream_packet(&line->hand.sends, bytes, sizes[k]);
        g_byte_array_append(stream, packet->data, packet->len);
    }
    return stream;
}
