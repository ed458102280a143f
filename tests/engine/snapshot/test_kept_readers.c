/* Readers that snapshots keep: a snapshot has a row as done exactly if it has what came of it. So
 * each row of each epoch is trained on once, by whoever goes on, from whichever snapshot. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/store/snapshot_folder.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/engine/kept_training.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_WORKERS = 4, N_BATCHES = KEPT_N_BATCHES };

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-kept-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

typedef KeptTraining Job;

static RubatoEngine *learner(uint32_t servers, const char *model)
{
    RubatoEngine *const engine = engine_with_servers(servers);

    MUST(kept_training_create(engine, model, 0, &error));
    return engine;
}

static void run_training(RubatoEngine *engine, uint32_t n_workers, Job *job)
{
    job->directory = directory;
    MUST(kept_training_run(engine, n_workers, job, &error));
}

static void check_rows_seen(RubatoEngine *engine)
{
    MUST(kept_training_check(engine, &error));
}

static void restore(RubatoEngine *engine, uint64_t number)
{
    MUST(rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = directory, .number = number }, NULL, &error));
}

/* The numbers of all there are. (transfer full) */
static uint64_t *list(size_t *n)
{
    uint64_t *numbers;

    MUST(rubato_snapshot_list(directory, &numbers, n, &error));
    ck_assert_uint_gt(*n, 0);
    return numbers;
}

static const char *const models[] = { "asp", "ssp", "bsp" };

/* ---- going on ---- */

/* With another number of workers and servers. */
START_TEST(each_row_is_trained_on_once_from_whichever_snapshot)
{
    g_autoptr(RubatoEngine) engine = learner(2, models[_i]);
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    run_training(engine, N_WORKERS, &(Job){ .snapshot_every = N_BATCHES / 6 });
    check_rows_seen(engine);
    numbers = list(&n);
    for (size_t i = 0; i < n; i++) {
        g_autoptr(RubatoEngine) next = learner(3, models[_i]);

        restore(next, numbers[i]);
        run_training(next, 1 + (uint32_t)i % 3, &(Job){ .snapshot_every = 0 });
        check_rows_seen(next);
    }
}
END_TEST

static void die_while_training(const char *model, uint32_t n_workers)
{
    const pid_t child = fork(); /* there is no thread yet */
    int status;

    if (child == 0) {
        run_training(learner(2, model), n_workers,
                     &(Job){ .snapshot_every = 20, .kill_at = N_BATCHES / 2 });
        _exit(1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

START_TEST(run_that_is_killed_goes_on_with_the_rows_that_are_left)
{
    g_autoptr(RubatoEngine) engine = NULL;
    Job job = { .snapshot_every = 0 };

    die_while_training(models[_i], N_WORKERS);
    engine = learner(3, models[_i]);
    restore(engine, 0);
    run_training(engine, 2, &job);
    ck_assert_uint_lt(job.n_batches, N_BATCHES); /* it did not begin anew */
    check_rows_seen(engine);
}
END_TEST

/* A sum that depends on the order of all rows, in floats. */
START_TEST(run_that_is_killed_ends_with_the_same_bits_in_the_same_order)
{
    g_autoptr(RubatoEngine) engine = NULL, whole = NULL;
    float expected, resumed;

    die_while_training("bsp", 1);
    whole = learner(2, "bsp");
    run_training(whole, 1, &(Job){ .snapshot_every = 0 });
    MUST(rubato_engine_get_range(whole, "chain", 0, 1, &expected, &error));
    engine = learner(3, "bsp");
    restore(engine, 0);
    run_training(engine, 1, &(Job){ .snapshot_every = 0 });
    check_rows_seen(engine);
    MUST(rubato_engine_get_range(engine, "chain", 0, 1, &resumed, &error));
    ck_assert_mem_eq(&resumed, &expected, sizeof expected);
}
END_TEST

/* Before anybody reads on, and after compaction. */
START_TEST(a_restored_reader_is_in_the_next_snapshot)
{
    const RubatoSnapshotSpec snapshot = { .directory = directory, .full_every = 9 };
    g_autoptr(RubatoEngine) engine = learner(2, "asp"), next = NULL;
    uint64_t number;

    run_training(engine, N_WORKERS, &(Job){ .snapshot_every = N_BATCHES / 2 });
    next = learner(2, "asp");
    restore(next, 2);
    MUST(rubato_engine_snapshot(next, &snapshot, NULL, &error));
    MUST(rubato_engine_snapshot(next, &snapshot, NULL, &error));
    MUST(rubato_snapshot_compact(directory, 1, &number, &error));
    g_clear_pointer(&next, rubato_engine_free);
    next = learner(2, "asp");
    restore(next, number);
    run_training(next, 2, &(Job){ .snapshot_every = 0 });
    check_rows_seen(next);
}
END_TEST

/* A reader that has ended is in no snapshot: the next one with its name begins anew. */
START_TEST(a_reader_that_has_ended_is_not_kept)
{
    g_autoptr(RubatoEngine) engine = learner(1, "asp"), next = learner(1, "asp");
    Job job = { .snapshot_every = 0 };

    run_training(engine, 2, &job);
    MUST(rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = directory }, NULL,
                                &error));
    restore(next, 0);
    job.n_batches = 0;
    run_training(next, 2, &job);
    ck_assert_uint_ge(job.n_batches, N_BATCHES);
}
END_TEST

/* ---- a block that one worker leaves to another ---- */

typedef struct {
    RubatoDataset *dataset;
    int block; /* the one that worker 0 leaves */
} Handover;

static bool get_rows(RubatoReader *reader, GArray *rows, RubatoBatch **batch, GError **error)
{
    if (!rubato_reader_next(reader, batch, error))
        return false;
    for (size_t i = 0; i < (*batch)->n_rows; i++)
        g_array_append_val(rows, ((RubatoKey){ (RubatoKey)(*batch)->label[i] }));
    return true;
}

static bool finish_rows(RubatoWorker *worker, RubatoReader *reader, GArray *rows, GError **error)
{
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    const int64_t one = 1;

    TRY(seen != NULL && rubato_worker_begin_step(worker, error));
    for (guint i = 0; i < rows->len; i++)
        TRY(rubato_kv_table_add(seen, &g_array_index(rows, RubatoKey, i), 1, &one, error));
    TRY(rubato_worker_finish_rows(worker, reader, rows->len, error));
    g_array_set_size(rows, 0);
    return rubato_worker_end_step(worker, error);
}

static bool has_row_of(const GArray *rows, int block)
{
    for (guint i = 0; i < rows->len; i++)
        if ((int)g_array_index(rows, RubatoKey, i) / 10 == block)
            return true;
    return false;
}

/* Worker 0 does the first rows of a block, and leaves the others to worker 1, which has got one of
 * them, and has not done any row, when it asks for a snapshot. */
static bool hand_over(RubatoWorker *worker, void *user_data, GError **error)
{
    Handover *const it = user_data;
    const RubatoSnapshotSpec snapshot = { .directory = directory };
    const RubatoReaderOptions options = { .epochs = KEPT_N_EPOCHS,
                                          .batch_rows = KEPT_N_BATCH,
                                          .ahead = 1,
                                          .shuffle = true,
                                          .seed = 5,
                                          .split = RUBATO_SPLIT_DYNAMIC,
                                          .kept_as = "numbered" };
    g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, it->dataset, &options, error);

    TRY(reader != NULL && rubato_worker_barrier(worker, error));
    if (rubato_worker_rank(worker) == 0) {
        TRY(get_rows(reader, rows, &batch, error));
        it->block = (int)batch->label[0] / 10;
        TRY(finish_rows(worker, reader, rows, error));
        g_clear_pointer(&reader, rubato_reader_free);
        return rubato_worker_barrier(worker, error) && rubato_worker_barrier(worker, error);
    }
    TRY(rubato_worker_barrier(worker, error));
    while (!has_row_of(rows, it->block))
        TRY(get_rows(reader, rows, &batch, error));
    TRY(rubato_worker_snapshot(worker, &snapshot, NULL, error));
    do
        TRY(finish_rows(worker, reader, rows, error));
    while (get_rows(reader, rows, &batch, error));
    return !rubato_reader_failed(reader) && rubato_worker_barrier(worker, error);
}

START_TEST(rows_of_a_block_that_another_worker_goes_on_with_are_done_once)
{
    static const char *const tables[] = { "seen", "chain", NULL };
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    g_autoptr(RubatoEngine) engine = learner(1, "asp"), next = learner(2, "asp");
    Handover handover = { .dataset = dataset };

    run_task_ok(engine, &(RubatoTask){ .name = "hand over",
                                       .run = hand_over,
                                       .user_data = &handover,
                                       .tables = tables,
                                       .workers_per_node = 2 });
    check_rows_seen(engine);
    restore(next, 0);
    run_training(next, 2, &(Job){ .snapshot_every = 0 });
    check_rows_seen(next);
}
END_TEST

/* The tables that it changed may be missing. */
START_TEST(a_reader_is_restored_with_all_tables_alone)
{
    static const char *const one[] = { "seen", NULL }, *const both[] = { "seen", "chain", NULL };
    g_autoptr(RubatoEngine) engine = learner(1, "asp"), next = learner(1, "asp");
    Job job = { .snapshot_every = 0 };

    run_training(engine, 1, &(Job){ .snapshot_every = N_BATCHES / 2 });
    MUST(rubato_engine_restore(next, &(RubatoRestoreSpec){ .directory = directory, .tables = one },
                               NULL, &error));
    run_training(next, 1, &job);
    ck_assert_uint_ge(job.n_batches, N_BATCHES); /* it began anew */
    g_autoptr(RubatoEngine) named = learner(1, "asp");
    MUST(rubato_engine_restore(
        named, &(RubatoRestoreSpec){ .directory = directory, .tables = both }, NULL, &error));
    run_training(named, 1, &(Job){ .snapshot_every = 0 });
    check_rows_seen(named);
}
END_TEST

/* ---- a snapshot of a table that applies Adds at once, where others do by their clock ---- */

static bool read_ahead(RubatoWorker *worker, RubatoReader *reader, GError **error)
{
    static const char *const other[] = { "other", NULL };
    const RubatoSnapshotSpec of_other = { .directory = directory, .tables = other };
    const RubatoSnapshotSpec of_all = { .directory = directory };
    g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    g_autoptr(RubatoBatch) batch = NULL;
    const int64_t one = 1;

    TRY(seen != NULL && get_rows(reader, rows, &batch, error) &&
        rubato_worker_begin_step(worker, error));
    for (guint i = 0; i < rows->len; i++)
        TRY(rubato_kv_table_add(seen, &g_array_index(rows, RubatoKey, i), 1, &one, error));
    return rubato_kv_table_clock(seen, error) &&
           rubato_worker_finish_rows(worker, reader, rows->len, error) &&
           rubato_worker_end_step(worker, error) &&
           rubato_worker_snapshot(worker, &of_other, NULL, error) &&
           rubato_worker_snapshot(worker, &of_all, NULL, error);
}

/* Worker 0 is a clock ahead in both snapshots. */
static bool cut_other_first(RubatoWorker *worker, void *dataset, GError **error)
{
    g_autoptr(RubatoReader) reader = kept_training_open_reader(worker, dataset, error);

    TRY(reader != NULL && (rubato_worker_rank(worker) != 0 || read_ahead(worker, reader, error)));
    return rubato_worker_barrier(worker, error);
}

START_TEST(rows_are_left_to_be_read_behind_a_snapshot_of_another_table)
{
    static const char *const tables[] = { "seen", "other", NULL };
    const RubatoTableSpec other = { .name = "other", .n_keys = 1, .model = "asp" };
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    g_autoptr(RubatoEngine) engine = learner(1, "bsp"), next = learner(2, "bsp");

    MUST(rubato_engine_create_table(engine, &other, &error));
    MUST(rubato_engine_create_table(next, &other, &error));
    run_task_ok(engine, &(RubatoTask){ .name = "read ahead",
                                       .run = cut_other_first,
                                       .user_data = dataset,
                                       .tables = tables,
                                       .workers_per_node = 2 });
    restore(next, 2);
    run_training(next, 2, &(Job){ .snapshot_every = 0 });
    check_rows_seen(next);
}
END_TEST

/* ---- what does not fit ---- */

typedef struct {
    const char *folder;
    const char *const *paths; /* of files */
    uint32_t epochs;
    bool snapshots;
} FileJob;

static bool read_files(RubatoWorker *worker, void *user_data, GError **error)
{
    const FileJob *const job = user_data;
    const RubatoSnapshotSpec snapshot = { .directory = directory };
    const RubatoReaderOptions options = { .epochs = job->epochs,
                                          .split = RUBATO_SPLIT_DYNAMIC,
                                          .kept_as = "files" };
    g_autoptr(RubatoDataset) dataset =
        rubato_dataset_open(&(RubatoDataSpec){ .paths = job->paths }, error);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader =
        dataset != NULL ? rubato_worker_open_reader(worker, dataset, &options, error) : NULL;

    TRY(reader != NULL && rubato_reader_next(reader, &batch, error));
    TRY(!job->snapshots || rubato_worker_snapshot(worker, &snapshot, NULL, error));
    while (rubato_reader_next(reader, &batch, error))
        continue;
    return !rubato_reader_failed(reader);
}

static const char *const files_tables[] = { "seen", NULL };

static RubatoTask file_task(FileJob *job)
{
    return (RubatoTask){ .name = "files",
                         .run = read_files,
                         .user_data = job,
                         .tables = files_tables,
                         .workers_per_node = 1 };
}

START_TEST(other_data_than_the_snapshot_s_are_refused)
{
    g_autofree char *folder = g_dir_make_tmp("rubato-kept-files-XXXXXX", NULL);
    g_autofree char *a = rows_write(folder, "a.ffm", ROWS_PLAIN, 0, 100);
    g_autofree char *b = rows_write(folder, "b.ffm", ROWS_PLAIN, 100, 100);
    g_autofree char *c = rows_write(folder, "c.ffm", ROWS_PLAIN, 200, 100);
    const char *const two[] = { a, b, NULL }, *const one[] = { a, NULL };
    const char *const three[] = { a, b, c, NULL };
    g_autoptr(RubatoEngine) engine = learner(1, "asp");
    FileJob job = { .paths = two, .epochs = 3, .snapshots = true };
    RubatoTask task = file_task(&job);

    run_task_ok(engine, &task);
    job.snapshots = false;

    restore(engine, 0);
    job.epochs = 2;
    run_fails(engine, &task, RUBATO_ERROR_MISMATCH, "2 epochs",
              "in the snapshot that the run goes on from 3 epochs", NULL);
    job.epochs = 3;
    job.paths = one;
    run_fails(engine, &task, RUBATO_ERROR_MISMATCH, "no node reads", "b.ffm", NULL);
    job.paths = three;
    run_fails(engine, &task, RUBATO_ERROR_MISMATCH, "c.ffm, which the snapshot does not have",
              NULL);
    job.paths = two;
    g_free(rows_write(folder, "b.ffm", ROWS_PLAIN, 100, 101));
    run_fails(engine, &task, RUBATO_ERROR_MISMATCH, "b.ffm of ", "where the snapshot has", NULL);
    g_free(rows_write(folder, "b.ffm", ROWS_PLAIN, 100, 100));
    run_task_ok(engine, &task);
    remove_tree(folder);
}
END_TEST

/* Changes the text of the reader in a snapshot's manifest, as if another program had written it. */
static void forge(uint64_t number, const char *text)
{
    g_autofree char *folder = snapshot_folder_whole(directory, number);
    g_autofree char *path = g_build_filename(folder, MANIFEST_NAME, NULL);
    g_autoptr(Manifest) manifest = NULL;
    g_autofree char *forged = NULL;

    MUST((manifest = snapshot_folder_read(directory, number, &error)) != NULL);
    ck_assert_uint_eq(manifest->n_readers, 1);
    g_free(manifest->readers[0].text);
    manifest->readers[0].text = g_strdup(text);
    forged = manifest_text(manifest);
    MUST(g_file_set_contents(path, forged, -1, &error));
}

START_TEST(a_snapshot_whose_reader_makes_no_sense_is_passed_over)
{
    static const char *const texts[] = {
        "",
        "reads 2 epochs",
        "reads x\ndispatcher 0 1 5 1 0\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 5 0 a\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 3 0 0 a\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 3 2 a\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 0 0 a\ninput 10 4 1 0 0 0 a\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 0 0 a\nd0 1 0 0\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 0 0 a\nd0 0 4 0\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 0 0 a\nd2 0 0 0\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 0 0 a\nd0 0 0 7 7\n",
        "reads x\ndispatcher 2 1 5 1 0\ninput 10 4 1 0 0 0 a",
        /* more memory than it may ask for */
        ("reads x\ndispatcher 2 1 5 1 0\ninput 10 9 1 0 0 16777216 a\ninput 10 9 1 0 0 16777216 b\n"
         "input 10 9 1 0 0 16777216 c\ninput 10 9 1 0 0 16777216 d\ninput 10 9 1 0 0 9 e\n"),
    };
    g_autoptr(RubatoEngine) engine = learner(1, "asp");
    g_autoptr(GError) fault = NULL;
    uint64_t number;

    run_training(engine, 1, &(Job){ .snapshot_every = N_BATCHES - 10 });
    forge(2, texts[_i]);
    ck_assert(!rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = directory, .number = 2 }, NULL, &fault));
    check_error(&fault, RUBATO_ERROR_FORMAT, "the reader \"numbered\" makes no sense", NULL);
    MUST(rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, &number,
                               &error));
    ck_assert_uint_eq(number, 1);
}
END_TEST

/* ---- misuse ---- */

/* How a step with rows is ended wrongly under "bsp": one of these, by _i. */
enum { ADDS_BEHIND_ITS_CLOCK, BEGINS_AT_UNEQUAL_CLOCKS, RETURNS_AFTER_TWO_CLOCKS, N_WRONG_ENDS };

typedef struct {
    RubatoDataset *dataset;
    int wrong_end;
} WrongEnd;

static bool end_wrongly(RubatoWorker *worker, void *user_data, GError **error)
{
    const WrongEnd *const it = user_data;
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_DYNAMIC, .kept_as = "kept" };
    const RubatoKey key = 0;
    const int64_t one = 1;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, it->dataset, &options, error);
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) chain =
        rubato_worker_open_kv_table(worker, "chain", RUBATO_F32, error);

    TRY(reader != NULL && seen != NULL && chain != NULL);
    TRY(rubato_reader_next(reader, &batch, error));
    if (it->wrong_end == BEGINS_AT_UNEQUAL_CLOCKS)
        TRY(rubato_kv_table_clock(chain, error));
    TRY(rubato_worker_begin_step(worker, error));
    TRY(rubato_worker_finish_rows(worker, reader, batch->n_rows, error));
    TRY(rubato_kv_table_clock(seen, error));
    if (it->wrong_end == BEGINS_AT_UNEQUAL_CLOCKS)
        return rubato_worker_end_step(worker, error);
    TRY(rubato_kv_table_clock(chain, error));
    if (it->wrong_end == RETURNS_AFTER_TWO_CLOCKS)
        return rubato_kv_table_clock(seen, error) && rubato_kv_table_clock(chain, error);
    return rubato_kv_table_add(seen, &key, 1, &one, error) && rubato_worker_end_step(worker, error);
}

START_TEST(a_step_whose_rows_no_clock_fits_fails)
{
    static const char *const tables[] = { "seen", "chain", NULL };
    g_autoptr(RubatoEngine) engine = learner(1, "bsp");
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    WrongEnd it = { dataset, _i };

    run_fails(engine,
              &(RubatoTask){ .name = "wrong",
                             .run = end_wrongly,
                             .user_data = &it,
                             .tables = tables,
                             .workers_per_node = 1 },
              RUBATO_ERROR_TASK_FAILED, "has one clock on each table", NULL);
}
END_TEST

typedef struct {
    RubatoDataset *dataset;
    bool in_step; /* whether it adds at once in the step, or in front of it */
} BothKinds;

static bool add_to_both(RubatoWorker *worker, void *user_data, GError **error)
{
    const BothKinds *const it = user_data;
    const RubatoReaderOptions options = { .split = RUBATO_SPLIT_DYNAMIC, .kept_as = "kept" };
    const RubatoKey key = 0;
    const int64_t one = 1;
    const float value = 1;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, it->dataset, &options, error);
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) at_once =
        rubato_worker_open_kv_table(worker, "at once", RUBATO_F32, error);

    TRY(reader != NULL && seen != NULL && at_once != NULL);
    TRY(rubato_reader_next(reader, &batch, error));
    TRY(it->in_step || rubato_kv_table_add(at_once, &key, 1, &value, error));
    TRY(rubato_worker_begin_step(worker, error));
    TRY(!it->in_step || rubato_kv_table_add(at_once, &key, 1, &value, error));
    TRY(rubato_kv_table_add(seen, &key, 1, &one, error) && rubato_kv_table_clock(seen, error));
    TRY(rubato_worker_finish_rows(worker, reader, batch->n_rows, error));
    return rubato_worker_end_step(worker, error);
}

START_TEST(a_step_with_rows_changes_no_table_that_applies_adds_at_once_beside_others)
{
    static const char *const tables[] = { "seen", "at once", NULL };
    g_autoptr(RubatoEngine) engine = learner(1, "bsp");
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    BothKinds it = { dataset, /* in_step= */ false };
    const RubatoTask task = { .name = "both",
                              .run = add_to_both,
                              .user_data = &it,
                              .tables = tables,
                              .workers_per_node = 1 };

    create_table(engine, &(RubatoTableSpec){ .name = "at once", .n_keys = 1 });
    run_task_ok(engine, &task);
    it.in_step = true;
    run_fails(engine, &task, RUBATO_ERROR_TASK_FAILED, "a table that applies Adds at once", NULL);
}
END_TEST

static bool refuses(RubatoWorker *worker, RubatoReader *reader, uint64_t n_rows, const char *why,
                    GError **error)
{
    GError *fault = NULL;

    REQUIRE(!rubato_worker_finish_rows(worker, reader, n_rows, &fault), "rows became done");
    REQUIRE(is_error(&fault, RUBATO_ERROR_INVALID, why), "%s", why);
    return true;
}

static bool misuse(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoReaderOptions kept = { .split = RUBATO_SPLIT_DYNAMIC,
                                       .kept_as = "kept",
                                       .batch_rows = 5 },
                              plain = { .split = RUBATO_SPLIT_DYNAMIC },
                              fixed = { .kept_as = "fixed" },
                              unnamed = { .split = RUBATO_SPLIT_DYNAMIC, .kept_as = "a\nb" };
    GError *fault = NULL;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader = rubato_worker_open_reader(worker, user_data, &kept, error);
    g_autoptr(RubatoReader) other = rubato_worker_open_reader(worker, user_data, &plain, error);
    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);

    TRY(reader != NULL && other != NULL && seen != NULL);
    REQUIRE(rubato_worker_open_reader(worker, user_data, &fixed, &fault) == NULL, "it was opened");
    REQUIRE(is_error(&fault, RUBATO_ERROR_INVALID, "needs RUBATO_SPLIT_DYNAMIC"));
    REQUIRE(rubato_worker_open_reader(worker, user_data, &unnamed, &fault) == NULL,
            "it was opened");
    REQUIRE(is_error(&fault, RUBATO_ERROR_INVALID, "cannot be kept as"));
    TRY(rubato_reader_next(reader, &batch, error));
    TRY(refuses(worker, reader, 5, "it is not in a step", error));
    TRY(rubato_worker_begin_step(worker, error));
    TRY(refuses(worker, other, 0, "was opened without kept_as", error));
    TRY(refuses(worker, reader, 6, "its worker has got 5 that are not done yet", error));
    TRY(rubato_worker_finish_rows(worker, reader, 2, error));
    TRY(refuses(worker, reader, 4, "its worker has got 3 that are not done yet", error));
    TRY(rubato_kv_table_clock(seen, error) && rubato_kv_table_clock(seen, error));
    REQUIRE(!rubato_worker_end_step(worker, &fault), "a step with two clocks ended well");
    REQUIRE(is_error(&fault, RUBATO_ERROR_INVALID, "has one clock on each table"));
    return true;
}

START_TEST(calls_that_make_no_sense_are_refused)
{
    g_autoptr(RubatoEngine) engine = learner(1, "bsp");
    g_autoptr(RubatoDataset) dataset = kept_training_rows();
    const RubatoReaderOptions kept = { .split = RUBATO_SPLIT_DYNAMIC, .kept_as = "kept" };
    g_autoptr(GError) error = NULL;

    run_ok(engine, 1, misuse, dataset, "seen");
    ck_assert_ptr_null(rubato_dataset_open_reader(dataset, &kept, &error));
    check_error(&error, RUBATO_ERROR_INVALID, "outside tasks", NULL);
}
END_TEST

static bool open_twice(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoReaderOptions kept = { .split = RUBATO_SPLIT_DYNAMIC, .kept_as = "kept" };
    g_autoptr(RubatoReader) one = rubato_worker_open_reader(worker, user_data, &kept, error);
    g_autoptr(RubatoReader) two = rubato_worker_open_reader(worker, user_data, &kept, error);
    g_autoptr(RubatoBatch) batch = NULL;

    TRY(one != NULL && two != NULL);
    while (rubato_reader_next(two, &batch, error))
        continue;
    return !rubato_reader_failed(two);
}

START_TEST(two_readers_of_one_name_are_refused)
{
    g_autoptr(RubatoEngine) engine = learner(1, "asp");
    g_autoptr(RubatoDataset) dataset = kept_training_rows();

    run_fails(engine,
              &(RubatoTask){
                  .name = "twice", .run = open_twice, .user_data = dataset, .workers_per_node = 1 },
              RUBATO_ERROR_MISMATCH, "two readers are kept as \"kept\"", NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("readers in snapshots");
    TCase *cases = tcase_create("kept");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, each_row_is_trained_on_once_from_whichever_snapshot, 0,
                        G_N_ELEMENTS(models));
    tcase_add_loop_test(cases, run_that_is_killed_goes_on_with_the_rows_that_are_left, 0,
                        G_N_ELEMENTS(models));
    tcase_add_test(cases, run_that_is_killed_ends_with_the_same_bits_in_the_same_order);
    tcase_add_test(cases, a_restored_reader_is_in_the_next_snapshot);
    tcase_add_test(cases, a_reader_that_has_ended_is_not_kept);
    tcase_add_test(cases, rows_of_a_block_that_another_worker_goes_on_with_are_done_once);
    tcase_add_test(cases, a_reader_is_restored_with_all_tables_alone);
    tcase_add_test(cases, rows_are_left_to_be_read_behind_a_snapshot_of_another_table);
    tcase_add_test(cases, other_data_than_the_snapshot_s_are_refused);
    tcase_add_loop_test(cases, a_snapshot_whose_reader_makes_no_sense_is_passed_over, 0, 13);
    tcase_add_test(cases, calls_that_make_no_sense_are_refused);
    tcase_add_test(cases, two_readers_of_one_name_are_refused);
    tcase_add_loop_test(cases, a_step_whose_rows_no_clock_fits_fails, 0, N_WRONG_ENDS);
    tcase_add_test(cases,
                   a_step_with_rows_changes_no_table_that_applies_adds_at_once_beside_others);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
