/* A Get of high priority beside a stream of large pushes.
 *
 * The worker of rank 0 makes Gets of one key, first alone, then while the worker of rank 1 pushes
 * 64 MB after 64 MB to the same server. The sample is the median of the second ones; that of the
 * first ones is told beside it, and is the limit of a case without a bare one.
 *
 * Threads: the two workers; `streaming` is what they share. */
#include <stdatomic.h>
#include <stdlib.h>

#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

/* The worker of rank 0 wants the stream. */
static _Atomic bool streaming;

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static bool get_many(Bench *bench, size_t n, double *median, GError **error)
{
    const RubatoRequestOptions high = { .priority = RUBATO_PRIORITY_HIGH };
    g_autofree double *seconds = g_new(double, n);
    float value;

    for (size_t i = 0; i < n; i++) {
        const double began = bench_now();
        const RubatoTicket ticket =
            rubato_kv_table_get_async(bench->table, bench->keys, 1, &value, &high, error);

        if (ticket == 0 || !rubato_worker_wait(bench->worker, ticket, error))
            return false;
        seconds[i] = bench_now() - began;
    }
    qsort(seconds, n, sizeof *seconds, compare_doubles);
    *median = seconds[n / 2];
    return true;
}

/* Counts the bytes that it has pushed. */
static bool stream(Bench *bench, GError **error)
{
    const RubatoRequestOptions borrowed = { .buffers = RUBATO_BUFFERS_BORROWED };

    while (atomic_load(&streaming)) {
        const RubatoTicket ticket = rubato_kv_table_add_range_async(
            bench->table, 0, bench->what->n_keys, bench->values, &borrowed, error);

        if (ticket == 0 || !rubato_worker_wait(bench->worker, ticket, error))
            return false;
        bench->next_row += bench->what->n_keys;
    }
    return true;
}

bool sample_priority(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const uint32_t rank = rubato_worker_rank(bench->worker);
    double alone = 0;
    bool ok = true;

    if (rank == 0) {
        atomic_store(&streaming, true);
        if (bench->what->run_limit != NULL)
            sample->limit = bench->what->run_limit(bench, n) / (double)n;
    }
    if (!rubato_worker_barrier(bench->worker, error) ||
        (rank == 0 && !get_many(bench, n, &alone, error)) ||
        !rubato_worker_barrier(bench->worker, error))
        return false;
    if (rank == 0) {
        ok = get_many(bench, n, &sample->own, error);
        atomic_store(&streaming, false);
        if (bench->what->run_limit == NULL)
            sample->limit = alone;
        bench->details->at[0] = (BenchDetail){ "us for the same Get alone", alone * 1e6 };
    } else if (rank == 1) {
        const double began = bench_now();

        bench->next_row = 0;
        ok = stream(bench, error);
        bench->details->at[1] =
            (BenchDetail){ "bytes/s pushed meanwhile",
                           (double)bench->next_row * sizeof(float) / (bench_now() - began) };
        bench->details->n = 2;
    }
    return ok && rubato_worker_barrier(bench->worker, error);
}
