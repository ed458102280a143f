/* The kit's clusters with faults on the wire: every Add takes effect exactly once, under BSP the
 * floats stay the same bits, and what goes wrong is told with its seed. */
#include <math.h>
#include <rubato/rubato.h>
#include <rubato/testing.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum { N_KEYS = 50, N_CLOCKS = 8, N_SINGLE = 5, STALENESS = 1, N_NODES = 2, N_OF_NODE = 2 };

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

/* ---- what workers do ---- */

typedef struct {
    const char *model;
    bool breaks;
    float floats[N_NODES][N_KEYS]; /* by node */
    _Atomic uint64_t n_resent;
} Scene;

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const Scene *scene = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    const float one = 1;
    float rows[N_KEYS], ones[N_KEYS];
    g_autoptr(RubatoKVTable) counts =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_F32, error);
    g_autoptr(RubatoKVTable) floats =
        rubato_worker_open_kv_table(worker, "floats", RUBATO_F32, error);

    TRY(counts != NULL && floats != NULL);
    for (uint32_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (uint32_t clock = 0; clock < N_CLOCKS; clock++) {
        if (scene->breaks && clock % 4 == 2 && rank == 0)
            REQUIRE(break_connections() > 0, "there was none");
        for (uint32_t i = 0; i < N_SINGLE; i++) {
            const RubatoKey key = (i * 10 + rank) % N_KEYS;

            TRY(rubato_kv_table_add(counts, &key, 1, &one, error));
        }
        TRY(rubato_kv_table_add_range(counts, 0, N_KEYS, ones, error) &&
            rubato_kv_table_get_range(counts, 0, N_KEYS, rows, error) &&
            rubato_kv_table_clock(counts, error) &&
            rubato_kv_table_get_range(floats, 0, N_KEYS, rows, error));
        for (uint32_t i = 0; i < N_KEYS; i++)
            rows[i] = 0.1f * ((float)(rank + i) - rows[i]) / 3;
        TRY(rubato_kv_table_add_range(floats, 0, N_KEYS, rows, error) &&
            rubato_kv_table_clock(floats, error));
    }
    return rubato_worker_barrier(worker, error);
}

static bool play(RubatoEngine *engine, void *user, GError **error)
{
    Scene *scene = user;
    const char *const tables[] = { "counts", "floats", NULL };
    const RubatoTableSpec counts = fitting_spec((RubatoTableSpec){
        .name = "counts", .n_keys = N_KEYS, .model = scene->model, .staleness = STALENESS });
    const RubatoTableSpec floats = { .name = "floats", .n_keys = N_KEYS, .model = "bsp" };
    const RubatoTask task = { .name = "work", .run = work, .user_data = user, .tables = tables };
    const uint32_t n_workers = rubato_engine_n_workers(engine);
    RubatoEngineStats stats;
    float rows[N_KEYS];

    TRY(rubato_engine_create_table(engine, &counts, error) &&
        rubato_engine_create_table(engine, &floats, error) &&
        rubato_engine_run(engine, &task, error) &&
        rubato_engine_get_range(engine, "counts", 0, N_KEYS, rows, error));
    for (uint32_t i = 0; i < N_KEYS; i++) {
        /* one from each worker in each clock, and one more from the worker whose single key it
         * is */
        const uint32_t n_adds = n_workers + (i % 10 < n_workers ? 1 : 0);

        REQUIRE(rows[i] == (float)(n_adds * N_CLOCKS), "key %u is %g, expected %u", i,
                (double)rows[i], n_adds * N_CLOCKS);
    }
    rubato_engine_stats(engine, &stats);
    atomic_fetch_add(&scene->n_resent, stats.packets_resent);
    return rubato_engine_get_range(engine, "floats", 0, N_KEYS,
                                   scene->floats[rubato_engine_node(engine)], error);
}

/* ---- cases ---- */

/* The same on two nodes as in one process. */
static void check_scene(Scene *cluster, const RubatoWireFaults *faults, uint64_t seed)
{
    Scene alone = { .model = cluster->model };
    g_autoptr(RubatoEngine) engine = rubato_engine_new(
        &(RubatoEngineConfig){ .servers = N_NODES, .workers = N_NODES * N_OF_NODE }, NULL);

    ck_assert(play(engine, &alone, NULL));
    rubato_test_cluster(&(RubatoClusterTest){ .workers = N_OF_NODE,
                                              .faults = faults,
                                              .play = play,
                                              .user = cluster,
                                              .first_seed = seed });
    for (uint32_t node = 0; node < N_NODES; node++)
        ck_assert_int_eq(memcmp(cluster->floats[node], alone.floats[0], sizeof alone.floats[0]), 0);
}

static const RubatoWireFaults faults[] = {
    { .loss = 0.05, .doubling = 0.1, .reordering = 0.02 },
    { .doubling = 0.5, .reordering = 0.05 },
    { .cut = 0.01, .cut_ms = 50 },
};

START_TEST(adds_count_once_over_a_network_that_loses_doubles_and_reorders)
{
    Scene scene = { .model = models[(size_t)_i % G_N_ELEMENTS(models)] };

    check_scene(&scene, &faults[(size_t)_i / G_N_ELEMENTS(models)], (uint64_t)_i);
    if ((size_t)_i < G_N_ELEMENTS(models)) /* of hundreds of packets, some were lost */
        ck_assert_uint_gt(atomic_load(&scene.n_resent), 0);
}
END_TEST

START_TEST(adds_count_once_over_connections_that_break)
{
    static const RubatoWireFaults none;
    Scene scene = { .model = models[_i], .breaks = true };

    check_scene(&scene, &none, 0);
}
END_TEST

START_TEST(faults_may_be_drawn)
{
    Scene scene = { .model = "ssp" };

    rubato_test_cluster(&(RubatoClusterTest){
        .n_nodes = N_NODES, .workers = N_OF_NODE, .play = play, .user = &scene, .n_seeds = 3 });
}
END_TEST

static bool fail_on_second(RubatoEngine *engine, void *user, GError **error)
{
    (void)user;
    REQUIRE(rubato_engine_node(engine) != 1, "it does not like this");
    return true;
}

START_TEST(node_that_fails_is_told_with_its_seed)
{
    const RubatoClusterTest test = {
        .n_nodes = 3, .play = fail_on_second, .first_seed = 77, .n_seeds = 4
    };
    g_autofree char *story = rubato_test_cluster_story(&test);

    ck_assert_ptr_nonnull(story);
    ck_assert_msg(g_str_has_prefix(story, "node 1: ") &&
                      strstr(story, "it does not like this\nseed 77: 3 nodes") != NULL,
                  "%s", story);
    g_autofree char *again = rubato_test_cluster_story(&test);
    ck_assert_str_eq(story, again); /* so the same faults were drawn */
}
END_TEST

/* The worker of rank 1 comes to no barrier. */
static bool wait_in_vain(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 1;
    float value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);

    (void)user_data;
    TRY(table != NULL);
    if (rubato_worker_rank(worker) != 1)
        return rubato_worker_barrier(worker, error);
    while (rubato_kv_table_get(table, &key, 1, &value, error))
        ;
    return false;
}

static bool play_in_vain(RubatoEngine *engine, void *user, GError **error)
{
    const RubatoTableSpec spec = { .name = "t", .n_keys = 9 };
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = { .name = "vain", .run = wait_in_vain, .tables = tables };

    (void)user;
    return rubato_engine_create_table(engine, &spec, error) &&
           rubato_engine_run(engine, &task, error);
}

START_TEST(nodes_that_do_not_end_are_cancelled)
{
    static const RubatoWireFaults none;
    const RubatoClusterTest test = {
        .faults = &none, .play = play_in_vain, .patience_s = 2, .first_seed = 5
    };
    g_autofree char *story = rubato_test_cluster_story(&test);

    ck_assert_ptr_nonnull(story);
    ck_assert_msg(g_str_has_prefix(story, "the nodes did not end in time\nnode "), "%s", story);
    ck_assert_msg(strstr(story, "\nseed 5: 2 nodes") != NULL, "%s", story);
}
END_TEST

START_TEST(chances_that_are_none_are_refused)
{
    static const RubatoWireFaults wrong[] = { { .loss = 2 }, { .cut = -1 }, { .doubling = NAN } };
    const RubatoEngineConfig config = { .servers = 1 };

    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        GError *error = NULL;

        ck_assert_ptr_null(rubato_engine_new_with_faults(&config, &wrong[i], &error));
        check_error(&error, RUBATO_ERROR_INVALID, "from 0 to 1", NULL);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster kit");
    TCase *tcase = tcase_create("clusters");

    tcase_add_loop_test(tcase, adds_count_once_over_a_network_that_loses_doubles_and_reorders, 0,
                        G_N_ELEMENTS(models) * G_N_ELEMENTS(faults));
    tcase_add_loop_test(tcase, adds_count_once_over_connections_that_break, 0,
                        G_N_ELEMENTS(models));
    tcase_add_test(tcase, faults_may_be_drawn);
    tcase_add_test(tcase, node_that_fails_is_told_with_its_seed);
    tcase_add_test(tcase, nodes_that_do_not_end_are_cancelled);
    tcase_add_test(tcase, chances_that_are_none_are_refused);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
