/* A bare socket between two processes, TCP over loopback: the limit of the cases over TCP. The
 * other process is this program again, with its end of the connection as file descriptor 3. Both
 * block where they wait.
 *
 * A request is a head, and behind it as many keys as the head says, then as many values if it is an
 * Add. The answer to a Get is the values, and to a round trip the head. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/run/process.h"

enum { OTHER_FD = 3, HEAD_BYTES = 64 };

enum { ORDER_ECHO = 1, ORDER_GET, ORDER_ADD };

typedef struct {
    uint32_t order, n_keys;
    unsigned char rest[HEAD_BYTES - 8];
} Head;

typedef struct {
    int fd;
    GPid process;
} RawTcp;

/* False at the end of the connection. */
static bool read_all(int fd, void *to, size_t n)
{
    return n == 0 || recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

static bool write_all(int fd, struct iovec *parts, int n_parts)
{
    while (n_parts > 0) {
        ssize_t n = writev(fd, parts, n_parts);

        if (n < 0)
            return false;
        for (; n_parts > 0 && (size_t)n >= parts->iov_len; parts++, n_parts--)
            n -= (ssize_t)parts->iov_len;
        if (n_parts > 0) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return true;
}

static bool serve(Bench *bench, const Head *head, RubatoKey *keys, float *values)
{
    const size_t n = head->n_keys;
    struct iovec answer = { values, n * sizeof *values };

    if (!read_all(OTHER_FD, keys, n * sizeof *keys))
        return false;
    switch (head->order) {
    case ORDER_ECHO:
        answer = (struct iovec){ (void *)(uintptr_t)head, sizeof *head };
        break;
    case ORDER_GET:
        raw_get(bench, keys, n, values);
        break;
    default:
        if (!read_all(OTHER_FD, values, n * sizeof *values))
            return false;
        raw_add(bench, keys, n, values);
        return true;
    }
    return write_all(OTHER_FD, &answer, 1);
}

int raw_tcp_serve(const BenchCase *what, uint64_t n_rows)
{
    Bench bench = { .what = what, .n_rows = n_rows };
    g_autofree RubatoKey *keys = g_new(RubatoKey, what->n_keys);
    g_autofree float *values = g_new(float, what->n_keys);
    Head head;

    while (read_all(OTHER_FD, &head, sizeof head))
        if (head.n_keys > what->n_keys || !serve(&bench, &head, keys, values))
            break;
    raw_free(&bench);
    return EXIT_SUCCESS;
}

/* A connection of two sockets of this process. */
static bool connect_pair(int ends[2])
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    socklen_t size = sizeof address;
    bool ok;

    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends[1] = -1;
    ok = listener >= 0 && ends[0] >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0 &&
         listen(listener, 1) == 0 &&
         getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
         connect(ends[0], (struct sockaddr *)&address, size) == 0 &&
         (ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;
    close(listener);
    for (size_t i = 0; ok && i < 2; i++)
        ok = setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0;
    return ok;
}

static RawTcp *raw_tcp(Bench *bench)
{
    RawTcp *tcp = bench->raw_tcp;
    g_autofree char *n_rows = g_strdup_printf("%" G_GUINT64_FORMAT, bench->n_rows);
    g_autoptr(GError) error = NULL;
    int ends[2];

    if (tcp != NULL)
        return tcp;
    tcp = g_new0(RawTcp, 1);
    if (!connect_pair(ends))
        g_error("no connection to this host itself: %s", g_strerror(errno));
    if (!process_start(&(ProcessStart){ .arguments = { "--serve-tcp", bench->what->name, n_rows },
                                        .shared_fd = ends[1],
                                        .as_fd = OTHER_FD },
                       &tcp->process, &error))
        g_error("cannot start the other end: %s", error->message);
    close(ends[1]);
    tcp->fd = ends[0];
    bench->raw_tcp = tcp;
    return tcp;
}

static void ask(const RawTcp *tcp, Bench *bench, uint32_t order)
{
    const size_t n_keys = order == ORDER_ECHO ? 0 : bench->what->n_keys;
    Head head = { .order = order, .n_keys = (uint32_t)n_keys };
    struct iovec parts[] = {
        { &head, sizeof head },
        { (void *)(uintptr_t)bench_next_keys(bench), n_keys * sizeof *bench->keys },
        { bench->values, order == ORDER_ADD ? n_keys * sizeof *bench->values : 0 },
    };

    if (!write_all(tcp->fd, parts, G_N_ELEMENTS(parts)))
        g_error("the other end is gone");
}

/* When it returns, everything sent before it has been done. */
static void round_trip(const RawTcp *tcp, Bench *bench)
{
    Head head;

    ask(tcp, bench, ORDER_ECHO);
    if (!read_all(tcp->fd, &head, sizeof head))
        g_error("the other end is gone");
}

static void get(const RawTcp *tcp, Bench *bench)
{
    ask(tcp, bench, ORDER_GET);
    if (!read_all(tcp->fd, bench->values, bench->what->n_keys * sizeof *bench->values))
        g_error("the other end is gone");
}

double limit_tcp_round_trip(Bench *bench, size_t n)
{
    const RawTcp *tcp = raw_tcp(bench);
    double began;

    round_trip(tcp, bench);
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        round_trip(tcp, bench);
    return bench_now() - began;
}

double limit_tcp_get(Bench *bench, size_t n)
{
    const RawTcp *tcp = raw_tcp(bench);
    double began;

    get(tcp, bench); /* its rows are there */
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        get(tcp, bench);
    return bench_now() - began;
}

double limit_tcp_add(Bench *bench, size_t n)
{
    const RawTcp *tcp = raw_tcp(bench);
    double began;

    ask(tcp, bench, ORDER_ADD);
    round_trip(tcp, bench);
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        ask(tcp, bench, ORDER_ADD);
    round_trip(tcp, bench);
    return bench_now() - began;
}

void raw_tcp_stop(Bench *bench)
{
    RawTcp *tcp = bench->raw_tcp;

    if (tcp == NULL)
        return;
    close(tcp->fd); /* the other end reads no further */
    process_wait(tcp->process);
    g_free(tcp);
    bench->raw_tcp = NULL;
}
