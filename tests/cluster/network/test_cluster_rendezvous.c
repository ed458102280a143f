/* How nodes meet, and what prevents it: missing nodes, busy ports, a node that is started twice,
 * other files, other versions, unknown ids. */
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/control/control.h"
#include "io/net/transport/transport_ops.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

static const ClusterShape TWO = { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } };

static int gate[2]; /* made by the case: a node that reads from it waits for the case */

static bool meet(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return rubato_engine_barrier(engine, error);
}

/* Stays in the run until the case opens the gate. */
static bool meet_and_stay(RubatoEngine *engine, const void *data, GError **error)
{
    char byte;

    if (!meet(engine, data, error))
        return false;
    cluster_say("met");
    EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    return meet(engine, data, error);
}

static void expect_refused(ClusterRun *run, uint32_t process, RubatoError code, const char *text)
{
    g_autofree char *start = g_strdup_printf("error %d: ", (int)code);

    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, start);
    cluster_expect_text(run, process, text);
}

/* ---- missing ---- */

START_TEST(who_does_not_come_is_named_by_those_who_wait)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 4,
                                         .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
                                         .stall_ms = 200,
                                         .rendezvous_ms = 3000 });
    const char *const text =
        "node 7 (127.0.0.1:0) and node 41 (127.0.0.1:0) did not come within 3 s";

    cluster_start_node(run, 0, meet, NULL);
    cluster_start_node(run, 2, meet, NULL);
    cluster_wait_for(run, 2, "node 20 waits for the scheduler at 127.0.0.1:");
    expect_refused(run, 0, RUBATO_ERROR_NODE_LOST, text);
    expect_refused(run, 2, RUBATO_ERROR_NODE_LOST, text);
    cluster_expect_text(run, 0, "missing: node 7 (127.0.0.1:0) and node 41 (127.0.0.1:0)\n");
    cluster_run_free(run);
}
END_TEST

START_TEST(without_a_scheduler_a_node_says_where_it_looked)
{
    ClusterShape shape = TWO;
    ClusterRun *run;

    shape.rendezvous_ms = 200;
    shape.timeout_ms = 500;
    run = cluster_run_new(&shape);
    cluster_start_node(run, 1, meet, NULL);
    expect_refused(run, 1, RUBATO_ERROR_NETWORK,
                   "node 7: no answer of the scheduler at 127.0.0.1:");
    cluster_expect_text(run, 1, "; is node 3 running?");
    cluster_run_free(run);
}
END_TEST

START_TEST(a_node_may_come_late)
{
    ClusterShape shape = TWO;
    ClusterRun *run;
    const uint32_t late = (uint32_t)_i;

    shape.stall_ms = 200;
    run = cluster_run_new(&shape);
    cluster_start_node(run, 1 - late, meet, NULL);
    cluster_wait_for(run, 1 - late,
                     late == 0
                         ? "node 7 waits for the scheduler at 127.0.0.1:"
                         : "the run begins once all are here; missing: node 7 (127.0.0.1:0)\n");
    cluster_start_node(run, late, meet, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* Dies before all are there; the scheduler misses it, and takes another in its place. */
START_TEST(a_node_may_die_and_come_anew_before_the_run_begins)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 3,
                                         .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 } },
                                         .stall_ms = 100,
                                         .heartbeat_ms = 100,
                                         .timeout_ms = cluster_short_timeout_ms() * 3 / 2 });

    cluster_start_node(run, 0, meet, NULL);
    cluster_wait_for(run, 0, "missing: node 7 (127.0.0.1:0) and node 20 (127.0.0.1:0)\n");
    cluster_start_node(run, 1, meet, NULL);
    cluster_wait_for(run, 0, "missing: node 20 (127.0.0.1:0)\n");
    cluster_signal(run, 1, SIGKILL);
    cluster_expect_end(run, 1, -SIGKILL);
    g_string_truncate(run->processes[0].text, 0);
    cluster_wait_for(run, 0, "missing: node 7 (127.0.0.1:0) and node 20 (127.0.0.1:0)\n");
    cluster_start_node(run, 2, meet, NULL);
    const uint32_t anew = cluster_start_other(run, 7, run->path, meet, NULL);
    cluster_expect_end(run, anew, EXIT_SUCCESS);
    cluster_expect_end(run, 0, EXIT_SUCCESS);
    cluster_expect_end(run, 2, EXIT_SUCCESS);
    cluster_run_free(run);
}
END_TEST

/* How a node ends before the run begins, and what the others hear. docs/liveness.md: A node that
 * dies */
static const struct {
    uint32_t victim;
    int number;
    RubatoError code;
    const char *text;
} ends[] = {
    { 1, SIGKILL, RUBATO_ERROR_NODE_LOST,
      "node 7 (127.0.0.1:0) was lost before the run began: nothing heard from it for" },
    { 1, SIGTERM, RUBATO_ERROR_NODE_LOST,
      "node 7 (127.0.0.1:0) ended before the run began: node 7 was ended by signal 15" },
    { 0, SIGTERM, RUBATO_ERROR_CANCELLED, "node 3 was ended by signal 15" },
    { 0, SIGKILL, RUBATO_ERROR_NODE_LOST,
      "node 7: the scheduler at 127.0.0.1:%u was lost before the run began: the connection to it "
      "broke, and for " },
};

START_TEST(a_node_that_ends_before_the_run_begins_ends_it_for_all)
{
    const uint32_t victim = ends[_i].victim, other = 1 - victim;
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 3,
                                                       .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 } },
                                                       .stall_ms = 100,
                                                       .heartbeat_ms = 100,
                                                       .timeout_ms = cluster_short_timeout_ms(),
                                                       .handle_signals = true });
    g_autofree char *port = g_strdup_printf("%u", run->port);
    g_autoptr(GString) text = g_string_new(ends[_i].text);

    g_string_replace(text, "%u", port, 0);
    cluster_start_node(run, 0, meet, NULL);
    cluster_start_node(run, 1, meet, NULL);
    cluster_wait_for(run, 0, "missing: node 20 (127.0.0.1:0)\n");
    cluster_signal(run, victim, ends[_i].number);
    expect_refused(run, other, ends[_i].code, text->str);
    if (ends[_i].number == SIGTERM)
        expect_refused(run, victim, RUBATO_ERROR_CANCELLED, "signal 15");
    cluster_run_free(run);
}
END_TEST

/* The thread that takes signals gets the processor only when no other thread wants it. */
static void hold_signals_up(void)
{
    g_autoptr(GDir) threads = g_dir_open("/proc/self/task", 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(threads)) != NULL) {
        g_autofree char *path = g_strdup_printf("/proc/self/task/%s/comm", name);
        g_autofree char *comm = NULL;

        if (g_file_get_contents(path, &comm, NULL, NULL) && strcmp(comm, "signals\n") == 0)
            sched_setscheduler(atoi(name), SCHED_IDLE, &(struct sched_param){ 0 });
    }
}

/* Signals this process once its engine waits for the others. */
static void *signal_who_waits(void *data)
{
    const int waiting = *(const int *)data;
    char byte;

    ck_assert_int_eq(read(waiting, &byte, 1), 1);
    hold_signals_up();
    kill(getpid(), SIGTERM);
    return NULL;
}

static void tell_waiting(const char *domain, GLogLevelFlags level, const char *message,
                         gpointer data)
{
    (void)domain;
    (void)level;
    if (strstr(message, "missing: ") != NULL)
        ck_assert_int_eq(write(*(const int *)data, "w", 1), 1);
}

/* The engine is freed while the thread that breaks it has not ended yet. */
START_TEST(a_signal_that_ends_the_rendezvous_finds_all_that_it_breaks)
{
    ClusterShape shape = TWO;
    ClusterRun *run;
    cpu_set_t one;
    sigset_t term;

    sigemptyset(&term); /* for the thread that signals alone: the engine blocks it for all others */
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    shape.stall_ms = 20;
    run = cluster_run_new(&shape);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    for (uint32_t i = 0; i < 10; i++) {
        GError *error = NULL;
        pthread_t thread;
        int waiting[2];

        ck_assert_int_eq(pipe(waiting), 0);
        g_log_set_default_handler(tell_waiting, &waiting[1]);
        ck_assert_int_eq(pthread_create(&thread, NULL, signal_who_waits, &waiting[0]), 0);
        ck_assert_ptr_null(rubato_engine_new(
            &(RubatoEngineConfig){ .cluster_file = run->path, .node = 3, .handle_signals = true },
            &error));
        ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED));
        pthread_join(thread, NULL);
        close(waiting[0]);
        close(waiting[1]);
        g_clear_error(&error);
    }
    cluster_run_free(run);
}
END_TEST

/* Within the timeout another process may be the scheduler's node: the others meet that. */
START_TEST(the_schedulers_node_may_die_and_come_anew_before_the_run_begins)
{
    ClusterShape shape = TWO;
    ClusterRun *run;

    shape.n_nodes = 3;
    shape.nodes[2] = shape.nodes[1];
    shape.stall_ms = 100;
    shape.timeout_ms = 15000;
    run = cluster_run_new(&shape);
    cluster_start_node(run, 0, meet, NULL);
    cluster_start_node(run, 1, meet, NULL);
    cluster_wait_for(run, 0, "missing: node 20 (127.0.0.1:0)\n");
    cluster_signal(run, 0, SIGKILL);
    cluster_expect_end(run, 0, -SIGKILL);
    const uint32_t anew = cluster_start_other(run, 3, run->path, meet, NULL);
    cluster_wait_for(run, anew, "missing: node 20 (127.0.0.1:0)\n");
    cluster_start_node(run, 2, meet, NULL);
    cluster_expect_end(run, anew, EXIT_SUCCESS);
    cluster_expect_end(run, 1, EXIT_SUCCESS);
    cluster_expect_end(run, 2, EXIT_SUCCESS);
    cluster_run_free(run);
}
END_TEST

/* ---- ports ---- */

static uint16_t listen_somewhere(int *fd)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof address;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(*fd, 0);
    ck_assert_int_eq(bind(*fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(*fd, 5), 0);
    ck_assert_int_eq(getsockname(*fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

START_TEST(a_busy_port_is_named)
{
    const bool of_scheduler = _i == 0;
    ClusterRun *run = cluster_run_new(&TWO);
    int fd;
    const uint16_t port = listen_somewhere(&fd);
    g_autofree char *text =
        g_strdup_printf("cluster: { scheduler = { host = \"127.0.0.1\"; port = %u; };\n"
                        "nodes = ( { id = 3; host = \"127.0.0.1\"; port = %u; } ); };\n",
                        of_scheduler ? port : run->port, of_scheduler ? 0 : port);
    g_autofree char *expected =
        g_strdup_printf("node 3: cannot bind tcp://127.0.0.1:%u: Address already in use; another "
                        "program, or another node, has it: choose another port, or 0",
                        port);

    cluster_start_node_with(run, 0, cluster_add_file(run, text), meet, NULL);
    expect_refused(run, 0, RUBATO_ERROR_NETWORK, expected);
    close(fd);
    cluster_run_free(run);
}
END_TEST

/* ---- twice ---- */

START_TEST(a_node_that_is_started_twice_is_refused_and_the_run_goes_on)
{
    const uint32_t number = (uint32_t)_i;
    ClusterRun *run = cluster_run_new(&TWO);
    uint32_t second;

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, meet_and_stay, NULL);
    cluster_wait_for(run, 0, "met");
    cluster_wait_for(run, 1, "met");
    second = cluster_start_other(run, CLUSTER_IDS[number], run->path, meet, NULL);
    if (number == 0)
        expect_refused(run, second, RUBATO_ERROR_NETWORK, "Address already in use");
    else
        expect_refused(run, second, RUBATO_ERROR_INVALID, "node 7 was started twice: ");
    ck_assert_int_eq(write(gate[1], "xx", 2), 2);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

START_TEST(an_id_that_is_not_in_the_file_is_refused)
{
    ClusterRun *run = cluster_run_new(&TWO);
    const uint32_t process = cluster_start_other(run, 99, run->path, meet, NULL);

    expect_refused(run, process, RUBATO_ERROR_CONFIG,
                   "there is no node 99 in it; give --node one of its ids");
    cluster_run_free(run);
}
END_TEST

/* ---- other files, other versions ---- */

static const ClusterShape TWO_IN_HASTE = { .n_nodes = 2,
                                           .nodes = { { 1, 1 }, { 1, 1 } },
                                           .rendezvous_ms = 3000 };

START_TEST(another_file_is_refused_with_both_digests_on_every_node)
{
    ClusterRun *run = cluster_run_new(&TWO_IN_HASTE);
    g_autofree char *text = cluster_file_text(run);
    g_autofree char *other = g_strconcat(text, "# mine\n", NULL);
    g_autofree char *here = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
    g_autofree char *there = g_compute_checksum_for_string(G_CHECKSUM_SHA256, other, -1);
    g_autofree char *expected = g_strdup_printf(
        "runs with another cluster file than the scheduler: digest %.12s there, %.12s here", there,
        here);

    cluster_start_node(run, 0, meet, NULL);
    cluster_start_node_with(run, 1, cluster_add_file(run, other), meet, NULL);
    expect_refused(run, 0, RUBATO_ERROR_MISMATCH, expected);
    expect_refused(run, 1, RUBATO_ERROR_MISMATCH, expected);
    cluster_run_free(run);
}
END_TEST

/* A greeting made by hand, as a node of another build would send it. */
typedef struct {
    uint16_t port; /* of the scheduler */
    uint16_t version;
    uint32_t node;
    const char *digest;
} Greeter;

static Packet *make_greeting(const Greeter *greeter, const char *endpoint)
{
    const Control hello = { .kind = CONTROL_HELLO,
                            .hello = { .node_id = greeter->node,
                                       .number = 1,
                                       .digest = greeter->digest,
                                       .incarnation = 12345,
                                       .endpoints = endpoint,
                                       .description = "somebody" } };
    g_autoptr(GVariant) body = control_greeting(&hello);
    g_autoptr(GVariant) boxed = g_variant_ref_sink(g_variant_new_variant(body));
    const gsize size = g_variant_get_size(boxed);
    Packet *packet = packet_new(WIRE_PREFIX_BYTES + size);

    wire_write_greeting_prefix(packet->bytes, greeter->version, (uint32_t)size);
    g_variant_store(boxed, packet->bytes + WIRE_PREFIX_BYTES);
    return packet;
}

/* Prints the text of the answer. */
static void say_answer(const Received *received)
{
    g_auto(Control) control = { 0 };
    size_t body_bytes;

    if (wire_read_greeting(received->bytes, received->size, &body_bytes) != NULL)
        return;
    g_autoptr(GBytes) bytes = g_bytes_new(received->bytes + WIRE_PREFIX_BYTES, body_bytes);
    g_autoptr(GVariant) boxed =
        g_variant_ref_sink(g_variant_new_from_bytes(G_VARIANT_TYPE_VARIANT, bytes, FALSE));
    g_autoptr(GVariant) body = g_variant_get_variant(boxed);
    if (control_decode_greeting(body, &control, NULL))
        cluster_say("%s: %s", control_kind_name(control.kind), control.refuse.text);
}

static int greet(const void *data)
{
    const Greeter *greeter = data;
    g_autofree char *scheduler = g_strdup_printf("tcp://127.0.0.1:%u", greeter->port);
    g_autofree char *own = NULL;
    const ChannelTarget target = { .node = HANDSHAKE_ANY_NODE, .greets = true };
    Transport *transport =
        transport_tcp.create(&(TransportConfig){ .n_nodes = 2, .timeout_ms = 3000 }, NULL);
    Received received;
    Channel *channel;
    Packet *packet;

    if (transport == NULL || !transport_tcp.bind(transport, "tcp://127.0.0.1:0", &own, NULL) ||
        (channel = transport_tcp.connect(transport, scheduler, &target, NULL)) == NULL)
        return 1;
    packet = make_greeting(greeter, own);
    channel->ops->send(channel, packet);
    while (!transport_tcp.receive(transport, &received)) {
        (void)channel->ops->state(channel); /* it may have to try again to connect */
        g_thread_yield();
    }
    say_answer(&received);
    received.ops->release(&received);
    channel->ops->close(channel, 0);
    packet_unref(packet);
    transport_tcp.destroy(transport);
    return 0;
}

#define ANOTHER_VERSION 999
#define OTHER_VERSION                                                  \
    "node 7 (somebody) speaks wire version " G_STRINGIFY(              \
        ANOTHER_VERSION) ", the "                                      \
                         "scheduler speaks wire version " G_STRINGIFY( \
                             WIRE_VERSION) ": start every node with "  \
                                           "the same build of Rubato"

START_TEST(another_wire_version_is_refused_by_name)
{
    ClusterRun *run = cluster_run_new(&TWO_IN_HASTE);
    const Greeter greeter = { run->port, ANOTHER_VERSION, 7, "whatever" };
    uint32_t stranger;

    cluster_start_node(run, 0, meet, NULL);
    stranger = cluster_start_process(run, greet, &greeter);
    cluster_expect_end(run, stranger, EXIT_SUCCESS);
    cluster_expect_text(run, stranger, "REFUSE: " OTHER_VERSION "\n");
    expect_refused(run, 0, RUBATO_ERROR_MISMATCH, OTHER_VERSION);
    cluster_run_free(run);
}
END_TEST

/* A greeting, and a REFUSE, from another cluster that shares the port by accident: the run begins
 * nevertheless. */
START_TEST(wrong_greetings_do_not_keep_a_run_from_beginning)
{
    ClusterRun *run = cluster_run_new(&TWO);
    const Greeter greeters[] = { { run->port, WIRE_VERSION, 7, "other" },
                                 { run->port, ANOTHER_VERSION, 7, "other" },
                                 { run->port, WIRE_VERSION, 3, "other" } };

    cluster_start_node(run, 0, meet, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(greeters); i++) {
        const uint32_t stranger = cluster_start_process(run, greet, &greeters[i]);

        cluster_expect_end(run, stranger, EXIT_SUCCESS);
        cluster_expect_text(run, stranger, "REFUSE: node ");
    }
    cluster_wait_for(run, 0, "refused a greeting: node ");
    cluster_start_node(run, 1, meet, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* A node that greets a run that has begun is refused, and the run goes on. */
START_TEST(greetings_to_a_run_that_has_begun_change_nothing)
{
    ClusterRun *run = cluster_run_new(&TWO);
    g_autofree char *text = cluster_file_text(run);
    g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
    const struct {
        Greeter greeter;
        const char *answer;
    } greetings[] = {
        { { run->port, ANOTHER_VERSION, 7, digest }, "REFUSE: " OTHER_VERSION },
        { { run->port, WIRE_VERSION, 7, digest }, "REFUSE: node 7 was started twice: " },
        { { run->port, WIRE_VERSION, 7, "other" }, "REFUSE: node 7 (somebody) runs with another " },
        { { run->port, WIRE_VERSION, 99, digest },
          "REFUSE: there is no node 99 in the cluster file; its nodes are 3, 7\n" },
        { { run->port, WIRE_VERSION, 3, digest },
          "REFUSE: node 3 (somebody) takes itself for number 1 of the nodes, but is number 0\n" },
    };

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, meet_and_stay, NULL);
    cluster_wait_for(run, 0, "met");
    for (size_t i = 0; i < G_N_ELEMENTS(greetings); i++) {
        const uint32_t stranger = cluster_start_process(run, greet, &greetings[i].greeter);

        cluster_expect_end(run, stranger, EXIT_SUCCESS);
        cluster_expect_text(run, stranger, greetings[i].answer);
    }
    ck_assert_int_eq(write(gate[1], "xx", 2), 2);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *rendezvous_suite(void)
{
    Suite *suite = suite_create("rendezvous");
    TCase *missing = cluster_add_case(suite, "missing");
    TCase *ports = cluster_add_case(suite, "ports");
    TCase *twice = cluster_add_case(suite, "twice");
    TCase *others = cluster_add_case(suite, "others");

    tcase_add_test(missing, who_does_not_come_is_named_by_those_who_wait);
    tcase_add_test(missing, without_a_scheduler_a_node_says_where_it_looked);
    tcase_add_loop_test(missing, a_node_may_come_late, 0, 2);
    tcase_add_test(missing, a_node_may_die_and_come_anew_before_the_run_begins);
    tcase_add_test(missing, a_signal_that_ends_the_rendezvous_finds_all_that_it_breaks);
    tcase_add_loop_test(missing, a_node_that_ends_before_the_run_begins_ends_it_for_all, 0,
                        (int)G_N_ELEMENTS(ends));
    tcase_add_test(missing, the_schedulers_node_may_die_and_come_anew_before_the_run_begins);
    tcase_add_loop_test(ports, a_busy_port_is_named, 0, 2);
    tcase_add_loop_test(twice, a_node_that_is_started_twice_is_refused_and_the_run_goes_on, 0, 2);
    tcase_add_test(twice, an_id_that_is_not_in_the_file_is_refused);
    tcase_add_test(others, another_file_is_refused_with_both_digests_on_every_node);
    tcase_add_test(others, another_wire_version_is_refused_by_name);
    tcase_add_test(others, wrong_greetings_do_not_keep_a_run_from_beginning);
    tcase_add_test(others, greetings_to_a_run_that_has_begun_change_nothing);
    return suite;
}

int main(void)
{
    return run_suite(rendezvous_suite());
}
