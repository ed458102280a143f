/* Failure: the caller gets the first cause, all other workers are released, and engine and tables
 * stay usable.
 *
 * docs/liveness.md: A worker that fails */
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

#define I64_TABLE(...)                                \
    &(RubatoTableSpec)                                \
    {                                                 \
        .name = "t", .dtype = RUBATO_I64, __VA_ARGS__ \
    }

static const char *const table_t[] = { "t", NULL };

/* ---- what comes back ---- */

static bool fail_with_a_reason(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    if (rubato_worker_rank(worker) == 2)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "line 7 is wrong");
    return rubato_worker_rank(worker) != 2;
}

START_TEST(the_error_names_task_worker_node_and_cause)
{
    RubatoEngine *engine = engine_with_servers(1);

    run_fails(engine,
              &(RubatoTask){ .name = "reading", .run = fail_with_a_reason, .workers_per_node = 4 },
              RUBATO_ERROR_TASK_FAILED, "task reading", "worker 2", "node 0", "line 7 is wrong",
              NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool just_fail(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    (void)error;
    return false;
}

START_TEST(a_failure_without_an_error_is_one_too)
{
    RubatoEngine *engine = engine_with_servers(1);

    run_fails(engine, &(RubatoTask){ .name = "mute", .run = just_fail, .workers_per_node = 3 },
              RUBATO_ERROR_TASK_FAILED, "task mute", "worker ", "set no error", NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool fail_after_another(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    while (rubato_worker_rank(worker) != 1 && !rubato_worker_cancelled(worker))
        sched_yield();
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "failure of %u", rubato_worker_rank(worker));
    return false;
}

START_TEST(the_first_failure_is_the_one_that_counts)
{
    RubatoEngine *engine = engine_with_servers(1);

    for (int i = 0; i < 20; i++)
        run_fails(engine,
                  &(RubatoTask){ .name = "all", .run = fail_after_another, .workers_per_node = 4 },
                  RUBATO_ERROR_TASK_FAILED, "worker 1", "failure of 1", NULL);
    rubato_engine_free(engine);
}
END_TEST

static bool pretend_cancelled(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "my own reasons");
    return false;
}

START_TEST(a_worker_that_says_it_was_cancelled_cancels_its_task)
{
    RubatoEngine *engine = engine_with_servers(1);

    run_fails(engine, &(RubatoTask){ .name = "odd", .run = pretend_cancelled },
              RUBATO_ERROR_CANCELLED, "worker 0", "my own reasons", NULL);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(failing_at_once_again_and_again_leaves_the_engine_usable)
{
    RubatoEngine *engine = engine_with_servers(2);

    create_table(engine, I64_TABLE(.n_keys = 4, .model = "bsp"));
    for (uint32_t i = 0; i < 200; i++)
        run_fails(engine,
                  &(RubatoTask){ .name = "hasty",
                                 .run = just_fail,
                                 .tables = table_t,
                                 .workers_per_node = 1 + i % 5 },
                  RUBATO_ERROR_TASK_FAILED, NULL);
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    rubato_engine_free(engine);
}
END_TEST

/* ---- who is blocked ---- */

typedef enum {
    PLACE_GET,
    PLACE_CLIENT_GET,
    PLACE_CACHED_GET,
    PLACE_TICKET,
    PLACE_WAIT_ALL,
    PLACE_SPARSE_GET,
    PLACE_CHUNK_GET,
    PLACE_BARRIER,
    PLACE_LOOP, /* which asks whether it is cancelled */
    N_PLACES,
} Place;

typedef struct {
    Place place;
    bool cancels; /* rubato_engine_cancel ends it, not a failure */
    RubatoEngine *engine;
    Event blocked;  /* raised by each worker just before it blocks */
    Event returned; /* with RUBATO_ERROR_CANCELLED */
} Blockade;

static bool block_in_client(RubatoWorker *worker, Blockade *blockade, GError **error)
{
    g_autoptr(RubatoKVTable) client =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 0, 3 };
    int64_t values[2];
    RubatoTicket ticket;

    TRY(client != NULL && rubato_kv_table_clock(client, error));
    event_raise(&blockade->blocked);
    if (blockade->place == PLACE_CLIENT_GET || blockade->place == PLACE_CACHED_GET)
        return rubato_kv_table_get(client, keys, 2, values, error);
    ticket = rubato_kv_table_get_async(client, keys, 2, values, NULL, error);
    TRY(ticket != 0);
    return blockade->place == PLACE_TICKET ? rubato_worker_wait(worker, ticket, error)
                                           : rubato_worker_wait_all(worker, error);
}

static bool block_in_sparse(RubatoWorker *worker, Blockade *blockade, GError **error)
{
    const RubatoKey keys[] = { 0, 3 };
    const RubatoIteration iterations[] = { { keys, 2 }, { keys, 2 } };
    g_autoptr(RubatoSparseKVClientTable) sparse = NULL;
    int64_t values[2];

    sparse =
        rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations, 2, error);
    TRY(sparse != NULL && rubato_sparse_kv_client_table_get(sparse, values, error));
    event_raise(&blockade->blocked);
    return rubato_sparse_kv_client_table_get(sparse, values, error);
}

static bool block_in_get(RubatoWorker *worker, Blockade *blockade, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    g_autoptr(RubatoChunkTable) chunk = NULL;
    const RubatoKey keys[] = { 0, 3 };
    const uint64_t chunks[] = { 1, 0 };
    int64_t values[4];

    TRY(kv != NULL && rubato_kv_table_clock(kv, error));
    if (blockade->place == PLACE_CHUNK_GET)
        chunk = rubato_worker_open_chunk_table(worker, "t", RUBATO_I64, error);
    event_raise(&blockade->blocked);
    return blockade->place == PLACE_CHUNK_GET
               ? rubato_chunk_table_get_chunks(chunk, chunks, 2, values, error)
               : rubato_kv_table_get(kv, keys, 2, values, error);
}

static bool block(RubatoWorker *worker, Blockade *blockade, GError **error)
{
    switch (blockade->place) {
    case PLACE_CLIENT_GET:
    case PLACE_CACHED_GET:
    case PLACE_TICKET:
    case PLACE_WAIT_ALL:
        return block_in_client(worker, blockade, error);
    case PLACE_SPARSE_GET:
        return block_in_sparse(worker, blockade, error);
    case PLACE_BARRIER:
        event_raise(&blockade->blocked);
        return rubato_worker_barrier(worker, error);
    case PLACE_LOOP:
        event_raise(&blockade->blocked);
        while (!rubato_worker_cancelled(worker))
            sched_yield();
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "asked");
        return false;
    default:
        return block_in_get(worker, blockade, error);
    }
}

/* Every call of a worker in a cancelled task fails with that error. */
static bool check_calls_after(RubatoWorker *worker, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t value = 0;

    TRY(kv != NULL);
    REQUIRE(!rubato_kv_table_get(kv, &key, 1, &value, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "cancelled"));
    REQUIRE(!rubato_kv_table_add(kv, &key, 1, &value, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "cancelled"));
    REQUIRE(!rubato_kv_table_clock(kv, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "cancelled"));
    REQUIRE(!rubato_worker_barrier(worker, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "cancelled"));
    REQUIRE(rubato_worker_cancelled(worker));
    return true;
}

static bool block_or_fail(RubatoWorker *worker, void *user_data, GError **error)
{
    Blockade *blockade = user_data;

    if (rubato_worker_rank(worker) == 0) {
        g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

        TRY(kv != NULL && event_await(&blockade->blocked, 3, worker, error));
        if (blockade->cancels) {
            rubato_engine_cancel(blockade->engine);
            while (!rubato_worker_cancelled(worker))
                sched_yield();
            return true;
        }
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "the cause");
        return false;
    }
    REQUIRE(!block(worker, blockade, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, NULL));
    TRY(check_calls_after(worker, error));
    event_raise(&blockade->returned);
    return true;
}

static bool iterate_a_little(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey keys[] = { 0, 3 };
    const int64_t ones[] = { 1, 1 };
    int64_t values[2];

    (void)user_data;
    TRY(kv != NULL);
    for (int t = 0; t < 5; t++) {
        TRY(rubato_kv_table_get(kv, keys, 2, values, error));
        TRY(rubato_kv_table_add(kv, keys, 2, ones, error));
        TRY(rubato_kv_table_clock(kv, error));
    }
    return true;
}

/* _i: place × failed or cancelled × model. */
START_TEST(whoever_is_blocked_is_let_go_and_everything_stays_usable)
{
    static const char *const models[] = { "ssp", "bsp", "sparse_ssp" };
    Blockade blockade = { .place = (Place)(_i % N_PLACES),
                          .cancels = _i / N_PLACES % 2 == 1,
                          .blocked = EVENT_INIT,
                          .returned = EVENT_INIT };
    RubatoEngine *engine = engine_with_servers(2);
    const RubatoTask task = { .name = "blocked",
                              .run = block_or_fail,
                              .user_data = &blockade,
                              .tables = table_t,
                              .workers_per_node = 4 };
    const RubatoTableSpec spec =
        fitting_spec(*I64_TABLE(.n_keys = 4, .chunk_size = 2, .model = models[_i / N_PLACES / 2],
                                .cache = blockade.place == PLACE_CACHED_GET ? RUBATO_CACHE_ALL
                                                                            : RUBATO_CACHE_NONE));

    blockade.engine = engine;
    create_table(engine, &spec);
    if (blockade.cancels)
        run_fails(engine, &task, RUBATO_ERROR_CANCELLED, "node 0 cancelled its tasks", NULL);
    else
        run_fails(engine, &task, RUBATO_ERROR_TASK_FAILED, "worker 0", "the cause", NULL);
    ck_assert_uint_eq(event_count(&blockade.returned), 3);

    run_ok(engine, 4, iterate_a_little, NULL, "t");
    ck_assert_int_eq(read_i64(engine, "t", 3), 20);
    ck_assert(rubato_engine_drop_table(engine, "t", NULL));
    create_table(engine, I64_TABLE(.n_keys = 4));
    rubato_engine_free(engine);
}
END_TEST

/* Asks as soon as it knows, when the servers may not know yet, and a cache has the row. */
static bool get_when_cancelled(RubatoWorker *worker, void *user_data, GError **error)
{
    Blockade *blockade = user_data;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 31; /* the last server is told last */
    int64_t value;

    TRY(table != NULL);
    TRY(rubato_kv_table_get(table, &key, 1, &value, error));
    event_raise(&blockade->blocked);
    if (rubato_worker_rank(worker) == 0) {
        TRY(event_await(&blockade->blocked, 2, worker, error));
        rubato_engine_cancel(blockade->engine);
        return true;
    }
    while (!rubato_worker_cancelled(worker))
        ;
    REQUIRE(!rubato_kv_table_get(table, &key, 1, &value, error));
    REQUIRE(is_error(error, RUBATO_ERROR_CANCELLED, "cancelled"));
    event_raise(&blockade->returned);
    return true;
}

/* _i: RubatoCache */
START_TEST(no_get_is_answered_once_its_worker_knows_of_the_cancellation)
{
    RubatoEngine *engine = engine_with_servers(32);

    create_table(engine,
                 I64_TABLE(.n_keys = 32, .model = "ssp", .staleness = 1, .cache = (RubatoCache)_i));
    for (int i = 0; i < 100; i++) {
        Blockade blockade = { .engine = engine, .blocked = EVENT_INIT, .returned = EVENT_INIT };
        const RubatoTask task = { .name = "told",
                                  .run = get_when_cancelled,
                                  .user_data = &blockade,
                                  .tables = table_t,
                                  .workers_per_node = 2 };

        run_fails(engine, &task, RUBATO_ERROR_CANCELLED, "node 0 cancelled its tasks", NULL);
        ck_assert_uint_eq(event_count(&blockade.returned), 1);
    }
    rubato_engine_free(engine);
}
END_TEST

/* ---- what becomes of the Adds ---- */

typedef struct {
    Event added;
} Unfinished;

/* Clock 0 is finished by everybody, clock 1 by worker 0 alone, and then worker 1 fails. */
static bool fail_in_clock_1(RubatoWorker *worker, void *user_data, GError **error)
{
    Unfinished *state = user_data;
    g_autoptr(RubatoKVTable) kv = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    int64_t seen;

    TRY(kv != NULL);
    TRY(rubato_kv_table_add(kv, &key, 1, &(int64_t){ 1 }, error));
    TRY(rubato_kv_table_clock(kv, error));
    TRY(rubato_kv_table_get(kv, &key, 1, &seen, error)); /* so all have come to clock 1 */
    REQUIRE(seen == 3);
    TRY(rubato_kv_table_add(kv, &key, 1, &(int64_t){ 100 }, error));
    if (rubato_worker_rank(worker) == 0)
        TRY(rubato_kv_table_clock(kv, error));
    event_raise(&state->added);
    if (rubato_worker_rank(worker) != 1)
        return rubato_worker_rank(worker) == 2 ? true /* which counts as the end of its clock 1 */
                                               : rubato_kv_table_get(kv, &key, 1, &seen, error);
    TRY(event_await(&state->added, 3, worker, error));
    return false;
}

START_TEST(bsp_keeps_finished_clocks_and_drops_the_unfinished_one)
{
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, I64_TABLE(.n_keys = 1, .model = "bsp"));
    for (int64_t times = 1; times <= 20; times++) {
        Unfinished state = { .added = EVENT_INIT };

        run_fails(engine,
                  &(RubatoTask){ .name = "unfinished",
                                 .run = fail_in_clock_1,
                                 .user_data = &state,
                                 .tables = table_t,
                                 .workers_per_node = 3 },
                  RUBATO_ERROR_TASK_FAILED, "worker 1", NULL);
        ck_assert_int_eq(read_i64(engine, "t", 0), 3);
        ck_assert(rubato_engine_drop_table(engine, "t", NULL));
        create_table(engine, I64_TABLE(.n_keys = 1, .model = "bsp"));
    }
    rubato_engine_free(engine);
}
END_TEST

/* ---- neighbours ---- */

static bool wait_for_it(RubatoWorker *worker, void *user_data, GError **error)
{
    Event *go_on = user_data;

    TRY(event_await(go_on, 1, worker, error));
    return iterate_a_little(worker, NULL, error);
}

START_TEST(a_task_beside_the_failed_one_goes_on)
{
    RubatoEngine *engine = engine_with_servers(2);
    Event go_on = EVENT_INIT;
    RubatoTaskRun *run;

    create_table(engine, I64_TABLE(.n_keys = 4, .model = "bsp"));
    run = rubato_engine_start(engine,
                              &(RubatoTask){ .name = "good",
                                             .run = wait_for_it,
                                             .user_data = &go_on,
                                             .tables = table_t,
                                             .workers_per_node = 3 },
                              NULL);
    ck_assert_ptr_nonnull(run);
    for (int i = 0; i < 5; i++) {
        run_fails(engine,
                  &(RubatoTask){
                      .name = "bad", .run = just_fail, .tables = table_t, .workers_per_node = 3 },
                  RUBATO_ERROR_TASK_FAILED, "task bad", NULL);
    }
    event_raise(&go_on);
    ck_assert(rubato_task_run_wait(run, NULL));
    ck_assert_int_eq(read_i64(engine, "t", 0), 15);
    rubato_engine_free(engine);
}
END_TEST

/* ---- cancelling ---- */

static bool loop_until_cancelled(RubatoWorker *worker, void *user_data, GError **error)
{
    event_raise(user_data);
    while (!rubato_worker_cancelled(worker))
        sched_yield();
    return rubato_worker_barrier(worker, error);
}

START_TEST(cancelling_from_outside_ends_all_tasks_and_no_later_one)
{
    RubatoEngine *engine = engine_with_servers(1);
    Event begun = EVENT_INIT;
    const RubatoTask task = {
        .name = "endless", .run = loop_until_cancelled, .user_data = &begun, .workers_per_node = 2
    };
    RubatoTaskRun *runs[3];

    rubato_engine_cancel(engine); /* nobody to cancel */
    create_table(engine, I64_TABLE(.n_keys = 4));
    for (int i = 0; i < 3; i++)
        runs[i] = rubato_engine_start(engine, &task, NULL);
    event_wait(&begun, 6);
    rubato_engine_cancel(engine);
    rubato_engine_cancel(engine); /* once more */
    for (int i = 0; i < 3; i++) {
        GError *error = NULL;

        ck_assert(!rubato_task_run_wait(runs[i], &error));
        check_error(&error, RUBATO_ERROR_CANCELLED, "cancelled its tasks", NULL);
    }
    run_ok(engine, 2, iterate_a_little, NULL, "t");
    rubato_engine_free(engine);
}
END_TEST

static void cancel_engine(RubatoTicket ticket, const GError *error, void *user_data)
{
    (void)ticket;
    (void)error;
    rubato_engine_cancel(user_data);
}

static bool cancel_in_callback(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) client =
        rubato_worker_open_kv_table_cached(worker, "t", RUBATO_I64, error);
    const RubatoKey key = 0;
    static int64_t value;

    TRY(client != NULL);
    TRY(rubato_kv_table_get_async(
        client, &key, 1, &value,
        &(RubatoRequestOptions){ .callback = cancel_engine, .user_data = user_data }, error));
    while (!rubato_worker_cancelled(worker))
        sched_yield();
    return true;
}

START_TEST(a_callback_may_cancel)
{
    RubatoEngine *engine = engine_with_servers(1);

    create_table(engine, I64_TABLE(.n_keys = 4));
    run_fails(
        engine,
        &(RubatoTask){
            .name = "called", .run = cancel_in_callback, .user_data = engine, .tables = table_t },
        RUBATO_ERROR_CANCELLED, "cancelled its tasks", NULL);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("task_failure");
    TCase *cases = tcase_create("task_failure");

    tcase_add_test(cases, the_error_names_task_worker_node_and_cause);
    tcase_add_test(cases, a_failure_without_an_error_is_one_too);
    tcase_add_test(cases, the_first_failure_is_the_one_that_counts);
    tcase_add_test(cases, a_worker_that_says_it_was_cancelled_cancels_its_task);
    tcase_add_test(cases, failing_at_once_again_and_again_leaves_the_engine_usable);
    tcase_add_loop_test(cases, no_get_is_answered_once_its_worker_knows_of_the_cancellation,
                        RUBATO_CACHE_REMOTE, RUBATO_CACHE_NONE + 1);
    tcase_add_loop_test(cases, whoever_is_blocked_is_let_go_and_everything_stays_usable, 0,
                        N_PLACES * 2 * 3);
    tcase_add_test(cases, bsp_keeps_finished_clocks_and_drops_the_unfinished_one);
    tcase_add_test(cases, a_task_beside_the_failed_one_goes_on);
    tcase_add_test(cases, cancelling_from_outside_ends_all_tasks_and_no_later_one);
    tcase_add_test(cases, a_callback_may_cancel);
    tcase_set_timeout(cases, 10);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
