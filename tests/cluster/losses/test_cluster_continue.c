/* A node with workers is killed while a task runs that continues without them: the Adds of the
 * others count once, and every row of the data is read by somebody.
 *
 * docs/liveness.md: A task that continues. */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "io/history/history.h"
#include "test_paths.h"
#include "tests/support/cluster/cluster_run.h"
#include "tests/support/cluster/lossy_rounds.h"
#include "tests/support/cluster/program_run.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_NODES = 3, VICTIM = 2, N_KEYS = 300, ROUNDS = N_KEYS, MORE = 20 };

static const RubatoTableSpec specs[] = {
    { .name = "rows", .model = "asp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1, .parts = 7 },
    { .name = "rows", .model = "bsp", .dtype = RUBATO_I64, .n_keys = N_KEYS + 1, .parts = 7 },
    { .name = "rows",
      .model = "ssp",
      .staleness = 2,
      .dtype = RUBATO_I64,
      .storage = "hash",
      .parts = 7 },
};

static const ClusterShape shape = { .n_nodes = N_NODES, .nodes = { { 1, 2 }, { 1, 1 }, { 2, 2 } } };

typedef struct {
    RubatoEngine *engine;
    RubatoDataset *dataset;
} Job;

static bool continue_task(RubatoEngine *engine, RubatoTaskFunc function, Job *job, GError **error)
{
    const char *const tables[] = { "rows", NULL };

    return rubato_engine_run(engine,
                             &(RubatoTask){ .name = "work",
                                            .run = function,
                                            .user_data = job,
                                            .tables = tables,
                                            .on_loss = RUBATO_ON_LOSS_CONTINUE },
                             error);
}

/* ---- rounds ---- */

/* Adds 1 to all keys in each round. The workers of one rank see the same rows in the end; each key
 * has what the others have added, and what had come of the lost workers. */
static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const RubatoKey rounds_key = ROUNDS;
    int64_t ones[N_KEYS], rows[N_KEYS], rounds = 0;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    TRY(table != NULL);
    for (size_t i = 0; i < N_KEYS; i++)
        ones[i] = 1;
    for (int more = 0; more < MORE; more += cluster_is_lost(job->engine, VICTIM), rounds++) {
        TRY(rubato_kv_table_add_range(table, 0, N_KEYS, ones, error) &&
            rubato_kv_table_get_range(table, 0, N_KEYS, rows, error) &&
            rubato_kv_table_clock(table, error));
        if (rounds == 5)
            cluster_say("busy");
    }
    return rubato_kv_table_add(table, &rounds_key, 1, &rounds, error) &&
           rubato_worker_barrier(worker, error);
}

/* The lost workers had begun a round more than they had ended, at most as many as there are clocks
 * between the fastest and the slowest worker under any model that bounds them. */
static bool play_rounds(RubatoEngine *engine, const void *data, GError **error)
{
    Job job = { .engine = engine };
    RubatoTableSpec spec = *(const RubatoTableSpec *)data;
    int64_t rows[N_KEYS + 1];

    spec.replicas = 1;
    TRY(rubato_engine_create_table(engine, &spec, error) &&
        continue_task(engine, work, &job, error) &&
        rubato_engine_get_range(engine, spec.name, 0, N_KEYS + 1, rows, error));
    for (size_t i = 0; i < N_KEYS; i++)
        EXPECT(rows[i] >= rows[ROUNDS] + 4, /* the lost workers had been busy for some rounds */
               "key %zu: %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT " rounds", i, rows[i],
               rows[ROUNDS]);
    cluster_say("%" G_GINT64_FORMAT " rounds", rows[ROUNDS]);
    return rubato_engine_barrier(engine, error);
}

static ClusterRun *kill_victim(ClusterPlay play, const void *data)
{
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play, data);
    for (uint32_t i = 0; i < N_NODES; i++)
        cluster_wait_for(run, i, "busy");
    cluster_signal(run, VICTIM, SIGKILL);
    return run;
}

/* Nothing is held against the lost workers, whose history has no end. */
static void judge_history(const char *folder)
{
    enum { EXIT_INCOMPLETE = 3 };
    const char *argv[] = { TEST_BIN_DIR "/rubato", "history", "check", folder, NULL };
    g_autofree char *said = NULL;
    int status;

    ck_assert(g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &said,
                           NULL, &status, NULL));
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_INCOMPLETE &&
                      g_str_has_suffix(said, "\nnothing wrong in what is there\n"),
                  "it ends with %d: %s", status, said);
}

/* Otherwise what a lost node says would count if it came to its end by itself. */
static void expect_loss_in_history(const char *folder, uint32_t i)
{
    g_autofree char *path = g_strdup_printf("%s/node-%u.history", folder, CLUSTER_IDS[i]);
    g_autofree char *line = g_strdup_printf("lost %u\n", CLUSTER_IDS[VICTIM]);
    g_autofree char *bytes = NULL;
    gsize size;

    ck_assert(g_file_get_contents(path, &bytes, &size, NULL));
    ck_assert_msg(memmem(bytes, size, line, strlen(line)) != NULL, "%s does not say it", path);
}

START_TEST(a_task_continues_without_the_workers_of_a_node_that_is_killed)
{
    g_autofree char *folder = make_folder();

    g_setenv(HISTORY_VARIABLE, folder, TRUE);
    ClusterRun *const run = kill_victim(play_rounds, &specs[_i]);

    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, "the run goes on, by part map 2");
        cluster_expect_text(run, i, " rounds");
        expect_loss_in_history(folder, i);
    }
    cluster_run_free(run);
    judge_history(folder);
    remove_folder(folder);
}
END_TEST

/* ---- its own snapshots ---- */

typedef struct {
    RubatoEngine *engine;
    const char *directory;
} Asking;

/* The node that leads them has worker 0. */
static bool ask_after_loss(RubatoWorker *worker, void *user_data, GError **error)
{
    const Asking *const asking = user_data;
    const bool asks = rubato_worker_rank(worker) == 0;
    uint64_t number = 0;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);

    TRY(table != NULL);
    cluster_say("busy");
    while (!cluster_is_lost(asking->engine, VICTIM))
        TRY(rubato_kv_table_get(table, &(RubatoKey){ 0 }, 1, &(int64_t){ 0 }, error));
    if (asks) {
        TRY(rubato_snapshot_ask(asking->directory, INFINITY, &number, error));
        cluster_say("snapshot %" G_GUINT64_FORMAT, number);
    }
    return rubato_worker_barrier(worker, error);
}

static bool play_snapshots(RubatoEngine *engine, const void *data, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const RubatoTaskSnapshots snapshots = { .spec.directory = data };
    Asking asking = { engine, data };
    RubatoTableSpec spec = specs[0];

    spec.replicas = 1;
    return rubato_engine_create_table(engine, &spec, error) &&
           rubato_engine_run(engine,
                             &(RubatoTask){ .name = "work",
                                            .run = ask_after_loss,
                                            .user_data = &asking,
                                            .tables = tables,
                                            .snapshots = &snapshots,
                                            .on_loss = RUBATO_ON_LOSS_CONTINUE },
                             error) &&
           rubato_engine_barrier(engine, error);
}

START_TEST(who_asks_for_a_snapshot_after_a_loss_gets_one)
{
    g_autofree char *folder = make_folder();
    g_autoptr(GError) error = NULL;
    ClusterRun *const run = kill_victim(play_snapshots, folder);

    for (uint32_t i = 0; i < VICTIM; i++)
        cluster_expect_end(run, i, 0);
    cluster_expect_text(run, 0, "snapshot 1");
    cluster_run_free(run);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(folder, 1, &error);
    ck_assert_msg(snapshot != NULL && rubato_snapshot_verify(snapshot, &error), "%s",
                  error != NULL ? error->message : "");
    remove_folder(folder);
}
END_TEST

/* ---- data ---- */

enum { N_ROWS = 3000, READ_FIRST = 40 };

static RubatoDataset *make_rows(GError **error)
{
    size_t starts[N_ROWS + 1] = { 0 };
    float labels[N_ROWS];

    for (int i = 0; i < N_ROWS; i++)
        labels[i] = (float)i;
    return rubato_dataset_new_from_rows(
        &(RubatoRows){ .n_rows = N_ROWS, .row_start = starts, .label = labels }, "rows", error);
}

/* Adds 1 to the key of each row that it reads. Nobody reads on after some rows before the node is
 * lost, so there is something left to read. The victim's workers hold what they have read. */
static bool read_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_DYNAMIC, .batch_rows = 10 };
    const int64_t one = 1;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    g_autoptr(RubatoReader) reader =
        table == NULL ? NULL : rubato_worker_open_reader(worker, job->dataset, &options, error);
    size_t n = 0;

    TRY(reader != NULL);
    while (rubato_reader_next(reader, &batch, error)) {
        for (size_t i = 0; i < batch->n_rows; i++) {
            const RubatoKey key = (RubatoKey)batch->label[i];

            TRY(rubato_kv_table_add(table, &key, 1, &one, error));
        }
        n += batch->n_rows;
        if (n == READ_FIRST)
            cluster_say("busy");
        while (n == READ_FIRST && !cluster_is_lost(job->engine, VICTIM))
            TRY(rubato_kv_table_get(table, &(RubatoKey){ 0 }, 1, &(int64_t){ 0 }, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return !rubato_reader_failed(reader);
}

static bool play_data(RubatoEngine *engine, const void *data, GError **error)
{
    const RubatoTableSpec spec = {
        .name = "rows", .dtype = RUBATO_I64, .n_keys = N_ROWS, .parts = 7, .replicas = 1
    };
    g_autoptr(RubatoDataset) dataset = make_rows(error);
    Job job = { engine, dataset };
    g_autofree int64_t *rows = g_new(int64_t, N_ROWS);
    uint32_t n_again = 0;

    (void)data;
    TRY(dataset != NULL && rubato_engine_create_table(engine, &spec, error) &&
        continue_task(engine, read_rows, &job, error) &&
        rubato_engine_get_range(engine, "rows", 0, N_ROWS, rows, error));
    for (int i = 0; i < N_ROWS; i++) {
        EXPECT(rows[i] == 1 || rows[i] == 2, "row %d was read %" G_GINT64_FORMAT " times", i,
               rows[i]);
        n_again += rows[i] > 1;
    }
    cluster_say("%u rows twice", n_again);
    return rubato_engine_barrier(engine, error);
}

START_TEST(rows_that_a_lost_node_has_read_are_read_by_others)
{
    ClusterRun *const run = kill_victim(play_data, NULL);

    for (uint32_t i = 0; i < VICTIM; i++) {
        cluster_expect_end(run, i, 0);
        cluster_expect_text(run, i, " rows twice");
    }
    cluster_run_free(run);
}
END_TEST

/* ---- what is refused ---- */

static bool play_without_replicas(RubatoEngine *engine, const void *data, GError **error)
{
    g_autoptr(GError) refused = NULL;
    Job job = { .engine = engine };

    (void)data;
    TRY(rubato_engine_create_table(engine, &specs[0], error));
    EXPECT(!continue_task(engine, work, &job, &refused), "it runs");
    EXPECT(g_error_matches(refused, RUBATO_ERROR, RUBATO_ERROR_INVALID), "%s", refused->message);
    cluster_say("%s", refused->message);
    return rubato_engine_barrier(engine, error);
}

START_TEST(a_task_that_continues_needs_replicas_of_all_its_tables)
{
    ClusterRun *const run = cluster_run_new(&shape);

    cluster_start(run, play_without_replicas, NULL);
    cluster_expect_success(run);
    cluster_expect_text(run, 0, "its table rows has no replicas");
    cluster_run_free(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster continue");
    TCase *cases = cluster_add_case(suite, "continue");

    tcase_add_loop_test(cases, a_task_continues_without_the_workers_of_a_node_that_is_killed, 0,
                        G_N_ELEMENTS(specs));
    tcase_add_test(cases, who_asks_for_a_snapshot_after_a_loss_gets_one);
    tcase_add_test(cases, rows_that_a_lost_node_has_read_are_read_by_others);
    tcase_add_test(cases, a_task_that_continues_needs_replicas_of_all_its_tables);
    return run_suite(suite);
}
