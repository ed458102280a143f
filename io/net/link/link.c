/* The two ends of a link. A pure state machine; see link.h.
 *
 * Invariants of the sending end: the kept packets have the numbers acknowledged + 1 ..
 * next_sequence - 1 in order; those before the cursor are out and make up out_bytes; resend_at is
 * set exactly while something is out.
 *
 * How long a packet waits until it is sent again. RFC 6298, "Computing TCP's Retransmission Timer":
 * a smoothed round-trip time SRTT and its deviation RTTVAR, of samples R, and
 *
 *     RTO = SRTT + max(G, 4 RTTVAR)       (G: the clock's granularity, 1 ms)
 *
 * One packet at a time is measured, and none that was sent twice, because nobody knows which of the
 * two an acknowledgement is for (Karn's rule, section 3). If a packet is sent again, the wait
 * doubles. It stays so until the next sample, as the RFC wants, so that a link whose round trip has
 * become longer than the wait is measured again. But once something was acknowledged, it is not
 * more than it is without samples.
 *
 * The least wait is longer than a receiver's delay of acknowledgements, or a packet behind which
 * nothing comes would be sent twice each time. It is twice that delay, because the receiver's
 * thread has to wake up and get a processor.
 *
 * A receiver that misses a packet asks for it again and again. The sender goes back once in such a
 * time: until then the packet may be on its way. */
#include "io/net/link/link.h"

#include <assert.h>

/* Going back starts with this many bytes. */
#define BACK_BYTES ((size_t)64 << 10)

/* The longest wait between two attempts. */
#define LONGEST_WAIT_MS 2000u

/* An acknowledgement waits this long for a packet that can carry it, and for at most this many
 * bytes. */
#define ACK_DELAY_MS 5
#define ACK_PACKETS 32
#define ACK_BYTES ((size_t)256 << 10)

/* The least wait: so many ms, and this part of the longest. */
#define LEAST_WAIT_MS (2u * ACK_DELAY_MS)
#define LEAST_WAIT_PART 20

/* The granularity of the clock. */
#define GRANULARITY_MS 1u

/* A round trip that took longer counts as one of so long. */
#define LONGEST_SAMPLE_MS 60000

unsigned link_least_wait_ms(unsigned resend_ms)
{
    return MIN(resend_ms, MAX(LEAST_WAIT_MS, resend_ms / LEAST_WAIT_PART));
}

void link_sender_init(LinkSender *sender, unsigned resend_ms, unsigned least_ms, size_t limit_bytes)
{
    *sender = (LinkSender){
        .next_sequence = 1,
        .limit_bytes = limit_bytes,
        .budget_bytes = limit_bytes,
        .resend_at = LINK_NEVER,
        .back_again_at = INT64_MIN,
        .resend_ms = resend_ms,
        .least_ms = least_ms,
        .wait_ms = resend_ms,
    };
}

void link_sender_clear(LinkSender *sender)
{
    while (sender->first != NULL) {
        Packet *const packet = sender->first;
        sender->first = packet->next;
        packet_unref(packet);
    }
    sender->last = NULL;
    sender->cursor = NULL;
    sender->kept_bytes = 0;
    sender->kept_packets = 0;
    sender->out_bytes = 0;
    sender->resend_at = LINK_NEVER;
}

void link_sender_revoke(const LinkSender *sender)
{
    for (const Packet *packet = sender->first; packet != NULL; packet = packet->next)
        packet_revoke(packet);
}

void link_sender_add(LinkSender *sender, Packet *packet)
{
    packet->sequence = sender->next_sequence++;
    packet->next = NULL;
    if (sender->last == NULL)
        sender->first = packet;
    else
        sender->last->next = packet;
    sender->last = packet;
    if (sender->cursor == NULL)
        sender->cursor = packet;
    sender->kept_bytes += packet->size;
    sender->kept_packets++;
}

/* Takes the oldest packet out. */
static void drop_first(LinkSender *sender)
{
    Packet *const packet = sender->first;

    if (packet == sender->cursor)
        sender->cursor = packet->next; /* sent before the link went back, and come after all */
    else
        sender->out_bytes -= packet->size;
    sender->first = packet->next;
    if (sender->first == NULL)
        sender->last = NULL;
    sender->kept_bytes -= packet->size;
    sender->kept_packets--;
    packet_unref(packet);
}

/* RFC 6298, sections 2.2 to 2.5. A sample is bounded, so that nothing overflows. */
static void take_sample(LinkSender *sender, int64_t sample_ms)
{
    const unsigned r = (unsigned)CLAMP(sample_ms, 0, LONGEST_SAMPLE_MS);

    if (sender->has_sample) {
        const unsigned srtt = sender->srtt_8 / 8;
        sender->rttvar_4 += (srtt > r ? srtt - r : r - srtt) - sender->rttvar_4 / 4;
        sender->srtt_8 += r - sender->srtt_8 / 8;
    } else {
        sender->rttvar_4 = 2 * r;
        sender->srtt_8 = 8 * r;
        sender->has_sample = true;
    }
    sender->wait_ms = CLAMP(sender->srtt_8 / 8 + MAX(GRANULARITY_MS, sender->rttvar_4),
                            sender->least_ms, sender->resend_ms);
}

bool link_sender_ack(LinkSender *sender, uint64_t ack, int64_t now_ms)
{
    if (ack > sender->highest_sent)
        return false;
    if (ack <= sender->acknowledged)
        return true;
    while (sender->first != NULL && sender->first->sequence <= ack)
        drop_first(sender);
    sender->acknowledged = ack;
    if (sender->timed != 0 && ack >= sender->timed) {
        take_sample(sender, now_ms - sender->timed_at);
        sender->timed = 0;
    } else {
        sender->wait_ms = MIN(sender->wait_ms, sender->resend_ms);
    }
    sender->resend_at = sender->out_bytes > 0 ? now_ms + sender->wait_ms : LINK_NEVER;
    if (sender->back_until != 0) {
        sender->budget_bytes = MIN(sender->limit_bytes, 2 * sender->budget_bytes);
        if (ack >= sender->back_until) {
            sender->back_until = 0;
            sender->budget_bytes = sender->limit_bytes;
        }
    }
    return true;
}

static void go_back(LinkSender *sender, int64_t now_ms)
{
    sender->cursor = sender->first;
    sender->out_bytes = 0;
    sender->timed = 0; /* all that is out may be sent twice */
    sender->back_until = sender->highest_sent;
    sender->budget_bytes = MIN(sender->limit_bytes, BACK_BYTES);
    sender->resend_at = LINK_NEVER; /* set again when the first is out */
    sender->back_again_at = now_ms + MIN(sender->wait_ms, sender->resend_ms / 2);
    sender->back_from = sender->acknowledged;
}

void link_sender_tick(LinkSender *sender, int64_t now_ms)
{
    if (now_ms < sender->resend_at)
        return;
    assert(sender->first != NULL && sender->first != sender->cursor);
    if (packet_is_shared(sender->first)) {
        sender->resend_at = now_ms + sender->wait_ms; /* it has not even left */
        return;
    }
    sender->wait_ms = MIN(2 * sender->wait_ms, MAX(LONGEST_WAIT_MS, sender->resend_ms));
    go_back(sender, now_ms);
}

void link_sender_go_back(LinkSender *sender, int64_t now_ms)
{
    if (sender->out_bytes > 0 &&
        (sender->acknowledged != sender->back_from || now_ms >= sender->back_again_at))
        go_back(sender, now_ms);
}

void link_sender_reset(LinkSender *sender, int64_t now_ms)
{
    sender->wait_ms = sender->resend_ms; /* no answer came because the connection was broken */
    if (sender->out_bytes > 0)
        go_back(sender, now_ms);
}

Packet *link_sender_next(LinkSender *sender, int64_t now_ms, bool *again)
{
    for (;;) {
        Packet *const packet = sender->cursor;

        if (packet == NULL)
            return NULL;
        if (sender->out_bytes > 0 && sender->out_bytes + packet->size > sender->budget_bytes)
            return NULL;
        sender->cursor = packet->next;
        sender->out_bytes += packet->size;
        if (sender->resend_at == LINK_NEVER)
            sender->resend_at = now_ms + sender->wait_ms;
        *again = packet->sequence <= sender->highest_sent;
        if (!*again) {
            sender->highest_sent = packet->sequence;
            if (sender->timed == 0 && sender->back_until == 0) {
                sender->timed = packet->sequence;
                sender->timed_at = now_ms;
            }
            return packet;
        }
        if (!packet_is_shared(packet))
            return packet;
    }
}

LinkVerdict link_receiver_take(LinkReceiver *receiver, uint64_t sequence, size_t size,
                               uint64_t told, int64_t now_ms)
{
    if (sequence <= receiver->received) {
        receiver->ack_now = true;
        return LINK_DUPLICATE;
    }
    if (sequence > receiver->received + 1)
        return LINK_EARLY;
    /* A packet carried an acknowledgement, or all was acknowledged: the count of unacknowledged
     * bytes starts again. */
    if (told == receiver->received || told != receiver->told_seen) {
        receiver->told_seen = told;
        receiver->owed_bytes = 0;
        receiver->ack_due = now_ms + ACK_DELAY_MS;
    }
    receiver->received = sequence;
    receiver->owed_bytes += size;
    return LINK_NEW;
}

int64_t link_receiver_due(LinkReceiver *receiver, uint64_t told, int64_t now_ms)
{
    if (receiver->ack_now) {
        receiver->ack_now = false;
        return now_ms;
    }
    if (told >= receiver->received)
        return LINK_NEVER;
    if (receiver->received - told >= ACK_PACKETS || receiver->owed_bytes >= ACK_BYTES)
        return now_ms;
    return receiver->ack_due;
}
