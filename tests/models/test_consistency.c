/* The promises of the models, between real threads: which calls wait, and what a Get sees.
 *
 * A test cannot see that a Get waits by waiting itself. It checks the answers instead. Each worker
 * writes down its clock just before it clocks, so at any moment the written clock is not below its
 * clock on any shard. If a Get returns while the bound does not even hold for the written clocks,
 * it was answered too early. */
#include <stdatomic.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/mover.h"
#include "tests/support/runner.h"

/* ---- directed ---- */

typedef struct {
    Event arrived; /* worker 0 is as far as it may go */
    _Atomic bool released;
    uint64_t bound; /* Gets at clocks up to it are answered though worker 1 stands at 0 */
} Chase;

static bool chase(RubatoWorker *worker, void *user_data, GError **error)
{
    Chase *state = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    const int64_t one = 1;
    int64_t seen;

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(&state->arrived, 1, worker, error));
        for (int i = 0; i < 200; i++) /* a Get that is answered too early shall be seen */
            sched_yield();
        TRY(rubato_kv_table_add(table, &key, 1, &(int64_t){ 1000 }, error));
        atomic_store(&state->released, true);
        return rubato_kv_table_clock(table, error);
    }
    for (uint64_t t = 0; t <= state->bound; t++) {
        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    event_raise(&state->arrived);
    TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
    REQUIRE(atomic_load(&state->released), "(a Get at clock %d did not wait)",
            (int)state->bound + 1);
    REQUIRE(seen == 1000 + (int64_t)state->bound + 1, "(%d)", (int)seen);
    return true;
}

static const struct {
    const char *model;
    uint32_t staleness;
    uint64_t bound;
} waiting[] = {
    { "bsp", 0, 0 }, { "ssp", 0, 0 }, { "ssp", 1, 1 }, { "ssp", 4, 4 }, { "sparse_ssp", 2, 2 },
};

START_TEST(get_waits_when_too_far_ahead_and_not_before)
{
    RubatoEngine *engine = engine_with_servers(1);
    Chase state = { .arrived = EVENT_INIT, .bound = waiting[_i].bound };

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 1,
                                             .model = waiting[_i].model,
                                             .staleness = waiting[_i].staleness });
    run_ok(engine, 2, chase, &state, "t");
    rubato_engine_free(engine);
}
END_TEST

static bool run_away(RubatoWorker *worker, void *user_data, GError **error)
{
    Event *arrived = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    const int64_t one = 1;

    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1)
        return event_await(arrived, 1, worker, error);
    for (int64_t t = 0; t < 500; t++) {
        int64_t seen;

        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        REQUIRE(seen == t);
        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    event_raise(arrived);
    return true;
}

START_TEST(asp_waits_for_nobody)
{
    RubatoEngine *engine = engine_with_servers(1);
    Event arrived = EVENT_INIT;

    create_table(engine, &(RubatoTableSpec){ .name = "t", .dtype = RUBATO_I64, .model = "asp" });
    run_ok(engine, 2, run_away, &arrived, "t");
    rubato_engine_free(engine);
}
END_TEST

/* Worker 1 adds, clocks twice and is gone. */
static bool leave_early(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t seen = 0;

    (void)user_data;
    TRY(table != NULL);
    if (rubato_worker_rank(worker) == 1) {
        for (int64_t delta = 100; delta <= 10000; delta *= 10) {
            TRY(rubato_kv_table_add(table, &key, 1, &delta, error));
            TRY(delta == 10000 || rubato_kv_table_clock(table, error));
        }
        return true; /* in the middle of its third iteration */
    }
    for (int64_t t = 0; t < 10; t++) {
        TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
        TRY(rubato_kv_table_add(table, &key, 1, &(int64_t){ 1 }, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    TRY(rubato_kv_table_get(table, &key, 1, &seen, error));
    REQUIRE(seen == 11110, "(%d)", (int)seen);
    return true;
}

START_TEST(a_worker_that_has_returned_holds_nobody_back_and_loses_nothing)
{
    static const char *const models[] = { "bsp", "ssp", "sparse_ssp" };
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, &(RubatoTableSpec){
                             .name = "t", .dtype = RUBATO_I64, .n_keys = 1, .model = models[_i] });
    run_ok(engine, 2, leave_early, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 0), 11110);
    rubato_engine_free(engine);
}
END_TEST

/* ---- at full speed ---- */

enum { N_WORKERS = 4, N_ITERATIONS = 60, N_KEYS = 12 };

typedef struct {
    const char *model;
    uint64_t staleness;
    _Atomic uint64_t clocks[N_WORKERS]; /* written before each clock; at the end UINT64_MAX */
    uint64_t furthest[N_WORKERS];       /* how far ahead of the slowest each has read */
} Pack;

static uint64_t slowest(Pack *pack)
{
    uint64_t minimum = UINT64_MAX;

    for (uint32_t w = 0; w < N_WORKERS; w++) {
        const uint64_t clock = atomic_load(&pack->clocks[w]); /* once: MIN would load it twice */

        minimum = MIN(minimum, clock);
    }
    return minimum;
}

static bool run_in_pack(RubatoWorker *worker, void *user_data, GError **error)
{
    Pack *pack = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    const bool is_bsp = strcmp(pack->model, "bsp") == 0;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    RubatoKey keys[N_KEYS];
    int64_t ones[N_KEYS], seen[N_KEYS];
    uint64_t random = rank;

    TRY(table != NULL);
    for (uint32_t i = 0; i < N_KEYS; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    for (uint64_t t = 0; t < N_ITERATIONS; t++) {
        const uint64_t lower = t > pack->staleness ? t - pack->staleness : 0;
        uint64_t minimum;

        TRY(rubato_kv_table_get(table, keys, N_KEYS, seen, error));
        minimum = slowest(pack);
        REQUIRE(t <= pack->staleness || minimum >= t - pack->staleness,
                "(worker %u read at %d while somebody stood at %d)", rank, (int)t, (int)minimum);
        if (minimum < t)
            pack->furthest[rank] = MAX(pack->furthest[rank], t - minimum);
        for (uint32_t i = 0; i < N_KEYS; i++) {
            const int64_t least = (int64_t)(is_bsp ? t * N_WORKERS : lower * (N_WORKERS - 1) + t);
            const int64_t most =
                (int64_t)(is_bsp ? t * N_WORKERS : (t + pack->staleness + 1) * (N_WORKERS - 1) + t);

            REQUIRE(seen[i] >= least && seen[i] <= most, "(key %u at clock %d: %d)", i, (int)t,
                    (int)seen[i]);
        }
        TRY(rubato_kv_table_add(table, keys, N_KEYS, ones, error));
        if (random_below(&random, 8) == 0)
            sched_yield();
        atomic_store(&pack->clocks[rank], t + 1);
        TRY(rubato_kv_table_clock(table, error));
    }
    atomic_store(&pack->clocks[rank], UINT64_MAX);
    return true;
}

static const struct {
    const char *model;
    uint32_t staleness, speculation;
} packs[] = {
    { "bsp", 0, 0 }, { "ssp", 0, 0 },        { "ssp", 1, 0 },
    { "ssp", 3, 0 }, { "sparse_ssp", 0, 2 }, { "sparse_ssp", 2, 1 },
};

START_TEST(no_get_is_answered_beyond_the_bound_and_none_sees_too_little)
{
    const bool is_dense = _i % 2 == 0;
    const int which = _i / 2;

    for (uint32_t servers = 1; servers <= 3; servers++) {
        RubatoEngine *engine = engine_with_servers(servers);
        Pack pack = { .model = packs[which].model, .staleness = packs[which].staleness };

        create_table(engine, &(RubatoTableSpec){ .name = "t",
                                                 .dtype = RUBATO_I64,
                                                 .n_keys = is_dense ? N_KEYS : 0,
                                                 .model = packs[which].model,
                                                 .staleness = packs[which].staleness,
                                                 .speculation = packs[which].speculation });
        run_ok(engine, N_WORKERS, run_in_pack, &pack, "t");
        for (uint32_t w = 0; w < N_WORKERS; w++)
            ck_assert_uint_le(pack.furthest[w], pack.staleness);
        for (RubatoKey key = 0; key < N_KEYS; key++)
            ck_assert_int_eq(read_i64(engine, "t", key), N_WORKERS * N_ITERATIONS);
        rubato_engine_free(engine);
    }
}
END_TEST

/* ---- SparseSSP with keys that collide now and then ---- */

enum { N_SPARSE_ITERATIONS = 40, SPARSE_KEYS = 30 };

typedef struct {
    uint64_t staleness;
    uint64_t speculation;
    _Atomic uint64_t clocks[N_WORKERS];
    RubatoKey keys[N_WORKERS][N_SPARSE_ITERATIONS][2];
} SparsePack;

/* Whether worker w uses one of the keys in iteration t. */
static bool collides(const SparsePack *pack, uint32_t w, uint64_t t, const RubatoKey *keys)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            if (pack->keys[w][t][i] == keys[k])
                return true;
    return false;
}

static bool run_sparsely(RubatoWorker *worker, void *user_data, GError **error)
{
    SparsePack *pack = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    RubatoIteration iterations[N_SPARSE_ITERATIONS];
    g_autoptr(RubatoSparseKVClientTable) table = NULL;
    const int64_t ones[2] = { 1, 1 };
    int64_t seen[2];

    for (uint64_t t = 0; t < N_SPARSE_ITERATIONS; t++)
        iterations[t] = (RubatoIteration){ pack->keys[rank][t], 2 };
    table = rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations,
                                                      N_SPARSE_ITERATIONS, error);
    TRY(table != NULL);
    for (uint64_t t = 0; t < N_SPARSE_ITERATIONS; t++) {
        const RubatoKey *keys = pack->keys[rank][t];

        atomic_store(&pack->clocks[rank], t);
        TRY(rubato_sparse_kv_client_table_get(table, seen, error));
        for (uint32_t w = 0; w < N_WORKERS; w++) {
            const uint64_t clock = atomic_load(&pack->clocks[w]);

            REQUIRE(clock == UINT64_MAX || t <= clock + pack->staleness + pack->speculation,
                    "(worker %u read at %d while %u stood at %d)", rank, (int)t, w, (int)clock);
            for (uint64_t i = clock; w != rank && i != UINT64_MAX && i + pack->staleness < t; i++)
                REQUIRE(!collides(pack, w, i, keys),
                        "(worker %u read at %d what %u uses in its unfinished iteration %d)", rank,
                        (int)t, w, (int)i);
        }
        for (int i = 0; i < 2;
             i++) { /* what was added at clocks below t - staleness, and its own */
            int64_t least = 0;

            for (uint32_t w = 0; w < N_WORKERS; w++)
                for (uint64_t k = 0; k < t; k++)
                    for (int j = 0; j < 2; j++)
                        least += pack->keys[w][k][j] == keys[i] &&
                                 (w == rank || k + pack->staleness < t);
            REQUIRE(seen[i] >= least, "(%d instead of %d at least)", (int)seen[i], (int)least);
        }
        TRY(rubato_sparse_kv_client_table_add(table, ones, error));
    }
    atomic_store(&pack->clocks[rank], UINT64_MAX);
    return true;
}

START_TEST(sparse_ssp_lets_nobody_read_what_a_slower_worker_may_still_change)
{
    RubatoEngine *engine = engine_with_servers(1 + (uint32_t)_i % 3);
    SparsePack *pack = g_new0(SparsePack, 1);
    uint64_t random = (uint64_t)_i;

    pack->staleness = (uint64_t)_i / 2 % 3;
    pack->speculation = (uint64_t)_i % 4;
    for (uint32_t w = 0; w < N_WORKERS; w++)
        for (uint32_t t = 0; t < N_SPARSE_ITERATIONS; t++)
            for (int i = 0; i < 2; i++)
                pack->keys[w][t][i] = random_below(&random, SPARSE_KEYS);
    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = SPARSE_KEYS,
                                             .model = "sparse_ssp",
                                             .staleness = (uint32_t)pack->staleness,
                                             .speculation = (uint32_t)pack->speculation,
                                             .record = _i % 2 == 0 ? "hash" : "dense" });
    run_ok(engine, N_WORKERS, run_sparsely, pack, "t");
    g_free(pack);
    rubato_engine_free(engine);
}
END_TEST

/* ---- BSP: the same bits ---- */

enum { BIT_WORKERS = 3, BIT_KEYS = 20 };

/* Sums whose bits depend on their order: values of many magnitudes. */
static bool sum_floats(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_F32, error);
    uint64_t random = rubato_worker_rank(worker);
    uint64_t pauses = g_random_int();
    RubatoKey keys[BIT_KEYS];
    float values[BIT_KEYS];

    mover_begin(user_data);
    TRY(table != NULL);
    for (int t = 0; t < 15; t++) {
        for (int i = 0; i < BIT_KEYS; i++)
            keys[i] = random_below(&random, BIT_KEYS);
        TRY(rubato_kv_table_get(table, keys, BIT_KEYS, values, error));
        for (int i = 0; i < BIT_KEYS; i++) {
            const float scale = 1.0f / (float)(1 + random_below(&random, 100000));

            values[i] = values[i] * 0.37f + scale;
        }
        if (random_below(&pauses, 2) == 0)
            sched_yield();
        TRY(rubato_kv_table_add(table, keys, BIT_KEYS, values, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(bsp_sums_have_the_same_bits_whatever_servers_parts_moves_and_storage)
{
    float first[BIT_KEYS] = { 0 }, sums[BIT_KEYS];

    for (uint32_t run = 0; run < 24; run++) {
        RubatoEngine *engine = engine_with_servers(1 + run % 4);

        create_table(engine, &(RubatoTableSpec){ .name = "t",
                                                 .model = "bsp",
                                                 .parts = run < 8 ? 0 : run % 7 + 1,
                                                 .n_keys = run / 4 % 2 == 0 ? BIT_KEYS : 0 });
        Mover *mover = run < 12 ? NULL : mover_new(engine, "t", run % 7 + 1, run);
        run_ok(engine, BIT_WORKERS, sum_floats, mover, "t");
        if (mover != NULL)
            ck_assert_uint_gt(mover_end(mover), 0);
        ck_assert(rubato_engine_get_range(engine, "t", 0, BIT_KEYS, sums, NULL));
        if (run == 0)
            memcpy(first, sums, sizeof sums);
        ck_assert_mem_eq(first, sums, sizeof sums);
        rubato_engine_free(engine);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("consistency");
    TCase *cases = tcase_create("consistency");

    tcase_add_loop_test(cases, get_waits_when_too_far_ahead_and_not_before, 0,
                        G_N_ELEMENTS(waiting));
    tcase_add_test(cases, asp_waits_for_nobody);
    tcase_add_loop_test(cases, a_worker_that_has_returned_holds_nobody_back_and_loses_nothing, 0,
                        3);
    tcase_add_loop_test(cases, no_get_is_answered_beyond_the_bound_and_none_sees_too_little, 0,
                        2 * (int)G_N_ELEMENTS(packs));
    tcase_add_loop_test(cases, sparse_ssp_lets_nobody_read_what_a_slower_worker_may_still_change, 0,
                        24);
    tcase_add_test(cases, bsp_sums_have_the_same_bits_whatever_servers_parts_moves_and_storage);
    tcase_set_timeout(cases, 20);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
