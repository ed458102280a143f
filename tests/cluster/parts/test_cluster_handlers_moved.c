/* Handlers that are called while parts move between nodes: what they read keeps within the bounds
 * of the model, what they write counts once, and one that fails tells its caller. Over shared
 * memory and TCP, with usual and with small pieces and windows. */
#include "tests/support/cluster/cluster_moves.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"
#include "tests/support/runner.h"

enum { N_KEYS = 300, N_PARTS = 5, N_CLOCKS = 20, N_MOVES = 16, STALENESS = 2, SPECULATION = 2 };

static const ClusterShape shapes[] = {
    { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } }, .over = "shm" },
    { .n_nodes = 2, .nodes = { { 2, 1 }, { 1, 1 } }, .over = "tcp" },
    { .n_nodes = 3, .nodes = { { 1, 1 }, { 1, 2 }, { 0, 1 } }, .scheduler = 2, .over = "tcp" },
    { .n_nodes = 3, .nodes = { { 1, 1 }, { 2, 1 }, { 1, 1 } }, .over = "shm" },
};

/* ---- the handlers ---- */

/* Adds 1 to every value of its rows. */
static bool run_increment(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                          GError **error)
{
    RubatoPartRows rows;

    (void)arguments;
    (void)result;
    (void)error;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++)
            ++*(int64_t *)rubato_part_rows_row(&rows, i);
    return true;
}

/* The lowest and the highest value of its rows. */
static bool run_extremes(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                         GError **error)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    RubatoPartRows rows;

    (void)arguments;
    (void)error;
    while (rubato_part_next(part, &rows))
        for (size_t i = 0; i < rows.n; i++) {
            const int64_t value = *(int64_t *)rubato_part_rows_row(&rows, i);

            low = MIN(low, value);
            high = MAX(high, value);
        }
    rubato_write_i64(result, low);
    rubato_write_i64(result, high);
    return true;
}

static bool reduce_extremes(const RubatoHandlerSetting *setting, RubatoByteReader *arguments,
                            RubatoByteReader *results, size_t n, RubatoByteWriter *result,
                            GError **error)
{
    int64_t low = INT64_MAX, high = INT64_MIN;

    (void)setting;
    (void)arguments;
    for (size_t i = 0; i < n; i++) {
        const int64_t one = rubato_read_i64(&results[i]), other = rubato_read_i64(&results[i]);

        low = MIN(low, one);
        high = MAX(high, other);
        if (!rubato_byte_reader_finish(&results[i], "the extremes", error))
            return false;
    }
    rubato_write_i64(result, low);
    rubato_write_i64(result, high);
    return true;
}

/* Fails on the part that its argument names. */
static bool run_fail(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                     GError **error)
{
    (void)result;
    if (rubato_part_number(part) != rubato_read_u32(arguments))
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it does not like this part");
    return false;
}

static const RubatoHandlerOps own_handlers[] = {
    { .name = "fail", .access = RUBATO_ACCESS_WRITES, .run = run_fail },
    { .name = "increment", .access = RUBATO_ACCESS_WRITES, .run = run_increment },
    { .name = "extremes", .run = run_extremes, .reduce = reduce_extremes },
};

static void register_all(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(own_handlers); i++)
        ck_assert(rubato_register_handler(&own_handlers[i], NULL));
}

/* ---- calls ---- */

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };

typedef struct {
    const char *model;
    bool hashed;
    ClusterMoves moves;
} Scene;

static RubatoKey key_of(const Scene *scene, uint64_t i)
{
    return scene->hashed ? rubato_mix64(i) : i;
}

/* What a value may be at a clock of a worker that has incremented so often: as in
 * test_cluster_parts. */
static bool check_extremes(const Scene *scene, RubatoWorker *worker, const RubatoHandlerCall *asked,
                           int64_t clock, GError **error)
{
    const int64_t n = rubato_worker_n_workers(worker);
    const int64_t behind = MAX(clock - STALENESS, 0);
    int64_t low = clock, high = clock + (n - 1) * N_CLOCKS;
    g_autoptr(GBytes) result = NULL;

    if (!rubato_worker_call_handler(worker, asked, &result, error))
        return false;
    if (g_str_equal(scene->model, "bsp")) {
        low = high = n * clock;
    } else if (!g_str_equal(scene->model, "asp")) {
        low = clock + (n - 1) * behind;
        high = clock + (n - 1) * MIN(clock + STALENESS + SPECULATION + 2, N_CLOCKS);
    }
    RubatoByteReader reader = rubato_byte_reader_of(result);
    const int64_t lowest = rubato_read_i64(&reader), highest = rubato_read_i64(&reader);

    EXPECT(low <= lowest && highest <= high,
           "%s: worker %u at clock %" G_GINT64_FORMAT " sees %" G_GINT64_FORMAT
           " to %" G_GINT64_FORMAT ", expected %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT,
           scene->model, rubato_worker_rank(worker), clock, lowest, highest, low, high);
    return true;
}

/* Whether a worker also makes a call at this clock that fails when BSP runs it. */
static bool fails_at(const Scene *scene, const RubatoWorker *worker, uint64_t clock)
{
    return g_str_equal(scene->model, "bsp") && !scene->hashed && clock + 2 < N_CLOCKS &&
           clock % 3 == rubato_worker_rank(worker) % 3;
}

static bool call_failing(RubatoWorker *worker, uint64_t clock, GError **error)
{
    const uint32_t part = (uint32_t)(clock % N_PARTS);
    const RubatoHandlerCall fail = {
        .table = "t", .handler = "fail", .arguments = &part, .n_argument_bytes = sizeof part
    };

    return rubato_worker_call_handler(worker, &fail, NULL, error);
}

/* The clock that would end the next clock after that of a call that fails says so. */
static bool end_clock(const Scene *scene, RubatoWorker *worker, RubatoKVTable *table,
                      uint64_t clock, GError **error)
{
    if (clock > 0 && fails_at(scene, worker, clock - 1)) {
        g_autofree char *text = g_strdup_printf("table t: handler fail failed on part %u (node ",
                                                (uint32_t)((clock - 1) % N_PARTS));
        GError *found = NULL;

        EXPECT(!rubato_kv_table_clock(table, &found), "a call of clock %u fails",
               (uint32_t)clock - 1);
        if (!cluster_expect_error(&found, RUBATO_ERROR_HANDLER, text, error))
            return false;
    }
    return rubato_kv_table_clock(table, error);
}

static bool increment(RubatoWorker *worker, void *user_data, GError **error)
{
    Scene *scene = user_data;
    const bool is_sparse = g_str_equal(scene->model, "sparse_ssp");
    RubatoKey keys[N_KEYS];
    RubatoIteration iterations[N_CLOCKS];
    int64_t values[N_KEYS];
    RubatoHandlerCall read = { .table = "t",
                               .handler = "extremes",
                               .scope = RUBATO_SCOPE_KEYS,
                               .keys = keys,
                               .n_keys = N_KEYS };
    RubatoHandlerCall write = read;
    g_autoptr(RubatoKVTable) table = NULL;
    g_autoptr(RubatoSparseKVClientTable) sparse = NULL;

    write.handler = "increment";
    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = key_of(scene, i);
    for (int i = 0; i < N_CLOCKS; i++)
        iterations[i] = (RubatoIteration){ keys, N_KEYS };
    if (is_sparse)
        sparse = rubato_worker_open_sparse_kv_client_table(worker, "t", RUBATO_I64, iterations,
                                                           N_CLOCKS, error);
    else
        table = rubato_worker_open_kv_table(worker, "t", RUBATO_I64, error);
    if (table == NULL && sparse == NULL)
        return false;
    for (uint64_t clock = 0; clock < N_CLOCKS; clock++) {
        if (sparse != NULL && !rubato_sparse_kv_client_table_get(sparse, values, error))
            return false;
        if (!is_sparse && !scene->hashed) /* all rows; of hash storage there may be none yet */
            read.scope = write.scope = clock % 2 == 0 ? RUBATO_SCOPE_KEYS : RUBATO_SCOPE_TABLE;
        if (!check_extremes(scene, worker, &read, (int64_t)clock, error) ||
            !cluster_await_moves(worker, &scene->moves, clock, N_CLOCKS, error) ||
            !rubato_worker_call_handler(worker, &write, NULL, error) ||
            (fails_at(scene, worker, clock) && !call_failing(worker, clock, error)) ||
            (table != NULL && !end_clock(scene, worker, table, clock, error)))
            return false;
    }
    return true;
}

static bool increment_on(RubatoEngine *engine, Scene *scene, GError **error)
{
    const RubatoTableSpec spec =
        fitting_spec((RubatoTableSpec){ .name = "t",
                                        .dtype = RUBATO_I64,
                                        .n_keys = scene->hashed ? 0 : N_KEYS,
                                        .parts = N_PARTS,
                                        .model = scene->model,
                                        .staleness = STALENESS,
                                        .speculation = SPECULATION });
    const char *const tables[] = { "t", NULL };
    const RubatoTask task = {
        .name = "increment", .run = increment, .user_data = scene, .tables = tables
    };
    const int64_t expected = (int64_t)rubato_engine_n_workers(engine) * N_CLOCKS;
    RubatoKey keys[N_KEYS];
    int64_t values[N_KEYS];

    for (uint64_t i = 0; i < N_KEYS; i++)
        keys[i] = key_of(scene, i);
    if (!rubato_engine_create_table(engine, &spec, error) ||
        !cluster_run_moving(engine, &task, &scene->moves, error) ||
        !rubato_engine_get(engine, "t", keys, N_KEYS, values, error))
        return false;
    for (int i = 0; i < N_KEYS; i++)
        EXPECT(values[i] == expected,
               "%s: value %d is %" G_GINT64_FORMAT " at last, expected %" G_GINT64_FORMAT,
               scene->model, i, values[i], expected);
    return rubato_engine_drop_table(engine, "t", error);
}

static bool play_moves(RubatoEngine *engine, const void *data, GError **error)
{
    for (int hashed = 0; hashed < 2; hashed++) {
        Scene scene = { .model = data,
                        .hashed = hashed != 0,
                        .moves = { "t", N_PARTS, N_MOVES, EVENT_INIT } };

        if (!increment_on(engine, &scene, error))
            return false;
    }
    return true;
}

/* Every other shape with small pieces and windows. */
START_TEST(calls_read_within_bounds_and_write_once_while_parts_move)
{
    const size_t i = (size_t)_i / G_N_ELEMENTS(models);
    ClusterShape shape = shapes[i];
    ClusterRun *run;

    if (i % 2 == 1)
        shape.sizes = small_sizes();
    run = cluster_run_new(&shape);
    cluster_start(run, play_moves, models[(size_t)_i % G_N_ELEMENTS(models)]);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("cluster_handlers_moved");
    TCase *const cases = cluster_add_case(suite, "handlers");

    tcase_add_checked_fixture(cases, register_all, NULL);
    tcase_add_loop_test(cases, calls_read_within_bounds_and_write_once_while_parts_move, 0,
                        (int)(G_N_ELEMENTS(shapes) * G_N_ELEMENTS(models)));
    return run_suite(suite);
}
