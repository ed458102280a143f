/* A node is killed whose parts have 256 MB each, and three replicas are made in the place of those
 * that it had. Meanwhile two workers get and add rows of all parts: each Add counts once, and none
 * of them waits for a time that grows with the part. Takes 4 GB.
 *
 * How long they wait depends on the machine and what else runs there. So it is compared with how
 * long the replicas took, which depends on that, too. An image that goes as a whole holds them up
 * for most of that time, slices of it for some hundredths. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum {
    N_NODES = 4,
    VICTIM = 3, /* two servers, without workers */
    WIDTH = 8,
    N_PARTS = 5,
    N_MADE = 3, /* a replica of each of its two parts, and of the one of which it had a replica */
    N_KEYS = N_PARTS * (256 << 20) / (WIDTH * 8),
    N_ASKED = 200,
    RUN = 100000, /* keys in a row, to touch all rows first */
};

/* Shared with the nodes: when the victim was killed. */
static gint64 *killed_us;

static bool touch_all(RubatoKVTable *table, uint32_t rank, GError **error)
{
    const uint64_t half = N_KEYS / 2, end = rank == 0 ? half : N_KEYS;
    g_autofree int64_t *zeros = g_new0(int64_t, (size_t)RUN * WIDTH);

    for (uint64_t first = rank * half; first < end; first += RUN)
        TRY(rubato_kv_table_add_range(table, first, MIN(RUN, end - first), zeros, error));
    return true;
}

static bool add_some(RubatoKVTable *table, GRand *random, GError **error)
{
    RubatoKey keys[N_ASKED];
    int64_t rows[N_ASKED * WIDTH];

    for (size_t i = 0; i < N_ASKED; i++)
        keys[i] = (RubatoKey)g_rand_int_range(random, 1, N_KEYS);
    TRY(rubato_kv_table_get(table, keys, N_ASKED, rows, error));
    for (size_t i = 0; i < N_ASKED * WIDTH; i++)
        rows[i] = i % WIDTH == 0;
    return rubato_kv_table_add(table, keys, N_ASKED, rows, error) &&
           rubato_kv_table_clock(table, error);
}

/* Row 0 counts what was added. */
static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    RubatoEngine *const engine = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    g_autoptr(GRand) random = g_rand_new_with_seed(rank);
    RubatoEngineStats stats = { 0 };
    int64_t count[WIDTH] = { 0 };
    gint64 worst_us = 0, now_us = 0;

    TRY(table != NULL && touch_all(table, rank, error));
    TRY(rubato_worker_barrier(worker, error));
    cluster_say("busy");
    while (stats.new_replicas < N_MADE && count[1] < INT32_MAX) {
        const gint64 begun_us = g_get_monotonic_time();

        TRY(add_some(table, random, error));
        now_us = g_get_monotonic_time();
        count[1] += N_ASKED;
        if (begun_us >= *killed_us && *killed_us > 0)
            worst_us = MAX(worst_us, now_us - begun_us);
        rubato_engine_stats(engine, &stats);
    }
    cluster_say("the longest of worker %u took %.1f ms, of %.1f ms for all replicas", rank,
                (double)worst_us / 1000, (double)(now_us - *killed_us) / 1000);
    REQUIRE(worst_us < (now_us - *killed_us) / 4, "it waited for a part that is copied");
    return rubato_kv_table_add(table, &(RubatoKey){ 0 }, 1, count, error);
}

static bool check_sum(RubatoEngine *engine, GError **error)
{
    g_autofree int64_t *rows = g_new(int64_t, (size_t)RUN * WIDTH);
    int64_t sum = 0, wanted = 0;

    for (uint64_t first = 0; first < N_KEYS; first += RUN) {
        const size_t n = (size_t)MIN((uint64_t)RUN, N_KEYS - first);

        TRY(rubato_engine_get_range(engine, "t", first, n, rows, error));
        for (size_t i = 0; i < n; i++)
            sum += rows[i * WIDTH];
        if (first == 0)
            wanted = rows[1];
    }
    EXPECT(sum == wanted && wanted > 0, "%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT, sum, wanted);
    return true;
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "t", NULL };
    const RubatoTableSpec spec = { .name = "t",
                                   .dtype = RUBATO_I64,
                                   .width = WIDTH,
                                   .n_keys = N_KEYS,
                                   .storage = "dense",
                                   .model = "asp",
                                   .replicas = 1 };
    const RubatoTask task = { .name = "add", .run = work, .user_data = engine, .tables = tables };

    (void)data;
    TRY(rubato_engine_create_table(engine, &spec, error));
    TRY(rubato_engine_run(engine, &task, error));
    TRY(rubato_engine_node(engine) != CLUSTER_IDS[0] || check_sum(engine, error));
    return rubato_engine_barrier(engine, error);
}

START_TEST(nobody_waits_for_a_large_part_that_is_copied)
{
    killed_us =
        mmap(NULL, sizeof *killed_us, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ClusterRun *const run = cluster_run_new(
        &(ClusterShape){ .n_nodes = N_NODES, .nodes = { { 1, 1 }, { 1, 1 }, { 1, 0 }, { 2, 0 } } });

    cluster_start(run, play, NULL);
    cluster_wait_for(run, 0, "busy");
    cluster_wait_for(run, 1, "busy");
    *killed_us = g_get_monotonic_time();
    cluster_signal(run, VICTIM, SIGKILL);
    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("soak_copies");
    TCase *const cases = cluster_add_case(suite, "copies");

    tcase_add_test(cases, nobody_waits_for_a_large_part_that_is_copied);
    tcase_set_timeout(cases, 300);
    return run_suite(suite);
}
