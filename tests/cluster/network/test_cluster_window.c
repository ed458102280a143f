/* The window between two nodes: parked requests do not hold up the messages that release them, a
 * call that waits logs for whom, and nothing is sent without a bound. The windows here have 4 KiB.
 *
 * Holds what docs/wire.md says of bounded memory and parked Gets, and docs/liveness.md of waiting
 * for room. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- parked Gets ---- */

enum { N_KEYS = 4000, N_LISTED = 2000, N_TICKETS = 40, N_OF_TICKET = 50 };

typedef struct {
    const char *model, *storage;
    bool has_tickets; /* many small Gets instead of one that waits */
} ParkedCase;

static const ParkedCase parked[] = {
    { "bsp", "dense", false }, { "ssp", "dense", false }, { "sparse_ssp", "dense", false },
    { "bsp", "hash", false },  { "bsp", "dense", true },  { "ssp", "dense", true },
};

/* Of one node: the workers ahead, which wait, and the slowest, which adds and clocks. */
static Event has_asked = EVENT_INIT;
static _Atomic uint32_t n_tickets;

/* A list on the wire: 16 KB of keys, four windows, in pieces. */
static bool get_much(RubatoWorker *worker, GError **error)
{
    RubatoKey keys[N_LISTED];
    float values[N_LISTED];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_F32, error);

    if (table == NULL || !rubato_kv_table_clock(table, error))
        return false;
    for (size_t i = 0; i < N_LISTED; i++)
        keys[i] = (N_LISTED - 1 - i) * 2;
    if (rubato_kv_table_get_async(table, keys, N_LISTED, values, NULL, error) == 0)
        return false;
    event_raise(&has_asked);
    if (!rubato_worker_wait_all(worker, error))
        return false;
    for (size_t i = 0; i < N_LISTED; i++)
        EXPECT(values[i] == (keys[i] == 0 ? 1 : 0), "key %d is %g", (int)keys[i],
               (double)values[i]);
    return true;
}

static bool get_often(RubatoWorker *worker, GError **error)
{
    RubatoKey keys[N_OF_TICKET];
    float values[N_TICKETS][N_OF_TICKET];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_F32, error);

    if (table == NULL || !rubato_kv_table_clock(table, error))
        return false;
    for (size_t i = 0; i < N_OF_TICKET; i++)
        keys[i] = 2 * i;
    event_raise(&has_asked);
    for (size_t i = 0; i < N_TICKETS; i++) {
        if (rubato_kv_table_get_async(table, keys, N_OF_TICKET, values[i], NULL, error) == 0)
            return false;
        atomic_fetch_add(&n_tickets, 1);
    }
    if (!rubato_worker_wait_all(worker, error))
        return false;
    for (size_t i = 0; i < N_TICKETS; i++)
        EXPECT(values[i][0] == 1 && values[i][1] == 0, "ticket %d reads %g", (int)i,
               (double)values[i][0]);
    return true;
}

/* Its Add is sent behind the others' requests, through the same window. */
static bool release_others(RubatoWorker *worker, const ParkedCase *scene, GError **error)
{
    const RubatoKey key = 0;
    const float one = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    if (table == NULL || !event_await(&has_asked, 1, worker, error))
        return false;
    if (scene->has_tickets) {
        g_autofree char *line = log_capture_wait("worker 1 waits for clock 1 of table t",
                                                 "slowest is worker 2 (node 7) at 0");

        EXPECT(atomic_load(&n_tickets) < N_TICKETS, "nothing bounds the tickets: %s", line);
    }
    return rubato_kv_table_add(table, &key, 1, &one, error) && rubato_kv_table_clock(table, error);
}

static bool wait_or_release(RubatoWorker *worker, void *user_data, GError **error)
{
    const ParkedCase *scene = user_data;

    switch (rubato_worker_rank(worker)) {
    case 0: /* on the server's node */
        return true;
    case 1:
        return scene->has_tickets ? get_often(worker, error) : get_much(worker, error);
    default:
        return release_others(worker, scene, error);
    }
}

static bool play_parked(RubatoEngine *engine, const void *data, GError **error)
{
    const ParkedCase *scene = data;
    const RubatoTableSpec spec = { .name = "t",
                                   .storage = scene->storage,
                                   .n_keys = g_str_equal(scene->storage, "dense") ? N_KEYS : 0,
                                   .model = scene->model };
    const char *const tables[] = { "t", NULL };

    if (scene->has_tickets)
        log_capture_start();
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "parked", wait_or_release, scene, tables, error);
}

START_TEST(what_is_parked_leaves_room_for_the_add_that_releases_it)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 2 } }, .stall_ms = 200, .sizes = small_sizes() });

    cluster_start(run, play_parked, &parked[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a server that stands still ---- */

enum { N_TOLD = 100, N_KEYS_TOLD = 100, N_CLOCKS = 2000 };

static int gate[2]; /* made by the case: a node that reads from it waits for the case */

static bool clock_only(RubatoWorker *worker, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    if (table == NULL)
        return false;
    for (int i = 0; i < N_CLOCKS; i++)
        if (!rubato_kv_table_clock(table, error))
            return false;
    return true;
}

static bool announce_only(RubatoWorker *worker, GError **error)
{
    RubatoKey keys[N_KEYS_TOLD];
    RubatoIteration iterations[N_TOLD];

    for (size_t i = 0; i < N_KEYS_TOLD; i++)
        keys[i] = 2 * i;
    for (size_t i = 0; i < N_TOLD; i++)
        iterations[i] = (RubatoIteration){ keys, N_KEYS_TOLD };
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "t", RUBATO_F32, iterations, N_TOLD, error);
    return table != NULL;
}

static bool send_to_stopped(RubatoWorker *worker, void *user_data, GError **error)
{
    const char *model = user_data;
    char byte;

    cluster_say("ready");
    EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    return g_str_equal(model, "ssp") ? clock_only(worker, error) : announce_only(worker, error);
}

static bool play_stopped(RubatoEngine *engine, const void *data, GError **error)
{
    const char *model = data;
    const RubatoTableSpec spec = { .name = "t",
                                   .n_keys = N_KEYS,
                                   .model = model,
                                   .speculation = g_str_equal(model, "ssp") ? 0 : N_TOLD };
    const char *const tables[] = { "t", NULL };

    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "stopped", send_to_stopped, model, tables, error);
}

/* Clocks, and announcements. */
START_TEST(what_is_told_without_an_answer_waits_for_room)
{
    static const char *const models[] = { "ssp", "sparse_ssp" };
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2, .nodes = { { 0, 1 }, { 1, 0 } }, .stall_ms = 200, .sizes = small_sizes() });

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_stopped, models[_i]);
    cluster_wait_for(run, 0, "ready");
    cluster_signal(run, 1, SIGSTOP);
    ck_assert_int_eq(write(gate[1], "x", 1), 1);
    cluster_wait_for(run, 0,
                     "worker 0 waits for node 7 to take in what was sent to it, last heard");
    cluster_wait_for(run, 0, "bytes of requests are under way to its servers");
    cluster_signal(run, 1, SIGCONT);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- one call of many windows ---- */

enum { N_OF_CALL = 1 << 18 }; /* 1 MiB of rows: 256 windows */

static bool add_much(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree float *values = g_new(float, N_OF_CALL);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    char byte;

    (void)user_data;
    if (table == NULL)
        return false;
    for (size_t i = 0; i < N_OF_CALL; i++)
        values[i] = 1;
    cluster_say("ready");
    EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    if (!rubato_kv_table_add_range(table, 0, N_OF_CALL, values, error) ||
        !rubato_kv_table_clock(table, error) ||
        !rubato_kv_table_get_range(table, 0, N_OF_CALL, values, error))
        return false;
    for (size_t i = 0; i < N_OF_CALL; i++)
        EXPECT(values[i] == 1, "row %zu is %g", i, (double)values[i]);
    return true;
}

static bool play_much(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = N_OF_CALL, .model = "bsp" };
    const char *const tables[] = { "t", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "much", add_much, NULL, tables, error);
}

/* The bytes that are under way are told, and are far fewer than those of the call. */
START_TEST(a_call_of_many_windows_waits_between_its_pieces)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2, .nodes = { { 0, 1 }, { 1, 0 } }, .stall_ms = 200, .sizes = small_sizes() });

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_much, NULL);
    cluster_wait_for(run, 0, "ready");
    cluster_signal(run, 1, SIGSTOP);
    ck_assert_int_eq(write(gate[1], "x", 1), 1);
    cluster_wait_for(run, 0, "more of the same call have to wait for room");
    g_autofree char *told = cluster_text_after(run, 0, "take in what was sent to it; ");
    ck_assert_uint_lt(g_ascii_strtoull(told, NULL, 10), 32 * small_sizes()->window_bytes);
    cluster_signal(run, 1, SIGCONT);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- what waits for a replica ---- */

enum { N_ADDS = 2 };

typedef struct {
    const char *model;
    bool lists; /* of keys, and an Add-and-Get; else ranges */
    uint32_t replicas;
    bool is_killed; /* and does not go on */
} ReplicaCase;

static const ReplicaCase waiting[] = {
    { "asp", false, 1, false },
    { "bsp", true, 1, false },
    { "ssp", true, 2, true },
    { "sparse_ssp", false, 1, true },
};

static int observer_gate[2];
static _Atomic bool is_observed; /* until the task is over */

/* What node 0 passed on to node 1, and what that has not handled, once it is as much as the calls
 * of both workers bring: workers may wait for room before node 0 has had its turn. */
static void *say_charged(void *engine)
{
    const Network *const network = ((RubatoEngine *)engine)->network;
    char byte;

    if (read(observer_gate[0], &byte, 1) != 1)
        return NULL;
    while (atomic_load(&is_observed) &&
           network_charged_bytes(network, 1) <= 16 * small_sizes()->window_bytes)
        g_usleep(1000); /* nobody tells of it */
    cluster_say("charged=%" G_GUINT64_FORMAT, network_charged_bytes(network, 1));
    return NULL;
}

static bool add_for_replicas(RubatoWorker *worker, void *user_data, GError **error)
{
    const ReplicaCase *const scene = user_data;
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_OF_CALL);
    g_autofree float *values = g_new(float, N_OF_CALL);
    g_autofree float *seen = g_new(float, N_OF_CALL);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    char byte;

    if (table == NULL)
        return false;
    for (size_t i = 0; i < N_OF_CALL; i++) {
        keys[i] = N_OF_CALL - 1 - i;
        values[i] = 1;
    }
    cluster_say("ready");
    EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    for (int i = 0; i < N_ADDS; i++)
        if (!scene->lists ? !rubato_kv_table_add_range(table, 0, N_OF_CALL, values, error)
            : i == 0      ? !rubato_kv_table_add(table, keys, N_OF_CALL, values, error)
                          : !rubato_kv_table_add_get(table, keys, N_OF_CALL, values, seen, error))
            return false;
    return rubato_kv_table_clock(table, error) && rubato_worker_barrier(worker, error);
}

static bool play_replicas(RubatoEngine *engine, const void *data, GError **error)
{
    const ReplicaCase *const scene = data;
    const char *const tables[] = { "t", NULL };
    const RubatoTableSpec spec = { .name = "t",
                                   .n_keys = N_OF_CALL,
                                   .model = scene->model,
                                   .parts = 1,
                                   .replicas = scene->replicas };
    g_autofree float *values = g_new(float, N_OF_CALL);
    pthread_t observer;

    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    const bool observes = rubato_engine_node(engine) == CLUSTER_IDS[0];
    atomic_store(&is_observed, true);
    EXPECT(!observes || pthread_create(&observer, NULL, say_charged, engine) == 0, "no thread");
    const bool done =
        cluster_run_task(engine, "replicas", add_for_replicas, scene, tables, error) &&
        rubato_engine_get_range(engine, "t", 0, N_OF_CALL, values, error);
    atomic_store(&is_observed, false);
    EXPECT(!observes || write(observer_gate[1], "x", 1) == 1, "no gate"); /* if nobody has asked */
    if (observes)
        pthread_join(observer, NULL);
    if (!done)
        return false;
    for (size_t i = 0; i < N_OF_CALL; i++)
        EXPECT(values[i] == 2 * N_ADDS, "row %zu is %g", i, (double)values[i]);
    return true;
}

/* Node 0 has the part and a worker, node 1 a replica, and node 2 another worker. */
START_TEST(what_waits_for_a_replica_is_bounded)
{
    const ReplicaCase *const scene = &waiting[_i];
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 3,
                                                       .nodes = { { 1, 1 }, { 1, 0 }, { 1, 1 } },
                                                       .stall_ms = 200,
                                                       .sizes = small_sizes() });

    ck_assert_int_eq(pipe(gate), 0);
    ck_assert_int_eq(pipe(observer_gate), 0);
    cluster_start(run, play_replicas, scene);
    cluster_wait_for(run, 0, "ready");
    cluster_wait_for(run, 2, "ready");
    cluster_signal(run, 1, SIGSTOP);
    ck_assert_int_eq(write(gate[1], "xx", 2), 2);
    cluster_wait_for(run, 0, "have to wait for room");
    cluster_wait_for(run, 2, "have to wait for room");
    ck_assert_int_eq(write(observer_gate[1], "x", 1), 1);
    cluster_wait_for(run, 0, "charged=");
    g_autofree char *told = cluster_text_after(run, 0, "charged=");
    const uint64_t charged = g_ascii_strtoull(told, NULL, 10);
    /* a call of each of the two nodes, with its heads, and a piece of each */
    ck_assert_uint_gt(charged, 16 * small_sizes()->window_bytes);
    ck_assert_uint_lt(charged, 64 * small_sizes()->window_bytes);
    cluster_signal(run, 1, scene->is_killed ? SIGKILL : SIGCONT);
    if (scene->is_killed) {
        cluster_expect_end(run, 0, 0);
        cluster_expect_end(run, 2, 0);
    } else {
        cluster_expect_success(run);
    }
    cluster_run_free(run);
}
END_TEST

/* ---- two nodes that wait for each other ---- */

/* Servers 0 and 1 are on node 0, and have their replicas on node 1; 2 and 3 the other way round. */
enum { N_BOTH = 4, HELD_SERVER = 0, ADDING_SERVER = 1 };

static RubatoEngine *mutual_engine;
static Event is_held = EVENT_INIT;

static void hold(Message *message, void *server)
{
    char byte;

    (void)message;
    (void)server;
    event_raise(&is_held);
    if (read(observer_gate[0], &byte, 1) != 1)
        cluster_say("no gate");
}

static void free_message(Message *message)
{
    g_free(message);
}

/* A server of each node stands still, which has the replica of what the other node's worker adds
 * to. */
static bool add_to_own(RubatoWorker *worker, void *user_data, GError **error)
{
    const size_t n = N_OF_CALL / N_BOTH, at = rubato_worker_rank(worker) * 2 + ADDING_SERVER;
    g_autofree float *values = g_new(float, N_OF_CALL);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    Message *const message = g_new(Message, 1);
    char byte;

    (void)user_data;
    *message = (Message){ .kind = MESSAGE_INVOKE, .invoke = hold, .end = free_message };
    actor_post(&mutual_engine->servers[HELD_SERVER].actor, message);
    if (table == NULL || !event_await(&is_held, 1, worker, error))
        return false;
    for (size_t i = 0; i < N_OF_CALL; i++)
        values[i] = 1;
    cluster_say("ready");
    EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    return rubato_kv_table_add_range(table, at * n, n, values, error) &&
           rubato_kv_table_add_range(table, 0, N_OF_CALL, values, error) &&
           rubato_kv_table_clock(table, error) && rubato_worker_barrier(worker, error);
}

static bool play_mutual(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "t", NULL };
    const RubatoTableSpec spec = {
        .name = "t", .n_keys = N_OF_CALL, .model = "ssp", .parts = N_BOTH, .replicas = 1
    };
    g_autofree float *values = g_new(float, N_OF_CALL);

    (void)data;
    mutual_engine = engine;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "mutual", add_to_own, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "t", 0, N_OF_CALL, values, error))
        return false;
    for (size_t i = 0; i < N_OF_CALL; i++) {
        const bool is_own = i / (N_OF_CALL / N_BOTH) % 2 == ADDING_SERVER;

        EXPECT(values[i] == (is_own ? 3 : 2), "row %zu is %g", i, (double)values[i]);
    }
    return true;
}

/* Each has its window to the other one full with inputs for replicas. */
START_TEST(two_nodes_that_are_full_towards_each_other_go_on)
{
    ClusterRun *run = cluster_run_new(&(ClusterShape){
        .n_nodes = 2, .nodes = { { 2, 1 }, { 2, 1 } }, .stall_ms = 200, .sizes = small_sizes() });

    ck_assert_int_eq(pipe(gate), 0);
    ck_assert_int_eq(pipe(observer_gate), 0);
    cluster_start(run, play_mutual, NULL);
    cluster_wait_for(run, 0, "ready");
    cluster_wait_for(run, 1, "ready");
    ck_assert_int_eq(write(gate[1], "xx", 2), 2);
    cluster_wait_for(run, 0, "more of the same call have to wait for room");
    cluster_wait_for(run, 1, "more of the same call have to wait for room");
    ck_assert_int_eq(write(observer_gate[1], "xx", 2), 2);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- Gets of much that are sent as little ---- */

enum { N_RUNS = 1000, ROWS_OF_RUN = 1 << 17, RUN_BYTES = 4 * ROWS_OF_RUN };

/* Asks node 0 for 512 KiB of rows so many times, by messages of some 150 bytes, as no handle does:
 * those have bounds of their own. */
static bool ask_often(RubatoWorker *worker, RubatoEngine *engine, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    if (table == NULL || !rubato_kv_table_clock(table, error))
        return false;
    for (uint64_t i = 1; i <= N_RUNS; i++) {
        const WireHeader header = { .kind = MESSAGE_GET,
                                    .epoch = 1,
                                    .request = { .id = i | UINT64_C(1) << 63,
                                                 .worker = rubato_worker_rank(worker),
                                                 .clock = 1,
                                                 .n_keys = ROWS_OF_RUN } };
        if (!network_wait_room(engine->network, 0, NULL, NULL, 10000))
            break;
        network_send(engine->network, 0, frame_new(&header));
    }
    cluster_say("asked");
    return rubato_worker_barrier(worker, error);
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* The slowest: it clocks when the case says so. */
static bool keep_all_waiting(RubatoWorker *worker, RubatoEngine *engine, GError **error)
{
    const size_t before = heap_bytes();
    NetworkStats stats;
    char byte;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    if (table == NULL)
        return false;
    cluster_say("ready");
    EXPECT(read(gate[0], &byte, 1) == 1, "no gate");
    do
        network_stats(engine->network, &stats);
    while (stats.messages_received[MESSAGE_GET] < N_RUNS && !rubato_worker_cancelled(worker));
    const size_t after = heap_bytes();
    cluster_say("grown=%zu", after > before ? (after - before) / N_RUNS : 0);
    return rubato_worker_barrier(worker, error);
}

static RubatoEngine *asked_engine;

static bool ask_for_much(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return rubato_worker_rank(worker) == 0 ? keep_all_waiting(worker, asked_engine, error)
                                           : ask_often(worker, asked_engine, error);
}

static bool play_asking(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = ROWS_OF_RUN, .model = "bsp" };
    const char *const tables[] = { "t", NULL };

    (void)data;
    asked_engine = engine;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "asking", ask_for_much, NULL, tables, error);
}

/* 1,000 Gets of 512 KiB each: 512 MB, if room were taken for the answers. */
START_TEST(a_parked_get_takes_no_room_for_its_answer)
{
    static const FlowSizes usual = FLOW_SIZES_USUAL;
    FlowSizes sizes = usual;
    sizes.parked_bytes = (size_t)N_RUNS * (RUN_BYTES + 1000);
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } }, .sizes = &sizes });

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_asking, NULL);
    cluster_wait_for(run, 1, "asked");
    ck_assert_int_eq(write(gate[1], "x", 1), 1);
    cluster_expect_success(run);
    g_autofree char *grown = cluster_text_after(run, 0, "grown=");
    ck_assert_uint_lt(g_ascii_strtoull(grown, NULL, 10), 2000);
    cluster_run_free(run);
}
END_TEST

/* Beyond its bound a server keeps no more; the task fails, on both nodes, and nobody hangs. */
START_TEST(more_parked_gets_than_are_kept_for_a_node_fail_the_task)
{
    FlowSizes sizes = FLOW_SIZES_USUAL;
    sizes.parked_bytes = 16 * RUN_BYTES;
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 1 } }, .sizes = &sizes });

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_asking, NULL);
    ck_assert_int_eq(write(gate[1], "x", 1), 1);
    for (uint32_t i = 0; i < 2; i++) {
        cluster_expect_end(run, i, CLUSTER_FAILED);
        cluster_expect_text(run, i,
                            "keeps no more Gets of node 7 that wait for a clock: their keys, and "
                            "the rows that they will need, take more memory");
    }
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("windows between nodes");
    TCase *gets = cluster_add_case(suite, "parked");
    TCase *told = cluster_add_case(suite, "told");

    tcase_add_loop_test(gets, what_is_parked_leaves_room_for_the_add_that_releases_it, 0,
                        G_N_ELEMENTS(parked));
    tcase_add_test(told, a_call_of_many_windows_waits_between_its_pieces);
    tcase_add_loop_test(told, what_waits_for_a_replica_is_bounded, 0, G_N_ELEMENTS(waiting));
    tcase_add_test(told, two_nodes_that_are_full_towards_each_other_go_on);
    tcase_add_test(gets, a_parked_get_takes_no_room_for_its_answer);
    tcase_add_test(gets, more_parked_gets_than_are_kept_for_a_node_fail_the_task);
    tcase_add_loop_test(told, what_is_told_without_an_answer_waits_for_room, 0, 2);
    return run_suite(suite);
}
