/* A node that runs out of memory: the task fails on every node, in order, with the table's name,
 * and the run goes on. The kernel sets the limit, on the addresses that the process may use.
 *
 * docs/liveness.md: A node without memory */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/engine/scarce_memory.h"
#include "tests/support/runner.h"

enum { N_CALL = 1000, WIDTH = 64, N_MOST = 4000, STARVING = 1, SPARE_BYTES = 96 << 20 };

static const char *const models[] = { "asp", "bsp", "ssp" };

static const ClusterShape shape = { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } };

/* Leaves the process some more bytes than it has now. */
static bool limit_memory(GError **error)
{
    unsigned long n_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    const int n_read = file == NULL ? 0 : fscanf(file, "%lu", &n_pages);

    if (file != NULL)
        fclose(file);
    EXPECT(n_read == 1, "statm");
    const rlim_t bytes = (rlim_t)n_pages * 4096 + SPARE_BYTES;
    EXPECT(setrlimit(RLIMIT_AS, &(struct rlimit){ bytes, RLIM_INFINITY }) == 0, "setrlimit");
    return true;
}

static bool unlimit_memory(GError **error)
{
    EXPECT(setrlimit(RLIMIT_AS, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY }) == 0,
           "setrlimit");
    return true;
}

/* Adds rows for ever; far more than the node has room for. */
static bool fill(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t n_calls = *(const uint32_t *)user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree float *deltas = g_new0(float, N_CALL *WIDTH);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_CALL);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "wide", RUBATO_F32, error);

    if (table == NULL)
        return false;
    for (uint64_t call = 0; call < n_calls; call++) {
        for (uint64_t i = 0; i < N_CALL; i++)
            keys[i] = (call * N_CALL + i) * UINT64_C(0x9e3779b97f4a7c15) + rank;
        if (!rubato_kv_table_add(table, keys, N_CALL, deltas, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    }
    return true;
}

/* What a node writes at any time, such as whom it waits for. GLib ends the process if there is no
 * memory for a text. */
static void *write_texts(void *user)
{
    const _Atomic bool *const ends = user;
    char *texts[64];

    for (unsigned i = 0; !*ends; i++) {
        for (size_t k = 0; k < G_N_ELEMENTS(texts); k++)
            texts[k] = g_strdup_printf("text %zu of turn %u, as long as a line of the log", k, i);
        for (size_t k = 0; k < G_N_ELEMENTS(texts); k++)
            g_free(texts[k]);
        sched_yield();
    }
    return NULL;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "wide", NULL };
    const RubatoTableSpec spec = fitting_spec((RubatoTableSpec){
        .name = "wide", .width = WIDTH, .storage = "hash", .model = data, .staleness = 2 });
    const uint32_t most = N_MOST, few = 2;
    _Atomic bool has_filled = false;
    GError *found = NULL;
    pthread_t writer;

    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[STARVING] && !limit_memory(error))
        return false;
    EXPECT(pthread_create(&writer, NULL, write_texts, &has_filled) == 0, "no thread");
    const bool succeeded = cluster_run_task(engine, "fill", fill, &most, tables, &found);
    has_filled = true;
    pthread_join(writer, NULL);
    EXPECT(!succeeded, "it succeeded");
    if (!unlimit_memory(error) ||
        !cluster_expect_error(&found, RUBATO_ERROR_MEMORY, "table wide", error) ||
        !cluster_run_task(engine, "fill again", fill, &few, tables, error))
        return false;
    cluster_say("went on");
    return true;
}

START_TEST(a_node_without_memory_fails_the_task_on_every_node)
{
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play, models[_i]);
    cluster_expect_success(run);
    for (uint32_t node = 0; node < shape.n_nodes; node++)
        cluster_expect_text(run, node, "went on");
    cluster_run_free(run);
}
END_TEST

/* ---- what a node cannot do without ---- */

/* No allocation succeeds on one node any more, so it cannot even say that it has come. */
static bool play_without_any(RubatoEngine *engine, const void *data, GError **error)
{
    (void)data;
    if (!rubato_engine_barrier(engine, error))
        return false;
    if (rubato_engine_node(engine) == CLUSTER_IDS[STARVING])
        scarce_memory_begin(0, 1, UINT64_MAX);
    return rubato_engine_barrier(engine, error);
}

START_TEST(a_node_without_memory_for_a_control_message_ends_and_is_lost)
{
    const uint32_t timeout_ms = cluster_short_timeout_ms();
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                                       .nodes = { { 1, 1 }, { 1, 1 } },
                                                       .heartbeat_ms = timeout_ms / 10,
                                                       .timeout_ms = timeout_ms });

    cluster_start(run, play_without_any, NULL);
    ck_assert_int_lt(cluster_wait_end(run, STARVING), 0); /* by a signal */
    cluster_expect_text(run, STARVING, "no memory for a");
    cluster_expect_end(run, 0, CLUSTER_FAILED);
    cluster_expect_text(run, 0, "node 7 (127.0.0.1:0) was lost");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    /* A sanitizer's own memory cannot be told from a program's. */
    if (cluster_slowness() != 1)
        return 77;

    Suite *suite = suite_create("cluster memory");
    TCase *tasks = cluster_add_case(suite, "tasks");

    tcase_add_loop_test(tasks, a_node_without_memory_fails_the_task_on_every_node, 0,
                        G_N_ELEMENTS(models));
    tcase_add_test(tasks, a_node_without_memory_for_a_control_message_ends_and_is_lost);
    return run_suite(suite);
}
