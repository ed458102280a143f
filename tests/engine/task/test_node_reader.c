/* Readers of a task's workers in one process: blocks that are dealt out while they are read;
 * workers that are slow, leave early or open other data. */
#include <string.h>

#include "tests/support/data/data_rows.h"
#include "tests/support/data/data_text.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"

enum { N_ROWS = 20000, N_WORKERS = 3 };

typedef struct {
    RubatoDataset *dataset;
    RubatoReaderOptions options;
    _Atomic uint32_t counts[N_ROWS];
    _Atomic uint32_t n_read[N_WORKERS]; /* rows, by rank */
    Event event;
} Job;

static char *dir; /* of the case */

static Job *begin_job(RowsPacking packing)
{
    Job *job = g_new0(Job, 1);
    g_autoptr(GError) error = NULL;

    dir = g_dir_make_tmp("rubato-node_reader-XXXXXX", NULL);
    g_autofree char *path = rows_write(dir, "rows.ffm", packing, 0, N_ROWS);
    const char *const paths[] = { path, NULL };
    job->dataset = rubato_dataset_open(&(RubatoDataSpec){ .paths = paths }, &error);
    ck_assert_msg(job->dataset != NULL, "%s", error != NULL ? error->message : "");
    job->options = (RubatoReaderOptions){
        .split = RUBATO_SPLIT_DYNAMIC, .batch_rows = 50, .ahead = 1, .shuffle = true, .epochs = 1
    };
    job->event = (Event)EVENT_INIT;
    return job;
}

static void end_job(Job *job)
{
    rubato_dataset_free(job->dataset);
    remove_files(dir);
    g_free(dir);
    g_free(job);
}

/* Reads up to so many batches. */
static bool read_batches(Job *job, RubatoWorker *worker, RubatoReader *reader, uint32_t n_batches,
                         GError **error)
{
    g_autoptr(RubatoBatch) batch = NULL;

    for (uint32_t i = 0; i < n_batches && rubato_reader_next(reader, &batch, error); i++) {
        const char *fault = rows_count(batch, job->counts, N_ROWS);

        REQUIRE(fault == NULL, "%s", fault);
        atomic_fetch_add(&job->n_read[rubato_worker_rank(worker)], (uint32_t)batch->n_rows);
    }
    return !rubato_reader_failed(reader);
}

static bool read_all(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);

    return reader != NULL && read_batches(job, worker, reader, UINT32_MAX, error);
}

START_TEST(every_row_comes_to_one_worker_in_each_epoch)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job((RowsPacking)(_i / 2));

    job->options.split = _i % 2 == 0 ? RUBATO_SPLIT_FIXED : RUBATO_SPLIT_DYNAMIC;
    job->options.epochs = 3;
    run_ok(engine, N_WORKERS, read_all, job, NULL);
    ck_assert(rows_all_counted(job->counts, N_ROWS, 3));
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

/* Worker 0 reads one batch and continues only when the others have read all that they were
 * given. */
static bool read_slowly(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);

    if (reader == NULL)
        return false;
    if (rubato_worker_rank(worker) != 0) {
        TRY(read_batches(job, worker, reader, UINT32_MAX, error));
        event_raise(&job->event);
        return true;
    }
    TRY(read_batches(job, worker, reader, 1, error));
    TRY(event_await(&job->event, N_WORKERS - 1, worker, error));
    return read_batches(job, worker, reader, UINT32_MAX, error);
}

START_TEST(a_slow_worker_holds_nobody_up)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(ROWS_PLAIN);

    run_ok(engine, N_WORKERS, read_slowly, job, NULL);
    ck_assert(rows_all_counted(job->counts, N_ROWS, 1));
    ck_assert_uint_lt(job->n_read[0], N_ROWS / 10);
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

/* All but the last worker read some batches and return, before the last reads any. */
static bool read_and_return(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    const uint32_t rank = rubato_worker_rank(worker);
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);

    if (reader == NULL)
        return false;
    if (rank != N_WORKERS - 1) {
        TRY(read_batches(job, worker, reader, 1 + 5 * rank, error));
        g_clear_pointer(&reader, rubato_reader_free);
        event_raise(&job->event);
        return true;
    }
    TRY(event_await(&job->event, N_WORKERS - 1, worker, error));
    return read_batches(job, worker, reader, UINT32_MAX, error);
}

START_TEST(what_a_worker_leaves_goes_to_another)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(_i == 0 ? ROWS_PLAIN : ROWS_ZSTD);

    job->options.epochs = 2;
    run_ok(engine, N_WORKERS, read_and_return, job, NULL);
    ck_assert(rows_all_counted(job->counts, N_ROWS, 2));
    ck_assert_uint_eq(job->n_read[0], 50);
    ck_assert_uint_eq(job->n_read[1], 300);
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

/* One after the other: a reader that is opened when all others are gone gets the blocks that they
 * left. */
static bool read_in_turn(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    const uint32_t rank = rubato_worker_rank(worker);

    TRY(event_await(&job->event, rank, worker, error));
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);
    TRY(reader != NULL &&
        read_batches(job, worker, reader, rank == N_WORKERS - 1 ? UINT32_MAX : 3, error));
    g_clear_pointer(&reader, rubato_reader_free);
    event_raise(&job->event);
    return true;
}

START_TEST(who_comes_late_gets_what_is_left)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(ROWS_PLAIN);

    run_ok(engine, N_WORKERS, read_in_turn, job, NULL);
    ck_assert(rows_all_counted(job->counts, N_ROWS, 1));
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

typedef struct {
    Job *job;
    RubatoReader *readers[N_WORKERS - 1];
} LeftOpen;

static bool leave_open(RubatoWorker *worker, void *user_data, GError **error)
{
    LeftOpen *const left = user_data;
    const uint32_t rank = rubato_worker_rank(worker);

    if (rank == N_WORKERS - 1)
        return read_all(worker, left->job, error);
    left->readers[rank] =
        rubato_worker_open_reader(worker, left->job->dataset, &left->job->options, error);
    return left->readers[rank] != NULL &&
           read_batches(left->job, worker, left->readers[rank], 1 + rank, error);
}

/* It is stopped, because it reads from what belongs to the task; so others get its rows. */
START_TEST(a_reader_that_is_left_open_is_told_and_stopped)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(ROWS_PLAIN);
    LeftOpen left = { .job = job };

    log_capture_start();
    run_ok(engine, N_WORKERS, leave_open, &left, NULL);
    ck_assert(rows_all_counted(job->counts, N_ROWS, 1));
    ck_assert_uint_eq(log_capture_count("has returned with an open reader; call "
                                        "rubato_reader_free() before, or declare the reader "
                                        "g_autoptr(RubatoReader)"),
                      N_WORKERS - 1);
    for (uint32_t i = 0; i < N_WORKERS - 1; i++) {
        RubatoBatch *batch = NULL;
        GError *error = NULL;

        ck_assert(!rubato_reader_next(left.readers[i], &batch, &error));
        check_error(&error, RUBATO_ERROR_INVALID, "the worker of this reader has returned", NULL);
        ck_assert(rubato_reader_failed(left.readers[i]));
        rubato_reader_free(left.readers[i]);
    }
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

static bool read_two(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    RubatoReaderOptions options = job->options;

    for (int i = 0; i < 2; i++) {
        g_autoptr(RubatoReader) reader =
            rubato_worker_open_reader(worker, job->dataset, &options, error);

        TRY(reader != NULL && read_batches(job, worker, reader, UINT32_MAX, error));
        options.split = RUBATO_SPLIT_FIXED;
    }
    return true;
}

/* Worker 1 reads to the end while worker 0 holds a block, which it then leaves to worker 2. */
static bool leave_after_the_end(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    const uint32_t rank = rubato_worker_rank(worker);

    TRY(event_await(&job->event, rank == 0 ? 0 : 2 * rank - 1, worker, error));
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);
    TRY(reader != NULL && read_batches(job, worker, reader, rank == 0 ? 1 : UINT32_MAX, error));
    event_raise(&job->event);
    if (rank != 0)
        return true;
    TRY(event_await(&job->event, 2, worker, error));
    g_clear_pointer(&reader, rubato_reader_free);
    event_raise(&job->event);
    return true;
}

START_TEST(who_comes_after_the_end_gets_what_came_back)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(ROWS_PLAIN);

    run_ok(engine, N_WORKERS, leave_after_the_end, job, NULL);
    ck_assert(rows_all_counted(job->counts, N_ROWS, 1));
    ck_assert_uint_eq(job->n_read[0], 50);
    ck_assert_uint_gt(job->n_read[2], 0);
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

START_TEST(a_worker_may_open_several_readers)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(ROWS_PLAIN);

    run_ok(engine, N_WORKERS, read_two, job, NULL);
    run_ok(engine, N_WORKERS, read_two, job, NULL);
    ck_assert(rows_all_counted(job->counts, N_ROWS, 4));
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

static bool read_otherwise(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    RubatoReaderOptions options = job->options;

    if (options.split == RUBATO_SPLIT_BY_KEY)
        options.key_place = rubato_worker_rank(worker);
    else
        options.epochs = 1 + rubato_worker_rank(worker);
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &options, error);
    return reader != NULL;
}

START_TEST(workers_must_open_the_same)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(ROWS_PLAIN);
    const RubatoTask task = {
        .name = "odd", .run = read_otherwise, .user_data = job, .workers_per_node = 2
    };

    if (_i == 1)
        job->options.split = RUBATO_SPLIT_BY_KEY;
    run_fails(engine, &task, RUBATO_ERROR_TASK_FAILED, "reader 0 is opened with ",
              _i == 0 ? " epochs, " : "by-key split, key place ",
              "open the same ones in the same order", NULL);
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

/* Worker 1 fails while worker 0 reads without end. */
static bool read_for_ever(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    g_autoptr(RubatoReader) reader =
        rubato_worker_open_reader(worker, job->dataset, &job->options, error);

    if (reader == NULL)
        return false;
    if (rubato_worker_rank(worker) == 1) {
        TRY(event_await(&job->event, 1, worker, error));
        return fail_at(error, __FILE__, __LINE__, "a fault", "%s", "");
    }
    TRY(read_batches(job, worker, reader, 1, error));
    event_raise(&job->event);
    return read_batches(job, worker, reader, UINT32_MAX, error);
}

START_TEST(a_cancelled_task_ends_its_readers)
{
    RubatoEngine *engine = engine_with_servers(1);
    Job *job = begin_job(ROWS_PLAIN);
    const RubatoTask task = {
        .name = "odd", .run = read_for_ever, .user_data = job, .workers_per_node = 2
    };

    job->options.epochs = UINT32_MAX;
    job->options.split = _i == 0 ? RUBATO_SPLIT_FIXED : RUBATO_SPLIT_DYNAMIC;
    run_fails(engine, &task, RUBATO_ERROR_TASK_FAILED, "worker 1", "a fault", NULL);
    end_job(job);
    rubato_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("node_reader");
    TCase *cases = tcase_create("node_readers");

    tcase_set_timeout(cases, 20);
    tcase_add_loop_test(cases, every_row_comes_to_one_worker_in_each_epoch, 0, 2 * ROWS_N_PACKINGS);
    tcase_add_test(cases, a_slow_worker_holds_nobody_up);
    tcase_add_loop_test(cases, what_a_worker_leaves_goes_to_another, 0, 2);
    tcase_add_test(cases, who_comes_late_gets_what_is_left);
    tcase_add_test(cases, who_comes_after_the_end_gets_what_came_back);
    tcase_add_test(cases, a_reader_that_is_left_open_is_told_and_stopped);
    tcase_add_test(cases, a_worker_may_open_several_readers);
    tcase_add_loop_test(cases, workers_must_open_the_same, 0, 2);
    tcase_add_loop_test(cases, a_cancelled_task_ends_its_readers, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
