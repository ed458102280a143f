/* Measuring a case: an engine for it, a worker that takes samples of the case and of its limit in
 * turn. Between processes the other node is this program again, on a cluster file in a temporary
 * folder. */
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/bench/bench.h"

typedef struct {
    const BenchCase *what;
    const BenchOptions *options;
    double *own, *limit; /* samples, in the case's unit */
    double *latencies;   /* of all operations of all samples, or NULL */
    size_t n_latencies;
} Measurement;

static size_t operations(const BenchCase *what, const BenchOptions *options)
{
    return MAX(1, (size_t)((double)what->n_operations * options->scale));
}

/* A sample's seconds in the case's unit. */
static double in_unit(const BenchCase *what, double seconds, size_t n)
{
    const double per_second = (double)n / seconds;
    const size_t width = MAX(1, what->table.width);

    switch (what->unit) {
    case BENCH_SECONDS:
        return seconds / (double)n;
    case BENCH_PER_SECOND:
        return per_second;
    case BENCH_KEYS_PER_SECOND:
        return per_second * (double)what->n_keys;
    case BENCH_BYTES_PER_SECOND:
        return per_second * (double)(what->n_keys * width * sizeof(float));
    }
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey x = *(const RubatoKey *)a, y = *(const RubatoKey *)b;

    return x < y ? -1 : x > y;
}

static void choose_keys(Bench *bench)
{
    const BenchCase *what = bench->what;
    GRand *random = g_rand_new_with_seed(1);

    bench->keys = g_new(RubatoKey, what->n_keys);
    bench->values = g_new0(float, what->n_keys *MAX(1, what->table.width));
    for (size_t i = 0; i < what->n_keys; i++)
        bench->keys[i] =
            ((uint64_t)g_rand_int(random) << 32 | g_rand_int(random)) % what->table.n_keys;
    if (what->sorted)
        qsort(bench->keys, what->n_keys, sizeof *bench->keys, compare_keys);
    g_rand_free(random);
}

/* One sample of all workers together: the barriers keep them abreast. */
static bool take_sample(Bench *bench, size_t n, double *seconds, GError **error)
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

static bool take_samples(Bench *bench, Measurement *measurement, GError **error)
{
    const BenchCase *what = bench->what;
    const size_t n = operations(what, measurement->options);
    const bool leads = rubato_worker_rank(bench->worker) == 0;
    const uint32_t n_workers = rubato_worker_n_workers(bench->worker);

    for (unsigned i = 0; i <= measurement->options->repeat; i++) {
        double seconds, limit_seconds;
        const bool counts = leads && i > 0; /* the first warms up */

        bench->latencies = counts && measurement->latencies != NULL
                               ? measurement->latencies + (size_t)(i - 1) * n
                               : NULL;
        if (!take_sample(bench, n, &seconds, error))
            return false;
        if (!leads)
            continue;
        limit_seconds = what->run_limit(bench, n);
        if (counts) {
            measurement->own[i - 1] = in_unit(what, seconds, n * n_workers);
            measurement->limit[i - 1] = in_unit(what, limit_seconds, n);
        }
    }
    return true;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    Measurement *measurement = user_data;
    Bench bench = { .what = measurement->what, .worker = worker };
    bool ok;

    bench.table = rubato_worker_open_kv_table(worker, "bench", RUBATO_F32, error);
    if (bench.table == NULL)
        return false;
    choose_keys(&bench);
    ok = take_samples(&bench, measurement, error);
    raw_zmq_stop(&bench);
    rubato_kv_table_free(bench.table);
    g_free(bench.keys);
    g_free(bench.values);
    g_free(bench.raw);
    return ok;
}

static bool run_case(RubatoEngine *engine, Measurement *measurement, GError **error)
{
    static const char *const tables[] = { "bench", NULL };
    RubatoTableSpec spec = measurement->what->table;
    const RubatoTask task = {
        .name = measurement->what->name, .run = work, .user_data = measurement, .tables = tables
    };

    spec.name = "bench";
    return rubato_engine_create_table(engine, &spec, error) &&
           rubato_engine_run(engine, &task, error);
}

/* ---- two processes ---- */

static const char cluster_text[] =
    "cluster: {\n"
    "  name = \"bench\";\n"
    "  scheduler = { host = \"127.0.0.1\"; port = %u; };\n"
    "  nodes = ( { id = 0; host = \"127.0.0.1\"; port = 0; servers = 0; workers = %u; },\n"
    "            { id = 1; host = \"127.0.0.1\"; port = 0; servers = %u; workers = 0; } );\n"
    "  timeout_ms = 10000;\n"
    "};\n";

/* A port that is free now: the scheduler's has to be known beforehand. */
static guint16 free_port(void)
{
    g_autoptr(GSocketListener) listener = g_socket_listener_new();

    return g_socket_listener_add_any_inet_port(listener, NULL, NULL);
}

int bench_peer(const char *case_name)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(RubatoEngine) engine = NULL;
    const BenchOptions options = { 0 };
    Measurement measurement = { .options = &options };
    int argc = 1;
    char *name[] = { (char *)"rubato-bench", NULL }, **argv = name;

    for (measurement.what = bench_cases; measurement.what->name != NULL; measurement.what++)
        if (strcmp(measurement.what->name, case_name) == 0)
            break;
    engine = rubato_engine_new_from_args(&argc, &argv, &error);
    if (engine != NULL && run_case(engine, &measurement, &error))
        return EXIT_SUCCESS;
    g_printerr("rubato-bench, the other node: %s\n", error->message);
    return EXIT_FAILURE;
}

static bool run_on_two(Measurement *measurement, const char *file, GError **error)
{
    const BenchCase *what = measurement->what;
    g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_NONE);
    g_autoptr(GSubprocess) peer = NULL;
    g_autoptr(RubatoEngine) engine = NULL;
    bool ok;

    g_subprocess_launcher_setenv(launcher, "RUBATO_CLUSTER", file, TRUE);
    g_subprocess_launcher_setenv(launcher, "RUBATO_NODE", "1", TRUE);
    peer = g_subprocess_launcher_spawn(launcher, error, measurement->options->self, "--peer",
                                       what->name, NULL);
    if (peer == NULL)
        return false;
    engine = rubato_engine_new(&(RubatoEngineConfig){ .cluster_file = file }, error);
    ok = engine != NULL && run_case(engine, measurement, error);
    g_clear_pointer(&engine, rubato_engine_free);
    if (!ok)
        g_subprocess_force_exit(peer);
    g_subprocess_wait(peer, NULL, NULL);
    return ok;
}

static bool measure_on_two(Measurement *measurement, GError **error)
{
    const BenchCase *what = measurement->what;
    g_autofree char *folder = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    g_autofree char *file = NULL;
    g_autofree char *text = NULL;
    bool ok;

    if (folder == NULL)
        return false;
    file = g_build_filename(folder, "cluster.cfg", NULL);
    text = g_strdup_printf(cluster_text, free_port(), MAX(1, what->workers), MAX(1, what->servers));
    ok = g_file_set_contents(file, text, -1, error) && run_on_two(measurement, file, error);
    g_unlink(file);
    g_rmdir(folder);
    return ok;
}

static bool measure_in_one(Measurement *measurement, GError **error)
{
    const BenchCase *what = measurement->what;
    g_autoptr(RubatoEngine) engine = rubato_engine_new(
        &(RubatoEngineConfig){ .servers = what->servers, .workers = what->workers }, error);

    return engine != NULL && run_case(engine, measurement, error);
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

bool bench_measure(const BenchCase *what, const BenchOptions *options, BenchResult *result,
                   GError **error)
{
    const size_t n = operations(what, options);
    g_autofree double *own = g_new0(double, options->repeat);
    g_autofree double *limit = g_new0(double, options->repeat);
    g_autofree double *latencies = what->unit == BENCH_SECONDS && what->two_processes
                                       ? g_new0(double, n * options->repeat)
                                       : NULL;
    Measurement measurement = { what, options, own, limit, latencies, n * options->repeat };
    const bool ok = what->two_processes ? measure_on_two(&measurement, error)
                                        : measure_in_one(&measurement, error);

    if (!ok)
        return false;
    *result = (BenchResult){ .what = what,
                             .own = figures_of(own, options->repeat),
                             .limit = figures_of(limit, options->repeat) };
    if (latencies != NULL) {
        qsort(latencies, measurement.n_latencies, sizeof *latencies, compare_doubles);
        result->own.p99 = latencies[measurement.n_latencies * 99 / 100];
    }
    result->ratio = result->own.median / result->limit.median;
    return true;
}
