/* Gives an inlet arbitrary bytes of a connection, cut as the input says: a row of pieces, two bytes
 * of length and the bytes. What is taken out must be what a reader that has all bytes at once finds. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/transport/tcp_inlet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Beyond that a socket may not take a piece at once. */
#define MOST_PIECE_BYTES ((size_t)16 << 10)

/* The next packet of a whole stream; false: it ends, or makes no sense, before that. */
static bool next_of_all(const GByteArray *stream, size_t *at, const uint8_t **bytes, size_t *size)
{
    if (*at == 0) {
        if (stream->len < TCP_PREAMBLE_BYTES ||
            memcmp(stream->data, TCP_PREAMBLE, TCP_PREAMBLE_BYTES) != 0)
            return false;
        *at = TCP_PREAMBLE_BYTES;
    }
    if (stream->len - *at < TCP_SIZE_BYTES)
        return false;
    *size = wire_load_u32(stream->data + *at);
    if (*size > stream->len - *at - TCP_SIZE_BYTES)
        return false;
    *bytes = stream->data + *at + TCP_SIZE_BYTES;
    *at += TCP_SIZE_BYTES + *size;
    return true;
}

/* Takes all packets that are there. False: the connection is not worth keeping. */
static bool take_all(TcpInlet *inlet, const GByteArray *stream, size_t *at)
{
    const uint8_t *bytes = NULL;
    const char *fault = NULL;
    Received received;
    size_t size = 0;

    while (tcp_inlet_take(inlet, &received, &fault)) {
        if (!next_of_all(stream, at, &bytes, &size) || received.size != size ||
            memcmp(received.bytes, bytes, size) != 0)
            abort();
        received.ops->release(&received);
    }
    return fault == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    GByteArray *const stream = g_byte_array_new();
    BlockPool *const pool = block_pool_new();
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    const uint8_t *bytes;
    size_t at = 0, packet_bytes;
    bool is_kept = true;
    int fds[2];

    if (epoll_fd == -1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
        abort();
    TcpInlet *const inlet = tcp_inlet_new(1, fds[1], epoll_fd, "somewhere", pool);
    while (is_kept && size >= 2) {
        const size_t told = wire_load_u16(data);
        const size_t n = MIN(MIN(told, MOST_PIECE_BYTES), size - 2);
        g_byte_array_append(stream, data + 2, (guint)n);
        if (write(fds[0], data + 2, n) != (ssize_t)n)
            abort();
        data += 2 + n;
        size -= 2 + n;
        for (unsigned i = 0; is_kept && i < 4; i++) /* a read may stop where a block ends */
            is_kept = tcp_inlet_read(inlet) && take_all(inlet, stream, &at);
    }
    if (is_kept && next_of_all(stream, &at, &bytes, &packet_bytes))
        abort(); /* all that was whole is out */
    tcp_inlet_free(inlet);
    close(fds[0]);
    close(epoll_fd);
    block_pool_free(pool);
    g_byte_array_unref(stream);
    return 0;
}
