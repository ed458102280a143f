/* See engine_stress.h.
 *
 * A worker's actions in an iteration depend on seed, round, task, rank, table and iteration alone,
 * so the final sums of the tables are known beforehand. Each Add is of ones. If a task should fail
 * or be cancelled, less may have been added: then the sums are between those before it and those of
 * all Adds. */
#include "tests/support/engine/engine_stress.h"

#include <check.h>
#include <string.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/fitting_spec.h"

enum {
    MAX_TABLES = 4,
    MAX_TASKS = 3,
    MAX_WORKERS = 5,
    MAX_ITERATIONS = 12,
    MAX_STEP = 6,
    MAX_WIDTH = 4,
    N_KEYS = 16,
    FIRST_KEY = 100,
    CHUNK_SIZE = 3,
};

typedef enum {
    END_WELL,
    END_EARLY, /* the chosen worker returns true in the middle */
    END_FAILS,
    END_CANCELS, /* cancels all tasks */
    N_ENDS,
} End;

typedef struct {
    bool there;
    char name[8];
    RubatoTableSpec spec;
    int64_t least[N_KEYS], most[N_KEYS]; /* the bounds of a row's present sum, in each column */
} StressTable;

typedef struct Stress Stress;

typedef struct {
    Stress *stress;
    uint64_t seed;
    uint32_t n_workers;
    uint32_t n_iterations;
    uint32_t barrier_every; /* 0: never */
    uint32_t n_tables;
    StressTable *tables[MAX_TABLES];
    int64_t before[MAX_TABLES][N_KEYS]; /* the lower bound of each row when the task began */
    End end;
    uint32_t chosen_worker, chosen_iteration;
    RubatoTaskRun *run;
} StressTask;

struct Stress {
    RubatoEngine *engine;
    uint64_t random;
    StressTable tables[MAX_TABLES];
    unsigned n_made; /* names are never used twice in a row */
};

/* ---- what a worker does with a table in an iteration ---- */

typedef struct {
    uint32_t n;
    RubatoKey keys[MAX_STEP];
} Step;

static void make_step(const StressTask *task, uint32_t rank, uint32_t table, uint32_t iteration,
                      Step *step)
{
    uint64_t random = task->seed + rank * 1000003u + table * 10007u + iteration * 101u;

    step->n = random_below(&random, MAX_STEP + 1);
    for (uint32_t i = 0; i < step->n; i++)
        step->keys[i] = FIRST_KEY + random_below(&random, N_KEYS);
}

/* The iterations that a worker does if nothing ends it earlier. */
static uint32_t iterations_of(const StressTask *task, uint32_t rank)
{
    return task->end != END_WELL && rank == task->chosen_worker ? task->chosen_iteration
                                                                : task->n_iterations;
}

/* ---- handles ---- */

typedef enum {
    KIND_KV,
    KIND_CLIENT,
    KIND_CLIENT_ASYNC,
    KIND_CHUNK,
    KIND_SPARSE,
    N_KINDS,
} Kind;

typedef struct {
    RubatoWorker *worker;
    const StressTask *task;
    uint32_t table; /* of the task's */
    uint32_t rank;
    Kind kind;
    RubatoKVTable *kv;
    RubatoKVTable *client;
    RubatoChunkTable *chunk;
    RubatoSparseKVClientTable *sparse;
    Step step; /* the last one that the sparse callback told */
    int64_t own[N_KEYS];
    _Alignas(8) int64_t values[MAX_STEP * MAX_WIDTH];
} Hand;

static bool tell_step(uint64_t iteration, RubatoIteration *keys, void *user_data)
{
    Hand *hand = user_data;

    if (iteration >= iterations_of(hand->task, hand->rank))
        return false;
    make_step(hand->task, hand->rank, hand->table, (uint32_t)iteration, &hand->step);
    *keys = (RubatoIteration){ hand->step.keys, hand->step.n };
    return true;
}

static bool open_hand(Hand *hand, RubatoWorker *worker, GError **error)
{
    const char *name = hand->task->tables[hand->table]->name;

    switch (hand->kind) {
    case KIND_KV:
        hand->kv = rubato_worker_open_kv_table(worker, name, RUBATO_I64, error);
        return hand->kv != NULL;
    case KIND_CLIENT:
    case KIND_CLIENT_ASYNC:
        hand->client = rubato_worker_open_kv_table_cached(worker, name, RUBATO_I64, error);
        return hand->client != NULL;
    case KIND_CHUNK:
        hand->chunk = rubato_worker_open_chunk_table(worker, name, RUBATO_I64, error);
        return hand->chunk != NULL;
    default:
        hand->sparse = rubato_worker_open_sparse_kv_client_table_with(worker, name, RUBATO_I64,
                                                                      tell_step, hand, error);
        return hand->sparse != NULL;
    }
}

static void close_hand(Hand *hand)
{
    rubato_kv_table_free(hand->kv);
    rubato_kv_table_free(hand->client);
    rubato_chunk_table_free(hand->chunk);
    rubato_sparse_kv_client_table_free(hand->sparse);
}

static bool get(Hand *hand, const Step *step, GError **error)
{
    RubatoTicket ticket;

    switch (hand->kind) {
    case KIND_KV:
        return rubato_kv_table_get(hand->kv, step->keys, step->n, hand->values, error);
    case KIND_CLIENT:
        return rubato_kv_table_get(hand->client, step->keys, step->n, hand->values, error);
    case KIND_CLIENT_ASYNC:
        ticket =
            rubato_kv_table_get_async(hand->client, step->keys, step->n, hand->values, NULL, error);
        return ticket != 0 && rubato_worker_wait(hand->worker, ticket, error);
    case KIND_CHUNK:
        return rubato_chunk_table_get(hand->chunk, step->keys, step->n, hand->values, error);
    default:
        return rubato_sparse_kv_client_table_get(hand->sparse, hand->values, error);
    }
}

static bool add(Hand *hand, const Step *step, GError **error)
{
    int64_t ones[MAX_STEP * MAX_WIDTH];

    for (size_t i = 0; i < G_N_ELEMENTS(ones); i++)
        ones[i] = 1;
    for (uint32_t i = 0; i < step->n; i++)
        hand->own[step->keys[i] - FIRST_KEY]++;
    switch (hand->kind) {
    case KIND_KV:
        return rubato_kv_table_add(hand->kv, step->keys, step->n, ones, error);
    case KIND_CLIENT:
        return rubato_kv_table_add(hand->client, step->keys, step->n, ones, error);
    case KIND_CLIENT_ASYNC:
        return rubato_kv_table_add_async(hand->client, step->keys, step->n, ones, NULL, error) != 0;
    case KIND_CHUNK:
        return rubato_chunk_table_add(hand->chunk, step->keys, step->n, ones, error);
    default:
        return rubato_sparse_kv_client_table_add(hand->sparse, ones, error);
    }
}

static bool clock_hand(Hand *hand, GError **error)
{
    switch (hand->kind) {
    case KIND_KV:
        return rubato_kv_table_clock(hand->kv, error);
    case KIND_CLIENT:
    case KIND_CLIENT_ASYNC:
        return rubato_kv_table_clock(hand->client, error);
    case KIND_CHUNK:
        return rubato_chunk_table_clock(hand->chunk, error);
    default:
        return true;
    }
}

/* ---- workers ---- */

/* Under every model, a Get sees its worker's own Adds of earlier iterations. */
static bool check_values(const Hand *hand, const Step *step, GError **error)
{
    const StressTable *table = hand->task->tables[hand->table];
    const uint32_t width = table->spec.width;

    for (uint32_t i = 0; i < step->n; i++) {
        const uint64_t key = step->keys[i] - FIRST_KEY;
        const int64_t value = hand->values[(size_t)i * width];

        REQUIRE(value >= hand->task->before[hand->table][key] + hand->own[key],
                "(table %s, %s: key %d is %d, was %d, own %d)", table->name, table->spec.model,
                (int)key, (int)value, (int)hand->task->before[hand->table][key],
                (int)hand->own[key]);
        REQUIRE(value <= table->most[key]);
        for (uint32_t j = 1; j < width; j++)
            REQUIRE(hand->values[(size_t)i * width + j] == value);
    }
    return true;
}

static bool iterate(Hand *hands, uint32_t rank, RubatoWorker *worker, GError **error)
{
    const StressTask *task = hands[0].task;

    for (uint32_t t = 0; t < iterations_of(task, rank); t++) {
        if (task->barrier_every > 0 && t % task->barrier_every == 0)
            TRY(rubato_worker_barrier(worker, error));
        for (uint32_t i = 0; i < task->n_tables; i++) {
            Step step;

            make_step(task, rank, i, t, &step);
            TRY(get(&hands[i], &step, error));
            TRY(check_values(&hands[i], &step, error));
            TRY(add(&hands[i], &step, error));
            TRY(clock_hand(&hands[i], error));
        }
    }
    if (rank != task->chosen_worker)
        return true;
    if (task->end == END_CANCELS)
        rubato_engine_cancel(task->stress->engine);
    if (task->end == END_FAILS)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "as it was to");
    return task->end != END_FAILS;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const StressTask *task = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    uint64_t random = task->seed + rank;
    g_autofree Hand *hands = g_new0(Hand, MAX_TABLES);
    bool ok = true;

    for (uint32_t i = 0; i < task->n_tables && ok; i++) {
        const bool is_dense = task->tables[i]->spec.n_keys > 0;

        hands[i] = (Hand){ .worker = worker, .task = task, .table = i, .rank = rank };
        do
            hands[i].kind = (Kind)random_below(&random, N_KINDS);
        while (hands[i].kind == KIND_CHUNK && !is_dense);
        ok = open_hand(&hands[i], worker, error);
    }
    hands[0].task = task;
    ok = ok && iterate(hands, rank, worker, error);
    for (uint32_t i = 0; i < task->n_tables; i++)
        close_hand(&hands[i]);
    return ok;
}

/* ---- rounds ---- */

static void make_table(Stress *stress, StressTable *table)
{
    static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp" };
    uint64_t *random = &stress->random;
    const bool is_dense = random_below(random, 2) == 0;

    memset(table, 0, sizeof *table);
    g_snprintf(table->name, sizeof table->name, "t%u", stress->n_made++ % 100);
    table->there = true;
    table->spec = fitting_spec((RubatoTableSpec){
        .name = table->name,
        .dtype = RUBATO_I64,
        .width = 1 + random_below(random, MAX_WIDTH),
        .storage = is_dense ? "dense" : "hash",
        .first_key = is_dense ? FIRST_KEY : 0,
        .n_keys = is_dense ? N_KEYS : 0,
        .chunk_size = is_dense ? CHUNK_SIZE : 0,
        .partition = !is_dense && random_below(random, 2) == 0 ? "hash" : NULL,
        .create_on_get = random_below(random, 2) == 0,
        .model = models[random_below(random, G_N_ELEMENTS(models))],
        .staleness = random_below(random, 4),
        .speculation = random_below(random, 4),
        .record = is_dense && random_below(random, 2) == 0 ? "dense" : "hash",
        .cache = random_below(random, 3) == 0 ? RUBATO_CACHE_NONE : RUBATO_CACHE_ALL,
    });
    create_table(stress->engine, &table->spec);
}

static void choose_tables(Stress *stress, StressTask *task)
{
    for (uint32_t i = 0; i < MAX_TABLES; i++)
        if (stress->tables[i].there &&
            (task->n_tables == 0 || random_below(&stress->random, 2) == 0))
            task->tables[task->n_tables++] = &stress->tables[i];
}

static void plan_task(Stress *stress, StressTask *task)
{
    uint64_t *random = &stress->random;

    *task = (StressTask){ .stress = stress,
                          .seed = next_random(random),
                          .n_workers = 1 + random_below(random, MAX_WORKERS),
                          .n_iterations = 1 + random_below(random, MAX_ITERATIONS),
                          .barrier_every = random_below(random, 4) };
    task->end = random_below(random, 2) == 0 ? END_WELL : (End)random_below(random, N_ENDS);
    task->chosen_worker = random_below(random, task->n_workers);
    task->chosen_iteration = random_below(random, task->n_iterations + 1);
    choose_tables(stress, task);
    for (uint32_t i = 0; i < task->n_tables; i++)
        memcpy(task->before[i], task->tables[i]->least, sizeof task->before[i]);
}

/* Counts what the task will add: at most and, if nothing may end it earlier, at least. */
static void count_adds(StressTask *task, bool is_sure)
{
    for (uint32_t rank = 0; rank < task->n_workers; rank++)
        for (uint32_t i = 0; i < task->n_tables; i++)
            for (uint32_t t = 0; t < iterations_of(task, rank); t++) {
                StressTable *table = task->tables[i];
                Step step;

                make_step(task, rank, i, t, &step);
                for (uint32_t k = 0; k < step.n; k++) {
                    table->most[step.keys[k] - FIRST_KEY]++;
                    table->least[step.keys[k] - FIRST_KEY] += is_sure;
                }
            }
}

static void start_task(Stress *stress, StressTask *task)
{
    const char *tables[MAX_TABLES + 1] = { NULL };
    g_autoptr(GError) error = NULL;

    for (uint32_t i = 0; i < task->n_tables; i++)
        tables[i] = task->tables[i]->name;
    task->run = rubato_engine_start(stress->engine,
                                    &(RubatoTask){ .name = "stress",
                                                   .run = work,
                                                   .user_data = task,
                                                   .tables = tables,
                                                   .workers_per_node = task->n_workers },
                                    &error);
    ck_assert_msg(task->run != NULL, "%s", error == NULL ? "" : error->message);
}

static void wait_task(StressTask *task, bool anyone_cancels)
{
    g_autoptr(GError) error = NULL;
    const bool ok = rubato_task_run_wait(task->run, &error);

    if (ok) {
        ck_assert(task->end != END_FAILS);
        return;
    }
    if (anyone_cancels && g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED))
        return;
    ck_assert_msg(task->end == END_FAILS, "%s", error->message);
    ck_assert_msg(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED) &&
                      strstr(error->message, "as it was to") != NULL,
                  "%s", error->message);
}

/* Checks the sums and keeps them, so that the next round knows them exactly. */
static void check_table(Stress *stress, StressTable *table)
{
    int64_t values[N_KEYS * MAX_WIDTH];
    g_autoptr(GError) error = NULL;
    const bool read =
        rubato_engine_get_range(stress->engine, table->name, FIRST_KEY, N_KEYS, values, &error);

    ck_assert_msg(read, "%s", error == NULL ? "" : error->message);
    for (uint32_t i = 0; i < N_KEYS; i++) {
        const int64_t value = values[(size_t)i * table->spec.width];

        if (value < table->least[i] || value > table->most[i])
            ck_abort_msg("table %s under %s: key %u is %d, not %d to %d", table->name,
                         table->spec.model, i, (int)value, (int)table->least[i],
                         (int)table->most[i]);
        for (uint32_t j = 1; j < table->spec.width; j++)
            QUICK_ASSERT(values[(size_t)i * table->spec.width + j] == value);
        table->least[i] = table->most[i] = value;
    }
}

static void change_tables(Stress *stress)
{
    for (uint32_t i = 0; i < MAX_TABLES; i++) {
        StressTable *table = &stress->tables[i];

        if (table->there && random_below(&stress->random, 5) == 0) {
            ck_assert(rubato_engine_drop_table(stress->engine, table->name, NULL));
            table->there = false;
        }
        if (!table->there && (i == 0 || random_below(&stress->random, 2) == 0))
            make_table(stress, table);
    }
}

static void run_round(Stress *stress)
{
    const uint32_t n_tasks = 1 + random_below(&stress->random, MAX_TASKS);
    g_autofree StressTask *tasks = g_new0(StressTask, MAX_TASKS);
    const uint32_t first = random_below(&stress->random, n_tasks);
    bool anyone_cancels = false;

    for (uint32_t i = 0; i < n_tasks; i++) {
        plan_task(stress, &tasks[i]);
        anyone_cancels |= tasks[i].end == END_CANCELS;
    }
    for (uint32_t i = 0; i < n_tasks; i++)
        count_adds(&tasks[i], !anyone_cancels && tasks[i].end != END_FAILS);
    for (uint32_t i = 0; i < n_tasks; i++)
        start_task(stress, &tasks[i]);
    for (uint32_t i = 0; i < n_tasks; i++)
        wait_task(&tasks[(first + i) % n_tasks], anyone_cancels);
    for (uint32_t i = 0; i < MAX_TABLES; i++)
        if (stress->tables[i].there)
            check_table(stress, &stress->tables[i]);
}

void stress_engine(uint64_t seed, unsigned n_rounds)
{
    g_autofree Stress *stress = g_new0(Stress, 1);

    g_printerr("seed %" G_GUINT64_FORMAT "\n", seed);
    stress->random = seed;
    stress->engine = engine_with_servers(1 + random_below(&stress->random, 4));
    for (unsigned i = 0; i < n_rounds; i++) {
        change_tables(stress);
        run_round(stress);
    }
    rubato_engine_free(stress->engine);
}
