/* A sample of allreduce: the workers of all nodes combine tensors that are not in their caches. */
#include <string.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

/* Tensors take turns; all of them together, inputs and outputs, are larger than any cache. */
enum { MOST_TENSORS = 512 };
#define COLD_BYTES ((size_t)256 << 20)

typedef struct {
    size_t n_values, n_tensors;
    double *inputs, *outputs; /* n_tensors tensors each */
    size_t turn;
} Tensors;

static void make_tensors(const Bench *bench, Tensors *tensors)
{
    const size_t n_bytes = bench->what->tensor_bytes;

    *tensors = (Tensors){ .n_values = n_bytes / sizeof(double),
                          .n_tensors = CLAMP(COLD_BYTES / 2 / n_bytes, 2, MOST_TENSORS) };
    tensors->inputs = g_new(double, tensors->n_values * tensors->n_tensors);
    tensors->outputs = g_new(double, tensors->n_values * tensors->n_tensors);
    for (size_t i = 0; i < tensors->n_values * tensors->n_tensors; i++)
        tensors->inputs[i] = tensors->outputs[i] = 1;
}

static double *next_tensor(Tensors *tensors, double **output)
{
    const size_t first = tensors->turn++ % tensors->n_tensors * tensors->n_values;

    *output = tensors->outputs + first;
    return tensors->inputs + first;
}

static bool allreduce(Bench *bench, Tensors *tensors, GError **error)
{
    double *output;
    const double *const input = next_tensor(tensors, &output);
    const RubatoTensor tensor = { .name = "bench",
                                  .dtype = RUBATO_F64,
                                  .n_dims = 1,
                                  .shape = { tensors->n_values },
                                  .input = input,
                                  .output = output };

    return rubato_worker_allreduce(bench->worker, &tensor, NULL, error);
}

/* The least that n operations take if nothing but the bytes that have to move took time: between
 * nodes 2 (p - 1) / p of a tensor, from memory to memory; among threads p inputs and p outputs by
 * as many threads as there are processors. */
static double copy(const Bench *bench, Tensors *tensors, size_t n)
{
    const double p = rubato_worker_n_workers(bench->worker);
    const double n_processors = g_get_num_processors();
    const double began = bench_now();

    for (size_t i = 0; i < n; i++) {
        double *output;
        const double *const input = next_tensor(tensors, &output);

        memcpy(output, input, tensors->n_values * sizeof(double));
        clobber(output);
    }
    const double copied_s = bench_now() - began;
    return bench->what->place == BENCH_PLACE_LOCAL ? copied_s * p / MIN(p, n_processors)
                                                   : copied_s * 2 * (p - 1) / p;
}

/* What n operations take by bare threads or processes; all workers take part. raw NULL: what
 * copying takes. */
static double floor_of(const Bench *bench, Tensors *tensors, RawReduce *raw, size_t n)
{
    double *output;

    if (raw == NULL)
        return copy(bench, tensors, n);
    raw_reduce_meet(raw);
    const double began = bench_now();
    for (size_t i = 0; i < n; i++) {
        const double *const input = next_tensor(tensors, &output);

        raw_reduce(raw, input, output, tensors->n_values);
    }
    return bench_now() - began;
}

static bool run_tensors(Bench *bench, Tensors *tensors, RawReduce *raw, size_t n,
                        BenchSample *sample, GError **error)
{
    if (!allreduce(bench, tensors, error) || !rubato_worker_barrier(bench->worker, error))
        return false;
    const double began = bench_now();
    for (size_t i = 0; i < n; i++)
        if (!allreduce(bench, tensors, error))
            return false;
    const double own_s = bench_now() - began;
    if (!rubato_worker_barrier(bench->worker, error))
        return false;
    const double floor_s = floor_of(bench, tensors, raw, n);
    if (rubato_worker_rank(bench->worker) == 0)
        *sample = (BenchSample){ own_s / (double)n, floor_s / (double)n };
    return rubato_worker_barrier(bench->worker, error);
}

bool sample_allreduce(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    RawReduce *raw = NULL;
    Tensors tensors;

    if (raw_reduce_suits(bench) && (raw = raw_reduce_join(bench, error)) == NULL)
        return false;
    make_tensors(bench, &tensors);
    const bool ok = run_tensors(bench, &tensors, raw, n, sample, error);
    raw_reduce_leave(raw);
    g_free(tensors.inputs);
    g_free(tensors.outputs);
    return ok;
}

/* ---- a group ---- */

typedef struct {
    size_t n;
    RubatoTensor *tensors; /* of one value each */
    char (*names)[16];
    double *values; /* in place */
} Group;

static void make_group(size_t n, Group *group)
{
    *group = (Group){ .n = n,
                      .tensors = g_new0(RubatoTensor, n),
                      .names = g_malloc(n * sizeof *group->names),
                      .values = g_new0(double, n) };
    for (size_t i = 0; i < n; i++) {
        g_snprintf(group->names[i], sizeof group->names[i], "grad/%03zu", i);
        group->tensors[i] = (RubatoTensor){ .name = group->names[i],
                                            .dtype = RUBATO_F64,
                                            .n_dims = 1,
                                            .shape = { 1 },
                                            .input = &group->values[i],
                                            .output = &group->values[i] };
    }
}

static void clear_group(Group *group)
{
    g_free(group->tensors);
    g_free(group->names);
    g_free(group->values);
}

static bool run_group(Bench *bench, const Group *group, size_t n, BenchSample *sample,
                      GError **error)
{
    const RubatoTensor all = { .name = "all",
                               .dtype = RUBATO_F64,
                               .n_dims = 1,
                               .shape = { group->n },
                               .input = group->values,
                               .output = group->values };
    const double began = bench_now();

    for (size_t i = 0; i < n; i++)
        if (!rubato_worker_allreduce_group(bench->worker, group->tensors, group->n, NULL, error))
            return false;
    const double grouped = bench_now();
    for (size_t i = 0; i < n; i++)
        if (!rubato_worker_allreduce(bench->worker, &all, NULL, error))
            return false;
    const double ended = bench_now();
    if (rubato_worker_rank(bench->worker) == 0)
        *sample = (BenchSample){ (grouped - began) / (double)n, (ended - grouped) / (double)n };
    return rubato_worker_barrier(bench->worker, error);
}

bool sample_allreduce_group(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Group group;

    make_group(bench->what->n_tensors, &group);
    /* the first time is negotiated in full */
    const bool ok =
        rubato_worker_allreduce_group(bench->worker, group.tensors, group.n, NULL, error) &&
        rubato_worker_barrier(bench->worker, error) && run_group(bench, &group, n, sample, error);
    clear_group(&group);
    return ok;
}
