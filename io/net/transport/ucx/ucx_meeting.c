/* How two nodes meet: over a connection of the TCP transport, on which both prove who they are, and
 * which ends when one of them does. Who connects asks, and the other answers by what it is to be
 * reached in UCX. Both draw a nonce, from which, with the secret, the key of the packets follows.
 * If they are to be encrypted, so is this.
 *
 *   asks      its number of the channel, the turn, whether it has AES, its nonce
 *   answers   that number, the turn, its number of the link, the cipher, its nonce, and the address
 *             of its worker
 *
 * A node that is slow to answer is asked again, by the same nonce in the same turn: whichever
 * answer comes first has the right key, and the links of the others are never used. A new turn
 * begins once an answer was taken: what comes late for an earlier turn is dropped, for its key is
 * another one.
 *
 * Strangers reach UCX's own ports, but what they send there is dropped unless its tag is right.
 *
 * Threads: see transport_ucx.h. */
#include <string.h>

#include "io/net/link/wire.h"
#include "io/net/monotonic.h"
#include "io/net/secure/agreed_key.h"
#include "io/net/transport/ucx/transport_ucx.h"

#define NONCE_BYTES AGREED_KEY_BYTES
#define ASK_BYTES (4 + 4 + 1 + NONCE_BYTES)
#define ANSWER_BYTES (4 + 4 + 4 + 1 + NONCE_BYTES) /* and the address */

/* The links beside four for each node. A node that has connected again has a new one; the one that
 * was not used for the longest time goes. */
#define SPARE_LINKS 256

void ucx_link_free(UcxLink *link)
{
    seal_clear(&link->seal);
    g_free(link->address);
    g_free(link);
}

static void make_seal(const UcxTransport *self, SealCipher cipher, const uint8_t *asked,
                      const uint8_t *answered, Seal *seal)
{
    const TransportConfig *const config = &self->config;
    const bool has_mac = config->authenticate || config->secret != NULL;
    const Protection protection = config->encrypt ? PROTECTION_ENCRYPT
                                  : has_mac       ? PROTECTION_MAC
                                                  : PROTECTION_CHECKSUM;
    uint8_t key[AGREED_KEY_BYTES];

    agreed_key_make(config->secret, "rubato packets over ucx", asked, answered, key);
    seal_init(seal, protection, cipher, key);
    run_secret_wipe(key, sizeof key);
}

Packet *ucx_meeting_ask(UcxChannel *channel)
{
    Packet *const packet = packet_new(ASK_BYTES);

    if (packet == NULL)
        return NULL;
    if (!channel->is_asked) {
        agreed_key_draw(channel->nonce);
        channel->turn++;
        channel->is_asked = true;
    }
    wire_store_u32(packet->bytes, channel->number);
    wire_store_u32(packet->bytes + 4, channel->turn);
    packet->bytes[8] = seal_has_aes();
    memcpy(packet->bytes + 9, channel->nonce, NONCE_BYTES);
    return packet;
}

/* ---- who is asked ---- */

static void drop_oldest(UcxTransport *self)
{
    GHashTableIter each;
    gpointer data;
    UcxLink *oldest = NULL;

    g_hash_table_iter_init(&each, self->links);
    while (g_hash_table_iter_next(&each, NULL, &data))
        if (oldest == NULL || ((UcxLink *)data)->used_ms < oldest->used_ms)
            oldest = data;
    g_hash_table_remove(self->links, GUINT_TO_POINTER(oldest->number));
}

/* A link for who has asked. The lock is held. (transfer none) */
static UcxLink *add_link(UcxTransport *self, Received *received)
{
    UcxLink *const link = g_new0(UcxLink, 1);

    if (g_hash_table_size(self->links) >= 4 * self->config.n_nodes + SPARE_LINKS)
        drop_oldest(self);
    do
        link->number = ++self->n_ever;
    while (g_hash_table_contains(self->links, GUINT_TO_POINTER(link->number)));
    link->node = received->node;
    link->incarnation = received->incarnation;
    link->address = g_strdup(received->ops->address(received));
    link->used_ms = monotonic_ms();
    g_hash_table_insert(self->links, GUINT_TO_POINTER(link->number), link);
    return link;
}

static void answer(UcxTransport *self, Received *received)
{
    const bool has_aes = received->bytes[8] != 0 && seal_has_aes();
    const SealCipher cipher = has_aes ? SEAL_AES256_GCM : SEAL_XCHACHA20_POLY1305;
    Packet *const packet = packet_new(ANSWER_BYTES + self->address_bytes);
    uint8_t *const to = packet != NULL ? packet->bytes : NULL;

    if (packet == NULL)
        return; /* it asks again */
    memcpy(to, received->bytes, 8);
    to[12] = (uint8_t)cipher;
    agreed_key_draw(to + 13);
    memcpy(to + ANSWER_BYTES, self->address, self->address_bytes);
    pthread_mutex_lock(&self->lock);
    UcxLink *const link = add_link(self, received);
    make_seal(self, cipher, received->bytes + 9, to + 13, &link->seal);
    wire_store_u32(to + 8, link->number);
    pthread_mutex_unlock(&self->lock);
    self->meeting->ops->answer(self->meeting, received->connection, packet);
    packet_unref(packet);
}

/* ---- who has asked ---- */

static void take_answer(UcxTransport *self, const Received *received)
{
    const uint8_t *const from = received->bytes;
    Seal seal;

    pthread_mutex_lock(&self->lock);
    UcxChannel *const channel =
        g_hash_table_lookup(self->channels, GUINT_TO_POINTER(wire_load_u32(from)));
    if (channel != NULL && channel->is_asked && channel->turn == wire_load_u32(from + 4) &&
        from[12] <= SEAL_AES256_GCM && (from[12] != SEAL_AES256_GCM || seal_has_aes())) {
        /* UCX reads the address as a struct */
        g_autofree uint8_t *address = g_memdup2(from + ANSWER_BYTES, received->size - ANSWER_BYTES);

        make_seal(self, (SealCipher)from[12], channel->nonce, from + 13, &seal);
        ucx_channel_met(channel, (const ucp_address_t *)address, wire_load_u32(from + 8), &seal);
        seal_clear(&seal);
    }
    ucx_worker_leave(self);
}

void ucx_meeting_take(UcxTransport *self, Received *received)
{
    if (received->misshapen)
        return;
    if (received->is_answer && received->size > ANSWER_BYTES)
        take_answer(self, received);
    else if (!received->is_answer && received->size == ASK_BYTES && received->connection != 0)
        answer(self, received);
}
