/* Samples of training while a snapshot is written: a worker iterates on a table of n rows of 16
 * f32, first alone, then while a plain file of as many bytes is written and synchronised, then
 * while the engine writes snapshots of the table. All rows are in memory before.
 *
 * For the pause a thread that only reads the clock shows what the machine does: it is the worker,
 * while the same snapshots are written again, in windows as long as they were.
 *
 * A worker cannot take a snapshot, so an engine of its own runs on a thread of its own. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"
#include "apps/bench/samples/snapshot_bare.h"
#include "apps/bench/samples/snapshot_folders.h"

#include <rubato/mix.h>

enum {
    WIDTH = 16,
    N_KEYS = 100,
    ROWS_AT_ONCE = 4096,
    MOST_TIMES = 1 << 20, /* iterations of a phase whose times are kept */
    PLAIN_BYTES = 1 << 20,
    MOST_WINDOWS = 256, /* of a phase whose longest iterations are kept */
};

/* A window of a phase without snapshots: about as long as one takes. Each snapshot is a window. */
#define WINDOW_S 0.05

/* A longer iteration is one that a snapshot must not cause. */
#define LONG_S 0.001

/* How long it iterates alone, and at least while files are written. */
#define PHASE_S 0.4

/* What a snapshot may take of memory: bytes for each row, and beside them. */
#define ALLOWED_BY_ROW 4
#define ALLOWED_BYTES (64 << 20)

typedef enum {
    PHASE_ALONE,
    PHASE_PLAIN,
    PHASE_WRITING,
    PHASE_BARE, /* if the load has it: snapshots are written, and the worker reads the clock */
    PHASE_END,
} Phase;

typedef struct {
    uint64_t n; /* iterations */
    double seconds;
    float *times; /* of the first MOST_TIMES */

    /* the longest iteration of each window */
    uint64_t window; /* the number of the present one */
    double worst[MOST_WINDOWS];
    double worst_used[MOST_WINDOWS]; /* the most processor time of one */
    size_t n_windows;
} Iterations;

typedef double (*ClockFunc)(void);

typedef struct {
    size_t n_rows;
    ClockFunc now; /* by which iterations are measured */
    char *directory;
    _Atomic bool has_begun;
    _Atomic Phase phase;
    _Atomic uint64_t n_snapshots;

    bool has_bare;            /* there is PHASE_BARE, and it is noted what iterations use */
    uint64_t n_long, n_slept; /* iterations beside snapshots above LONG_S; in which it slept */
    /* set before PHASE_BARE */
    double bare_from;
    double bare_window_s;
    uint64_t n_bare_windows;

    Iterations iterations[PHASE_END];
    double memory; /* the most bytes in memory while snapshots were written, beyond those before */
    GError *error;
} Load;

/* seconds, used: of an iteration, which took so long, and so much processor time. */
static void count_in_window(Iterations *iterations, uint64_t window, double seconds, double used)
{
    if (iterations->n_windows == 0 || window != iterations->window) {
        if (iterations->n_windows == MOST_WINDOWS)
            return;
        iterations->window = window;
        iterations->worst_used[iterations->n_windows] = 0;
        iterations->worst[iterations->n_windows++] = 0;
    }
    double *const worst = &iterations->worst[iterations->n_windows - 1];
    double *const worst_used = &iterations->worst_used[iterations->n_windows - 1];

    *worst = MAX(*worst, seconds);
    *worst_used = MAX(*worst_used, used);
}

static void count(Iterations *iterations, double seconds)
{
    if (iterations->n < MOST_TIMES)
        iterations->times[iterations->n] = (float)seconds;
    iterations->n++;
    iterations->seconds += seconds;
}

/* Processor time of this thread: without what it waits, and what others do meanwhile. */
static double processor_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What this thread has used and how often it has slept. */
typedef struct {
    double processor;
    long n_sleeps;
} Used;

static Used used_now(void)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_THREAD, &usage);
    return (Used){ processor_now(), usage.ru_nvcsw };
}

/* Notes what the thread used in an iteration of so many seconds, and returns its processor time.
 * If that is much less than the iteration took, and the thread has not slept, it could have run and
 * had no processor. */
static double note_used(Load *load, Phase phase, Used *last, double seconds)
{
    const Used before = *last;

    *last = used_now();
    if (phase == PHASE_WRITING && seconds > LONG_S) {
        load->n_long++;
        load->n_slept += last->n_sleeps != before.n_sleeps ? 1 : 0;
    }
    return last->processor - before.processor;
}

static uint64_t find_window(const Load *load, Phase phase, double now)
{
    switch (phase) {
    case PHASE_WRITING:
        return atomic_load_explicit(&load->n_snapshots, memory_order_relaxed); /* see above */
    case PHASE_BARE: /* what follows the last window counts for it */
        return MIN((uint64_t)((now - load->bare_from) / load->bare_window_s),
                   load->n_bare_windows - 1);
    default:
        return (uint64_t)(now / WINDOW_S);
    }
}

static bool iterate_once(const Load *load, RubatoKVTable *table, float *rows, uint64_t *number,
                         GError **error)
{
    RubatoKey keys[N_KEYS];

    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = rubato_mix64((*number)++) % load->n_rows;
    return rubato_kv_table_get(table, keys, N_KEYS, rows, error) &&
           rubato_kv_table_add(table, keys, N_KEYS, rows, error) &&
           rubato_kv_table_clock(table, error);
}

/* An iteration that begins in one phase and ends in the next counts for the next. */
static bool iterate_on(RubatoWorker *worker, void *user_data, GError **error)
{
    Load *load = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "load", RUBATO_F32, error);
    g_autofree float *rows = g_new(float, N_KEYS *WIDTH);
    uint64_t number = 0;
    double before = load->now();
    Used used = used_now();
    Phase phase = PHASE_ALONE;

    /* relaxed: the other thread only waits for it */
    atomic_store_explicit(&load->has_begun, true, memory_order_relaxed);
    if (table == NULL)
        return false;
    for (;;) {
        if (phase != PHASE_BARE && !iterate_once(load, table, rows, &number, error))
            return false;
        /* acquire: as in enter. The task's end orders what was counted */
        phase = atomic_load_explicit(&load->phase, memory_order_acquire);
        const double now = load->now(), seconds = now - before;

        if (phase == PHASE_END)
            return true;
        count(&load->iterations[phase], seconds);
        count_in_window(&load->iterations[phase], find_window(load, phase, now), seconds,
                        load->has_bare ? note_used(load, phase, &used, seconds) : 0);
        before = now;
    }
}

static void enter(Load *load, Phase phase)
{
    /* release: who sees it sees what the phase needs */
    atomic_store_explicit(&load->phase, phase, memory_order_release);
}

/* A row of /proc/self/status, in bytes; 0: there is none. */
static double memory_of(const char *name)
{
    g_autofree char *text = NULL;
    const char *line;

    if (!g_file_get_contents("/proc/self/status", &text, NULL, NULL))
        return 0;
    line = strstr(text, name);
    return line == NULL ? 0 : 1024 * g_ascii_strtod(line + strlen(name), NULL);
}

/* Has the kernel note the most memory anew. */
static void forget_most_memory(void)
{
    FILE *const file = fopen("/proc/self/clear_refs", "we");

    if (file == NULL)
        return;
    (void)fputs("5", file);
    (void)fclose(file);
}

static bool write_plain_file(const Load *load, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    g_autofree char *buffer = g_malloc(PLAIN_BYTES);
    bool ok = fd >= 0;

    memset(buffer, 7, PLAIN_BYTES);
    for (size_t left = load->n_rows * WIDTH * sizeof(float); ok && left > 0;) {
        const ssize_t n = write(fd, buffer, MIN(left, PLAIN_BYTES));

        ok = n > 0;
        left -= ok ? (size_t)n : 0;
    }
    ok = ok && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool write_plain(const Load *load, GError **error)
{
    g_autofree char *path = g_build_filename(load->directory, "plain", NULL);
    const double began = bench_now();

    do
        if (!write_plain_file(load, path)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be written", path);
            return false;
        }
    while (bench_now() - began < PHASE_S);
    (void)unlink(path);
    return true;
}

/* At least so long. */
static bool write_snapshots(RubatoEngine *engine, Load *load, double seconds, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = load->directory, .keep = 1 };
    const double began = bench_now();

    do {
        if (!rubato_engine_snapshot(engine, &spec, NULL, error))
            return false;
        /* relaxed: nothing else depends on it */
        atomic_fetch_add_explicit(&load->n_snapshots, 1, memory_order_relaxed);
    } while (bench_now() - began < seconds);
    return true;
}

static bool write_while_training(RubatoEngine *engine, Load *load, GError **error)
{
    const double began = bench_now();

    enter(load, PHASE_WRITING);
    if (!write_snapshots(engine, load, PHASE_S, error))
        return false;
    load->bare_from = bench_now();
    load->n_bare_windows = atomic_load_explicit(&load->n_snapshots, memory_order_relaxed);
    load->bare_window_s = (load->bare_from - began) / (double)load->n_bare_windows;
    return true;
}

/* As long as the snapshots before took. */
static bool write_while_bare(RubatoEngine *engine, Load *load, GError **error)
{
    enter(load, PHASE_BARE);
    return write_snapshots(engine, load, load->bare_window_s * (double)load->n_bare_windows, error);
}

static bool fill(RubatoEngine *engine, const Load *load, GError **error)
{
    g_autofree float *rows = g_new0(float, ROWS_AT_ONCE *WIDTH);

    for (size_t first = 0; first < load->n_rows; first += ROWS_AT_ONCE)
        if (!rubato_engine_set_range(engine, "load", first, MIN(ROWS_AT_ONCE, load->n_rows - first),
                                     rows, error))
            return false;
    return true;
}

static bool measure(Load *load, GError **error)
{
    const char *const tables[] = { "load", NULL };
    const RubatoTask task = { .name = "load",
                              .run = iterate_on,
                              .user_data = load,
                              .tables = tables,
                              .workers_per_node = 1 };
    const RubatoTableSpec spec = { .name = "load", .width = WIDTH, .n_keys = load->n_rows };
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, error);
    RubatoTaskRun *run;
    bool ok;

    if (engine == NULL || !rubato_engine_create_table(engine, &spec, error) ||
        !fill(engine, load, error))
        return false;
    run = rubato_engine_start(engine, &task, error);
    if (run == NULL)
        return false;
    while (!atomic_load_explicit(&load->has_begun, memory_order_relaxed)) /* see above */
        g_usleep(1000);
    g_usleep((gulong)(PHASE_S * G_USEC_PER_SEC));
    enter(load, PHASE_PLAIN);
    ok = write_plain(load, error);
    forget_most_memory();
    const double before = memory_of("VmRSS:");
    ok = ok && write_while_training(engine, load, error);
    load->memory = memory_of("VmHWM:") - before;
    ok = ok && (!load->has_bare || write_while_bare(engine, load, error));
    if (!load->has_bare) { /* once more: other programs come and go */
        enter(load, PHASE_ALONE);
        g_usleep((gulong)(PHASE_S * G_USEC_PER_SEC));
    }
    enter(load, PHASE_END);
    return rubato_task_run_wait(run, ok ? error : NULL) && ok;
}

static void *run(void *data)
{
    Load *load = data;

    (void)measure(load, &load->error); /* a failure is in error */
    return NULL;
}

static void clear(Load *load)
{
    for (Phase phase = 0; phase < PHASE_END; phase++)
        g_free(load->iterations[phase].times);
    g_free(load->directory);
}

/* has_bare: as in Load. */
static bool run_load(size_t n, ClockFunc now, bool has_bare, Load *load, GError **error)
{
    *load = (Load){ .phase = PHASE_ALONE, .n_rows = n, .now = now, .has_bare = has_bare };
    load->directory = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    if (load->directory == NULL)
        return false;
    for (Phase phase = 0; phase < PHASE_END; phase++) {
        load->iterations[phase].times = g_new(float, MOST_TIMES);
        memset(load->iterations[phase].times, 1, MOST_TIMES * sizeof(float)); /* in memory now */
    }
    g_thread_join(g_thread_new("load", run, load));
    snapshot_folder_remove_all(load->directory);
    if (load->error == NULL)
        return true;
    g_propagate_error(error, load->error);
    clear(load);
    return false;
}

static bool take_load(size_t n, ClockFunc now, Load *load, GError **error)
{
    return run_load(n, now, /* has_bare= */ false, load, error);
}

/* ---- what is made of it ---- */

static double rate(Iterations *iterations)
{
    return iterations->n == 0 ? 0 : N_KEYS * (double)iterations->n / iterations->seconds;
}

static int compare_times(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;

    return (left > right) - (left < right);
}

static double p99(Iterations *iterations)
{
    const size_t n = MIN(iterations->n, MOST_TIMES);

    if (n == 0)
        return 0;
    qsort(iterations->times, n, sizeof *iterations->times, compare_times);
    return (double)iterations->times[n * 99 / 100];
}

typedef double (*FigureFunc)(Iterations *iterations);

static int compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* Of the longest iterations of all windows, that in the middle: what a snapshot makes requests wait
 * is in each of its windows, and what else the machine does now and then is not. */
static double middle_of(double *worst, size_t n_windows)
{
    if (n_windows == 0)
        return 0;
    qsort(worst, n_windows, sizeof *worst, compare_doubles);
    return worst[n_windows / 2];
}

static double pause_of(Iterations *iterations)
{
    return middle_of(iterations->worst, iterations->n_windows);
}

static bool take_sample(size_t n, ClockFunc now, FigureFunc figure, Phase beside,
                        BenchSample *sample, GError **error)
{
    Load load;

    if (!take_load(n, now, &load, error))
        return false;
    sample->own = figure(&load.iterations[PHASE_WRITING]);
    sample->limit = figure(&load.iterations[beside]);
    clear(&load);
    return true;
}

bool sample_snapshot_beside(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return take_sample(n, bench_now, rate, PHASE_PLAIN, sample, error);
}

bool sample_snapshot_pause(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Load load;
    Iterations *const writing = &load.iterations[PHASE_WRITING];
    Iterations *const bare = &load.iterations[PHASE_BARE];

    if (!run_load(n, bench_now, /* has_bare= */ true, &load, error))
        return false;
    sample->own = pause_of(writing);
    sample->limit = pause_of(bare);
    bench_note_most(bench->details, 0, "ms of processor time at most",
                    1e3 * middle_of(writing->worst_used, writing->n_windows));
    bench_note_most(bench->details, 1, "ms of the bare thread's",
                    1e3 * middle_of(bare->worst_used, bare->n_windows));
    bench_note_most(bench->details, 2, "iterations above 1 ms", (double)load.n_long);
    bench_note_most(bench->details, 3, "in which the worker slept", (double)load.n_slept);
    bench_note_most(bench->details, 4, "ms while none is written",
                    1e3 * pause_of(&load.iterations[PHASE_ALONE]));
    bench_note_most(bench->details, 5, "ms a snapshot", 1e3 * load.bare_window_s);
    clear(&load);
    return true;
}

bool sample_snapshot_pause_processor(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return take_sample(n, processor_now, pause_of, PHASE_PLAIN, sample, error);
}

bool sample_snapshot_memory(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Load load;

    (void)bench;
    if (!take_load(n, bench_now, &load, error))
        return false;
    sample->own = load.memory;
    sample->limit = (double)n * ALLOWED_BY_ROW + ALLOWED_BYTES;
    clear(&load);
    return true;
}

/* ---- beside bare threads ---- */

typedef struct {
    double seconds;          /* of a snapshot */
    SnapshotBareKept plain;  /* of bare threads beside a writer */
    SnapshotBareKept copies; /* if they copy rows before these change */
} Bares;

static bool find_bares(Load *load, Bares *bares, GError **error)
{
    const uint64_t n =
        atomic_load_explicit(&load->n_snapshots, memory_order_relaxed); /* see above */
    g_autofree char *directory = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    bool ok;

    if (directory == NULL)
        return false;
    bares->seconds = load->iterations[PHASE_WRITING].seconds / (double)n;
    SnapshotBare bare = { .n_rows = load->n_rows,
                          .keys_per_s = rate(&load->iterations[PHASE_ALONE]),
                          .directory = directory };
    ok = snapshot_bare_measure(&bare, &bares->plain, error);
    bare.cuts = true;
    ok = ok && snapshot_bare_measure(&bare, &bares->copies, error);
    snapshot_folder_remove_all(directory);
    return ok;
}

static bool take_sample_beside_bare(size_t n, FigureFunc figure, BenchSample *sample, Bares *bares,
                                    GError **error)
{
    Load load;
    bool ok;

    if (!take_load(n, bench_now, &load, error))
        return false;
    ok = find_bares(&load, bares, error);
    sample->own = figure(&load.iterations[PHASE_WRITING]);
    sample->limit = figure(&load.iterations[PHASE_ALONE]);
    clear(&load);
    return ok;
}

bool sample_snapshot_during(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    BenchDetails *const details = bench->details;
    Bares bares;

    if (!take_sample_beside_bare(n, rate, sample, &bares, error))
        return false;
    const double share = sample->own / sample->limit;

    bench_note_mean(details, 0, "kept of the rate", share);
    bench_note_mean(details, 1, "by bare threads", bares.plain.share);
    bench_note_mean(details, 2, "by those that copy rows before these change", bares.copies.share);
    bench_note_mean(details, 3, "times what those keep", share / bares.copies.share);
    bench_note_mean(details, 4, "s a snapshot", bares.seconds);
    bench_note_mean(details, 5, "s of training lost by it", (1 - share) * bares.seconds);
    return true;
}

bool sample_snapshot_p99(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    BenchDetails *const details = bench->details;
    Bares bares;

    if (!take_sample_beside_bare(n, p99, sample, &bares, error))
        return false;
    bench_note_mean(details, 0, "times as long as usual", sample->own / sample->limit);
    bench_note_mean(details, 1, "times for bare threads", bares.plain.p99_times);
    bench_note_mean(details, 2, "for those that copy rows before these change",
                    bares.copies.p99_times);
    return true;
}
