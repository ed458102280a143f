/* Strangers over ZeroMQ, with a secret and without one: who is let in, who is told of, and what the
 * others may cost. docs/security.md: Over ZeroMQ. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rubato/error.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/network/transport_end.h"
#include "tests/support/runner.h"

/* ---- with a secret ---- */

static const RunSecret OWN_SECRET = { { 1, 2, 3 } }, OTHER_SECRET = { { 1, 2, 4 } };

/* _i % 2: over zmq or ipc. */
static TransportEnd open_end(int i, uint32_t self, const RunSecret *secret, bool encrypt)
{
    const TransportConfig config = {
        .n_nodes = 3, .timeout_ms = 3000, .self = self, .secret = secret, .encrypt = encrypt
    };

    return transport_end_open(i % 2 == 0 ? &transport_zmq : &transport_ipc, &config,
                              i % 2 == 0 ? "zmq://127.0.0.1:0" : "ipc://*");
}

START_TEST(zeromq_tells_which_node_has_proved_the_secret)
{
    Received received;
    TransportEnd b = open_end(_i, 1, &OWN_SECRET, _i < 2);

    for (uint32_t node = 0; node < 3; node += 2) {
        TransportEnd a = open_end(_i, node, &OWN_SECRET, _i < 2);
        Channel *const channel =
            transport_end_connect(&a, b.endpoint, &(ChannelTarget){ .node = 1 });

        transport_end_send(channel, 5, 70000);
        ck_assert(transport_end_receive(&b, &received));
        ck_assert_uint_eq(received.node, node);
        ck_assert_uint_eq(received.size, 70000);
        ck_assert(transport_end_is_all(&received, 5));
        received.ops->release(&received);
        transport_end_hang_up(channel, 0);
        transport_end_close(&a);
    }
    transport_end_close(&b);
}
END_TEST

/* Of every warning that a connection was refused, whoever ended it first. */
#define DROPPED "dropped a connection over ZeroMQ"

/* The warnings of this case. */
static GString *refusals; /* guarded by refusals_lock */
static pthread_mutex_t refusals_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_refusals(const char *domain, GLogLevelFlags level, const char *text,
                          gpointer user_data)
{
    (void)domain;
    (void)level;
    (void)user_data;
    pthread_mutex_lock(&refusals_lock);
    g_string_append(refusals, text);
    pthread_mutex_unlock(&refusals_lock);
}

/* Before a thread of ZeroMQ could write to it. */
static void listen_to_the_log(void)
{
    refusals = g_string_new(NULL);
    g_log_set_handler(G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, keep_refusals, NULL);
}

static bool was_refused(const char *text)
{
    pthread_mutex_lock(&refusals_lock);
    const bool was = strstr(refusals->str, text) != NULL;
    pthread_mutex_unlock(&refusals_lock);
    return was;
}

static const struct {
    const RunSecret *secret;
    uint32_t self;
    uint32_t wanted; /* node 1 listens */
} refused[] = {
    { &OTHER_SECRET, 0, 1 },
    { NULL, 0, 1 },
    { &OWN_SECRET, 0, 2 }, /* led to a node that it does not want */
    { &OWN_SECRET, 3, 1 }, /* there is no such node */
};

/* _i: a case, over each of the two. Nothing of it comes in, and who belongs to the run is heard. */
START_TEST(zeromq_refuses_who_does_not_know_the_secret)
{
    listen_to_the_log();
    const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;
    TransportEnd b = open_end(_i, 1, &OWN_SECRET, false);
    TransportEnd stranger = open_end(_i, refused[_i / 2].self, refused[_i / 2].secret, false);
    TransportEnd a = open_end(_i, 0, &OWN_SECRET, false);
    Received received;

    Channel *const wrong = transport_end_connect(
        &stranger, b.endpoint, &(ChannelTarget){ .node = refused[_i / 2].wanted });
    transport_end_send(wrong, 66, 66);
    while (!was_refused(DROPPED)) {
        struct pollfd polled = { .fd = b.ops->poll_fd(b.transport), .events = POLLIN };
        ck_assert(!b.ops->receive(b.transport, &received));
        ck_assert(network_now_ms() < end_ms);
        poll(&polled, 1, TRANSPORT_TICK_MS);
    }
    ck_assert_uint_ne(wrong->ops->state(wrong), NETWORK_PEER_CONNECTED);
    Channel *const right = transport_end_connect(&a, b.endpoint, &(ChannelTarget){ .node = 1 });
    transport_end_send(right, 7, 70);
    transport_end_expect(&b, 7, 70);
    transport_end_hang_up(wrong, 0);
    transport_end_hang_up(right, 0);
    transport_end_close(&stranger);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

static int connect_to_zmq(const TransportEnd *end)
{
    const int family = end->ops == &transport_ipc ? AF_UNIX : AF_INET;
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    const uint16_t port = (uint16_t)g_ascii_strtoull(strrchr(end->endpoint, ':') + 1, NULL, 10);
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_addr = { htonl(INADDR_LOOPBACK) },
                                         .sin_port = htons(port) };
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* An abstract name: it begins with a zero byte. */
    const char *const name = strrchr(end->endpoint, '/') + 1;
    memcpy(local.sun_path + 1, name, strlen(name));
    const socklen_t local_size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    ck_assert_int_eq(family == AF_UNIX
                         ? connect(fd, (const struct sockaddr *)&local, local_size)
                         : connect(fd, (const struct sockaddr *)&address, sizeof address),
                     0);
    return fd;
}

/* Moves what has come from one to the other; false: the one has closed. */
static bool move_bytes(int from, int to, GByteArray *recorded)
{
    uint8_t bytes[65536];
    const ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n > 0) {
        if (recorded != NULL)
            g_byte_array_append(recorded, bytes, (guint)n);
        ck_assert_int_eq(send(to, bytes, (size_t)n, MSG_NOSIGNAL), n);
    }
    return n != 0;
}

static void wait_until_cut_off(int fd)
{
    struct pollfd polled = { .fd = fd, .events = POLLIN };
    char byte;

    while (poll(&polled, 1, TRANSPORT_PATIENCE_MS) == 1 && recv(fd, &byte, 1, 0) > 0)
        continue; /* the other end's greeting */
    close(fd);
}

/* How many refusals the lines of the log tell of; *n_counted: those that they only count. */
static uint64_t count_refused(const char *text, uint64_t *n_counted)
{
    uint64_t n = 0;

    *n_counted = 0;
    pthread_mutex_lock(&refusals_lock);
    for (const char *at = refusals->str; (at = strstr(at, text)) != NULL; n++) {
        at += strlen(text);
        *n_counted += g_ascii_strtoull(at, NULL, 10);
    }
    pthread_mutex_unlock(&refusals_lock);
    return n + *n_counted;
}

/* They say nothing, and are cut off in time. One line tells of the first; a later line counts the
 * others. They come again until one does: on a machine that stands still for some seconds, those of
 * a round may be told of one by one. _i: with a secret, without one. */
START_TEST(zeromq_counts_and_tells_of_those_that_say_nothing)
{
    const char *const text =
        _i == 0 ? "it has ended, or its time has, before it proved that it belongs to this run; "
                : "it has ended, or its time has, before its handshake was over; ";
    uint64_t n_opened = 0, n_counted = 0;

    listen_to_the_log();
    const int64_t end_ms = network_now_ms() + 5 * TRANSPORT_PATIENCE_MS;
    TransportEnd b = open_end(0, 1, _i == 0 ? &OWN_SECRET : NULL, false);

    while (n_counted == 0) {
        int silent[5];

        ck_assert(network_now_ms() < end_ms);
        for (size_t i = 0; i < G_N_ELEMENTS(silent); i++)
            silent[i] = connect_to_zmq(&b);
        n_opened += G_N_ELEMENTS(silent);
        for (size_t i = 0; i < G_N_ELEMENTS(silent); i++)
            wait_until_cut_off(silent[i]);
        ck_assert_uint_le(count_refused(text, &n_counted), n_opened);
    }
    transport_end_close(&b);
}
END_TEST

/* ---- without a secret ---- */

/* What a DEALER sends first (https://rfc.zeromq.org/spec/23): its greeting, and READY. */
static const uint8_t dealers_first[64] = "\xff\0\0\0\0\0\0\0\x01\x7f\3\0NULL";
static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                            "DEALER";

static void say(int fd, const void *bytes, size_t size)
{
    ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* Reads its greeting and its READY. */
static void hear_its_first(int fd)
{
    uint8_t bytes[64 + 2 + 255];

    ck_assert_int_eq(recv(fd, bytes, 64 + 2, MSG_WAITALL), 64 + 2);
    ck_assert_int_eq(recv(fd, bytes, bytes[64 + 1], MSG_WAITALL), bytes[64 + 1]);
}

/* A stranger ends its connection within the handshake. _i: over each of the two. */
START_TEST(zeromq_tells_of_handshakes_that_fail_without_a_secret)
{
    listen_to_the_log();
    TransportEnd b = open_end(_i, 1, NULL, false);
    Received received;

    for (size_t n = 0; n < 64; n += 9) {
        const int fd = connect_to_zmq(&b);
        say(fd, dealers_first, n);
        close(fd);
    }
    for (const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;
         !was_refused("dropped a connection over ZeroMQ: it has ended, or its time has, before its "
                      "handshake was over; 0 more since");
         poll(NULL, 0, TRANSPORT_TICK_MS)) {
        ck_assert(network_now_ms() < end_ms);
        ck_assert(!b.ops->receive(b.transport, &received));
    }
    TransportEnd a = open_end(_i, 0, NULL, false);
    Channel *const channel = transport_end_connect(&a, b.endpoint, &(ChannelTarget){ .node = 1 });
    transport_end_send(channel, 7, 70);
    transport_end_expect(&b, 7, 70);
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

enum { ANOTHER_USER = 65534, NO_OTHER_USER = 2, FEW_FILES = 100, MANY_FILES = 300 };

static void limit_files(rlim_t n)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = n;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A process of another user, which connects again and again to the end of which it reads. */
static void be_another_user(int from)
{
    char endpoint[256] = "";
    const TransportEnd end = { .ops = &transport_ipc, .endpoint = endpoint };

    limit_files(MANY_FILES);
    if (setuid(ANOTHER_USER) != 0)
        _exit(NO_OTHER_USER);
    if (read(from, endpoint, sizeof endpoint - 1) <= 0)
        _exit(1);
    for (unsigned i = 0; i < 2 * FEW_FILES; i++)
        (void)connect_to_zmq(&end);
    _exit(0);
}

/* More connections of another user than a process may have descriptors, all open at once: each is
 * dropped as soon as it comes, and the log tells of them. Only the administrator can be another
 * user. */
START_TEST(ipc_drops_connections_of_other_users)
{
    int way[2], status;
    Received received;

    listen_to_the_log();
    ck_assert_int_eq(pipe(way), 0);
    const pid_t stranger = fork();
    ck_assert_int_ne(stranger, -1);
    if (stranger == 0)
        be_another_user(way[0]);
    limit_files(FEW_FILES);
    TransportEnd b = open_end(1, 1, NULL, false);
    const ssize_t size = (ssize_t)strlen(b.endpoint);
    ck_assert_int_eq(write(way[1], b.endpoint, (size_t)size), size);
    ck_assert_int_eq(waitpid(stranger, &status, 0), stranger);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_OTHER_USER) {
        transport_end_close(&b);
        return;
    }
    ck_assert_int_eq(status, 0);
    for (const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;
         !was_refused("dropped a connection over ZeroMQ: it is another user's; ");
         poll(NULL, 0, TRANSPORT_TICK_MS))
        ck_assert(network_now_ms() < end_ms);
    TransportEnd a = open_end(1, 0, NULL, false);
    Channel *const channel = transport_end_connect(&a, b.endpoint, &(ChannelTarget){ .node = 1 });
    transport_end_send(channel, 7, 70);
    transport_end_expect(&b, 7, 70);
    ck_assert(!b.ops->receive(b.transport, &received));
    transport_end_hang_up(channel, 0);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

/* A stranger that sends faster than the node reads has to wait: it is not the node that keeps what
 * comes. Nothing is lost. */
START_TEST(zeromq_takes_a_bounded_number_of_messages_ahead)
{
    enum { FRAME_BYTES = 100, MOST_FRAMES = 500000 };
    TransportEnd b = open_end(_i, 1, NULL, false);
    const int fd = connect_to_zmq(&b);
    struct pollfd polled = { .fd = fd, .events = POLLOUT };
    uint8_t frames[100][2 + FRAME_BYTES];
    size_t n_sent = 0, n_received = 0;
    Received received;

    for (size_t i = 0; i < G_N_ELEMENTS(frames); i++) {
        memset(frames[i], 6, sizeof frames[i]);
        frames[i][0] = 0; /* neither long, nor a command, nor followed by another part */
        frames[i][1] = FRAME_BYTES;
    }
    say(fd, dealers_first, 64);
    say(fd, ready, sizeof ready - 1);
    hear_its_first(fd);
    /* The node takes nothing. If the stranger can send nothing for so long, it is ZeroMQ that waits
     * for the node; on a machine that stands still meanwhile, this test sees less, and does not
     * fail. */
    while (n_sent < MOST_FRAMES * sizeof frames[0] && poll(&polled, 1, 500) == 1) {
        const size_t at = n_sent % sizeof frames;
        const ssize_t n =
            send(fd, (const uint8_t *)frames + at, sizeof frames - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        ck_assert(n > 0 || errno == EAGAIN);
        n_sent += n > 0 ? (size_t)n : 0;
    }
    ck_assert_uint_lt(n_sent, MOST_FRAMES * sizeof frames[0]);
    for (; n_received < n_sent / sizeof frames[0]; n_received++) {
        ck_assert(transport_end_receive(&b, &received));
        ck_assert_uint_eq(received.size, FRAME_BYTES);
        ck_assert(!received.misshapen);
        received.ops->release(&received);
    }
    close(fd);
    transport_end_close(&b);
}
END_TEST

/* Everything that was said on a good connection is said again on another one. */
START_TEST(zeromq_refuses_what_is_said_again)
{
    listen_to_the_log();
    struct sockaddr_in bound = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof bound;
    const int64_t end_ms = network_now_ms() + TRANSPORT_PATIENCE_MS;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const ChannelTarget target = { .node = 1 };
    g_autoptr(GByteArray) recorded = g_byte_array_new();
    TransportEnd b = open_end(0, 1, &OWN_SECRET, false);
    TransportEnd a = open_end(0, 0, &OWN_SECRET, false);
    Received received;
    uint8_t answer[4096];
    ssize_t n;

    ck_assert_int_eq(bind(listener, (struct sockaddr *)&bound, size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&bound, &size), 0);
    g_autofree char *between = g_strdup_printf("zmq://127.0.0.1:%u", ntohs(bound.sin_port));
    Channel *const channel = a.ops->connect(a.transport, between, &target, NULL);
    transport_end_send(channel, 5, 500);
    const int near = accept(listener, NULL, NULL), far = connect_to_zmq(&b);
    while (!b.ops->receive(b.transport, &received)) {
        struct pollfd polled[2] = { { .fd = near, .events = POLLIN },
                                    { .fd = far, .events = POLLIN } };
        ck_assert(network_now_ms() < end_ms);
        poll(polled, 2, TRANSPORT_TICK_MS);
        ck_assert(move_bytes(near, far, recorded));
        ck_assert(move_bytes(far, near, NULL));
    }
    ck_assert_uint_eq(received.size, 500);
    received.ops->release(&received);
    ck_assert(!was_refused(DROPPED));
    ck_assert_uint_ge(recorded->len, 500);
    ck_assert_ptr_null(memmem(recorded->data, recorded->len, "\5\5\5\5\5\5\5\5", 8));

    const int again = connect_to_zmq(&b);
    (void)send(again, recorded->data, recorded->len, MSG_NOSIGNAL);
    while ((n = recv(again, answer, sizeof answer, 0)) > 0 || (n == -1 && errno == EINTR))
        ;
    while (!was_refused(DROPPED)) {
        ck_assert(network_now_ms() < end_ms);
        ck_assert(!b.ops->receive(b.transport, &received));
        poll(NULL, 0, TRANSPORT_TICK_MS);
    }
    ck_assert(!b.ops->receive(b.transport, &received));
    transport_end_hang_up(channel, 0);
    close(again);
    close(near);
    close(far);
    close(listener);
    transport_end_close(&a);
    transport_end_close(&b);
}
END_TEST

START_TEST(zeromq_without_a_secret_encrypts_nothing_and_says_so)
{
    const TransportConfig encrypted = { .n_nodes = 2, .timeout_ms = 3000, .encrypt = true };
    const TransportOps *const ops = transport_find(_i == 0 ? "zmq" : "ipc", NULL);
    GError *error = NULL;

    ck_assert_ptr_null(ops->create(&encrypted, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK));
    ck_assert_ptr_nonnull(strstr(error->message, "without a secret"));
    g_error_free(error);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("strangers over ZeroMQ");
    TCase *const secret = tcase_create("with a secret");
    TCase *const without = tcase_create("without a secret");

    tcase_set_timeout(secret, 60);
    tcase_add_loop_test(secret, zeromq_tells_which_node_has_proved_the_secret, 0, 4);
    tcase_add_loop_test(secret, zeromq_counts_and_tells_of_those_that_say_nothing, 0, 2);
    tcase_add_loop_test(secret, zeromq_refuses_who_does_not_know_the_secret, 0,
                        2 * (int)G_N_ELEMENTS(refused));
    tcase_add_test(secret, zeromq_refuses_what_is_said_again);
    tcase_add_loop_test(secret, zeromq_without_a_secret_encrypts_nothing_and_says_so, 0, 2);
    tcase_set_timeout(without, 60);
    tcase_add_loop_test(without, zeromq_tells_of_handshakes_that_fail_without_a_secret, 0, 2);
    tcase_add_test(without, ipc_drops_connections_of_other_users);
    tcase_add_loop_test(without, zeromq_takes_a_bounded_number_of_messages_ahead, 0, 2);
    suite_add_tcase(suite, secret);
    suite_add_tcase(suite, without);
    return run_suite(suite);
}
