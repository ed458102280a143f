/* What a node answers to probes. */
#include "engine/health/health.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <rubato/engine.h>
#include <rubato/error.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "engine/health/engine_health.h"
#include "tests/support/runner.h"

/* The address that a case dials instead of 127.0.0.1. */
static struct sockaddr_in reached;

static int dial(uint16_t port)
{
    const struct sockaddr_in here = { .sin_family = AF_INET,
                                      .sin_port = htons(port),
                                      .sin_addr = { htonl(INADDR_LOOPBACK) } };
    const struct sockaddr_in address = reached.sin_family == AF_INET ? reached : here;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* With which the next wait for the end and for who asked fails; 0: with none. */
static _Atomic int next_errno;

/* Not by __typeof__: what libc says of poll includes that it only writes. */
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    const bool waits = n == 2 && fds[1].events == POLLRDHUP;
    const int error = waits ? atomic_exchange(&next_errno, 0) : 0;

    if (error == 0)
        return __real_poll(fds, n, timeout);
    errno = error;
    return -1;
}

/* Until the server closes. (transfer full) */
static char *read_all(int fd)
{
    GString *const answer = g_string_new(NULL);
    char bytes[512];
    ssize_t n;

    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        g_string_append_len(answer, bytes, n);
    close(fd);
    return g_string_free(answer, FALSE);
}

/* All that comes until the server closes. (transfer full) */
static char *ask(uint16_t port, const char *request)
{
    const int fd = dial(port);

    ck_assert_int_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    return read_all(fd);
}

/* The head and the line of text of an answer. */
static void expect(uint16_t port, const char *line, const char *status, const char *text)
{
    g_autofree char *request =
        g_strdup_printf("%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", line);
    g_autofree char *answer = ask(port, request);

    ck_assert_msg(g_str_has_prefix(answer, status), "%s: %s", line, answer);
    ck_assert_msg(g_str_has_suffix(answer, text), "%s: %s", line, answer);
}

static void look(void *user, HealthState *state)
{
    const HealthState *const given = user;

    *state = *given;
    state->text = g_strdup(given->text);
}

static GVariant *tell_nothing(void *user)
{
    (void)user;
    return g_variant_new_array(G_VARIANT_TYPE("{sv}"), NULL, 0);
}

/* Answers at any free port what the state says. */
static Health *begin(HealthState *state)
{
    const HealthSource source = { look, tell_nothing, state };
    GError *error = NULL;
    Health *const health = health_new(0, &source, &error);

    ck_assert_msg(health != NULL, "%s", error != NULL ? error->message : "");
    return health;
}

START_TEST(probe_gets_200_or_503_and_the_reason)
{
    HealthState state = { .is_live = true, .is_ready = false, .text = "waits" };
    Health *const health = begin(&state);

    expect(health_port(health), "GET /live", "HTTP/1.1 200 ", "\r\n\r\nwaits\n");
    expect(health_port(health), "GET /ready", "HTTP/1.1 503 ", "\r\n\r\nwaits\n");
    expect(health_port(health), "HEAD /ready", "HTTP/1.1 503 ", "\r\n\r\n");
    expect(health_port(health), "GET /live?now", "HTTP/1.1 200 ", "waits\n");
    expect(health_port(health), "GET /", "HTTP/1.1 404 ",
           "there are /live, /ready, /status and /end\n");
    expect(health_port(health), "DELETE /live", "HTTP/1.1 405 ",
           "only GET and HEAD are answered\n");
    health_free(health);
}
END_TEST

/* The others are answered while some say nothing, or what is no request. */
START_TEST(probe_is_answered_beside_nonsense)
{
    HealthState state = { .is_live = true, .is_ready = true, .text = "fine" };
    Health *const health = begin(&state);
    int silent[16];
    g_autofree char *long_path = g_strnfill(100000, 'a');
    g_autofree char *long_line = g_strdup_printf("GET /%s HTTP/1.1\r\n\r\n", long_path);
    g_autofree char *refused = NULL, *nonsense = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(silent); i++)
        silent[i] = dial(health_port(health));
    refused = ask(health_port(health), long_line);
    nonsense = ask(health_port(health), "\001\002\r\n\r\n");
    ck_assert_msg(strstr(refused, "200") == NULL && strstr(nonsense, "200") == NULL, "%s %s",
                  refused, nonsense);
    expect(health_port(health), "GET /ready", "HTTP/1.1 200 ", "fine\n");
    expect(health_port(health), "POST /ready", "HTTP/1.1 405 ", "answered\n");
    for (size_t i = 0; i < G_N_ELEMENTS(silent); i++)
        close(silent[i]);
    health_free(health);
}
END_TEST

START_TEST(probe_port_that_is_taken_is_named)
{
    HealthState state = { .text = "" };
    const HealthSource source = { look, tell_nothing, &state };
    Health *const health = begin(&state);
    GError *error = NULL;
    g_autofree char *expected =
        g_strdup_printf("port %u: Address already in use", health_port(health));

    ck_assert(health_new(health_port(health), &source, &error) == NULL);
    ck_assert_int_eq(error->code, RUBATO_ERROR_NETWORK);
    ck_assert_msg(strstr(error->message, expected) != NULL, "%s", error->message);
    g_error_free(error);
    health_free(health);
}
END_TEST

/* ---- the status ---- */

/* What a status says, and a pipe that holds it up. */
typedef struct {
    HealthState state;
    int told[2], go_on[2];
    uint16_t port;
} Slow;

static void look_beside(void *user, HealthState *state)
{
    look(&((Slow *)user)->state, state);
}

static GVariant *tell_slowly(void *user)
{
    const Slow *const slow = user;
    GVariantBuilder status, list;
    char byte = 'x';

    ck_assert_int_eq(write(slow->told[1], &byte, 1), 1);
    ck_assert_int_eq(read(slow->go_on[0], &byte, 1), 1);
    g_variant_builder_init(&list, G_VARIANT_TYPE("aa{sv}"));
    g_variant_builder_init(&status, G_VARIANT_TYPE("a{sv}"));
    g_variant_builder_add(&status, "{sv}", "name", g_variant_new_string("\"a\" \n ü"));
    g_variant_builder_add(&status, "{sv}", "count", g_variant_new_int64(INT64_MAX));
    g_variant_builder_add(&status, "{sv}", "list", g_variant_builder_end(&list));
    return g_variant_builder_end(&status);
}

static void *ask_for_status(void *user)
{
    return ask(((const Slow *)user)->port,
               "GET /status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
}

/* The probe is answered while the status waits for the case, which waits for the probe. */
START_TEST(probe_is_answered_while_a_status_is_made)
{
    Slow slow = { .state = { .is_live = true, .is_ready = true, .text = "fine" } };
    const HealthSource source = { look_beside, tell_slowly, &slow };
    Health *const health = health_new(0, &source, NULL);
    char byte = 'x';

    ck_assert(health != NULL);
    slow.port = health_port(health);
    ck_assert_int_eq(pipe(slow.told), 0);
    ck_assert_int_eq(pipe(slow.go_on), 0);
    GThread *const thread = g_thread_new("asker", ask_for_status, &slow);
    ck_assert_int_eq(read(slow.told[0], &byte, 1), 1);
    expect(slow.port, "GET /live", "HTTP/1.1 200 ", "fine\n");
    ck_assert_int_eq(write(slow.go_on[1], &byte, 1), 1);
    g_autofree char *answer = g_thread_join(thread);
    ck_assert_msg(g_str_has_prefix(answer, "HTTP/1.1 200 "), "%s", answer);
    ck_assert_msg(strstr(answer, "Content-Type: application/json\r\n") != NULL, "%s", answer);
    ck_assert_msg(g_str_has_suffix(answer, "\r\n\r\n{\"name\":\"\\\"a\\\" \\n ü\","
                                           "\"count\":9223372036854775807,\"list\":[]}\n"),
                  "%s", answer);
    health_free(health);
}
END_TEST

/* Of one more than may wait, one is refused. So the others wait when its answer comes. */
START_TEST(end_is_told_to_all_that_wait_for_it)
{
    static const char request[] = "GET /end HTTP/1.0\r\n\r\n";
    HealthState state = { .is_live = true, .is_ready = true, .text = "fine" };
    Health *const health = begin(&state);
    struct pollfd fds[9];
    unsigned n_told = 0, n_refused = 0;

    atomic_store(&next_errno, EINTR); /* whoever waits first goes on waiting */
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        fds[i] = (struct pollfd){ .fd = dial(health_port(health)), .events = POLLIN };
        ck_assert_int_eq(write(fds[i].fd, request, strlen(request)), (ssize_t)strlen(request));
    }
    ck_assert_int_eq(poll(fds, G_N_ELEMENTS(fds), -1), 1);
    expect(health_port(health), "GET /live", "HTTP/1.1 200 ", "fine\n");
    health_free(health);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        g_autofree char *answer = read_all(fds[i].fd);

        n_told += strstr(answer, " 200 OK\r\n") != NULL && strstr(answer, "\r\n\r\n{}\n") != NULL;
        n_refused += strstr(answer, " 503 ") != NULL;
    }
    ck_assert_uint_eq(n_told, 8);
    ck_assert_uint_eq(n_refused, 1);
}
END_TEST

/* Without memory to wait, who asked loses the connection. */
START_TEST(who_cannot_wait_for_the_end_loses_the_connection)
{
    HealthState state = { .is_live = true, .is_ready = true, .text = "fine" };
    Health *const health = begin(&state);

    atomic_store(&next_errno, ENOMEM);
    g_autofree char *answer = ask(health_port(health), "GET /end HTTP/1.0\r\n\r\n");
    ck_assert_str_eq(answer, "");
    health_free(health);
}
END_TEST

/* The status waits for the case; the probe is answered beside as many as may ask. */
START_TEST(askers_for_the_status_leave_connections_for_probes)
{
    static const char request[] = "GET /status HTTP/1.0\r\n\r\n";
    Slow slow = { .state = { .is_live = true, .is_ready = true, .text = "fine" } };
    const HealthSource source = { look_beside, tell_slowly, &slow };
    Health *const health = health_new(0, &source, NULL);
    int fds[8];
    char bytes[8] = { 0 };

    ck_assert(health != NULL);
    ck_assert_int_eq(pipe(slow.told), 0);
    ck_assert_int_eq(pipe(slow.go_on), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        fds[i] = dial(health_port(health));
        ck_assert_int_eq(write(fds[i], request, strlen(request)), (ssize_t)strlen(request));
        ck_assert_int_eq(read(slow.told[0], bytes, 1), 1);
    }
    expect(health_port(health), "GET /status", "HTTP/1.1 503 ", "ask again\n");
    expect(health_port(health), "GET /live", "HTTP/1.1 200 ", "fine\n");
    ck_assert_int_eq(write(slow.go_on[1], bytes, sizeof bytes), sizeof bytes);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        g_autofree char *answer = read_all(fds[i]);

        ck_assert_msg(strstr(answer, " 200 OK\r\n") != NULL, "%s", answer);
    }
    health_free(health);
}
END_TEST

/* An address of this host that others can reach too; false: it has none. */
static bool find_outer_address(struct sockaddr_in *address)
{
    struct ifaddrs *list = NULL;
    bool found = false;

    ck_assert_int_eq(getifaddrs(&list), 0);
    for (const struct ifaddrs *at = list; at != NULL && !found; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET ||
            (at->ifa_flags & IFF_LOOPBACK) != 0 || (at->ifa_flags & IFF_UP) == 0)
            continue;
        memcpy(address, at->ifa_addr, sizeof *address);
        found = true;
    }
    freeifaddrs(list);
    return found;
}

START_TEST(status_is_for_this_host_alone_and_probes_are_not)
{
    HealthState state = { .is_live = true, .is_ready = true, .text = "fine" };
    Health *const health = begin(&state);
    struct sockaddr_in outer = { .sin_family = AF_INET };
    const bool has_outer = find_outer_address(&outer);

    expect(health_port(health), "GET /status", "HTTP/1.1 200 ", "\r\n\r\n{}\n");
    if (has_outer) {
        outer.sin_port = htons(health_port(health));
        reached = outer;
        expect(health_port(health), "GET /status", "HTTP/1.1 403 ", "ask there, as by ssh\n");
        expect(health_port(health), "GET /end", "HTTP/1.1 403 ", "ask there, as by ssh\n");
        expect(health_port(health), "GET /live", "HTTP/1.1 200 ", "fine\n");
    } else {
        g_print("this host has no address but that of itself\n");
    }
    health_free(health);
}
END_TEST

START_TEST(engine_refuses_a_port_of_probes_that_makes_no_sense)
{
    const RubatoEngineConfig config = { .servers = 1 };
    GError *error = NULL;

    g_setenv(HEALTH_VARIABLE, "65536", TRUE);
    ck_assert(rubato_engine_new(&config, &error) == NULL);
    ck_assert_int_eq(error->code, RUBATO_ERROR_INVALID);
    ck_assert_msg(strstr(error->message, "RUBATO_HEALTH is \"65536\"") != NULL, "%s",
                  error->message);
    g_error_free(error);
}
END_TEST

START_TEST(engine_is_ready_until_its_run_breaks)
{
    const RubatoEngineConfig config = { .servers = 1 };
    GError *error = NULL;

    g_setenv(HEALTH_VARIABLE, "0", TRUE);
    RubatoEngine *const engine = rubato_engine_new(&config, &error);
    ck_assert_msg(engine != NULL, "%s", error != NULL ? error->message : "");
    const uint16_t port = health_port(engine->health);
    expect(port, "GET /ready", "HTTP/1.1 200 ", "node 0 takes part in its run\n");
    expect(port, "GET /live", "HTTP/1.1 200 ", "node 0 takes part in its run\n");
    engine_break(engine, RUBATO_ERROR_NODE_LOST, "node 1 was lost");
    expect(port, "GET /ready", "HTTP/1.1 503 ", "node 1 was lost\n");
    expect(port, "GET /live", "HTTP/1.1 503 ", "node 1 was lost\n");
    rubato_engine_free(engine);
}
END_TEST

/* Writes the port of the line "probes are answered at port N" into a pipe. */
static void take_port(RubatoLogLevel level G_GNUC_UNUSED, const char *text,
                      RubatoEngine *engine G_GNUC_UNUSED, void *user_data)
{
    static const char before[] = "probes are answered at port ";
    const char *const found = strstr(text, before);

    if (found == NULL)
        return;

    const uint16_t port = (uint16_t)atoi(found + strlen(before));

    ck_assert_int_eq(write(*(const int *)user_data, &port, sizeof port), sizeof port);
}

/* Nobody listens there. The wait ends by a signal. */
static void *make_node(void *user)
{
    const RubatoAnnouncement announcement = { .role = RUBATO_ROLE_NODE,
                                              .scheduler = "127.0.0.1:1",
                                              .node = 1,
                                              .nodes = 2,
                                              .servers = 1,
                                              .settings = "rendezvous_ms = 100000;" };
    const RubatoEngineConfig config = {
        .announcement = &announcement, .handle_signals = true, .log = take_port, .log_data = user
    };
    GError *error = NULL;

    ck_assert(rubato_engine_new(&config, &error) == NULL);
    return error;
}

START_TEST(engine_is_live_and_not_ready_while_it_waits)
{
    int ends[2];
    uint16_t port;
    sigset_t term;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    g_setenv(HEALTH_VARIABLE, "0", TRUE);
    ck_assert_int_eq(pipe(ends), 0);
    GThread *const thread = g_thread_new("node", make_node, &ends[1]);
    ck_assert_int_eq(read(ends[0], &port, sizeof port), sizeof port);
    expect(port, "GET /live", "HTTP/1.1 200 ", "this node waits for the other nodes of its run\n");
    expect(port, "GET /ready", "HTTP/1.1 503 ", "this node waits for the other nodes of its run\n");
    kill(getpid(), SIGTERM);
    g_autoptr(GError) error = g_thread_join(thread);
    ck_assert_int_eq(error->code, RUBATO_ERROR_CANCELLED);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("health");
    TCase *tcase = tcase_create("probes");

    tcase_add_test(tcase, probe_gets_200_or_503_and_the_reason);
    tcase_add_test(tcase, probe_is_answered_beside_nonsense);
    tcase_add_test(tcase, probe_port_that_is_taken_is_named);
    tcase_add_test(tcase, probe_is_answered_while_a_status_is_made);
    tcase_add_test(tcase, end_is_told_to_all_that_wait_for_it);
    tcase_add_test(tcase, who_cannot_wait_for_the_end_loses_the_connection);
    tcase_add_test(tcase, askers_for_the_status_leave_connections_for_probes);
    tcase_add_test(tcase, status_is_for_this_host_alone_and_probes_are_not);
    tcase_add_test(tcase, engine_refuses_a_port_of_probes_that_makes_no_sense);
    tcase_add_test(tcase, engine_is_ready_until_its_run_breaks);
    tcase_add_test(tcase, engine_is_live_and_not_ready_while_it_waits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
