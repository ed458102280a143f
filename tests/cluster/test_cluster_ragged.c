/* Tables of ragged rows on several nodes, over each transport, with usual and with small pieces and
 * windows, while parts move: each Get shows what its model lets it show, what is appended is there
 * once, and long rows cross whole. Under "bsp" each list has one order, on any nodes. */
#include <pthread.h>
#include <string.h>

#include "tests/support/cluster/cluster_moves.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/ragged_lists.h"
#include "tests/support/runner.h"

enum { N_CLOCKS = 12, N_MOVES = 12, STALENESS = 2, N_LISTS = 4 };

static const struct {
    ClusterShape shape;
    const char *over;
    bool small;
} shapes[] = {
    { { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } }, "shm", true },
    { { .n_nodes = 3, .nodes = { { 2, 1 }, { 1, 2 }, { 0, 1 } }, .scheduler = 2 }, "tcp", false },
    { { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 1 } } }, "tcp", true },
    { { .n_nodes = 2, .nodes = { { 1, 1 }, { 1, 1 } } }, "zmq", false },
};

static ClusterRun *new_run(size_t i)
{
    ClusterShape shape = shapes[i].shape;

    shape.over = shapes[i].over;
    if (shapes[i].small)
        shape.sizes = small_sizes();
    return cluster_run_new(&shape);
}

/* ---- lists while parts move ---- */

typedef struct {
    RaggedLists lists;
    ClusterMoves moves;
} Scene;

static bool await_moves(RubatoWorker *worker, uint64_t clock, void *user, GError **error)
{
    Scene *scene = user;

    return cluster_await_moves(worker, &scene->moves, clock, N_CLOCKS, error);
}

static bool run_lists(RubatoEngine *engine, Scene *scene, GError **error)
{
    const RubatoTableSpec spec = ragged_lists_spec(&scene->lists);
    const char *const tables[] = { "lists", NULL };
    const RubatoTask task = {
        .name = "lists", .run = ragged_lists_work, .user_data = &scene->lists, .tables = tables
    };

    scene->moves.n_parts = spec.parts;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_moving(engine, &task, &scene->moves, error) &&
           ragged_lists_check(engine, &scene->lists, rubato_engine_n_workers(engine), error) &&
           rubato_engine_drop_table(engine, "lists", error);
}

static bool play_lists(RubatoEngine *engine, const void *data, GError **error)
{
    for (int hashed = 0; hashed < 2; hashed++) {
        const char *model = data;
        Scene scene = { .lists = { .model = model,
                                   .is_hashed = hashed != 0,
                                   .staleness = g_str_equal(model, "ssp") ? STALENESS : 0,
                                   .n_clocks = N_CLOCKS,
                                   .scale = hashed != 0 ? 1 : 40,
                                   .at_clock = await_moves },
                        .moves = { .table = "lists", .n_moves = N_MOVES, .moved = EVENT_INIT } };

        scene.lists.user = &scene;
        if (!run_lists(engine, &scene, error))
            return false;
    }
    return true;
}

START_TEST(lists_hold_what_was_appended_once_while_parts_move)
{
    static const struct {
        size_t shape;
        const char *model;
    } cases[N_LISTS] = { { 0, "bsp" }, { 1, "bsp" }, { 2, "ssp" }, { 3, "asp" } };
    ClusterRun *run = new_run(cases[_i].shape);

    cluster_start(run, play_lists, cases[_i].model);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- long rows ---- */

enum { N_LONG = 4, N_SHORT = 3000 };

/* Row i of a worker, of odd bytes. */
static uint32_t length_of(uint32_t i)
{
    return i < N_LONG ? 1000001 + 1000 * i : 1 + i % 300;
}

static uint8_t byte_of(uint32_t rank, uint32_t i, uint32_t at)
{
    return (uint8_t)(rank * 31 + i * 7 + at * 3 + at / 253);
}

static bool exchange_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker), n = N_LONG + N_SHORT;
    const uint32_t other = (rank + 1) % rubato_worker_n_workers(worker);
    g_autofree RubatoKey *keys = g_new(RubatoKey, n);
    g_autofree uint32_t *lengths = g_new(uint32_t, n);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autofree uint8_t *seen = NULL;
    size_t at = 0;
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "rows", RUBATO_U8, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = rubato_mix64(rank * (uint64_t)n + i);
        lengths[i] = length_of(i);
        g_byte_array_set_size(bytes, (guint)(at + lengths[i]));
        for (uint32_t j = 0; j < lengths[i]; j++)
            bytes->data[at++] = byte_of(rank, i, j);
    }
    if (!rubato_ragged_table_assign(table, keys, n, lengths, bytes->data, error) ||
        !rubato_ragged_table_append_async(table, keys, n, lengths, bytes->data, NULL, error) ||
        !rubato_worker_wait_all(worker, error) || !rubato_worker_barrier(worker, error))
        return false;
    for (uint32_t i = 0; i < n; i++)
        keys[i] = rubato_mix64(other * (uint64_t)n + i);
    if (!rubato_ragged_table_get(table, keys, n, lengths, (void **)&seen, error))
        return false;
    at = 0;
    for (uint32_t i = 0; i < n; i++) {
        EXPECT(lengths[i] == 2 * length_of(i), "%u bytes of row %u", lengths[i], i);
        for (uint32_t j = 0; j < lengths[i]; j++, at++)
            EXPECT(seen[at] == byte_of(other, i, j % length_of(i)), "byte %u of row %u", j, i);
    }
    return true;
}

static bool play_rows(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_U8, .shape = RUBATO_SHAPE_RAGGED, .parts = 4
    };
    const char *const tables[] = { "rows", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "rows", exchange_rows, NULL, tables, error);
}

START_TEST(long_rows_and_many_rows_cross_whole)
{
    ClusterRun *run = new_run((size_t)_i);

    cluster_start(run, play_rows, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- errors cross too ---- */

static bool add_wrong(RubatoWorker *worker, void *user_data, GError **error)
{
    const uint32_t rank = rubato_worker_rank(worker);
    RubatoKey keys[20];
    uint32_t lengths[20];
    uint8_t deltas[20];
    GError *found = NULL;
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "rows", RUBATO_U8, error);

    (void)user_data;
    if (table == NULL)
        return false;
    for (uint32_t i = 0; i < 20; i++) { /* rows of all parts that nobody has written */
        keys[i] = rubato_mix64(i + 1000 * rank);
        lengths[i] = i == 19 ? 1 : 0;
        deltas[i] = 1;
    }
    EXPECT(!rubato_ragged_table_add(table, keys, 20, lengths, deltas, &found), "no agreement");
    return cluster_expect_error(&found, RUBATO_ERROR_INVALID, "brings 1 values for key", error);
}

static bool play_wrong(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_U8, .shape = RUBATO_SHAPE_RAGGED, .parts = 4
    };
    const char *const tables[] = { "rows", NULL };

    (void)data;
    return rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "wrong", add_wrong, NULL, tables, error);
}

START_TEST(an_add_of_other_lengths_is_told_to_its_worker)
{
    ClusterRun *run = new_run((size_t)_i);

    cluster_start(run, play_wrong, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* Under "bsp" nobody waits for it when it fails: the task does, and the table can be used. */
static bool add_wrong_later(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoKey key = 7;
    const uint32_t length = 1;
    const uint8_t delta = 1;
    g_autoptr(RubatoRaggedTable) table =
        rubato_worker_open_ragged_table(worker, "rows", RUBATO_U8, error);

    (void)user_data;
    TRY(table != NULL && rubato_ragged_table_add(table, &key, 1, &length, &delta, error));
    for (int i = 0; i < 1000; i++)
        TRY(rubato_ragged_table_clock(table, error) && rubato_worker_barrier(worker, error));
    return true;
}

static bool play_wrong_later(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = { .name = "rows",
                                   .dtype = RUBATO_U8,
                                   .shape = RUBATO_SHAPE_RAGGED,
                                   .model = "bsp",
                                   .parts = 4,
                                   .replicas = *(const uint32_t *)data };
    const char *const tables[] = { "rows", NULL };
    const RubatoKey key = 8;
    const uint32_t length = 3;
    uint32_t found_length;
    g_autofree void *values = NULL;
    GError *found = NULL;

    TRY(rubato_engine_create_table(engine, &spec, error));
    EXPECT(!cluster_run_task(engine, "wrong", add_wrong_later, NULL, tables, &found), "it ran");
    TRY(cluster_expect_error(&found, RUBATO_ERROR_HANDLER, "brings 1 values for key 7", error) &&
        rubato_engine_assign_ragged(engine, "rows", &key, 1, &length, "abc", error) &&
        rubato_engine_get_ragged(engine, "rows", &key, 1, &found_length, &values, error));
    EXPECT(found_length == 3, "%u values", found_length);
    return rubato_engine_barrier(engine, error);
}

START_TEST(an_add_of_other_lengths_fails_the_task_where_nobody_waits_for_it)
{
    const uint32_t n_replicas = (uint32_t)_i;
    ClusterRun *run = new_run(2);

    cluster_start(run, play_wrong_later, &n_replicas);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

/* ---- engine calls of several threads ---- */

/* Each thread's rows are long, or short: a short one would overtake the pieces of a long one. */
enum { N_THREADS = 2, N_EACH = 60, LONG_ROW = 6000 };

static uint32_t length_of_thread(uint32_t number)
{
    return number % 2 == 0 ? LONG_ROW : 1;
}

typedef struct {
    RubatoEngine *engine;
    uint32_t number;
    GError *error;
} Assigner;

static void *assign_rows(void *data)
{
    Assigner *const self = data;
    const uint32_t length = length_of_thread(self->number);
    g_autofree uint8_t *values = g_malloc0(length);
    bool ok = true;

    for (uint64_t i = 0; i < N_EACH && ok; i++) {
        const RubatoKey key = rubato_mix64(self->number * N_EACH + i);

        ok = rubato_engine_assign_ragged(self->engine, "rows", &key, 1, &length, values,
                                         &self->error);
    }
    return NULL;
}

/* They come to a part in the order of their numbers: it takes an earlier one for one that it has
 * had. */
static bool play_threads(RubatoEngine *engine, const void *data, GError **error)
{
    const uint32_t first = rubato_engine_node(engine) == CLUSTER_IDS[0] ? 0 : N_THREADS;
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_U8, .shape = RUBATO_SHAPE_RAGGED, .parts = 2, .replicas = 1
    };
    Assigner assigners[N_THREADS];
    pthread_t threads[N_THREADS];
    RubatoKey keys[2 * N_THREADS * N_EACH];
    uint32_t lengths[2 * N_THREADS * N_EACH];
    g_autofree void *values = NULL;

    (void)data;
    TRY(rubato_engine_create_table(engine, &spec, error));
    for (uint32_t i = 0; i < N_THREADS; i++) {
        assigners[i] = (Assigner){ .engine = engine, .number = first + i };
        EXPECT(pthread_create(&threads[i], NULL, assign_rows, &assigners[i]) == 0, "thread %u", i);
    }
    for (uint32_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < N_THREADS; i++)
        if (assigners[i].error != NULL) {
            g_propagate_error(error, assigners[i].error);
            return false;
        }
    TRY(rubato_engine_barrier(engine, error));
    for (uint32_t i = 0; i < G_N_ELEMENTS(keys); i++)
        keys[i] = rubato_mix64(i);
    TRY(rubato_engine_get_ragged(engine, "rows", keys, G_N_ELEMENTS(keys), lengths, &values,
                                 error));
    for (uint32_t i = 0; i < G_N_ELEMENTS(keys); i++)
        EXPECT(lengths[i] == length_of_thread(i / N_EACH), "row %u has %u values", i, lengths[i]);
    return rubato_engine_barrier(engine, error);
}

START_TEST(threads_of_a_node_assign_rows_of_a_table_with_replicas)
{
    ClusterRun *run = new_run(2);

    cluster_start(run, play_threads, NULL);
    cluster_expect_success(run);
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_ragged");
    TCase *cases = cluster_add_case(suite, "ragged rows");

    tcase_add_loop_test(cases, lists_hold_what_was_appended_once_while_parts_move, 0, N_LISTS);
    tcase_add_loop_test(cases, long_rows_and_many_rows_cross_whole, 0, 2);
    tcase_add_loop_test(cases, an_add_of_other_lengths_is_told_to_its_worker, 1, 2);
    tcase_add_loop_test(cases, an_add_of_other_lengths_fails_the_task_where_nobody_waits_for_it, 0,
                        2);
    tcase_add_test(cases, threads_of_a_node_assign_rows_of_a_table_with_replicas);
    return run_suite(suite);
}
