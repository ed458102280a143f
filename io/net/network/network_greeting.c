/* Greetings and their answers: what processes say to each other before they are joined.
 *
 * Threads: any; network_send_answers the I/O thread. */
#include <assert.h>
#include <string.h>

#include <rubato/error.h>

#include "io/net/network/network_private.h"

/* Channels kept for greetings, beyond one for each node. */
#define SPARE_GREETED 16

/* Answers that may wait for the I/O thread, beyond two for each node: a process that gets none asks
 * again. */
#define SPARE_ANSWERS 64

void answer_free(gpointer data)
{
    packet_unref(((Answer *)data)->packet);
    g_free(data);
}

/* The channel for greetings to an endpoint, made when first asked for. Called with the lock
 * held. */
static Channel *greeting_channel(Network *network, const char *endpoint, GError **error)
{
    /* Any node: with another cluster file its number may be another one. */
    const ChannelTarget target = { .node = HANDSHAKE_ANY_NODE, .greets = true };
    Channel *channel = g_hash_table_lookup(network->greeted, endpoint);

    if (channel != NULL)
        return channel;
    if (g_hash_table_size(network->greeted) >= network->n_nodes + SPARE_GREETED)
        g_hash_table_remove_all(network->greeted);
    Transport *const transport = network_find_transport(network, endpoint, error);
    if (transport == NULL)
        return NULL;
    if (transport->ops->answer == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s is no address for greetings: these go over TCP", endpoint);
        return NULL;
    }
    channel = network_connect(network, transport, endpoint, &target, error);
    if (channel != NULL)
        g_hash_table_insert(network->greeted, g_strdup(endpoint), channel);
    return channel;
}

/* A greeting as a packet. (transfer full) */
static Packet *make_greeting(GVariant *body, GError **error)
{
    g_autoptr(GVariant) boxed = g_variant_ref_sink(g_variant_new_variant(body));
    const size_t size = g_variant_get_size(boxed);

    if (size > WIRE_MAX_GREETING_BYTES) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a greeting of %zu bytes is too large: the most is %zu", size,
                    WIRE_MAX_GREETING_BYTES);
        return NULL;
    }
    Packet *const packet = packet_new(WIRE_PREFIX_BYTES + size);
    if (packet == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for a greeting of %zu bytes", size);
        return NULL;
    }
    wire_write_greeting_prefix(packet->bytes, WIRE_VERSION, (uint32_t)size);
    g_variant_store(boxed, packet->bytes + WIRE_PREFIX_BYTES);
    return packet;
}

bool network_greet(Network *network, const char *endpoint, GVariant *body, GError **error)
{
    g_autofree char *first = g_strndup(endpoint, strcspn(endpoint, ","));
    Packet *const packet = make_greeting(body, error);

    if (packet == NULL)
        return false;
    pthread_mutex_lock(&network->greeting_lock);
    Channel *const channel = greeting_channel(network, first, error);
    if (channel != NULL) {
        channel->ops->send(channel, packet);
        count(&network->n_greetings_sent, 1);
    }
    pthread_mutex_unlock(&network->greeting_lock);
    packet_unref(packet);
    return channel != NULL;
}

NetworkPeerState network_greeting_state(Network *network, const char *endpoint)
{
    g_autofree char *first = g_strndup(endpoint, strcspn(endpoint, ","));

    pthread_mutex_lock(&network->greeting_lock);
    Channel *const channel = g_hash_table_lookup(network->greeted, first);
    const NetworkPeerState state =
        channel != NULL ? channel->ops->state(channel) : NETWORK_PEER_UNKNOWN;
    pthread_mutex_unlock(&network->greeting_lock);
    return state;
}

/* An asker is the transport's place, from 1 on, and the connection's number. */
uint64_t network_asker(const Network *network, const Transport *transport, uint32_t connection)
{
    uint64_t i = 0;

    while (network->transports[i] != transport)
        i++;
    return connection == 0 ? 0 : (i + 1) << 32 | connection;
}

bool network_answer(Network *network, uint64_t asker, GVariant *body, GError **error)
{
    const uint64_t place = asker >> 32;
    Packet *const packet = make_greeting(body, error);

    if (packet == NULL)
        return false;
    assert(place >= 1 && place <= network->n_transports);
    pthread_mutex_lock(&network->greeting_lock);
    if (network->answers.length < 2 * (guint)network->n_nodes + SPARE_ANSWERS) {
        Answer *const answer = g_new(Answer, 1);
        *answer = (Answer){ network->transports[place - 1], (uint32_t)asker, packet };
        packet_ref(packet);
        g_queue_push_tail(&network->answers, answer);
        count(&network->n_greetings_sent, 1);
    }
    pthread_mutex_unlock(&network->greeting_lock);
    packet_unref(packet);
    /* Relaxed: the lock orders the queue, and the I/O thread is woken afterwards. */
    atomic_store_explicit(&network->has_answers, true, memory_order_relaxed);
    network_wake_io_thread(network);
    return true;
}

void network_send_answers(Network *network)
{
    Answer *answer;

    pthread_mutex_lock(&network->greeting_lock);
    while ((answer = g_queue_pop_head(&network->answers)) != NULL) {
        answer->transport->ops->answer(answer->transport, answer->connection, answer->packet);
        answer_free(answer);
    }
    pthread_mutex_unlock(&network->greeting_lock);
}
