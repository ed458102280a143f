/* Samples of Gets and Adds while replicas are made: node 1 is drained, so all parts that it has,
 * and its replicas of others, go to other nodes, and requests go on meanwhile. Before that, n of
 * these requests are made, which the others stand beside.
 *
 * A worker cannot wait for the drain, because it makes the requests: a thread of its own does. */
#include <pthread.h>
#include <stdatomic.h>

#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"

typedef struct {
    RubatoEngine *engine;
    _Atomic bool has_ended;
    GError *error;
} Drain;

/* Of requests. */
typedef struct {
    size_t n;
    double seconds, worst;
} Requests;

static void *drain(void *user_data)
{
    Drain *const drain = user_data;

    (void)rubato_engine_drain_node(drain->engine, 1, &drain->error);
    atomic_store(&drain->has_ended, true);
    return NULL;
}

/* A Get of some keys and an Add to them. */
static bool get_and_add(Bench *bench, const RubatoKey *keys, size_t n_keys, GError **error)
{
    if (bench->ragged != NULL)
        return rubato_ragged_table_get_into(bench->ragged, keys, n_keys, bench->lengths,
                                            bench->values, n_keys * BENCH_RAGGED_MOST_LENGTH,
                                            error) &&
               rubato_ragged_table_add(bench->ragged, keys, n_keys, bench->lengths, bench->values,
                                       error);
    return rubato_kv_table_get(bench->table, keys, n_keys, bench->values, error) &&
           rubato_kv_table_add(bench->table, keys, n_keys, bench->values, error);
}

static bool request(Bench *bench, Requests *requests, GError **error)
{
    const RubatoKey *const keys = bench_next_keys(bench);
    const double began = bench_now();

    if (!get_and_add(bench, keys, bench->what->n_keys, error))
        return false;

    const double seconds = bench_now() - began;

    requests->n++;
    requests->seconds += seconds;
    requests->worst = MAX(requests->worst, seconds);
    return true;
}

static double rate_of(const Bench *bench, const Requests *requests)
{
    return (double)(requests->n * bench->what->n_keys) / requests->seconds;
}

static bool request_beside(Bench *bench, Requests *requests, GError **error)
{
    Drain of_node = { .engine = bench->engine };
    pthread_t thread;
    bool ok = true;

    if (pthread_create(&thread, NULL, drain, &of_node) != 0) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no thread for the drain");
        return false;
    }
    /* it ends: a drain returns when the others have all, or with an error */
    while (ok && !atomic_load(&of_node.has_ended))
        ok = request(bench, requests, error);
    pthread_join(thread, NULL);
    if (ok && of_node.error != NULL) {
        g_propagate_error(error, of_node.error);
        return false;
    }
    g_clear_error(&of_node.error);
    return ok;
}

bool sample_replica_copy(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Requests alone = { 0 }, beside = { 0 };

    for (size_t i = 0; i < n / 4; i++) /* warms up */
        if (!request(bench, &alone, error))
            return false;
    alone = (Requests){ 0 };
    for (size_t i = 0; i < n; i++)
        if (!request(bench, &alone, error))
            return false;
    if (!request_beside(bench, &beside, error))
        return false;
    *sample = (BenchSample){ rate_of(bench, &beside), rate_of(bench, &alone) };
    bench_note_most(bench->details, 0, "longest before, ms", 1e3 * alone.worst);
    bench_note_most(bench->details, 1, "longest meanwhile, ms", 1e3 * beside.worst);
    bench_note_mean(bench->details, 2, "seconds of it", beside.seconds);
    return true;
}
