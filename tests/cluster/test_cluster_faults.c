/* Networks with faults: packets that are lost, doubled and overtaken, connections that break. Every
 * Add takes effect exactly once, and under BSP the floats stay the same bits. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/network/lossy.h"
#include "tests/support/runner.h"

enum { N_KEYS = 50, N_CLOCKS = 8, N_SINGLE = 5, STALENESS = 1 };

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

/* ---- what breaks connections ---- */

/* Shuts down every connection of this process while others use them; bytes on their way are lost.
 * It makes the system calls itself, because sanitizers would take calls of libc for a use of the
 * descriptors. */
static unsigned break_connections(void)
{
    unsigned n_broken = 0;

    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;

        if (syscall(SYS_getpeername, fd, &peer, &size) == 0 && peer.ss_family == AF_INET &&
            syscall(SYS_shutdown, fd, SHUT_RDWR) == 0)
            n_broken++;
    }
    return n_broken;
}

/* ---- the task ---- */

typedef struct {
    const char *model;
    bool breaks;
} Scene;

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const Scene *scene = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    float rows[N_KEYS], deltas[N_KEYS], ones[N_KEYS];
    g_autoptr(RubatoKVTable) counts =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F32, error);
    g_autoptr(RubatoKVTable) floats =
        rubato_worker_open_kv_table(worker, "floats", RUBATO_F32, error);

    if (counts == NULL || floats == NULL)
        return false;
    for (uint32_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (uint32_t clock = 0; clock < N_CLOCKS; clock++) {
        if (scene->breaks && clock % 4 == 2 && rank == 0)
            EXPECT(break_connections() > 0, "there was none");
        for (uint32_t i = 0; i < N_SINGLE; i++) {
            const RubatoKey key = (i * 10 + rank) % N_KEYS;
            const float one = 1;

            if (!rubato_kv_table_add(counts, &key, 1, &one, error))
                return false;
        }
        if (!rubato_kv_table_add_range(counts, 0, N_KEYS, ones, error))
            return false;
        if (!rubato_kv_table_get_range(counts, 0, N_KEYS, rows, error) ||
            !rubato_kv_table_clock(counts, error) ||
            !rubato_kv_table_get_range(floats, 0, N_KEYS, deltas, error))
            return false;
        for (uint32_t i = 0; i < N_KEYS; i++)
            deltas[i] = 0.1f * ((float)(rank + i) - deltas[i]) / 3;
        if (!rubato_kv_table_add_range(floats, 0, N_KEYS, deltas, error) ||
            !rubato_kv_table_clock(floats, error))
            return false;
    }
    return rubato_worker_barrier(worker, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const Scene *scene = data;
    const char *const tables[] = { "counts", "floats", NULL };
    const RubatoTableSpec counts = {
        .name = "counts", .n_keys = N_KEYS, .model = scene->model, .staleness = STALENESS
    };
    const RubatoTableSpec floats = { .name = "floats", .n_keys = N_KEYS, .model = "bsp" };
    const uint32_t n_workers = rubato_engine_n_workers(engine);
    g_autofree char *digest = NULL;
    float rows[N_KEYS];

    if (!rubato_engine_create_table(engine, &counts, error) ||
        !rubato_engine_create_table(engine, &floats, error) ||
        !cluster_run_task(engine, "work", work, scene, tables, error) ||
        !rubato_engine_get_range(engine, "counts", 0, N_KEYS, rows, error))
        return false;
    for (uint32_t i = 0; i < N_KEYS; i++) {
        /* one from each worker in each clock, and one more from the worker whose single key it
         * is */
        const uint32_t n_adds = n_workers + (i % 10 < n_workers ? 1 : 0);

        EXPECT(rows[i] == (float)(n_adds * N_CLOCKS), "key %u is %g, expected %u", i,
               (double)rows[i], n_adds * N_CLOCKS);
    }
    if (!rubato_engine_get_range(engine, "floats", 0, N_KEYS, rows, error))
        return false;
    digest = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)rows, sizeof rows);
    cluster_say("floats=%s", digest);
    if (engine->network != NULL) {
        NetworkStats stats;

        network_stats(engine->network, &stats);
        cluster_say("resent %d, dropped %d doubled and %d early", (int)stats.packets_resent,
                    (int)stats.duplicates_dropped, (int)stats.early_dropped);
    }
    return true;
}

static const ClusterShape TWO = { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } } };

/* The digest of the floats if there is no network. */
static char *undisturbed(const char *model)
{
    const Scene scene = { model, false };
    g_autofree char *text = cluster_play_alone(2, 4, play, &scene);

    ck_assert(g_str_has_prefix(text, "floats="));
    return g_strndup(text, strcspn(text, "\n"));
}

/* Each loss costs the time until the link notices it, so a few are enough. */
static const struct {
    const char *model;
    Lossy lossy;
} losses[] = {
    { "asp", { .loss = 0.02, .doubling = 0.1, .delay = 0.02, .seed = 1 } },
    { "bsp", { .loss = 0.02, .doubling = 0.1, .delay = 0.02, .seed = 2 } },
    { "ssp", { .loss = 0.02, .doubling = 0.1, .delay = 0.02, .seed = 3 } },
    { "sparse_ssp", { .loss = 0.02, .doubling = 0.1, .delay = 0.02, .seed = 4 } },
    { "asp", { .doubling = 0.5, .delay = 0.05, .seed = 5 } },
};

START_TEST(adds_count_once_over_a_network_that_loses_doubles_and_reorders)
{
    const Scene scene = { losses[_i].model, false };
    g_autofree char *expected = undisturbed(scene.model);
    ClusterShape shape = TWO;
    ClusterRun *run;

    shape.transport = lossy_transport(&losses[_i].lossy);
    run = cluster_run_new(&shape);
    cluster_start(run, play, &scene);
    cluster_expect_success(run);
    for (uint32_t i = 0; i < 2; i++) {
        cluster_expect_text(run, i, expected);
        cluster_expect_no_text(run, i, "dropped 0 doubled and 0 early");
    }
    cluster_run_free(run);
}
END_TEST

START_TEST(adds_count_once_over_connections_that_break)
{
    const Scene scene = { models[_i], true };
    g_autofree char *expected = undisturbed(scene.model);
    ClusterShape shape = TWO;
    ClusterRun *run;

    shape.over = "tcp";
    run = cluster_run_new(&shape);

    cluster_start(run, play, &scene);
    cluster_expect_success(run);
    for (uint32_t i = 0; i < 2; i++)
        cluster_expect_text(run, i, expected);
    cluster_run_free(run);
}
END_TEST

static Suite *faults_suite(void)
{
    Suite *suite = suite_create("faults of the network");
    TCase *packets = cluster_add_case(suite, "packets");
    TCase *connections = cluster_add_case(suite, "connections");

    tcase_add_loop_test(packets, adds_count_once_over_a_network_that_loses_doubles_and_reorders, 0,
                        (int)G_N_ELEMENTS(losses));
    tcase_add_loop_test(connections, adds_count_once_over_connections_that_break, 0,
                        (int)G_N_ELEMENTS(models));
    return suite;
}

int main(void)
{
    return run_suite(faults_suite());
}
