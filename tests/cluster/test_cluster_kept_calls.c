/* Calls of handlers that BSP keeps, on several nodes, over shared memory and TCP, with usual and
 * with small pieces and windows: one that fails says so to its caller alone; one that loops is
 * named to whoever waits. */
#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_KEYS = 300, N_PARTS = 5 };

static const ClusterShape shapes[] = {
    { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 2 } }, .over = "shm" },
    { .n_nodes = 2, .nodes = { { 2, 1 }, { 1, 1 } }, .over = "tcp" },
    { .n_nodes = 3, .nodes = { { 1, 1 }, { 1, 2 }, { 0, 1 } }, .scheduler = 2, .over = "tcp" },
};

/* In memory that the case and its nodes share. */
static sem_t *may_end;

/* ---- the handlers ---- */

/* Fails on part 1, with the arguments as text. */
static bool run_fail(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    const size_t n = rubato_byte_reader_left(arguments);
    g_autofree char *text = g_strndup(rubato_read_bytes(arguments, n), n);

    (void)result;
    if (rubato_part_number(part) != 1)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it does not like %s", text);
    return false;
}

static bool run_loop(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    (void)part;
    (void)arguments;
    (void)result;
    (void)error;
    while (sem_wait(may_end) != 0)
        if (errno != EINTR)
            return false;
    return true;
}

static const RubatoHandlerOps own_handlers[] = {
    { .name = "fail", .access = RUBATO_ACCESS_WRITES, .run = run_fail },
    { .name = "loop", .access = RUBATO_ACCESS_WRITES, .run = run_loop },
};

static void register_all(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(own_handlers); i++)
        ck_assert(rubato_register_handler(&own_handlers[i], NULL));
}

static bool make_table(RubatoEngine *engine, GError **error)
{
    return rubato_engine_create_table(
        engine,
        &(RubatoTableSpec){ .name = "t", .n_keys = N_KEYS, .parts = N_PARTS, .model = "bsp" },
        error);
}

static const char *const table_list[] = { "t", NULL };

/* ---- one that fails ---- */

/* A call that has many pieces where pieces are small, and that fails on part 1. */
static bool call_failing(RubatoWorker *worker, bool by_ticket, GError **error)
{
    g_autofree char *text =
        g_strdup_printf("worker %u, clock 0%*s", rubato_worker_rank(worker), 3000, "!");
    const RubatoHandlerCall fail = {
        .table = "t", .handler = "fail", .arguments = text, .n_argument_bytes = strlen(text)
    };

    return by_ticket ? rubato_worker_call_handler_async(worker, &fail, NULL, NULL, error) != 0 &&
                           rubato_worker_wait_all(worker, error)
                     : rubato_worker_call_handler(worker, &fail, NULL, error);
}

/* The first and the last worker call at clock 0. Their clocks that would end clock 1 fail. Then all
 * go on, and read what all have added. */
static bool fail_and_go_on(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n = rubato_worker_n_workers(worker);
    const bool calls = rank == 0 || rank == n - 1;
    g_autofree char *text = g_strdup_printf("it does not like worker %u, clock 0", rank);
    const RubatoKey key = N_KEYS / 2;
    const float one = 1;
    float value;
    GError *found = NULL;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL || (calls && !call_failing(worker, /* by_ticket= */ rank == 0, error)))
        return false;
    for (int clock = 0; clock < 3; clock++) {
        if (calls && clock == 1) {
            EXPECT(!rubato_kv_table_clock(table, &found), "the call has failed");
            EXPECT(strstr(found->message, "table t: handler fail failed on part 1 (node ") != NULL,
                   "%s", found->message);
            if (!cluster_expect_error(&found, RUBATO_ERROR_HANDLER, text, error))
                return false;
        }
        if (!rubato_kv_table_add(table, &key, 1, &one, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    }
    if (!rubato_kv_table_get(table, &key, 1, &value, error))
        return false;
    EXPECT(value == (float)(3 * n), "%g", (double)value);
    return true;
}

static bool play_failure(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return make_table(engine, error) &&
           cluster_run_task(engine, "fail", fail_and_go_on, NULL, table_list, error) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(kept_call_that_fails_reaches_its_caller_alone)
{
    ClusterShape shape = shapes[_i];
    ClusterRun *run;

    if (_i == 1)
        shape.sizes = small_sizes();
    run = cluster_run_new(&shape);
    cluster_start(run, play_failure, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- one that loops ---- */

/* Worker 0 calls a handler that loops on node 1. Worker 1, on node 2, has called nothing: it only
 * reads a row of that server. */
static bool loop_or_get(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoHandlerCall loop = {
        .table = "t", .handler = "loop", .scope = RUBATO_SCOPE_PART, .part = 0
    };
    const RubatoKey key = 0;
    float value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    return (rubato_worker_rank(worker) != 0 ||
            rubato_worker_call_handler(worker, &loop, NULL, error)) &&
           rubato_kv_table_clock(table, error) &&
           rubato_kv_table_get(table, &key, 1, &value, error);
}

static bool play_loop(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    return make_table(engine, error) &&
           cluster_run_task(engine, "loop", loop_or_get, NULL, table_list, error) &&
           rubato_engine_barrier(engine, error);
}

/* All parts are on node 1, where the scheduler is, or is not. */
START_TEST(kept_call_that_loops_is_named_to_who_waits_on_other_nodes)
{
    ClusterShape shape = { .n_nodes = 3,
                           .nodes = { { 1, 0 }, { 0, 1 }, { 0, 1 } },
                           .scheduler = _i == 0 ? 0 : 1,
                           .heartbeat_ms = 50,
                           .stall_ms = 100,
                           .over = _i == 0 ? "shm" : "tcp" };
    g_autofree char *runs = g_strdup_printf("server 0 (node %u) runs handler loop", CLUSTER_IDS[0]);
    ClusterRun *run = cluster_run_new(&shape);

    may_end =
        mmap(NULL, sizeof *may_end, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(may_end != MAP_FAILED);
    ck_assert_int_eq(sem_init(may_end, /* pshared= */ 1, 0), 0);
    cluster_start(run, play_loop, NULL);
    cluster_wait_for(run, 2, "worker 1 waits for an answer of node ");
    cluster_wait_for(run, 2, runs);
    cluster_wait_for(run, 1, runs);
    ck_assert_int_eq(sem_post(may_end), 0);
    cluster_expect_success(run);
    cluster_run_free(run);
    munmap(may_end, sizeof *may_end);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_kept_calls");
    TCase *const cases = cluster_add_case(suite, "kept calls");

    tcase_add_checked_fixture(cases, register_all, NULL);
    tcase_add_loop_test(cases, kept_call_that_fails_reaches_its_caller_alone, 0,
                        G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, kept_call_that_loops_is_named_to_who_waits_on_other_nodes, 0, 2);
    return run_suite(suite);
}
