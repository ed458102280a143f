/* Snapshots of an engine: all of the tables comes back, into tables of other shapes too; what does
 * not fit or is damaged changes no row; training goes on from one as if nothing had happened. */
#include <check.h>
#include <string.h>
#include <unistd.h>
#include <utime.h>

#include "engine/collective.h"
#include "engine/engine_private.h"
#include "engine/snapshot/write_pace.h"
#include "io/store/snapshot_folder.h"
#include "io/store/writer_lock.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"
#include "tests/support/store/three_tables.h"

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-snapshot-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

/* The linker puts this in the place of what begins the writing of a node's parts. */
static const char *removed_meanwhile; /* the folder of a snapshot; NULL: nothing */

__typeof__(write_pace_start) __real_write_pace_start, __wrap_write_pace_start;

void __wrap_write_pace_start(WritePace *pace, const WritePaceOps *ops, SpillFile *spill,
                             int64_t before_ns)
{
    if (removed_meanwhile != NULL)
        remove_tree(removed_meanwhile);
    __real_write_pace_start(pace, ops, spill, before_ns);
}

static void take(RubatoEngine *engine, const RubatoSnapshotSpec *spec)
{
    RubatoSnapshotSpec whole = *spec;

    whole.directory = directory;
    MUST(rubato_engine_snapshot(engine, &whole, NULL, &error));
}

static RubatoEngine *with_tables(uint32_t servers, const ThreeShapes *shapes)
{
    RubatoEngine *engine = engine_with_servers(servers);

    MUST(three_tables_create(engine, shapes, &error));
    return engine;
}

/* Snapshot 1 of the three tables, made by two servers with parts of their own. */
static void take_three(RubatoPacking packing)
{
    g_autoptr(RubatoEngine) engine = with_tables(2, &(ThreeShapes){ .parts = 5 });

    MUST(three_tables_fill(engine, &error));
    take(engine, &(RubatoSnapshotSpec){ .packing = packing, .note = "here" });
}

/* ---- what comes back ---- */

static const struct {
    uint32_t servers;
    ThreeShapes shapes;
    RubatoPacking packing;
} places[] = {
    { 2, { .parts = 5 }, RUBATO_PACKING_NONE },
    { 1, { .parts = 5 }, RUBATO_PACKING_ZSTD },
    { 3, { .parts = 0 }, RUBATO_PACKING_NONE },
    { 2, { .parts = 9, .is_double = true }, RUBATO_PACKING_ZSTD },
    { 2, { .swaps_storages = true }, RUBATO_PACKING_NONE },
    { 1, { .swaps_storages = true, .is_double = true }, RUBATO_PACKING_NONE },
};

START_TEST(tables_come_back_on_other_servers_and_of_other_shapes)
{
    uint64_t number = 0;

    take_three(places[_i].packing);
    g_autoptr(RubatoEngine) engine = with_tables(places[_i].servers, &places[_i].shapes);
    MUST(rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, &number,
                               &error));
    ck_assert_uint_eq(number, 1);
    MUST(three_tables_check(engine, &places[_i].shapes, &error));
}
END_TEST

START_TEST(values_alone_come_back_with_the_state_of_new_rows)
{
    const RubatoKey key = 60;
    float values[3], states[3];

    take_three(RUBATO_PACKING_NONE);
    g_autoptr(RubatoEngine) engine = with_tables(1, &(ThreeShapes){ .parts = 0 });
    const char *const tables[] = { "range", NULL };
    MUST(rubato_engine_restore(engine,
                               &(RubatoRestoreSpec){ .directory = directory,
                                                     .tables = tables,
                                                     .what = RUBATO_RESTORE_VALUES },
                               NULL, &error));
    MUST(rubato_engine_get(engine, "range", &key, 1, values, &error));
    ck_assert(values[0] == 60 && values[1] == 60.25f);
    MUST(rubato_engine_get_state(engine, "range", &key, 1, states, &error));
    ck_assert(states[0] == 0);
    ck_assert_uint_eq(count_rows(engine, "any"), 0); /* it was not asked for */
}
END_TEST

START_TEST(whole_numbers_come_back_wider)
{
    const int32_t low = INT32_MIN;
    const RubatoKey key = 4;
    const RubatoTableSpec narrow = { .name = "n", .dtype = RUBATO_I32, .n_keys = 9 };
    const RubatoTableSpec wide = { .name = "n", .dtype = RUBATO_I64, .n_keys = 12 };

    g_autoptr(RubatoEngine) first = engine_with_servers(2);
    create_table(first, &narrow);
    MUST(rubato_engine_set(first, "n", &key, 1, &low, &error));
    take(first, &(RubatoSnapshotSpec){ .keep = 0 });
    g_autoptr(RubatoEngine) second = engine_with_servers(1);
    create_table(second, &wide);
    MUST(rubato_engine_restore(second, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                               &error));
    ck_assert_int_eq(read_i64(second, "n", 4), INT32_MIN);
    ck_assert_int_eq(read_i64(second, "n", 3), 0);
}
END_TEST

START_TEST(rows_of_more_than_a_block_come_back)
{
    enum { LONG = 700000 }; /* values: a row of 2.8 MB */
    g_autofree float *values = g_new(float, LONG);
    g_autofree float *seen = g_new(float, LONG);
    const RubatoKey key = 1;
    const RubatoTableSpec spec = { .name = "w", .width = LONG, .n_keys = 2 };

    for (size_t i = 0; i < LONG; i++)
        values[i] = (float)i;
    g_autoptr(RubatoEngine) first = engine_with_servers(1);
    create_table(first, &spec);
    MUST(rubato_engine_set(first, "w", &key, 1, values, &error));
    take(first, &(RubatoSnapshotSpec){ .keep = 1 });
    g_autoptr(RubatoEngine) second = engine_with_servers(2);
    create_table(second, &spec);
    MUST(rubato_engine_restore(second, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                               &error));
    MUST(rubato_engine_get(second, "w", &key, 1, seen, &error));
    ck_assert_mem_eq(values, seen, LONG * sizeof *values);
}
END_TEST

START_TEST(note_and_tables_are_told_without_an_engine)
{
    take_three(RUBATO_PACKING_ZSTD);
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, 0, NULL);
    ck_assert_str_eq(rubato_snapshot_note(snapshot), "here");
    ck_assert_int_eq(rubato_snapshot_packing(snapshot), RUBATO_PACKING_ZSTD);
    ck_assert_uint_eq(rubato_snapshot_n_tables(snapshot), 3);
    const RubatoSnapshotTable *any = rubato_snapshot_table(snapshot, 0);
    ck_assert_str_eq(any->name, "any");
    ck_assert_str_eq(any->update, "adam");
    ck_assert_uint_eq(any->state_width, 8);
    ck_assert_uint_eq(any->n_parts, 5);
    ck_assert_uint_eq(any->n_rows, 700);
    ck_assert_ptr_null(rubato_snapshot_table(snapshot, 3));
    MUST(rubato_snapshot_verify(snapshot, &error));
}
END_TEST

START_TEST(newest_snapshots_stay_and_their_numbers_ascend)
{
    g_autoptr(RubatoEngine) engine = with_tables(1, &(ThreeShapes){ .parts = 0 });
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    for (uint64_t i = 1; i <= 4; i++) {
        uint64_t number = 0;

        MUST(rubato_engine_snapshot(
            engine, &(RubatoSnapshotSpec){ .directory = directory, .keep = 2 }, &number, &error));
        ck_assert_uint_eq(number, i);
    }
    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(numbers[0], 3);
}
END_TEST

START_TEST(old_answers_to_requests_go)
{
    const struct utimbuf old = { 1, 1 };
    g_autofree char *answer = g_build_filename(directory, ".taken-1", NULL);

    ck_assert(g_file_set_contents(answer, "snapshot 1", -1, NULL));
    ck_assert_int_eq(utime(answer, &old), 0);
    take_three(RUBATO_PACKING_NONE);
    ck_assert(!g_file_test(answer, G_FILE_TEST_EXISTS));
}
END_TEST

/* ---- what does not fit ---- */

static const struct {
    const char *name;
    RubatoTableSpec spec;
    const char *why, *was, *is;
} misfits[] = {
    { "range",
      { .name = "range", .width = 4, .update = "adagrad" },
      "widths",
      "900 keys from 50 of f32 × 3",
      "any keys of f32 × 4" },
    { "range",
      { .name = "range", .width = 3, .update = "adam" },
      "different state",
      "\"adagrad\" with 3 values",
      "\"adam\" with 8 values" },
    { "range",
      { .name = "range", .width = 3, .update = "adagrad", .n_keys = 949 },
      "all keys",
      "900 keys from 50",
      "949 keys from 0" },
    { "range", { .name = "range", .dtype = RUBATO_I64, .width = 3 }, "dtype", "of f32", "of i64" },
    { "any",
      { .name = "any", .width = 3, .update = "adam", .n_keys = 90000 },
      "does not have the key 9",
      "any keys",
      "90000 keys from 0" },
    { "lists",
      { .name = "lists", .dtype = RUBATO_I32 },
      "different lengths",
      "of i32 × 1 of different lengths",
      "any keys of i32 × 1, rule" },
};

START_TEST(table_that_does_not_fit_is_refused_with_both_shapes)
{
    const char *const tables[] = { misfits[_i].name, NULL };
    g_autoptr(GError) refusal = NULL;

    take_three(RUBATO_PACKING_NONE);
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    create_table(engine, &misfits[_i].spec);
    ck_assert(!rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = directory, .tables = tables }, NULL, &refusal));
    check_error(&refusal, RUBATO_ERROR_MISMATCH, misfits[_i].why, misfits[_i].was, misfits[_i].is,
                NULL);
    if (misfits[_i].spec.n_keys == 0)
        ck_assert_uint_eq(count_rows(engine, misfits[_i].name), 0);
}
END_TEST

START_TEST(calls_that_make_no_sense_are_refused)
{
    const char *const unknown[] = { "nowhere", NULL }, *const twice[] = { "any", "any", NULL };
    g_autoptr(RubatoEngine) engine = with_tables(1, &(ThreeShapes){ .parts = 0 });
    g_autofree char *long_note = g_strnfill(70000, 'x');
    g_autofree char *below = g_build_filename(directory, "not", "there", NULL);
    const struct {
        RubatoSnapshotSpec spec;
        RubatoError code;
        const char *text;
    } calls[] = {
        { { .directory = NULL }, RUBATO_ERROR_INVALID, "needs a directory" },
        { { .directory = directory, .note = long_note }, RUBATO_ERROR_INVALID, "64 KiB" },
        { { .directory = directory, .note = "\xff" }, RUBATO_ERROR_INVALID, "UTF-8" },
        { { .directory = directory, .packing = 9 }, RUBATO_ERROR_INVALID, "packing" },
        { { .directory = directory, .tables = unknown }, RUBATO_ERROR_NOT_FOUND, "nowhere" },
        { { .directory = directory, .tables = twice }, RUBATO_ERROR_INVALID, "any twice" },
        { { .directory = below }, RUBATO_ERROR_IO, below },
        { { .directory = "/dev/null" }, RUBATO_ERROR_IO, "/dev/null" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        g_autoptr(GError) refusal = NULL;

        ck_assert(!rubato_engine_snapshot(engine, &calls[i].spec, NULL, &refusal));
        check_error(&refusal, calls[i].code, calls[i].text, NULL);
    }
    g_autoptr(GError) refusal = NULL;
    ck_assert(
        !rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = NULL }, NULL, &refusal));
    check_error(&refusal, RUBATO_ERROR_INVALID, "directory", NULL);
    ck_assert(!rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                     &refusal));
    check_error(&refusal, RUBATO_ERROR_NOT_FOUND, "no snapshot", NULL);
    take(engine, &(RubatoSnapshotSpec){ .keep = 0 });
    ck_assert(!rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = directory, .number = 7 }, NULL, &refusal));
    check_error(&refusal, RUBATO_ERROR_NOT_FOUND, "snapshot-000007", NULL);
    ck_assert(!rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = directory, .tables = unknown }, NULL, &refusal));
    check_error(&refusal, RUBATO_ERROR_NOT_FOUND, "nowhere", NULL);
}
END_TEST

static bool wait_for_event(RubatoWorker *worker, void *user_data, GError **error)
{
    return event_await(user_data, 1, worker, error);
}

START_TEST(nothing_is_restored_while_a_task_runs)
{
    Event event = EVENT_INIT;
    g_autoptr(GError) refusal = NULL;
    const RubatoTask task = { .name = "waits", .run = wait_for_event, .user_data = &event };

    take_three(RUBATO_PACKING_NONE);
    g_autoptr(RubatoEngine) engine = with_tables(1, &(ThreeShapes){ .parts = 0 });
    RubatoTaskRun *run = rubato_engine_start(engine, &task, NULL);
    take(engine, &(RubatoSnapshotSpec){ .keep = 0 }); /* the task uses none of the tables */
    ck_assert(!rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                     &refusal));
    check_error(&refusal, RUBATO_ERROR_INVALID, "a task runs", NULL);
    event_raise(&event);
    ck_assert(rubato_task_run_wait(run, NULL));
    take(engine, &(RubatoSnapshotSpec){ .keep = 0 });
}
END_TEST

/* ---- damage ---- */

/* Changes a byte in the middle of a file of a snapshot. */
static void flip(uint64_t number, const char *file)
{
    g_autofree char *folder = snapshot_folder_whole(directory, number);
    g_autofree char *path = g_build_filename(folder, file, NULL);
    g_autofree char *bytes = NULL;
    gsize n;

    ck_assert(g_file_get_contents(path, &bytes, &n, NULL));
    bytes[n / 2] = (char)(bytes[n / 2] ^ 4);
    ck_assert(g_file_set_contents(path, bytes, (gssize)n, NULL));
}

START_TEST(damaged_snapshot_is_passed_over_and_changes_no_row)
{
    static const char *const files[] = { "1.3.rows", "manifest" };
    g_autoptr(GError) refusal = NULL;
    uint64_t number = 0;

    take_three(RUBATO_PACKING_NONE);
    take_three(RUBATO_PACKING_NONE);
    flip(2, files[_i]);
    g_autoptr(RubatoEngine) engine = with_tables(2, &(ThreeShapes){ .parts = 3 });
    ck_assert(!rubato_engine_restore(
        engine, &(RubatoRestoreSpec){ .directory = directory, .number = 2 }, NULL, &refusal));
    check_error(&refusal, RUBATO_ERROR_FORMAT, files[_i], NULL);
    ck_assert_uint_eq(count_rows(engine, "any"), 0);
    log_capture_start();
    MUST(rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, &number,
                               &error));
    ck_assert_uint_eq(number, 1);
    g_free(log_capture_wait("snapshot 1 is taken", files[_i]));
    MUST(three_tables_check(engine, &(ThreeShapes){ .parts = 3 }, &error));
    flip(1, "0.0.rows");
    ck_assert(!rubato_engine_restore(engine, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                                     &refusal));
    check_error(&refusal, RUBATO_ERROR_FORMAT, "0.0.rows", "table any, part 0", NULL);
}
END_TEST

/* ---- going on ---- */

enum { N_STEPS = 6, N_WORKERS = 3 };

typedef struct {
    uint32_t begin, end;
} Steps;

/* Gradients that depend on what was read, so that one bit of another state shows. */
static bool learn(RubatoWorker *worker, void *user_data, GError **error)
{
    const Steps *steps = user_data;
    const RubatoKey keys[] = { 3, 77, 5000, 3 };
    float seen[4], gradients[4];

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "w", RUBATO_F32, error);
    TRY(table != NULL);
    for (uint32_t step = steps->begin; step < steps->end; step++) {
        TRY(rubato_kv_table_get(table, keys, 4, seen, error));
        for (size_t i = 0; i < 4; i++)
            gradients[i] = seen[i] - (float)(rubato_worker_rank(worker) + 1) / (float)(step + 3);
        TRY(rubato_kv_table_add(table, keys, 4, gradients, error));
        TRY(rubato_kv_table_clock(table, error));
    }
    return true;
}

static RubatoEngine *learner(uint32_t servers)
{
    RubatoEngine *engine = engine_with_servers(servers);

    create_table(engine, &(RubatoTableSpec){ .name = "w",
                                             .model = "bsp",
                                             .update = "adam",
                                             .init = "normal",
                                             .init_stddev = 1,
                                             .seed = 9 });
    return engine;
}

START_TEST(training_that_resumes_ends_with_the_same_bits)
{
    const RubatoKey keys[] = { 3, 77, 5000 };
    float expected[3], resumed[3];

    g_autoptr(RubatoEngine) first = learner(2);
    run_ok(first, N_WORKERS, learn, &(Steps){ 0, N_STEPS }, "w");
    take(first, &(RubatoSnapshotSpec){ .keep = 0 });
    run_ok(first, N_WORKERS, learn, &(Steps){ N_STEPS, 2 * N_STEPS }, "w");
    MUST(rubato_engine_get(first, "w", keys, 3, expected, &error));
    g_autoptr(RubatoEngine) second = learner(3);
    MUST(rubato_engine_restore(second, &(RubatoRestoreSpec){ .directory = directory }, NULL,
                               &error));
    run_ok(second, N_WORKERS, learn, &(Steps){ N_STEPS, 2 * N_STEPS }, "w");
    MUST(rubato_engine_get(second, "w", keys, 3, resumed, &error));
    ck_assert_mem_eq(expected, resumed, sizeof expected);
}
END_TEST

static bool fail_silently(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    (void)engine;
    (void)go;
    (void)data;
    (void)error;
    return false;
}

START_TEST(part_of_a_call_that_fails_without_an_error_fails_the_call)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(1);
    g_autoptr(GError) error = NULL;
    const CollectiveCall call = { .what = CONTROL_CALL_RESTORE,
                                  .text = "a snapshot",
                                  .detail = "of a test",
                                  .perform = fail_silently };

    ck_assert(!collective(engine, &call, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_INVALID));
    ck_assert_ptr_nonnull(strstr(error->message, "nothing said why"));
}
END_TEST

/* What builds on it could not be restored. The next one has all rows. */
START_TEST(snapshot_whose_base_is_removed_meanwhile_fails)
{
    const ThreeShapes shapes = { .parts = 2 };
    const RubatoSnapshotSpec spec = { .directory = directory, .full_every = 9 };
    g_autofree char *base = snapshot_folder_whole(directory, 1);
    g_autoptr(RubatoEngine) engine = with_tables(1, &shapes);
    g_autofree uint64_t *numbers = NULL;
    g_autoptr(GError) fault = NULL;
    size_t n;

    MUST(rubato_engine_snapshot(engine, &spec, NULL, &error));
    MUST(three_tables_fill(engine, &error));
    removed_meanwhile = base;
    ck_assert(!rubato_engine_snapshot(engine, &spec, NULL, &fault));
    removed_meanwhile = NULL;
    ck_assert(g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND));
    ck_assert_ptr_nonnull(strstr(fault->message, "snapshot 1, on which the present one builds"));
    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_eq(n, 0);
    MUST(rubato_engine_snapshot(engine, &spec, NULL, &error));
    g_autoptr(RubatoEngine) other = with_tables(2, &shapes);
    MUST(
        rubato_engine_restore(other, &(RubatoRestoreSpec){ .directory = directory }, NULL, &error));
    MUST(three_tables_check(other, &shapes, &error));
}
END_TEST

/* ---- who writes there ---- */

static void expect_writer(RubatoEngine *engine)
{
    const RubatoSnapshotSpec spec = { .directory = directory };
    g_autofree char *self = g_strdup_printf("process %ld on ", (long)getpid());
    g_autoptr(GError) error = NULL;

    ck_assert(!rubato_engine_snapshot(engine, &spec, NULL, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(strstr(error->message, "this directory has a writer already") != NULL &&
                      strstr(error->message, self) != NULL,
                  "%s", error->message);
}

/* What the other one has not finished stays. */
START_TEST(snapshot_beside_another_writer_is_refused)
{
    g_autoptr(RubatoEngine) engine = with_tables(1, &(ThreeShapes){ .parts = 1 });
    g_autofree char *writing = snapshot_folder_writing(directory, 1);
    WriterLock *const lock = writer_lock_take(directory, "takes snapshots", NULL);

    ck_assert_ptr_nonnull(lock);
    ck_assert_int_eq(g_mkdir_with_parents(writing, 0777), 0);
    expect_writer(engine);
    ck_assert(g_file_test(writing, G_FILE_TEST_IS_DIR));
    writer_lock_release(lock);
    take(engine, &(RubatoSnapshotSpec){ .note = "here" });
    ck_assert(!g_file_test(writing, G_FILE_TEST_IS_DIR)); /* nobody writes it any more */
}
END_TEST

START_TEST(owned_directory_is_for_one_engine_alone)
{
    g_autofree char *again = g_strconcat(directory, "/.", NULL); /* the same one */
    RubatoEngine *owner = with_tables(1, &(ThreeShapes){ .parts = 1 });
    g_autoptr(RubatoEngine) other = with_tables(1, &(ThreeShapes){ .parts = 1 });

    MUST(rubato_engine_own_snapshots(owner, directory, &error));
    MUST(rubato_engine_own_snapshots(owner, again, &error));
    ck_assert(!rubato_engine_own_snapshots(other, directory, NULL));
    take(owner, &(RubatoSnapshotSpec){ .note = "here" });
    MUST(rubato_engine_snapshot(owner, &(RubatoSnapshotSpec){ .directory = again }, NULL, &error));
    expect_writer(other);
    rubato_engine_free(owner);
    take(other, &(RubatoSnapshotSpec){ .note = "here" });
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshots of an engine");
    TCase *cases = tcase_create("snapshots");

    tcase_set_timeout(cases, 20);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, tables_come_back_on_other_servers_and_of_other_shapes, 0,
                        G_N_ELEMENTS(places));
    tcase_add_test(cases, values_alone_come_back_with_the_state_of_new_rows);
    tcase_add_test(cases, whole_numbers_come_back_wider);
    tcase_add_test(cases, rows_of_more_than_a_block_come_back);
    tcase_add_test(cases, snapshot_whose_base_is_removed_meanwhile_fails);
    tcase_add_test(cases, snapshot_beside_another_writer_is_refused);
    tcase_add_test(cases, owned_directory_is_for_one_engine_alone);
    tcase_add_test(cases, note_and_tables_are_told_without_an_engine);
    tcase_add_test(cases, newest_snapshots_stay_and_their_numbers_ascend);
    tcase_add_test(cases, old_answers_to_requests_go);
    tcase_add_loop_test(cases, table_that_does_not_fit_is_refused_with_both_shapes, 0,
                        G_N_ELEMENTS(misfits));
    tcase_add_test(cases, calls_that_make_no_sense_are_refused);
    tcase_add_test(cases, nothing_is_restored_while_a_task_runs);
    tcase_add_loop_test(cases, damaged_snapshot_is_passed_over_and_changes_no_row, 0, 2);
    tcase_add_test(cases, part_of_a_call_that_fails_without_an_error_fails_the_call);
    tcase_add_test(cases, training_that_resumes_ends_with_the_same_bits);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
