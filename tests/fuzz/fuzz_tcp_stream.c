/* Gives a receiver arbitrary bytes of a connection, cut as the input says: a row of pieces, two
 * bytes of length and the bytes. The first byte decides whether they come before the handshake or
 * are packets of a node that has shaken hands. In the second case each complete packet gets its
 * tags, and the receiver must give back the same packets. It may also say that what is behind the
 * heads of large packets goes to a place of just that size, and that this place is taken back, and
 * freed, between two reads. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/transport/tcp/tcp_receiver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { /* the lower bits: a Protection */
       SHAKES_HANDS = 4,
       HAS_PLACES = 8,
       TAKES_PLACES_BACK = 16,
};

/* Beyond that a socket may not take a piece at once. */
#define MOST_PIECE_BYTES ((size_t)16 << 10)

/* The other end. */
typedef struct {
    int fd;
    Seal sends;
    GPtrArray *sent; /* of GByteArray: the packets */
    guint n_taken;
} Node;

/* Where large packets go. */
typedef struct {
    uint8_t *place;
    DirectRead *direct; /* NULL: none is under way */
} Places;

static bool begin_direct(void *user, const Received *received, DirectRead *direct)
{
    Places *const places = user;

    if (places->direct != NULL)
        abort(); /* the last one has ended */
    const size_t n_first = received->size % 2 * NETWORK_DIRECT_FIRST_BYTES;
    const size_t n_bytes = received->size - DIRECT_HEAD_BYTES - n_first;
    places->place = malloc(n_bytes);
    places->direct = direct;
    direct_read_start(direct, 1, places->place, n_bytes);
    return true;
}

static void end_direct(void *user, DirectRead *direct)
{
    Places *const places = user;

    if (places->direct != direct)
        abort();
    places->direct = NULL;
    free(places->place);
    places->place = NULL;
}

static void take_place_back(Places *places)
{
    if (places->direct == NULL)
        return;
    direct_read_revoke(places->direct);
    free(places->place);
    places->place = NULL;
}

static void shake_hands(Node *node, TcpReceiver *receiver, Protection protection)
{
    const HandshakeConfig config = { .wanted_node = HANDSHAKE_ANY_NODE, .protection = protection };
    uint8_t said[HANDSHAKE_HELLO_BYTES], answer[HANDSHAKE_HELLO_BYTES];
    Handshake handshake;
    Seal unused;
    size_t n;

    handshake_init(&handshake, HANDSHAKE_ROLE_CONNECTS, &config, NULL);
    n = handshake_begin(&handshake, said);
    if (write(node->fd, said, n) != (ssize_t)n || !tcp_receiver_read(receiver) ||
        read(node->fd, answer, sizeof answer) != sizeof answer ||
        handshake_take(&handshake, answer, sizeof answer, said, &n) != NULL ||
        write(node->fd, said, n) != (ssize_t)n || !tcp_receiver_read(receiver) ||
        !receiver->is_proven)
        abort();
    handshake_make_seals(&handshake, &node->sends, &unused);
}

/* The bytes with tags behind each packet that is whole. (transfer full) */
static GByteArray *seal_all(Node *node, const uint8_t *data, size_t size)
{
    GByteArray *const stream = g_byte_array_new();

    while (size >= TCP_SIZE_BYTES) {
        const size_t packet_bytes = wire_load_u32(data);
        if (packet_bytes > size - TCP_SIZE_BYTES)
            break;
        data += TCP_SIZE_BYTES;
        g_autoptr(GByteArray) sealed = tcp_stream_packet(&node->sends, data, packet_bytes);
        g_byte_array_append(stream, sealed->data, sealed->len);
        GByteArray *const packet = g_byte_array_new();
        g_byte_array_append(packet, data, (guint)packet_bytes);
        g_ptr_array_add(node->sent, packet);
        data += packet_bytes;
        size -= TCP_SIZE_BYTES + packet_bytes;
    }
    g_byte_array_append(stream, data, (guint)size);
    return stream;
}

/* Takes all packets that are there. False: the connection is not worth keeping. */
static bool take_all(TcpReceiver *receiver, Node *node)
{
    Received received;

    while (tcp_receiver_take(receiver, &received)) {
        if (node->n_taken == node->sent->len)
            abort(); /* nobody has sent it */
        const GByteArray *const packet = g_ptr_array_index(node->sent, node->n_taken++);
        const size_t n_there = received.values != NULL ? received.head_bytes : received.size;
        if (received.size != packet->len ||
            (n_there > 0 && memcmp(received.bytes, packet->data, n_there) != 0) ||
            (received.values != NULL &&
             memcmp(received.values, packet->data + n_there, received.size - n_there) != 0))
            abort();
        received.ops->release(&received);
    }
    return receiver->fault == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const HandshakeConfig own = { .wanted_node = HANDSHAKE_ANY_NODE };
    const uint8_t treatment = size > 0 ? data[0] : 0;
    BlockPool *const pool = block_pool_new();
    const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    Node node = { .sent = g_ptr_array_new_with_free_func((GDestroyNotify)g_byte_array_unref) };
    GByteArray *const plain = g_byte_array_new();
    GArray *const cuts = g_array_new(FALSE, FALSE, sizeof(size_t));
    Places places = { 0 };
    const DirectReader reader = { .begin = begin_direct, .end = end_direct, .user = &places };
    bool is_kept = true;
    int fds[2];

    if (epoll_fd == -1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
        abort();
    node.fd = fds[0];
    TcpReceiver *const receiver = tcp_receiver_new(1, fds[1], epoll_fd, "somewhere", pool, &own);
    if (treatment & HAS_PLACES)
        tcp_receiver_set_reader(receiver, &reader);
    if (treatment & SHAKES_HANDS)
        shake_hands(&node, receiver, (Protection)(treatment & 3));
    for (size_t at = 1; at + 2 <= size;) {
        const size_t told = wire_load_u16(data + at);
        const size_t n = MIN(MIN(told, MOST_PIECE_BYTES), size - at - 2);
        g_byte_array_append(plain, data + at + 2, (guint)n);
        g_array_append_val(cuts, n);
        at += 2 + n;
    }
    g_autoptr(GByteArray) stream = treatment & SHAKES_HANDS
                                       ? seal_all(&node, plain->data, plain->len)
                                       : g_byte_array_ref(plain);
    for (size_t at = 0, i = 0; is_kept && at < stream->len; i++) {
        const size_t cut = cuts->len > 0 ? g_array_index(cuts, size_t, i % cuts->len) : 1;
        const size_t n = MIN(MAX(cut, 1), stream->len - at);
        if (write(node.fd, stream->data + at, n) != (ssize_t)n)
            break; /* the receiver has closed */
        at += n;
        if ((treatment & TAKES_PLACES_BACK) && i % 3 == 0)
            take_place_back(&places);
        for (unsigned k = 0; is_kept && k < 4; k++) /* a read may stop where a block ends */
            is_kept = tcp_receiver_read(receiver) && take_all(receiver, &node);
    }
    if (is_kept && node.n_taken != node.sent->len)
        abort(); /* all that was whole is out */
    if (!(treatment & SHAKES_HANDS) && (receiver->is_proven || receiver->buffer != NULL))
        abort(); /* nobody guesses a proof */
    tcp_receiver_free(receiver);
    if (places.direct != NULL)
        abort(); /* nothing reads any more */
    close(node.fd);
    close(epoll_fd);
    block_pool_free(pool);
    g_byte_array_unref(plain);
    g_array_unref(cuts);
    g_ptr_array_unref(node.sent);
    return 0;
}
