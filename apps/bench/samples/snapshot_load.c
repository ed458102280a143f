/* Samples of training while a snapshot is written: a worker iterates on a table of n rows of 16
 * f32, first alone, then while the engine writes snapshots of the table.
 *
 * A worker cannot take a snapshot, so an engine of its own runs on a thread of its own. */
#include <stdatomic.h>
#include <stdlib.h>

#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"
#include "apps/bench/samples/snapshot_folders.h"

#include <rubato/mix.h>

enum { WIDTH = 16, N_KEYS = 100 };

/* How long it iterates alone, and at least while snapshots are written. */
#define PHASE_S 0.2

typedef enum {
    PHASE_ALONE,
    PHASE_WRITING,
    PHASE_END,
} Phase;

typedef struct {
    uint64_t n; /* iterations */
    double seconds, worst;
} Iterations;

typedef struct {
    size_t n_rows;
    char *directory;
    _Atomic bool has_begun;
    _Atomic Phase phase;
    Iterations iterations[PHASE_END];
    GError *error;
} Load;

static void count(Iterations *iterations, double seconds)
{
    iterations->n++;
    iterations->seconds += seconds;
    iterations->worst = MAX(iterations->worst, seconds);
}

/* An iteration that begins in one phase and ends in the next counts for the next. */
static bool iterate_on(RubatoWorker *worker, void *user_data, GError **error)
{
    Load *load = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, "load", RUBATO_F32, error);
    g_autofree float *rows = g_new(float, N_KEYS *WIDTH);
    RubatoKey keys[N_KEYS];
    uint64_t number = 0;
    double before = bench_now();

    /* relaxed: the other thread only waits for it */
    atomic_store_explicit(&load->has_begun, true, memory_order_relaxed);
    if (table == NULL)
        return false;
    for (;;) {
        for (size_t i = 0; i < N_KEYS; i++)
            keys[i] = rubato_mix64(number++) % load->n_rows;
        if (!rubato_kv_table_get(table, keys, N_KEYS, rows, error) ||
            !rubato_kv_table_add(table, keys, N_KEYS, rows, error) ||
            !rubato_kv_table_clock(table, error))
            return false;
        /* relaxed: nothing else depends on it; the task's end orders what was counted */
        const Phase phase = atomic_load_explicit(&load->phase, memory_order_relaxed);
        const double now = bench_now();

        if (phase == PHASE_END)
            return true;
        count(&load->iterations[phase], now - before);
        before = now;
    }
}

static void enter(Load *load, Phase phase)
{
    atomic_store_explicit(&load->phase, phase, memory_order_relaxed); /* see above */
}

static bool write_snapshots(RubatoEngine *engine, const Load *load, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = load->directory, .keep = 1 };
    const double began = bench_now();

    do
        if (!rubato_engine_snapshot(engine, &spec, NULL, error))
            return false;
    while (bench_now() - began < PHASE_S);
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

    if (engine == NULL || !rubato_engine_create_table(engine, &spec, error))
        return false;
    run = rubato_engine_start(engine, &task, error);
    if (run == NULL)
        return false;
    while (!atomic_load_explicit(&load->has_begun, memory_order_relaxed)) /* see above */
        g_usleep(1000);
    g_usleep((gulong)(PHASE_S * G_USEC_PER_SEC));
    enter(load, PHASE_WRITING);
    ok = write_snapshots(engine, load, error);
    enter(load, PHASE_END);
    return rubato_task_run_wait(run, ok ? error : NULL) && ok;
}

static void *run(void *data)
{
    Load *load = data;

    (void)measure(load, &load->error); /* a failure is in error */
    return NULL;
}

static bool take_load(size_t n, Load *load, GError **error)
{
    load->n_rows = n;
    load->directory = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    if (load->directory == NULL)
        return false;
    g_thread_join(g_thread_new("load", run, load));
    snapshot_folder_remove_all(load->directory);
    g_free(load->directory);
    if (load->error == NULL)
        return true;
    g_propagate_error(error, load->error);
    return false;
}

static double rate(const Iterations *iterations)
{
    return iterations->n == 0 ? 0 : N_KEYS * (double)iterations->n / iterations->seconds;
}

bool sample_snapshot_during(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Load load = { .phase = PHASE_ALONE };

    (void)bench;
    if (!take_load(n, &load, error))
        return false;
    sample->own = rate(&load.iterations[PHASE_WRITING]);
    sample->limit = rate(&load.iterations[PHASE_ALONE]);
    return true;
}

bool sample_snapshot_pause(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Load load = { .phase = PHASE_ALONE };

    (void)bench;
    if (!take_load(n, &load, error))
        return false;
    sample->own = load.iterations[PHASE_WRITING].worst;
    sample->limit = load.iterations[PHASE_ALONE].worst;
    return true;
}
