/* Runs without a cluster file: nodes that announce themselves, and what prevents that. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cluster/own_address.h"
#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* A process of a run. Variables that are NULL are not set. */
typedef struct {
    const char *role;
    const char *servers, *workers;
    const char *threads, *node, *nodes, *spares, *interface, *settings, *secret;
    const char *data;    /* the node says whether links have this address; NULL: it does not */
    const char *program; /* a program of the build that `rubato ROLE` starts; NULL: play */
    bool stays;          /* in the run until the gate opens */
    bool outlives;       /* its table has replicas, and it has a task with a worker that stays */
    bool goes_on;        /* it has a task that goes on without lost workers, and one more */
    const char *catch_up;
} Node;

static int gate[2]; /* a node that stays in the run reads from it */
static char scheduler_text[64];

/* The harness holds a port; its cluster file is not used. */
static ClusterRun *run_new(void)
{
    static const ClusterShape shape = { .n_nodes = 1, .nodes = { { 1, 1 } } };
    ClusterRun *const run = cluster_run_new(&shape);

    g_snprintf(scheduler_text, sizeof scheduler_text, "127.0.0.1:%u", run->port);
    ck_assert_int_eq(pipe(gate), 0);
    return run;
}

static void set(const char *name, const char *value)
{
    if (value != NULL)
        g_setenv(name, value, TRUE);
    else
        g_unsetenv(name);
}

static bool add_one(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 0, 1, 2, 3 };
    const float ones[] = { 1, 1, 1, 1 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "sums", RUBATO_F32, error);

    (void)user_data;
    return table != NULL && rubato_kv_table_add(table, keys, 4, ones, error) &&
           rubato_kv_table_clock(table, error);
}

/* Whether a connection of this machine has the address at one of its ends. The kernel writes it as
 * a number in the host's order of bytes. */
static bool has_connection(const char *address)
{
    g_autofree char *connections = NULL;
    g_autofree char *end = NULL;
    struct in_addr number;

    if (inet_pton(AF_INET, address, &number) != 1 ||
        !g_file_get_contents("/proc/self/net/tcp", &connections, NULL, NULL))
        return false;
    end = g_strdup_printf(" %08X:", number.s_addr);
    g_auto(GStrv) lines = g_strsplit(connections, "\n", -1);
    for (char **line = lines; *line != NULL; line++)
        if (strstr(*line, end) != NULL && strstr(*line, " 01 ") != NULL) /* it is established */
            return true;
    return false;
}

/* Once the gate is open, all parts can be read: they are on processes that live. */
static bool stay_and_add(RubatoWorker *worker, void *user_data, GError **error)
{
    char byte;

    cluster_say("stays");
    EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    return add_one(worker, user_data, error);
}

/* Says what the run has, adds from each worker, and expects the sum. */
static bool play(RubatoEngine *engine, const Node *node, GError **error)
{
    const RubatoTableSpec spec = { .name = "sums",
                                   .dtype = RUBATO_F32,
                                   .width = 1,
                                   .n_keys = 4,
                                   .storage = "dense",
                                   .model = "bsp",
                                   .parts = node->outlives ? 4 : 0,
                                   .replicas = node->outlives };
    const char *const tables[] = { "sums", NULL };
    const RubatoTask task = { .name = "add",
                              .run = node->outlives ? stay_and_add : add_one,
                              .tables = tables };
    const RubatoKey key = 3;
    float sum;
    char byte;

    cluster_say("node %u of %u: %u servers, %u workers", rubato_engine_node(engine),
                rubato_engine_n_nodes(engine), rubato_engine_n_servers(engine),
                rubato_engine_n_workers(engine));
    if (node->stays)
        EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !rubato_engine_run(engine, &task, error) ||
        !rubato_engine_get(engine, "sums", &key, 1, &sum, error))
        return false;
    cluster_say("sum %.0f", (double)sum);
    if (node->data != NULL && has_connection(node->data))
        cluster_say("links are in the network of data");
    return true;
}

static bool run_adding(RubatoEngine *engine, const char *name, RubatoTaskFunc function,
                       GError **error)
{
    static const char *const tables[] = { "sums", NULL };

    return rubato_engine_run(
        engine,
        &(RubatoTask){
            .name = name, .run = function, .tables = tables, .on_loss = RUBATO_ON_LOSS_CONTINUE },
        error);
}

/* A process that catches up does not wait at the gate: the others do so for it. */
static bool play_two_tasks(RubatoEngine *engine, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "sums", .dtype = RUBATO_F32, .n_keys = 4, .replicas = 1
    };
    const RubatoKey key = 3;
    float sum;
    char byte;

    TRY(rubato_engine_create_table(engine, &spec, error) &&
        run_adding(engine, "first", stay_and_add, error));
    if (!rubato_engine_catches_up(engine))
        EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    TRY(run_adding(engine, "second", add_one, error) &&
        rubato_engine_get(engine, "sums", &key, 1, &sum, error));
    cluster_say("sum %.0f", (double)sum);
    return true;
}

static int be_node(const void *data)
{
    const Node *const node = data;
    char *argv_[] = { "app", NULL }, **argv = argv_;
    int argc = 1;
    g_autoptr(GError) error = NULL;

    g_unsetenv("RUBATO_CLUSTER");
    set("RUBATO_ROLE", node->role);
    set("RUBATO_SCHEDULER", scheduler_text);
    set("RUBATO_SERVERS", node->servers);
    set("RUBATO_WORKERS", node->workers);
    set("RUBATO_THREADS", node->threads);
    set("RUBATO_NODE", node->node);
    set("RUBATO_NODES", node->nodes);
    set("RUBATO_SPARES", node->spares);
    set("RUBATO_INTERFACE", node->interface);
    set("RUBATO_SETTINGS", node->settings);
    set("RUBATO_SECRET", node->secret);
    set("RUBATO_CATCH_UP", node->catch_up);
    if (node->program != NULL) {
        g_autofree char *rubato = g_build_filename(TEST_BIN_DIR, "rubato", NULL);
        g_autofree char *program = g_build_filename(TEST_BIN_DIR, node->program, NULL);

        execl(rubato, rubato, node->role, "--", program, (char *)NULL);
        return 127;
    }
    RubatoEngine *const engine = rubato_engine_new_from_args(&argc, &argv, &error);
    if (engine == NULL) {
        cluster_say("error %d: %s", error->code, error->message);
        return CLUSTER_NOT_STARTED;
    }
    const bool good = node->goes_on ? play_two_tasks(engine, &error) : play(engine, node, &error);
    rubato_engine_free(engine);
    if (!good)
        cluster_say("error %d: %s", error->code, error->message);
    return good ? EXIT_SUCCESS : CLUSTER_FAILED;
}

static uint32_t start(ClusterRun *run, const Node *node)
{
    return cluster_start_process(run, be_node, node);
}

static void expect_refused(ClusterRun *run, uint32_t process, const char *text)
{
    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, text);
}

/* A busy machine loses nobody; a node that waits says so soon. */
#define PATIENT "timeout_ms = 60000; stall_ms = 200; "

static const Node SCHEDULER = {
    .role = "scheduler", .servers = "1", .workers = "1", .settings = PATIENT
};
static const Node SERVER = { .role = "server", .settings = PATIENT };
static const Node WORKER = { .role = "worker", .settings = PATIENT };

/* ---- what works ---- */

static const struct {
    const char *settings, *secret;
} ways[] = {
    { PATIENT, NULL },
    { PATIENT "transport = \"tcp\";", NULL },
    { PATIENT "transport = \"shm\";", SECRET },
    { PATIENT "transport = \"ipc\";", NULL },
    { PATIENT "transport = \"zmq\";", NULL },
    { PATIENT "transport = \"tcp\"; encrypt = true;", SECRET },
};

/* Whatever the transport: that is the scheduler's to say. Workers come first, the scheduler
 * last. */
START_TEST(nodes_announce_themselves_and_work_together)
{
    ClusterRun *run = run_new();
    Node scheduler = SCHEDULER, server = SERVER, worker = WORKER;

    scheduler.settings = ways[_i].settings;
    scheduler.workers = "2";
    scheduler.secret = server.secret = worker.secret = ways[_i].secret;
    server.threads = "3";
    worker.threads = "2";
    const uint32_t processes[] = { start(run, &worker), start(run, &server), start(run, &worker),
                                   start(run, &scheduler) };
    for (size_t i = 0; i < G_N_ELEMENTS(processes); i++) {
        cluster_expect_end(run, processes[i], EXIT_SUCCESS);
        cluster_expect_text(run, processes[i], " of 4: 3 servers, 4 workers\n");
        cluster_expect_text(run, processes[i], "sum 4\n");
    }
    cluster_expect_text(run, processes[3], "node 0 of 4");
    cluster_expect_text(run, processes[1], "node 1 of 4");
    cluster_run_free(run);
}
END_TEST

/* Each holds parts of tables and runs workers; node 0 is the scheduler, too. */
START_TEST(equal_nodes_work_together)
{
    ClusterRun *run = run_new();
    const Node nodes[] = {
        { .role = "node", .nodes = "3", .node = "0", .settings = PATIENT, .servers = "2" },
        { .role = "node", .nodes = "3", .node = "1", .settings = PATIENT, .workers = "2" },
        { .role = "node", .nodes = "3", .node = "2", .settings = PATIENT, .servers = "0" },
    };
    uint32_t processes[3];

    for (size_t i = 3; i-- > 0;)
        processes[i] = start(run, &nodes[i]);
    for (size_t i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("node %zu of 3: 3 servers, 4 workers\n", i);

        cluster_expect_end(run, processes[i], EXIT_SUCCESS);
        cluster_expect_text(run, processes[i], name);
        cluster_expect_text(run, processes[i], "sum 4\n");
    }
    cluster_run_free(run);
}
END_TEST

START_TEST(rubato_starts_a_program_in_each_role)
{
    ClusterRun *run = run_new();
    Node scheduler = SCHEDULER, server = SERVER, worker = WORKER;

    scheduler.program = server.program = worker.program = "rubato-hello";
    const uint32_t processes[] = { start(run, &scheduler), start(run, &server),
                                   start(run, &worker) };
    for (size_t i = 0; i < G_N_ELEMENTS(processes); i++) {
        cluster_expect_end(run, processes[i], EXIT_SUCCESS);
        cluster_expect_text(run, processes[i], "key 42: 200\n");
    }
    cluster_run_free(run);
}
END_TEST

/* ---- who is refused ---- */

START_TEST(who_comes_twice_or_too_much_is_refused_and_the_run_goes_on)
{
    ClusterRun *run = run_new();
    Node first = WORKER, again = SERVER, stays = SCHEDULER;

    first.node = again.node = "2";
    stays.stays = true;
    const uint32_t scheduler = start(run, &stays);
    const uint32_t worker = start(run, &first);
    cluster_wait_for(run, scheduler, "0 of 1 servers and 1 of 1 workers are here");
    expect_refused(run, start(run, &again), "node 2 was started twice: ");
    expect_refused(run, start(run, &WORKER), "is one too many");
    const uint32_t server = start(run, &SERVER);
    cluster_wait_for(run, server, "node 1 of 3");
    expect_refused(run, start(run, &SERVER), "is one too many");
    cluster_wait_for(run, worker, "waits for node 0 (127.0.0.1) ["); /* the gate is shut */
    ck_assert_int_eq(write(gate[1], "", 1), 1);
    cluster_expect_end(run, scheduler, EXIT_SUCCESS);
    cluster_expect_end(run, worker, EXIT_SUCCESS);
    cluster_expect_end(run, server, EXIT_SUCCESS);
    cluster_expect_text(run, worker, "node 2 of 3");
    cluster_run_free(run);
}
END_TEST

START_TEST(another_secret_finds_no_scheduler)
{
    ClusterRun *run = run_new();
    Node scheduler = SCHEDULER, worker = WORKER;

    scheduler.secret = SECRET;
    worker.settings = "rendezvous_ms = 300; timeout_ms = 600;";
    const uint32_t process = start(run, &scheduler);
    cluster_wait_for(run, process, "0 of 1 servers and 0 of 1 workers are here");
    expect_refused(run, start(run, &worker), "worker: ");
    cluster_signal(run, process, SIGTERM);
    expect_refused(run, process, "was ended by signal 15");
    cluster_expect_no_text(run, process, "1 of 1 workers");
    cluster_run_free(run);
}
END_TEST

/* ---- who does not come ---- */

/* One gives up; the other has all the time that it needs to say for whom it waits. */
START_TEST(without_a_scheduler_a_node_waits_ends_and_says_where_it_looked)
{
    ClusterRun *run = run_new();
    Node hasty = WORKER;

    hasty.settings = "rendezvous_ms = 300; timeout_ms = 600;";
    const uint32_t process = start(run, &hasty);
    const uint32_t patient = start(run, &SERVER);
    cluster_wait_for(run, patient, "this server waits for the scheduler at 127.0.0.1:");
    cluster_signal(run, patient, SIGTERM);
    expect_refused(run, patient, "this server was ended by signal 15");
    expect_refused(run, process, "worker: no answer of the scheduler at 127.0.0.1:");
    cluster_run_free(run);
}
END_TEST

START_TEST(a_scheduler_that_waits_for_too_long_says_who_is_missing)
{
    ClusterRun *run = run_new();
    Node scheduler = SCHEDULER;

    scheduler.settings = "rendezvous_ms = 300; stall_ms = 100;";
    expect_refused(run, start(run, &scheduler),
                   "only 0 of 1 servers and 0 of 1 workers are here: start the missing ones with "
                   "RUBATO_SCHEDULER=127.0.0.1:");
    cluster_run_free(run);
}
END_TEST

START_TEST(the_end_of_a_scheduler_is_told_to_those_who_wait)
{
    ClusterRun *run = run_new();
    const uint32_t scheduler = start(run, &SCHEDULER);
    const uint32_t worker = start(run, &WORKER);

    cluster_wait_for(run, worker, "0 of 1 servers and 1 of 1 workers are here");
    cluster_signal(run, scheduler, SIGTERM);
    expect_refused(run, scheduler, "the scheduler was ended by signal 15");
    expect_refused(run, worker, "the scheduler was ended by signal 15");
    cluster_run_free(run);
}
END_TEST

/* One says that it ends; the other is killed, and missed. */
START_TEST(a_node_may_end_or_die_and_come_anew_before_the_run_begins)
{
    ClusterRun *run = run_new();
    Node scheduler = SCHEDULER;

    scheduler.settings = "stall_ms = 100; heartbeat_ms = 100; timeout_ms = 2000;";
    const uint32_t process = start(run, &scheduler);
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t worker = start(run, &WORKER);
        const int ends[] = { SIGTERM, SIGKILL };

        cluster_wait_for(run, process, "0 of 1 servers and 1 of 1 workers are here");
        cluster_signal(run, worker, ends[i]);
        cluster_wait_end(run, worker);
        if (ends[i] == SIGTERM)
            cluster_expect_text(run, worker, "this worker was ended by signal 15");
        g_string_truncate(run->processes[process].text, 0);
        cluster_wait_for(run, process, "0 of 1 servers and 0 of 1 workers are here");
        g_string_truncate(run->processes[process].text, 0);
    }
    cluster_signal(run, process, SIGTERM);
    expect_refused(run, process, "was ended by signal 15");
    cluster_run_free(run);
}
END_TEST

/* ---- after a loss ---- */

/* A server is killed, and one that comes later takes its place, at another address. Then the other
 * server is killed: its parts are on that one alone. */
START_TEST(a_server_that_comes_after_a_loss_takes_the_place)
{
    ClusterRun *run = run_new();
    Node scheduler = SCHEDULER, server = SERVER, worker = WORKER;

    scheduler.servers = "2";
    scheduler.outlives = server.outlives = worker.outlives = true;
    scheduler.settings = server.settings = worker.settings = PATIENT;
    const uint32_t leads = start(run, &scheduler), first = start(run, &server),
                   second = start(run, &server), works = start(run, &worker);

    cluster_wait_for(run, works, "stays");
    cluster_signal(run, first, SIGKILL);
    cluster_wait_for(run, leads, "the run goes on, by part map 2");
    server.interface = "127.0.0.2";
    const uint32_t later = start(run, &server);
    cluster_wait_for(run, later, "has taken the place of a lost process");
    cluster_wait_for(run, second, "replicas of its parts on other nodes");
    cluster_signal(run, second, SIGKILL);
    cluster_wait_for(run, leads, "the run goes on, by part map 4");
    ck_assert_int_eq(write(gate[1], "1", 1), 1);
    cluster_expect_end(run, leads, EXIT_SUCCESS);
    cluster_expect_end(run, works, EXIT_SUCCESS);
    cluster_expect_text(run, works, "sum 1\n");
    cluster_expect_end(run, later, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, later,
                        "has served in the place of a lost process until the run ended");
    cluster_run_free(run);
}
END_TEST

enum { LEADS, SERVES, COPIES, WORKS, N_LEFT };

/* A node of workers is killed while a task runs that goes on without it; the others are left. */
static ClusterRun *lose_worker(uint32_t left[N_LEFT])
{
    ClusterRun *const run = run_new();
    Node scheduler = SCHEDULER, server = SERVER, worker = WORKER;

    scheduler.servers = scheduler.workers = "2";
    scheduler.goes_on = server.goes_on = worker.goes_on = true;
    left[LEADS] = start(run, &scheduler);
    left[SERVES] = start(run, &server);
    left[COPIES] = start(run, &server);
    left[WORKS] = start(run, &worker);
    const uint32_t lost = start(run, &worker);
    cluster_wait_for(run, left[WORKS], "stays");
    cluster_wait_for(run, lost, "stays");
    cluster_signal(run, lost, SIGKILL);
    cluster_wait_for(run, left[LEADS], "the run goes on");
    return run;
}

static uint32_t replace_worker(ClusterRun *run, const char *catch_up)
{
    Node worker = WORKER;

    worker.goes_on = true;
    worker.catch_up = catch_up;
    worker.interface = "127.0.0.2";
    const uint32_t later = start(run, &worker);
    cluster_wait_for(run, later, "has taken the place of a lost process");
    ck_assert_int_eq(write(gate[1], "1", 1), 1); /* the worker that stays */
    return later;
}

static void expect_sum(ClusterRun *run, uint32_t process, const char *sum)
{
    cluster_expect_end(run, process, EXIT_SUCCESS);
    cluster_expect_text(run, process, sum);
}

/* One that comes later makes the same calls, and its worker has its part in the next task: of three
 * Adds, two are of that. */
START_TEST(a_worker_that_comes_after_a_loss_catches_up)
{
    uint32_t left[N_LEFT];
    ClusterRun *const run = lose_worker(left);
    const uint32_t later = replace_worker(run, "1");

    cluster_wait_for(run, later, "has come to where the others are");
    ck_assert_int_eq(write(gate[1], "1234", N_LEFT), N_LEFT);
    for (size_t i = 0; i < N_LEFT; i++)
        expect_sum(run, left[i], "sum 3\n");
    expect_sum(run, later, "sum 3\n");
    cluster_run_free(run);
}
END_TEST

/* One that does not catch up has nothing to do, and ends with the run. */
START_TEST(a_worker_that_comes_after_a_loss_may_wait_for_the_end)
{
    uint32_t left[N_LEFT];
    ClusterRun *const run = lose_worker(left);
    const uint32_t later = replace_worker(run, NULL);

    ck_assert_int_eq(write(gate[1], "1234", N_LEFT), N_LEFT);
    for (size_t i = 0; i < N_LEFT; i++)
        expect_sum(run, left[i], "sum 2\n");
    cluster_expect_end(run, later, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, later,
                        "has served in the place of a lost process until the run ended");
    cluster_run_free(run);
}
END_TEST

/* ---- new nodes ---- */

static const char *const overs[] = { PATIENT "transport = \"tcp\";",
                                     PATIENT "transport = \"shm\";" };

static void expect_served(ClusterRun *run, uint32_t process)
{
    cluster_expect_end(run, process, CLUSTER_NOT_STARTED);
    cluster_expect_text(run, process, "has served, as a node that had joined, until the run ended");
}

/* Two come at the same time, a third one is too many. Each gets its share of the parts, and the run
 * goes on when a server of the beginning is lost. */
START_TEST(servers_that_come_after_the_beginning_take_spare_places)
{
    ClusterRun *const run = run_new();
    Node scheduler = SCHEDULER, server = SERVER, worker = WORKER;

    scheduler.servers = scheduler.spares = "2";
    scheduler.settings = overs[_i];
    scheduler.outlives = server.outlives = worker.outlives = true;
    const uint32_t leads = start(run, &scheduler), works = start(run, &worker);
    const uint32_t first[] = { start(run, &server), start(run, &server) };
    cluster_wait_for(run, works, "node 3 of 6: 4 servers, 1 workers");
    cluster_wait_for(run, works, "stays");
    server.interface = "127.0.0.2";
    server.threads = "3";
    const uint32_t later[] = { start(run, &server), start(run, &server) };
    for (size_t i = 0; i < G_N_ELEMENTS(later); i++) {
        cluster_wait_for(run, later[i],
                         "has 1 server thread, as its place in the run has, and not 3");
        cluster_wait_for(run, later[i], "has joined the run, and serves until the run ends");
    }
    cluster_wait_for(run, leads, "node 4 has 1 part of table sums now");
    cluster_wait_for(run, leads, "node 5 has 1 part of table sums now");
    expect_refused(run, start(run, &server),
                   "is one too many; the run has 2 spare places (RUBATO_SPARES), which are taken");
    cluster_signal(run, first[0], SIGKILL);
    cluster_expect_end(run, first[0], -SIGKILL);
    cluster_wait_for(run, leads, "(127.0.0.1) was lost");
    ck_assert_int_eq(write(gate[1], "1", 1), 1);
    expect_sum(run, leads, "sum 1\n");
    expect_sum(run, works, "sum 1\n");
    expect_sum(run, first[1], "sum 1\n");
    for (size_t i = 0; i < G_N_ELEMENTS(later); i++)
        expect_served(run, later[i]);
    cluster_run_free(run);
}
END_TEST

/* It waits with the spare place, and gets one of those for which the run waits when that is free;
 * so does the place become free that a process leaves which ends. */
START_TEST(a_server_that_comes_before_the_beginning_is_an_ordinary_one_if_there_is_room)
{
    ClusterRun *const run = run_new();
    Node scheduler = SCHEDULER, worker = WORKER, server = SERVER;

    scheduler.spares = "1";
    const uint32_t leads = start(run, &scheduler);
    const uint32_t first = start(run, &server);
    cluster_wait_for(run, first, "1 of 1 servers and 0 of 1 workers are here");
    const uint32_t second = start(run, &server);
    cluster_wait_for(run, second, "1 of 1 servers and 0 of 1 workers are here");
    expect_refused(run, start(run, &server),
                   "is one too many; the run has 1 spare place (RUBATO_SPARES), which is taken");
    cluster_signal(run, first, SIGTERM);
    expect_refused(run, first, "this server was ended by signal 15");
    g_string_truncate(run->processes[leads].text, 0);
    cluster_wait_for(run, leads, "1 of 1 servers"); /* the second one is it now */
    const uint32_t third = start(run, &server);
    cluster_wait_for(run, third, "1 of 1 servers and 0 of 1 workers are here");
    cluster_signal(run, third, SIGTERM);
    expect_refused(run, third, "this server was ended by signal 15");
    const uint32_t last = start(run, &server);
    cluster_wait_for(run, last, "1 of 1 servers and 0 of 1 workers are here");
    worker.stays = true;
    const uint32_t works = start(run, &worker);
    cluster_wait_for(run, last, "node 3 has joined the run, and serves until the run ends");
    cluster_wait_for(run, works, "node 2 of 4");
    ck_assert_int_eq(write(gate[1], "1", 1), 1);
    expect_sum(run, leads, "sum 1\n");
    expect_sum(run, works, "sum 1\n");
    expect_sum(run, second, "node 1 of 4");
    expect_served(run, last);
    cluster_run_free(run);
}
END_TEST

/* It names its id, which is behind those of the others. */
START_TEST(an_equal_node_may_come_as_a_new_one)
{
    ClusterRun *const run = run_new();
    Node node = {
        .role = "node", .nodes = "2", .spares = "1", .settings = PATIENT, .outlives = true
    };
    static const char *const ids[] = { "0", "1", "2", "2", "3" };
    Node nodes[G_N_ELEMENTS(ids)];
    uint32_t processes[G_N_ELEMENTS(ids)];

    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        node.node = ids[i];
        nodes[i] = node;
        processes[i] = start(run, &nodes[i]);
        if (i == 1)
            cluster_wait_for(run, processes[0], "stays");
        if (i == 2)
            cluster_wait_for(run, processes[0], "node 2 has 1 part of table sums now");
    }
    cluster_expect_end(run, processes[4], CLUSTER_NOT_STARTED);
    cluster_expect_text(run, processes[4], "RUBATO_NODE is 3, and RUBATO_NODES 2");
    expect_refused(run, processes[3], "node 2 was started twice");
    cluster_wait_for(run, processes[1], "stays");
    ck_assert_int_eq(write(gate[1], "12", 2), 2);
    for (size_t i = 0; i < 2; i++)
        expect_sum(run, processes[i], "sum 2\n");
    expect_served(run, processes[2]);
    cluster_run_free(run);
}
END_TEST

/* ---- where ---- */

/* Loopback has many addresses: one of it is no other test's. */
static char data_address[32];

/* The nodes meet at 127.0.0.1, and send their data over another network. */
START_TEST(nodes_meet_in_one_network_and_send_data_in_another)
{
    ClusterRun *run = run_new();
    Node nodes[] = { SCHEDULER, SERVER, WORKER };
    uint32_t processes[G_N_ELEMENTS(nodes)];

    g_snprintf(data_address, sizeof data_address, "127.%d.%d.2", (getpid() >> 8) & 255,
               getpid() & 255);
    for (size_t i = 0; i < G_N_ELEMENTS(nodes); i++) {
        nodes[i].interface = nodes[i].data = data_address;
        nodes[i].settings = PATIENT "transport = \"tcp\";";
        processes[i] = start(run, &nodes[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(nodes); i++) {
        cluster_expect_end(run, processes[i], EXIT_SUCCESS);
        cluster_expect_text(run, processes[i], "links are in the network of data\n");
        cluster_expect_text(run, processes[i], "sum 1\n");
    }
    cluster_run_free(run);
}
END_TEST

/* Where the kernel has IPv6. Each node says by network where it receives. */
START_TEST(nodes_meet_over_ipv6)
{
    g_autofree char *loopback = own_address_of("::1/128", NULL);
    Node nodes[] = { SCHEDULER, SERVER, WORKER };
    uint32_t processes[G_N_ELEMENTS(nodes)];

    if (loopback == NULL)
        return;
    ClusterRun *run = run_new();
    g_snprintf(scheduler_text, sizeof scheduler_text, "[::1]:%u", run->port);
    for (size_t i = 0; i < G_N_ELEMENTS(nodes); i++) {
        nodes[i].interface = "::/64";
        nodes[i].settings = PATIENT "transport = \"tcp\";";
        processes[i] = start(run, &nodes[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(nodes); i++) {
        cluster_expect_end(run, processes[i], EXIT_SUCCESS);
        cluster_expect_text(run, processes[i], "sum 1\n");
    }
    cluster_run_free(run);
}
END_TEST

START_TEST(without_a_secret_only_this_machine_is_reached)
{
    /* An address that others can reach, if this machine has one. */
    g_autofree char *address = own_address_towards("198.51.100.7", NULL);
    ClusterRun *run;
    Node scheduler = SCHEDULER;

    if (address == NULL || address_is_loopback(address))
        return;
    run = run_new();
    scheduler.interface = address;
    const uint32_t process = start(run, &scheduler);
    expect_refused(run, process, "which other machines can reach, and the run has no secret");
    cluster_run_free(run);
}
END_TEST

START_TEST(an_interface_that_there_is_not_is_refused_with_those_that_there_are)
{
    ClusterRun *run = run_new();
    Node worker = WORKER, named = WORKER;

    worker.interface = "no-such-interface";
    expect_refused(run, start(run, &worker), "there are lo (127.0.0.1)");
    named.settings = "no_such_key = 1;";
    expect_refused(run, start(run, &named), "RUBATO_SETTINGS:1: ");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_announce");
    TCase *works = cluster_add_case(suite, "works");
    TCase *refused = cluster_add_case(suite, "refused");
    TCase *missing = cluster_add_case(suite, "missing");
    TCase *after = cluster_add_case(suite, "after a loss");
    TCase *new_nodes = cluster_add_case(suite, "new nodes");
    TCase *where = cluster_add_case(suite, "where");

    tcase_add_loop_test(works, nodes_announce_themselves_and_work_together, 0, G_N_ELEMENTS(ways));
    tcase_add_test(works, equal_nodes_work_together);
    tcase_add_test(works, rubato_starts_a_program_in_each_role);
    tcase_add_test(refused, who_comes_twice_or_too_much_is_refused_and_the_run_goes_on);
    tcase_add_test(refused, another_secret_finds_no_scheduler);
    tcase_add_test(missing, without_a_scheduler_a_node_waits_ends_and_says_where_it_looked);
    tcase_add_test(missing, a_scheduler_that_waits_for_too_long_says_who_is_missing);
    tcase_add_test(missing, the_end_of_a_scheduler_is_told_to_those_who_wait);
    tcase_add_test(missing, a_node_may_end_or_die_and_come_anew_before_the_run_begins);
    tcase_add_test(after, a_server_that_comes_after_a_loss_takes_the_place);
    tcase_add_test(after, a_worker_that_comes_after_a_loss_catches_up);
    tcase_add_test(after, a_worker_that_comes_after_a_loss_may_wait_for_the_end);
    tcase_add_loop_test(new_nodes, servers_that_come_after_the_beginning_take_spare_places, 0,
                        G_N_ELEMENTS(overs));
    tcase_add_test(new_nodes,
                   a_server_that_comes_before_the_beginning_is_an_ordinary_one_if_there_is_room);
    tcase_add_test(new_nodes, an_equal_node_may_come_as_a_new_one);
    tcase_add_test(where, nodes_meet_in_one_network_and_send_data_in_another);
    tcase_add_test(where, nodes_meet_over_ipv6);
    tcase_add_test(where, without_a_secret_only_this_machine_is_reached);
    tcase_add_test(where, an_interface_that_there_is_not_is_refused_with_those_that_there_are);
    return run_suite(suite);
}
