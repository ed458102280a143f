/* A case's reference run: the same case in an engine of one process, with one worker and one
 * server. It waits until the case asks it for a sample. So the cost of processes, of several
 * workers or of an update rule is measured beside a run without them.
 *
 * Threads: reference_run_new and _free from the program's main one, limit_reference_run from the
 * case's worker; the reference run's own worker waits in between. */
#include <pthread.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"

struct ReferenceRun {
    /* immutable */
    BenchCase what;
    const BenchOptions *options;
    RubatoEngine *engine;
    RubatoTaskRun *run;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    size_t n_wanted; /* 0: nothing */
    double seconds;
    bool stops, failed;
};

static bool take_orders(ReferenceRun *reference_run, Bench *bench, GError **error)
{
    bool ok = true;

    pthread_mutex_lock(&reference_run->lock);
    while (ok && !reference_run->stops) {
        if (reference_run->n_wanted > 0) {
            const double began = bench_now();

            ok = reference_run->what.run(bench, reference_run->n_wanted, error);
            reference_run->seconds = bench_now() - began;
            reference_run->n_wanted = 0;
            pthread_cond_broadcast(&reference_run->changed);
        } else {
            pthread_cond_wait(&reference_run->changed, &reference_run->lock);
        }
    }
    reference_run->failed = !ok;
    pthread_cond_broadcast(&reference_run->changed);
    pthread_mutex_unlock(&reference_run->lock);
    return ok;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    ReferenceRun *reference_run = user_data;
    Bench bench = { .what = &reference_run->what,
                    .n_rows = bench_rows(&reference_run->what, reference_run->options),
                    .engine = reference_run->engine,
                    .worker = worker };
    const bool ok = bench_open(&bench, error) && take_orders(reference_run, &bench, error);

    if (!ok) {
        pthread_mutex_lock(&reference_run->lock);
        reference_run->failed = true;
        pthread_cond_broadcast(&reference_run->changed);
        pthread_mutex_unlock(&reference_run->lock);
    }
    bench_close(&bench);
    return ok;
}

ReferenceRun *reference_run_new(const BenchCase *what, const BenchOptions *options, GError **error)
{
    static const char *const tables[] = { "bench", NULL };
    ReferenceRun *reference_run = g_new0(ReferenceRun, 1);
    const RubatoTask task = {
        .name = "reference_run", .run = work, .user_data = reference_run, .tables = tables
    };
    RubatoTableSpec spec;

    reference_run->what = *what;
    reference_run->what.place = BENCH_PLACE_LOCAL;
    reference_run->what.workers = reference_run->what.servers = 1;
    if (what->run_limit == limit_add_reference_run) {
        reference_run->what.table.update = NULL;
        reference_run->what.table.rule = (RubatoRule){ 0 };
    }
    spec = bench_table_spec(&reference_run->what, options);
    reference_run->options = options;
    pthread_mutex_init(&reference_run->lock, NULL);
    pthread_cond_init(&reference_run->changed, NULL);
    reference_run->engine = rubato_engine_new(&(RubatoEngineConfig){ .stall_ms = 600000 }, error);
    if (reference_run->engine != NULL &&
        rubato_engine_create_table(reference_run->engine, &spec, error))
        reference_run->run = rubato_engine_start(reference_run->engine, &task, error);
    if (reference_run->run == NULL)
        g_clear_pointer(&reference_run, reference_run_free);
    return reference_run;
}

void reference_run_free(ReferenceRun *reference_run)
{
    g_autoptr(GError) error = NULL;

    if (reference_run == NULL)
        return;
    pthread_mutex_lock(&reference_run->lock);
    reference_run->stops = true;
    pthread_cond_broadcast(&reference_run->changed);
    pthread_mutex_unlock(&reference_run->lock);
    if (reference_run->run != NULL && !rubato_task_run_wait(reference_run->run, &error))
        g_printerr("rubato-bench: %s\n", error->message);
    rubato_engine_free(reference_run->engine);
    pthread_cond_destroy(&reference_run->changed);
    pthread_mutex_destroy(&reference_run->lock);
    g_free(reference_run);
}

double limit_reference_run(Bench *bench, size_t n)
{
    ReferenceRun *reference_run = bench->reference_run;
    double seconds;

    pthread_mutex_lock(&reference_run->lock);
    reference_run->n_wanted = n;
    pthread_cond_broadcast(&reference_run->changed);
    while (reference_run->n_wanted > 0 && !reference_run->failed)
        pthread_cond_wait(&reference_run->changed, &reference_run->lock);
    if (reference_run->failed)
        g_error("the case's reference_run in one process has failed");
    seconds = reference_run->seconds;
    pthread_mutex_unlock(&reference_run->lock);
    return seconds;
}

double limit_add_reference_run(Bench *bench, size_t n)
{
    return limit_reference_run(bench, n);
}

bool reference_run_is_wanted(const BenchCase *what)
{
    return what->run_limit == limit_reference_run || what->run_limit == limit_add_reference_run;
}
