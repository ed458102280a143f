/* Tables that forget on two nodes: a part that moves takes along what decides which rows are
 * evicted, when they expire, and which keys are admitted; a part for which the other server has no
 * bytes stays. */
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum { N_PARTS = 3, N_SERVERS = 2, N_OLD = 150000, N_USED = 30000, BLOCK_ROWS = 4000 };

static bool set_run(RubatoEngine *engine, RubatoKey first, size_t n, uint32_t width, GError **error)
{
    g_autofree float *values = g_new(float, n *width);

    for (size_t i = 0; i < n * width; i++)
        values[i] = (float)(first + i / width);
    return rubato_engine_set_range(engine, "t", first, n, values, error);
}

/* How many of these rows are there. Those that are not have 0. */
static bool count_there(RubatoEngine *engine, RubatoKey first, size_t n, uint32_t width,
                        size_t *n_there, GError **error)
{
    g_autofree float *values = g_new(float, n *width);

    if (!rubato_engine_get_range(engine, "t", first, n, values, error))
        return false;
    *n_there = 0;
    for (size_t i = 0; i < n * width; i++) {
        EXPECT((uint64_t)values[i] == 0 || (uint64_t)values[i] == first + i / width,
               "row %u has %g", (unsigned)(first + i / width), (double)values[i]);
        *n_there += i % width == 0 && values[i] > 0;
    }
    return true;
}

/* How many of n rows are gone. */
static bool count_lost(RubatoEngine *engine, RubatoKey first, size_t n, uint32_t width,
                       size_t *n_lost, GError **error)
{
    size_t n_there;

    if (!count_there(engine, first, n, width, &n_there, error))
        return false;
    *n_lost = n - n_there;
    return true;
}

static bool create(RubatoEngine *engine, uint32_t width, uint64_t max_bytes, GError **error)
{
    return rubato_engine_create_table(
        engine,
        &(RubatoTableSpec){ .name = "t", .width = width, .parts = N_PARTS, .max_bytes = max_bytes },
        error);
}

/* Rows that were used last were written first, so only their marks tell. Server 0 has the parts 0
 * and 2, server 1 has part 1 and bytes for one more. */
static bool play_move(RubatoEngine *engine, const void *data, GError **error)
{
    const uint32_t width = *(const uint32_t *)data;
    const uint64_t max_bytes = width == 1 ? UINT64_C(4) << 20 : UINT64_C(12) << 20;
    const bool leads = rubato_engine_node(engine) == CLUSTER_IDS[0];
    const RubatoKey used = 1, old = 1000000, fresh = 2000000;
    const uint64_t n_fresh = width == 1 ? 90000 : 180000;
    g_autoptr(GError) refused = NULL;
    RubatoTableStats stats;
    size_t lost_used, lost_old;

    if (!create(engine, width, max_bytes, error))
        return false;
    if (leads)
        for (int turn = 0; turn < 2; turn++)
            if (!set_run(engine, used, N_USED, width, error) ||
                (turn == 0 && !set_run(engine, old, N_OLD, width, error)))
                return false;
    if (!rubato_engine_barrier(engine, error) || !rubato_engine_move_part(engine, "t", 0, 1, error))
        return false;
    EXPECT(!rubato_engine_move_part(engine, "t", 2, 1, &refused), "there is no room for it");
    EXPECT(strstr(refused->message, "max_bytes leaves none for one more") != NULL, "%s",
           refused->message);
    if (!rubato_engine_move_part(engine, "t", 1, 0, error) || /* now there is */
        !rubato_engine_move_part(engine, "t", 2, 1, error))
        return false;
    for (uint64_t i = 0; leads && i < n_fresh; i += BLOCK_ROWS)
        if (!set_run(engine, fresh + i, BLOCK_ROWS, width, error))
            return false;
    if (!rubato_engine_barrier(engine, error) ||
        !rubato_engine_table_stats(engine, "t", &stats, error))
        return false;
    EXPECT(stats.n_evicted > 0 && stats.n_bytes <= max_bytes,
           "%" G_GUINT64_FORMAT " rows evicted, %" G_GUINT64_FORMAT " bytes", stats.n_evicted,
           stats.n_bytes);
    if (!leads)
        return true;
    if (!count_lost(engine, used, N_USED, width, &lost_used, error) ||
        !count_lost(engine, old, N_OLD, width, &lost_old, error))
        return false;
    /* without their marks, both would lose the same share */
    EXPECT(lost_old > N_OLD / 100 && lost_used * N_OLD < lost_old * N_USED / 3,
           "%zu used and %zu old rows are lost", lost_used, lost_old);
    return true;
}

START_TEST(a_part_moves_with_what_decides_which_rows_are_evicted)
{
    static const uint32_t widths[] = { 1, 10 };
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 0 }, { 1, 0 } } });

    cluster_start(run, play_move, &widths[_i]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

static bool add_run(RubatoEngine *engine, RubatoKey first, size_t n, GError **error)
{
    g_autofree float *ones = g_new(float, n);

    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    return rubato_engine_add_range(engine, "t", first, n, ones, error);
}

/* An Add before each move and one after them: all rows are made by the third. The table's seed is
 * random, so a few keys may share all their counters, and have their rows earlier. */
static bool play_admission(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "t", .parts = N_PARTS, .admit = "count", .admit_count = 3, .admit_bytes = 4 << 20
    };
    const bool leads = rubato_engine_node(engine) == CLUSTER_IDS[0];
    RubatoTableStats stats;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    for (uint32_t turn = 0; turn < 3; turn++) {
        if (leads && !add_run(engine, 0, N_USED, error))
            return false;
        if (!rubato_engine_barrier(engine, error))
            return false;
        for (uint32_t part = 0; part < N_PARTS && turn < 2; part++)
            if (!rubato_engine_move_part(engine, "t", part, (part + turn + 1) % N_SERVERS, error))
                return false;
    }
    if (!rubato_engine_table_stats(engine, "t", &stats, error))
        return false;
    EXPECT(stats.n_rows > N_USED / 4 && stats.n_admitted == stats.n_rows &&
               stats.n_refused <= 2 * stats.n_rows &&
               stats.n_refused > 2 * stats.n_rows - stats.n_rows / 1000,
           "%" G_GUINT64_FORMAT " rows, %" G_GUINT64_FORMAT " admitted, %" G_GUINT64_FORMAT
           " refused",
           stats.n_rows, stats.n_admitted, stats.n_refused);
    return rubato_engine_barrier(engine, error);
}

START_TEST(a_part_moves_with_what_admits_keys)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 0 }, { 1, 0 } } });

    cluster_start(run, play_admission, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* A part that moves between two of three clocks: its rows expire when they would have. */
static bool clock_once(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    return table != NULL && rubato_kv_table_clock(table, error);
}

static bool play_expiry(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "t", .parts = N_PARTS, .expire = "clocks", .expire_after = 3
    };
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = {
        .name = "clock", .run = clock_once, .tables = tables, .workers_per_node = 1
    };
    const bool leads = rubato_engine_node(engine) == CLUSTER_IDS[0];
    RubatoTableStats stats;
    size_t n_there;

    (void)data;
    if (!rubato_engine_create_table(engine, &spec, error))
        return false;
    for (uint32_t turn = 0; turn < 4; turn++) {
        if (leads && turn < 2 && !set_run(engine, 1 + turn * BLOCK_ROWS, BLOCK_ROWS, 1, error))
            return false;
        if (!rubato_engine_barrier(engine, error) || !rubato_engine_run(engine, &task, error))
            return false;
        for (uint32_t part = 0; part < N_PARTS; part++)
            if (!rubato_engine_move_part(engine, "t", part, (part + turn + 1) % N_SERVERS, error))
                return false;
        if (!count_there(engine, 1, 2 * BLOCK_ROWS, 1, &n_there, error))
            return false;
        EXPECT(!leads || n_there == (turn == 0 || turn == 2 ? 1
                                     : turn == 1            ? 2
                                                            : 0) *
                                        BLOCK_ROWS,
               "%zu rows are there after turn %u", n_there, turn);
        if (!rubato_engine_barrier(engine, error))
            return false;
    }
    return rubato_engine_table_stats(engine, "t", &stats, error);
}

START_TEST(rows_of_a_part_that_moves_expire_when_they_would_have)
{
    ClusterRun *run =
        cluster_run_new(&(ClusterShape){ .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } });

    cluster_start(run, play_expiry, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_bounded");
    TCase *tcase = cluster_add_case(suite, "bounded");

    tcase_add_loop_test(tcase, a_part_moves_with_what_decides_which_rows_are_evicted, 0, 2);
    tcase_add_test(tcase, a_part_moves_with_what_admits_keys);
    tcase_add_test(tcase, rows_of_a_part_that_moves_expire_when_they_would_have);
    return run_suite(suite);
}
