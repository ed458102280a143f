/* Pushes of borrowed arrays to another node: each takes effect once while connections break. The
 * array is the worker's own again when the call has ended, whatever ends it. So it is unmapped
 * then: a process that reads it later ends, and a socket does not take it. What is allocated for
 * such a push is measured by test_cluster_borrowed_memory. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/outage.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

static const FlowSizes usual = FLOW_SIZES_USUAL;
static const RubatoRequestOptions borrowed = { .buffers = RUBATO_BUFFERS_BORROWED };

typedef struct {
    const char *over;
    bool encrypts;
} Way;

static const Way ways[] = { { "tcp", false }, { "tcp", true }, { "shm", false } };

enum { N_TCP_WAYS = 2 }; /* the first ones */

/* Node 0 has the scheduler and the workers, the other node all rows. */
static ClusterShape shape_of(const Way *way)
{
    return (ClusterShape){ .n_nodes = 2,
                           .nodes = { { 0, 2 }, { 2, 0 } },
                           .over = way->over,
                           .encrypts = way->encrypts,
                           .sizes = &usual };
}

static float *map_ones(size_t n)
{
    float *const ones =
        mmap(NULL, n * sizeof *ones, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    g_assert(ones != MAP_FAILED);
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    return ones;
}

static void unmap(float *ones, size_t n)
{
    g_assert(munmap(ones, n * sizeof *ones) == 0);
}

static bool create_rows(RubatoEngine *engine, size_t n, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows", .dtype = RUBATO_F32, .n_keys = n };

    return rubato_engine_create_table(engine, &spec, error);
}

static const char *const tables[] = { "rows", NULL };

/* ---- connections that break ---- */

/* Each server has an odd number of rows, so not all messages end at a multiple of eight bytes. STEP
 * and N_KEYS have no common factor. */
enum { N_KEYS = 300002, N_ROUNDS = 6, STEP = 104729 };

static float delta_of(RubatoKey key)
{
    return (float)(key % 7 + 1);
}

static bool push_while_cut(RubatoWorker *worker, void *user_data, GError **error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const bool is_range = rubato_worker_rank(worker) == 0;
    g_autofree float *seen = g_new(float, N_KEYS);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_KEYS);

    (void)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);
    if (table == NULL)
        return false;
    for (unsigned round = 0; round < N_ROUNDS; round++) {
        const bool is_spread = round % 2 == 1;
        float *const deltas = map_ones(N_KEYS);

        for (size_t i = 0; i < N_KEYS; i++) {
            keys[i] = is_spread ? i * STEP % N_KEYS : i;
            deltas[i] = delta_of(is_range ? i : keys[i]);
        }
        const RubatoTicket ticket =
            is_range && round % 2 == 0
                ? rubato_kv_table_add_range_async(table, 0, N_KEYS, deltas, &borrowed, error)
            : is_range ? rubato_kv_table_add_get_range_async(table, 0, N_KEYS, deltas, seen,
                                                             &borrowed, error)
                       : rubato_kv_table_add_async(table, keys, N_KEYS, deltas, &borrowed, error);

        if (ticket == 0)
            return false;
        pthread_mutex_lock(&lock);
        (void)outage_reset_connections(2);
        pthread_mutex_unlock(&lock);
        if (!rubato_worker_wait(worker, ticket, error))
            return false;
        unmap(deltas, N_KEYS);
    }
    return true;
}

static bool play_cuts(RubatoEngine *engine, const void *data, GError **error)
{
    g_autofree float *values = g_new(float, N_KEYS);
    size_t n_wrong = 0;

    (void)data;
    if (!create_rows(engine, N_KEYS, error) ||
        !cluster_run_task(engine, "cut", push_while_cut, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "rows", 0, N_KEYS, values, error))
        return false;
    for (size_t i = 0; i < N_KEYS; i++)
        n_wrong += values[i] != 2 * N_ROUNDS * delta_of(i);
    EXPECT(n_wrong == 0, "%zu rows are wrong", n_wrong);
    return true;
}

START_TEST(borrowed_pushes_take_effect_once_while_connections_break)
{
    const ClusterShape shape = shape_of(&ways[_i]);
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play_cuts, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- calls that end before their node has taken in what it was sent ---- */

enum { N_HELD = 4 << 20 }; /* floats: more than a connection or a ring takes */

static Event pushed = EVENT_INIT; /* of the workers' process */
static int gate[2];               /* opened by the case when the other node stands still */

/* Worker 0 pushes to a node that stands still. Then worker 1 fails, or leaves it to that. */
static bool push_to_one_that_stands_still(RubatoWorker *worker, void *user_data, GError **error)
{
    const bool fails = *(const bool *)user_data;
    char open;

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);
    if (table == NULL)
        return false;
    if (rubato_worker_rank(worker) == 1) {
        if (!event_await(&pushed, 1, worker, error))
            return false;
        if (!fails)
            return true;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it was pushed");
        return false;
    }
    float *const ones = map_ones(N_HELD);
    cluster_say("ready");
    EXPECT(read(gate[0], &open, 1) == 1, "no gate");
    const RubatoTicket ticket =
        rubato_kv_table_add_range_async(table, 0, N_HELD, ones, &borrowed, error);
    EXPECT(ticket != 0, "there is no ticket");
    event_raise(&pushed);
    const bool is_done = rubato_worker_wait(worker, ticket, error);
    unmap(ones, N_HELD);
    cluster_say("the array is free");
    return is_done;
}

static bool play_cancelled(RubatoEngine *engine, const void *data, GError **error)
{
    const bool fails = true;
    GError *found = NULL;

    (void)data;
    if (!create_rows(engine, N_HELD, error))
        return false;
    EXPECT(!cluster_run_task(engine, "fail", push_to_one_that_stands_still, &fails, tables, &found),
           "it went well");
    return cluster_expect_error(&found, RUBATO_ERROR_TASK_FAILED, "it was pushed", error) &&
           cluster_run_task(engine, "go on", push_while_cut, NULL, tables, error);
}

START_TEST(a_cancelled_push_lets_go_of_its_array_while_its_node_stands_still)
{
    const ClusterShape shape = shape_of(&ways[_i]);
    ClusterRun *run = cluster_run_new(&shape);

    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_cancelled, NULL);
    cluster_wait_for(run, 0, "ready");
    cluster_signal(run, 1, SIGSTOP);
    ck_assert_int_eq(write(gate[1], "", 1), 1);
    cluster_wait_for(run, 0, "the array is free");
    cluster_signal(run, 1, SIGCONT);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static bool play_lost(RubatoEngine *engine, const void *data, GError **error)
{
    const bool fails = false;

    (void)data;
    return create_rows(engine, N_HELD, error) &&
           cluster_run_task(engine, "push", push_to_one_that_stands_still, &fails, tables, error);
}

/* Each death is waited for in real time, so one transport is enough. */
START_TEST(a_push_to_a_node_that_dies_lets_go_of_its_array)
{
    ClusterShape shape = shape_of(&ways[0]);

    shape.timeout_ms = cluster_short_timeout_ms();
    shape.heartbeat_ms = shape.timeout_ms / 10;
    ClusterRun *run = cluster_run_new(&shape);
    ck_assert_int_eq(pipe(gate), 0);
    cluster_start(run, play_lost, NULL);
    cluster_wait_for(run, 0, "ready");
    cluster_signal(run, 1, SIGSTOP);
    ck_assert_int_eq(write(gate[1], "", 1), 1);
    cluster_wait_for(run, 0, "the array is free");
    cluster_signal(run, 1, SIGKILL);
    cluster_expect_end(run, 1, -SIGKILL);
    cluster_expect_end(run, 0, CLUSTER_FAILED);
    cluster_expect_text(run, 0, "was lost");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_borrowed");
    TCase *const cases = cluster_add_case(suite, "borrowed");

    tcase_add_loop_test(cases, borrowed_pushes_take_effect_once_while_connections_break, 0,
                        N_TCP_WAYS);
    tcase_add_loop_test(cases, a_cancelled_push_lets_go_of_its_array_while_its_node_stands_still, 0,
                        G_N_ELEMENTS(ways));
    tcase_add_test(cases, a_push_to_a_node_that_dies_lets_go_of_its_array);
    return run_suite(suite);
}
