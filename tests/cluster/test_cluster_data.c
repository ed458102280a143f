/* Training data over several processes: one worker gets each row in each epoch, whatever the split,
 * the packing and the placement of files. Also nodes that lack files, and nodes that disagree.
 *
 * Each worker adds 1 to a table at the row's number for each row that it reads. */
#include <rubato/mix.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cluster/cluster_run.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/runner.h"

enum { N_ROWS = 6000, N_FILES = 3, EPOCHS = 2 };

static const struct {
    const char *name;
    ClusterShape shape;
} shapes[] = {
    { "two workers on each of two", { .n_nodes = 2, .nodes = { { 1, 2 }, { 1, 2 } } } },
    { "one only serves, the scheduler's only works",
      { .n_nodes = 3, .nodes = { { 2, 0 }, { 1, 1 }, { 0, 2 } }, .scheduler = 2 } },
};

typedef struct {
    RubatoSplit split;
    RowsPacking packing;
    bool cache;
    bool spread; /* each node holds file 0 and one of the others */
    bool leave;  /* worker 0 leaves after its first batch */
    bool differ; /* nodes read different numbers of epochs */
    bool loads;  /* rows in memory; with `spread`, some on each node */
} Case;

static const Case cases[] = {
    { .split = RUBATO_SPLIT_FIXED, .packing = ROWS_PLAIN },
    { .split = RUBATO_SPLIT_FIXED, .packing = ROWS_GZIP },
    { .split = RUBATO_SPLIT_FIXED, .packing = ROWS_ZSTD, .cache = true },
    { .split = RUBATO_SPLIT_DYNAMIC, .packing = ROWS_PLAIN, .cache = true },
    { .split = RUBATO_SPLIT_DYNAMIC, .packing = ROWS_GZIP },
    { .split = RUBATO_SPLIT_DYNAMIC, .packing = ROWS_PLAIN, .spread = true },
    { .split = RUBATO_SPLIT_DYNAMIC, .packing = ROWS_ZSTD, .leave = true },
    { .split = RUBATO_SPLIT_BY_KEY, .packing = ROWS_PLAIN },
    { .split = RUBATO_SPLIT_BY_KEY, .packing = ROWS_GZIP },
    { .split = RUBATO_SPLIT_FIXED, .packing = ROWS_PLAIN, .loads = true },
    { .split = RUBATO_SPLIT_DYNAMIC, .packing = ROWS_PLAIN, .loads = true, .spread = true },
};

static char *dir; /* of the case, and of its nodes */

typedef struct {
    const Case *scene;
    RubatoDataset *dataset;
} Job;

static bool count_batch(RubatoKVTable *seen, const RubatoBatch *batch, GError **error)
{
    static _Atomic uint32_t counts[N_ROWS];
    g_autofree RubatoKey *keys = g_new(RubatoKey, batch->n_rows);
    g_autofree float *ones = g_new(float, batch->n_rows);
    const char *fault = rows_count(batch, counts, N_ROWS);

    EXPECT(fault == NULL, "%s", fault);
    for (size_t i = 0; i < batch->n_rows; i++) {
        keys[i] = (RubatoKey)batch->label[i];
        ones[i] = 1;
    }
    return rubato_kv_table_add(seen, keys, batch->n_rows, ones, error);
}

/* What is promised of nodes that ask nobody: the key at place 1 alone decides. */
static bool check_keys(RubatoWorker *worker, const RubatoBatch *batch, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker);

    for (size_t row = 0; row < batch->n_rows; row++) {
        const size_t entry = batch->row_start[row] + 1;

        EXPECT(entry >= batch->row_start[row + 1] ||
                   rubato_mix64(batch->keys[batch->index[entry]]) % n_workers ==
                       rubato_worker_rank(worker),
               "row %g is another worker's", (double)batch->label[row]);
    }
    return true;
}

static bool read_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *job = user_data;
    const bool leaves = job->scene->leave && rubato_worker_rank(worker) == 0;
    const RubatoReaderOptions options = {
        .split = job->scene->split,
        .key_place = job->scene->split == RUBATO_SPLIT_BY_KEY,
        .epochs = EPOCHS + (job->scene->differ ? rubato_worker_node(worker) : 0),
        .batch_rows = 64,
        .ahead = 1,
        .shuffle = true,
    };
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_F32, error);
    if (seen == NULL)
        return false;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &options, error);
    if (reader == NULL)
        return false;
    /* the worker that leaves does so before any other one reaches the end */
    if (job->scene->leave && !leaves && !rubato_worker_barrier(worker, error))
        return false;
    while (rubato_reader_next(reader, &batch, error)) {
        if (!count_batch(seen, batch, error) ||
            (options.split == RUBATO_SPLIT_BY_KEY && !check_keys(worker, batch, error)))
            return false;
        if (leaves)
            return true;
    }
    return !rubato_reader_failed(reader);
}

/* All rows; or of two nodes those of file 0 on one, and those of the others on the other. */
static RubatoDataset *load_dataset(RubatoEngine *engine, const Case *scene, GError **error)
{
    g_autofree char *first = g_strdup_printf("%s/rows-0.ffm", dir);
    g_autofree char *others = g_strdup_printf("%s/rows-[12].ffm", dir);
    const bool is_first = rubato_engine_node(engine) == CLUSTER_IDS[1];
    const char *const paths[] = { scene->spread && !is_first ? others : first,
                                  scene->spread ? NULL : others, NULL };
    g_autoptr(RubatoRows) rows =
        rubato_dataset_load(&(RubatoDataSpec){ .paths = paths, .format = "libffm" }, error);

    return rows == NULL ? NULL
                        : rubato_dataset_new_from_rows(
                              rows, scene->spread && is_first ? "first" : "others", error);
}

/* The files that a node has. */
static RubatoDataset *open_dataset(RubatoEngine *engine, const Case *scene, GError **error)
{
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    const uint32_t node = rubato_engine_node(engine) == CLUSTER_IDS[1] ? 1 : 2;

    for (uint32_t i = 0; i < N_FILES; i++)
        g_ptr_array_add(paths,
                        g_strdup_printf("%s/rows-%u.ffm%s", dir, i,
                                        scene->spread && i != 0 && i != node ? ".absent" : ""));
    g_ptr_array_add(paths, NULL);
    return rubato_dataset_open(
        &(RubatoDataSpec){ .paths = (const char *const *)paths->pdata,
                           .format = "libffm",
                           .skip_missing = scene->spread,
                           .cache = scene->cache ? RUBATO_DATA_CACHE_KEEP : RUBATO_DATA_CACHE_NONE,
                           .memory_bytes = scene->packing == ROWS_GZIP },
        error);
}

static bool check_table(RubatoEngine *engine, GError **error)
{
    g_autofree float *times = g_new(float, N_ROWS);

    if (!rubato_engine_get_range(engine, "seen", 0, N_ROWS, times, error))
        return false;
    for (uint32_t i = 0; i < N_ROWS; i++)
        EXPECT((int)times[i] == EPOCHS, "row %u was read %d times", i, (int)times[i]);
    /* nobody ends before all have looked */
    return rubato_engine_barrier(engine, error);
}

static bool play(RubatoEngine *engine, const void *data, GError **error)
{
    const Case *scene = data;
    const RubatoTableSpec spec = { .name = "seen", .n_keys = N_ROWS };
    const char *const tables[] = { "seen", NULL };
    g_autoptr(RubatoDataset) dataset =
        scene->loads ? load_dataset(engine, scene, error) : open_dataset(engine, scene, error);
    const Job job = { scene, dataset };

    return dataset != NULL && rubato_engine_create_table(engine, &spec, error) &&
           cluster_run_task(engine, "read", read_rows, &job, tables, error) &&
           check_table(engine, error);
}

static void begin_case(RowsPacking packing)
{
    dir = g_dir_make_tmp("rubato-cluster-data-XXXXXX", NULL);
    for (uint32_t i = 0; i < N_FILES; i++) {
        g_autofree char *name = g_strdup_printf("rows-%u.ffm", i);

        g_free(rows_write(dir, name, packing, i * (N_ROWS / N_FILES), N_ROWS / N_FILES));
    }
}

static void end_case(ClusterRun *run)
{
    cluster_run_free(run);
    remove_files(dir);
    g_free(dir);
}

START_TEST(every_row_comes_to_one_worker_in_each_epoch)
{
    const Case *scene = &cases[_i];

    begin_case(scene->packing);
    ClusterRun *run = cluster_run_new(&shapes[(size_t)_i % G_N_ELEMENTS(shapes)].shape);
    cluster_start(run, play, scene);
    cluster_expect_success(run);
    end_case(run);
}
END_TEST

START_TEST(nodes_that_read_different_data_are_told)
{
    const Case scene = { .split = _i == 0 ? RUBATO_SPLIT_FIXED : RUBATO_SPLIT_DYNAMIC,
                         .differ = true };

    begin_case(ROWS_PLAIN);
    ClusterRun *run = cluster_run_new(&shapes[0].shape);
    cluster_start(run, play, &scene);
    for (uint32_t i = 0; i < 2; i++) {
        cluster_expect_end(run, i, CLUSTER_FAILED);
        cluster_expect_text(run, i, "read: reader 0 of its workers reads ");
    }
    end_case(run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("data over several processes");
    TCase *reading = cluster_add_case(suite, "reading");

    tcase_add_loop_test(reading, every_row_comes_to_one_worker_in_each_epoch, 0,
                        (int)G_N_ELEMENTS(cases));
    tcase_add_loop_test(reading, nodes_that_read_different_data_are_told, 0, 2);
    return run_suite(suite);
}
