/* Samples of collectives other than plain allreduce: with compression, reduce_scatter, allgather,
 * alltoall and broadcast, of floats that are not in the caches. */
#include <string.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

/* Tensors take turns; all of them together, inputs and outputs, are larger than any cache. */
enum { MOST_TENSORS = 512 };
#define COLD_BYTES ((size_t)256 << 20)

typedef struct {
    size_t n_values, n_tensors;
    float *inputs, *outputs; /* n_tensors tensors each */
    size_t turn;
} Floats;

typedef bool (*Exchange)(Bench *bench, Floats *floats, GError **error);

static void make_floats(const Bench *bench, Floats *floats)
{
    const size_t n_bytes = bench->what->tensor_bytes;

    *floats = (Floats){ .n_values = n_bytes / sizeof(float),
                        .n_tensors = CLAMP(COLD_BYTES / 2 / n_bytes, 2, MOST_TENSORS) };
    floats->inputs = g_new(float, floats->n_values * floats->n_tensors);
    floats->outputs = g_new(float, floats->n_values * floats->n_tensors);
    for (size_t i = 0; i < floats->n_values * floats->n_tensors; i++)
        floats->inputs[i] = floats->outputs[i] = 1;
}

static RubatoTensor next_tensor(Floats *floats)
{
    const size_t first = floats->turn++ % floats->n_tensors * floats->n_values;

    return (RubatoTensor){ .name = "bench",
                           .dtype = RUBATO_F32,
                           .n_dims = 1,
                           .shape = { floats->n_values },
                           .input = floats->inputs + first,
                           .output = floats->outputs + first };
}

/* ---- what is exchanged ---- */

static bool allreduce(Bench *bench, Floats *floats, RubatoCompression compression, GError **error)
{
    const RubatoTensor tensor = next_tensor(floats);
    const RubatoReduce reduce = { .compression = compression };

    return rubato_worker_allreduce(bench->worker, &tensor, &reduce, error);
}

static bool allreduce_plain(Bench *bench, Floats *floats, GError **error)
{
    return allreduce(bench, floats, RUBATO_COMPRESSION_NONE, error);
}

static bool allreduce_f16(Bench *bench, Floats *floats, GError **error)
{
    return allreduce(bench, floats, RUBATO_COMPRESSION_F16, error);
}

static bool allreduce_bf16(Bench *bench, Floats *floats, GError **error)
{
    return allreduce(bench, floats, RUBATO_COMPRESSION_BF16, error);
}

static bool reduce_scatter(Bench *bench, Floats *floats, GError **error)
{
    const RubatoTensor tensor = next_tensor(floats);

    return rubato_worker_reduce_scatter(bench->worker, &tensor, NULL, error);
}

static bool allgather(Bench *bench, Floats *floats, GError **error)
{
    const RubatoTensor tensor = next_tensor(floats);
    g_auto(RubatoGathered) gathered = { 0 };

    return rubato_worker_allgather(bench->worker, &tensor, &gathered, error);
}

static bool alltoall(Bench *bench, Floats *floats, GError **error)
{
    const RubatoTensor tensor = next_tensor(floats);
    g_auto(RubatoGathered) gathered = { 0 };

    return rubato_worker_alltoall(bench->worker, &tensor, NULL, &gathered, error);
}

/* The root writes nothing. */
static bool broadcast(Bench *bench, Floats *floats, GError **error)
{
    RubatoTensor tensor = next_tensor(floats);

    if (rubato_worker_rank(bench->worker) == 0)
        tensor.output = NULL;

    return rubato_worker_broadcast(bench->worker, &tensor, 0, error);
}

/* ---- samples ---- */

/* Until all workers have the last result: some have theirs before. */
static bool time_exchange(Bench *bench, Floats *floats, Exchange exchange, size_t n,
                          double *seconds, GError **error)
{
    if (!exchange(bench, floats, error) || !rubato_worker_barrier(bench->worker, error))
        return false;
    const double began = bench_now();
    for (size_t i = 0; i < n; i++)
        if (!exchange(bench, floats, error))
            return false;
    if (!rubato_worker_named_barrier(bench->worker, "end", error))
        return false;
    *seconds = (bench_now() - began) / (double)n;
    return true;
}

/* Copying n_copies tensors of n in all. */
static double copy(Floats *floats, double n_copies, size_t n)
{
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        const RubatoTensor tensor = next_tensor(floats);

        memcpy(tensor.output, tensor.input, floats->n_values * sizeof(float));
        clobber(tensor.output);
    }
    return (bench_now() - began) * n_copies / (double)n;
}

static bool sample_copied(Bench *bench, Exchange exchange, double n_copies, size_t n,
                          BenchSample *sample, GError **error)
{
    Floats floats;
    double own_s;

    make_floats(bench, &floats);
    const bool ok = time_exchange(bench, &floats, exchange, n, &own_s, error) &&
                    rubato_worker_barrier(bench->worker, error);
    if (ok && rubato_worker_rank(bench->worker) == 0)
        *sample = (BenchSample){ own_s, copy(&floats, n_copies, n) };
    g_free(floats.inputs);
    g_free(floats.outputs);
    return ok && rubato_worker_barrier(bench->worker, error);
}

/* Beside the same without compression. */
static bool sample_compressed(Bench *bench, Exchange exchange, size_t n, BenchSample *sample,
                              GError **error)
{
    Floats floats;
    double own_s, plain_s;

    make_floats(bench, &floats);
    const bool ok = time_exchange(bench, &floats, exchange, n, &own_s, error) &&
                    time_exchange(bench, &floats, allreduce_plain, n, &plain_s, error);
    if (ok && rubato_worker_rank(bench->worker) == 0)
        *sample = (BenchSample){ own_s, plain_s };
    g_free(floats.inputs);
    g_free(floats.outputs);
    return ok && rubato_worker_barrier(bench->worker, error);
}

bool sample_allreduce_f16(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_compressed(bench, allreduce_f16, n, sample, error);
}

bool sample_allreduce_bf16(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_compressed(bench, allreduce_bf16, n, sample, error);
}

/* Each of p workers sends (p - 1) / p of its tensor. */
bool sample_reduce_scatter(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const double p = rubato_worker_n_workers(bench->worker);

    return sample_copied(bench, reduce_scatter, (p - 1) / p, n, sample, error);
}

/* Each of p workers writes the tensors of all. */
bool sample_allgather(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_copied(bench, allgather, rubato_worker_n_workers(bench->worker), n, sample,
                         error);
}

/* Each worker writes as much as it has. */
bool sample_alltoall(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_copied(bench, alltoall, 1, n, sample, error);
}

/* So does each but the root in a broadcast. */
bool sample_broadcast(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_copied(bench, broadcast, 1, n, sample, error);
}
