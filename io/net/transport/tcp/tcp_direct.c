/* Packets whose values are read to their place. Invariant: while is_direct is set, the head has
 * come, and packet_at is head_bytes and what has come to the direct read. */
#include "io/net/transport/tcp/tcp_direct.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Smaller packets come with others in one read, and copying them costs little. */
#define LEAST_BYTES ((size_t)32 << 10)

bool tcp_direct_is_possible(const TcpReceiver *receiver, size_t size)
{
    return receiver->reader != NULL && receiver->reader->begin != NULL && size >= LEAST_BYTES &&
           size <= tcp_piece_bytes(&receiver->receives) && seal_opens_apart(&receiver->receives);
}

bool tcp_direct_begin(TcpReceiver *receiver, size_t size)
{
    Received received;

    if (!tcp_direct_is_possible(receiver, size))
        return false;
    memcpy(receiver->head, receiver->buffer + receiver->begin, DIRECT_MOST_HEAD_BYTES);
    tcp_receiver_fill(receiver, &received, receiver->head, size);
    if (!receiver->reader->begin(receiver->reader->user, &received, &receiver->direct))
        return false;
    receiver->head_bytes = size - receiver->direct.n_bytes;
    receiver->begin += receiver->head_bytes;
    receiver->is_direct = true;
    receiver->packet_bytes = size;
    receiver->packet_at = receiver->head_bytes;
    receiver->opened_at = 0;
    return true;
}

/* As direct_read_lock, but where the next byte goes. NULL: the packet is lost, and the link sends
 * it again on another connection. */
static uint8_t *lock(TcpReceiver *receiver)
{
    uint8_t *const bytes = direct_read_lock(&receiver->direct);

    if (bytes != NULL)
        return bytes + (receiver->packet_at - receiver->head_bytes);
    direct_read_unlock(&receiver->direct, 0);
    receiver->fault = "there is no memory for a packet for which nobody waits any more";
    return NULL;
}

ssize_t tcp_direct_receive(TcpReceiver *receiver, struct iovec parts[2])
{
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    ssize_t n;

    parts[0].iov_base = lock(receiver);
    if (parts[0].iov_base == NULL) {
        errno = ENOMEM;
        return -1;
    }
    do
        n = recvmsg(receiver->fd, &message, MSG_DONTWAIT);
    while (n == -1 && errno == EINTR);
    direct_read_unlock(&receiver->direct, n > 0 ? MIN((size_t)n, parts[0].iov_len) : 0);
    if (n == -1 &&
        errno == EFAULT) { /* the caller's mistake: it shall fail where rows are copied */
        direct_read_revoke(&receiver->direct);
        errno = EAGAIN;
    }
    return n;
}

void tcp_direct_fill(TcpReceiver *receiver, size_t n)
{
    uint8_t *const to = lock(receiver);

    if (to == NULL)
        return;
    memcpy(to, receiver->buffer + receiver->begin, n);
    direct_read_unlock(&receiver->direct, n);
}

bool tcp_direct_open(TcpReceiver *receiver, const uint8_t *tag)
{
    uint8_t *const end = lock(receiver);
    const size_t n = receiver->packet_bytes - receiver->head_bytes;

    if (end == NULL)
        return false;
    const bool is_right = seal_open_apart(
        &receiver->receives, &(SealParts){ receiver->head, receiver->head_bytes, end - n, n }, tag);
    direct_read_unlock(&receiver->direct, 0);
    return is_right;
}

bool tcp_direct_give(TcpReceiver *receiver, Received *received)
{
    uint8_t *const end = lock(receiver);

    if (end == NULL)
        return false;
    tcp_receiver_fill(receiver, received, receiver->head, receiver->packet_bytes);
    received->values = end - (receiver->packet_bytes - receiver->head_bytes);
    received->head_bytes = receiver->head_bytes;
    received->lent = true;
    direct_read_unlock(&receiver->direct, 0);
    return true;
}

void tcp_direct_end(TcpReceiver *receiver)
{
    receiver->reader->end(receiver->reader->user, &receiver->direct);
    direct_read_finish(&receiver->direct);
    receiver->is_direct = false;
}
