/* Nodes that die, hang, or are slow: the others end and name them, and a call that waits logs for
 * whom.
 *
 * How soon they end is tested in simulated time (support/sim/sim_cluster.c). Here the time would
 * also depend on the machine's load. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

#define TIMEOUT_MS cluster_short_timeout_ms()
#define HEARTBEAT_MS (TIMEOUT_MS / 10)

/* What the nodes do when one of them is lost. */
typedef enum {
    ACTIVITY_CLOCKS,   /* a task under BSP, each worker waiting for all others again and again */
    ACTIVITY_BARRIERS, /* of a task */
    ACTIVITY_CALLS,    /* collective ones */
    ACTIVITY_ACCESS,   /* reading tables between tasks */
    ACTIVITY_FLOOD,    /* adding more than there is room for */
} Activity;

enum { SCHEDULER, SERVER, WORKER, N_NODES }; /* numbers of the nodes */

/* The scheduler's node works too, and one node has all the servers. */
static ClusterShape shape(void)
{
    return (ClusterShape){ .n_nodes = N_NODES,
                           .nodes = { { 0, 1 }, { 2, 0 }, { 0, 1 } },
                           .heartbeat_ms = HEARTBEAT_MS,
                           .timeout_ms = TIMEOUT_MS };
}

static bool say_once(bool *said)
{
    if (!*said)
        cluster_say("busy");
    *said = true;
    return true;
}

static bool work_for_ever(RubatoWorker *worker, void *user_data, GError **error)
{
    const Activity activity = *(const Activity *)user_data;
    g_autofree float *rows = g_new0(float, 10000);
    bool said = false;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    if (table == NULL)
        return false;
    if (activity == ACTIVITY_BARRIERS)
        while (rubato_worker_barrier(worker, error))
            say_once(&said);
    else if (activity == ACTIVITY_FLOOD)
        while (rubato_kv_table_add_range(table, 0, 10000, rows, error))
            say_once(&said);
    else
        while (rubato_kv_table_get_range(table, 0, 10, rows, error) &&
               rubato_kv_table_add_range(table, 0, 10, rows, error) &&
               rubato_kv_table_clock(table, error))
            say_once(&said);
    return false;
}

static bool be_busy(RubatoEngine *engine, const Activity *activity, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    float rows[10];
    bool said = false;

    switch (*activity) {
    case ACTIVITY_CALLS:
        while (rubato_engine_barrier(engine, error))
            say_once(&said);
        return false;
    case ACTIVITY_ACCESS:
        while (rubato_engine_get_range(engine, "rows", 4995, 10, rows, error))
            say_once(&said);
        return false;
    default:
        return cluster_run_task(engine, "endless", work_for_ever, activity, tables, error);
    }
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const Activity *activity = data;
    const RubatoTableSpec spec = { .name = "rows",
                                   .n_keys = 10000,
                                   .model = *activity == ACTIVITY_FLOOD ? "asp" : "bsp" };

    return rubato_engine_create_table(engine, &spec, error) && be_busy(engine, activity, error);
}

static const struct {
    int number;
    uint32_t victim;
    Activity activity;
} losses[] = {
    { SIGKILL, SCHEDULER, ACTIVITY_CLOCKS }, { SIGKILL, SERVER, ACTIVITY_CLOCKS },
    { SIGKILL, WORKER, ACTIVITY_CLOCKS },    { SIGSTOP, SCHEDULER, ACTIVITY_CLOCKS },
    { SIGSTOP, SERVER, ACTIVITY_CLOCKS },    { SIGSTOP, WORKER, ACTIVITY_CLOCKS },
    { SIGKILL, WORKER, ACTIVITY_BARRIERS },  { SIGKILL, SERVER, ACTIVITY_CALLS },
    { SIGKILL, SCHEDULER, ACTIVITY_CALLS },  { SIGKILL, SERVER, ACTIVITY_ACCESS },
    { SIGSTOP, SERVER, ACTIVITY_FLOOD },     { SIGKILL, SCHEDULER, ACTIVITY_FLOOD },
};

START_TEST(a_lost_node_ends_the_run_on_all_others_and_by_name)
{
    const uint32_t victim = losses[_i].victim;
    const ClusterShape three = shape();
    ClusterRun *run = cluster_run_new(&three);
    /* By its end; or by its silence, or what it does not acknowledge, whichever somebody notices
     * first. */
    g_autofree char *lost = g_strdup_printf(
        "error %d: node %u (127.0.0.1:0)%s was lost: %s", RUBATO_ERROR_NODE_LOST,
        CLUSTER_IDS[victim], victim == SCHEDULER ? ", where the scheduler runs," : "",
        losses[_i].number == SIGKILL && victim != SCHEDULER ? "nobody listens at its address" : "");

    cluster_start(run, play, &losses[_i].activity);
    cluster_wait_for(run, SCHEDULER, "busy");
    cluster_wait_for(run, WORKER, "busy");
    cluster_signal(run, victim, losses[_i].number);
    for (uint32_t i = 0; i < N_NODES; i++) {
        if (i == victim)
            continue;
        cluster_expect_end(run, i, CLUSTER_FAILED);
        cluster_expect_text(run, i, lost);
    }
    if (losses[_i].number == SIGSTOP) { /* a node that comes back finds that the others are gone */
        cluster_signal(run, victim, SIGCONT);
        cluster_expect_end(run, victim, CLUSTER_FAILED);
        cluster_expect_text(run, victim, "error 1"); /* cancelled, or lost nodes */
    }
    cluster_run_free(run);
}
END_TEST

/* ---- who comes back while the others are there ---- */

static int gate[2]; /* made by the case: a node that reads from it waits for the case */

static bool wait_at_gate(void)
{
    char byte;

    return read(gate[0], &byte, 1) == 1;
}

static void open_gate(unsigned n)
{
    for (; n > 0; n--)
        ck_assert_int_eq(write(gate[1], "x", 1), 1);
}

static bool play_and_stay(RubatoEngine *engine, const void *data, GError **error)
{
    const bool done = play(engine, data, error);

    cluster_say("ready: %s", *error != NULL ? (*error)->message : "");
    return wait_at_gate() && done;
}

/* It names itself as the cause, and no other node. docs/liveness.md: A node that dies */
START_TEST(a_node_that_hung_and_comes_back_is_told_that_it_was_given_up)
{
    const uint32_t victim = (uint32_t)_i;
    const Activity activity = ACTIVITY_CLOCKS;
    const ClusterShape three = shape();
    ClusterRun *run = cluster_run_new(&three);
    g_autofree char *lost =
        g_strdup_printf("ready: node %u (127.0.0.1:0)%s was lost: ", CLUSTER_IDS[victim],
                        victim == SCHEDULER ? ", where the scheduler runs," : "");

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_and_stay, &activity);
    cluster_wait_for(run, SCHEDULER, "busy");
    cluster_wait_for(run, WORKER, "busy");
    cluster_signal(run, victim, SIGSTOP);
    for (uint32_t i = 0; i < N_NODES; i++)
        if (i != victim)
            cluster_wait_for(run, i, "ready: ");
    cluster_signal(run, victim, SIGCONT);
    cluster_wait_for(run, victim, "stood still for ");
    cluster_wait_for(run, victim, "ready: ");
    open_gate(N_NODES);
    for (uint32_t i = 0; i < N_NODES; i++) {
        cluster_expect_end(run, i, CLUSTER_FAILED);
        cluster_expect_text(run, i, lost);
    }
    cluster_run_free(run);
}
END_TEST

/* A pause shorter than the timeout loses no node and no message. */

enum { N_CLOCKS = 400 };

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    const float ones[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    float rows[10];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (int i = 0; i < N_CLOCKS; i++) {
        if (!rubato_kv_table_get_range(table, 0, 10, rows, error) ||
            !rubato_kv_table_add_range(table, 0, 10, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
        if (i == N_CLOCKS / 2) {
            cluster_say("half");
            EXPECT(wait_at_gate(), "no gate");
        }
    }
    return true;
}

static bool play_counting(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows", .n_keys = 10, .model = "bsp" };
    const char *const tables[] = { "rows", NULL };
    float rows[10];

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "count", count, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "rows", 0, 10, rows, error))
        return false;
    for (int i = 0; i < 10; i++)
        EXPECT(rows[i] == 2 * N_CLOCKS, "key %d is %g", i, (double)rows[i]);
    return true;
}

START_TEST(a_short_pause_of_any_node_loses_nothing)
{
    ClusterShape three = shape();
    ClusterRun *run;

    three.timeout_ms = 0; /* patient */
    three.stall_ms = 100;
    run = cluster_run_new(&three);
    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_counting, NULL);
    cluster_wait_for(run, SCHEDULER, "half");
    cluster_wait_for(run, WORKER, "half");
    cluster_signal(run, (uint32_t)_i, SIGSTOP);
    open_gate(2);
    /* until another node misses it */
    cluster_wait_for(run, _i == SCHEDULER ? WORKER : SCHEDULER, " waits for ");
    cluster_signal(run, (uint32_t)_i, SIGCONT);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- saying whom one waits for ---- */

/* Worker 0, on node 3, is ahead; of node 7's workers, 2 stays behind 1, and waits for the case. */
static bool wait_for_the_slowest(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    float rows[10];
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "weights", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint32_t clock = 0; clock < 5; clock++) {
        EXPECT(clock != 2 || rank != 2 || wait_at_gate(), "no gate");
        if (!rubato_kv_table_get_range(table, 0, 10, rows, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    }
    return true;
}

static bool wait_in_barrier(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    EXPECT(rubato_worker_rank(worker) != 2 || wait_at_gate(), "no gate");
    return rubato_worker_barrier(worker, error);
}

static bool return_late(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    EXPECT(rubato_worker_rank(worker) != 2 || wait_at_gate(), "no gate");
    return true;
}

typedef enum {
    LATE_CLOCK,
    LATE_BARRIER,
    LATE_END,
    LATE_CALL,
    LATE_LEAVE,
    LATE_IN_NOISE, /* as LATE_CALL, and what wakes the waiter comes all the time */
    N_LATE,
} Late;

typedef struct {
    RubatoEngine *engine;
    atomic_bool ended;
} Noise;

static void *make_noise(void *user)
{
    Noise *noise = user;

    while (!noise->ended) {
        pthread_mutex_lock(&noise->engine->lock);
        pthread_cond_broadcast(&noise->engine->changed);
        pthread_mutex_unlock(&noise->engine->lock);
        sched_yield();
    }
    return NULL;
}

static bool drop_in_noise(RubatoEngine *engine, GError **error)
{
    Noise noise = { .engine = engine };
    pthread_t thread;
    bool ok;

    pthread_create(&thread, NULL, make_noise, &noise);
    ok = rubato_engine_drop_table(engine, "weights", error);
    noise.ended = true;
    pthread_join(thread, NULL);
    return ok;
}

static bool play_late(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "weights", .n_keys = 10, .model = "ssp", .staleness = 1
    };
    const char *const tables[] = { "weights", NULL };
    const Late late = *(const Late *)data;

    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    switch (late) {
    case LATE_CLOCK:
        return cluster_run_task(engine, "slow", wait_for_the_slowest, NULL, tables, error);
    case LATE_BARRIER:
        return cluster_run_task(engine, "slow", wait_in_barrier, NULL, tables, error);
    case LATE_END:
        return cluster_run_task(engine, "slow", return_late, NULL, tables, error);
    case LATE_CALL:
        EXPECT(engine->self == 0 || wait_at_gate(), "no gate");
        return rubato_engine_drop_table(engine, "weights", error);
    case LATE_IN_NOISE:
        if (engine->self == 0)
            return drop_in_noise(engine, error);
        EXPECT(wait_at_gate(), "no gate");
        return rubato_engine_drop_table(engine, "weights", error);
    default:
        EXPECT(engine->self == 0 || wait_at_gate(), "no gate");
        return true;
    }
}

static const struct {
    const char *first, *then; /* the lines that node 3 logs */
} late_texts[N_LATE] = {
    [LATE_CLOCK] = { "worker 0 waits for clock 3 of table weights; slowest is worker 2 (node 7) at "
                     "2, last heard ",
                     NULL },
    [LATE_BARRIER] = { "barrier 0 of task slow waits for the workers of node 7 (127.0.0.1:0) [last "
                       "heard 0.",
                       NULL },
    [LATE_END] = { "the end of task slow waits for the workers of node 7 (127.0.0.1:0) [last heard "
                   "0.",
                   NULL },
    [LATE_CALL] = { "the call to drop table weights waits for node 7 (127.0.0.1:0) [last heard 0.",
                    "node 3 waits for the other nodes to come to table weights (for " },
    [LATE_LEAVE] = { "the end of the run waits for node 7 (127.0.0.1:0) [last heard 0.",
                     "node 3 has nothing left to do and serves the others until they leave too" },
    [LATE_IN_NOISE] = { "node 3 waits for the other nodes to come to table weights (for 1.5 s",
                        "node 3 waits for the other nodes to come to table weights (for 3.0 s" },
};

START_TEST(who_waits_says_for_whom)
{
    const Late late = (Late)_i;
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                         .nodes = { { 1, 1 }, { 1, 2 } },
                                         .stall_ms = late == LATE_IN_NOISE ? 1500 : 200 });

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_late, &late);
    cluster_wait_for(run, 0, late_texts[_i].first);
    if (late_texts[_i].then != NULL)
        cluster_wait_for(run, 0, late_texts[_i].then);
    open_gate(1);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *liveness_suite(void)
{
    Suite *suite = suite_create("liveness");
    TCase *lost = cluster_add_case(suite, "lost");
    TCase *back = cluster_add_case(suite, "back");
    TCase *waiting = cluster_add_case(suite, "waiting");

    tcase_add_loop_test(lost, a_lost_node_ends_the_run_on_all_others_and_by_name, 0,
                        (int)G_N_ELEMENTS(losses));
    tcase_add_loop_test(back, a_node_that_hung_and_comes_back_is_told_that_it_was_given_up, 0,
                        N_NODES);
    tcase_add_loop_test(back, a_short_pause_of_any_node_loses_nothing, 0, N_NODES);
    tcase_add_loop_test(waiting, who_waits_says_for_whom, 0, N_LATE);
    return suite;
}

int main(void)
{
    return run_suite(liveness_suite());
}
