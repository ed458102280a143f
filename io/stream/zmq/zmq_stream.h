/* zmq:tcp://HOST:PORT, a stream over ZeroMQ.
 *
 * The nodes of a run write versions into a directory. A publisher on the node with worker 0 tells
 * all readers the number of the newest one (PUB, at PORT), and answers what they ask for (ROUTER,
 * at PORT + 1). A reader keeps the versions in a directory of its own, from which a follower reads
 * them as from any stream. What a reader was not told or sent, because it came late, was slow or
 * cut off, it asks for: the newest number alone is told, so that a later one makes up for all
 * before.
 *
 * Threads: told at each function. */
#ifndef RUBATO_IO_STREAM_ZMQ_ZMQ_STREAM_H
#define RUBATO_IO_STREAM_ZMQ_ZMQ_STREAM_H

#include <glib.h>
#include <stdbool.h>

#include "io/net/secure/secret.h"

/* What a URI says. */
typedef struct {
    char *news;      /* tcp://HOST:PORT, where the newest number is told */
    char *files;     /* the same with the next port, where versions are asked for */
    char *directory; /* where the run writes versions; NULL: it says none */
    char *secret_file;
    RunSecret secret;
    bool has_secret;
} ZmqStreamAddress;

/* rest: what stands behind "zmq:". Reads no file. RUBATO_ERROR_INVALID. Any thread. */
bool zmq_stream_address_read(const char *rest, ZmqStreamAddress *address, GError **error);

/* Reads the file of the secret. RUBATO_ERROR_IO, _CONFIG. */
bool zmq_stream_address_read_secret(ZmqStreamAddress *address, GError **error);

void zmq_stream_address_clear(ZmqStreamAddress *address);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(ZmqStreamAddress, zmq_stream_address_clear)

typedef enum {
    ZMQ_STREAM_NEWS,      /* XPUB, bound */
    ZMQ_STREAM_ANSWERS,   /* ROUTER, bound */
    ZMQ_STREAM_HEARS,     /* SUB, connected */
    ZMQ_STREAM_QUESTIONS, /* DEALER, connected */
} ZmqStreamSocket;

/* A socket of this sort, bound or connected, with the bounds and keys that it needs.
 * RUBATO_ERROR_NETWORK. (transfer full, zmq_close) */
void *zmq_stream_socket_new(void *context, ZmqStreamSocket sort, const ZmqStreamAddress *address,
                            GError **error);

#endif
