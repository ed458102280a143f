/* Answers of probes by libmicrohttpd: see health.h. */
#include "engine/health/health.h"

#include <rubato/error.h>

#ifdef RUBATO_HAS_MICROHTTPD

#include <errno.h>
#include <json-glib/json-glib.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Probes are few and small. Who holds a connection open and says nothing loses it. */
enum {
    MAX_CONNECTIONS = 32,
    MAX_REQUEST = 4096, /* bytes */
    SILENCE_S = 5,
    MAX_ASKING = 8,  /* connections for which a status is made */
    MAX_WAITING = 8, /* connections that wait for the end */
};

struct Health {
    /* immutable */
    struct MHD_Daemon *daemon;
    uint16_t port;
    HealthSource source;
    int end_fd; /* an eventfd that is raised at the end, and stays so */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    unsigned n_asking, n_waiting; /* n_waiting: until their answers have left, too */
};

/* What MHD knows a connection's request by. */
static char usual_request, waiting_request;

static enum MHD_Result respond_as(struct MHD_Connection *connection, unsigned status,
                                  const char *type, const char *text)
{
    g_autofree char *line = g_strdup_printf("%s\n", text);
    struct MHD_Response *const response =
        MHD_create_response_from_buffer(strlen(line), line, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result;

    if (response == NULL)
        return MHD_NO; /* the connection is closed */
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result respond(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return respond_as(connection, status, "text/plain; charset=utf-8", text);
}

/* Whether who asks has an address of this host alone: 127.0.0.0/8, ::1, or the former as IPv6. */
static bool is_here(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *const address = info != NULL ? info->client_addr : NULL;

    if (address == NULL || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return false;
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               IN_LOOPBACKNET;

    const struct in6_addr *const six =
        &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) ||
           (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET);
}

/* False: as many as may have it have it. */
static bool take_one(Health *health, unsigned *n, unsigned most)
{
    pthread_mutex_lock(&health->lock);
    const bool may = *n < most;
    *n += may;
    pthread_mutex_unlock(&health->lock);
    return may;
}

static void give_one(Health *health, unsigned *n)
{
    pthread_mutex_lock(&health->lock);
    --*n;
    pthread_cond_broadcast(&health->changed);
    pthread_mutex_unlock(&health->lock);
}

/* Nothing of the engine is held while it is sent: a client that reads slowly delays nobody, and
 * loses its connection. */
static enum MHD_Result send_status(const Health *health, struct MHD_Connection *connection)
{
    g_autoptr(GVariant) status =
        g_variant_ref_sink(health->source.tell_status(health->source.user));
    g_autofree char *text = json_gvariant_serialize_data(status, NULL);
    return respond_as(connection, MHD_HTTP_OK, "application/json", text);
}

static enum MHD_Result tell_status(Health *health, struct MHD_Connection *connection)
{
    enum MHD_Result result;

    if (!take_one(health, &health->n_asking, MAX_ASKING))
        return respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                       "too many ask for the status at this time: ask again");
    result = send_status(health, connection);
    give_one(health, &health->n_asking);
    return result;
}

/* Waits for the end. False: who asked has gone, or nobody can wait. */
static bool wait_for_end(const Health *health, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd fds[] = { { .fd = health->end_fd, .events = POLLIN },
                            { .fd = info != NULL ? info->connect_fd : -1, .events = POLLRDHUP } };

    while (poll(fds, G_N_ELEMENTS(fds), -1) < 0)
        if (errno != EINTR && errno != EAGAIN)
            return false; /* such as for lack of memory: who asked loses the connection */
    return (fds[0].revents & POLLIN) != 0;
}

/* The thread of the connection waits here. Silence is no fault of who waits: its time begins with
 * the answer. */
static enum MHD_Result tell_end(Health *health, struct MHD_Connection *connection, void **request)
{
    if (!take_one(health, &health->n_waiting, MAX_WAITING))
        return respond(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                       "too many wait for the end of the run");
    *request = &waiting_request;
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    const bool is_there = wait_for_end(health, connection);
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)SILENCE_S);
    return is_there ? send_status(health, connection) : MHD_NO; /* the connection is closed */
}

static void note_completed(void *user, struct MHD_Connection *connection G_GNUC_UNUSED,
                           void **request, enum MHD_RequestTerminationCode why G_GNUC_UNUSED)
{
    Health *const health = user;

    if (*request == &waiting_request)
        give_one(health, &health->n_waiting);
    *request = NULL;
}

/* Called once for the head of a request, and again for its body, which is dropped, and its end. */
static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version G_GNUC_UNUSED,
                              const char *body G_GNUC_UNUSED, size_t *body_size, void **request)
{
    Health *const health = user;
    const bool asks_ready = strcmp(path, "/ready") == 0;
    const bool asks_status = strcmp(path, "/status") == 0;
    const bool asks_end = strcmp(path, "/end") == 0;
    HealthState state = { .text = NULL };

    if (*request == NULL || *body_size > 0) {
        *request = &usual_request;
        *body_size = 0;
        return MHD_YES;
    }
    if (!asks_ready && !asks_status && !asks_end && strcmp(path, "/live") != 0)
        return respond(connection, MHD_HTTP_NOT_FOUND, "there are /live, /ready, /status and /end");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
    if ((asks_status || asks_end) && !is_here(connection))
        return respond(connection, MHD_HTTP_FORBIDDEN,
                       "the status is told to processes of this host alone: ask there, as by ssh");
    if (asks_end)
        return tell_end(health, connection, request);
    if (asks_status)
        return tell_status(health, connection);
    health->source.look(health->source.user, &state);
    g_autofree char *text = state.text;
    return respond(connection,
                   (asks_ready ? state.is_ready : state.is_live) ? MHD_HTTP_OK
                                                                 : MHD_HTTP_SERVICE_UNAVAILABLE,
                   text);
}

/* At all addresses, of IPv4 too; -1 with errno. */
static int listen_at(uint16_t port)
{
    const int yes = 1, no = 0;
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    const struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool has_six = fd >= 0;

    if (!has_six) /* the kernel has none */
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (has_six)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, has_six ? (const struct sockaddr *)&six : (const struct sockaddr *)&four,
             has_six ? sizeof six : sizeof four) == 0 &&
        listen(fd, MAX_CONNECTIONS) == 0)
        return fd;

    const int why = errno;

    close(fd);
    errno = why;
    return -1;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage address = { 0 };
    socklen_t size = sizeof address;

    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* Its threads take no signals, which are the application's. */
static struct MHD_Daemon *start(Health *health, int fd)
{
    struct MHD_Daemon *daemon;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION, 0, NULL,
        NULL, answer, health, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENCE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MAX_REQUEST, MHD_OPTION_NOTIFY_COMPLETED,
        note_completed, health, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

static void health_clear(Health *health)
{
    if (health->end_fd >= 0)
        close(health->end_fd);
    pthread_cond_destroy(&health->changed);
    pthread_mutex_destroy(&health->lock);
    g_free(health);
}

Health *health_new(uint16_t port, const HealthSource *source, GError **error)
{
    const int fd = listen_at(port);
    Health *health;

    if (fd < 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "probes cannot be answered at port %u: %s", port, g_strerror(errno));
        return NULL;
    }
    health = g_new0(Health, 1);
    *health = (Health){ .port = port_of(fd),
                        .source = *source,
                        .end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    pthread_mutex_init(&health->lock, NULL);
    pthread_cond_init(&health->changed, NULL);
    health->daemon = health->end_fd >= 0 ? start(health, fd) : NULL;
    if (health->daemon == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "probes cannot be answered at port %u: there is no thread for it", port);
        close(fd);
        health_clear(health);
        return NULL;
    }
    return health;
}

uint16_t health_port(const Health *health)
{
    return health->port;
}

/* Tells the end, waits until the threads have ended, and closes the socket. The first wait ends
 * because each thread that waits for the end sees it, and sends an answer that fits any send
 * buffer; at the latest when the connection's time is over. Otherwise MHD would cut such answers
 * off. */
void health_free(Health *health)
{
    const uint64_t one = 1;

    if (health == NULL)
        return;
    if (write(health->end_fd, &one, sizeof one) == sizeof one) {
        pthread_mutex_lock(&health->lock);
        while (health->n_waiting > 0)
            pthread_cond_wait(&health->changed, &health->lock);
        pthread_mutex_unlock(&health->lock);
    }
    MHD_stop_daemon(health->daemon);
    health_clear(health);
}

#else

Health *health_new(uint16_t port G_GNUC_UNUSED, const HealthSource *source G_GNUC_UNUSED,
                   GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "probes cannot be answered: Rubato was built without libmicrohttpd");
    return NULL;
}

uint16_t health_port(const Health *health G_GNUC_UNUSED)
{
    return 0;
}

void health_free(Health *health G_GNUC_UNUSED)
{
}

#endif
