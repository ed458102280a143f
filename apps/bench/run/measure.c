/* Measuring a case: an engine for it, and a worker that takes samples of the case and of its limit
 * in turn. */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/run/nodes.h"
#include "apps/bench/samples/samples.h"

/* The limits of a case with --quick. */
#define QUICK_OPERATIONS 0.02
#define QUICK_ROWS 0.1

typedef struct {
    const BenchCase *what;
    const BenchOptions *options;
    RubatoEngine *engine;
    BenchStart start;
    size_t resident_before;

    /* written by the worker of rank 0; NULL in the other process */
    double *own, *limit; /* samples, in the case's unit */
    double *latencies;   /* of single operations, NULL if nobody asks */
    size_t n_latencies;
    unsigned n_taken; /* samples, of a case each of whose samples has nodes of its own */
    BenchDetails details;
} Measurement;

double bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static size_t operations(const Measurement *measurement)
{
    const double n = (double)measurement->what->n_operations;

    return MAX(1, (size_t)(measurement->options->quick ? n * QUICK_OPERATIONS : n));
}

static uint64_t n_rows_of(const BenchCase *what, const BenchOptions *options)
{
    const uint64_t least = MIN(what->n_rows, MAX(what->n_keys, 100000));

    return options->quick ? MAX(least, (uint64_t)((double)what->n_rows * QUICK_ROWS))
                          : what->n_rows;
}

static RubatoTableSpec table_spec(const BenchCase *what, const BenchOptions *options)
{
    RubatoTableSpec spec = what->table;

    spec.name = "bench";
    if (bench_is_dense(what))
        spec.n_keys = n_rows_of(what, options);
    return spec;
}

/* The same without admission. */
static RubatoTableSpec plain_spec(const RubatoTableSpec *spec)
{
    RubatoTableSpec plain = *spec;

    plain.name = BENCH_PLAIN_TABLE;
    plain.max_bytes -= MIN(plain.max_bytes, plain.admit_bytes);
    plain.admit = NULL;
    plain.admit_count = 0;
    plain.admit_bytes = 0;
    plain.admit_probability = 0;
    return plain;
}

/* n operations in so many seconds, in the case's unit. */
static double in_unit(const BenchCase *what, double seconds, size_t n)
{
    const double per_second = (double)n / seconds;

    switch (what->unit) {
    case BENCH_UNIT_SECONDS:
        return seconds / (double)n;
    case BENCH_UNIT_KEYS_PER_SECOND:
        return per_second * (double)what->n_keys;
    case BENCH_UNIT_BYTES_PER_SECOND:
        return per_second * (double)(what->n_keys * bench_width(what) * sizeof(float));
    default:
        return per_second;
    }
}

/* A drain is told on each node. */
static void ignore(const char *domain, GLogLevelFlags level, const char *text, void *user_data)
{
    (void)domain;
    (void)level;
    (void)text;
    (void)user_data;
}

/* Runs on all workers; the barriers keep them in step. */
static bool time_run(Bench *bench, size_t n, double *seconds, GError **error)
{
    double began;

    if (!rubato_worker_barrier(bench->worker, error))
        return false;
    began = bench_now();
    if (!bench->what->run(bench, n, error) || !rubato_worker_barrier(bench->worker, error))
        return false;
    *seconds = bench_now() - began;
    return true;
}

static bool take_sample(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const BenchCase *what = bench->what;
    const uint32_t n_workers = rubato_worker_n_workers(bench->worker);
    double seconds;

    if (what->sample != NULL)
        return what->sample(bench, n, sample, error);
    if (!time_run(bench, n, &seconds, error))
        return false;
    if (rubato_worker_rank(bench->worker) == 0)
        *sample = (BenchSample){ in_unit(what, seconds, n * n_workers),
                                 in_unit(what, what->run_limit(bench, n), n) };
    return true;
}

/* Between processes reading the clock is cheap beside an operation, so each operation is timed in
 * place. In one process the operations are timed in a separate sample. */
static bool take_samples(Bench *bench, Measurement *measurement, GError **error)
{
    const size_t n = operations(measurement);
    const bool leads = measurement->own != NULL && rubato_worker_rank(bench->worker) == 0;
    const bool is_local = bench->what->place == BENCH_PLACE_LOCAL;
    BenchSample sample = { 0 };

    if (bench->what->drains) {
        if (!take_sample(bench, n, &sample, error))
            return false;
        if (leads) {
            measurement->own[measurement->n_taken] = sample.own;
            measurement->limit[measurement->n_taken] = sample.limit;
        }
        return true;
    }
    if (!take_sample(bench, n, &sample, error)) /* warms up */
        return false;
    for (unsigned i = 0; i < measurement->options->repeat; i++) {
        if (leads && measurement->latencies != NULL && !is_local)
            bench->latencies = measurement->latencies + i * n;
        if (!take_sample(bench, n, &sample, error))
            return false;
        if (leads) {
            measurement->own[i] = sample.own;
            measurement->limit[i] = sample.limit;
        }
    }
    if (!leads || measurement->latencies == NULL || !is_local)
        return true;
    bench->latencies = measurement->latencies;
    return bench->what->run(bench, n, error);
}

static bool open_case(Bench *bench, GError **error)
{
    if (!bench_open_table(bench, error))
        return false;
    return bench->what->starts_empty || rubato_worker_rank(bench->worker) != 0 ||
           bench_fill(bench, error);
}

static void close_case(Bench *bench)
{
    raw_zmq_stop(bench);
    raw_shm_stop(bench);
    raw_tcp_stop(bench);
    raw_free(bench);
    data_close(bench);
    rubato_sparse_kv_client_table_free(bench->sparse);
    rubato_kv_table_free(bench->table);
    rubato_ragged_table_free(bench->ragged);
    g_free(bench->lengths);
    g_free(bench->keys);
    g_free(bench->values);
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    Measurement *measurement = user_data;
    Bench bench = { .what = measurement->what,
                    .n_rows = n_rows_of(measurement->what, measurement->options),
                    .engine = measurement->engine,
                    .worker = worker,
                    .resident_before = measurement->resident_before,
                    .start = measurement->start,
                    .details = &measurement->details };
    const bool ok = open_case(&bench, error) && rubato_worker_barrier(worker, error) &&
                    take_samples(&bench, measurement, error);

    close_case(&bench);
    return ok;
}

static bool do_nothing(RubatoWorker *worker, void *user_data, GError **error)
{
    (void)worker;
    (void)user_data;
    (void)error;
    return true;
}

/* On all nodes. The first task is not timed: it comes when the last node has made the table. */
static bool time_tasks(RubatoEngine *engine, double *seconds, GError **error)
{
    const char *const tables[] = { "bench", NULL };
    const RubatoTask task = { .name = "nothing", .run = do_nothing, .tables = tables };
    enum { N_TASKS = 10 };
    double began = 0;

    for (int i = 0; i <= N_TASKS; i++) {
        if (!rubato_engine_run(engine, &task, error))
            return false;
        if (i == 0)
            began = bench_now();
    }
    *seconds = (bench_now() - began) / N_TASKS;
    return true;
}

static bool run_case(RubatoEngine *engine, const BenchStart *start, void *data, GError **error)
{
    Measurement *measurement = data;
    const bool counts = measurement->what->mixed;
    const bool has_plain = measurement->what->has_plain;
    const char *const tables[] = { "bench",
                                   counts      ? BENCH_SENT_TABLE
                                   : has_plain ? BENCH_PLAIN_TABLE
                                               : NULL,
                                   NULL };
    const RubatoTableSpec spec = table_spec(measurement->what, measurement->options);
    const RubatoTableSpec plain = plain_spec(&spec);
    const RubatoTableSpec sent = { .name = BENCH_SENT_TABLE,
                                   .dtype = RUBATO_F64,
                                   .width = 4,
                                   .n_keys = rubato_engine_n_nodes(engine),
                                   .model = "asp",
                                   .update = "assign" };
    const RubatoTask task = { .name = measurement->what->name,
                              .run = work,
                              .user_data = measurement,
                              .tables = tables,
                              .on_loss = measurement->what->replaces ? RUBATO_ON_LOSS_REPLACE
                                                                     : RUBATO_ON_LOSS_FAIL };

    const unsigned silent = measurement->what->drains
                                ? g_log_set_handler("rubato", G_LOG_LEVEL_MESSAGE, ignore, NULL)
                                : 0;
    bool ok;

    measurement->engine = engine;
    measurement->start = *start;
    malloc_trim(0); /* memory that earlier cases left must not be reused unnoticed */
    measurement->resident_before = bench_resident_bytes(0);
    ok = rubato_engine_create_table(engine, &spec, error) &&
         (!counts || rubato_engine_create_table(engine, &sent, error)) &&
         (!has_plain || rubato_engine_create_table(engine, &plain, error)) &&
         (!measurement->what->starts_tasks ||
          time_tasks(engine, &measurement->start.task_seconds, error)) &&
         rubato_engine_run(engine, &task, error);
    if (silent != 0)
        g_log_remove_handler("rubato", silent);
    return ok;
}

int bench_peer(const BenchCase *what, const BenchOptions *options, const char *cluster_file,
               uint32_t node)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = NULL;
    Measurement measurement = { .what = what, .options = options };

    engine = rubato_engine_new(&(RubatoEngineConfig){ .cluster_file = cluster_file, .node = node },
                               &error);
    if (engine != NULL && run_case(engine, &(BenchStart){ 0 }, &measurement, &error))
        return EXIT_SUCCESS;
    g_printerr("rubato-bench: node %u: %s\n", node, error->message);
    return EXIT_FAILURE;
}

static bool measure(Measurement *measurement, GError **error)
{
    const BenchCase *what = measurement->what;
    g_autoptr(RubatoEngine) engine = NULL;

    if (what->drains) {
        for (; measurement->n_taken < measurement->options->repeat; measurement->n_taken++)
            if (!nodes_run(what, measurement->options, run_case, measurement, error))
                return false;
        return true;
    }
    if (what->place != BENCH_PLACE_LOCAL)
        return nodes_run(what, measurement->options, run_case, measurement, error);
    engine = rubato_engine_new(
        &(RubatoEngineConfig){ .servers = what->servers, .workers = what->workers }, error);
    return engine != NULL && run_case(engine, &(BenchStart){ 0 }, measurement, error);
}

/* ---- figures ---- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static BenchFigures figures_of(double *samples, size_t n)
{
    qsort(samples, n, sizeof *samples, compare_doubles);
    return (BenchFigures){ .min = samples[0], .median = samples[n / 2], .max = samples[n - 1] };
}

static double p99_of(double *latencies, size_t n)
{
    qsort(latencies, n, sizeof *latencies, compare_doubles);
    return latencies[n * 99 / 100];
}

bool bench_measure(const BenchCase *what, const BenchOptions *options, BenchResult *result,
                   GError **error)
{
    Measurement measurement = { .what = what, .options = options };
    const size_t n = options->repeat;
    const bool has_latencies = what->unit == BENCH_UNIT_SECONDS && what->run != NULL;
    g_autofree double *own = measurement.own = g_new0(double, n);
    g_autofree double *limit = measurement.limit = g_new0(double, n);
    g_autofree double *latencies = NULL;

    if (has_latencies) {
        measurement.n_latencies =
            operations(&measurement) * (what->place == BENCH_PLACE_LOCAL ? 1 : n);
        latencies = measurement.latencies = g_new0(double, measurement.n_latencies);
    }
    if (!measure(&measurement, error))
        return false;
    *result = (BenchResult){ .what = what,
                             .own = figures_of(own, n),
                             .limit = figures_of(limit, n),
                             .details = measurement.details };
    if (has_latencies)
        result->own.p99 = p99_of(latencies, measurement.n_latencies);
    if (fabs(result->limit.median) > 0)
        result->ratio = result->own.median / result->limit.median;
    return true;
}
