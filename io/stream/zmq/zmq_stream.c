/* The URI of a stream over ZeroMQ, its sockets, and its kind.
 *
 * With a secret both ends prove it by CURVE, as nodes do (io/net/transport/zmq/zmq_curve.c): who
 * reads must know the public key of who publishes, which is never sent, and which nobody can derive
 * without the secret. Without one only this machine is reached. */
#include "io/stream/zmq/zmq_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rubato/error.h>
#include <string.h>
#include <zmq.h>

#include "io/net/secure/curve_keys.h"
#include "io/net/secure/secret_file.h"
#include "io/net/transport/tcp/tcp_address.h"
#include "io/store/store_file.h"
#include "io/stream/stream_kind.h"
#include "io/stream/zmq/stream_message.h"
#include "io/stream/zmq/zmq_publisher.h"
#include "io/stream/zmq/zmq_reader.h"

#define FORM                                                                                     \
    "zmq:tcp://HOST:PORT?directory=DIR, where the run publishes the versions that it writes to " \
    "DIR; also with &secret=FILE"

/* Answers that wait for a reader that does not read them; more are dropped, and it asks again. */
#define MOST_WAITING 32
/* The commands of a handshake, and a message of our own without what follows its head. */
#define MOST_OF_ZMTP ((int64_t)1 << 10)
#define LINGER_MS 1000
#define HEARTBEAT_MS 1000
#define SILENT_MS 3000

/* ---- the URI ---- */

static bool refuse(GError **error, const char *text, const char *what)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, text, what);
    return false;
}

static bool read_option(ZmqStreamAddress *address, const char *option, GError **error)
{
    const char *const equals = strchr(option, '=');
    char **const to = equals == NULL                           ? NULL
                      : g_str_has_prefix(option, "directory=") ? &address->directory
                      : g_str_has_prefix(option, "secret=")    ? &address->secret_file
                                                               : NULL;
    char *const value = to != NULL ? g_uri_unescape_string(equals + 1, NULL) : NULL;

    if (value == NULL || *value == '\0' || *to != NULL) {
        g_free(value);
        return refuse(error, "expected directory=DIR or secret=FILE once, found \"%s\"", option);
    }
    *to = value;
    return true;
}

/* Whether other machines do not reach it. */
static bool is_loopback(const char *host)
{
    struct in6_addr six;
    struct in_addr four;

    return strcmp(host, "localhost") == 0 ||
           (inet_pton(AF_INET, host, &four) == 1 && ntohl(four.s_addr) >> 24 == 127) ||
           (inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

static bool read_endpoint(ZmqStreamAddress *address, const char *endpoint, GError **error)
{
    g_autofree char *host = NULL, *port = NULL;
    guint64 number;

    if (!tcp_address_split("tcp", endpoint, &host, &port, error)) {
        g_clear_error(error);
        return refuse(error, "expected " FORM ", found \"%s\"", endpoint);
    }
    if (!g_ascii_string_to_unsigned(port, 10, 1, UINT16_MAX - 1, &number, NULL))
        return refuse(error, "its port, and the next one, are 1 to 65535, not \"%s\"", port);
    if (address->secret_file == NULL && !is_loopback(host))
        return refuse(error,
                      "%s can be reached from other machines, so the stream needs a secret, which "
                      "its followers know, too: `rubato secret FILE` makes one, and &secret=FILE "
                      "names it",
                      endpoint);
    address->news = tcp_address_join("tcp", host, (unsigned)number);
    address->files = tcp_address_join("tcp", host, (unsigned)number + 1);
    return true;
}

bool zmq_stream_address_read(const char *rest, ZmqStreamAddress *address, GError **error)
{
    g_auto(GStrv) halves = g_strsplit(rest, "?", 2);
    g_auto(GStrv) options =
        g_strsplit(halves[0] != NULL && halves[1] != NULL ? halves[1] : "", "&", -1);

    *address = (ZmqStreamAddress){ .has_secret = false };
    for (char **option = options; *option != NULL; option++)
        if (!read_option(address, *option, error))
            return false;
    return read_endpoint(address, halves[0] != NULL ? halves[0] : "", error);
}

bool zmq_stream_address_read_secret(ZmqStreamAddress *address, GError **error)
{
    if (address->secret_file == NULL)
        return true;
    if (zmq_has("curve") == 0) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                            "this ZeroMQ was built without CURVE, which a secret needs");
        return false;
    }
    address->has_secret = secret_read_file(address->secret_file, &address->secret, error);
    return address->has_secret;
}

void zmq_stream_address_clear(ZmqStreamAddress *address)
{
    g_free(address->news);
    g_free(address->files);
    g_free(address->directory);
    g_free(address->secret_file);
    run_secret_clear(&address->secret);
}

/* ---- sockets ---- */

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool set_keys(void *socket, const RunSecret *secret, bool publishes)
{
    g_auto(CurveKeys) publisher;
    g_auto(CurveKeys) reader;

    curve_keys_derive(secret, CURVE_ROLE_PUBLISHES, 0, &publisher);
    curve_keys_derive(secret, CURVE_ROLE_FOLLOWS, 0, &reader);
    if (publishes)
        return set_int(socket, ZMQ_CURVE_SERVER, 1) &&
               zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, publisher.secret_key, CURVE_KEY_BYTES) ==
                   0;
    return zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, publisher.public_key, CURVE_KEY_BYTES) ==
               0 &&
           zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, reader.public_key, CURVE_KEY_BYTES) == 0 &&
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, reader.secret_key, CURVE_KEY_BYTES) == 0;
}

/* Nobody makes this end keep more than these bounds allow. */
static bool set_up(void *socket, ZmqStreamSocket sort, const ZmqStreamAddress *address)
{
    const int64_t most =
        MOST_OF_ZMTP + (int64_t)(sort == ZMQ_STREAM_QUESTIONS ? STREAM_MOST_ANSWER : 0);
    const bool publishes = sort == ZMQ_STREAM_NEWS || sort == ZMQ_STREAM_ANSWERS;

    return set_int(socket, ZMQ_IPV6, 1) && set_int(socket, ZMQ_LINGER, publishes ? LINGER_MS : 0) &&
           set_int(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) &&
           set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, SILENT_MS) &&
           set_int(socket, ZMQ_SNDHWM, MOST_WAITING) &&
           zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most) == 0 &&
           /* A new reader is told the newest number at once, and only that counts. */
           (sort != ZMQ_STREAM_NEWS || set_int(socket, ZMQ_XPUB_VERBOSE, 1)) &&
           (sort != ZMQ_STREAM_HEARS || (set_int(socket, ZMQ_CONFLATE, 1) &&
                                         zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) == 0)) &&
           (sort != ZMQ_STREAM_QUESTIONS || set_int(socket, ZMQ_IMMEDIATE, 1)) &&
           (!address->has_secret || set_keys(socket, &address->secret, publishes));
}

void *zmq_stream_socket_new(void *context, ZmqStreamSocket sort, const ZmqStreamAddress *address,
                            GError **error)
{
    static const int types[] = { ZMQ_XPUB, ZMQ_ROUTER, ZMQ_SUB, ZMQ_DEALER };
    const bool publishes = sort == ZMQ_STREAM_NEWS || sort == ZMQ_STREAM_ANSWERS;
    const char *const endpoint =
        sort == ZMQ_STREAM_NEWS || sort == ZMQ_STREAM_HEARS ? address->news : address->files;
    void *const socket = context != NULL ? zmq_socket(context, types[sort]) : NULL;

    if (socket != NULL && set_up(socket, sort, address) &&
        (publishes ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint)) == 0)
        return socket;
    const int code = errno;
    if (socket != NULL)
        zmq_close(socket);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "cannot %s %s: %s%s",
                publishes ? "publish at" : "connect to", endpoint, zmq_strerror(code),
                code == EADDRINUSE ? TCP_ADDRESS_TAKEN : "");
    return NULL;
}

/* ---- the kind ---- */

static char *find_directory(const char *rest, GError **error)
{
    g_auto(ZmqStreamAddress) address = { 0 };

    if (!zmq_stream_address_read(rest, &address, error))
        return NULL;
    if (address.directory == NULL)
        refuse(error, "expected %s", FORM);
    if (address.directory == NULL || !store_is_bucket(address.directory))
        return g_steal_pointer(&address.directory);
    refuse(error, "versions that are published lie in a directory of files, not in %s",
           address.directory);
    return NULL;
}

static const RubatoStreamWriterOps writer_ops = { zmq_publisher_open, zmq_publisher_tell,
                                                  zmq_publisher_close };
static const RubatoStreamReaderOps reader_ops = { zmq_reader_open, zmq_reader_check,
                                                  zmq_reader_close };

const RubatoStreamOps zmq_stream_ops = {
    .name = "zmq",
    .form = FORM,
    .find_directory = find_directory,
    .writer = &writer_ops,
    .reader = &reader_ops,
};
