/* Programs with floats under BSP, whose result has the same bits on every cluster. A worker's
 * deltas depend on the rows that it has read, its rank and its clock, so one wrong bit spreads.
 *
 * Threads: the workers' of the simulation, and the nodes' main threads. */
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/sim/sim_cluster.h"

#define N_CLOCKS 8
#define MOST_KEYS 6

RubatoTableSpec sim_exact_table(const SimScenario *scenario)
{
    const bool is_hash = scenario->exact_program % 2 == 0;
    static const char *const rules[] = { "add", "momentum", "adagrad" };

    return (RubatoTableSpec){
        .name = SIM_EXACT_TABLE,
        .dtype = RUBATO_F32,
        .width = SIM_EXACT_WIDTH,
        .storage = is_hash ? "hash" : "dense",
        .n_keys = is_hash ? 0 : SIM_EXACT_KEYS,
        .model = "bsp",
        .update = rules[scenario->exact_program % 3],
        .aggregate = (RubatoAggregate)(scenario->exact_program / 3 % 3),
        .init = "uniform",
        .init_low = -1,
        .init_high = 1,
        .seed = scenario->exact_program,
        .replicas = scenario->n_replicas,
    };
}

static void draw_deltas(uint64_t *state, const float *values, size_t n, float *deltas)
{
    for (size_t i = 0; i < n * SIM_EXACT_WIDTH; i++)
        deltas[i] = 0.37f * values[i] + (float)random_below(state, 1000) / 997.0f - 0.5f;
}

/* Draws what a clock with calls of n keys draws. */
static void pass_over(uint64_t *state, size_t n)
{
    const float values[MOST_KEYS * SIM_EXACT_WIDTH] = { 0 };
    float deltas[MOST_KEYS * SIM_EXACT_WIDTH];

    for (uint32_t n_adds = random_below(state, 3); n_adds > 0; n_adds--)
        draw_deltas(state, values, n, deltas);
}

bool sim_exact_run(RubatoWorker *worker, void *user_data, GError **error)
{
    const SimScenario *const scenario = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    const int64_t most_ns =
        scenario->think_ns * (rank == scenario->slow_worker ? SIM_SLOW_WORKER : 1);
    uint64_t state = scenario->exact_program * 1000 + rank;
    RubatoKey keys[MOST_KEYS];
    float values[MOST_KEYS * SIM_EXACT_WIDTH], deltas[MOST_KEYS * SIM_EXACT_WIDTH];

    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, SIM_EXACT_TABLE, RUBATO_F32, error);
    REQUIRE(table != NULL);
    for (uint32_t clock = 0; clock < N_CLOCKS; clock++) {
        const size_t n = 1 + random_below(&state, MOST_KEYS);

        for (size_t i = 0; i < n; i++)
            keys[i] = random_below(&state, SIM_EXACT_KEYS);
        if (clock < rubato_worker_first_clock(worker)) { /* a lost one has done it */
            pass_over(&state, n);
            continue;
        }
        sim_sleep_ns((int64_t)sim_below((uint64_t)most_ns));
        TRY(rubato_kv_table_get(table, keys, n, values, error));
        for (uint32_t n_adds = random_below(&state, 3); n_adds > 0; n_adds--) {
            draw_deltas(&state, values, n, deltas);
            TRY(rubato_kv_table_add(table, keys, n, deltas, error));
        }
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

bool sim_exact_digest(RubatoEngine *engine, uint64_t *digest, GError **error)
{
    float rows[SIM_EXACT_KEYS * SIM_EXACT_WIDTH];

    TRY(rubato_engine_get_range(engine, SIM_EXACT_TABLE, 0, SIM_EXACT_KEYS, rows, error));
    *digest = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        uint32_t bits;
        memcpy(&bits, &rows[i], sizeof bits);
        *digest = (*digest ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
        *digest ^= *digest >> 29;
    }
    return true;
}
