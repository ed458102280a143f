/* SparseKVClientTable: iterations in an array and by a callback, the clock that the handle moves
 * itself, and speculation between real workers. */
#include <stdatomic.h>
#include <string.h>

#include "models/model.h"
#include "tables/client/client.h"
#include "tables/handle.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

static const RubatoKey keys_0[] = { 3, 1, 3 }, keys_2[] = { 7 }, keys_3[] = { 1, 9 };
static const RubatoIteration four[] = { { keys_0, 3 }, { NULL, 0 }, { keys_2, 1 }, { keys_3, 2 } };

static RubatoEngine *make_engine(const char *model, uint32_t staleness, uint32_t speculation,
                                 const char *record)
{
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoTableSpec spec = fitting_spec((RubatoTableSpec){ .name = "t",
                                                                 .dtype = RUBATO_I64,
                                                                 .n_keys = 10,
                                                                 .model = model,
                                                                 .staleness = staleness,
                                                                 .speculation = speculation,
                                                                 .record = record });

    create_table(engine, &spec);
    return engine;
}

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp", "sparse_ssp" };
static const char *const records[] = { NULL, NULL, NULL, "hash", "dense" };

/* For how many iterations a handle asks ahead. Models that take no announcements have no
 * speculation. */
static uint64_t asked_ahead(const char *model, uint32_t speculation)
{
    const bool announces = rubato_model_traits(model)->takes_announcements;

    return announces && speculation > 0 ? speculation : 1;
}

/* ---- when others see a worker's clock ---- */

/* "sparse_ssp" under another name, which looks at what is shown of a worker's clock when a server
 * hears it. */
static struct {
    RubatoModelOps ops;
    const Clocks *clocks; /* NULL: nobody looks */
    unsigned n_heard, n_shown;
} lookout;

static void hear_clock(RubatoModel *model, uint32_t source, uint64_t from, uint64_t to)
{
    if (lookout.clocks != NULL && to != RUBATO_CLOCK_RETIRED) {
        lookout.n_heard++;
        lookout.n_shown += clocks_of_worker(lookout.clocks, source) >= to;
    }
    model_find("sparse_ssp")->advance(model, source, from, to);
}

static const RubatoIteration with_keys[] = { { keys_0, 3 }, { keys_2, 1 }, { keys_3, 2 } };

static bool iterate_watched(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "t", RUBATO_I64, with_keys, G_N_ELEMENTS(with_keys), error);
    int64_t values[3];

    (void)user_data;
    TRY(table != NULL);
    TRY(rubato_sparse_kv_client_table_get(table, values, error));
    lookout.clocks = ((const TableHandle *)table)->client->route->clocks;
    for (size_t i = 1; i < G_N_ELEMENTS(with_keys); i++)
        TRY(rubato_sparse_kv_client_table_get(table, values, error));
    lookout.clocks = NULL;
    return true;
}

/* Without staleness two workers would wait for each other's clock: there it is shown before. */
START_TEST(others_see_a_clock_once_servers_have_been_told)
{
    const uint32_t staleness = (uint32_t)_i;
    RubatoEngine *engine;

    lookout.ops = *model_find("sparse_ssp");
    lookout.ops.name = "lookout";
    lookout.ops.advance = hear_clock;
    ck_assert(rubato_register_model(&lookout.ops, NULL));
    engine = engine_with_servers(1);
    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 10,
                                             .model = "lookout",
                                             .staleness = staleness,
                                             .speculation = 1 });
    run_ok(engine, 1, iterate_watched, NULL, "t");
    ck_assert_uint_eq(lookout.n_heard, G_N_ELEMENTS(with_keys) - 1);
    ck_assert_uint_eq(lookout.n_shown, staleness > 0 ? 0 : lookout.n_heard);
    rubato_engine_free(engine);
}
END_TEST

/* ---- one worker ---- */

static bool go_through(RubatoSparseKVClientTable *table, GError **error)
{
    int64_t sums[10] = { 0 }, seen_sums[10];
    int64_t values[3];
    RubatoIteration next;

    REQUIRE(rubato_sparse_kv_client_table_width(table) == 1);
    REQUIRE(!rubato_sparse_kv_client_table_add(table, values, error));
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "before the first Get"));
    for (uint64_t t = 0; t < G_N_ELEMENTS(four); t++) {
        const int64_t deltas[] = { 1, 10, 100 };

        memcpy(seen_sums, sums, sizeof sums);
        REQUIRE(rubato_sparse_kv_client_table_next(table, &next));
        REQUIRE(next.n == four[t].n);
        REQUIRE(next.n == 0 || memcmp(next.keys, four[t].keys, next.n * sizeof(RubatoKey)) == 0);
        TRY(rubato_sparse_kv_client_table_get(table, values, error));
        REQUIRE(rubato_sparse_kv_client_table_clock_value(table) == t);
        for (size_t i = 0; i < four[t].n; i++)
            REQUIRE(values[i] == seen_sums[four[t].keys[i]], "(%d)", (int)values[i]);
        for (uint64_t times = 0; times < t; times++) { /* never, once, several times */
            TRY(rubato_sparse_kv_client_table_add(table, deltas, error));
            for (size_t i = 0; i < four[t].n; i++)
                sums[four[t].keys[i]] += deltas[i];
        }
        if (t != 2)
            continue; /* the next Get ends it */
        TRY(rubato_sparse_kv_client_table_clock(table, error));
        REQUIRE(rubato_sparse_kv_client_table_clock_value(table) == 3);
        REQUIRE(!rubato_sparse_kv_client_table_add(table, deltas, error));
        REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "before the next Get"));
        REQUIRE(!rubato_sparse_kv_client_table_clock(table, error));
        REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "before the next Get"));
    }
    REQUIRE(!rubato_sparse_kv_client_table_next(table, &next));
    REQUIRE(!rubato_sparse_kv_client_table_get(table, values, error));
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, "all 4 iterations have been read"));
    REQUIRE(rubato_sparse_kv_client_table_clock_value(table) == 3);
    return true;
}

static bool use_array(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table(
        worker, "t", RUBATO_I64, four, G_N_ELEMENTS(four), error);

    (void)user_data;
    return table != NULL && go_through(table, error);
}

/* Tells `four`, in one array that it fills anew each time. */
typedef struct {
    RubatoKey keys[3];
    uint64_t n_asked;
    bool out_of_order;
} Teller;

static bool tell(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    Teller *teller = user_data;

    teller->out_of_order |= iteration != teller->n_asked++;
    if (iteration >= G_N_ELEMENTS(four))
        return false;
    if (four[iteration].n > 0)
        memcpy(teller->keys, four[iteration].keys, four[iteration].n * sizeof(RubatoKey));
    *keys = (RubatoIteration){ teller->keys, four[iteration].n };
    return true;
}

static bool use_callback(RubatoWorker *worker, void *user_data, GError **error)
{
    Teller teller = { .n_asked = 0 };
    const uint32_t *ahead = user_data;
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, "t", RUBATO_I64, tell, &teller, error);

    TRY(table != NULL);
    REQUIRE(teller.n_asked == *ahead, "(it was asked for %d)", (int)teller.n_asked);
    TRY(go_through(table, error));
    REQUIRE(!teller.out_of_order);
    REQUIRE(teller.n_asked == G_N_ELEMENTS(four) + 1, "(%d)", (int)teller.n_asked);
    return true;
}

START_TEST(iterations_come_from_an_array)
{
    RubatoEngine *engine = make_engine(models[_i], 0, 2, records[_i]);

    run_ok(engine, 1, use_array, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 7), 2);
    ck_assert_int_eq(read_i64(engine, "t", 1), 3);
    ck_assert_int_eq(read_i64(engine, "t", 9), 30);
    ck_assert_int_eq(read_i64(engine, "t", 3), 0);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(iterations_come_from_a_callback_that_is_asked_ahead)
{
    for (uint32_t speculation = 0; speculation <= 3; speculation++) {
        RubatoEngine *engine = make_engine(models[_i], 0, speculation, records[_i]);
        uint32_t ahead = (uint32_t)asked_ahead(models[_i], speculation);

        run_ok(engine, 1, use_callback, &ahead, "t");
        ck_assert_int_eq(read_i64(engine, "t", 9), 30);
        rubato_engine_free(engine);
    }
}
END_TEST

/* ---- how far ahead the servers are told ---- */

enum { N_LONG = 12 };

static bool tell_long(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    Teller *teller = user_data;

    teller->out_of_order |= iteration != teller->n_asked++;
    teller->keys[0] = iteration % 10;
    *keys = (RubatoIteration){ teller->keys, 1 };
    return iteration < N_LONG;
}

/* Before the Get at clock t is sent, the iterations up to t + ahead - 1 have been told. */
static bool look_at_what_is_told(RubatoWorker *worker, void *user_data, GError **error)
{
    Teller teller = { .n_asked = 0 };
    const uint64_t *ahead = user_data;
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, "t", RUBATO_I64, tell_long, &teller, error);
    int64_t value;

    TRY(table != NULL);
    for (uint64_t t = 0; t < N_LONG; t++) {
        TRY(rubato_sparse_kv_client_table_get(table, &value, error));
        REQUIRE(teller.n_asked == MIN(t + *ahead, N_LONG + 1), "(%d at clock %d)",
                (int)teller.n_asked, (int)t);
    }
    REQUIRE(!teller.out_of_order);
    return true;
}

START_TEST(iterations_stay_told_ahead_to_the_end)
{
    for (uint32_t speculation = 0; speculation <= 4; speculation++) {
        RubatoEngine *engine = make_engine(models[_i], 0, speculation, records[_i]);
        uint64_t ahead = asked_ahead(models[_i], speculation);

        run_ok(engine, 1, look_at_what_is_told, &ahead, "t");
        rubato_engine_free(engine);
    }
}
END_TEST

static bool tell_nothing(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    (void)iteration;
    (void)keys;
    (void)user_data;
    return false;
}

static bool have_no_iterations(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoSparseKVClientTable) table = NULL;
    RubatoIteration next;
    int64_t value;

    (void)user_data;
    table = rubato_worker_rank(worker) == 0
                ? rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, NULL, 0, error)
                : rubato_worker_open_sparse_kv_client_table_with(worker, "t", RUBATO_I64,
                                                                 tell_nothing, NULL, error);
    TRY(table != NULL);
    REQUIRE(!rubato_sparse_kv_client_table_next(table, &next));
    REQUIRE(!rubato_sparse_kv_client_table_get(table, &value, error));
    REQUIRE(is_error(error, RUBATO_ERROR_RANGE, "all 0 iterations"));
    return true;
}

START_TEST(there_may_be_no_iterations_at_all)
{
    RubatoEngine *engine = make_engine("sparse_ssp", 0, 1, NULL);

    run_ok(engine, 2, have_no_iterations, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

static bool open_twice(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoSparseKVClientTable) first = NULL;
    g_autoptr(RubatoKVTable) kv = NULL;

    (void)user_data;
    if (rubato_worker_rank(worker) == 0) {
        kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
        TRY(kv != NULL && rubato_kv_table_clock(kv, error));
    } else {
        first = rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, four, 4, error);
        TRY(first != NULL);
    }
    REQUIRE(rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, four, 4, error) ==
            NULL);
    REQUIRE(is_error(error, RUBATO_ERROR_INVALID, "its clock has begun already"));
    return true;
}

START_TEST(a_worker_opens_one_before_it_clocks_the_table)
{
    RubatoEngine *engine = make_engine("sparse_ssp", 0, 1, NULL);

    run_ok(engine, 2, open_twice, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

/* ---- speculation ---- */

enum { MAX_ITERATIONS = 6 };

/* Worker 0 reads key 1, and in half of the cases key 5, which is in another part, in each
 * iteration: if keys reach all parts, an iteration begins by one message to each. Worker 1 uses
 * other keys but in the iteration `collision`, and stays in front of its iteration 0 until worker 0
 * has come as far as it may; worker 2, if there is one, uses other keys and waits in the same
 * way. */
typedef struct {
    uint32_t staleness, speculation;
    int collision;      /* -1: never */
    uint64_t free_gets; /* Gets of worker 0 that are answered while the others stand at 0 */
    size_t n_keys;      /* of an iteration */
    Event held;         /* raised when worker 0 has come as far as it may */
    _Atomic bool released;
} Race;

static const struct {
    uint32_t staleness, speculation;
    int collision;
    uint64_t free_gets;
} races[] = {
    { 0, 0, -1, 1 }, { 0, 1, -1, 2 }, { 0, 2, -1, 3 }, { 1, 1, -1, 3 }, { 2, 2, -1, 5 },
    { 0, 1, 0, 1 },  { 0, 2, 0, 1 },  { 1, 2, 0, 2 },  { 2, 1, 0, 3 },  { 0, 2, 1, 2 },
    { 1, 2, 1, 3 },  { 0, 2, 2, 3 },  { 1, 1, 1, 3 },
};

static bool race(RubatoWorker *worker, void *user_data, GError **error)
{
    Race *state = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoKey contested[] = { 1, 5 }, own[] = { 6 + rank, 1 + rank };
    RubatoIteration iterations[MAX_ITERATIONS];
    g_autoptr(RubatoSparseKVClientTable) table = NULL;
    const int64_t ones[2] = { 1, 1 };
    int64_t values[2];

    for (int t = 0; t < MAX_ITERATIONS; t++)
        iterations[t] =
            (RubatoIteration){ rank == 0 || (rank == 1 && t == state->collision) ? contested : own,
                               state->n_keys };
    table = rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations,
                                                      MAX_ITERATIONS, error);
    TRY(table != NULL);
    if (rank != 0) {
        TRY(event_await(&state->held, 1, worker, error));
        atomic_store(&state->released, true);
    }
    for (uint64_t t = 0; t < MAX_ITERATIONS; t++) {
        TRY(rubato_sparse_kv_client_table_get(table, values, error));
        if (rank == 0 && t + 1 == state->free_gets) {
            REQUIRE(!atomic_load(&state->released));
            event_raise(&state->held);
        }
        TRY(rubato_sparse_kv_client_table_add(table, ones, error));
    }
    return true;
}

/* The others wait for these Gets, so a Get that is not answered hangs the case. */
START_TEST(a_fast_worker_runs_ahead_as_far_as_it_collides_with_nobody)
{
    const uint32_t workers = 2 + (uint32_t)_i % 2;
    const char *record = _i / 2 % 2 == 0 ? "hash" : "dense";
    const int which = _i / 4;
    RubatoEngine *engine =
        make_engine("sparse_ssp", races[which].staleness, races[which].speculation, record);
    Race state = { races[which].staleness,
                   races[which].speculation,
                   races[which].collision,
                   races[which].free_gets,
                   1 + (size_t)(_i / 2 + which) % 2,
                   EVENT_INIT,
                   false };

    run_ok(engine, workers, race, &state, "t");
    ck_assert_int_eq(read_i64(engine, "t", 1),
                     MAX_ITERATIONS + (races[which].collision >= 0 ? 1 : 0));
    rubato_engine_free(engine);
}
END_TEST

/* The clock that worker 1 has to come to before worker 0's Get at a clock may be answered. */
static uint64_t clock_needed(const Race *state, uint64_t clock)
{
    const uint64_t reach = state->staleness + state->speculation;
    uint64_t needed = clock > reach ? clock - reach : 0;

    if (state->collision >= 0 && clock > state->staleness &&
        (uint64_t)state->collision <= clock - state->staleness - 1)
        needed = MAX(needed, (uint64_t)state->collision + 1);
    return needed;
}

/* The Get after the free ones must not be answered before worker 1 continues. Worker 1 raises an
 * event before it continues, and worker 0 checks the event when it has its answer. */
static bool be_held(RubatoWorker *worker, void *user_data, GError **error)
{
    Race *state = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoKey contested[] = { 1, 5 }, own[] = { 6 + rank, 1 + rank };
    RubatoIteration iterations[MAX_ITERATIONS];
    g_autoptr(RubatoSparseKVClientTable) table = NULL;
    const int64_t ones[2] = { 1, 1 };
    int64_t values[2];

    for (int t = 0; t < MAX_ITERATIONS; t++)
        iterations[t] =
            (RubatoIteration){ rank == 0 || (rank == 1 && t == state->collision) ? contested : own,
                               state->n_keys };
    table = rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations,
                                                      MAX_ITERATIONS, error);
    TRY(table != NULL);
    for (uint64_t t = 0; t < MAX_ITERATIONS; t++) {
        if (rank == 1) {
            TRY(event_await(&state->held, 1, worker, error));
            /* long enough for a Get that is answered too early to be seen */
            for (int i = 0; t == 0 && i < 200; i++)
                sched_yield();
            /* this Get makes it clock t */
            if (t == clock_needed(state, state->free_gets))
                atomic_store(&state->released, true);
        }
        TRY(rubato_sparse_kv_client_table_get(table, values, error));
        if (rank == 0 && t + 1 == state->free_gets)
            event_raise(&state->held);
        if (rank == 0 && t == state->free_gets)
            REQUIRE(atomic_load(&state->released), "(Get %d was not held)", (int)t);
        if (rank == 0 && state->collision >= 0 && t > (uint64_t)state->collision + state->staleness)
            for (size_t i = 0; i < state->n_keys; i++)
                REQUIRE(values[i] >= (int64_t)t + 1, "(it lacks the colliding Add: %d)",
                        (int)values[i]);
        TRY(rubato_sparse_kv_client_table_add(table, ones, error));
    }
    return true;
}

START_TEST(a_colliding_worker_is_held_until_the_collision_is_over)
{
    const int which = _i / 2;
    RubatoEngine *engine =
        make_engine("sparse_ssp", races[which].staleness, races[which].speculation, NULL);
    Race state = { races[which].staleness,
                   races[which].speculation,
                   races[which].collision,
                   races[which].free_gets,
                   1 + (size_t)_i % 2,
                   EVENT_INIT,
                   false };

    run_ok(engine, 2, be_held, &state, "t");
    rubato_engine_free(engine);
}
END_TEST

/* A worker that has told nothing may use any key: Gets wait for it as under SSP. */
static bool wait_for_the_silent(RubatoWorker *worker, void *user_data, GError **error)
{
    Race *state = user_data;
    const RubatoKey key = 1;
    const RubatoIteration iterations[] = { { &key, 1 }, { &key, 1 } };
    g_autoptr(RubatoSparseKVClientTable) table = NULL;
    g_autoptr(RubatoKVTable) silent = NULL;
    int64_t value;

    if (rubato_worker_rank(worker) == 1) {
        silent = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
        TRY(silent != NULL && event_await(&state->held, 1, worker, error));
        atomic_store(&state->released, true);
        return rubato_kv_table_clock(silent, error);
    }
    table =
        rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations, 2, error);
    TRY(table != NULL && rubato_sparse_kv_client_table_get(table, &value, error));
    event_raise(&state->held);
    TRY(rubato_sparse_kv_client_table_get(table, &value, error));
    REQUIRE(atomic_load(&state->released));
    return true;
}

START_TEST(a_worker_that_tells_nothing_is_waited_for)
{
    RubatoEngine *engine = make_engine("sparse_ssp", 0, 2, NULL);
    Race state = { .held = EVENT_INIT };

    run_ok(engine, 2, wait_for_the_silent, &state, "t");
    rubato_engine_free(engine);
}
END_TEST

/* A worker that has told that there are no more iterations uses no key in the others'
 * iterations. */
static bool run_ahead_of_the_finished(RubatoWorker *worker, void *user_data, GError **error)
{
    Race *state = user_data;
    const RubatoKey key = 4 + rubato_worker_rank(worker);
    const RubatoIteration iterations[] = { { &key, 1 }, { &key, 1 }, { &key, 1 } };
    const size_t n = rubato_worker_rank(worker) == 0 ? 3 : 1;
    g_autoptr(RubatoSparseKVClientTable) table =
        rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations, n, error);
    int64_t value;

    TRY(table != NULL);
    for (size_t t = 0; t < n; t++)
        TRY(rubato_sparse_kv_client_table_get(table, &value, error));
    if (n == 1)
        return event_await(&state->held, 1, worker, error); /* with its clock at 0 */
    event_raise(&state->held);
    return true;
}

/* Worker 1 waits for these Gets, so a Get that is not answered hangs the case. */
START_TEST(a_worker_without_further_iterations_is_not_waited_for)
{
    RubatoEngine *engine = make_engine("sparse_ssp", 0, 2, NULL);
    Race state = { .held = EVENT_INIT };

    run_ok(engine, 2, run_ahead_of_the_finished, &state, "t");
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sparse_kv_client_table");
    TCase *alone = tcase_create("alone");
    TCase *speculation = tcase_create("speculation");

    tcase_add_loop_test(alone, iterations_come_from_an_array, 0, G_N_ELEMENTS(models));
    tcase_add_loop_test(alone, iterations_come_from_a_callback_that_is_asked_ahead, 0,
                        G_N_ELEMENTS(models));
    tcase_add_loop_test(alone, iterations_stay_told_ahead_to_the_end, 0, G_N_ELEMENTS(models));
    tcase_add_loop_test(alone, others_see_a_clock_once_servers_have_been_told, 0, 2);
    tcase_add_test(alone, there_may_be_no_iterations_at_all);
    tcase_add_test(alone, a_worker_opens_one_before_it_clocks_the_table);
    suite_add_tcase(suite, alone);
    tcase_add_loop_test(speculation, a_fast_worker_runs_ahead_as_far_as_it_collides_with_nobody, 0,
                        4 * (int)G_N_ELEMENTS(races));
    tcase_add_loop_test(speculation, a_colliding_worker_is_held_until_the_collision_is_over, 0,
                        2 * (int)G_N_ELEMENTS(races));
    tcase_add_test(speculation, a_worker_that_tells_nothing_is_waited_for);
    tcase_add_test(speculation, a_worker_without_further_iterations_is_not_waited_for);
    suite_add_tcase(suite, speculation);
    return run_suite(suite);
}
