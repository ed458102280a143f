#include "tests/support/network/transport_end.h"

#include <check.h>
#include <poll.h>
#include <string.h>

/* The end that sends, and its channel. */
static struct {
    const TransportOps *ops;
    Transport *transport;
    Channel *channel;
} sending;

TransportEnd transport_end_open(const TransportOps *ops, const TransportConfig *config,
                                const char *address)
{
    TransportEnd end = { .ops = ops };
    GError *error = NULL;

    end.transport = ops->create(config, &error);
    ck_assert_msg(end.transport != NULL, "%s", error != NULL ? error->message : "");
    ck_assert_msg(ops->bind(end.transport, address, &end.endpoint, &error), "%s",
                  error != NULL ? error->message : "");
    return end;
}

void transport_end_leave_sender(void)
{
    sending.transport = NULL;
}

void transport_end_close(TransportEnd *end)
{
    if (sending.transport == end->transport)
        sending.transport = NULL;
    end->ops->destroy(end->transport);
    g_free(end->endpoint);
}

Channel *transport_end_connect(const TransportEnd *from, const char *to,
                               const ChannelTarget *target)
{
    GError *error = NULL;
    Channel *const channel = from->ops->connect(from->transport, to, target, &error);

    ck_assert_msg(channel != NULL, "%s", error != NULL ? error->message : "");
    sending.ops = from->ops;
    sending.transport = from->transport;
    sending.channel = channel;
    return channel;
}

void transport_end_hang_up(Channel *channel, unsigned linger_ms)
{
    if (sending.channel == channel)
        sending.channel = NULL;
    channel->ops->close(channel, linger_ms);
}

void transport_end_serve_sender(void)
{
    Received received;

    if (sending.transport == NULL)
        return;
    ck_assert(!sending.ops->receive(sending.transport, &received));
    if (sending.channel != NULL)
        (void)sending.channel->ops->state(sending.channel);
}

void transport_end_send(Channel *channel, uint8_t byte, size_t size)
{
    Packet *const packet = packet_new(size);

    memset(packet->bytes, byte, size);
    channel->ops->send(channel, packet);
    packet_unref(packet);
}

bool transport_end_receive(const TransportEnd *end, Received *received)
{
    const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;

    while (!end->ops->receive(end->transport, received)) {
        struct pollfd polled = { .fd = end->ops->poll_fd(end->transport), .events = POLLIN };
        if (network_now_ms() >= end_ms)
            return false;
        transport_end_serve_sender();
        poll(&polled, 1, TRANSPORT_TICK_MS);
    }
    return true;
}

bool transport_end_is_all(const Received *received, uint8_t byte)
{
    for (size_t i = 0; i < received->size; i++)
        if (received->bytes[i] != byte)
            return false;
    return true;
}

void transport_end_expect(const TransportEnd *end, uint8_t byte, size_t size)
{
    Received received;

    ck_assert(transport_end_receive(end, &received));
    ck_assert(!received.misshapen);
    ck_assert_uint_eq(received.size, size);
    ck_assert(transport_end_is_all(&received, byte));
    received.ops->release(&received);
}
