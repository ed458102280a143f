/* Adds that wait for their clock in their worker's memory: nobody can tell, whatever else workers
 * ask for meanwhile. Each reads what a plain loop gives that does the same calls one by one, in the
 * order of clocks and workers; handlers and Adds on the same rows show their order. */
#include <rubato/handler_ops.h>
#include <rubato/plugin.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "tables/joint.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/mover.h"
#include "tests/support/runner.h"

/* Calls have so many keys that a worker with several servers for itself does not cut its Adds. */
enum { N_KEYS = 160, N_CLOCKS = 60, CALLS = 4, KEYS_OF_CALL = JOINT_LEAST_KEYS + 1 };

typedef enum {
    WAY_ADD,
    WAY_RANGE,
    WAY_TICKET,
    WAY_ADD_GET,
    WAY_HANDLER,
    WAY_HANDLER_TICKET,
    WAY_N
} Way;

/* A call of a worker in a clock, drawn from a seed by the worker and by those who check it. */
typedef struct {
    Way way;
    RubatoKey keys[KEYS_OF_CALL];
    int64_t deltas[KEYS_OF_CALL];
} DrawnCall;

typedef struct {
    RubatoEngine *engine;
    Mover *mover; /* NULL: no part moves */
    uint64_t seed;
    uint32_t n_workers;
} Scene;

/* Half of the clocks have Adds alone. */
static DrawnCall draw(const Scene *scene, uint32_t worker, int clock, int i)
{
    const uint64_t place = (uint64_t)worker * 1000003 + (uint64_t)clock * 101;
    uint64_t random = rubato_mix64(scene->seed + place + (uint64_t)i);
    DrawnCall call = { .way = rubato_mix64(place) % 2 == 0 ? random % 2 : random % WAY_N };
    const RubatoKey first = random / 16 % (N_KEYS - KEYS_OF_CALL);

    for (uint64_t k = 0; k < KEYS_OF_CALL; k++) {
        random = rubato_mix64(random);
        call.keys[k] = call.way == WAY_RANGE ? first + k : (first + 7 * k) % N_KEYS;
        call.deltas[k] = (int64_t)(random % 1000);
    }
    return call;
}

/* What a row becomes by a handler or an Add; both wrap. */
static int64_t change(Way way, int64_t row, int64_t delta)
{
    return (int64_t)((way >= WAY_HANDLER ? 2 : 1) * (uint64_t)row + (uint64_t)delta);
}

/* Does what all workers do in a clock. */
static void do_clock(const Scene *scene, int clock, int64_t *rows)
{
    for (uint32_t worker = 0; worker < scene->n_workers; worker++)
        for (int i = 0; i < CALLS; i++) {
            const DrawnCall call = draw(scene, worker, clock, i);

            for (int k = 0; k < KEYS_OF_CALL; k++)
                rows[call.keys[k]] = change(call.way, rows[call.keys[k]], call.deltas[k]);
        }
}

/* Of the keys of a call: the row becomes twice itself and its argument. */
static bool run_twice_and(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                          GError **error)
{
    RubatoKey keys[KEYS_OF_CALL];
    int64_t deltas[KEYS_OF_CALL];
    RubatoPartRows rows;

    (void)result;
    for (int k = 0; k < KEYS_OF_CALL; k++) {
        keys[k] = (RubatoKey)rubato_read_i64(arguments);
        deltas[k] = rubato_read_i64(arguments);
    }
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            const RubatoKey key = rubato_part_rows_key(&rows, i);
            int64_t row;

            if (!rubato_part_get(part, &key, 1, &row, error))
                return false;
            for (int k = 0; k < KEYS_OF_CALL; k++)
                if (keys[k] == key)
                    row = change(WAY_HANDLER, row, deltas[k]);
            if (!rubato_part_set(part, &key, 1, &row, error))
                return false;
        }
    return true;
}

static const RubatoHandlerOps twice_and = { .name = "twice-and",
                                            .access = RUBATO_ACCESS_WRITES,
                                            .run = run_twice_and };

static bool call_twice_and(RubatoWorker *worker, const DrawnCall *call, GError **error)
{
    int64_t arguments[2 * KEYS_OF_CALL];

    for (int k = 0; k < KEYS_OF_CALL; k++) {
        arguments[2 * k] = (int64_t)call->keys[k];
        arguments[2 * k + 1] = call->deltas[k];
    }
    const RubatoHandlerCall asked = { .table = "t",
                                      .handler = "twice-and",
                                      .arguments = arguments,
                                      .n_argument_bytes = sizeof arguments,
                                      .scope = RUBATO_SCOPE_KEYS,
                                      .keys = call->keys,
                                      .n_keys = KEYS_OF_CALL };

    return call->way == WAY_HANDLER
               ? rubato_worker_call_handler(worker, &asked, NULL, error)
               : rubato_worker_call_handler_async(worker, &asked, NULL, NULL, error) != 0;
}

static bool make(RubatoWorker *worker, RubatoKVTable *table, const DrawnCall *call,
                 const int64_t *rows, GError **error)
{
    int64_t values[KEYS_OF_CALL];

    switch (call->way) {
    case WAY_ADD:
        return rubato_kv_table_add(table, call->keys, KEYS_OF_CALL, call->deltas, error);
    case WAY_RANGE:
        return rubato_kv_table_add_range(table, call->keys[0], KEYS_OF_CALL, call->deltas, error);
    case WAY_TICKET:
        return rubato_kv_table_add_async(table, call->keys, KEYS_OF_CALL, call->deltas, NULL,
                                         error) != 0;
    case WAY_ADD_GET:
        TRY(rubato_kv_table_add_get(table, call->keys, KEYS_OF_CALL, call->deltas, values, error));
        for (int k = 0; k < KEYS_OF_CALL; k++)
            REQUIRE(values[k] == rows[call->keys[k]]);
        return true;
    case WAY_HANDLER:
    case WAY_HANDLER_TICKET:
    case WAY_N:
        break;
    }
    return call_twice_and(worker, call, error);
}

/* Now and then a worker reads nothing for some clocks. */
static bool reads_at(uint32_t rank, int clock)
{
    return rubato_mix64((uint64_t)rank * 77 + (uint64_t)clock / 4) % 4 != 0;
}

/* By a list, which a worker alone may get from all servers at once. */
static bool read_list(RubatoKVTable *table, int64_t *rows, GError **error)
{
    RubatoKey keys[N_KEYS];

    for (RubatoKey key = 0; key < N_KEYS; key++)
        keys[key] = key;
    return rubato_kv_table_get(table, keys, N_KEYS, rows, error);
}

/* options: of a ticket; NULL: without one. */
static bool read_all(RubatoKVTable *table, const RubatoRequestOptions *options,
                     RubatoWorker *worker, int64_t *rows, GError **error)
{
    if (options == NULL)
        return rubato_kv_table_get_range(table, 0, N_KEYS, rows, error);
    return rubato_kv_table_get_range_async(table, 0, N_KEYS, rows, options, error) != 0 &&
           rubato_worker_wait_all(worker, error);
}

static bool live(RubatoWorker *worker, void *user_data, GError **error)
{
    static const RubatoRequestOptions high = { .priority = RUBATO_PRIORITY_HIGH };
    const Scene *scene = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    int64_t rows[N_KEYS] = { 0 }, seen[N_KEYS];
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

    mover_begin(scene->mover);
    TRY(table != NULL);
    for (int clock = 0; clock < N_CLOCKS; clock++) {
        if (reads_at(rank, clock)) {
            TRY(clock % 3 == 1
                    ? read_list(table, seen, error)
                    : read_all(table, clock % 3 == 0 ? &high : NULL, worker, seen, error));
            REQUIRE(memcmp(seen, rows, sizeof rows) == 0, "worker %u, clock %d", rank, clock);
        }
        for (int i = 0; i < CALLS; i++) {
            const DrawnCall call = draw(scene, rank, clock, i);

            TRY(make(worker, table, &call, rows, error));
        }
        TRY(rubato_kv_table_clock(table, error));
        do_clock(scene, clock, rows);
    }
    return rubato_worker_wait_all(worker, error);
}

static RubatoEngine *new_engine(uint32_t servers, bool is_hash)
{
    RubatoEngine *engine = engine_with_servers(servers);

    create_table(engine, &(RubatoTableSpec){ .name = "t",
                                             .dtype = RUBATO_I64,
                                             .n_keys = is_hash ? 0 : N_KEYS,
                                             .create_on_get = is_hash,
                                             .model = "bsp" });
    return engine;
}

/* The loop's number chooses workers, servers, the storage, and whether parts move. */
START_TEST(each_get_sees_what_calls_one_by_one_would_leave)
{
    const uint32_t servers = 1 + (uint32_t)_i / 3 % 3;
    Scene scene = { .engine = new_engine(servers, _i % 2 == 1),
                    .seed = (uint64_t)_i,
                    .n_workers = 1 + (uint32_t)_i % 3 };
    int64_t rows[N_KEYS] = { 0 }, left[N_KEYS];

    if (_i % 4 == 3)
        scene.mover = mover_new(scene.engine, "t", servers, (uint64_t)_i);
    run_ok(scene.engine, scene.n_workers, live, &scene, "t");
    if (scene.mover != NULL)
        mover_end(scene.mover);
    for (int clock = 0; clock < N_CLOCKS; clock++)
        do_clock(&scene, clock, rows);
    ck_assert(rubato_engine_get_range(scene.engine, "t", 0, N_KEYS, left, NULL));
    ck_assert_mem_eq(left, rows, sizeof rows);
    rubato_engine_free(scene.engine);
}
END_TEST

/* ---- what no Get has brought ---- */

static bool add_and_look(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 3;
    const int64_t one = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

    TRY(table != NULL);
    for (int64_t clock = 0; clock < N_CLOCKS; clock++) {
        int64_t row = -1;

        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_engine_get(user_data, "t", &key, 1, &row, error));
        REQUIRE(row == clock, "%d", (int)row);
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

/* As if each clock had been told at once. */
START_TEST(the_engine_s_calls_see_the_clocks_that_have_passed)
{
    RubatoEngine *engine = new_engine(1, false);

    run_ok(engine, 1, add_and_look, engine, "t");
    ck_assert_int_eq(read_i64(engine, "t", 3), N_CLOCKS);
    rubato_engine_free(engine);
}
END_TEST

enum { LOOKERS = 3, LOOKS_AT_ONCE = 50000, N_FLIGHTS = 100 };

typedef struct {
    RubatoEngine *engine;
    _Atomic bool is_over;
} Looking;

/* Each request keeps the server busy for a while, so that others wait behind it. */
static void *look_all_the_time(void *data)
{
    Looking *looking = data;
    g_autofree int64_t *rows = g_new(int64_t, LOOKS_AT_ONCE);

    while (!atomic_load(&looking->is_over))
        rubato_engine_get_range(looking->engine, "wide", 0, LOOKS_AT_ONCE, rows, NULL);
    return NULL;
}

static bool clock_before_a_get_ends(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 3;
    const int64_t one = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "wide", RUBATO_I64, error);

    (void)user_data;
    TRY(table != NULL);
    for (int64_t clock = 0; clock < N_FLIGHTS; clock++) {
        int64_t row = -1;

        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_kv_table_get_async(table, &key, 1, &row, NULL, error) != 0);
        TRY(rubato_kv_table_clock(table, error));
        TRY(rubato_worker_wait_all(worker, error));
        REQUIRE(row == clock, "%d at clock %d", (int)row, (int)clock);
    }
    return true;
}

/* A Get is on its way when its worker's clock ends. Requests of the engine stand before it in the
 * server's mailbox, and are handled after the end of the clock. */
START_TEST(the_engine_s_calls_bring_no_clock_past_a_get_on_its_way)
{
    Looking looking = { .engine = engine_with_servers(1) };
    pthread_t lookers[LOOKERS];

    create_table(looking.engine, &(RubatoTableSpec){ .name = "wide",
                                                     .dtype = RUBATO_I64,
                                                     .n_keys = LOOKS_AT_ONCE,
                                                     .model = "bsp" });
    for (int i = 0; i < LOOKERS; i++)
        pthread_create(&lookers[i], NULL, look_all_the_time, &looking);
    run_ok(looking.engine, 1, clock_before_a_get_ends, NULL, "wide");
    atomic_store(&looking.is_over, true);
    for (int i = 0; i < LOOKERS; i++)
        pthread_join(lookers[i], NULL);
    ck_assert_int_eq(read_i64(looking.engine, "wide", 3), N_FLIGHTS);
    rubato_engine_free(looking.engine);
}
END_TEST

enum { HALF = 8192, N_UNREAD = 400, MOST_MB = 8 };

/* The most memory that this process has had. */
static long most_mb(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

/* Each clock adds 64 KiB to the second part, which would be N_UNREAD times as much in the end. */
static bool add_to_a_part_and_read_the_other(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree int64_t *ones = g_new(int64_t, HALF);
    const RubatoKey key = 0;
    long before_mb = 0;
    int64_t row;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "halves", RUBATO_I64, error);

    (void)user_data;
    TRY(table != NULL);
    for (size_t i = 0; i < HALF; i++)
        ones[i] = 1;
    for (int clock = 0; clock < N_UNREAD; clock++) {
        TRY(rubato_kv_table_add_range(table, HALF, HALF, ones, error));
        TRY(rubato_kv_table_get(table, &key, 1, &row, error));
        TRY(rubato_kv_table_clock(table, error));
        if (clock == N_UNREAD / 10)
            before_mb = most_mb();
    }
    REQUIRE(most_mb() <= before_mb + MOST_MB, "%ld MB, %ld before", most_mb(), before_mb);
    return true;
}

START_TEST(a_part_that_nobody_reads_lets_no_adds_heap_up)
{
    RubatoEngine *engine = engine_with_servers(1 + (uint32_t)_i);

    create_table(engine, &(RubatoTableSpec){ .name = "halves",
                                             .dtype = RUBATO_I64,
                                             .n_keys = 2 * HALF,
                                             .parts = 2,
                                             .model = "bsp" });
    run_ok(engine, 1, add_to_a_part_and_read_the_other, NULL, "halves");
    ck_assert_int_eq(read_i64(engine, "halves", HALF), N_UNREAD);
    rubato_engine_free(engine);
}
END_TEST

/* ---- many Adds that one clock makes due ---- */

enum { N_LARGE = 12000, N_LARGE_CLOCKS = 8 };

typedef struct {
    uint32_t n_workers;
    bool aggregates;
} Large;

/* Its sums depend on their order. */
static float delta_of(uint32_t worker, uint32_t clock, uint32_t i)
{
    return (float)(rubato_mix64(((uint64_t)worker * 100 + clock) * N_LARGE + i) >> 40) * 0x1p-20F;
}

/* What the clock makes of a row. */
static float step(const Large *large, float row, uint32_t clock, uint32_t i)
{
    float sum = delta_of(0, clock, i);

    if (!large->aggregates)
        row += sum;
    for (uint32_t worker = 1; worker < large->n_workers; worker++) {
        const float delta = delta_of(worker, clock, i);

        sum += delta;
        if (!large->aggregates)
            row += delta;
    }
    return large->aggregates ? row - sum : row;
}

/* The last worker reads only at the end. */
static bool add_large(RubatoWorker *worker, void *user_data, GError **error)
{
    const Large *large = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    g_autofree float *rows = g_new0(float, N_LARGE), *seen = g_new(float, N_LARGE);
    g_autofree float *deltas = g_new(float, N_LARGE);
    g_autofree RubatoKey *keys = g_new(RubatoKey, N_LARGE);
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "large", RUBATO_F32, error);

    TRY(table != NULL);
    for (uint32_t i = 0; i < N_LARGE; i++)
        keys[i] = i;
    for (uint32_t clock = 0; clock <= N_LARGE_CLOCKS; clock++) {
        if (rank + 1 < large->n_workers || clock == N_LARGE_CLOCKS) {
            TRY(rubato_kv_table_get(table, keys, N_LARGE, seen, error));
            REQUIRE(memcmp(seen, rows, N_LARGE * sizeof *rows) == 0, "clock %u", clock);
        }
        for (uint32_t i = 0; i < N_LARGE; i++) {
            deltas[i] = delta_of(rank, clock, i);
            rows[i] = step(large, rows[i], clock, i);
        }
        TRY(rubato_kv_table_add(table, keys, N_LARGE, deltas, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

START_TEST(all_servers_take_a_clock_that_makes_many_adds_due)
{
    Large large = { .n_workers = 1 + (uint32_t)_i % 3, .aggregates = _i % 2 == 1 };
    RubatoEngine *engine = engine_with_servers(1 + (uint32_t)_i / 3);

    create_table(engine,
                 &(RubatoTableSpec){ .name = "large",
                                     .dtype = RUBATO_F32,
                                     .storage = _i < 3 ? "dense" : "hash",
                                     .n_keys = _i < 3 ? N_LARGE : 0,
                                     .model = "bsp",
                                     .update = large.aggregates ? "sgd" : "add",
                                     .aggregate = large.aggregates ? RUBATO_AGGREGATE_SUM
                                                                   : RUBATO_AGGREGATE_NONE,
                                     .rule = { .learning_rate = large.aggregates ? 1 : 0 } });
    run_ok(engine, large.n_workers, add_large, &large, "large");
    rubato_engine_free(engine);
}
END_TEST

static bool add_and_fail(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 3;
    const int64_t one = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);

    (void)user_data;
    TRY(table != NULL);
    for (int clock = 0; clock < 5; clock++) {
        TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    TRY(rubato_kv_table_add(table, &key, 1, &one, error));
    TRY(rubato_worker_barrier(worker, error));
    REQUIRE(rubato_worker_rank(worker) != 1, "enough");
    return rubato_worker_barrier(worker, error); /* ends when the task is cancelled */
}

START_TEST(a_task_that_fails_keeps_the_clocks_that_have_passed_and_drops_the_last)
{
    static const char *const tables[] = { "t", NULL };
    RubatoEngine *engine = new_engine(1 + (uint32_t)_i, false);

    run_fails(engine,
              &(RubatoTask){
                  .name = "failing", .run = add_and_fail, .tables = tables, .workers_per_node = 2 },
              RUBATO_ERROR_TASK_FAILED, "enough", NULL);
    ck_assert_int_eq(read_i64(engine, "t", 3), 2 * 5);
    rubato_engine_free(engine);
}
END_TEST

static void register_handler(void)
{
    ck_assert(rubato_register_handler(&twice_and, NULL));
}

int main(void)
{
    Suite *suite = suite_create("deferred Adds of whole engines");
    TCase *cases = tcase_create("deferred");

    tcase_add_checked_fixture(cases, register_handler, NULL);
    tcase_add_loop_test(cases, each_get_sees_what_calls_one_by_one_would_leave, 0, 12);
    tcase_add_test(cases, the_engine_s_calls_see_the_clocks_that_have_passed);
    tcase_add_test(cases, the_engine_s_calls_bring_no_clock_past_a_get_on_its_way);
    tcase_add_loop_test(cases, a_part_that_nobody_reads_lets_no_adds_heap_up, 0, 2);
    tcase_add_loop_test(cases, all_servers_take_a_clock_that_makes_many_adds_due, 0, 9);
    tcase_add_loop_test(
        cases, a_task_that_fails_keeps_the_clocks_that_have_passed_and_drops_the_last, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
