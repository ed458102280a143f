/* A node's end of a TCP connection, driven by hand: a test sends correct or wrong bytes on it.
 *
 * Threads: the test's own. */
#ifndef TESTS_SUPPORT_NETWORK_TCP_HAND_H
#define TESTS_SUPPORT_NETWORK_TCP_HAND_H

#include "io/net/transport/tcp/tcp_stream.h"

typedef struct {
    int fd;
    Handshake handshake;
    Seal sends, receives; /* once it has shaken hands */
} TcpHand;

/* Says HELLO on the connected socket. A config of NULL: as node 0 of a run without a secret. */
void tcp_hand_begin(TcpHand *hand, int fd, const HandshakeConfig *config);

/* Waits for the answer and says FINISH. False: the other end closes, or is not the wanted node. */
bool tcp_hand_finish(TcpHand *hand);

/* Both. */
bool tcp_hand_shake(TcpHand *hand, int fd, const HandshakeConfig *config);

/* Writes all bytes. False: the other end has closed. */
bool tcp_hand_push_bytes(const TcpHand *hand, const void *bytes, size_t size);

/* A packet. */
bool tcp_hand_push(TcpHand *hand, const void *bytes, size_t size);

/* Waits for a packet that comes back; NULL: the other end has closed. (transfer full) */
GByteArray *tcp_hand_pull(TcpHand *hand);

#endif
