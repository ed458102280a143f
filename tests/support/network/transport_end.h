/* One end of a transport, without a network above it: it is bound, and what comes to it is taken by
 * the test.
 *
 * Threads: the test's, one for each end. */
#ifndef TESTS_SUPPORT_NETWORK_TRANSPORT_END_H
#define TESTS_SUPPORT_NETWORK_TRANSPORT_END_H

#include "io/net/transport/transport_ops.h"

#define TRANSPORT_PATIENCE_MS 100000 /* ends a test that hangs */
#define TRANSPORT_TICK_MS 5

typedef struct {
    const TransportOps *ops;
    Transport *transport;
    char *endpoint; /* where it is bound */
} TransportEnd;

/* Makes an end and binds it. transport_end_close() ends it. */
TransportEnd transport_end_open(const TransportOps *ops, const TransportConfig *config,
                                const char *address);
void transport_end_close(TransportEnd *end);

/* A channel to the end `to`; target as for the transport's connect. It ends with
 * transport_end_hang_up(). */
Channel *transport_end_connect(const TransportEnd *from, const char *to,
                               const ChannelTarget *target);
void transport_end_hang_up(Channel *channel, unsigned linger_ms);

/* Does what the I/O thread of the end that connected last would do now and then: some transports do
 * their work when they are asked for news. */
void transport_end_serve_sender(void);

/* Leaves that end alone from now on: another thread closes it. */
void transport_end_leave_sender(void);

/* Sends a packet of `size` times this byte. */
void transport_end_send(Channel *channel, uint8_t byte, size_t size);

/* Receives one packet, waiting for it; false: in TRANSPORT_PATIENCE_MS none came. */
bool transport_end_receive(const TransportEnd *end, Received *received);

bool transport_end_is_all(const Received *received, uint8_t byte);

/* Receives a packet that must be as transport_end_send() made it. */
void transport_end_expect(const TransportEnd *end, uint8_t byte, size_t size);

#endif
