/* Iterations that servers are told of late: what is told, and when; and that workers which note
 * their iterations are held, and let through, as those whose servers know each of them. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "tables/client/client.h"
#include "tables/handle.h"
#include "tables/joint.h"
#include "tables/late_iterations.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

/* ---- what is noted ---- */

typedef struct {
    unsigned n_told;
    uint32_t rank;
    uint64_t clock;
    size_t n;
    RubatoKey keys[4];
} Told;

static void write_down(void *user, uint32_t rank, uint64_t clock, const RubatoKeys *keys)
{
    Told *const told = user;

    told->n_told++;
    told->rank = rank;
    told->clock = clock;
    told->n = keys->n;
    for (size_t i = 0; i < keys->n; i++)
        told->keys[i] = keys->keys[i];
}

START_TEST(the_last_iteration_of_a_worker_is_told_once)
{
    LateIterations *const late = late_iterations_new(/* first_rank= */ 3, 2);
    RubatoKey keys[] = { 7, 8, 9 };
    Told told = { 0 };

    late_iterations_tell_all(late, write_down, &told);
    ck_assert_uint_eq(told.n_told, 0);
    ck_assert_int_eq(late_iterations_begin(late, 4, 1, keys, 1), LATE_ITERATION_NOTED);
    ck_assert_int_eq(late_iterations_begin(late, 4, 2, keys, 3), LATE_ITERATION_NOTED);
    memset(keys, 0, sizeof keys);
    late_iterations_tell(late, 3, write_down, &told);
    ck_assert_uint_eq(told.n_told, 0);
    late_iterations_tell_all(late, write_down, &told);
    late_iterations_tell(late, 4, write_down, &told);
    ck_assert_uint_eq(told.n_told, 1);
    ck_assert_uint_eq(told.rank, 4);
    ck_assert_uint_eq(told.clock, 2);
    ck_assert_uint_eq(told.n, 3);
    ck_assert_uint_eq(told.keys[0], 7);
    ck_assert_uint_eq(told.keys[2], 9);
    ck_assert_int_eq(late_iterations_begin(late, 4, 3, NULL, 0), LATE_ITERATION_NOTED);
    late_iterations_tell(late, 4, write_down, &told);
    ck_assert_uint_eq(told.n_told, 2);
    ck_assert_uint_eq(told.clock, 3);
    ck_assert_uint_eq(told.n, 0);
    late_iterations_free(late);
}
END_TEST

START_TEST(iterations_are_told_at_once_while_somebody_asks)
{
    LateIterations *const late = late_iterations_new(0, 1);
    const RubatoKey key = 1;

    late_iterations_ask(late);
    late_iterations_ask(late);
    ck_assert_int_eq(late_iterations_begin(late, 0, 1, &key, 1), LATE_ITERATION_ASKED);
    late_iterations_end_ask(late);
    ck_assert_int_eq(late_iterations_begin(late, 0, 2, &key, 1), LATE_ITERATION_ASKED);
    late_iterations_end_ask(late);
    ck_assert_int_eq(late_iterations_begin(late, 0, 3, &key, 1), LATE_ITERATION_NOTED);
    ck_assert(!late_iterations_have_ended(late));
    ck_assert(late_iterations_end(late));
    ck_assert(!late_iterations_end(late));
    ck_assert(late_iterations_have_ended(late));
    ck_assert_int_eq(late_iterations_begin(late, 0, 4, &key, 1), LATE_ITERATION_ASKED);
    late_iterations_free(late);
}
END_TEST

/* ---- workers ---- */

enum { ROWS = 4000, STALENESS = 1, N_KEYS = 20 };

static RubatoEngine *make_engine(uint32_t servers)
{
    RubatoEngine *const engine = engine_with_servers(servers);

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = ROWS,
                                             .model = "sparse_ssp",
                                             .staleness = STALENESS,
                                             .speculation = 1 });
    return engine;
}

static LateIterations *late_of(const RubatoSparseKVClientTable *table)
{
    return ((const TableHandle *)table)->client->route->late;
}

enum { STAND = 3, N_ITERATIONS = 8, COLLISION = STAND + STALENESS + 1 };

/* Worker 0 stands in iteration STAND, of which no server has been told. Worker 1 may come to
 * iteration COLLISION meanwhile, if it uses other keys there. */
typedef struct {
    bool collides;
    bool by_ticket; /* worker 1 makes the Get of that iteration by a ticket */
    Event passed;
    _Atomic bool goes_on;
} Stand;

static bool next_keys(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    *keys = (RubatoIteration){ user_data, N_KEYS };
    return iteration < N_ITERATIONS;
}

static bool get(RubatoWorker *worker, RubatoSparseKVClientTable *table, bool by_ticket,
                int64_t *values, GError **error)
{
    if (!by_ticket)
        return rubato_sparse_kv_client_table_get(table, values, error);
    const RubatoTicket ticket = rubato_sparse_kv_client_table_get_async(table, values, NULL, error);

    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

/* Before its Get of iteration t, worker 0 stands. */
static bool stand(Stand *state, uint64_t t, RubatoWorker *worker, GError **error)
{
    if (t != STAND + 1)
        return true;
    if (!state->collides)
        return event_await(&state->passed, 1, worker, error);
    for (int i = 0; i < 200; i++) /* so that a Get that is answered too early is seen */
        sched_yield();
    atomic_store(&state->goes_on, true);
    return true;
}

static bool iterate_and_stand(RubatoWorker *worker, void *user_data, GError **error)
{
    Stand *const state = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    int64_t values[N_KEYS], ones[N_KEYS];
    RubatoKey keys[N_KEYS];

    for (RubatoKey i = 0; i < N_KEYS; i++) {
        keys[i] = i * (ROWS / N_KEYS) + (state->collides ? 0 : rank);
        ones[i] = 1;
    }
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, "t", RUBATO_I64, next_keys, keys, error);

    TRY(table != NULL);
    REQUIRE(late_of(table) != NULL);
    for (uint64_t t = 0; t < N_ITERATIONS; t++) {
        const bool speculates = rank == 1 && t == COLLISION;

        TRY(rank != 0 || stand(state, t, worker, error));
        TRY(get(worker, table, speculates && state->by_ticket, values, error));
        if (rank == 0 && t == STAND + 1) /* it has told this one, because the other one asks */
            TRY(event_await(&state->passed, 1, worker, error));
        if (speculates) {
            REQUIRE(!state->collides || atomic_load(&state->goes_on));
            REQUIRE(!state->collides || values[0] >= COLLISION + STAND + 1);
            event_raise(&state->passed);
        }
        TRY(rubato_sparse_kv_client_table_add(table, ones, error));
    }
    return true;
}

/* Worker 0 waits for this Get, so one that is not answered hangs the case. */
START_TEST(a_get_that_speculates_goes_by_what_others_have_noted)
{
    Stand state = { .collides = _i % 2 == 1, .by_ticket = _i / 2 % 2 == 1, .passed = EVENT_INIT };
    RubatoEngine *const engine = make_engine(1 + (uint32_t)_i / 4);

    run_ok(engine, 2, iterate_and_stand, &state, "t");
    ck_assert_int_eq(read_i64(engine, "t", 0), N_ITERATIONS * (state.collides ? 2 : 1));
    rubato_engine_free(engine);
}
END_TEST

/* ---- other requests in between ---- */

enum { N_ROUNDS = 400, MOST_KEYS = 300, N_CONTESTED = 50 };

typedef struct {
    uint32_t servers;
    uint64_t seed;
    bool has_others; /* requests that end lateness, late in the task */
} Mixture;

/* Iterations of any number of keys; all workers have the same ones. */
static size_t count_keys(uint64_t iteration)
{
    static const size_t counts[] = { 20, 0, 1, MOST_KEYS, 15, 100, 2, 16, 256, 257 };

    return counts[iteration % G_N_ELEMENTS(counts)];
}

static RubatoKey key_of(uint64_t iteration, size_t i)
{
    return (iteration * 31 + i * 7) % N_CONTESTED * (ROWS / N_CONTESTED);
}

static bool contested_keys(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    RubatoKey *const all = user_data;

    for (size_t i = 0; i < count_keys(iteration); i++)
        all[i] = key_of(iteration, i);
    *keys = (RubatoIteration){ all, count_keys(iteration) };
    return iteration < N_ROUNDS;
}

/* Each worker adds 1 for each key of its iterations. */
static void count_adds(int64_t *sums, uint64_t iteration)
{
    for (size_t i = 0; i < count_keys(iteration); i++)
        sums[key_of(iteration, i) * N_CONTESTED / ROWS]++;
}

/* All iterations use the same keys, so a Get sees what SSP has it see. */
static bool check_values(const int64_t *values, uint64_t iteration, const int64_t *sure,
                         const int64_t *own, uint32_t n_workers, GError **error)
{
    for (size_t i = 0; i < count_keys(iteration); i++) {
        const uint64_t row = key_of(iteration, i) * N_CONTESTED / ROWS;

        REQUIRE(values[i] >= own[row] + (n_workers - 1) * sure[row],
                "in iteration %d: %d of %d and %d", (int)iteration, (int)values[i], (int)own[row],
                (int)sure[row]);
    }
    return true;
}

static bool get_in_some_way(RubatoWorker *worker, RubatoSparseKVClientTable *table, uint32_t way,
                            int64_t *values, GError **error)
{
    RubatoIteration next;

    if (way == 1)
        TRY(rubato_sparse_kv_client_table_next(table, &next));
    return get(worker, table, way == 2, values, error);
}

static bool add_in_some_way(RubatoWorker *worker, RubatoSparseKVClientTable *table, uint32_t way,
                            const int64_t *ones, int64_t *values, GError **error)
{
    RubatoTicket ticket;

    if (way == 1)
        return rubato_sparse_kv_client_table_add_get(table, ones, values, error);
    if (way != 2)
        return rubato_sparse_kv_client_table_add(table, ones, error) &&
               (way != 3 || rubato_sparse_kv_client_table_clock(table, error));
    ticket = rubato_sparse_kv_client_table_add_async(table, ones, NULL, error);
    return ticket != 0 && rubato_worker_wait(worker, ticket, error);
}

/* Reads a row by another handle, at the worker's clock. */
static bool read_otherwise(RubatoWorker *worker, int64_t sure, GError **error)
{
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value;

    TRY(table != NULL);
    TRY(rubato_kv_table_get(table, &key, 1, &value, error));
    REQUIRE(value >= sure);
    return true;
}

static bool mix(RubatoWorker *worker, void *user_data, GError **error)
{
    const Mixture *const mixture = user_data;
    const uint32_t n_workers = rubato_worker_n_workers(worker);
    uint64_t random = mixture->seed * 64 + rubato_worker_rank(worker) + 1;
    int64_t values[MOST_KEYS], ones[MOST_KEYS], sure[N_CONTESTED] = { 0 }, own[N_CONTESTED] = { 0 };
    RubatoKey keys[MOST_KEYS];

    for (int i = 0; i < MOST_KEYS; i++)
        ones[i] = 1;
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, "t", RUBATO_I64, contested_keys, keys, error);

    TRY(table != NULL);
    for (uint64_t t = 0; t < N_ROUNDS; t++) {
        const bool is_other = mixture->has_others && t > N_ROUNDS / 2;

        if (t > STALENESS)
            count_adds(sure, t - STALENESS - 1);
        TRY(get_in_some_way(worker, table, random_below(&random, is_other ? 3 : 2), values, error));
        TRY(check_values(values, t, sure, own, n_workers, error));
        TRY(add_in_some_way(worker, table, is_other ? random_below(&random, 8) : 0, ones, values,
                            error));
        count_adds(own, t);
        if (is_other && random_below(&random, 10) == 0)
            TRY(read_otherwise(worker, own[0] + (n_workers - 1) * sure[0], error));
    }
    return true;
}

START_TEST(other_requests_between_iterations_see_what_they_have_to_see)
{
    Mixture mixture = { .servers = 1 + (uint32_t)_i % 2,
                        .seed = (uint64_t)_i,
                        .has_others = _i / 2 % 2 == 1 };
    RubatoEngine *const engine = make_engine(mixture.servers);

    run_ok(engine, 2 + (uint32_t)_i / 4 * 2, mix, &mixture, "t");
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("late_iterations");
    TCase *noted = tcase_create("noted"), *workers = tcase_create("workers");

    tcase_add_test(noted, the_last_iteration_of_a_worker_is_told_once);
    tcase_add_test(noted, iterations_are_told_at_once_while_somebody_asks);
    tcase_add_loop_test(workers, a_get_that_speculates_goes_by_what_others_have_noted, 0, 8);
    tcase_add_loop_test(workers, other_requests_between_iterations_see_what_they_have_to_see, 0, 8);
    suite_add_tcase(suite, noted);
    suite_add_tcase(suite, workers);
    return run_suite(suite);
}
