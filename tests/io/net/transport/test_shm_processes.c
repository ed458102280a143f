/* Shared memory between processes that are stopped, die, or never were nodes.
 *
 * The other process is a fork of the case. It does one thing and says over a pipe when that is
 * done. */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/net/transport/shm/shm_socket.h"
#include "io/net/transport/transport_ops.h"
#include "tests/support/runner.h"

#define PATIENCE_MS 100000
#define SMALL 100u
#define LARGE ((size_t)24 << 20) /* several rings full */

typedef struct {
    Transport *transport;
    char *endpoint;
} End;

static void open_end(End *end)
{
    GError *error = NULL;

    end->transport =
        transport_shm.create(&(TransportConfig){ .n_nodes = 2, .timeout_ms = 3000 }, &error);
    ck_assert_msg(end->transport != NULL, "%s", error != NULL ? error->message : "");
    ck_assert_msg(transport_shm.bind(end->transport, "shm://*", &end->endpoint, &error), "%s",
                  error != NULL ? error->message : "");
}

static void close_end(End *end)
{
    transport_shm.destroy(end->transport);
    g_free(end->endpoint);
}

static Channel *open_channel(const End *from, const char *endpoint)
{
    GError *error = NULL;
    Channel *const channel =
        transport_shm.connect(from->transport, endpoint, /* target= */ NULL, &error);

    ck_assert_msg(channel != NULL, "%s", error != NULL ? error->message : "");
    return channel;
}

static void send_bytes(Channel *channel, uint8_t byte, size_t size)
{
    Packet *const packet = packet_new(size);

    memset(packet->bytes, byte, size);
    channel->ops->send(channel, packet);
    packet_unref(packet);
}

/* Waits for one packet of that size and byte; false if none comes in time. */
static bool receive(const End *end, uint8_t byte, size_t size, int timeout_ms)
{
    const int64_t end_ms = network_now_ms() + timeout_ms;
    Received received;

    while (!transport_shm.receive(end->transport, &received)) {
        struct pollfd polled = { .fd = transport_shm.poll_fd(end->transport), .events = POLLIN };
        const int64_t left_ms = end_ms - network_now_ms();
        if (left_ms <= 0)
            return false;
        poll(&polled, 1, (int)left_ms);
    }
    bool same = received.size == size;
    for (size_t i = 0; i < received.size && same; i++)
        same = received.bytes[i] == byte;
    received.ops->release(&received);
    return same;
}

typedef struct {
    pid_t pid;
    int told_fd; /* from it */
} Process;

/* Forks a process that calls play and then waits to be killed, or ends if play says so. */
static Process split_off(void (*play)(const char *endpoint, int tell_fd), const char *endpoint)
{
    const pid_t parent = getpid();
    int fds[2];

    ck_assert_int_eq(pipe(fds), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        play(endpoint, fds[1]);
        for (;;)
            pause();
    }
    close(fds[1]);
    return (Process){ pid, fds[0] };
}

static void tell(int fd, const char *text)
{
    if (write(fd, text, strlen(text) + 1) == -1)
        _exit(2);
}

/* What the process tells next; "" once it has ended. */
static char *hear(const Process *process)
{
    GString *const text = g_string_new(NULL);
    char c;

    while (read(process->told_fd, &c, 1) == 1 && c != '\0')
        g_string_append_c(text, c);
    return g_string_free(text, FALSE);
}

static void await(const Process *process, const char *expected)
{
    g_autofree char *text = hear(process);

    ck_assert_str_eq(text, expected);
}

static void end_process(const Process *process)
{
    kill(process->pid, SIGKILL);
    ck_assert_int_eq(waitpid(process->pid, NULL, 0), process->pid);
    close(process->told_fd);
}

/* Does for a sender what its I/O thread would, until the channel's state is so. */
static void serve(const End *end, Channel *channel, NetworkPeerState until)
{
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;
    Received received;

    while (channel->ops->state(channel) != until) {
        struct pollfd polled = { .fd = transport_shm.poll_fd(end->transport), .events = POLLIN };
        ck_assert_int_lt(network_now_ms(), end_ms);
        ck_assert(!transport_shm.receive(end->transport, &received));
        poll(&polled, 1, 5);
    }
}

/* ---- senders ---- */

static void send_all(Channel *channel)
{
    for (uint8_t i = 0; i < 10; i++)
        send_bytes(channel, i, SMALL);
    send_bytes(channel, 10, LARGE); /* of which the ring takes a part */
}

/* It dies before the handshake: its ring was never handed over. */
static void send_at_once(const char *endpoint, int tell_fd)
{
    End end;

    open_end(&end);
    send_all(open_channel(&end, endpoint));
    tell(tell_fd, "sent");
}

static void send_to_receiver(const char *endpoint, int tell_fd)
{
    End end;

    open_end(&end);
    Channel *const channel = open_channel(&end, endpoint);
    serve(&end, channel, NETWORK_PEER_CONNECTED);
    send_all(channel);
    tell(tell_fd, "sent");
}

static void receive_small(const End *end)
{
    for (uint8_t i = 0; i < 10; i++)
        ck_assert(receive(end, i, SMALL, PATIENCE_MS));
}

START_TEST(sender_killed_in_the_middle_of_a_packet_leaves_the_whole_ones)
{
    End end;
    Received received;

    open_end(&end);
    const Process process = split_off(_i == 0 ? send_at_once : send_to_receiver, end.endpoint);
    if (_i == 0) { /* it dies before we know of it */
        await(&process, "sent");
        end_process(&process);
        ck_assert(!receive(&end, 0, SMALL, 100));
    } else {
        receive_small(&end);
        await(&process, "sent");
        end_process(&process);
    }
    ck_assert(!receive(&end, 10, LARGE, 100));
    /* Nothing is left that would keep us busy. */
    struct pollfd polled = { .fd = transport_shm.poll_fd(end.transport), .events = POLLIN };
    ck_assert(!transport_shm.receive(end.transport, &received));
    ck_assert_int_eq(poll(&polled, 1, 0), 0);

    /* And another one is heard. */
    const Process next = split_off(send_to_receiver, end.endpoint);
    receive_small(&end);
    end_process(&next);
    close_end(&end);
}
END_TEST

START_TEST(stopped_sender_is_waited_for)
{
    End end;

    open_end(&end);
    const Process process = split_off(send_to_receiver, end.endpoint);
    receive_small(&end);
    ck_assert_int_eq(kill(process.pid, SIGSTOP), 0);
    ck_assert(!receive(&end, 10, LARGE, 100));
    end_process(&process);
    ck_assert(!receive(&end, 10, LARGE, 100));
    close_end(&end);
}
END_TEST

/* ---- receivers ---- */

static void listen_only(const char *endpoint, int tell_fd)
{
    End end;

    (void)endpoint;
    open_end(&end);
    tell(tell_fd, end.endpoint);
    for (uint8_t i = 0;; i++)
        tell(tell_fd, receive(&end, i, i == 0 ? SMALL : LARGE, PATIENCE_MS) ? "came" : "wrong");
}

START_TEST(stopped_receiver_holds_nobody_up_and_gets_it_all_later)
{
    End end;
    Packet *last = NULL;

    open_end(&end);
    const Process process = split_off(listen_only, NULL);
    g_autofree char *endpoint = hear(&process);
    Channel *const channel = open_channel(&end, endpoint);
    serve(&end, channel, NETWORK_PEER_CONNECTED);
    ck_assert_int_eq(kill(process.pid, SIGSTOP), 0);
    send_bytes(channel, 0, SMALL);
    for (uint8_t i = 1; i < 4; i++) { /* much more than a ring; none of them blocks */
        last = packet_new(LARGE);
        memset(last->bytes, i, LARGE);
        channel->ops->send(channel, last);
        if (i < 3)
            packet_unref(last);
    }
    ck_assert(packet_is_shared(last)); /* it waits */
    ck_assert_int_eq(channel->ops->state(channel), NETWORK_PEER_CONNECTED);
    ck_assert_int_eq(kill(process.pid, SIGCONT), 0);
    const int64_t end_ms = network_now_ms() + PATIENCE_MS;
    while (packet_is_shared(last)) {
        Received received;
        struct pollfd polled = { .fd = transport_shm.poll_fd(end.transport), .events = POLLIN };
        ck_assert_int_lt(network_now_ms(), end_ms);
        ck_assert(!transport_shm.receive(end.transport, &received));
        poll(&polled, 1, 1000);
    }
    packet_unref(last);
    for (unsigned i = 0; i < 4; i++)
        await(&process, "came");
    channel->ops->close(channel, 0);
    end_process(&process);
    close_end(&end);
}
END_TEST

START_TEST(receiver_killed_with_a_full_ring_shows_as_disconnected)
{
    End end;

    open_end(&end);
    const Process process = split_off(listen_only, NULL);
    g_autofree char *endpoint = hear(&process);
    Channel *const channel = open_channel(&end, endpoint);
    serve(&end, channel, NETWORK_PEER_CONNECTED);
    ck_assert_int_eq(kill(process.pid, SIGSTOP), 0);
    send_bytes(channel, 0, LARGE);
    end_process(&process);
    serve(&end, channel, NETWORK_PEER_DISCONNECTED);
    send_bytes(channel, 1, LARGE); /* goes nowhere, and takes no time */
    channel->ops->close(channel, 0);
    close_end(&end);
}
END_TEST

/* ---- strangers ---- */

/* Connects to the end's socket as a stranger would. */
static int connect_raw(const End *end)
{
    const int fd = shm_socket_connect(strrchr(end->endpoint, '/') + 1);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static void push(int fd, const uint8_t *bytes, size_t size)
{
    ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
}

/* Does what comes before a ring is handed over. */
static void shake_hands_raw(const End *end, int fd)
{
    const HandshakeConfig config = { .wanted_node = HANDSHAKE_ANY_NODE };
    uint8_t said[HANDSHAKE_HELLO_BYTES], answer[HANDSHAKE_HELLO_BYTES];
    Handshake handshake;
    Received received;
    size_t n;

    handshake_init(&handshake, HANDSHAKE_ROLE_CONNECTS, &config, NULL);
    push(fd, said, handshake_begin(&handshake, said));
    for (unsigned i = 0; i < 40; i++) /* it asks its sockets now and then */
        ck_assert(!transport_shm.receive(end->transport, &received));
    ck_assert_int_eq(read(fd, answer, sizeof answer), sizeof answer);
    ck_assert_ptr_null(handshake_take(&handshake, answer, sizeof answer, said, &n));
    push(fd, said, n);
}

/* Descriptors that come before the proof are neither accepted nor kept open. */
START_TEST(stranger_that_proves_nothing_is_shown_the_door)
{
    End end;
    Received received;
    int fds[2];
    char c;

    open_end(&end);
    const int fd = connect_raw(&end);
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert(shm_socket_send_hello(fd, 1 << 20, fds, 2));
    close(fds[1]);
    for (unsigned i = 0; i < 40; i++)
        ck_assert(!transport_shm.receive(end.transport, &received));
    ck_assert_int_le(read(fd, &c, 1), 0);
    ck_assert_int_eq(read(fds[0], &c, 1), 0); /* all ends for writing are closed */
    close(fd);
    close(fds[0]);
    close_end(&end);
}
END_TEST

START_TEST(strangers_that_hand_over_nonsense_are_shown_the_door)
{
    static const uint64_t capacities[] = { 0, 1, 4096, 1 << 20, UINT64_MAX };
    End end;
    Received received;
    int fds[2];
    char c;

    open_end(&end);
    const int fd = connect_raw(&end);
    shake_hands_raw(&end, fd);
    ck_assert_int_eq(pipe(fds), 0);
    if (_i < (int)G_N_ELEMENTS(capacities))
        ck_assert(shm_socket_send_hello(fd, capacities[_i], fds, 1)); /* a pipe is no ring */
    else if (_i == (int)G_N_ELEMENTS(capacities))
        ck_assert(shm_socket_send_hello(fd, 1 << 20, fds, 2)); /* too much */
    else
        ck_assert_int_eq(write(fd, "GET / HTTP/1.1", 14), 14);
    for (unsigned i = 0; i < 40; i++)
        ck_assert(!transport_shm.receive(end.transport, &received));
    /* The hello to us, then the end. */
    ck_assert_int_gt(read(fd, &c, 1), 0);
    ck_assert_int_le(read(fd, &c, 1), 0);
    close(fd);
    close(fds[0]);
    close(fds[1]);

    Channel *const channel = open_channel(&end, end.endpoint); /* to itself: still works */
    send_bytes(channel, 3, SMALL);
    ck_assert(receive(&end, 3, SMALL, PATIENCE_MS));
    channel->ops->close(channel, 0);
    close_end(&end);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("shm_processes");
    TCase *const senders = tcase_create("senders");
    TCase *const receivers = tcase_create("receivers");
    TCase *const strangers = tcase_create("strangers");

    tcase_set_timeout(senders, 60);
    tcase_set_timeout(receivers, 60);
    tcase_add_loop_test(senders, sender_killed_in_the_middle_of_a_packet_leaves_the_whole_ones, 0,
                        2);
    tcase_add_test(senders, stopped_sender_is_waited_for);
    tcase_add_test(receivers, stopped_receiver_holds_nobody_up_and_gets_it_all_later);
    tcase_add_test(receivers, receiver_killed_with_a_full_ring_shows_as_disconnected);
    tcase_add_test(strangers, stranger_that_proves_nothing_is_shown_the_door);
    tcase_add_loop_test(strangers, strangers_that_hand_over_nonsense_are_shown_the_door, 0, 7);
    suite_add_tcase(suite, senders);
    suite_add_tcase(suite, receivers);
    suite_add_tcase(suite, strangers);
    return run_suite(suite);
}
