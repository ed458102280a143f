/* Steps of workers: what a worker changes in one is in a snapshot as a whole or not at all. So a
 * task that keeps its places in the data in a table goes on exactly where each worker was, after
 * its process was killed, too. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum {
    N_WORKERS = 4,
    N_BATCHES = 30, /* of each share */
    N_BATCH = 16,   /* rows */
    N_ROWS = N_WORKERS * N_BATCHES * N_BATCH,
    N_WEIGHTS = 5,
};

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-steps-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

/* ---- training that notes its places ---- */

/* How often each row was trained on, what came of it, and how many rows of each share are done. */
static const char *const tables[] = { "seen", "weights", "places", NULL };

static RubatoEngine *learner(uint32_t servers, const char *model)
{
    RubatoEngine *const engine = engine_with_servers(servers);
    const uint32_t staleness = strcmp(model, "ssp") == 0 ? 2 : 0;

    create_table(engine, &(RubatoTableSpec){ .name = "seen",
                                             .dtype = RUBATO_I64,
                                             .n_keys = N_ROWS,
                                             .model = model,
                                             .staleness = staleness });
    create_table(engine, &(RubatoTableSpec){ .name = "weights",
                                             .n_keys = N_WEIGHTS,
                                             .model = model,
                                             .staleness = staleness });
    create_table(engine, &(RubatoTableSpec){ .name = "places",
                                             .dtype = RUBATO_I64,
                                             .storage = "hash",
                                             .model = model,
                                             .staleness = staleness });
    return engine;
}

typedef struct {
    int64_t first[N_WORKERS]; /* by share: of its batches, the first one to train on */
    int64_t snapshot_every;   /* so many batches of the first share; 0: never */
    int64_t kill_at;          /* the process is killed at this batch of it; 0: not */
} Job;

typedef struct {
    RubatoKVTable *seen, *weights, *places;
} Tables;

static RubatoKey row_of(RubatoKey share, int64_t batch, int i)
{
    return (share * N_BATCHES + (RubatoKey)batch) * N_BATCH + (RubatoKey)i;
}

/* Many Adds, so that a cut is likely to come between two of them, if it may. */
static bool add_batch(const Tables *it, RubatoKey share, int64_t batch, const float *weights,
                      GError **error)
{
    const int64_t one = 1;

    for (int i = 0; i < N_BATCH; i++) {
        const RubatoKey row = row_of(share, batch, i);

        TRY(rubato_kv_table_add(it->seen, &row, 1, &one, error));
    }
    TRY(rubato_kv_table_clock(it->seen, error));
    for (int i = 0; i < N_BATCH; i++) {
        const RubatoKey weight = row_of(share, batch, i) % N_WEIGHTS;
        const float gradient = ((float)(i % 13) - weights[weight]) / 97;

        TRY(rubato_kv_table_add(it->weights, &weight, 1, &gradient, error));
    }
    return rubato_kv_table_clock(it->weights, error) &&
           rubato_kv_table_add(it->places, &share, 1, &one, error) &&
           rubato_kv_table_clock(it->places, error);
}

static bool train_batch(RubatoWorker *worker, const Tables *it, RubatoKey share, int64_t batch,
                        GError **error)
{
    float weights[N_WEIGHTS];

    TRY(rubato_kv_table_get_range(it->weights, 0, N_WEIGHTS, weights, error));
    TRY(rubato_worker_begin_step(worker, error));
    TRY(add_batch(it, share, batch, weights, error));
    return rubato_worker_end_step(worker, error);
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const RubatoSnapshotSpec snapshot = { .directory = directory };

    g_autoptr(RubatoKVTable) seen = rubato_worker_open_kv_table(worker, "seen", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) weights =
        rubato_worker_open_kv_table(worker, "weights", RUBATO_F32, error);
    g_autoptr(RubatoKVTable) places =
        rubato_worker_open_kv_table(worker, "places", RUBATO_I64, error);
    const Tables it = { seen, weights, places };

    TRY(seen != NULL && weights != NULL && places != NULL);
    for (uint32_t share = rubato_worker_rank(worker); share < N_WORKERS;
         share += rubato_worker_n_workers(worker))
        for (int64_t i = job->first[share]; i < N_BATCHES; i++) {
            TRY(train_batch(worker, &it, share, i, error));
            if (share != 0 || job->snapshot_every == 0)
                continue;
            if (i % job->snapshot_every == 0)
                TRY(rubato_worker_snapshot(worker, &snapshot, NULL, error));
            if (job->kill_at > 0 && i == job->kill_at)
                (void)kill(getpid(), SIGKILL);
        }
    return true;
}

static void run_training(RubatoEngine *engine, uint32_t n_workers, Job *job)
{
    run_task_ok(engine, &(RubatoTask){ .name = "train",
                                       .run = train,
                                       .user_data = job,
                                       .tables = tables,
                                       .workers_per_node = n_workers });
}

/* ---- what is in snapshots ---- */

static bool add_up(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    (void)error;
    for (size_t i = 0; i < rows->n; i++)
        *(int64_t *)user_data += ((const int64_t *)rows->values)[i];
    return true;
}

static int64_t sum_of(const RubatoSnapshot *snapshot, const char *name)
{
    const RubatoSnapshotTable *const table = rubato_snapshot_find_table(snapshot, name);
    int64_t sum = 0;

    for (uint32_t part = 0; part < table->n_parts; part++)
        MUST(rubato_snapshot_read_part(snapshot, name, part, add_up, &sum, &error));
    return sum;
}

static const char *const models[] = { "asp", "ssp", "bsp" };

/* The others are anywhere when worker 0 asks. */
START_TEST(step_is_in_a_snapshot_as_a_whole_or_not_at_all)
{
    g_autoptr(RubatoEngine) engine = learner(2, models[_i]);
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    run_training(engine, N_WORKERS, &(Job){ .snapshot_every = 3 });
    MUST(rubato_snapshot_list(directory, &numbers, &n, &error));
    ck_assert_uint_eq(n, N_BATCHES / 3);
    for (size_t i = 0; i < n; i++) {
        g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, numbers[i], NULL);

        ck_assert_int_eq(sum_of(snapshot, "seen"), N_BATCH * sum_of(snapshot, "places"));
        ck_assert_uint_eq(rubato_snapshot_find_table(snapshot, "seen")->clock,
                          rubato_snapshot_find_table(snapshot, "places")->clock);
    }
}
END_TEST

/* ---- going on ---- */

static void die_while_training(const char *model)
{
    const pid_t child = fork(); /* there is no thread yet */
    int status;

    if (child == 0) {
        RubatoEngine *const engine = learner(2, model);

        run_training(engine, N_WORKERS, &(Job){ .snapshot_every = 8, .kill_at = 20 });
        _exit(1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void read_places(RubatoEngine *engine, Job *job)
{
    const RubatoKey shares[N_WORKERS] = { 0, 1, 2, 3 };

    MUST(rubato_engine_get(engine, "places", shares, N_WORKERS, job->first, &error));
}

static void check_rows_seen_once(RubatoEngine *engine)
{
    g_autofree int64_t *seen = g_new(int64_t, N_ROWS);

    MUST(rubato_engine_get_range(engine, "seen", 0, N_ROWS, seen, &error));
    for (size_t i = 0; i < N_ROWS; i++)
        ck_assert_msg(seen[i] == 1, "row %zu was trained on %ld times", i, (long)seen[i]);
}

/* Under "asp", each worker was somewhere else. Others, and fewer, go on there. */
START_TEST(run_that_is_killed_goes_on_and_sees_each_row_once)
{
    g_autoptr(RubatoEngine) engine = NULL;
    Job job = { .kill_at = 0 };

    die_while_training(models[_i]);
    engine = learner(3, models[_i]);
    MUST(rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                               &error));
    read_places(engine, &job);
    ck_assert(job.first[0] > 0 && job.first[0] < N_BATCHES);
    run_training(engine, N_WORKERS / 2, &job);
    check_rows_seen_once(engine);
}
END_TEST

START_TEST(run_that_is_killed_under_bsp_ends_with_the_same_bits)
{
    g_autoptr(RubatoEngine) engine = NULL, whole = NULL;
    float expected[N_WEIGHTS], resumed[N_WEIGHTS];
    Job job = { .kill_at = 0 };

    die_while_training("bsp");
    whole = learner(2, "bsp");
    run_training(whole, N_WORKERS, &job);
    MUST(rubato_engine_get_range(whole, "weights", 0, N_WEIGHTS, expected, &error));
    engine = learner(3, "bsp");
    MUST(rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                               &error));
    read_places(engine, &job);
    run_training(engine, N_WORKERS, &job);
    check_rows_seen_once(engine);
    MUST(rubato_engine_get_range(engine, "weights", 0, N_WEIGHTS, resumed, &error));
    ck_assert_mem_eq(resumed, expected, sizeof expected);
}
END_TEST

/* ---- misuse ---- */

static bool misuse(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoSnapshotSpec snapshot = { .directory = directory };
    GError *fault = NULL;

    (void)user_data;
    REQUIRE(!rubato_worker_end_step(worker, &fault), "a step ended that had not begun");
    check_error(&fault, RUBATO_ERROR_INVALID, "ends a step that has not begun", NULL);
    TRY(rubato_worker_begin_step(worker, error));
    REQUIRE(!rubato_worker_begin_step(worker, &fault), "a step began in a step");
    check_error(&fault, RUBATO_ERROR_INVALID, "in the middle of another one", NULL);
    REQUIRE(!rubato_worker_snapshot(worker, &snapshot, NULL, &fault), "it was cut in a step");
    check_error(&fault, RUBATO_ERROR_INVALID, "asks for a snapshot in the middle", NULL);
    return true; /* which ends the step */
}

START_TEST(steps_that_make_no_sense_are_refused)
{
    g_autoptr(RubatoEngine) engine = learner(1, "asp");

    run_ok(engine, 1, misuse, NULL, "places");
}
END_TEST

/* Worker 0 asks while worker 1 is in a step, and waits in it for worker 0. */
static bool wait_in_a_step(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoSnapshotSpec snapshot = { .directory = directory };
    GError *fault = NULL;

    (void)user_data;
    if (rubato_worker_rank(worker) == 1)
        return rubato_worker_begin_step(worker, error) && rubato_worker_barrier(worker, error) &&
               rubato_worker_barrier(worker, error) && rubato_worker_end_step(worker, error) &&
               rubato_worker_barrier(worker, error) && rubato_worker_barrier(worker, error);
    TRY(rubato_worker_barrier(worker, error));
    REQUIRE(!rubato_worker_snapshot(worker, &snapshot, NULL, &fault), "it was cut in a step");
    check_error(&fault, RUBATO_ERROR_TIMEOUT, "worker 1 has been in the middle of a step", NULL);
    TRY(rubato_worker_barrier(worker, error) && rubato_worker_barrier(worker, error));
    /* worker 1 waits meanwhile, so that its end is no step that the snapshot might wait for */
    return rubato_worker_snapshot(worker, &snapshot, NULL, error) &&
           rubato_worker_barrier(worker, error);
}

START_TEST(snapshot_fails_if_a_step_does_not_end_and_the_task_goes_on)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 1, .stall_ms = 100 }, &error);

    create_table(engine, &(RubatoTableSpec){ .name = "t", .n_keys = 1 });
    run_ok(engine, 2, wait_in_a_step, NULL, "t");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("steps of workers");
    TCase *cases = tcase_create("steps");

    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, step_is_in_a_snapshot_as_a_whole_or_not_at_all, 0,
                        G_N_ELEMENTS(models));
    tcase_add_loop_test(cases, run_that_is_killed_goes_on_and_sees_each_row_once, 0,
                        G_N_ELEMENTS(models));
    tcase_add_test(cases, run_that_is_killed_under_bsp_ends_with_the_same_bits);
    tcase_add_test(cases, steps_that_make_no_sense_are_refused);
    tcase_add_test(cases, snapshot_fails_if_a_step_does_not_end_and_the_task_goes_on);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
