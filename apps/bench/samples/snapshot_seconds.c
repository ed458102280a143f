/* Samples of snapshots that a task takes by itself: of changes every second, while a worker
 * iterates on a table of n rows of 16 f32, and touches the same tenth of them each second or more
 * often; or of all rows every five seconds, while it touches any. First it is alone, then the task
 * takes its snapshots, then a thread writes a plain file of as many bytes as often and synchronises
 * it with the disk.
 *
 * A worker cannot take a snapshot, so an engine of its own runs on a thread of its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"
#include "apps/bench/samples/snapshot_folders.h"

#include <rubato/mix.h>

enum {
    WIDTH = 16,
    N_KEYS = 100,
    ROWS_AT_ONCE = 4096,
    OF_ALL = 10, /* one row of so many is touched */
    PLAIN_BYTES = 1 << 20,
    N_SECONDS = 6, /* so many snapshots of changes should come */
    FULL_EVERY_S = 5,
    N_FULL_SECONDS = 3 * FULL_EVERY_S,
};

typedef struct {
    size_t n_rows;
    bool is_full; /* snapshots have all rows */
    const char *directory;
    BenchSample *sample;
    BenchDetails *details;

    /* the worker's */
    _Atomic uint64_t n_keys; /* that it has added to, in the present task */
    _Atomic bool ends;
    uint64_t turn; /* of its next key */

    /* what was found */
    double increment_bytes; /* the mean */
    double full_bytes;
    double longest_s;      /* between two snapshots */
    double bare_longest_s; /* between two plain files */
    double bare_s;         /* that one takes, the mean */
} Seconds;

/* ---- training ---- */

static unsigned every_s(const Seconds *seconds)
{
    return seconds->is_full ? FULL_EVERY_S : 1;
}

static unsigned count_seconds(const Seconds *seconds)
{
    return seconds->is_full ? N_FULL_SECONDS : N_SECONDS;
}

/* One row of each ten, the same all the time, in an order without a pattern; or any. */
static RubatoKey find_key(const Seconds *seconds, uint64_t turn)
{
    if (seconds->is_full)
        return rubato_mix64(turn) % seconds->n_rows;
    const uint64_t of_ten = turn * UINT64_C(2654435761) % (seconds->n_rows / OF_ALL);

    return of_ten * OF_ALL + rubato_mix64(of_ten) % OF_ALL;
}

static bool iterate_on(RubatoWorker *worker, void *user_data, GError **error)
{
    Seconds *const seconds = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "rows", RUBATO_F32, error);
    g_autofree float *rows = g_new(float, N_KEYS *WIDTH);
    RubatoKey keys[N_KEYS];

    if (table == NULL)
        return false;
    /* relaxed, both: nothing else depends on them */
    while (!atomic_load_explicit(&seconds->ends, memory_order_relaxed)) {
        for (size_t i = 0; i < N_KEYS; i++)
            keys[i] = find_key(seconds, seconds->turn++);
        if (!rubato_kv_table_get(table, keys, N_KEYS, rows, error) ||
            !rubato_kv_table_add(table, keys, N_KEYS, rows, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
        atomic_fetch_add_explicit(&seconds->n_keys, N_KEYS, memory_order_relaxed);
    }
    return true;
}

/* What is done while the worker iterates. */
typedef bool BesideFunc(Seconds *seconds, GError **error);

/* Runs a task beside the function. *rate: the keys a second of its worker. */
static bool train(RubatoEngine *engine, Seconds *seconds, const RubatoTaskSnapshots *snapshots,
                  BesideFunc *beside, double *rate, GError **error)
{
    const char *const tables[] = { "rows", NULL };
    const RubatoTask task = { .name = "load",
                              .run = iterate_on,
                              .user_data = seconds,
                              .tables = tables,
                              .workers_per_node = 1,
                              .snapshots = snapshots };
    RubatoTaskRun *run;
    double began;
    bool ok;

    /* relaxed, all: the task starts afterwards, or it is a figure */
    atomic_store_explicit(&seconds->ends, false, memory_order_relaxed);
    atomic_store_explicit(&seconds->n_keys, 0, memory_order_relaxed);
    run = rubato_engine_start(engine, &task, error);
    if (run == NULL)
        return false;
    began = bench_now();
    ok = beside(seconds, error);
    *rate = (double)atomic_load_explicit(&seconds->n_keys, memory_order_relaxed) /
            (bench_now() - began);
    atomic_store_explicit(&seconds->ends, true, memory_order_relaxed);
    return rubato_task_run_wait(run, ok ? error : NULL) && ok;
}

/* ---- what is beside it ---- */

static bool rest(Seconds *seconds, GError **error)
{
    (void)seconds;
    (void)error;
    g_usleep(G_USEC_PER_SEC);
    return true;
}

/* The task takes its snapshots. */
static bool rest_long(Seconds *seconds, GError **error)
{
    (void)error;
    g_usleep((gulong)((count_seconds(seconds) + 0.5) * G_USEC_PER_SEC));
    return true;
}

static bool write_plain(const char *path, size_t n_bytes, GError **error)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    g_autofree char *buffer = g_malloc(PLAIN_BYTES);
    bool ok = fd >= 0;

    memset(buffer, 7, PLAIN_BYTES);
    while (ok && n_bytes > 0) {
        const ssize_t n = write(fd, buffer, MIN(n_bytes, PLAIN_BYTES));

        ok = n > 0;
        n_bytes -= ok ? (size_t)n : 0;
    }
    ok = ok && fsync(fd) == 0;
    if (!ok)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: %s", path, g_strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok;
}

/* A file as often as there were snapshots, or the next one when the one before is there. */
static bool write_each_second(Seconds *seconds, GError **error)
{
    double now = bench_now(), due = now + every_s(seconds), last = 0;
    const double end = now + count_seconds(seconds) + 0.5;

    for (unsigned n = 1; due < end; n++) {
        g_autofree char *name = g_strdup_printf("plain-%u", n);
        g_autofree char *path = g_build_filename(seconds->directory, name, NULL);

        if (due > now)
            g_usleep((gulong)((due - now) * G_USEC_PER_SEC));
        const double began = bench_now();
        if (!write_plain(
                path, (size_t)(seconds->is_full ? seconds->full_bytes : seconds->increment_bytes),
                error))
            return false;
        now = bench_now();
        seconds->bare_s += (now - began - seconds->bare_s) / n;
        if (last > 0)
            seconds->bare_longest_s = MAX(seconds->bare_longest_s, now - last);
        last = now;
        const double next = due + every_s(seconds);
        due = MAX(next, now);
    }
    return true;
}

/* ---- the snapshots that have been taken ---- */

static bool look_at(Seconds *seconds, uint64_t number, int64_t *last_us, unsigned *n,
                    GError **error)
{
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(seconds->directory, number, error);

    if (snapshot == NULL)
        return false;
    const double n_bytes = (double)rubato_snapshot_find_table(snapshot, "rows")->n_bytes;
    const int64_t now_us = rubato_snapshot_time_us(snapshot);
    if (rubato_snapshot_base(snapshot) == 0) {
        seconds->full_bytes = n_bytes;
        return true;
    }
    seconds->increment_bytes += (n_bytes - seconds->increment_bytes) / ++*n;
    if (*n > 1)
        seconds->longest_s = MAX(seconds->longest_s, (double)(now_us - *last_us) / G_USEC_PER_SEC);
    *last_us = now_us;
    return true;
}

/* *n: how many were taken by the task. */
static bool look_at_all(Seconds *seconds, unsigned *n, GError **error)
{
    g_autofree uint64_t *numbers = NULL;
    int64_t last_us = 0;
    size_t n_all;

    *n = 0;
    if (!rubato_snapshot_list(seconds->directory, &numbers, &n_all, error))
        return false;
    for (size_t i = 0; i < n_all; i++)
        if (!look_at(seconds, numbers[i], &last_us, n, error))
            return false;
    if (*n > 1)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                "%u snapshots of changes have come in %d s", *n, N_SECONDS);
    return false;
}

/* ---- the sample ---- */

static bool fill(RubatoEngine *engine, size_t n_rows, GError **error)
{
    g_autofree float *rows = g_new0(float, ROWS_AT_ONCE *WIDTH);

    for (size_t first = 0; first < n_rows; first += ROWS_AT_ONCE)
        if (!rubato_engine_set_range(engine, "rows", first, MIN(ROWS_AT_ONCE, n_rows - first), rows,
                                     error))
            return false;
    return true;
}

/* With the table, all rows of which are there. (transfer full) */
static RubatoEngine *start_engine(const Seconds *seconds, GError **error)
{
    const RubatoTableSpec table = {
        .name = "rows", .width = WIDTH, .n_keys = seconds->n_rows, .model = "asp"
    };
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, error);

    if (engine == NULL || !rubato_engine_create_table(engine, &table, error) ||
        !fill(engine, seconds->n_rows, error))
        return NULL;
    return g_steal_pointer(&engine);
}

static bool measure_changes(const char *directory, void *data, GError **error)
{
    Seconds *const seconds = data;
    BenchDetails *const details = seconds->details;
    const RubatoTaskSnapshots every_second = {
        .spec = { .directory = directory, .full_every = 1000 }, .every_s = 1
    };
    double alone, beside, bare;
    unsigned n;
    g_autoptr(RubatoEngine) engine = start_engine(seconds, error);

    seconds->directory = directory;
    if (engine == NULL || !train(engine, seconds, NULL, rest, &alone, error) ||
        !rubato_engine_snapshot(engine, &every_second.spec, NULL, error) ||
        !train(engine, seconds, &every_second, rest_long, &beside, error) ||
        !look_at_all(seconds, &n, error) ||
        !train(engine, seconds, NULL, write_each_second, &bare, error))
        return false;
    seconds->sample->own = seconds->longest_s;
    seconds->sample->limit = seconds->bare_longest_s;
    bench_note_mean(details, 0, "of a full one's bytes",
                    seconds->increment_bytes / seconds->full_bytes);
    bench_note_mean(details, 1, "snapshots in 6 s", n);
    bench_note_mean(details, 2, "kept of the rate", beside / alone);
    bench_note_mean(details, 3, "beside the plain files", bare / alone);
    bench_note_mean(details, 4, "s that a plain file takes", seconds->bare_s);
    bench_note_mean(details, 5, "times all touched rows a second",
                    beside / (double)(seconds->n_rows / OF_ALL));
    return true;
}

static bool measure_full(const char *directory, void *data, GError **error)
{
    Seconds *const seconds = data;
    const RubatoTaskSnapshots snapshots = { .spec = { .directory = directory, .keep = 1 },
                                            .every_s = FULL_EVERY_S };
    double alone, beside, bare;
    g_autoptr(RubatoSnapshot) newest = NULL;
    g_autoptr(RubatoEngine) engine = start_engine(seconds, error);

    seconds->directory = directory;
    if (engine == NULL || !train(engine, seconds, NULL, rest, &alone, error) ||
        !train(engine, seconds, &snapshots, rest_long, &beside, error) ||
        (newest = rubato_snapshot_open(directory, 0, error)) == NULL)
        return false;
    seconds->full_bytes = (double)rubato_snapshot_find_table(newest, "rows")->n_bytes;
    if (!train(engine, seconds, NULL, write_each_second, &bare, error))
        return false;
    seconds->sample->own = beside;
    seconds->sample->limit = alone;
    bench_note_mean(seconds->details, 0, "snapshots in 15 s",
                    (double)rubato_snapshot_number(newest));
    bench_note_mean(seconds->details, 1, "kept of the rate", beside / alone);
    bench_note_mean(seconds->details, 2, "beside the plain files", bare / alone);
    bench_note_mean(seconds->details, 3, "s that a plain file takes", seconds->bare_s);
    return true;
}

bool sample_snapshot_each_second(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Seconds seconds = { .n_rows = n, .sample = sample, .details = bench->details };

    return snapshot_folder_use(measure_changes, &seconds, error);
}

bool sample_snapshot_full_each(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Seconds seconds = { .n_rows = n, .is_full = true, .sample = sample, .details = bench->details };

    return snapshot_folder_use(measure_full, &seconds, error);
}
