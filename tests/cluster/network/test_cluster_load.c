/* Large loads: requests of many megabytes, a hundred thousand keys, and producers that are faster
 * than a server. */
#include <rubato/plugin.h>
#include <rubato/update_ops.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/runner.h"

/* ---- big requests ---- */

enum { BIG_WIDTH = 64, N_BIG_KEYS = 60000, N_LISTED = 100000 };

G_STATIC_ASSERT((size_t)N_BIG_KEYS *BIG_WIDTH * sizeof(float) / 2 >
                POST_OFFICE_MAX_VALUE_BYTES * 5 / 8);

static float big_value(size_t i)
{
    return (float)(i % 65521);
}

/* 15 MB as a run of keys, each half for one server: more than one message carries where rows and
 * keys are counted; then the same as keys in another order. */
static bool move_big_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    const size_t n_values = (size_t)N_BIG_KEYS * BIG_WIDTH;
    g_autofree float *values = g_new(float, n_values);
    g_autofree float *seen = g_new0(float, n_values);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_BIG_KEYS);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "big", RUBATO_F32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (size_t i = 0; i < n_values; i++)
        values[i] = big_value(i);
    for (size_t i = 0; i < N_BIG_KEYS; i++)
        keys[i] = (i * 7919) % N_BIG_KEYS;
    if (!rubato_kv_table_add_range(table, 0, N_BIG_KEYS, values, error) ||
        !rubato_kv_table_get_range(table, 0, N_BIG_KEYS, seen, error))
        return false;
    EXPECT(memcmp(values, seen, n_values * sizeof *seen) == 0, "a run of keys");
    memset(seen, 0, n_values * sizeof *seen);
    if (!rubato_kv_table_get(table, keys, N_BIG_KEYS, seen, error))
        return false;
    for (size_t i = 0; i < n_values; i++)
        EXPECT(seen[i] == big_value(keys[i / BIG_WIDTH] * BIG_WIDTH + i % BIG_WIDTH),
               "value %zu of listed keys is %g", i, (double)seen[i]);
    return rubato_kv_table_add(table, keys, N_BIG_KEYS, seen, error);
}

static bool play_big(RubatoEngine *engine, const void *data, GError **error)
{
    const size_t n_values = (size_t)N_BIG_KEYS * BIG_WIDTH;
    const RubatoTableSpec spec = { .name = "big", .width = BIG_WIDTH, .n_keys = N_BIG_KEYS };
    const char *const tables[] = { "big", NULL };
    g_autofree float *seen = g_new0(float, n_values);

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "move", move_big_rows, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "big", 0, N_BIG_KEYS, seen, error))
        return false;
    for (size_t i = 0; i < n_values; i++)
        EXPECT(seen[i] == 2 * big_value(i), "value %zu is %g", i, (double)seen[i]);
    return true;
}

START_TEST(requests_of_many_megabytes_arrive_whole)
{
    static const ClusterShape places[] = {
        { .n_nodes = 2, .nodes = { { 0, 1 }, { 1, 0 } } },
        { .n_nodes = 3, .nodes = { { 0, 1 }, { 1, 0 }, { 1, 0 } } },
    };
    ClusterRun *run = cluster_run_new(&places[_i]);

    cluster_start(run, play_big, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* Encrypted, over TCP: rows are sealed where they lie, in the caller's array and in the table. */
START_TEST(encrypted_requests_of_many_megabytes_arrive_whole)
{
    const ClusterShape shape = {
        .n_nodes = 3, .nodes = { { 0, 1 }, { 1, 0 }, { 1, 0 } }, .over = "tcp", .encrypts = true
    };
    ClusterRun *run = cluster_run_new(&shape);

    cluster_start(run, play_big, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- many keys ---- */

static bool add_many_keys(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_LISTED);
    g_autofree int32_t *values = g_new(int32_t, N_LISTED);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "many", RUBATO_I32, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint64_t i = 0; i < N_LISTED; i++) {
        keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
        values[i] = (int32_t)i;
    }
    if (!rubato_kv_table_add(table, keys, N_LISTED, values, error) ||
        !rubato_kv_table_clock(table, error) ||
        !rubato_kv_table_get(table, keys, N_LISTED, values, error))
        return false;
    for (int32_t i = 0; i < N_LISTED; i++)
        EXPECT(values[i] == (int32_t)rubato_worker_n_workers(worker) * i, "key %d is %d", i,
               values[i]);
    return true;
}

static bool play_many_keys(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "many", .dtype = RUBATO_I32, .storage = "hash", .model = "bsp"
    };
    const char *const tables[] = { "many", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "many", add_many_keys, NULL, tables, error);
}

START_TEST(a_hundred_thousand_keys_in_a_call_reach_their_servers)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 2, 1 }, { 1, 1 } } });

    cluster_start(run, play_many_keys, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- a producer that is faster than its server ---- */

enum { N_FLOOD_KEYS = 100, FLOOD_WIDTH = 8 };

/* Adds to each key: in all many times what may be in flight. */
static uint32_t flood_rounds(void)
{
    return 6000 / cluster_slowness();
}

/* More than the 64 MiB that may be in flight to one node, with what is kept around each message. */
#define MOST_KB (600 * 1024)

static long peak_kb(void)
{
    g_autofree char *text = NULL;
    const char *at;

    if (!g_file_get_contents("/proc/self/status", &text, NULL, NULL) ||
        (at = strstr(text, "VmHWM:")) == NULL)
        return -1;
    return strtol(at + strlen("VmHWM:"), NULL, 10);
}

static bool flood(RubatoWorker *worker, void *user_data, GError **error)
{
    const int64_t ones[FLOOD_WIDTH] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    (void)user_data;
    if (table == NULL)
        return false;
    cluster_say("flooding");
    for (uint32_t i = 0; i < flood_rounds() * N_FLOOD_KEYS; i++) {
        const RubatoKey key = i % N_FLOOD_KEYS;

        if (!rubato_kv_table_add(table, &key, 1, ones, error))
            return false;
    }
    return true;
}

static bool play_flood(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_I64, .width = FLOOD_WIDTH, .n_keys = N_FLOOD_KEYS
    };
    const char *const tables[] = { "rows", NULL };
    const int64_t expected = flood_rounds() * (int64_t)rubato_engine_n_workers(engine);
    int64_t values[N_FLOOD_KEYS * FLOOD_WIDTH];

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "flood", flood, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "rows", 0, N_FLOOD_KEYS, values, error))
        return false;
    for (int i = 0; i < N_FLOOD_KEYS * FLOOD_WIDTH; i++)
        EXPECT(values[i] == expected, "value %d is %d", i, (int)values[i]);
    /* A sanitizer's own memory does not count. */
    if (cluster_slowness() == 1)
        EXPECT(peak_kb() > 0 && peak_kb() < MOST_KB, "%ld kB", peak_kb());
    return true;
}

/* The server's node stands still until the producer says that it waits for it. */
START_TEST(a_fast_producer_waits_for_its_server_and_memory_stays_bounded)
{
    ClusterRun *run = cluster_run_new(
        &(ClusterShape){ .n_nodes = 2, .nodes = { { 0, 1 }, { 1, 0 } }, .stall_ms = 300 });

    cluster_start(run, play_flood, NULL);
    cluster_wait_for(run, 0, "flooding");
    cluster_signal(run, 1, SIGSTOP);
    cluster_wait_for(run, 0,
                     "worker 0 waits for node 7 to take in what was sent to it, last heard");
    cluster_signal(run, 1, SIGCONT);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* The heartbeat comes behind megabytes of Adds, but these are signs of life too. The slowest builds
 * have seen a flood in the case before; what is asked here is the same in all. */
START_TEST(a_flood_does_not_pass_for_silence)
{
    if (cluster_slowness() > 2)
        return;
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                                       .nodes = { { 1, 0 }, { 0, 2 } },
                                                       .heartbeat_ms = 50,
                                                       .timeout_ms = 1000 * cluster_slowness() });

    cluster_start(run, play_flood, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- rows that take long to write ---- */

enum { N_SLOW_ROWS = 1500, N_SLOW_CALLS = 300, SLOW_US = 1000 };

static void apply_slowly(const RubatoUpdate *update, void *const *rows, const void *deltas,
                         const uint32_t *at, size_t n)
{
    const int64_t *const values = deltas;

    (void)update;
    for (size_t i = 0; i < n; i++) {
        g_usleep(SLOW_US);
        *(int64_t *)rows[i] += values[at == NULL ? i : at[i]];
    }
}

static const RubatoUpdateOps slow_rule = { .name = "slow", .apply_rows = apply_slowly };

static bool add_slowly(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_SLOW_ROWS);
    g_autofree int64_t *ones = g_new(int64_t, N_SLOW_ROWS);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "slow", RUBATO_I64, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (size_t i = 0; i < N_SLOW_ROWS; i++) {
        keys[i] = i * 7919 % N_SLOW_ROWS;
        ones[i] = 1;
    }
    if (!rubato_kv_table_add(table, keys, N_SLOW_ROWS, ones, error))
        return false;
    for (size_t i = 0; i < N_SLOW_CALLS; i++)
        if (!rubato_kv_table_add(table, keys + i * 5, 5, ones, error))
            return false;
    return true;
}

static bool play_slow_rows(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "slow", .dtype = RUBATO_I64, .n_keys = N_SLOW_ROWS, .update = "slow"
    };
    const char *const tables[] = { "slow", NULL };
    int64_t values[N_SLOW_ROWS];

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_task(engine, "slow", add_slowly, NULL, tables, error) ||
        !rubato_engine_get_range(engine, "slow", 0, N_SLOW_ROWS, values, error))
        return false;
    for (size_t i = 0; i < N_SLOW_ROWS; i++)
        EXPECT(values[i] == 2, "row %zu is %d", i, (int)values[i]);
    return true;
}

/* As rows do whose memory the kernel has to clear first. A request takes longer than a node may be
 * silent, and so do a hundred small ones together. */
START_TEST(rows_that_take_long_to_write_do_not_pass_for_silence)
{
    ck_assert(rubato_register_update_rule(&slow_rule, NULL));
    ClusterRun *run = cluster_run_new(&(ClusterShape){ .n_nodes = 2,
                                                       .nodes = { { 0, 1 }, { 1, 0 } },
                                                       .heartbeat_ms = 50,
                                                       .timeout_ms = 500 * cluster_slowness() });

    cluster_start(run, play_slow_rows, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static Suite *load_suite(void)
{
    Suite *suite = suite_create("load over several processes");
    TCase *big = cluster_add_case(suite, "big");
    TCase *many = cluster_add_case(suite, "many");
    TCase *fast = cluster_add_case(suite, "fast");
    TCase *slow = cluster_add_case(suite, "slow");

    tcase_add_loop_test(big, requests_of_many_megabytes_arrive_whole, 0, 2);
    tcase_add_test(big, encrypted_requests_of_many_megabytes_arrive_whole);
    tcase_add_test(many, a_hundred_thousand_keys_in_a_call_reach_their_servers);
    tcase_add_test(fast, a_fast_producer_waits_for_its_server_and_memory_stays_bounded);
    tcase_add_test(fast, a_flood_does_not_pass_for_silence);
    tcase_add_test(slow, rows_that_take_long_to_write_do_not_pass_for_silence);
    return suite;
}

int main(void)
{
    return run_suite(load_suite());
}
