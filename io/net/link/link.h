/* The two ends of a link, as pure state machines: no socket, no thread, no wall clock.
 *
 * The sending end numbers packets 1, 2, 3, … and keeps each until it is acknowledged. If no
 * acknowledgement comes, it goes back and sends again from the oldest (go-back-N). How long it
 * waits for one follows the round-trip time that it measures (RFC 6298; see link.c). The receiving
 * end takes packets in order, drops repeated packets and those that come too early, and says when
 * an acknowledgement must be sent.
 *
 * Over TCP packets get lost only with a connection, so losses are rare and come in bursts. Going
 * back starts with few bytes and doubles them with each acknowledgement. A packet that the
 * transport still holds was not lost and is not sent twice, so a stalled peer does not multiply the
 * bytes that wait for it.
 *
 * Threads: one at a time for each end. Times are monotonic ms, passed in. */
#ifndef RUBATO_IO_NET_LINK_LINK_H
#define RUBATO_IO_NET_LINK_LINK_H

#include "io/net/link/packet.h"

#define LINK_NEVER INT64_MAX

typedef struct {
    Packet *first, *last; /* kept packets: not acknowledged, or not yet sent */
    Packet *cursor;       /* the next to send; NULL: all are sent */
    uint64_t next_sequence;
    uint64_t highest_sent;
    uint64_t acknowledged;
    size_t kept_bytes, kept_packets;
    size_t out_bytes;      /* of the packets before the cursor */
    size_t limit_bytes;    /* the most bytes that are out, beyond one packet */
    size_t budget_bytes;   /* the same while going back */
    uint64_t back_until;   /* going back ends when this packet is acknowledged; 0: not going back */
    int64_t resend_at;     /* LINK_NEVER: nothing is out */
    int64_t back_again_at; /* before this time, a request to go back to where it went is ignored: */
    uint64_t back_from;    /* `acknowledged` then */
    uint64_t timed;        /* a packet that was sent once, whose round trip is measured; 0: none */
    int64_t timed_at;      /* when it was sent */
    bool has_sample;       /* of a round trip */
    unsigned srtt_8;       /* RFC 6298's SRTT, in ms / 8 */
    unsigned rttvar_4;     /* its RTTVAR, in ms / 4 */
    unsigned resend_ms, least_ms;
    unsigned wait_ms; /* the RTO; longer while no acknowledgement comes */
} LinkSender;

/* resend_ms: how long a packet waits for its acknowledgement until a round trip was measured. Later
 * at most so long, unless it was sent again in vain, and at least least_ms. */
void link_sender_init(LinkSender *sender, unsigned resend_ms, unsigned least_ms,
                      size_t limit_bytes);

/* The least wait that is sensible where packets get lost. */
unsigned link_least_wait_ms(unsigned resend_ms);

/* Drops all packets. */
void link_sender_clear(LinkSender *sender);

/* packet_revoke for each packet that is kept. */
void link_sender_revoke(const LinkSender *sender);

/* Numbers a packet and puts it behind the others. (transfer full) */
void link_sender_add(LinkSender *sender, Packet *packet);

/* Every packet up to `ack` has arrived. Returns false and does nothing if `ack` was never sent. */
bool link_sender_ack(LinkSender *sender, uint64_t ack, int64_t now_ms);

/* Goes back to the oldest packet if it is time, or because the receiver has asked for it. Who has
 * asked asks again if the packet is lost once more, but may also have done so before it came. Once
 * it has taken a packet since, what it asks for is another one, which is lost as well. */
void link_sender_tick(LinkSender *sender, int64_t now_ms);
void link_sender_go_back(LinkSender *sender, int64_t now_ms);

/* The connection was made again: packets that are out may be lost, so they are sent again at
 * once. */
void link_sender_reset(LinkSender *sender, int64_t now_ms);

/* The next packet to send; NULL: none now. *again: it was sent before. (transfer none) */
Packet *link_sender_next(LinkSender *sender, int64_t now_ms, bool *again);

typedef enum {
    LINK_NEW,       /* the next one */
    LINK_DUPLICATE, /* had come before */
    LINK_EARLY,     /* one before it is missing */
} LinkVerdict;

typedef struct {
    uint64_t received;  /* every packet up to this one has come */
    uint64_t told_seen; /* `told` when the debt began */
    size_t owed_bytes;  /* what has come since then */
    int64_t ack_due;
    bool ack_now; /* the sender must be behind the times */
} LinkReceiver;

/* Says what to do with the packet of this number, and accepts it if it is the next one. `told` is
 * the highest acknowledgement sent so far. */
LinkVerdict link_receiver_take(LinkReceiver *receiver, uint64_t sequence, size_t size,
                               uint64_t told, int64_t now_ms);

/* When an acknowledgement must be sent, if no packet carries it before: LINK_NEVER if none is due;
 * now_ms or less: at once. */
int64_t link_receiver_due(LinkReceiver *receiver, uint64_t told, int64_t now_ms);

#endif
