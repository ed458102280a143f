/* What an engine of one process tells of its run, while workers stand still in the middle of their
 * data. */
#include <rubato/snapshot.h>
#include <rubato/task.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/health/engine_status.h"
#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum { N_ROWS = 5000, N_WORKERS = 2, BATCH = 50, EPOCHS = 2 };

typedef struct {
    RubatoDataset *dataset;
    RubatoReaderOptions options;
    Event held, go_on;
} Job;

static char *dir; /* of the case */

static Job *begin_job(RubatoSplit split)
{
    Job *job = g_new0(Job, 1);
    g_autoptr(GError) error = NULL;

    dir = g_dir_make_tmp("rubato-status-XXXXXX", NULL);
    g_autofree char *path = rows_write(dir, "rows.ffm", ROWS_PLAIN, 0, N_ROWS);
    const char *const paths[] = { path, NULL };
    job->dataset = rubato_dataset_open(&(RubatoDataSpec){ .paths = paths }, &error);
    ck_assert_msg(job->dataset != NULL, "%s", error != NULL ? error->message : "");
    job->options = (RubatoReaderOptions){
        .split = split, .batch_rows = BATCH, .ahead = 1, .shuffle = true, .epochs = EPOCHS
    };
    job->held = job->go_on = (Event)EVENT_INIT;
    return job;
}

static void end_job(Job *job)
{
    rubato_dataset_free(job->dataset);
    remove_files(dir);
    g_free(dir);
    g_free(job);
}

/* Worker r takes 3 + r batches, with a clock for each, and waits. Then it reads to the end. */
static bool read_some(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    const uint32_t n_first = 3 + rubato_worker_rank(worker);
    uint32_t n = 0;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "w", RUBATO_F32, error);
    if (table == NULL)
        return false;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);
    if (reader == NULL)
        return false;
    while (rubato_reader_next(reader, &batch, error)) {
        TRY(rubato_kv_table_clock(table, error));
        if (++n != n_first)
            continue;
        event_raise(&job->held);
        TRY(event_await(&job->go_on, 1, worker, error));
    }
    return !rubato_reader_failed(reader);
}

/* ---- looking ---- */

static GVariant *member(GVariant *part, const char *name)
{
    GVariant *const found = g_variant_lookup_value(part, name, NULL);

    ck_assert_msg(found != NULL, "there is no %s", name);
    return found;
}

static GVariant *element(GVariant *part, const char *name, size_t i)
{
    g_autoptr(GVariant) list = member(part, name);

    ck_assert_uint_lt(i, g_variant_n_children(list));
    return g_variant_get_child_value(list, i);
}

static int64_t count(GVariant *part, const char *name)
{
    g_autoptr(GVariant) found = member(part, name);

    return g_variant_get_int64(found);
}

static void expect_text(GVariant *part, const char *name, const char *text)
{
    g_autoptr(GVariant) found = member(part, name);

    ck_assert_str_eq(g_variant_get_string(found, NULL), text);
}

static GVariant *look(RubatoEngine *engine)
{
    return g_variant_ref_sink(engine_status(engine));
}

static RubatoTaskRun *start(RubatoEngine *engine, Job *job)
{
    const char *const tables[] = { "w", NULL };
    const RubatoTask task = {
        .name = "train", .run = read_some, .user_data = job, .tables = tables, .workers_per_node = 2
    };
    g_autoptr(GError) error = NULL;

    create_table(engine, &(RubatoTableSpec){ .name = "w", .n_keys = 10, .model = "asp" });
    RubatoTaskRun *const run = rubato_engine_start(engine, &task, &error);
    ck_assert_msg(run != NULL, "%s", error != NULL ? error->message : "");
    return run;
}

static void check_worker(GVariant *part, GVariant *reading, uint32_t rank)
{
    g_autoptr(GVariant) clocks = member(part, "clocks");
    g_autoptr(GVariant) ended = member(reading, "ended");
    const int64_t n_rows = BATCH * (3 + (int64_t)rank);
    g_autofree char *path = g_build_filename(dir, "rows.ffm", NULL);

    ck_assert_int_eq(count(part, "worker"), rank);
    ck_assert_int_eq(count(clocks, "w"), 3 + rank);
    ck_assert_int_eq(count(reading, "rows"), n_rows);
    ck_assert_int_eq(count(reading, "epoch"), 1);
    expect_text(reading, "file", path);
    ck_assert_int_ge(count(reading, "block_row"), 1);
    ck_assert_int_le(count(reading, "block_row"), count(reading, "block_rows"));
    ck_assert_int_le(count(reading, "block_row"), n_rows);
    ck_assert(!g_variant_get_boolean(ended));
}

/* The rows of all workers, and that they have ended. */
static void check_end(GVariant *reader)
{
    int64_t n_rows = 0, n_blocks = 0;

    for (size_t i = 0; i < N_WORKERS; i++) {
        g_autoptr(GVariant) reading = element(reader, "workers", i);
        g_autoptr(GVariant) ended = member(reading, "ended");
        g_autoptr(GVariant) read_all = member(reading, "read_all");

        ck_assert(g_variant_get_boolean(read_all));
        n_rows += count(reading, "rows");
        n_blocks += count(reading, "blocks");
        ck_assert(g_variant_get_boolean(ended));
    }
    ck_assert_int_eq(n_rows, (int64_t)EPOCHS * N_ROWS);
    ck_assert_int_eq(n_blocks, EPOCHS * count(reader, "blocks")); /* none was read by two */
}

static const RubatoSplit splits[] = { RUBATO_SPLIT_DYNAMIC, RUBATO_SPLIT_FIXED,
                                      RUBATO_SPLIT_BY_KEY };

START_TEST(status_tells_where_each_worker_is)
{
    RubatoEngine *engine = engine_with_servers(2);
    Job *job = begin_job(splits[_i]);
    RubatoTaskRun *run = start(engine, job);

    event_wait(&job->held, N_WORKERS);
    g_autoptr(GVariant) status = look(engine);
    g_autoptr(GVariant) node = element(status, "nodes", 0);
    g_autoptr(GVariant) task = element(node, "tasks", 0);
    g_autoptr(GVariant) reader = element(task, "readers", 0);
    g_autoptr(GVariant) table = element(status, "tables", 0);
    expect_text(status, "state", "runs");
    expect_text(task, "name", "train");
    expect_text(table, "name", "w");
    ck_assert_int_eq(count(table, "parts"), 2);
    for (uint32_t rank = 0; rank < N_WORKERS; rank++) {
        g_autoptr(GVariant) part = element(task, "workers", rank);
        g_autoptr(GVariant) first = element(reader, "workers", 0);
        const size_t place = count(first, "worker") == rank ? 0 : 1; /* who opened it first */
        g_autoptr(GVariant) reading = element(reader, "workers", place);

        check_worker(part, reading, rank);
    }
    event_raise(&job->go_on);
    ck_assert(rubato_task_run_wait(run, NULL));
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(status_tells_the_scheduler_s_queue)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(RUBATO_SPLIT_DYNAMIC);
    RubatoTaskRun *run = start(engine, job);

    event_wait(&job->held, N_WORKERS);
    g_autoptr(GVariant) status = look(engine);
    g_autoptr(GVariant) whole = member(status, "run");
    g_autoptr(GVariant) task = element(whole, "tasks", 0);
    g_autoptr(GVariant) queue = element(task, "readers", 0);
    g_autoptr(GVariant) own = element(status, "nodes", 0);
    g_autoptr(GVariant) own_task = element(own, "tasks", 0);
    g_autoptr(GVariant) reader = element(own_task, "readers", 0);
    ck_assert_int_eq(count(queue, "done") + count(queue, "dealt") + count(queue, "left"),
                     EPOCHS * count(reader, "blocks"));
    event_raise(&job->go_on);
    ck_assert(rubato_task_run_wait(run, NULL));
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

/* A worker that has read all stays in its function. */
static bool read_all(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);
    if (reader == NULL)
        return false;
    while (rubato_reader_next(reader, &batch, error))
        ;
    event_raise(&job->held);
    return event_await(&job->go_on, 1, worker, error);
}

START_TEST(status_counts_all_rows_at_the_end_of_the_data)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(RUBATO_SPLIT_DYNAMIC);
    const RubatoTask task = {
        .name = "read", .run = read_all, .user_data = job, .workers_per_node = N_WORKERS
    };
    RubatoTaskRun *run = rubato_engine_start(engine, &task, NULL);

    ck_assert(run != NULL);
    event_wait(&job->held, N_WORKERS);
    g_autoptr(GVariant) status = look(engine);
    g_autoptr(GVariant) node = element(status, "nodes", 0);
    g_autoptr(GVariant) own = element(node, "tasks", 0);
    g_autoptr(GVariant) reader = element(own, "readers", 0);
    check_end(reader);
    event_raise(&job->go_on);
    ck_assert(rubato_task_run_wait(run, NULL));
    g_autoptr(GVariant) after = look(engine);
    g_autoptr(GVariant) same = element(after, "nodes", 0);
    g_autoptr(GVariant) tasks = member(same, "tasks");
    ck_assert_uint_eq(g_variant_n_children(tasks), 0);
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

/* A worker that stops reading stays in its function. */
static bool read_a_batch(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);
    if (reader == NULL || !rubato_reader_next(reader, &batch, error))
        return false;
    g_clear_pointer(&reader, rubato_reader_free);
    event_raise(&job->held);
    return event_await(&job->go_on, 1, worker, error);
}

START_TEST(status_tells_a_reader_that_was_closed_from_one_at_the_end)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(RUBATO_SPLIT_DYNAMIC);
    const RubatoTask task = {
        .name = "read", .run = read_a_batch, .user_data = job, .workers_per_node = 1
    };
    RubatoTaskRun *run = rubato_engine_start(engine, &task, NULL);

    ck_assert(run != NULL);
    event_wait(&job->held, 1);
    g_autoptr(GVariant) status = look(engine);
    g_autoptr(GVariant) node = element(status, "nodes", 0);
    g_autoptr(GVariant) own = element(node, "tasks", 0);
    g_autoptr(GVariant) reader = element(own, "readers", 0);
    g_autoptr(GVariant) reading = element(reader, "workers", 0);
    g_autoptr(GVariant) ended = member(reading, "ended");
    g_autoptr(GVariant) read_all_of_it = member(reading, "read_all");
    ck_assert(g_variant_get_boolean(ended));
    ck_assert(!g_variant_get_boolean(read_all_of_it));
    event_raise(&job->go_on);
    ck_assert(rubato_task_run_wait(run, NULL));
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

typedef struct {
    RubatoEngine *engine;
    _Atomic bool ends;
    unsigned n;
} Asker;

static void *ask_on(void *user)
{
    Asker *const asker = user;

    while (!atomic_load(&asker->ends)) {
        g_autoptr(GVariant) status = look(asker->engine);

        expect_text(status, "state", "runs");
        asker->n++;
    }
    return NULL;
}

/* For the thread sanitizer: tasks begin, read and end while two threads ask all the time. */
START_TEST(status_is_told_while_all_goes_on)
{
    RubatoEngine *engine = engine_with_servers(2);
    Asker askers[2] = { { .engine = engine }, { .engine = engine } };
    GThread *threads[2];

    for (size_t i = 0; i < 2; i++)
        threads[i] = g_thread_new("asker", ask_on, &askers[i]);
    for (int times = 0; times < 3; times++) {
        Job *job = begin_job(splits[times]);

        event_raise(&job->go_on);
        run_ok(engine, N_WORKERS, read_all, job, NULL);
        end_job(job);
    }
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&askers[i].ends, true);
        g_thread_join(threads[i]);
        ck_assert_uint_gt(askers[i].n, 0);
    }
    rubato_engine_free(engine);
}
END_TEST

START_TEST(status_names_the_snapshot_that_was_restored)
{
    RubatoEngine *engine = engine_with_servers(1);
    g_autofree char *folder = g_dir_make_tmp("rubato-status-XXXXXX", NULL);
    const RubatoSnapshotSpec spec = { .directory = folder };

    create_table(engine, &(RubatoTableSpec){ .name = "w", .n_keys = 10 });
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
    ck_assert(rubato_engine_snapshot(engine, &spec, NULL, NULL));
    g_autoptr(GVariant) before = look(engine);
    ck_assert(g_variant_lookup_value(before, "restored", NULL) == NULL);
    ck_assert(rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = folder, .number = 1 }, NULL, NULL));
    g_autoptr(GVariant) status = look(engine);
    g_autoptr(GVariant) restored = member(status, "restored");
    expect_text(restored, "directory", folder);
    ck_assert_int_eq(count(restored, "snapshot"), 1);
    /* one that fails changes nothing */
    ck_assert(!rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = folder, .number = 9 }, NULL, NULL));
    g_autoptr(GVariant) after = look(engine);
    g_autoptr(GVariant) same = member(after, "restored");
    ck_assert_int_eq(count(same, "snapshot"), 1);
    remove_tree(folder);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(status_of_a_run_that_has_broken_says_why)
{
    RubatoEngine *engine = engine_with_servers(1);

    engine_break(engine, RUBATO_ERROR_NODE_LOST, "node 1 was lost");
    g_autoptr(GVariant) status = look(engine);
    expect_text(status, "state", "broken");
    expect_text(status, "why", "node 1 was lost");
    engine_end_status(engine);
    g_autoptr(GVariant) after = look(engine);
    expect_text(after, "state", "broken");
    ck_assert(g_variant_lookup_value(after, "run", NULL) == NULL);
    rubato_engine_free(engine);
}
END_TEST

/* A node's answer comes from the engine's own service, which no application can replace or end. */
START_TEST(status_of_a_node_is_asked_of_its_own_service)
{
    RubatoEngine *engine = engine_with_servers(1);
    const RubatoQuestion question = { .service = SERVICE_STATUS,
                                      .to = { .group = RUBATO_GROUP_NODE, .number = 0 } };
    GError *error = NULL;
    g_autoptr(GBytes) bytes = NULL;

    ck_assert(!rubato_engine_unserve(engine, SERVICE_STATUS, &error));
    check_error(&error, RUBATO_ERROR_NOT_FOUND, "does not serve", NULL);
    ck_assert(rubato_engine_ask(engine, &question, &bytes, &error));
    g_autoptr(GVariant) part =
        g_variant_ref_sink(g_variant_new_from_bytes(G_VARIANT_TYPE("a{sv}"), bytes, FALSE));
    ck_assert(g_variant_is_normal_form(part));
    ck_assert_int_eq(count(part, "node"), 0);
    ck_assert_int_eq(count(part, "servers"), 1);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine status");
    TCase *cases = tcase_create("status");

    tcase_add_loop_test(cases, status_tells_where_each_worker_is, 0, G_N_ELEMENTS(splits));
    tcase_add_test(cases, status_tells_the_scheduler_s_queue);
    tcase_add_test(cases, status_counts_all_rows_at_the_end_of_the_data);
    tcase_add_test(cases, status_tells_a_reader_that_was_closed_from_one_at_the_end);
    tcase_add_test(cases, status_is_told_while_all_goes_on);
    tcase_add_test(cases, status_names_the_snapshot_that_was_restored);
    tcase_add_test(cases, status_of_a_run_that_has_broken_says_why);
    tcase_add_test(cases, status_of_a_node_is_asked_of_its_own_service);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
