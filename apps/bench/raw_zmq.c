/* Bare ZeroMQ between two processes over TCP loopback: what the cases between processes are
 * measured beside. The other process is this program again; it binds a ROUTER, writes where to its
 * standard output, and sends every message back until an empty one ends it. Messages of STREAM_BYTES
 * are not sent back: of those a stream is made, and one of another length tells when all have come. */
#include <gio/gio.h>
#include <zmq.h>

#include "apps/bench/bench.h"

enum {
    ROUND_TRIP_BYTES = 64,
    STREAM_BYTES = 63, /* what is sent back is told apart by its length */
};

typedef struct {
    void *context, *dealer;
    GSubprocess *echo;
} RawPeer;

int raw_zmq_echo(void)
{
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    char endpoint[256], sender[256], message[256];
    size_t size = sizeof endpoint;
    const int no_limit = 0;

    zmq_setsockopt(router, ZMQ_RCVHWM, &no_limit, sizeof no_limit);
    if (zmq_bind(router, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0)
        return 1;
    g_print("%s\n", endpoint);
    for (;;) {
        const int sender_bytes = zmq_recv(router, sender, sizeof sender, 0);
        const int bytes = zmq_recv(router, message, sizeof message, 0);

        if (sender_bytes < 0 || bytes <= 0)
            break;
        if (bytes == STREAM_BYTES)
            continue;
        zmq_send(router, sender, (size_t)sender_bytes, ZMQ_SNDMORE);
        zmq_send(router, message, (size_t)bytes, 0);
    }
    zmq_close(router);
    zmq_ctx_term(context);
    return 0;
}

static RawPeer *raw_peer(Bench *bench)
{
    RawPeer *peer = bench->raw_peer;
    g_autofree char *self = NULL;
    g_autoptr(GError) error = NULL;
    g_autoptr(GDataInputStream) output = NULL;
    g_autofree char *endpoint = NULL;
    const int no_limit = 0;

    if (peer != NULL)
        return peer;
    peer = g_new0(RawPeer, 1);
    self = g_file_read_link("/proc/self/exe", NULL);
    peer->echo = g_subprocess_new(G_SUBPROCESS_FLAGS_STDOUT_PIPE, &error, self, "--echo", NULL);
    if (peer->echo == NULL)
        g_error("cannot start the echo: %s", error->message);
    output = g_data_input_stream_new(g_subprocess_get_stdout_pipe(peer->echo));
    endpoint = g_data_input_stream_read_line(output, NULL, NULL, NULL);
    peer->context = zmq_ctx_new();
    peer->dealer = zmq_socket(peer->context, ZMQ_DEALER);
    zmq_setsockopt(peer->dealer, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    if (endpoint == NULL || zmq_connect(peer->dealer, endpoint) != 0)
        g_error("cannot reach the echo");
    bench->raw_peer = peer;
    return peer;
}

static void round_trip(RawPeer *peer)
{
    char message[ROUND_TRIP_BYTES] = { 1 };

    zmq_send(peer->dealer, message, sizeof message, 0);
    zmq_recv(peer->dealer, message, sizeof message, 0);
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
    const char message[STREAM_BYTES] = { 1 };
    double began;

    round_trip(peer);
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        zmq_send(peer->dealer, message, sizeof message, 0);
    round_trip(peer);
    return bench_now() - began;
}

void raw_zmq_stop(Bench *bench)
{
    RawPeer *peer = bench->raw_peer;

    if (peer == NULL)
        return;
    zmq_send(peer->dealer, "", 0, 0);
    g_subprocess_wait(peer->echo, NULL, NULL);
    g_object_unref(peer->echo);
    zmq_close(peer->dealer);
    zmq_ctx_term(peer->context);
    g_free(peer);
    bench->raw_peer = NULL;
}
