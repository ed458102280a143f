/* Bare ZeroMQ between two processes over TCP loopback: the limit of the cases over TCP. The other
 * process is this program again; it binds a ROUTER and writes its address to standard output. The
 * first word of each message says what to do with it. */
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/run/process.h"

enum {
    MESSAGE_BYTES = 64,
    BLOCK_BYTES = 1 << 20,
};

/* What a message asks for. */
enum {
    ORDER_ECHO = 1, /* send it back */
    ORDER_DROP,     /* nothing */
    ORDER_SEND,     /* send as many blocks as its second word says */
    ORDER_END,
};

typedef struct {
    uint32_t order, n;
    unsigned char rest[MESSAGE_BYTES - 8];
} Order;

typedef struct {
    void *context, *dealer;
    GPid process;
    unsigned char *block;
} RawPeer;

static void keep(void *data, void *hint)
{
    (void)data;
    (void)hint;
}

/* Sends a block without copying it. */
static void send_block(void *socket, void *block)
{
    zmq_msg_t message;

    zmq_msg_init_data(&message, block, BLOCK_BYTES, keep, NULL);
    zmq_msg_send(&message, socket, 0);
}

static void serve(void *router, const char *sender, size_t sender_bytes, const Order *order,
                  void *block)
{
    if (order->order == ORDER_ECHO) {
        zmq_send(router, sender, sender_bytes, ZMQ_SNDMORE);
        zmq_send(router, order, sizeof *order, 0);
    }
    for (uint32_t i = 0; order->order == ORDER_SEND && i < order->n; i++) {
        zmq_send(router, sender, sender_bytes, ZMQ_SNDMORE);
        send_block(router, block);
    }
}

int raw_zmq_serve(void)
{
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    g_autofree unsigned char *block = g_malloc0(BLOCK_BYTES);
    char endpoint[256], sender[256];
    size_t size = sizeof endpoint;
    const int no_limit = 0;
    Order order = { 0 };

    zmq_setsockopt(router, ZMQ_RCVHWM, &no_limit, sizeof no_limit);
    zmq_setsockopt(router, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    if (zmq_bind(router, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0)
        return 1;
    g_print("%s\n", endpoint);
    while (order.order != ORDER_END) {
        const int sender_bytes = zmq_recv(router, sender, sizeof sender, 0);
        zmq_msg_t message;

        zmq_msg_init(&message);
        if (sender_bytes < 0 || zmq_msg_recv(&message, router, 0) < (int)sizeof order)
            return 1;
        memcpy(&order, zmq_msg_data(&message), sizeof order);
        zmq_msg_close(&message);
        serve(router, sender, (size_t)sender_bytes, &order, block);
    }
    zmq_close(router);
    zmq_ctx_term(context);
    return 0;
}

/* The first line that the other end writes, without its end. */
static void read_line(int fd, char *line, size_t size)
{
    size_t length = 0;

    while (length < size - 1 && read(fd, line + length, 1) == 1 && line[length] != '\n')
        length++;
    line[length] = '\0';
}

static RawPeer *raw_peer(Bench *bench)
{
    RawPeer *peer = bench->raw_zmq;
    g_autoptr(GError) error = NULL;
    char endpoint[256];
    const int no_limit = 0;
    int output;

    if (peer != NULL)
        return peer;
    peer = g_new0(RawPeer, 1);
    if (!process_start(&(ProcessStart){ .arguments = { "--serve-zmq" }, .output = &output },
                       &peer->process, &error))
        g_error("cannot start the other end: %s", error->message);
    read_line(output, endpoint, sizeof endpoint);
    close(output);
    peer->context = zmq_ctx_new();
    peer->dealer = zmq_socket(peer->context, ZMQ_DEALER);
    zmq_setsockopt(peer->dealer, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    zmq_setsockopt(peer->dealer, ZMQ_RCVHWM, &no_limit, sizeof no_limit);
    if (zmq_connect(peer->dealer, endpoint) != 0)
        g_error("cannot reach the other end at \"%s\"", endpoint);
    peer->block = g_malloc0(BLOCK_BYTES);
    ((Order *)(void *)peer->block)->order = ORDER_DROP;
    bench->raw_zmq = peer;
    return peer;
}

static void give_order(RawPeer *peer, uint32_t what, uint32_t n)
{
    const Order order = { .order = what, .n = n };

    zmq_send(peer->dealer, &order, sizeof order, 0);
}

static void receive(RawPeer *peer)
{
    zmq_msg_t message;

    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, peer->dealer, 0) < 0)
        g_error("the other end is gone");
    zmq_msg_close(&message);
}

/* When it returns, everything sent before it has arrived. */
static void round_trip(RawPeer *peer)
{
    give_order(peer, ORDER_ECHO, 0);
    receive(peer);
}

double limit_zmq_round_trip(Bench *bench, size_t n)
{
    RawPeer *peer = raw_peer(bench);
    double began;

    round_trip(peer);
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        round_trip(peer);
    return bench_now() - began;
}

double limit_zmq_stream(Bench *bench, size_t n)
{
    RawPeer *peer = raw_peer(bench);
    double began;

    round_trip(peer);
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        give_order(peer, ORDER_DROP, 0);
    round_trip(peer);
    return bench_now() - began;
}

/* Blocks that hold the values of n operations. */
static size_t blocks_of(const Bench *bench, size_t n)
{
    const size_t bytes = bench->what->n_keys * bench_width(bench->what) * sizeof(float);

    return (n * bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

double limit_zmq_push(Bench *bench, size_t n)
{
    RawPeer *peer = raw_peer(bench);
    const size_t n_blocks = blocks_of(bench, n);
    double began;

    round_trip(peer);
    began = bench_now();
    for (size_t i = 0; i < n_blocks; i++)
        send_block(peer->dealer, peer->block);
    round_trip(peer);
    return bench_now() - began;
}

double limit_zmq_pull(Bench *bench, size_t n)
{
    RawPeer *peer = raw_peer(bench);
    const size_t n_blocks = blocks_of(bench, n);
    double began;

    round_trip(peer);
    began = bench_now();
    give_order(peer, ORDER_SEND, (uint32_t)n_blocks);
    for (size_t i = 0; i < n_blocks; i++)
        receive(peer);
    return bench_now() - began;
}

void raw_zmq_stop(Bench *bench)
{
    RawPeer *peer = bench->raw_zmq;

    if (peer == NULL)
        return;
    give_order(peer, ORDER_END, 0);
    process_wait(peer->process);
    zmq_close(peer->dealer);
    zmq_ctx_term(peer->context);
    g_free(peer->block);
    g_free(peer);
    bench->raw_zmq = NULL;
}
