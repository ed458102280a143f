/* The network: no frame and no pending flag is forgotten, one thread at a time has a channel, and a
 * thread that waits for room, for an answer or for the I/O thread is woken.
 *
 * The transport is a list: it records what a channel sends, and may acknowledge it by a packet that
 * comes back. The list has a mutex, so it orders memory as a socket would. */
#include <rubato/error.h>

#include "io/net/network/network_private.h"
#include "tests/weak/cases.h"

enum {
    RUN = 5,
    INCARNATION = 7,
    PEER = 1,
    WORKERS = 3,
    MOST_PACKETS = 32,
    SMALL_WINDOW = 256,
    LARGE_WINDOW = 1 << 20
};

static Network *network;
static Transport transport;
static Channel channel;

/* What comes: the headers of packets, each with so many short messages. */
static struct {
    pthread_mutex_t lock;
    PacketHeader headers[MOST_PACKETS];
    unsigned n, n_taken;
    uint8_t bytes[WIRE_PACKET_HEADER_BYTES + 2 * WIRE_MESSAGE_HEADER_BYTES];
    int fd;
} line;

/* What was sent; the holder of the peer's token only, so the members are plain. */
static struct {
    uint64_t n_messages[WORKERS];
    uint64_t charge;
    PacketHeader last;
    bool is_closed;
} sent;

static bool acknowledges;                /* the peer does, at once */
static _Atomic uint32_t n_sent;          /* messages */
static _Atomic uint32_t n_consumed_told; /* what the peer was told */

/* ---- the transport ---- */

static void come(PacketHeader header)
{
    const uint64_t one = 1;

    header.sender = PEER;
    header.run_id = RUN;
    header.incarnation = INCARNATION;
    pthread_mutex_lock(&line.lock);
    weak_expect(line.n < MOST_PACKETS);
    line.headers[line.n++] = header;
    weak_expect(write(line.fd, &one, sizeof one) == sizeof one);
    pthread_mutex_unlock(&line.lock);
}

/* As the first packet of the link. */
static void come_with_messages(uint32_t n)
{
    const WireHeader header = { .kind = MESSAGE_REPLY, .reply = { .request_id = 1 } };

    for (uint32_t i = 0; i < n; i++)
        wire_write_message_header(
            line.bytes + WIRE_PACKET_HEADER_BYTES + i * WIRE_MESSAGE_HEADER_BYTES, &header);
    come((PacketHeader){
        .sequence = 1, .n_messages = n, .payload_bytes = n * WIRE_MESSAGE_HEADER_BYTES });
}

static void note_messages(const Packet *packet)
{
    WireHeader header;
    size_t at = WIRE_PACKET_HEADER_BYTES;

    for (uint32_t i = 0; i < packet->n_messages; i++) {
        weak_expect(wire_read_message(packet->bytes + at, packet->size - at, &header) == NULL);
        weak_expect(header.request.id ==
                    sent.n_messages[header.request.worker]++); /* their order */
        at += wire_message_bytes(&header);
        if (wire_is_charged(header.kind))
            sent.charge += wire_message_bytes(&header);
    }
    if (packet->n_messages > 0) {
        atomic_fetch_add_explicit(&n_sent, packet->n_messages, memory_order_relaxed);
        futex_wake(&n_sent, 1);
    }
}

static void send_packet(Channel *unused, Packet *packet)
{
    (void)unused;
    weak_expect(!sent.is_closed);
    weak_expect(wire_read_packet_header(packet->bytes, packet->size, &sent.last) == NULL);
    note_messages(packet);
    atomic_store_explicit(&n_consumed_told, (uint32_t)sent.last.consumed, memory_order_relaxed);
    if (acknowledges && sent.last.sequence > 0)
        come((PacketHeader){ .ack = sent.last.sequence, .consumed = sent.charge });
}

static NetworkPeerState channel_state(Channel *unused)
{
    (void)unused;
    return NETWORK_PEER_CONNECTED;
}

/* When the I/O thread has ended nothing is kept any more, where the peer acknowledges. */
static void close_channel(Channel *unused, unsigned linger_ms)
{
    (void)unused;
    (void)linger_ms;
    weak_expect(!acknowledges || network_peer(network, PEER)->sender.first == NULL);
    sent.is_closed = true;
}

static const ChannelOps channel_ops = { .send = send_packet,
                                        .state = channel_state,
                                        .close = close_channel };

static void release_nothing(Received *received)
{
    (void)received;
}

static const char *find_address(Received *received)
{
    (void)received;
    return "the peer";
}

static const ReceivedOps received_ops = { .release = release_nothing, .address = find_address };

static bool receive(Transport *unused, Received *received)
{
    bool is_some;
    uint64_t n;

    (void)unused;
    pthread_mutex_lock(&line.lock);
    is_some = line.n_taken < line.n;
    if (is_some) {
        const PacketHeader *const header = &line.headers[line.n_taken++];

        wire_write_packet_header(line.bytes, header);
        *received = (Received){ .ops = &received_ops,
                                .bytes = line.bytes,
                                .size = WIRE_PACKET_HEADER_BYTES + header->payload_bytes,
                                .node = HANDSHAKE_ANY_NODE,
                                .lent = true };
    } else {
        (void)!read(line.fd, &n, sizeof n);
    }
    pthread_mutex_unlock(&line.lock);
    return is_some;
}

static int poll_fd(Transport *unused)
{
    (void)unused;
    return line.fd;
}

static Transport *create(const TransportConfig *config, GError **error);

static void destroy(Transport *unused)
{
    (void)unused;
}

static Channel *connect_channel(Transport *unused, const char *endpoint,
                                const ChannelTarget *target, GError **error)
{
    (void)target;
    (void)unused;
    (void)endpoint;
    (void)error;
    return &channel;
}

static const TransportOps transport_ops = { .name = "list",
                                            .create = create,
                                            .destroy = destroy,
                                            .poll_fd = poll_fd,
                                            .receive = receive,
                                            .connect = connect_channel };

static Transport *create(const TransportConfig *config, GError **error)
{
    (void)config;
    (void)error;
    transport.ops = &transport_ops;
    channel.ops = &channel_ops;
    return &transport;
}

/* ---- the handler ---- */

static uint64_t asked_for; /* plain: written before network_wake, read by the tick that it causes */
static _Atomic uint32_t n_ticks;
static _Atomic bool is_stopping;
static Incoming *taken[2]; /* what came, where it is kept */
static unsigned n_taken;
static bool keeps;
static unsigned tick_ms; /* 0: the usual time */

static void take_message(void *user, Incoming *incoming)
{
    (void)user;
    if (keeps)
        taken[n_taken++] = incoming;
    else
        incoming_free(incoming);
}

static void take_greeting(void *user, uint16_t version, GVariant *body,
                          const GreetingSource *source)
{
    (void)user;
    (void)version;
    (void)body;
    (void)source;
}

static void tick(void *user, int64_t now_ms)
{
    (void)user;
    (void)now_ms;
}

/* The first tick comes by itself; time stands still, so there is no other that nobody asked for. */
static void tick_and_look(void *user, int64_t now_ms)
{
    (void)user;
    (void)now_ms;
    if (atomic_fetch_add_explicit(&n_ticks, 1, memory_order_relaxed) > 0)
        weak_expect(asked_for == 1);
    futex_wake(&n_ticks, 1);
}

/* Makes the I/O thread check whether all is done while others are still at work. */
static void tick_and_wait(void *user, int64_t now_ms)
{
    (void)user;
    (void)now_ms;
    while (!atomic_load_explicit(&is_stopping, memory_order_relaxed))
        weak_yield();
}

/* ---- setting up ---- */

static void begin_with(size_t window_bytes, void (*ticks)(void *user, int64_t now_ms))
{
    const NetworkConfig config = { .transport_ops = &transport_ops,
                                   .n_nodes = 2,
                                   .window_bytes = window_bytes,
                                   .stop_ms = 1000000,
                                   .tick_ms = tick_ms,
                                   .incarnation = 1 };
    const NetworkHandler handler = { .receive = take_message,
                                     .greeted = take_greeting,
                                     .tick = ticks };

    memset(&sent, 0, sizeof sent);
    memset(&line, 0, sizeof line);
    line.fd = eventfd(0, EFD_NONBLOCK);
    acknowledges = false;
    asked_for = 0;
    n_taken = 0;
    keeps = false;
    atomic_init(&n_sent, 0);
    atomic_init(&n_ticks, 0);
    atomic_init(&is_stopping, false);
    atomic_init(&n_consumed_told, 0);
    tick_ms = 0; /* of the next case */
    network = network_new(&config, &handler, NULL, NULL);
    weak_expect(network != NULL);
}

static void join(void)
{
    const NetworkPeer peers[] = { { 0 }, { .endpoint = "list://", .incarnation = INCARNATION } };

    weak_expect(network_join(network, RUN, peers, NULL));
}

static void begin(void)
{
    begin_with(LARGE_WINDOW, tick);
    join();
}

static void end(void)
{
    network_free(network);
}

static Frame *make(uint32_t worker, uint64_t number)
{
    const WireHeader header = { .kind = MESSAGE_ADD,
                                .keys = WIRE_KEYS_LIST,
                                .key_bytes = 8,
                                .value_bytes = 64,
                                .request = { .id = number, .worker = worker, .n_keys = 1 } };

    return network_new_frame(network, &header);
}

static void wait_until_sent(uint32_t n)
{
    uint32_t now;

    while ((now = atomic_load_explicit(&n_sent, memory_order_relaxed)) < n)
        futex_wait(&n_sent, now, -1);
}

/* ---- queue and token ---- */

static void *send_two(void *worker)
{
    network_send(network, PEER, make((uint32_t)(uintptr_t)worker, 0));
    network_send(network, PEER, make((uint32_t)(uintptr_t)worker, 1));
    return NULL;
}

static void *send_one(void *worker)
{
    network_send(network, PEER, make((uint32_t)(uintptr_t)worker, 0));
    return NULL;
}

/* When both have returned, everything is sent, without the help of another thread. */
static void two_senders(void)
{
    begin();
    const unsigned other = weak_start("sender", send_one, (void *)1);
    send_two((void *)0);
    weak_join(other);
    weak_expect(atomic_load_explicit(&n_sent, memory_order_relaxed) == 3);
    end();
}

static void three_senders(void)
{
    begin();
    const unsigned one = weak_start("sender 1", send_one, (void *)1);
    const unsigned two = weak_start("sender 2", send_one, (void *)2);
    send_one((void *)0);
    weak_join(one);
    weak_join(two);
    weak_expect(atomic_load_explicit(&n_sent, memory_order_relaxed) == 3);
    end();
}

/* ---- pending ---- */

static void *consume(void *unused)
{
    Peer *const peer = network_peer(network, PEER);

    (void)unused;
    atomic_fetch_add_explicit(&peer->consumed, 1, memory_order_relaxed);
    peer_set_pending(peer, PENDING_ACK);
    peer_flush(peer);
    return NULL;
}

/* What was done before a flag is set is told when the flag is served. */
static void pending_work(void)
{
    begin();
    const unsigned other = weak_start("consumer", consume, NULL);
    consume(NULL);
    weak_join(other);
    weak_expect(atomic_load_explicit(&n_consumed_told, memory_order_relaxed) == 2);
    end();
}

static void a_sender_and_pending_work(void)
{
    begin();
    const unsigned other = weak_start("consumer", consume, NULL);
    send_one((void *)0);
    weak_join(other);
    weak_expect(atomic_load_explicit(&n_sent, memory_order_relaxed) == 1);
    weak_expect(atomic_load_explicit(&n_consumed_told, memory_order_relaxed) == 1);
    end();
}

/* ---- what is left to the I/O thread ---- */

static void *send_soon(void *worker)
{
    network_push(network, PEER, make((uint32_t)(uintptr_t)worker, 0));
    network_flush_soon(network, PEER);
    return NULL;
}

static void start(void)
{
    weak_expect(network_start(network, NULL));
}

static void flushed_soon(void)
{
    begin();
    acknowledges = true;
    start();
    const unsigned other = weak_start("sender", send_soon, (void *)1);
    send_soon((void *)0);
    wait_until_sent(2);
    weak_join(other);
    weak_let_time_pass();
    end();
}

static void *send_later(void *worker)
{
    network_push(network, PEER, make((uint32_t)(uintptr_t)worker, 0));
    network_flush_later(network, PEER);
    return NULL;
}

/* ---- waking the I/O thread ---- */

static void wait_until_ticked(uint32_t n)
{
    uint32_t now;

    while ((now = atomic_load_explicit(&n_ticks, memory_order_relaxed)) < n)
        futex_wait(&n_ticks, now, -1);
}

static void woken(void)
{
    begin_with(LARGE_WINDOW, tick_and_look);
    start();
    wait_until_ticked(1);
    asked_for = 1;
    network_wake(network);
    wait_until_ticked(2);
    end();
}

/* ---- what is left for later ---- */

/* Sends when the time of a guard is over: the I/O thread ends it meanwhile. */
static void *send_at_its_end(void *worker)
{
    (void)poll(NULL, 0, 1);
    weak_stop_time();
    return send_later(worker);
}

/* Either these threads send, or the I/O thread does, which has no tick any more. */
static void flushed_later(void)
{
    tick_ms = INT32_MAX;
    begin();
    acknowledges = true;
    atomic_init(&network->guard.stands, true);
    weak_let_time_pass();
    start();
    const unsigned other = weak_start("sender", send_at_its_end, (void *)1);
    send_at_its_end((void *)0);
    wait_until_sent(2);
    weak_join(other);
    weak_let_time_pass();
    end();
}

/* ---- joining ---- */

static void *ask_for_peer(void *unused)
{
    (void)unused;
    while (network_peer_state(network, PEER) == NETWORK_PEER_UNKNOWN)
        weak_yield();
    weak_expect(network_peer_transport(network, PEER) == transport_ops.name);
    return NULL;
}

static void joined(void)
{
    begin_with(LARGE_WINDOW, tick);
    const unsigned other = weak_start("other", ask_for_peer, NULL);
    join();
    weak_join(other);
    end();
}

/* As the I/O thread, which runs before the nodes are joined. */
static void *look_for_news(void *unused)
{
    Spinner spinner;
    bool seen = false;

    (void)unused;
    spinner_init(&spinner);
    for (int i = 0; i < 2; i++) {
        (void)network_spin(network, &spinner, NULL, &seen);
        weak_yield();
    }
    return NULL;
}

static void joined_beside_one_who_looks(void)
{
    begin_with(LARGE_WINDOW, tick);
    const unsigned other = weak_start("other", look_for_news, NULL);
    join();
    weak_join(other);
    end();
}

static void *send_to_whoever_is_there(void *unused)
{
    (void)unused;
    while (network_peer_state(network, PEER) == NETWORK_PEER_FORGOTTEN)
        weak_yield();
    network_send(network, PEER, make(0, 0)); /* to the other process: nothing of it is dropped */
    return NULL;
}

static void replaced(void)
{
    const NetworkPeer other_process = { .endpoint = "list://", .incarnation = INCARNATION + 1 };

    begin();
    network_forget(network, PEER);
    sent.is_closed = false;
    const unsigned other = weak_start("other", send_to_whoever_is_there, NULL);
    weak_expect(network_replace(network, PEER, &other_process, NULL));
    weak_join(other);
    weak_expect(sent.n_messages[0] == 1);
    end();
}

/* ---- room ---- */

static void receive_once(void)
{
    int64_t next;

    pthread_mutex_lock(&network->receiving);
    (void)network_receive(network, REACH_ALL, 64, /* serve_all= */ false, network_now_ms(), &next);
    pthread_mutex_unlock(&network->receiving);
}

static void *hear_that_all_is_consumed(void *unused)
{
    (void)unused;
    come((PacketHeader){ .ack = sent.last.sequence, .consumed = sent.charge });
    receive_once();
    return NULL;
}

static void room(void)
{
    begin_with(SMALL_WINDOW, tick);
    join();
    for (uint64_t i = 0; network_has_room(network, PEER); i++)
        network_send(network, PEER, make(0, i));
    const unsigned receiver = weak_start("receiver", hear_that_all_is_consumed, NULL);
    weak_expect(network_wait_room(network, PEER, NULL, NULL, -1));
    weak_join(receiver);
    end();
}

/* ---- stopping ---- */

static void *flush(void *unused)
{
    (void)unused;
    network_flush(network, PEER);
    return NULL;
}

/* The I/O thread does not end before all that was pushed is sent and acknowledged. */
static void stopped(void)
{
    begin();
    acknowledges = true;
    weak_let_time_pass(); /* an acknowledgement may be looked at with the next tick only */
    network_push(network, PEER, make(0, 0));
    start();
    const unsigned other = weak_start("flusher", flush, NULL);
    network_stop(network);
    weak_join(other);
    weak_expect(sent.n_messages[0] == 1);
    end();
}

static void stopped_while_sending(void)
{
    begin_with(LARGE_WINDOW, tick_and_wait);
    join();
    acknowledges = true;
    weak_let_time_pass();
    start();
    network_push(network, PEER, make(0, 0));
    const unsigned other = weak_start("flusher", flush, NULL);
    atomic_store_explicit(&is_stopping, true, memory_order_relaxed);
    network_stop(network);
    weak_join(other);
    weak_expect(sent.n_messages[0] == 1);
    end();
}

static void forgotten(void)
{
    begin();
    const unsigned other = weak_start("sender", send_two, (void *)1);
    network_forget(network, PEER);
    weak_join(other);
    weak_expect(sent.is_closed);
    end();
}

/* ---- what came ---- */

static void *read_and_free(void *incoming)
{
    weak_expect(((Incoming *)incoming)->header.reply.request_id == 1);
    incoming_free(incoming);
    return NULL;
}

/* Two messages of one packet: the thread that is done last gives it back. */
static void parcel(void)
{
    begin();
    keeps = true;
    come_with_messages(2);
    receive_once();
    weak_expect(n_taken == 2);
    const unsigned other = weak_start("server", read_and_free, taken[1]);
    read_and_free(taken[0]);
    weak_join(other);
    end();
}

static void *use_packet(void *packet)
{
    Packet *const self = packet;

    weak_expect(self->size == 64 && self->n_messages == 0);
    packet_unref(self);
    return NULL;
}

static void packet(void)
{
    Packet *const shared = packet_new(64);

    weak_expect(shared != NULL);
    shared->n_messages = 0;
    packet_ref(shared);
    const unsigned other = weak_start("transport", use_packet, shared);
    use_packet(shared);
    weak_join(other);
}

/* ---- helpers ---- */

static Call calls[2];
static uint64_t answers[2];

static void *answer(void *which)
{
    const uintptr_t i = (uintptr_t)which;

    answers[i] = 1;
    call_end_part(&calls[i], CALL_OK, 1);
    return NULL;
}

static void *wait_for_answer(void *which)
{
    const uintptr_t i = (uintptr_t)which;

    weak_expect(network_help(network, &calls[i], -1));
    weak_expect(answers[i] == 1);
    return NULL;
}

static void begin_calls(void)
{
    for (unsigned i = 0; i < 2; i++) {
        answers[i] = 0;
        call_begin(&calls[i], NULL);
        call_add_parts(&calls[i], 1);
        call_sent(&calls[i]);
    }
}

static void a_helper_is_rung(void)
{
    begin();
    begin_calls();
    const unsigned one = weak_start("answer", answer, (void *)0);
    wait_for_answer((void *)0);
    weak_join(one);
    end();
}

/* Two wait: one is the helper, and may leave before the other comes. */
static void two_helpers(void)
{
    begin();
    begin_calls();
    const unsigned other = weak_start("helper", wait_for_answer, (void *)1);
    const unsigned one = weak_start("answer 0", answer, (void *)0);
    const unsigned two = weak_start("answer 1", answer, (void *)1);
    wait_for_answer((void *)0);
    weak_join(one);
    weak_join(two);
    weak_join(other);
    end();
}

/* The first leaves to the guard, which the I/O thread then stands. */
static void a_helper_leaves_to_the_guard(void)
{
    begin();
    acknowledges = true;
    begin_calls();
    network->guard.n_wanted = 0;
    start();
    const unsigned one = weak_start("answer 0", answer, (void *)0);
    const unsigned two = weak_start("answer 1", answer, (void *)1);
    wait_for_answer((void *)0);
    send_later((void *)0);
    wait_for_answer((void *)1);
    weak_let_time_pass();
    wait_until_sent(1);
    weak_join(one);
    weak_join(two);
    end();
}

const WeakCase network_cases[] = {
    { "network_two_senders", two_senders },
    { "network_three_senders", three_senders },
    { "network_pending", pending_work },
    { "network_a_sender_and_pending_work", a_sender_and_pending_work },
    { "network_flushed_soon", flushed_soon },
    { "network_flushed_later", flushed_later },
    { "network_woken", woken },
    { "network_joined", joined },
    { "network_joined_beside_one_who_looks", joined_beside_one_who_looks },
    { "network_replaced", replaced },
    { "network_room", room },
    { "network_stopped", stopped },
    { "network_stopped_while_sending", stopped_while_sending },
    { "network_forgotten", forgotten },
    { "network_parcel", parcel },
    { "network_packet", packet },
    { "network_a_helper_is_rung", a_helper_is_rung },
    { "network_two_helpers", two_helpers },
    { "network_a_helper_leaves_to_the_guard", a_helper_leaves_to_the_guard },
    { NULL, NULL },
};
