/* BSP's promise: a run's floats are the same bits whatever the number of nodes and servers; and how
 * many messages its clocks, and those of the other models, cost. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum { N_KEYS = 97, WIDTH = 4, N_CLOCKS = 8, N_WORKERS = 6 };

/* Six workers each, in the same order of ranks. */
static const ClusterShape shapes[] = {
    { .n_nodes = 1, .nodes = { { 1, 6 } } },
    { .n_nodes = 1, .nodes = { { 2, 6 } } },
    { .n_nodes = 1, .nodes = { { 3, 6 } } },
    { .n_nodes = 1, .nodes = { { 4, 6 } } },
    { .n_nodes = 2, .nodes = { { 0, 3 }, { 1, 3 } } },
    { .n_nodes = 2, .nodes = { { 1, 3 }, { 1, 3 } } },
    { .n_nodes = 2, .nodes = { { 2, 1 }, { 1, 5 } } },
    { .n_nodes = 2, .nodes = { { 1, 6 }, { 3, 0 } }, .scheduler = 1 },
    { .n_nodes = 3, .nodes = { { 1, 2 }, { 0, 2 }, { 0, 2 } } },
    { .n_nodes = 3, .nodes = { { 1, 0 }, { 1, 4 }, { 0, 2 } } },
    { .n_nodes = 3, .nodes = { { 1, 2 }, { 1, 2 }, { 1, 2 } } },
    { .n_nodes = 3, .nodes = { { 1, 1 }, { 2, 3 }, { 1, 2 } }, .scheduler = 2 },
};

static RubatoKey scattered(uint64_t i)
{
    return i * UINT64_C(0xd1342543de82ef95) + 1;
}

/* The tables: values that are added to, and values that rules with state learn, from each gradient
 * or from a clock's mean of them. */
static const RubatoTableSpec specs[] = {
    { .name = "dense",
      .width = WIDTH,
      .n_keys = N_KEYS,
      .model = "bsp",
      .init = "normal",
      .init_stddev = 1,
      .seed = 42 },
    { .name = "hash",
      .width = WIDTH,
      .model = "bsp",
      .init = "uniform",
      .init_low = -1,
      .init_high = 1,
      .seed = 7 },
    { .name = "dense-momentum",
      .width = WIDTH,
      .n_keys = N_KEYS,
      .model = "bsp",
      .update = "momentum",
      .rule = { .clip_norm = 100,
                .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_REFUSE,
                .max_gradient = 20 } },
    { .name = "hash-adam",
      .width = WIDTH,
      .model = "bsp",
      .update = "adam",
      .aggregate = RUBATO_AGGREGATE_MEAN,
      .rule = { .weight_decay = 1e-3 } },
};

enum { N_TABLES = G_N_ELEMENTS(specs) };

static bool is_dense(const char *table)
{
    return table[0] == 'd';
}

/* Deltas that depend on the rows that were read and on the worker, and whose sum depends on the
 * order: a step towards a target of the worker's own. Key 5 stands twice in the call. */
static bool step(RubatoKVTable *table, uint32_t rank, const RubatoKey *keys, GError **error)
{
    float rows[(N_KEYS + 1) * WIDTH];

    if (!rubato_kv_table_get(table, keys, N_KEYS + 1, rows, error))
        return false;
    for (uint32_t i = 0; i < (N_KEYS + 1) * WIDTH; i++) {
        const float target = (float)((i * 2654435761u) >> 8) / 1e5f * (1.0f + 0.37f * (float)rank);

        rows[i] = -0.07f * (rows[i] - target) / (3.0f + (float)rank);
    }
    return rubato_kv_table_add(table, keys, N_KEYS + 1, rows, error) &&
           rubato_kv_table_clock(table, error);
}

static bool descend(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    RubatoKey dense_keys[N_KEYS + 1], hash_keys[N_KEYS + 1];

    (void)user_data;
    EXPECT(rubato_worker_n_workers(worker) == N_WORKERS, "%u", rubato_worker_n_workers(worker));
    for (uint64_t i = 0; i <= N_KEYS; i++) {
        dense_keys[i] = i == N_KEYS ? 5 : (i * 11 + rank) % N_KEYS;
        hash_keys[i] = scattered(dense_keys[i]);
    }
    for (size_t i = 0; i < N_TABLES; i++) {
        g_autoptr(RubatoKVTable) table =
            rubato_worker_open_kv_table(worker, specs[i].name, RUBATO_F32, error);

        if (table == NULL)
            return false;
        for (uint32_t clock = 0; clock < N_CLOCKS; clock++) {
            /* a schedule, which holds for the clock wherever among its Adds it is told */
            if (specs[i].update != NULL && clock % N_WORKERS == rank &&
                !rubato_worker_tune(worker, specs[i].name, RUBATO_HYPER_LEARNING_RATE,
                                    0.1 / (1 + clock), error))
                return false;
            if (!step(table, rank, is_dense(specs[i].name) ? dense_keys : hash_keys, error))
                return false;
        }
    }
    return true;
}

static bool say_rows(RubatoEngine *engine, const char *table, GError **error)
{
    RubatoKey keys[N_KEYS];
    float rows[N_KEYS * WIDTH];
    g_autofree char *digest = NULL;

    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = is_dense(table) ? i : scattered(i);
    if (!rubato_engine_get(engine, table, keys, N_KEYS, rows, error))
        return false;
    digest = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)rows, sizeof rows);
    cluster_say("%s=%s %a", table, digest, (double)rows[0]);
    return true;
}

/* Runs the task; meanwhile parts may move, the same ones on every node. */
static bool descend_and_move(RubatoEngine *engine, const char *const *tables, bool moves,
                             GError **error)
{
    const RubatoTask task = { .name = "descend", .run = descend, .tables = tables };
    RubatoTaskRun *run = rubato_engine_start(engine, &task, error);
    const uint32_t n_servers = rubato_engine_n_servers(engine);
    bool moved = true;

    if (run == NULL)
        return false;
    for (uint32_t i = 0; i < 40 && moves && moved; i++)
        moved = rubato_engine_move_part(engine, specs[i / 2 % N_TABLES].name, i % n_servers,
                                        (i * 5 + i / 7) % n_servers, error);
    return rubato_task_run_wait(run, moved ? error : NULL) && moved;
}

/* data: not NULL where parts move. */
static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const char *tables[N_TABLES + 1] = { NULL };

    for (size_t i = 0; i < N_TABLES; i++) {
        tables[i] = specs[i].name;
        if (!rubato_engine_create_table(engine, &specs[i], error))
            return false;
    }
    if (!descend_and_move(engine, tables, data != NULL, error))
        return false;
    for (size_t i = 0; i < N_TABLES; i++)
        if (!say_rows(engine, tables[i], error))
            return false;
    return true;
}

/* What a node says of its rows; the log may stand between. */
static void expect_rows(ClusterRun *run, uint32_t node, const char *expected)
{
    g_auto(GStrv) lines = g_strsplit(expected, "\n", -1);

    for (size_t i = 0; lines[i] != NULL; i++)
        cluster_expect_text(run, node, lines[i]);
}

START_TEST(floats_under_bsp_are_the_same_on_any_nodes_and_servers)
{
    g_autofree char *expected = cluster_play_alone(1, N_WORKERS, play, NULL);

    for (size_t i = 0; i < N_TABLES; i++)
        ck_assert_ptr_nonnull(strstr(expected, specs[i].name));
    for (uint32_t servers = 2; servers <= 4; servers++) {
        g_autofree char *text = cluster_play_alone(servers, N_WORKERS, play, NULL);

        ck_assert_str_eq(text, expected);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(shapes); i++) {
        ClusterRun *run = cluster_run_new(&shapes[i]);

        cluster_start(run, play, NULL);
        cluster_expect_success(run);
        for (uint32_t node = 0; node < shapes[i].n_nodes; node++)
            expect_rows(run, node, expected);
        cluster_run_free(run);
    }
}
END_TEST

START_TEST(they_are_the_same_if_parts_move_meanwhile)
{
    const ClusterShape *shape = &shapes[G_N_ELEMENTS(shapes) - 1 - (size_t)_i];
    g_autofree char *expected = cluster_play_alone(1, N_WORKERS, play, NULL);
    g_autofree char *alone = cluster_play_alone(3, N_WORKERS, play, "moving");
    ClusterRun *run = cluster_run_new(shape);

    ck_assert_str_eq(alone, expected);
    cluster_start(run, play, "moving");
    cluster_expect_success(run);
    for (uint32_t node = 0; node < shape->n_nodes; node++)
        expect_rows(run, node, expected);
    cluster_run_free(run);
}
END_TEST

/* ---- what clocks cost ---- */

static const struct {
    ClusterShape shape;
    const char *model;
} clock_cases[] = {
    { { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } }, "bsp" },
    { { .n_nodes = 2, .nodes = { { 4, 5 }, { 4, 5 } } }, "bsp" },
    { { .n_nodes = 2, .nodes = { { 4, 5 }, { 4, 5 } } }, "ssp" },
    { { .n_nodes = 2, .nodes = { { 4, 5 }, { 4, 5 } } }, "asp" },
    { { .n_nodes = 3, .nodes = { { 2, 3 }, { 2, 3 }, { 2, 3 } } }, "bsp" },
    { { .n_nodes = 3, .nodes = { { 2, 3 }, { 2, 3 }, { 2, 3 } } }, "ssp" },
    { { .n_nodes = 4, .nodes = { { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } } }, "asp" },
};

enum { N_COUNTED_CLOCKS = 50 };

static bool tick(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = rubato_worker_rank(worker);
    const float one = 1;
    float value;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (int clock = 0; clock < N_COUNTED_CLOCKS; clock++)
        if (!rubato_kv_table_get(table, &key, 1, &value, error) ||
            !rubato_kv_table_add(table, &key, 1, &one, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return true;
}

static bool play_clocks(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = fitting_spec(
        (RubatoTableSpec){ .name = "rows", .n_keys = 20, .model = data, .staleness = 1 });
    const char *const tables[] = { "rows", NULL };
    const uint64_t n_others = engine->n_nodes - 1;
    /* Each clock of the node once: between two nodes and on the root to every other node, otherwise
     * to the root. And its end to every other node. */
    const bool tells_all = engine->n_nodes == 2 || engine->self == engine->scheduler_node;
    const uint64_t expected = N_COUNTED_CLOCKS * (tells_all ? n_others : 1) + n_others;
    NetworkStats before, after;

    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    network_stats(engine->network, &before);
    if (!cluster_run_task(engine, "tick", tick, NULL, tables, error))
        return false;
    network_stats(engine->network, &after);
    const uint64_t sent = after.messages_sent[MESSAGE_CLOCK] - before.messages_sent[MESSAGE_CLOCK];
    /* Heartbeats may tell a few more, of who is the slowest. */
    EXPECT(sent <= expected + 4, "%d clock messages, expected %d", (int)sent, (int)expected);
    EXPECT(sent >= engine->n_nodes - 1, "%d clock messages", (int)sent);
    return true;
}

START_TEST(clock_messages_grow_with_nodes_alone)
{
    ClusterShape shape = clock_cases[_i].shape;
    ClusterRun *run;

    shape.heartbeat_ms = 5000;
    run = cluster_run_new(&shape);
    cluster_start(run, play_clocks, clock_cases[_i].model);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a clock that releases much ---- */

/* The first server has the lower half of the keys. */
enum { N_LONG = 100000, N_LONG_ADDS = 60, N_LONG_ROUNDS = 3, LEAST_MEANWHILE = 5 };

/* How many Gets of the other server are answered while the first one releases a clock's Adds. */
static bool ask_meanwhile(RubatoWorker *worker, RubatoKVTable *table, RubatoKVTable *other,
                          unsigned *n, GError **error)
{
    const RubatoKey first = 0, last = 1;
    float released, value;
    const RubatoTicket ticket = rubato_kv_table_get_async(table, &first, 1, &released, NULL, error);

    for (*n = 0; ticket != 0 && !rubato_worker_poll(worker, ticket); ++*n)
        if (!rubato_kv_table_get(other, &last, 1, &value, error))
            return false;
    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

/* The thread that receives on the servers' node continues while a clock is released: it answers
 * others, and its heartbeats are sent. */
static bool release_much(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree float *ones = g_new(float, N_LONG);
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "rows", RUBATO_F32, error);
    g_autoptr(RubatoKVTable) other =
        rubato_worker_open_kv_table(worker, "other", RUBATO_F32, error);
    unsigned most = 0;

    (void)user_data;
    for (size_t i = 0; i < N_LONG; i++)
        ones[i] = 1;
    if (table == NULL || other == NULL)
        return false;
    for (int round = 0; round < N_LONG_ROUNDS; round++) {
        unsigned n;

        for (int i = 0; i < N_LONG_ADDS; i++)
            if (!rubato_kv_table_add_range(table, 0, N_LONG, ones, error))
                return false;
        if (!rubato_worker_barrier(worker, error) || /* all Adds have come */
            !rubato_kv_table_clock(table, error) || !ask_meanwhile(worker, table, other, &n, error))
            return false;
        most = MAX(most, n);
    }
    EXPECT(most >= LEAST_MEANWHILE, "%u Gets were answered while a clock was released", most);
    return true;
}

static bool play_releasing(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec rows = { .name = "rows",
                                   .n_keys = 2 * N_LONG,
                                   .model = "bsp",
                                   .update = "adam",
                                   .cache = RUBATO_CACHE_NONE };
    const RubatoTableSpec other = { .name = "other", .n_keys = 2, .model = "asp" };
    const char *const tables[] = { "rows", "other", NULL };

    return rubato_engine_create_table(engine, &rows, error) &&
           rubato_engine_create_table(engine, &other, error) &&
           cluster_run_task(engine, "release much", release_much, data, tables, error);
}

START_TEST(a_long_release_keeps_nobody_from_receiving)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 2, 0 }, { 0, 1 } } });

    cluster_start(run, play_releasing, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- workers that only add ---- */

enum { N_ADDED = 3000, N_ADDING_CLOCKS = 40, ADDED_BYTES = 100000 };

/* The first worker makes a Get in each clock, and knows what it must see. The others only add. */
static bool add_ahead(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t n_adding = rubato_worker_n_workers(worker) - 1;
    float values[N_ADDED];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint32_t clock = 0; clock < N_ADDING_CLOCKS; clock++) {
        for (size_t i = 0; i < N_ADDED; i++)
            values[i] = 1;
        if (rubato_worker_rank(worker) > 0) {
            if (!rubato_kv_table_add_range(table, 0, N_ADDED, values, error))
                return false;
        } else {
            if (!rubato_kv_table_get_range(table, 0, N_ADDED, values, error))
                return false;
            for (size_t i = 0; i < N_ADDED; i++)
                EXPECT(values[i] == (float)(n_adding * clock), "%g at clock %u", (double)values[i],
                       clock);
        }
        if (!rubato_kv_table_clock(table, error))
            return false;
    }
    return true;
}

static bool play_adding(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "rows", .n_keys = N_ADDED, .model = "bsp", .max_kept_bytes = ADDED_BYTES
    };
    const char *const tables[] = { "rows", NULL };

    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "add ahead", add_ahead, data, tables, error);
}

START_TEST(workers_that_only_add_wait_for_the_slowest_and_all_end)
{
    static const ClusterShape adding[] = {
        { .n_nodes = 2, .nodes = { { 1, 1 }, { 0, 3 } } },
        { .n_nodes = 3, .nodes = { { 2, 2 }, { 1, 2 }, { 0, 1 } } },
    };
    ClusterRun *run = cluster_run_new(&adding[_i]);

    cluster_start(run, play_adding, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *bsp_suite(void)
{
    Suite *suite = suite_create("BSP over several processes");
    TCase *same = cluster_add_case(suite, "the same bits");
    TCase *clocks = cluster_add_case(suite, "clock messages");

    tcase_add_test(same, floats_under_bsp_are_the_same_on_any_nodes_and_servers);
    tcase_add_loop_test(same, they_are_the_same_if_parts_move_meanwhile, 0, 3);
    tcase_add_loop_test(clocks, clock_messages_grow_with_nodes_alone, 0,
                        (int)G_N_ELEMENTS(clock_cases));
    TCase *release = cluster_add_case(suite, "a long release");

    TCase *adding = cluster_add_case(suite, "workers that only add");

    tcase_add_loop_test(adding, workers_that_only_add_wait_for_the_slowest_and_all_end, 0, 2);
    tcase_add_test(release, a_long_release_keeps_nobody_from_receiving);
    return suite;
}

int main(void)
{
    return run_suite(bsp_suite());
}
