/* Packets are copied when they are sent, or shared with the sender until they arrive. Each is due
 * at a time that its link decides. A channel finds the transport that is bound to its address when
 * a packet arrives there, so either end may come and go at any time. */
#include "tests/support/sim/sim_network.h"

#include <string.h>

typedef struct SimTransport SimTransport;

struct SimTransport {
    Transport base;
    uint32_t node;
    int fd;
    GQueue inbox; /* of Travelling */
};

typedef struct {
    Channel base;
    uint32_t from;
    char *endpoint;
    int64_t last_ns; /* when the last packet arrives */
    bool greets;
} SimChannel;

/* A packet on its way. */
typedef struct {
    uint64_t number; /* in the order of sending */
    int64_t sent_ns;
    uint32_t from, to;
    uint64_t reset; /* resets of the link when it was sent */
    Packet *shared; /* whose bytes these are; NULL: our own */
    uint8_t *bytes;
    size_t size;
    bool can_be_answered; /* it came on a channel for greetings */
    bool is_answer;
} Travelling;

/* What goes from one node to another. */
typedef struct {
    SimLink link;
    uint64_t resets;
    GQueue held;
    int64_t heard_ns;
    bool is_linked; /* something else than a greeting was read */
    int64_t silence_ns;
    GQueue unread; /* when each packet was sent, of those after the latest one that was read */
    int64_t outage_ns;
    int64_t way_ns;
    uint64_t latest; /* number of the latest sent packet that has arrived */
} Pair;

static struct {
    SimNetworkOptions options;
    Pair *pairs;                           /* n_nodes × n_nodes: from, to */
    GHashTable *bound;                     /* address → SimTransport */
    SimTransport *of_node[SIM_MOST_NODES]; /* that is bound */
    uint32_t n_ports;
    SimNetworkStats stats;
    GPtrArray *travelling;
} net;

static Pair *pair_of(uint32_t from, uint32_t to)
{
    return &net.pairs[(size_t)from * net.options.n_nodes + to];
}

static const SimLink *usual_link(uint32_t from, uint32_t to)
{
    return &net.options.usual[from % SIM_MOST_LINKED][to % SIM_MOST_LINKED];
}

/* Whoever sends a packet notes it, even if it is then lost. */
static void note_sent(uint32_t from, uint32_t to)
{
    g_queue_push_tail(&pair_of(from, to)->unread, GSIZE_TO_POINTER((gsize)sim_now_ns()));
}

static int64_t oldest_unread_ns(uint32_t from, uint32_t to)
{
    return (int64_t)GPOINTER_TO_SIZE(g_queue_peek_head(&pair_of(from, to)->unread));
}

static bool is_any_unread(uint32_t from, uint32_t to)
{
    return !g_queue_is_empty(&pair_of(from, to)->unread);
}

/* What was sent before is late or lost. */
static void note_read(uint32_t from, uint32_t to, int64_t sent_ns)
{
    Pair *const pair = pair_of(from, to);

    while (is_any_unread(from, to) && oldest_unread_ns(from, to) <= sent_ns) {
        const int64_t lasted_ns = sim_now_ns() - oldest_unread_ns(from, to);
        pair->outage_ns = MAX(pair->outage_ns, lasted_ns);
        (void)g_queue_pop_head(&pair->unread);
    }
}

static uint64_t hash_bytes(const uint8_t *bytes, size_t size)
{
    uint64_t hash = size, word;

    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    for (; size > 0; size--)
        hash = (hash ^ *bytes++) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- packets on their way ---- */

static Travelling *travelling_new(uint32_t from, uint32_t to, Packet *packet)
{
    Travelling *const self = g_new0(Travelling, 1);

    self->number = net.stats.n_sent;
    self->sent_ns = sim_now_ns();
    self->from = from;
    self->to = to;
    self->size = packet->size;
    if (net.options.shares) {
        packet_ref(packet);
        self->shared = packet;
    } else {
        self->bytes = g_memdup2(packet->bytes, packet->size);
    }
    return self;
}

static void travelling_free(Travelling *self)
{
    if (self->shared != NULL)
        packet_unref(self->shared);
    g_free(self->bytes);
    g_free(self);
}

static void take_bytes(Travelling *self)
{
    if (self->shared == NULL)
        return;
    self->bytes = g_memdup2(self->shared->bytes, self->size);
    g_clear_pointer(&self->shared, packet_unref);
}

static SimTransport *find_bound(const char *endpoint)
{
    return g_hash_table_lookup(net.bound, endpoint);
}

static void drop(Travelling *self, const char *why)
{
    net.stats.n_lost++;
    SIM_TRACE("packet %" G_GUINT64_FORMAT " of node %u to node %u %s", self->number, self->from,
              self->to, why);
    travelling_free(self);
}

/* A packet is read, or is lost after the transport has held it for so long. */
static void note_way(const Travelling *self)
{
    int64_t *const way_ns = &pair_of(self->from, self->to)->way_ns;
    const int64_t its_ns = sim_now_ns() - self->sent_ns;

    *way_ns = MAX(*way_ns, its_ns);
}

static void arrive(void *data, uint64_t unused)
{
    Travelling *const self = data;
    SimTransport *const transport = net.of_node[self->to];

    (void)unused;
    g_ptr_array_remove_fast(net.travelling, self);
    if (transport == NULL || self->reset != pair_of(self->from, self->to)->resets) {
        note_way(self);
        drop(self, transport == NULL ? "finds nobody" : "is lost with its connection");
        return;
    }
    take_bytes(self);
    uint64_t *const latest = &pair_of(self->from, self->to)->latest;
    net.stats.n_overtaken += self->number < *latest;
    *latest = MAX(*latest, self->number);
    SIM_TRACE("packet %" G_GUINT64_FORMAT " of node %u to node %u arrives", self->number,
              self->from, self->to);
    g_queue_push_tail(&transport->inbox, self);
    sim_fd_set(transport->fd, true);
}

static void travel(SimChannel *channel, Travelling *self)
{
    const SimLink *const link = &pair_of(self->from, self->to)->link;
    int64_t ns = link->least_ns + (int64_t)sim_below((uint64_t)link->spread_ns);

    if (sim_chance(link->slow_1024, 1024))
        ns += (int64_t)sim_below((uint64_t)link->slow_ns);
    if (!link->overtakes) {
        const int64_t now_ns = sim_now_ns();
        ns = MAX(ns, channel->last_ns - now_ns + 1);
        channel->last_ns = now_ns + ns;
    }
    self->reset = pair_of(self->from, self->to)->resets;
    g_ptr_array_add(net.travelling, self);
    sim_after(ns, arrive, self, 0);
}

/* ---- channels ---- */

/* Sends a packet, or holds or loses it. */
static void let_go(SimChannel *channel, Travelling *self)
{
    const SimLink *const link = &pair_of(self->from, self->to)->link;

    if (link->is_cut && net.options.holds_when_cut)
        g_queue_push_tail(&pair_of(self->from, self->to)->held, self);
    else if (link->is_cut || sim_chance(link->loss_1024, 1024))
        drop(self, "is lost");
    else
        travel(channel, self);
}

static void channel_send(Channel *base, Packet *packet)
{
    SimChannel *const channel = (SimChannel *)base;
    const SimTransport *const bound = find_bound(channel->endpoint);

    net.stats.n_sent++;
    net.stats.n_bytes += packet->size;
    const uint64_t hash = hash_bytes(packet->bytes, packet->size);
    sim_mark(hash);
    SIM_TRACE("sends packet %" G_GUINT64_FORMAT " of %zu bytes (%016" G_GINT64_MODIFIER "x) to %s",
              net.stats.n_sent, packet->size, hash, channel->endpoint);
    if (bound == NULL) {
        net.stats.n_lost++;
        return;
    }
    const SimLink *const link = &pair_of(channel->from, bound->node)->link;
    note_sent(channel->from, bound->node);
    Travelling *const first = travelling_new(channel->from, bound->node, packet);
    first->can_be_answered = channel->greets;
    if (link->is_cut && net.options.holds_when_cut) {
        g_queue_push_tail(&pair_of(first->from, first->to)->held, first);
        return;
    }
    if (link->is_cut || sim_chance(link->loss_1024, 1024)) {
        drop(first, "is lost");
        return;
    }
    travel(channel, first);
    if (sim_chance(link->doubling_1024, 1024)) {
        net.stats.n_doubled++;
        travel(channel, travelling_new(channel->from, bound->node, packet));
    }
}

static NetworkPeerState channel_state(Channel *base)
{
    SimChannel *const channel = (SimChannel *)base;
    const SimTransport *const bound = find_bound(channel->endpoint);

    if (bound == NULL)
        return NETWORK_PEER_CONNECTING;
    return pair_of(channel->from, bound->node)->link.is_cut ? NETWORK_PEER_DISCONNECTED
                                                            : NETWORK_PEER_CONNECTED;
}

static void channel_close(Channel *base, unsigned linger_ms)
{
    SimChannel *const channel = (SimChannel *)base;

    (void)linger_ms;
    g_free(channel->endpoint);
    g_free(channel);
}

static const ChannelOps channel_ops = {
    .send = channel_send,
    .state = channel_state,
    .close = channel_close,
};

/* ---- the transport ---- */

static Transport *create(const TransportConfig *config, GError **error)
{
    SimTransport *const self = g_new0(SimTransport, 1);

    (void)config;
    (void)error;
    self->base.ops = &sim_transport;
    self->node = sim_node();
    self->fd = sim_fd_new();
    g_queue_init(&self->inbox);
    return &self->base;
}

static gboolean is_of(gpointer endpoint, gpointer transport, gpointer which)
{
    (void)endpoint;
    return transport == which;
}

/* Packets of a node outlive it, but its memory does not. */
static void keep_what_is_sent_by(uint32_t node)
{
    for (guint i = 0; i < net.travelling->len; i++) {
        Travelling *const each = g_ptr_array_index(net.travelling, i);
        if (each->from == node)
            take_bytes(each);
    }
    for (uint32_t to = 0; to < net.options.n_nodes; to++)
        for (GList *link = pair_of(node, to)->held.head; link != NULL; link = link->next)
            take_bytes(link->data);
}

static void destroy(Transport *transport)
{
    SimTransport *const self = (SimTransport *)transport;

    keep_what_is_sent_by(self->node);
    g_hash_table_foreach_remove(net.bound, is_of, self);
    net.of_node[self->node] = NULL;
    sim_fd_close(self->fd);
    g_queue_clear_full(&self->inbox, (GDestroyNotify)travelling_free);
    g_free(self);
}

static bool bind_address(Transport *transport, const char *endpoint, char **resolved,
                         GError **error)
{
    (void)error;
    if (g_str_has_suffix(endpoint, ":0")) {
        g_autofree char *host = g_strndup(endpoint, strlen(endpoint) - 2);
        *resolved = g_strdup_printf("%s:%u", host, 30000 + net.n_ports++);
    } else {
        *resolved = g_strdup(endpoint);
    }
    g_hash_table_insert(net.bound, g_strdup(*resolved), transport);
    net.of_node[((SimTransport *)transport)->node] = (SimTransport *)transport;
    return true;
}

static int poll_fd(Transport *transport)
{
    return ((SimTransport *)transport)->fd;
}

static void release(Received *received)
{
    Travelling *travelling;

    memcpy(&travelling, received->memory, sizeof travelling);
    travelling_free(travelling);
}

static void move(Received *to, Received *from)
{
    *to = *from;
}

static const char *address(Received *received)
{
    (void)received;
    return "a simulated address";
}

static const ReceivedOps received_ops = {
    .release = release,
    .move = move,
    .address = address,
};

/* Once nodes are linked, a greeting that comes late is no sign of life. */
static void note_heard(const Travelling *read)
{
    Pair *const pair = pair_of(read->from, read->to);
    const bool is_greeting = read->can_be_answered || read->is_answer;
    const int64_t now_ns = sim_now_ns();

    if (is_greeting && pair->is_linked)
        return;
    pair->is_linked |= !is_greeting;
    pair->silence_ns = MAX(pair->silence_ns, now_ns - pair->heard_ns);
    pair->heard_ns = now_ns;
}

static bool receive(Transport *transport, Received *received)
{
    SimTransport *const self = (SimTransport *)transport;
    Travelling *const next = g_queue_pop_head(&self->inbox);

    if (g_queue_is_empty(&self->inbox))
        sim_fd_set(self->fd, false);
    if (next == NULL)
        return false;
    note_heard(next);
    note_way(next);
    note_read(next->from, next->to, next->sent_ns);
    memset(received, 0, sizeof *received);
    received->ops = &received_ops;
    received->bytes = next->bytes;
    received->size = next->size;
    received->is_answer = next->is_answer;
    received->connection = next->can_be_answered ? next->from + 1 : 0;
    received->node = HANDSHAKE_ANY_NODE;
    received->lent = net.options.lends;
    memcpy(received->memory, &next, sizeof next);
    return true;
}

/* A connection's number is that of the node that greets, and one more. */
static void answer(Transport *transport, uint32_t connection, Packet *packet)
{
    SimChannel way = { .from = ((SimTransport *)transport)->node };

    net.stats.n_sent++;
    net.stats.n_bytes += packet->size;
    sim_mark(hash_bytes(packet->bytes, packet->size));
    note_sent(way.from, connection - 1);
    Travelling *const self = travelling_new(way.from, connection - 1, packet);
    self->is_answer = true;
    let_go(&way, self);
}

static Channel *connect_to(Transport *transport, const char *endpoint, const ChannelTarget *target,
                           GError **error)
{
    SimChannel *const channel = g_new0(SimChannel, 1);

    (void)error;
    channel->base.ops = &channel_ops;
    channel->from = ((SimTransport *)transport)->node;
    channel->endpoint = g_strdup(endpoint);
    channel->greets = target != NULL && target->greets;
    return &channel->base;
}

const TransportOps sim_transport = {
    .name = "sim",
    .create = create,
    .destroy = destroy,
    .bind = bind_address,
    .poll_fd = poll_fd,
    .receive = receive,
    .connect = connect_to,
    .answer = answer,
};

/* ---- what a test does to it ---- */

void sim_network_begin(const SimNetworkOptions *options)
{
    memset(&net, 0, sizeof net);
    net.options = *options;
    net.pairs = g_new0(Pair, (size_t)options->n_nodes * options->n_nodes);
    net.bound = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    net.travelling = g_ptr_array_new();
    for (uint32_t from = 0; from < net.options.n_nodes; from++)
        for (uint32_t to = 0; to < net.options.n_nodes; to++)
            *pair_of(from, to) = (Pair){ .link = *usual_link(from, to),
                                         .held = G_QUEUE_INIT,
                                         .unread = G_QUEUE_INIT,
                                         .heard_ns = sim_now_ns() };
}

void sim_network_end(void)
{
    for (uint32_t from = 0; from < net.options.n_nodes; from++)
        for (uint32_t to = 0; to < net.options.n_nodes; to++) {
            g_queue_clear_full(&pair_of(from, to)->held, (GDestroyNotify)travelling_free);
            g_queue_clear(&pair_of(from, to)->unread);
        }
    for (guint i = 0; i < net.travelling->len; i++)
        travelling_free(g_ptr_array_index(net.travelling, i));
    g_ptr_array_free(net.travelling, TRUE);
    g_hash_table_unref(net.bound);
    g_free(net.pairs);
}

SimLink *sim_network_link(uint32_t from, uint32_t to)
{
    return &pair_of(from, to)->link;
}

void sim_network_join(uint32_t from, uint32_t to)
{
    Travelling *each;
    int64_t ns = usual_link(from, to)->least_ns;

    pair_of(from, to)->link.is_cut = false;
    while ((each = g_queue_pop_head(&pair_of(from, to)->held)) != NULL) {
        each->reset = pair_of(from, to)->resets;
        g_ptr_array_add(net.travelling, each);
        sim_after(ns++, arrive, each, 0);
    }
}

void sim_network_reset(uint32_t from, uint32_t to)
{
    Travelling *each;

    pair_of(from, to)->resets++;
    while ((each = g_queue_pop_head(&pair_of(from, to)->held)) != NULL)
        drop(each, "is lost with its connection");
}

int64_t sim_network_longest_silence_ns(uint32_t from, uint32_t to)
{
    const Pair *const pair = pair_of(from, to);
    const int64_t now = sim_now_ns() - pair->heard_ns;

    return MAX(pair->silence_ns, now);
}

int64_t sim_network_longest_outage_ns(uint32_t from, uint32_t to)
{
    const Pair *const pair = pair_of(from, to);
    const int64_t now = is_any_unread(from, to) ? sim_now_ns() - oldest_unread_ns(from, to) : 0;

    return MAX(pair->outage_ns, now);
}

static int64_t longest_way_ns(uint32_t from, uint32_t to)
{
    int64_t longest_ns = pair_of(from, to)->way_ns;

    for (guint i = 0; i < net.travelling->len; i++) {
        const Travelling *const each = g_ptr_array_index(net.travelling, i);
        const int64_t its_ns = sim_now_ns() - each->sent_ns;

        if (each->from == from && each->to == to)
            longest_ns = MAX(longest_ns, its_ns);
    }
    return longest_ns;
}

int64_t sim_network_longest_round_trip_ns(uint32_t a, uint32_t b)
{
    return longest_way_ns(a, b) + longest_way_ns(b, a);
}

void sim_network_stats(SimNetworkStats *stats)
{
    *stats = net.stats;
}
