#include "tests/support/engine/counted_increments.h"

#include <check.h>
#include <rubato/mix.h>
#include <rubato/rubato.h>
#include <stdatomic.h>

#include "tests/support/engine/engine_fixture.h"
#include "tests/support/store/small_snapshot.h"

enum { N_KEYS = 8000, N_WORKERS = 4, N_AT_ONCE = 50, PAUSE_US = 300 };

typedef struct {
    const CountedIncrements *how;
    const char *directory;
    int64_t end_us;
    _Atomic bool ends; /* it is so late, and there are as many snapshots as there must be */
} Job;

/* Now and then, because the directory is read. */
static void look(Job *job, int64_t *look_us)
{
    const int64_t now_us = g_get_monotonic_time();
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (now_us < *look_us)
        return;
    *look_us = now_us + 50 * 1000;
    if (now_us >= job->end_us && rubato_snapshot_list(job->directory, &numbers, &n, NULL))
        atomic_store(&job->ends, n >= job->how->least);
}

/* In each step as many Adds as it counts. Keys of the hash table come again and again, and new ones
 * all the time. */
static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *const job = user_data;
    int64_t look_us = 0;
    const RubatoKey rank = rubato_worker_rank(worker);
    const int64_t n_added = 2 * N_AT_ONCE;
    int64_t ones[N_AT_ONCE];
    uint64_t state = rank + 1;
    g_autoptr(RubatoKVTable) range =
        rubato_worker_open_kv_table(worker, "range", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) any = rubato_worker_open_kv_table(worker, "any", RUBATO_I64, error);
    g_autoptr(RubatoKVTable) counts =
        rubato_worker_open_kv_table(worker, "counts", RUBATO_I64, error);

    TRY(range != NULL && any != NULL && counts != NULL);
    for (size_t i = 0; i < N_AT_ONCE; i++)
        ones[i] = 1;
    while (!atomic_load(&job->ends)) {
        RubatoKey keys[N_AT_ONCE];

        if (rank == 0)
            look(job, &look_us);
        state = rubato_mix64(state + 1);
        for (size_t i = 0; i < N_AT_ONCE; i++)
            keys[i] = state % (N_KEYS - N_AT_ONCE) + i;
        TRY(rubato_worker_begin_step(worker, error));
        TRY(rubato_kv_table_add(range, keys, N_AT_ONCE, ones, error));
        for (size_t i = 0; i < N_AT_ONCE; i++)
            keys[i] = rubato_mix64(keys[i] + (state >> 62) * N_KEYS);
        TRY(rubato_kv_table_add(any, keys, N_AT_ONCE, ones, error));
        TRY(rubato_kv_table_add(counts, &rank, 1, &n_added, error));
        TRY(rubato_worker_end_step(worker, error));
        g_usleep(PAUSE_US); /* under a sanitizer, servers would do nothing else */
    }
    return true;
}

static RubatoEngine *with_tables(uint32_t servers)
{
    RubatoEngine *const engine = engine_with_servers(servers);

    create_table(engine,
                 &(RubatoTableSpec){ .name = "range", .dtype = RUBATO_I64, .n_keys = N_KEYS });
    create_table(engine,
                 &(RubatoTableSpec){ .name = "any", .dtype = RUBATO_I64, .storage = "hash" });
    create_table(engine,
                 &(RubatoTableSpec){ .name = "counts", .dtype = RUBATO_I64, .n_keys = N_WORKERS });
    return engine;
}

typedef struct {
    int64_t sum;
    uint64_t digest; /* of all rows, in any order */
} Sum;

static bool add_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Sum *const sum = user_data;

    (void)error;
    for (size_t i = 0; i < rows->n; i++) {
        const RubatoKey key = rows->keys != NULL ? rows->keys[i] : rows->first + i;
        const int64_t value = ((const int64_t *)rows->values)[i];

        sum->sum += value;
        if (value != 0)
            sum->digest += rubato_mix64(key ^ rubato_mix64((uint64_t)value));
    }
    return true;
}

static Sum sum_table(const RubatoSnapshot *snapshot, const char *name)
{
    const RubatoSnapshotTable *const table = rubato_snapshot_find_table(snapshot, name);
    Sum sum = { 0 };

    ck_assert_ptr_nonnull(table);
    for (uint32_t part = 0; part < table->n_parts; part++) {
        g_autoptr(GError) error = NULL;

        ck_assert_msg(rubato_snapshot_read_part(snapshot, name, part, add_rows, &sum, &error), "%s",
                      error != NULL ? error->message : "");
    }
    return sum;
}

/* On other servers; then a snapshot of it has the same rows. */
static void check_restored(const Job *job, uint64_t number, const Sum *range, const Sum *any)
{
    g_autofree char *again = g_dir_make_tmp("rubato-again-XXXXXX", NULL);
    g_autoptr(RubatoEngine) engine = with_tables(1 + (uint32_t)number % 7);
    g_autoptr(RubatoSnapshot) snapshot = NULL;
    g_autoptr(GError) error = NULL;

    ck_assert_msg(rubato_engine_restore(
                      engine, &(RubatoRestoreSpec){ .directory = job->directory, .number = number },
                      NULL, &error) &&
                      rubato_engine_snapshot(engine, &(RubatoSnapshotSpec){ .directory = again },
                                             NULL, &error),
                  "%s", error != NULL ? error->message : "");
    snapshot = rubato_snapshot_open(again, 0, NULL);
    ck_assert_ptr_nonnull(snapshot);
    ck_assert_uint_eq(sum_table(snapshot, "range").digest, range->digest);
    ck_assert_uint_eq(sum_table(snapshot, "any").digest, any->digest);
    remove_tree(again);
}

static void check_one(const Job *job, uint64_t number, bool restores)
{
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(job->directory, number, NULL);

    ck_assert_ptr_nonnull(snapshot);
    const Sum range = sum_table(snapshot, "range"), any = sum_table(snapshot, "any");
    const Sum counts = sum_table(snapshot, "counts");

    ck_assert_msg(range.sum + any.sum == counts.sum,
                  "snapshot %" G_GUINT64_FORMAT " has %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT,
                  number, range.sum + any.sum, counts.sum);
    ck_assert_int_eq(range.sum, any.sum);
    if (restores)
        check_restored(job, number, &range, &any);
}

void counted_increments_check(const CountedIncrements *how)
{
    static const char *const tables[] = { "range", "any", "counts", NULL };
    g_autofree char *directory = g_dir_make_tmp("rubato-increments-XXXXXX", NULL);
    const RubatoTaskSnapshots snapshots = {
        .spec = { .directory = directory, .full_every = how->full_every }, .every_s = how->every_s
    };
    Job job = { .how = how,
                .directory = directory,
                .end_us = g_get_monotonic_time() + (int64_t)(how->seconds * G_USEC_PER_SEC) };
    const RubatoTask task = { .name = "train",
                              .run = train,
                              .user_data = &job,
                              .tables = tables,
                              .workers_per_node = N_WORKERS,
                              .snapshots = &snapshots };
    g_autoptr(RubatoEngine) engine = with_tables(2);
    g_autofree uint64_t *numbers = NULL;
    uint32_t n_increments = 0;
    size_t n;

    run_task_ok(engine, &task);
    ck_assert(rubato_snapshot_list(directory, &numbers, &n, NULL));
    ck_assert_uint_ge(n, how->least);
    for (size_t i = 0; i < n; i++) {
        g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(directory, numbers[i], NULL);

        n_increments += snapshot != NULL && rubato_snapshot_base(snapshot) > 0;
        check_one(&job, numbers[i], i % how->restore_every == 0 || i + 1 == n);
    }
    ck_assert_uint_gt(n_increments, 0);
    remove_tree(directory);
}
