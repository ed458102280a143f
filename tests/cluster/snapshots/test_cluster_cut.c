/* Snapshots of tables that tasks use, on one node and on two: whatever the model, a snapshot is a
 * cut, and training that goes on from one ends with the same bits.
 *
 * Each Add of a worker brings ones for some of the worker's own keys, and their number for its
 * counter, on several parts. So in each set of whole Adds the worker's rows sum up to its counter.
 */
#include <string.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_WORKERS = 4, N_OWN = 64, MOST_AT_ONCE = 9, N_SNAPSHOTS = 3, N_BETWEEN = 30 };

#define FIRST_COUNTER ((RubatoKey)(N_WORKERS * N_OWN))

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-cut-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

static const ClusterShape two_nodes = { .n_nodes = 2,
                                        .nodes = { { 1, 2 }, { 2, 2 } },
                                        .scheduler = 1 };

static bool is_first(const RubatoEngine *engine)
{
    return rubato_engine_node(engine) == CLUSTER_IDS[0] || rubato_engine_n_nodes(engine) == 1;
}

static void play(bool on_two_nodes, ClusterPlay function, const void *data)
{
    if (on_two_nodes) {
        ClusterRun *run = cluster_run_new(&two_nodes);

        cluster_start(run, function, data);
        cluster_expect_success(run);
        cluster_run_free(run);
    } else {
        g_free(cluster_play_alone(2, N_WORKERS, function, data));
    }
}

/* ---- workers that count ---- */

typedef struct {
    const char *model, *storage;
    bool on_two_nodes;
} Way;

static const Way ways[] = {
    { "asp", "dense", false }, { "asp", "hash", true },         { "asp", "dense", true },
    { "ssp", "hash", false },  { "ssp", "dense", true },        { "bsp", "dense", false },
    { "bsp", "hash", true },   { "sparse_ssp", "dense", true },
};

static Event iterations = EVENT_INIT;
static _Atomic bool is_over;

/* How many keys an iteration counts. */
static size_t n_counted(uint32_t rank, uint64_t iteration)
{
    return 1 + (rank * 5 + iteration * 7) % MOST_AT_ONCE;
}

static bool count_once(RubatoKVTable *table, uint32_t rank, uint64_t iteration, GError **error)
{
    const size_t n = n_counted(rank, iteration);
    RubatoKey keys[MOST_AT_ONCE + 1];
    int64_t ones[MOST_AT_ONCE + 1];

    for (size_t i = 0; i < n; i++) {
        keys[i] = (iteration * 13 + i * i * 29) % N_OWN * N_WORKERS + rank;
        ones[i] = 1;
    }
    keys[n] = FIRST_COUNTER + rank;
    ones[n] = (int64_t)n;
    return rubato_kv_table_add(table, keys, n + 1, ones, error);
}

static bool count(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    const RubatoKey key = rank;
    int64_t seen;

    (void)user_data;
    g_autoptr(RubatoKVTable) one = rubato_worker_open_kv_table(worker, "one", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) two = rubato_worker_open_kv_table(worker, "two", RUBATO_I64, error);
    TRY(one != NULL && two != NULL);
    for (uint64_t i = 0; !atomic_load(&is_over); i++) {
        TRY(count_once(one, rank, i, error));
        TRY(count_once(two, rank, i, error));
        if (i % 4 == 0)
            TRY(rubato_kv_table_get(two, &key, 1, &seen, error));
        TRY(rubato_kv_table_clock(one, error) && rubato_kv_table_clock(two, error));
        event_raise(&iterations);
    }
    return true;
}

/* ---- what a snapshot has ---- */

typedef struct {
    int64_t sums[N_WORKERS], counters[N_WORKERS];
    size_t n_rows;
} Counts;

static bool take_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Counts *counts = user_data;
    const int64_t *values = rows->values;

    (void)error;
    for (size_t i = 0; i < rows->n; i++) {
        const RubatoKey key = rows->keys != NULL ? rows->keys[i] : rows->first + i;

        if (key >= FIRST_COUNTER)
            counts->counters[key - FIRST_COUNTER] += values[i];
        else
            counts->sums[key % N_WORKERS] += values[i];
    }
    counts->n_rows += rows->n;
    return true;
}

static bool read_table(const RubatoSnapshot *snapshot, const char *name, Counts *counts,
                       GError **error)
{
    const RubatoSnapshotTable *table = rubato_snapshot_find_table(snapshot, name);

    *counts = (Counts){ .n_rows = 0 };
    for (uint32_t part = 0; part < table->n_parts; part++)
        TRY(rubato_snapshot_read_part(snapshot, name, part, take_rows, counts, error));
    for (uint32_t i = 0; i < N_WORKERS; i++)
        EXPECT(counts->sums[i] == counts->counters[i],
               "%s: worker %u has counted %ld, and its rows have %ld", name, i,
               (long)counts->counters[i], (long)counts->sums[i]);
    EXPECT(counts->n_rows <= FIRST_COUNTER + N_WORKERS, "%zu rows", counts->n_rows);
    return true;
}

/* What a worker counts before a clock. */
static int64_t counted_before(uint32_t rank, uint64_t clock)
{
    int64_t sum = 0;

    for (uint64_t i = 0; i < clock; i++)
        sum += (int64_t)n_counted(rank, i);
    return sum;
}

static bool check_snapshot(const Way *way, uint64_t number, GError **error)
{
    const bool is_bsp = strcmp(way->model, "bsp") == 0;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, error);
    Counts one, two;

    TRY(snapshot != NULL && read_table(snapshot, "one", &one, error) &&
        read_table(snapshot, "two", &two, error));
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        const uint64_t clock = rubato_snapshot_find_table(snapshot, "one")->clock;
        const int64_t before = counted_before(i, clock);

        EXPECT(one.counters[i] >= two.counters[i] &&
                   one.counters[i] <= two.counters[i] + MOST_AT_ONCE,
               "worker %u counted %ld in the first table, then %ld in the second", i,
               (long)one.counters[i], (long)two.counters[i]);
        EXPECT(is_bsp && number <= N_SNAPSHOTS ? one.counters[i] == before
                                               : one.counters[i] >= before,
               "worker %u counted %ld, and %ld up to clock %lu", i, (long)one.counters[i],
               (long)before, (unsigned long)clock);
    }
    return true;
}

static bool create_counters(RubatoEngine *engine, const Way *way, GError **error)
{
    const bool is_hash = strcmp(way->storage, "hash") == 0;
    RubatoTableSpec spec = { .dtype = RUBATO_I64,
                             .storage = way->storage,
                             .n_keys = is_hash ? 0 : FIRST_COUNTER + N_WORKERS,
                             .model = way->model,
                             .parts = 5 };

    if (strcmp(way->model, "ssp") == 0)
        spec.staleness = 2;
    spec.name = "one";
    TRY(rubato_engine_create_table(engine, &spec, error));
    spec.name = "two";
    return rubato_engine_create_table(engine, &spec, error);
}

static bool cut_often(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "one", "two", NULL };
    const RubatoTask task = { .name = "count", .run = count, .tables = tables };
    const Way *way = data;

    TRY(create_counters(engine, way, error));
    RubatoTaskRun *run = rubato_engine_start(engine, &task, error);
    TRY(run != NULL);
    for (uint32_t i = 1; i <= N_SNAPSHOTS; i++) {
        const RubatoSnapshotSpec spec = { .directory = directory };

        event_wait(&iterations, event_count(&iterations) + N_BETWEEN); /* they go on */
        TRY(rubato_engine_snapshot(engine, &spec, NULL, error));
    }
    atomic_store(&is_over, true);
    TRY(rubato_task_run_wait(run, error));
    TRY(rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                               error));
    for (uint32_t i = 1; i <= N_SNAPSHOTS + 1 && is_first(engine); i++)
        TRY(check_snapshot(way, i, error));
    return true;
}

START_TEST(snapshot_under_load_is_a_cut)
{
    play(ways[_i].on_two_nodes, cut_often, &ways[_i]);
}
END_TEST

/* ---- workers that take snapshots ---- */

enum { N_ITERATIONS = 60, N_ASKED = 2 };

/* A snapshot that a worker asks for at iteration i has what it had added, and no more. */
static bool check_own(const char *model, uint32_t rank, uint64_t number, uint64_t i, GError **error)
{
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, error);
    Counts counts;

    TRY(snapshot != NULL && read_table(snapshot, "one", &counts, error));
    const int64_t own = counts.counters[rank];
    const uint64_t clock = rubato_snapshot_find_table(snapshot, "one")->clock;
    const bool is_bsp = strcmp(model, "bsp") == 0;
    const int64_t before = counted_before(rank, is_bsp ? clock : i);

    EXPECT(own == before, "worker %u had counted %ld before it asked, and the snapshot has %ld",
           rank, (long)before, (long)own);
    EXPECT(clock <= i, "clock %lu at iteration %lu", (unsigned long)clock, (unsigned long)i);
    return true;
}

/* Workers of both nodes ask, at the same time, and those of odd rank do not wait for the end of
 * the writing. */
static bool count_and_ask(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = directory, .note = "of a worker" };
    const Way *way = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    uint64_t numbers[N_ITERATIONS] = { 0 };

    g_autoptr(RubatoKVTable) one = rubato_worker_open_kv_table(worker, "one", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) two = rubato_worker_open_kv_table(worker, "two", RUBATO_I64, error);
    TRY(one != NULL && two != NULL);
    for (uint64_t i = 0; i < N_ITERATIONS; i++) {
        const bool asks = rank != 1 && i % (N_ITERATIONS / N_ASKED) == 7 * rank;

        if (asks && rank % 2 == 0) {
            TRY(rubato_worker_snapshot(worker, &spec, &numbers[i], error));
            TRY(check_own(way->model, rank, numbers[i], i, error));
        } else if (asks) {
            TRY(rubato_worker_snapshot_async(worker, &spec, &numbers[i], NULL, error) != 0);
        }
        TRY(count_once(one, rank, i, error));
        TRY(count_once(two, rank, i, error));
        TRY(rubato_kv_table_clock(one, error) && rubato_kv_table_clock(two, error));
    }
    TRY(rubato_worker_wait_all(worker, error));
    for (uint64_t i = 0; i < N_ITERATIONS; i++)
        if (numbers[i] > 0)
            TRY(check_own(way->model, rank, numbers[i], i, error));
    return true;
}

static bool ask_often(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "one", "two", NULL };
    const Way *way = data;
    const RubatoTask task = {
        .name = "ask", .run = count_and_ask, .user_data = (void *)(uintptr_t)way, .tables = tables
    };
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    TRY(create_counters(engine, way, error) && rubato_engine_run(engine, &task, error));
    TRY(rubato_snapshot_list(directory, &numbers, &n, error));
    EXPECT(n == (N_WORKERS - 1) * N_ASKED, "%zu snapshots", n);
    for (size_t i = 0; i < n && is_first(engine); i++) {
        g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, numbers[i], error);

        TRY(snapshot != NULL);
        EXPECT(g_strcmp0(rubato_snapshot_note(snapshot), "of a worker") == 0, "no note");
        TRY(check_snapshot(way, numbers[i], error));
    }
    return true;
}

START_TEST(a_snapshot_that_a_worker_asks_for_is_a_cut_behind_its_adds)
{
    play(ways[_i].on_two_nodes, ask_often, &ways[_i]);
}
END_TEST

/* ---- a snapshot that fails ---- */

/* Nothing of it stays: neither closed maps nor images, nor files. */
static bool fail_and_go_on(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree char *nowhere = g_build_filename(directory, "no", "folder", NULL);
    const RubatoSnapshotSpec lost = { .directory = nowhere }, good = { .directory = directory };
    const char *const unknown[] = { "three", NULL }, *const twice[] = { "one", "one", NULL };
    const RubatoSnapshotSpec wrong[] = { { .directory = "" },
                                         { .directory = directory, .tables = unknown },
                                         { .directory = directory, .tables = twice } };
    const Way *way = user_data;
    GError *found = NULL;
    uint64_t number;

    g_autoptr(RubatoKVTable) one = rubato_worker_open_kv_table(worker, "one", RUBATO_I64, error);
    TRY(one != NULL);
    for (uint64_t i = 0; i < 3; i++) {
        TRY(count_once(one, rubato_worker_rank(worker), i, error) &&
            rubato_kv_table_clock(one, error));
        if (rubato_worker_rank(worker) != 3)
            continue;
        EXPECT(!rubato_worker_snapshot(worker, &lost, &number, &found), "written nowhere");
        TRY(cluster_expect_error(&found, RUBATO_ERROR_IO, nowhere, error));
        EXPECT(!rubato_worker_snapshot(worker, &wrong[i], &number, &found), "%lu",
               (unsigned long)i);
        g_clear_error(&found);
    }
    if (rubato_worker_rank(worker) != 3)
        return true;
    TRY(rubato_worker_snapshot(worker, &good, &number, error));
    EXPECT(number == 1, "snapshot %lu", (unsigned long)number);
    return check_own(way->model, 3, number, 3, error);
}

static bool fail_first(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "one", "two", NULL };
    const RubatoTask task = { .name = "fail",
                              .run = fail_and_go_on,
                              .user_data = (void *)(uintptr_t)data,
                              .tables = tables };

    return create_counters(engine, data, error) && rubato_engine_run(engine, &task, error);
}

START_TEST(after_a_snapshot_that_fails_the_task_goes_on_and_takes_another)
{
    play(ways[_i].on_two_nodes, fail_first, &ways[_i]);
}
END_TEST

/* ---- going on with the same bits ---- */

enum { N_STEPS = 40, AHEAD = 4, N_STATE = 4 };

static uint64_t done_steps;
static Event snapshots = EVENT_INIT;
static bool waits_for_snapshot;

/* Gradients that depend on what was read, so that one bit of another state shows. */
static bool learn(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey keys[] = { 3, 77, 0, 5000, 3 };
    float seen[5], gradients[5];

    (void)user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "w", RUBATO_F32, error);
    TRY(table != NULL);
    for (uint64_t step = done_steps; step < N_STEPS; step++) {
        if (waits_for_snapshot && step == N_STEPS - AHEAD && rubato_worker_rank(worker) == 0)
            TRY(event_await(&snapshots, 1, worker, error));
        TRY(rubato_kv_table_get(table, keys, 5, seen, error));
        for (size_t i = 0; i < 5; i++)
            gradients[i] = seen[i] - (float)(rubato_worker_rank(worker) + 1) / (float)(step + 3);
        TRY(rubato_kv_table_add(table, keys, 5, gradients, error));
        TRY(rubato_kv_table_clock(table, error));
        event_raise(&iterations);
    }
    return true;
}

static bool create_learner(RubatoEngine *engine, GError **error)
{
    return rubato_engine_create_table(engine,
                                      &(RubatoTableSpec){ .name = "w",
                                                          .model = "bsp",
                                                          .update = "adam",
                                                          .init = "normal",
                                                          .init_stddev = 1,
                                                          .seed = 9 },
                                      error);
}

static const char *const learnt[] = { "w", NULL };
static const RubatoTask learning = { .name = "learn", .run = learn, .tables = learnt };

/* Takes snapshot 1 in the middle of training, and 2 at its end. */
static bool learn_all(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = directory };

    (void)data;
    waits_for_snapshot = true;
    TRY(create_learner(engine, error));
    RubatoTaskRun *run = rubato_engine_start(engine, &learning, error);
    TRY(run != NULL);
    event_wait(&iterations, 9);
    TRY(rubato_engine_snapshot(engine, &spec, NULL, error));
    event_raise(&snapshots);
    return rubato_task_run_wait(run, error) && rubato_engine_snapshot(engine, &spec, NULL, error);
}

/* Goes on from snapshot 1, and takes another one at the end. */
static bool learn_rest(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoRestoreSpec from = { .directory = directory, .number = 1 };
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 1, error);

    (void)data;
    TRY(snapshot != NULL);
    done_steps = rubato_snapshot_find_table(snapshot, "w")->clock;
    EXPECT(done_steps > 0 && done_steps <= N_STEPS - AHEAD, "step %u", (unsigned)done_steps);
    return create_learner(engine, error) && rubato_engine_restore(engine, &from, NULL, error) &&
           rubato_engine_run(engine, &learning, error) &&
           rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                                  error);
}

typedef struct {
    RubatoKey key;
    float value, state[N_STATE];
} LearntRow;

static bool take_learnt(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    LearntRow *learnt_rows = user_data;

    (void)error;
    for (size_t i = 0; i < rows->n; i++) {
        size_t at = 0;

        while (learnt_rows[at].key != rows->keys[i] && learnt_rows[at].value != 0)
            at++;
        learnt_rows[at].key = rows->keys[i];
        learnt_rows[at].value = ((const float *)rows->values)[i];
        memcpy(learnt_rows[at].state, (const float *)rows->states + i * N_STATE,
               N_STATE * sizeof(float));
    }
    return true;
}

static int compare_keys(const void *a, const void *b)
{
    const LearntRow *left = a, *right = b;

    return left->key < right->key ? -1 : left->key > right->key;
}

static void read_learnt(uint64_t number, LearntRow *rows)
{
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, NULL);
    const RubatoSnapshotTable *table = rubato_snapshot_find_table(snapshot, "w");

    ck_assert_uint_eq(table->n_rows, 4);
    ck_assert_uint_eq(table->state_width, N_STATE);
    for (uint32_t part = 0; part < table->n_parts; part++)
        ck_assert(rubato_snapshot_read_part(snapshot, "w", part, take_learnt, rows, NULL));
    qsort(rows, 4, sizeof *rows, compare_keys);
}

START_TEST(training_cut_in_the_middle_goes_on_with_the_same_bits)
{
    LearntRow expected[5] = { { .key = UINT64_MAX } }, resumed[5] = { { .key = UINT64_MAX } };

    play(_i != 0, learn_all, NULL);
    play(_i != 1, learn_rest, NULL);
    read_learnt(2, expected);
    read_learnt(3, resumed);
    ck_assert_mem_eq(expected, resumed, 4 * sizeof *expected);
}
END_TEST

/* ---- what cannot be cut ---- */

static const struct {
    RubatoTableSpec spec;
    const char *why;
} refused[] = {
    { { .name = "one", .storage = "hash", .max_bytes = 16 << 20, .create_on_get = true },
      "create_on_get" },
};

static bool await_end(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)user_data;
    return event_await(&snapshots, 1, worker, error);
}

static bool be_refused(RubatoEngine *engine, const void *data, GError **error)
{
    static const char *const tables[] = { "one", NULL };
    const RubatoTask task = { .name = "waits", .run = await_end, .tables = tables };
    const RubatoSnapshotSpec spec = { .directory = directory };
    const size_t i = *(const size_t *)data;
    GError *found = NULL;

    TRY(rubato_engine_create_table(engine, &refused[i].spec, error));
    RubatoTaskRun *run = rubato_engine_start(engine, &task, error);
    TRY(run != NULL);
    EXPECT(!rubato_engine_snapshot(engine, &spec, NULL, &found), "%s", refused[i].why);
    TRY(cluster_expect_error(&found, RUBATO_ERROR_INVALID, refused[i].why, error));
    event_raise(&snapshots);
    return rubato_task_run_wait(run, error) && rubato_engine_snapshot(engine, &spec, NULL, error);
}

START_TEST(tables_that_cannot_be_cut_are_refused_while_a_task_uses_them)
{
    const size_t i = (size_t)_i;

    play(true, be_refused, &i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuts of clusters");
    TCase *cases = cluster_add_case(suite, "cuts");

    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, snapshot_under_load_is_a_cut, 0, G_N_ELEMENTS(ways));
    tcase_add_loop_test(cases, a_snapshot_that_a_worker_asks_for_is_a_cut_behind_its_adds, 2,
                        G_N_ELEMENTS(ways));
    tcase_add_loop_test(cases, after_a_snapshot_that_fails_the_task_goes_on_and_takes_another, 0,
                        3);
    tcase_add_loop_test(cases, training_cut_in_the_middle_goes_on_with_the_same_bits, 0, 2);
    tcase_add_loop_test(cases, tables_that_cannot_be_cut_are_refused_while_a_task_uses_them, 0,
                        G_N_ELEMENTS(refused));
    return run_suite(suite);
}
