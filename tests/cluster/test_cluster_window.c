/* The window between two nodes: parked requests do not hold up the messages that release them, a
 * call that waits logs for whom, and nothing is sent without a bound. The windows here have 4 KiB.
 *
 * Holds what docs/wire.md says of bounded memory and parked Gets, and docs/liveness.md of waiting
 * for room. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/cluster_run.h"
#include "tests/support/engine_fixture.h"
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
    g_autoptr(RubatoKVClientTable) table =
        rubato_worker_open_kv_client_table(worker, "t", RUBATO_F32, error);

    if (table == NULL || !rubato_kv_client_table_clock(table, error))
        return false;
    for (size_t i = 0; i < N_LISTED; i++)
        keys[i] = (N_LISTED - 1 - i) * 2;
    if (rubato_kv_client_table_get_async(table, keys, N_LISTED, values, NULL, NULL, error) == 0)
        return false;
    event_raise(&has_asked);
    if (!rubato_kv_client_table_wait_all(table, error))
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
    g_autoptr(RubatoKVClientTable) table =
        rubato_worker_open_kv_client_table(worker, "t", RUBATO_F32, error);

    if (table == NULL || !rubato_kv_client_table_clock(table, error))
        return false;
    for (size_t i = 0; i < N_OF_TICKET; i++)
        keys[i] = 2 * i;
    event_raise(&has_asked);
    for (size_t i = 0; i < N_TICKETS; i++) {
        if (rubato_kv_client_table_get_async(table, keys, N_OF_TICKET, values[i], NULL, NULL,
                                             error) == 0)
            return false;
        atomic_fetch_add(&n_tickets, 1);
    }
    if (!rubato_kv_client_table_wait_all(table, error))
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

int main(void)
{
    Suite *suite = suite_create("windows between nodes");
    TCase *gets = cluster_add_case(suite, "parked");
    TCase *told = cluster_add_case(suite, "told");

    tcase_add_loop_test(gets, what_is_parked_leaves_room_for_the_add_that_releases_it, 0,
                        G_N_ELEMENTS(parked));
    tcase_add_loop_test(told, what_is_told_without_an_answer_waits_for_room, 0, 2);
    return run_suite(suite);
}
