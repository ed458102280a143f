/* Snapshots that a task takes by itself: by time, by clocks, and when somebody asks from
 * outside. */
#include <check.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/engine_private.h"
#include "engine/snapshot/snapshot_cut.h"
#include "tests/support/engine/engine_fixture.h"
#include "tests/support/runner.h"
#include "tests/support/store/small_snapshot.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

static char *directory;

static void set_up(void)
{
    directory = g_dir_make_tmp("rubato-task-XXXXXX", NULL);
}

static void tear_down(void)
{
    remove_tree(directory);
    g_free(directory);
}

typedef struct {
    _Atomic bool has_asked; /* somebody from outside has an answer */
    bool asks;
    bool gets; /* so that no worker is more than a clock ahead of the other */
    uint64_t asked_number;
    GError *asked_error;
} Job;

static size_t count_snapshots(void)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n = 0;

    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    return n;
}

/* Adds 1 and clocks, until there are two snapshots, or who asks has an answer. */
static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    const Job *const job = user_data;
    const RubatoKey key = 3;
    const int64_t one = 1;
    int64_t value;

    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "n", RUBATO_I64, error);
    if (table == NULL)
        return false;
    for (;;) {
        if (job->asks ? atomic_load(&job->has_asked) : count_snapshots() >= 2)
            return true;
        if ((job->gets && !rubato_kv_table_get(table, &key, 1, &value, error)) ||
            !rubato_kv_table_add(table, &key, 1, &one, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    }
}

static void *ask(void *data)
{
    Job *const job = data;

    (void)rubato_snapshot_ask(directory, G_MAXDOUBLE, &job->asked_number, &job->asked_error);
    atomic_store(&job->has_asked, true);
    return NULL;
}

static RubatoEngine *with_table(void)
{
    RubatoEngine *const engine = engine_with_servers(2);

    create_table(engine, &(RubatoTableSpec){
                             .name = "n", .dtype = RUBATO_I64, .n_keys = 9, .model = "bsp" });
    create_table(engine, &(RubatoTableSpec){ .name = "other", .n_keys = 9 });
    return engine;
}

static bool run_task(RubatoEngine *engine, Job *job, const RubatoTaskSnapshots *snapshots,
                     GError **error)
{
    static const char *const tables[] = { "n", NULL };
    const RubatoTask task = { .name = "count",
                              .run = train,
                              .user_data = job,
                              .tables = tables,
                              .workers_per_node = 2,
                              .snapshots = snapshots };

    return rubato_engine_run(engine, &task, error);
}

static bool note_value(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    (void)error;
    for (size_t i = 0; i < rows->n; i++)
        if ((rows->keys != NULL ? rows->keys[i] : rows->first + i) == 3)
            *(int64_t *)user_data = ((const int64_t *)rows->values)[i];
    return true;
}

/* It has the task's table alone, and under bsp each worker's Adds of all clocks below its own. */
static void check_cut(uint64_t number, uint64_t least_clock)
{
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, NULL);
    int64_t value = 0;

    ck_assert_ptr_nonnull(snapshot);
    ck_assert_uint_eq(rubato_snapshot_n_tables(snapshot), 1);
    const RubatoSnapshotTable *const table = rubato_snapshot_find_table(snapshot, "n");
    ck_assert_ptr_nonnull(table);
    for (uint32_t part = 0; part < table->n_parts; part++)
        ck_assert(rubato_snapshot_read_part(snapshot, "n", part, note_value, &value, NULL));
    ck_assert_int_eq(value, 2 * (int64_t)table->clock);
    ck_assert_uint_ge(table->clock, least_clock);
}

static const struct {
    double every_s;
    uint64_t every_clocks, least_clock;
} times[] = { { .every_s = 0.01 }, { .every_clocks = 5, .least_clock = 5 } };

START_TEST(snapshots_are_taken_by_time_and_by_clocks)
{
    g_autoptr(RubatoEngine) engine = with_table();
    const RubatoTaskSnapshots snapshots = { .spec = { .directory = directory },
                                            .every_s = times[_i].every_s,
                                            .every_clocks = times[_i].every_clocks };
    g_autoptr(GError) error = NULL;
    Job job = { .asks = false };

    ck_assert_msg(run_task(engine, &job, &snapshots, &error), "%s",
                  error != NULL ? error->message : "");
    check_cut(1, times[_i].least_clock);
    check_cut(2, 2 * times[_i].least_clock);
}
END_TEST

static long peak_kib(void)
{
    struct rusage usage;

    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* Memory is made ready for the copies of as many rows as there are: without a bound it would be
 * half of what copies may take, 32 MiB. Under bsp a worker that only adds runs ahead of the other
 * while the disk is slow, and its Adds that are kept until then would be counted, too. */
START_TEST(a_snapshot_of_few_rows_takes_little_memory)
{
    g_autoptr(RubatoEngine) engine = engine_with_servers(2);
    const RubatoTaskSnapshots snapshots = { .spec = { .directory = directory }, .every_s = 0.01 };
    g_autoptr(GError) error = NULL;
    Job job = { .gets = true };

    create_table(engine, &(RubatoTableSpec){
                             .name = "n", .dtype = RUBATO_I64, .storage = "hash", .model = "bsp" });
    const long before_kib = peak_kib();
    ck_assert_msg(run_task(engine, &job, &snapshots, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_int_lt(peak_kib() - before_kib, 24 << 10);
}
END_TEST

START_TEST(task_answers_who_asks_from_outside)
{
    g_autoptr(RubatoEngine) engine = with_table();
    const RubatoTaskSnapshots snapshots = { .spec = { .directory = directory } };
    g_autoptr(GError) error = NULL;
    Job job = { .asks = true };
    GThread *const asker = g_thread_new("asker", ask, &job);

    ck_assert_msg(run_task(engine, &job, &snapshots, &error), "%s",
                  error != NULL ? error->message : "");
    g_thread_join(asker);
    ck_assert_ptr_null(job.asked_error);
    ck_assert_uint_eq(job.asked_number, 1);
    ck_assert_uint_eq(count_snapshots(), 1); /* nobody else has asked */
    check_cut(1, 0);
    ck_assert(!rubato_snapshot_is_asked(directory));
}
END_TEST

/* No snapshot can get a number: a folder has the last one. */
START_TEST(failure_is_told_to_who_asks_and_the_task_goes_on)
{
    g_autoptr(RubatoEngine) engine = with_table();
    const RubatoTaskSnapshots snapshots = { .spec = { .directory = directory } };
    Job job = { .asks = true };
    g_autoptr(GError) error = NULL;
    GThread *asker;

    g_autofree char *last =
        g_strdup_printf("%s/snapshot-%" G_GUINT64_FORMAT, directory, UINT64_MAX - 1);
    ck_assert_int_eq(g_mkdir(last, 0777), 0);
    asker = g_thread_new("asker", ask, &job);
    ck_assert_msg(run_task(engine, &job, &snapshots, &error), "%s",
                  error != NULL ? error->message : "");
    g_thread_join(asker);
    ck_assert(g_error_matches(job.asked_error, RUBATO_ERROR, RUBATO_ERROR_IO));
    ck_assert_msg(strstr(job.asked_error->message, "there is no number left") != NULL, "%s",
                  job.asked_error->message);
    g_clear_error(&job.asked_error);
}
END_TEST

static bool fail_silently(RubatoEngine *engine, const Cut *cut, uint64_t seed, void *data,
                          GError **error)
{
    (void)engine, (void)cut, (void)seed, (void)data, (void)error;
    return false;
}

/* It is no snapshot. */
START_TEST(a_step_that_fails_without_an_error_fails_the_snapshot)
{
    const RubatoEngineConfig config = { .servers = 2 };
    const CutWork work = { .write = fail_silently };
    const EngineParts parts = { .snapshot_work = &work };
    const RubatoTaskSnapshots snapshots = { .spec = { .directory = directory } };
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = engine_new_of(&config, &parts, &error);
    Job job = { .asks = true };
    GThread *const asker = g_thread_new("asker", ask, &job);

    ck_assert_ptr_nonnull(engine);
    create_table(engine, &(RubatoTableSpec){
                             .name = "n", .dtype = RUBATO_I64, .n_keys = 9, .model = "bsp" });
    ck_assert_msg(run_task(engine, &job, &snapshots, &error), "%s",
                  error != NULL ? error->message : "");
    g_thread_join(asker);
    ck_assert_ptr_nonnull(job.asked_error);
    ck_assert_msg(strstr(job.asked_error->message, "nothing said why") != NULL, "%s",
                  job.asked_error->message);
    g_clear_error(&job.asked_error);
}
END_TEST

/* The call between tasks answers, too. */
START_TEST(engine_answers_who_asked)
{
    g_autoptr(RubatoEngine) engine = with_table();
    const RubatoSnapshotSpec spec = { .directory = directory };
    Job job = { .asks = true };
    GThread *const asker = g_thread_new("asker", ask, &job);
    uint64_t number;

    while (!rubato_snapshot_is_asked(directory))
        g_thread_yield();
    ck_assert(rubato_engine_snapshot(engine, &spec, &number, NULL));
    g_thread_join(asker);
    ck_assert_ptr_null(job.asked_error);
    ck_assert_uint_eq(job.asked_number, number);
}
END_TEST

/* ---- rows that change while they are written ---- */

enum { N_ROWS = 4000 };

/* Adds 1 to all rows in each call. So all rows of a cut are alike. */
static bool add_to_all(RubatoWorker *worker, void *user_data, GError **error)
{
    g_autofree int64_t *ones = g_new(int64_t, N_ROWS);

    (void)user_data;
    for (size_t i = 0; i < N_ROWS; i++)
        ones[i] = 1;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    while (table != NULL && count_snapshots() < 3)
        if (!rubato_kv_table_add_range(table, 0, N_ROWS, ones, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
    return table != NULL;
}

typedef struct {
    uint64_t n;
    int64_t low, high;
} Range;

static bool note_range(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Range *const range = user_data;

    (void)error;
    for (size_t i = 0; i < rows->n; i++) {
        range->low = MIN(range->low, ((const int64_t *)rows->values)[i]);
        range->high = MAX(range->high, ((const int64_t *)rows->values)[i]);
    }
    range->n += rows->n;
    return true;
}

/* With memory for a few rows alone, so most copies go to a file. */
START_TEST(cut_is_whole_when_copies_go_to_a_file)
{
    static const char *const tables[] = { "rows", NULL };
    const RubatoEngineConfig config = { .servers = 2 };
    const EngineParts parts = { .copies_bytes = (uint64_t)(1 + _i) << 10 };
    const RubatoTaskSnapshots snapshots = {
        .spec = { .directory = directory, .full_every = 1 + (uint32_t)_i }, .every_s = 1e-6
    };
    const RubatoTask task = { .name = "all",
                              .run = add_to_all,
                              .tables = tables,
                              .workers_per_node = 1,
                              .snapshots = &snapshots };
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = engine_new_of(&config, &parts, &error);

    ck_assert_ptr_nonnull(engine);
    create_table(engine,
                 &(RubatoTableSpec){
                     .name = "rows", .dtype = RUBATO_I64, .n_keys = N_ROWS, .model = "asp" });
    ck_assert_msg(rubato_engine_run(engine, &task, &error), "%s",
                  error != NULL ? error->message : "");
    for (uint64_t number = 1; number <= 3; number++) {
        g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, number, NULL);
        Range range = { .low = INT64_MAX, .high = INT64_MIN };

        for (uint32_t part = 0; part < 2; part++)
            ck_assert(rubato_snapshot_read_part(snapshot, "rows", part, note_range, &range, NULL));
        ck_assert_uint_eq(rubato_snapshot_base(snapshot), _i == 1 && number == 2 ? 1 : 0);
        ck_assert_uint_eq(range.n, N_ROWS);
        ck_assert_int_eq(range.low, range.high);
    }
}
END_TEST

/* The disk is full for the file of copies. */
static atomic_bool is_full;

__typeof__(pwrite) __real_pwrite, __wrap_pwrite;

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    if (!atomic_load(&is_full))
        return __real_pwrite(fd, bytes, n, offset);
    errno = ENOSPC;
    return -1;
}

/* One worker adds, the other one takes snapshots until one fails, and then another one. */
static bool take_on_a_full_disk(RubatoWorker *worker, void *ends, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = directory };
    g_autofree int64_t *ones = g_new0(int64_t, N_ROWS);
    g_autoptr(GError) fault = NULL;
    uint64_t number;

    if (rubato_worker_rank(worker) == 0) {
        while (rubato_worker_snapshot(worker, &spec, &number, &fault))
            continue;
        atomic_store(&is_full, false);
        ck_assert_msg(g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_IO) &&
                          strstr(fault->message, "could not be written to the disk: ") != NULL &&
                          strstr(fault->message, directory) != NULL &&
                          g_str_has_suffix(fault->message, g_strerror(ENOSPC)),
                      "%s", fault->message);
        const bool ok = rubato_worker_snapshot(worker, &spec, &number, error);
        atomic_store((atomic_bool *)ends, true);
        return ok;
    }
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_I64, error);
    while (table != NULL && !atomic_load((atomic_bool *)ends))
        if (!rubato_kv_table_add_range(table, 0, N_ROWS, ones, error))
            return false;
    return table != NULL;
}

START_TEST(disk_that_takes_no_copies_is_named)
{
    static const char *const tables[] = { "rows", NULL };
    const RubatoEngineConfig config = { .servers = 1 };
    const EngineParts parts = { .copies_bytes = 1024 };
    atomic_bool ends = false;
    const RubatoTask task = { .name = "full",
                              .run = take_on_a_full_disk,
                              .user_data = &ends,
                              .tables = tables,
                              .workers_per_node = 2 };
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = engine_new_of(&config, &parts, &error);

    atomic_store(&is_full, true);
    ck_assert_ptr_nonnull(engine);
    create_table(engine,
                 &(RubatoTableSpec){
                     .name = "rows", .dtype = RUBATO_I64, .n_keys = N_ROWS, .model = "asp" });
    ck_assert_msg(rubato_engine_run(engine, &task, &error), "%s",
                  error != NULL ? error->message : "");
}
END_TEST

/* ---- memory ---- */

enum { N_WIDE_ROWS = 1400, WIDE = 16384 }; /* 92 MB */

/* What a snapshot may take beyond what was there: 4 bytes a row, and 64 MB. */
#define ALLOWED_BYTES (4.0 * N_WIDE_ROWS + 64e6)

/* Bytes, as a line of /proc/self/status says. */
static double memory_of(const char *line)
{
    g_autofree char *text = NULL;
    const char *at;

    ck_assert(g_file_get_contents("/proc/self/status", &text, NULL, NULL));
    at = strstr(text, line);
    ck_assert_ptr_nonnull(at);
    return 1024 * g_ascii_strtod(at + strlen(line), NULL);
}

/* Has the kernel note the most memory anew. */
static void forget_most_memory(void)
{
    FILE *const file = fopen("/proc/self/clear_refs", "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs("5", file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static bool add_to_wide(RubatoKVTable *table, const float *row, GError **error)
{
    for (RubatoKey key = 0; key < N_WIDE_ROWS; key++)
        if (!rubato_kv_table_add(table, &key, 1, row, error))
            return false;
    return rubato_kv_table_clock(table, error);
}

/* Changes all rows after the cut, faster than a disk takes them, and goes on until the snapshot is
 * whole. */
static bool change_all_rows(RubatoWorker *worker, void *user_data, GError **error)
{
    double *const grown = user_data;
    const RubatoSnapshotSpec spec = { .directory = directory };
    g_autofree float *row = g_new0(float, WIDE);
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "wide", RUBATO_F32, error);

    if (table == NULL || !add_to_wide(table, row, error)) /* now it is in memory */
        return false;
    forget_most_memory();
    const double before = memory_of("VmRSS:");
    const RubatoTicket ticket = rubato_worker_snapshot_async(worker, &spec, NULL, NULL, error);
    if (ticket == 0)
        return false;
    while (!rubato_worker_poll(worker, ticket))
        if (!add_to_wide(table, row, error))
            return false;
    *grown = memory_of("VmHWM:") - before;
    return rubato_worker_wait(worker, ticket, error);
}

START_TEST(snapshot_takes_no_more_memory_than_it_may)
{
    static const char *const tables[] = { "wide", NULL };
    double grown = 0;
    const RubatoTask task = { .name = "change",
                              .run = change_all_rows,
                              .user_data = &grown,
                              .tables = tables,
                              .workers_per_node = 1 };
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = NULL;

    if (IS_SANITIZED) /* which has memory of its own beside ours */
        return;
    engine = engine_with_servers(1);
    create_table(
        engine,
        &(RubatoTableSpec){ .name = "wide", .width = WIDE, .n_keys = N_WIDE_ROWS, .model = "asp" });
    ck_assert_msg(rubato_engine_run(engine, &task, &error), "%s",
                  error != NULL ? error->message : "");
    ck_assert_double_le(grown, ALLOWED_BYTES);
    ck_assert_double_ge(grown, ALLOWED_BYTES / 4); /* there were copies */
}
END_TEST

static const struct {
    RubatoTaskSnapshots snapshots;
    const char *text;
} wrong[] = {
    { { .spec = { .directory = "/dev/null/d" } }, "cannot be created" },
    { { .spec = { .directory = "" } }, "needs a directory" },
    { { .spec = { .directory = "d" }, .every_s = -1 }, "snapshots every -1 seconds" },
    { { .spec = { .directory = "d", .again_after_loss = true } }, "no call waits" },
    { { .spec = { .directory = "d", .tables = (const char *const[]){ "none", NULL } } }, "none" },
};

START_TEST(task_that_says_nonsense_of_snapshots_is_refused)
{
    g_autoptr(RubatoEngine) engine = with_table();
    g_autoptr(GError) error = NULL;
    Job job = { .asks = false };

    ck_assert(!run_task(engine, &job, &wrong[_i].snapshots, &error));
    ck_assert_msg(strstr(error->message, wrong[_i].text) != NULL, "%s", error->message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshots of tasks");
    TCase *cases = tcase_create("tasks");

    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, snapshots_are_taken_by_time_and_by_clocks, 0, G_N_ELEMENTS(times));
    tcase_add_test(cases, a_snapshot_of_few_rows_takes_little_memory);
    tcase_add_test(cases, task_answers_who_asks_from_outside);
    tcase_add_test(cases, failure_is_told_to_who_asks_and_the_task_goes_on);
    tcase_add_test(cases, a_step_that_fails_without_an_error_fails_the_snapshot);
    tcase_add_test(cases, engine_answers_who_asked);
    tcase_add_loop_test(cases, cut_is_whole_when_copies_go_to_a_file, 0, 2);
    tcase_add_test(cases, disk_that_takes_no_copies_is_named);
    tcase_add_test(cases, snapshot_takes_no_more_memory_than_it_may);
    tcase_add_loop_test(cases, task_that_says_nonsense_of_snapshots_is_refused, 0,
                        G_N_ELEMENTS(wrong));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
