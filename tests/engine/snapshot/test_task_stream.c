/* What streams out of a task: versions by time and by clocks, the last one, and what becomes of the
 * stream when a writer is killed, a version fails, or another run streams into the same
 * directory. */
#include <check.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "io/store/writer_lock.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

enum {
    N_WORKERS = 2,
    N_KEYS = 9,
    KEY = 3,
    N_ROUNDS = 60,
    BOUND = 2 << 20, /* bytes: about half of the new rows */
    N_NEW = 150000,
    N_AT_ONCE = 1000,
};

static char *directory, *uri, *saved;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-stream-XXXXXX", NULL);
    saved = g_build_filename(directory, "saved", NULL);
    uri = g_strconcat("file:", directory, NULL);
}

static void tear_down(void)
{
    remove_tree(saved);
    remove_tree(directory);
    g_free(directory);
    g_free(saved);
    g_free(uri);
}

/* ---- what the disk is waited for ---- */

/* The linker puts these in the place of the calls. */
__typeof__(fsync) __real_fsync, __wrap_fsync;
__typeof__(syncfs) __real_syncfs, __wrap_syncfs;

static _Atomic unsigned n_fsyncs, n_syncfs;

int __wrap_fsync(int fd)
{
    atomic_fetch_add(&n_fsyncs, 1);
    return __real_fsync(fd);
}

int __wrap_syncfs(int fd)
{
    atomic_fetch_add(&n_syncfs, 1);
    return __real_syncfs(fd);
}

/* ---- what is in a directory ---- */

static size_t count_versions(const char *path)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n = 0;

    ck_assert(rubato_snapshot_list(path, &numbers, &n, NULL));
    return n;
}

typedef struct {
    RubatoKey key;
    int64_t value;
} Wanted;

static bool note_value(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Wanted *const wanted = user_data;

    (void)error;
    for (size_t i = 0; i < rows->n; i++)
        if ((rows->keys != NULL ? rows->keys[i] : rows->first + i) == wanted->key)
            wanted->value = ((const int64_t *)rows->values)[i];
    return true;
}

static int64_t read_version(const char *path, uint64_t number, RubatoKey key)
{
    g_autoptr(RubatoSnapshot) version = rubato_snapshot_open(path, number, NULL);
    Wanted wanted = { .key = key };

    ck_assert_ptr_nonnull(version);
    const RubatoSnapshotTable *const table = rubato_snapshot_find_table(version, "n");
    ck_assert_ptr_nonnull(table);
    for (uint32_t part = 0; part < table->n_parts; part++)
        ck_assert(rubato_snapshot_read_part(version, "n", part, note_value, &wanted, NULL));
    return wanted.value;
}

static uint64_t base_of(const char *path, uint64_t number)
{
    g_autoptr(RubatoSnapshot) version = rubato_snapshot_open(path, number, NULL);

    ck_assert_ptr_nonnull(version);
    return rubato_snapshot_base(version);
}

/* ---- tasks ---- */

typedef struct {
    RubatoKey key;
    const char *until; /* there are three versions in this directory, and in the other one */
    const char *and;   /* NULL: none */
} Job;

static bool goes_on(const Job *job)
{
    return job->until != NULL &&
           (count_versions(job->until) < 3 || (job->and != NULL && count_versions(job->and) < 3));
}

/* Adds 1 and clocks, at least once. */
static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const int64_t one = 1;
    bool ok;

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "n", RUBATO_I64, error);
    if (table == NULL)
        return false;
    do
        ok = rubato_kv_table_add(table, &job->key, 1, &one, error) &&
             rubato_kv_table_clock(table, error);
    while (ok && goes_on(job));
    return ok;
}

static const char *const tables[] = { "n", NULL };

static RubatoTask make_task(Job *job, const RubatoTaskStream *stream)
{
    return (RubatoTask){ .name = "count",
                         .run = train,
                         .user_data = job,
                         .tables = tables,
                         .workers_per_node = N_WORKERS,
                         .stream = stream };
}

static RubatoEngine *with_table(const char *storage)
{
    RubatoEngine *const engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){ .name = "n",
                                             .dtype = RUBATO_I64,
                                             .storage = storage,
                                             .n_keys = storage == NULL ? N_KEYS : 0,
                                             .model = "bsp" });
    return engine;
}

static void run_once(RubatoEngine *engine, RubatoKey key)
{
    const RubatoTaskStream stream = { .uri = uri };
    Job job = { .key = key };
    const RubatoTask task = make_task(&job, &stream);

    run_task_ok(engine, &task);
}

/* ---- the cases ---- */

static const struct {
    const char *storage;
    double every_s;
    uint64_t every_clocks;
} times[] = { { NULL, .every_s = 0.01 },
              { NULL, .every_clocks = 5 },
              { "hash", .every_s = 0.01 },
              { "hash", .every_s = 0.01, .every_clocks = 1 } };

/* The first one has all rows, each of the others builds on the one before, and the last one has all
 * that was added. */
START_TEST(versions_flow_out_and_the_last_one_has_everything)
{
    g_autoptr(RubatoEngine) engine = with_table(times[_i].storage);
    const RubatoTaskStream stream = { .uri = uri,
                                      .every_s = times[_i].every_s,
                                      .every_clocks = times[_i].every_clocks,
                                      .keep = 1000,
                                      .full_every = 1000 };
    Job job = { .key = KEY, .until = directory };
    const RubatoTask task = make_task(&job, &stream);
    int64_t before = 0;
    size_t n;

    run_task_ok(engine, &task);
    n = count_versions(directory);
    ck_assert_uint_ge(n, 4);
    for (uint64_t number = 1; number <= n; number++) {
        const int64_t value = read_version(directory, number, KEY);

        ck_assert_uint_eq(base_of(directory, number), number - 1);
        ck_assert_int_ge(value, before);
        before = value;
    }
    ck_assert_int_eq(before, read_i64(engine, "n", KEY));
    /* Of the first one: its two parts, the folder before and after the manifest, that, and the
     * directory. Of the others when all are there. */
    ck_assert_uint_eq(n_fsyncs, 2 + 4);
    ck_assert_uint_eq(n_syncfs, 1);
}
END_TEST

START_TEST(task_without_times_streams_a_version_when_it_has_ended)
{
    g_autoptr(RubatoEngine) engine = with_table("hash");

    for (int i = 1; i <= 3; i++) {
        run_once(engine, (RubatoKey)i);
        ck_assert_uint_eq(count_versions(directory), (unsigned)i);
        ck_assert_int_eq(read_version(directory, (uint64_t)i, (RubatoKey)i), N_WORKERS);
        ck_assert_uint_eq(base_of(directory, (uint64_t)i), (uint64_t)i - 1);
    }
}
END_TEST

static bool fail_task(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "it fails");
    return false;
}

START_TEST(task_that_fails_streams_no_last_version)
{
    g_autoptr(RubatoEngine) engine = with_table(NULL);
    const RubatoTaskStream stream = { .uri = uri };
    RubatoTask task = make_task(NULL, &stream);

    task.run = fail_task;
    run_fails(engine, &task, RUBATO_ERROR_TASK_FAILED, "it fails", NULL);
    ck_assert_uint_eq(count_versions(directory), 0);
}
END_TEST

/* Each has its own notes of what changed: neither takes all rows because of the other. */
START_TEST(snapshots_and_a_stream_build_on_their_own_kind)
{
    g_autoptr(RubatoEngine) engine = with_table("hash");
    const RubatoTaskStream stream = { .uri = uri, .every_clocks = 1, .keep = 1000 };
    const RubatoTaskSnapshots snapshots = { .spec = { .directory = saved, .full_every = 1000 },
                                            .every_clocks = 1 };
    Job job = { .key = KEY, .until = directory, .and = saved };
    RubatoTask task = make_task(&job, &stream);

    task.snapshots = &snapshots;
    run_task_ok(engine, &task);
    for (uint64_t number = 2; number <= 3; number++) {
        ck_assert_uint_eq(base_of(directory, number), number - 1);
        ck_assert_uint_eq(base_of(saved, number), number - 1);
        ck_assert_int_ge(read_version(saved, number, KEY), read_version(saved, number - 1, KEY));
    }
    ck_assert_int_eq(read_version(directory, 0, KEY), read_i64(engine, "n", KEY));
}
END_TEST

START_TEST(old_versions_go_and_those_that_are_needed_stay)
{
    g_autoptr(RubatoEngine) engine = with_table(NULL);
    const RubatoTaskStream stream = { .uri = uri, .full_every = 3, .keep = 2 };
    Job job = { .key = KEY };
    const RubatoTask task = make_task(&job, &stream);
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    for (int i = 0; i < 7; i++) /* 1, 4 and 7 have all rows */
        run_task_ok(engine, &task);
    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(numbers[0], 4);
    ck_assert_uint_eq(base_of(directory, 6), 5);
    ck_assert_uint_eq(base_of(directory, 7), 0);
}
END_TEST

/* Another run begins with all rows, since nobody knows what changed in between. */
START_TEST(run_goes_on_where_a_killed_writer_left_the_stream)
{
    g_autofree char *torn = g_build_filename(directory, ".writing-0000000000000001", NULL);
    g_autofree char *part = g_build_filename(torn, "0.0.rows", NULL);
    RubatoEngine *engine = with_table(NULL);

    run_once(engine, KEY);
    run_once(engine, KEY);
    rubato_engine_free(engine);
    ck_assert_int_eq(g_mkdir(torn, 0777), 0);
    ck_assert(g_file_set_contents(part, "half of it", -1, NULL));
    engine = with_table(NULL);
    run_once(engine, KEY + 1);
    ck_assert(!g_file_test(torn, G_FILE_TEST_EXISTS));
    ck_assert_uint_eq(count_versions(directory), 3);
    ck_assert_uint_eq(base_of(directory, 3), 0);
    ck_assert_int_eq(read_version(directory, 3, KEY), 0);
    ck_assert_int_eq(read_version(directory, 3, KEY + 1), N_WORKERS);
    rubato_engine_free(engine);
}
END_TEST

/* No version can get a number: a folder has the last one. */
START_TEST(version_after_one_that_failed_has_the_changes_of_both)
{
    g_autofree char *last =
        g_strdup_printf("%s/snapshot-%" G_GUINT64_FORMAT, directory, UINT64_MAX - 1);
    g_autoptr(RubatoEngine) engine = with_table("hash");
    RubatoEngineStats stats;

    run_once(engine, 1);
    ck_assert_int_eq(g_mkdir(last, 0777), 0);
    log_capture_start();
    run_once(engine, 2);
    ck_assert_uint_eq(log_capture_count("has ended without the last version of its stream"), 1);
    ck_assert_uint_eq(count_versions(directory), 1);
    remove_tree(last);
    run_once(engine, 3);
    rubato_engine_stats(engine, &stats);
    ck_assert_uint_eq(stats.missed_versions, 1);
    ck_assert_uint_eq(base_of(directory, 2), 1);
    for (RubatoKey key = 1; key <= 3; key++)
        ck_assert_int_eq(read_version(directory, 2, key), N_WORKERS);
}
END_TEST

/* The system refuses all that is longer than a byte, as a full disk does. The task ends well, the
 * log says what is missing, and the stream goes on when there is room again. */
START_TEST(full_disk_stops_the_stream_and_not_the_task)
{
    g_autoptr(RubatoEngine) engine = with_table("hash");
    struct rlimit usual;

    run_once(engine, 1);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ .rlim_cur = 1, .rlim_max = usual.rlim_max }), 0);
    log_capture_start();
    run_once(engine, 2);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
    ck_assert_uint_eq(log_capture_count("has ended without the last version of its stream"), 1);
    ck_assert_uint_eq(count_versions(directory), 1);
    run_once(engine, 3);
    ck_assert_uint_eq(count_versions(directory), 2);
    for (RubatoKey key = 1; key <= 3; key++)
        ck_assert_int_eq(read_version(directory, 2, key), N_WORKERS);
}
END_TEST

START_TEST(second_writer_is_refused)
{
    g_autoptr(RubatoEngine) engine = with_table(NULL);
    const RubatoTaskStream stream = { .uri = uri };
    Job job = { .key = KEY };
    const RubatoTask task = make_task(&job, &stream);
    g_autofree char *self = g_strdup_printf("process %ld on ", (long)getpid());
    WriterLock *const lock = writer_lock_take(directory, "streams", NULL);

    ck_assert_ptr_nonnull(lock);
    run_fails(engine, &task, RUBATO_ERROR_IO, "this directory has a writer already", self, NULL);
    ck_assert_uint_eq(count_versions(directory), 0);
    writer_lock_release(lock);
    run_once(engine, KEY);
    ck_assert_uint_eq(count_versions(directory), 1);
}
END_TEST

/* ---- tables that can have no images: nobody changes them while a version is written ---- */

static const RubatoTableSpec without_images[] = {
    { .name = "other", .dtype = RUBATO_I64, .shape = RUBATO_SHAPE_RAGGED, .storage = "hash" },
    { .name = "other", .dtype = RUBATO_I64, .shape = RUBATO_SHAPE_RAGGED, .n_keys = N_WORKERS },
    { .name = "other", .dtype = RUBATO_I64, .storage = "hash", .max_bytes = 64 << 20 },
    { .name = "other",
      .dtype = RUBATO_I64,
      .storage = "hash",
      .expire = "seconds",
      .expire_after = 3600 },
};

typedef struct {
    const RubatoTableSpec *other;
    bool goes_on; /* until there are three versions */
} Pair;

/* The count of a row of different lengths is its length. */
static bool count_on(RubatoWorker *worker, const Pair *pair, RubatoKVTable *n, GError **error)
{
    const RubatoKey key = rubato_worker_rank(worker);
    const int64_t one = 1;
    const uint32_t length = 1;
    const bool is_ragged = pair->other->shape == RUBATO_SHAPE_RAGGED;
    g_autoptr(RubatoRaggedTable) lists =
        is_ragged ? rubato_worker_open_ragged_table(worker, "other", RUBATO_I64, error) : NULL;
    g_autoptr(RubatoKVTable) rows =
        is_ragged ? NULL : rubato_worker_open_kv_table(worker, "other", RUBATO_I64, error);
    bool ok = lists != NULL || rows != NULL;

    for (int i = 0; ok && (i < N_ROUNDS || count_versions(directory) < 3); i++)
        ok = rubato_worker_begin_step(worker, error) &&
             rubato_kv_table_add(n, &key, 1, &one, error) &&
             (is_ragged ? rubato_ragged_table_append(lists, &key, 1, &length, &one, error)
                        : rubato_kv_table_add(rows, &key, 1, &one, error)) &&
             rubato_worker_end_step(worker, error);
    return ok;
}

static bool count_in_both(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) n = rubato_worker_open_kv_table(worker, "n", RUBATO_I64, error);

    return n != NULL && count_on(worker, user_data, n, error);
}

static void take_count(size_t i, const void *values, uint32_t n_values, void *user_data)
{
    int64_t *const counts = user_data;

    counts[i] = values == NULL ? 0 : n_values != 1 ? n_values : *(const int64_t *)values;
}

/* Each step is in both tables of a version, or in none. */
static void expect_cut(RubatoFollower *follower)
{
    int64_t counts[N_WORKERS], others[N_WORKERS];
    RubatoKey keys[N_WORKERS];

    for (RubatoKey key = 0; key < N_WORKERS; key++)
        keys[key] = key;
    ck_assert(rubato_follower_read(follower, "n", keys, N_WORKERS, take_count, counts, NULL, NULL));
    ck_assert(
        rubato_follower_read(follower, "other", keys, N_WORKERS, take_count, others, NULL, NULL));
    for (int i = 0; i < N_WORKERS; i++)
        ck_assert_int_eq(counts[i], others[i]);
}

START_TEST(versions_of_tables_without_images_are_cuts)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, NULL);
    const RubatoTaskStream stream = { .uri = uri, .every_s = 0.005, .keep = 10000 };
    const char *const both[] = { "n", "other", NULL };
    Pair pair = { .other = &without_images[_i] };
    const RubatoTask task = { .name = "both",
                              .run = count_in_both,
                              .user_data = &pair,
                              .tables = both,
                              .workers_per_node = N_WORKERS,
                              .stream = &stream };
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    create_table(engine, &(RubatoTableSpec){
                             .name = "n", .dtype = RUBATO_I64, .storage = "hash", .model = "asp" });
    create_table(engine, &without_images[_i]);
    run_task_ok(engine, &task);
    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_ge(n, 3);
    for (size_t i = 0; i < n; i++) {
        RubatoFollowed followed;

        if (i == 0)
            ck_assert(rubato_follower_go_to(follower, numbers[i], NULL));
        else
            ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
        expect_cut(follower);
    }
    ck_assert_uint_eq(rubato_follower_version(follower, NULL), numbers[n - 1]);
}
END_TEST

/* Rows that were evicted while the task ran are gone from the follower, too. One worker alone adds
 * without end until there are versions. */
static bool add_new_keys(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, "bounded", RUBATO_I64, error);
    bool ok = table != NULL;

    (void)user_data;
    for (uint64_t i = 0; ok && (i < N_NEW || count_versions(directory) < 3); i += N_AT_ONCE) {
        int64_t ones[N_AT_ONCE];
        RubatoKey keys[N_AT_ONCE];

        for (uint64_t j = 0; j < N_AT_ONCE; j++) {
            keys[j] = i + j;
            ones[j] = 1;
        }
        ok = rubato_kv_table_add(table, keys, N_AT_ONCE, ones, error);
    }
    return ok;
}

START_TEST(evicted_rows_leave_the_follower)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(1);
    g_autoptr(RubatoFollower) follower =
        rubato_follower_new(&(RubatoFollowerSpec){ .uri = uri }, NULL);
    const RubatoTaskStream stream = { .uri = uri, .every_s = 0.005, .keep = 10000 };
    const char *const bounded[] = { "bounded", NULL };
    const RubatoTask task = { .name = "new",
                              .run = add_new_keys,
                              .tables = bounded,
                              .workers_per_node = 1,
                              .stream = &stream };
    RubatoFollowed followed = RUBATO_FOLLOWED_NEXT;
    RubatoFollowedTable shape;
    g_autofree RubatoKey *keys = NULL;
    g_autofree int64_t *values = NULL;
    g_autofree bool *found = NULL;
    size_t n;

    create_table(engine, &(RubatoTableSpec){ .name = "bounded",
                                             .dtype = RUBATO_I64,
                                             .storage = "hash",
                                             .model = "asp",
                                             .max_bytes = BOUND });
    run_task_ok(engine, &task);
    ck_assert(rubato_follower_go_to(follower, 1, NULL));
    while (followed != RUBATO_FOLLOWED_NOTHING)
        ck_assert(rubato_follower_advance(follower, 0, &followed, NULL));
    ck_assert(rubato_engine_list_keys(engine, "bounded", &keys, &n, NULL));
    ck_assert(rubato_follower_table(follower, "bounded", &shape, NULL));
    ck_assert_uint_lt(n, N_NEW); /* some were evicted */
    ck_assert_uint_eq(shape.n_rows, n);
    values = g_new(int64_t, n);
    found = g_new(bool, n);
    ck_assert(rubato_follower_get(follower, "bounded", keys, n, values, found, NULL, NULL));
    for (size_t i = 0; i < n; i++)
        ck_assert(found[i] && values[i] == 1);
}
END_TEST

static const struct {
    RubatoTaskStream stream;
    RubatoError code;
    const char *text;
} wrong[] = {
    { { .uri = "file:/dev/null/d" }, RUBATO_ERROR_IO, "cannot be created" },
    { { .uri = "file:" }, RUBATO_ERROR_INVALID, "is named by file:DIR" },
    { { .uri = NULL }, RUBATO_ERROR_INVALID, "is named by file:DIR" },
    { { .uri = "http://host/d" }, RUBATO_ERROR_INVALID, "is named by file:DIR" },
    { { .uri = "file:d", .every_s = -1 }, RUBATO_ERROR_INVALID, "versions every -1 seconds" },
    { { .uri = "file:d", .full_every = 10000 }, RUBATO_ERROR_INVALID, "more than 9999" },
    { { .uri = "file:d", .tables = (const char *const[]){ "none", NULL } },
      RUBATO_ERROR_NOT_FOUND,
      "none" },
    { { .uri = "file:d", .tables = (const char *const[]){ "bounded", NULL } },
      RUBATO_ERROR_INVALID,
      "cannot stream while a task uses it: its Gets create rows" },
};

START_TEST(task_that_says_nonsense_of_its_stream_is_refused)
{
    g_autoptr(RubatoEngine) engine = with_table(NULL);
    Job job = { .key = KEY };
    const RubatoTask task = make_task(&job, &wrong[_i].stream);

    create_table(engine, &(RubatoTableSpec){ .name = "bounded",
                                             .storage = "hash",
                                             .max_bytes = 64 << 20,
                                             .create_on_get = true });
    run_fails(engine, &task, wrong[_i].code, wrong[_i].text, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("streams of tasks");
    TCase *cases = tcase_create("streams");

    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, versions_flow_out_and_the_last_one_has_everything, 0,
                        G_N_ELEMENTS(times));
    tcase_add_test(cases, task_without_times_streams_a_version_when_it_has_ended);
    tcase_add_test(cases, task_that_fails_streams_no_last_version);
    tcase_add_test(cases, snapshots_and_a_stream_build_on_their_own_kind);
    tcase_add_test(cases, old_versions_go_and_those_that_are_needed_stay);
    tcase_add_test(cases, run_goes_on_where_a_killed_writer_left_the_stream);
    tcase_add_test(cases, version_after_one_that_failed_has_the_changes_of_both);
    tcase_add_test(cases, full_disk_stops_the_stream_and_not_the_task);
    tcase_add_loop_test(cases, versions_of_tables_without_images_are_cuts, 0,
                        G_N_ELEMENTS(without_images));
    tcase_add_test(cases, evicted_rows_leave_the_follower);
    tcase_add_test(cases, second_writer_is_refused);
    tcase_add_loop_test(cases, task_that_says_nonsense_of_its_stream_is_refused, 0,
                        G_N_ELEMENTS(wrong));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
