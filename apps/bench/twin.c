/* A case's twin: the same in an engine of one process, with one worker and one server, which stands
 * still until the case asks it for a sample. What lies between processes, or between several
 * workers, or in an update rule, is then measured beside what does not.
 *
 * Threads: twin_new and _free from the program's main one, limit_twin from the case's worker; the
 * twin's own worker waits in between. */
#include <pthread.h>

#include "apps/bench/bench.h"

struct Twin {
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

static bool take_orders(Twin *twin, Bench *bench, GError **error)
{
    bool ok = true;

    pthread_mutex_lock(&twin->lock);
    while (ok && !twin->stops) {
        if (twin->n_wanted > 0) {
            const double began = bench_now();

            ok = twin->what.run(bench, twin->n_wanted, error);
            twin->seconds = bench_now() - began;
            twin->n_wanted = 0;
            pthread_cond_broadcast(&twin->changed);
        } else {
            pthread_cond_wait(&twin->changed, &twin->lock);
        }
    }
    twin->failed = !ok;
    pthread_cond_broadcast(&twin->changed);
    pthread_mutex_unlock(&twin->lock);
    return ok;
}

static bool work(RubatoWorker *worker, void *user_data, GError **error)
{
    Twin *twin = user_data;
    Bench bench = { .what = &twin->what,
                    .n_rows = bench_rows(&twin->what, twin->options),
                    .engine = twin->engine,
                    .worker = worker };
    const bool ok = bench_open(&bench, error) && take_orders(twin, &bench, error);

    if (!ok) {
        pthread_mutex_lock(&twin->lock);
        twin->failed = true;
        pthread_cond_broadcast(&twin->changed);
        pthread_mutex_unlock(&twin->lock);
    }
    bench_close(&bench);
    return ok;
}

Twin *twin_new(const BenchCase *what, const BenchOptions *options, GError **error)
{
    static const char *const tables[] = { "bench", NULL };
    Twin *twin = g_new0(Twin, 1);
    const RubatoTask task = { .name = "twin", .run = work, .user_data = twin, .tables = tables };
    RubatoTableSpec spec;

    twin->what = *what;
    twin->what.place = BENCH_LOCAL;
    twin->what.workers = twin->what.servers = 1;
    if (what->run_limit == limit_add_twin) {
        twin->what.table.update = NULL;
        twin->what.table.rule = (RubatoRule){ 0 };
    }
    spec = bench_table_spec(&twin->what, options);
    twin->options = options;
    pthread_mutex_init(&twin->lock, NULL);
    pthread_cond_init(&twin->changed, NULL);
    twin->engine = rubato_engine_new(&(RubatoEngineConfig){ .stall_ms = 600000 }, error);
    if (twin->engine != NULL && rubato_engine_create_table(twin->engine, &spec, error))
        twin->run = rubato_engine_start(twin->engine, &task, error);
    if (twin->run == NULL)
        g_clear_pointer(&twin, twin_free);
    return twin;
}

void twin_free(Twin *twin)
{
    g_autoptr(GError) error = NULL;

    if (twin == NULL)
        return;
    pthread_mutex_lock(&twin->lock);
    twin->stops = true;
    pthread_cond_broadcast(&twin->changed);
    pthread_mutex_unlock(&twin->lock);
    if (twin->run != NULL && !rubato_task_run_wait(twin->run, &error))
        g_printerr("rubato-bench: %s\n", error->message);
    rubato_engine_free(twin->engine);
    pthread_cond_destroy(&twin->changed);
    pthread_mutex_destroy(&twin->lock);
    g_free(twin);
}

double limit_twin(Bench *bench, size_t n)
{
    Twin *twin = bench->twin;
    double seconds;

    pthread_mutex_lock(&twin->lock);
    twin->n_wanted = n;
    pthread_cond_broadcast(&twin->changed);
    while (twin->n_wanted > 0 && !twin->failed)
        pthread_cond_wait(&twin->changed, &twin->lock);
    if (twin->failed)
        g_error("the case's twin in one process has failed");
    seconds = twin->seconds;
    pthread_mutex_unlock(&twin->lock);
    return seconds;
}

double limit_add_twin(Bench *bench, size_t n)
{
    return limit_twin(bench, n);
}

bool twin_is_wanted(const BenchCase *what)
{
    return what->run_limit == limit_twin || what->run_limit == limit_add_twin;
}
