/* A connection whose receiving end is a TcpReceiver alone, without a transport around it; the other
 * end is a test's.
 *
 * Threads: the test's own. A failure fails the case. */
#ifndef TESTS_SUPPORT_NETWORK_TCP_LINE_H
#define TESTS_SUPPORT_NETWORK_TCP_LINE_H

#include "io/net/transport/tcp/tcp_receiver.h"
#include "tests/support/network/tcp_hand.h"

typedef struct {
    BlockPool *pool;
    int epoll_fd, fd; /* what the other end writes to; -1: the test has closed it */
    TcpReceiver *receiver;
    TcpHand hand; /* the other end: node 2, incarnation 12 */
} TcpLine;

extern const HandshakeConfig TCP_LINE_OWN;

/* A connection on which nothing was said. */
TcpLine tcp_line_open_silent(void);

/* One on which both ends have shaken hands. */
TcpLine tcp_line_open(Protection protection);

void tcp_line_close(TcpLine *line);

/* Byte i of packet k. */
uint8_t tcp_line_byte(size_t k, size_t i);

/* The bytes of packets of these sizes. (transfer full) */
GByteArray *tcp_line_stream(TcpLine *line, const size_t *sizes, size_t n);

#endif
