/* Serves the tables of a follower to programs: a thread that accepts, and one for each connection.
 *
 * What a client can cost. There are so many connections at most; one more is closed at once. Those
 * that have not done their handshake do not count: there are some of them beside, and for one more
 * the oldest is closed. So whoever does not know the secret keeps nobody out who does. A connection
 * has so much time for its handshake, and for each request and answer once that has begun; between
 * requests it may be silent. Messages are bounded, and those of all connections
 * together: who has no room waits. A request takes no more room than it has bytes before all of it
 * has come; so those that come slowly keep little from others.
 *
 * Why each wait ends. For room for an answer: who has some gives it back when that is sent, after
 * ANSWER_MS at the latest; who waits for a version has little. For room for a request: who has some
 * gives it back when it is answered; it waits for REQUEST_MS at most, and for room for the answer,
 * which nobody has who waits for room for a request. For a connection: its time is over, or the end
 * of the server shuts it down. For a version: serving_following.c.
 *
 * Threads: `accept_all` and `serve` are those of their threads; the rest the caller's. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rubato/error.h>
#include <rubato/remote_follower.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/serving/serving_address.h"
#include "engine/serving/serving_answer.h"
#include "engine/serving/serving_line.h"
#include "engine/serving/serving_message.h"
#include "io/net/log_sink.h"
#include "io/net/monotonic.h"
#include "io/net/transport/tcp/tcp_address.h"

#define DEFAULT_ADDRESS "tcp://127.0.0.1:0"
#define DEFAULT_CLIENTS 256u
#define HANDSHAKE_MS 5000
#define REQUEST_MS 30000
#define ANSWER_MS 30000

/* Connections in their handshake; and those of them that are closed, and not gone yet. */
enum { MOST_STRANGERS = 64, MOST_LEAVING = 64 };

/* Requests and answers of all connections together. */
#define REQUESTS_BYTES ((size_t)64 << 20)
#define ANSWERS_BYTES ((size_t)192 << 20)

G_STATIC_ASSERT(SERVING_MOST_REQUEST <= REQUESTS_BYTES && SERVING_MOST_ANSWER <= ANSWERS_BYTES);

/* After an accept that fails because there are no descriptors or no memory. */
#define PAUSE_MS 100

typedef enum { ROOM_REQUESTS, ROOM_ANSWERS, N_ROOMS } Room;

typedef struct {
    RubatoFollowerServer *server;
    pthread_t thread;
    /* guarded by lock */
    int fd;        /* until it is closed; then -1 */
    bool is_known; /* its handshake is done */
    bool leaves;   /* the same, or it is closed meanwhile: it is no stranger */
    bool is_done;  /* the thread can be joined */
} Client;

struct RubatoFollowerServer {
    /* immutable */
    ServingFollowing *following;
    RunSecret secret;
    bool has_secret;
    uint32_t most_clients;
    char *address;
    int listener;
    pthread_t thread;
    bool has_thread;

    ServingCounts counts;

    pthread_mutex_t lock;
    pthread_cond_t has_room;
    /* guarded by lock */
    GPtrArray *clients; /* of Client */
    size_t room[N_ROOMS];
    bool ends;
};

/* ---- room ---- */

/* False: the server ends. */
static bool take_room(RubatoFollowerServer *server, Room room, size_t n)
{
    bool ok;

    pthread_mutex_lock(&server->lock);
    while (server->room[room] < n && !server->ends)
        pthread_cond_wait(&server->has_room, &server->lock);
    ok = !server->ends;
    if (ok)
        server->room[room] -= n;
    pthread_mutex_unlock(&server->lock);
    return ok;
}

static void give_room(RubatoFollowerServer *server, Room room, size_t n)
{
    pthread_mutex_lock(&server->lock);
    server->room[room] += n;
    pthread_cond_broadcast(&server->has_room);
    pthread_mutex_unlock(&server->lock);
}

/* ---- a connection ---- */

/* An answer and the room that it has. */
typedef struct {
    RubatoByteWriter bytes;
    size_t room;
} Answer;

static bool fail_memory(const char *what, GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, what);
    return false;
}

static bool answer_request(RubatoFollowerServer *server, ServingLine *line, const ServingHead *head,
                           Answer *answer, GError **error)
{
    g_autofree uint8_t *request = g_try_malloc(head->n + 1);
    size_t most;

    if (request == NULL)
        return fail_memory("no memory for a request", error);
    if (!serving_line_receive(line, head, request, monotonic_ms() + REQUEST_MS, error))
        return false;
    most = serving_answer_most(request, head->n);
    if (!take_room(server, ROOM_ANSWERS, most))
        return false;
    *answer = (Answer){ rubato_byte_writer_new(most), most };
    return serving_answer(server->following, &server->counts, request, head->n, &answer->bytes) ||
           fail_memory("no memory for an answer", error);
}

static bool send_answer(RubatoFollowerServer *server, ServingLine *line, Answer *answer,
                        GError **error)
{
    /* what the answer does not take is of use to others while it is sent */
    give_room(server, ROOM_ANSWERS, answer->room - answer->bytes.n);
    answer->room = answer->bytes.n;
    return serving_line_send(line, answer->bytes.bytes, answer->bytes.n, monotonic_ms() + ANSWER_MS,
                             error);
}

static bool serve_one(RubatoFollowerServer *server, ServingLine *line, GError **error)
{
    ServingHead head;
    Answer answer = { .room = 0 };
    bool ok;

    if (!serving_line_wait(line, SERVING_LINE_NEVER, error) ||
        !serving_line_receive_head(line, &head, SERVING_MOST_REQUEST, monotonic_ms() + REQUEST_MS,
                                   error) ||
        !take_room(server, ROOM_REQUESTS, head.n))
        return false;
    ok = answer_request(server, line, &head, &answer, error);
    give_room(server, ROOM_REQUESTS, head.n);
    ok = ok && send_answer(server, line, &answer, error);
    rubato_byte_writer_clear(&answer.bytes);
    give_room(server, ROOM_ANSWERS, answer.room);
    return ok;
}

/* Whether a connection whose handshake is done may stay: others may have come before. */
static bool note_known(Client *client)
{
    RubatoFollowerServer *const server = client->server;
    bool ok;

    pthread_mutex_lock(&server->lock);
    ok = server->counts.n_clients < server->most_clients;
    if (ok)
        server->counts.n_clients++;
    client->is_known = ok;
    client->leaves = true;
    pthread_mutex_unlock(&server->lock);
    return ok;
}

static void *serve(void *data)
{
    Client *const client = data;
    RubatoFollowerServer *const server = client->server;
    g_autoptr(GError) error = NULL;
    ServingLine line;

    /* a descriptor of its own: that of the client is shut down by the end of the server */
    if (serving_line_open(&line, fcntl(client->fd, F_DUPFD_CLOEXEC, 0), HANDSHAKE_ROLE_ACCEPTS,
                          server->has_secret ? &server->secret : NULL,
                          monotonic_ms() + HANDSHAKE_MS, &error) &&
        note_known(client))
        while (serve_one(server, &line, &error))
            continue;
    serving_line_close(&line);
    if (error != NULL)
        g_debug("a client of a follower is gone: %s", error->message);
    pthread_mutex_lock(&server->lock);
    shutdown(client->fd, SHUT_RDWR);
    close(client->fd);
    client->fd = -1;
    client->leaves = client->is_done = true;
    server->counts.n_clients -= client->is_known;
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* ---- accepting ---- */

/* Joins the threads that have ended. The lock is held; they need it no more. */
static void drop_done(RubatoFollowerServer *server)
{
    for (guint i = server->clients->len; i-- > 0;) {
        Client *const client = server->clients->pdata[i];

        if (!client->is_done)
            continue;
        pthread_join(client->thread, NULL);
        g_free(client);
        g_ptr_array_remove_index(server->clients, i); /* they are in the order of their coming */
    }
}

/* Closes the oldest connection in its handshake if there are too many of these. With the lock. */
static void drop_stranger(RubatoFollowerServer *server)
{
    Client *oldest = NULL;
    uint32_t n = 0;

    for (guint i = server->clients->len; i-- > 0;) {
        Client *const client = server->clients->pdata[i];

        if (client->leaves)
            continue;
        oldest = client;
        n++;
    }
    if (n < MOST_STRANGERS)
        return;
    oldest->leaves = true;
    shutdown(oldest->fd, SHUT_RDWR);
}

/* The lock is held. */
static bool has_place(const RubatoFollowerServer *server)
{
    const size_t most = (size_t)server->most_clients + MOST_STRANGERS + MOST_LEAVING;

    return !server->ends && server->counts.n_clients < server->most_clients &&
           server->clients->len < most;
}

static void admit(RubatoFollowerServer *server, int fd)
{
    Client *const client = g_new0(Client, 1);
    bool ok;

    *client = (Client){ .server = server, .fd = fd };
    pthread_mutex_lock(&server->lock);
    drop_done(server);
    drop_stranger(server);
    ok = has_place(server) && log_sink_start_thread(&client->thread, serve, client) == 0;
    if (ok) {
        g_ptr_array_add(server->clients, client);
    } else {
        close(fd);
        g_free(client);
    }
    pthread_mutex_unlock(&server->lock);
}

static void *accept_all(void *data)
{
    RubatoFollowerServer *const server = data;
    struct pollfd ready = { .fd = server->listener, .events = POLLIN };
    bool ends = false;

    while (!ends) {
        /* The end shuts the listener down, which ends this. */
        (void)poll(&ready, 1, -1);
        const int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        const int code = errno;

        if (fd >= 0)
            admit(server, fd);
        pthread_mutex_lock(&server->lock);
        ends = server->ends;
        pthread_mutex_unlock(&server->lock);
        if (fd < 0 && !ends &&
            (code == EMFILE || code == ENFILE || code == ENOMEM || code == ENOBUFS))
            poll(NULL, 0, PAUSE_MS);
    }
    return NULL;
}

/* ---- its life ---- */

static bool begin(RubatoFollowerServer *server, const RubatoFollowerServerSpec *spec,
                  GError **error)
{
    const char *const address = spec->address != NULL ? spec->address : DEFAULT_ADDRESS;

    if (!serving_find_secret(spec->secret_file, &server->secret, &server->has_secret, error))
        return false;
    server->listener = serving_listen(address, server->has_secret, error);
    if (server->listener == -1)
        return false;
    server->address = tcp_address_of_socket("tcp", server->listener);
    server->following = serving_following_new(&spec->follows, spec->holds, error);
    if (server->following == NULL)
        return false;
    server->has_thread = log_sink_start_thread(&server->thread, accept_all, server) == 0;
    if (!server->has_thread)
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                            "a thread that accepts connections cannot be started");
    return server->has_thread;
}

RubatoFollowerServer *rubato_follower_serve(const RubatoFollowerServerSpec *spec, GError **error)
{
    RubatoFollowerServer *server;

    g_return_val_if_fail(spec != NULL, NULL);
    server = g_new0(RubatoFollowerServer, 1);
    server->listener = -1;
    server->most_clients = spec->most_clients != 0 ? spec->most_clients : DEFAULT_CLIENTS;
    server->clients = g_ptr_array_new();
    server->room[ROOM_REQUESTS] = REQUESTS_BYTES;
    server->room[ROOM_ANSWERS] = ANSWERS_BYTES;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->has_room, NULL);
    if (begin(server, spec, error))
        return server;
    rubato_follower_server_free(server);
    return NULL;
}

/* Wakes all threads; none of them waits again. */
static void end(RubatoFollowerServer *server)
{
    pthread_mutex_lock(&server->lock);
    server->ends = true;
    pthread_cond_broadcast(&server->has_room);
    for (guint i = 0; i < server->clients->len; i++) {
        const Client *const client = server->clients->pdata[i];

        if (client->fd >= 0)
            shutdown(client->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->lock);
    if (server->following != NULL)
        serving_following_end(server->following);
    if (server->listener != -1)
        shutdown(server->listener, SHUT_RDWR);
    if (server->has_thread)
        pthread_join(server->thread, NULL);
    for (guint i = 0; i < server->clients->len; i++) {
        Client *const client = server->clients->pdata[i];

        pthread_join(client->thread, NULL);
        g_free(client);
    }
}

void rubato_follower_server_free(RubatoFollowerServer *server)
{
    if (server == NULL)
        return;
    end(server);
    serving_following_free(server->following);
    if (server->listener != -1)
        close(server->listener);
    run_secret_clear(&server->secret);
    pthread_cond_destroy(&server->has_room);
    pthread_mutex_destroy(&server->lock);
    g_ptr_array_unref(server->clients);
    g_free(server->address);
    g_free(server);
}

const char *rubato_follower_server_address(const RubatoFollowerServer *server)
{
    g_return_val_if_fail(server != NULL, NULL);
    return server->address;
}

void rubato_follower_server_status(RubatoFollowerServer *server, RubatoServedStatus *status)
{
    g_return_if_fail(server != NULL && status != NULL);
    *status = (RubatoServedStatus){ .n_clients = server->counts.n_clients,
                                    .n_gets = server->counts.n_gets,
                                    .n_keys = server->counts.n_keys };
    serving_following_status(server->following, status);
}
