/* The cases. */
#include "apps/bench/bench.h"

#define MILLION UINT64_C(1000000)

static bool get_key(Bench *bench, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++) {
        const double began = bench->latencies == NULL ? 0 : bench_now();

        if (!rubato_kv_table_get(bench->table, bench->keys, 1, bench->values, error))
            return false;
        if (bench->latencies != NULL)
            bench->latencies[i] = bench_now() - began;
    }
    return true;
}

static bool add_key(Bench *bench, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++)
        if (!rubato_kv_table_add(bench->table, bench->keys, 1, bench->values, error))
            return false;
    return true;
}

static bool get_keys(Bench *bench, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++)
        if (!rubato_kv_table_get(bench->table, bench->keys, bench->what->n_keys, bench->values,
                                 error))
            return false;
    return true;
}

static bool add_keys(Bench *bench, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++)
        if (!rubato_kv_table_add(bench->table, bench->keys, bench->what->n_keys, bench->values,
                                 error))
            return false;
    return true;
}

/* Adds are asynchronous: a Get of the same key tells when they have arrived. */
static bool add_then_get(Bench *bench, size_t n, GError **error)
{
    return (bench->what->n_keys == 1 ? add_key(bench, n, error) : add_keys(bench, n, error)) &&
           get_key(bench, 1, error);
}

static bool iterate(Bench *bench, size_t n, GError **error)
{
    const size_t n_keys = bench->what->n_keys;

    for (size_t i = 0; i < n; i++)
        if (!rubato_kv_table_get(bench->table, bench->keys, n_keys, bench->values, error) ||
            !rubato_kv_table_add(bench->table, bench->keys, n_keys, bench->values, error) ||
            !rubato_kv_table_clock(bench->table, error))
            return false;
    return true;
}

#define DENSE(n)                      \
    {                                 \
        .n_keys = (n), .model = "asp" \
    }
#define DENSE_SSP(n)                                  \
    {                                                 \
        .n_keys = (n), .model = "ssp", .staleness = 2 \
    }

const BenchCase bench_cases[] = {
    { .name = "local-get-1",
      .what = "Get of one key, in process",
      .limit = "mutex lock, load, unlock",
      .unit = BENCH_SECONDS,
      .table = DENSE(MILLION),
      .n_keys = 1,
      .n_operations = 200000,
      .run = get_key,
      .run_limit = limit_locked_load },
    { .name = "local-add-1",
      .what = "Add of one key, in process",
      .limit = "mutex lock, add, unlock",
      .unit = BENCH_SECONDS,
      .table = DENSE(MILLION),
      .n_keys = 1,
      .n_operations = 200000,
      .run = add_key,
      .run_limit = limit_locked_add },
    { .name = "local-iterate-100",
      .what = "Get + Add + Clock of 100 keys, SSP",
      .limit = "gather + scatter-add of the keys",
      .unit = BENCH_PER_SECOND,
      .table = DENSE_SSP(MILLION),
      .n_keys = 100,
      .n_operations = 50000,
      .run = iterate,
      .run_limit = limit_gather_scatter },
    { .name = "local-iterate-100-2x2",
      .what = "the same by two workers on two servers, both together",
      .limit = "gather + scatter-add by one thread",
      .unit = BENCH_PER_SECOND,
      .workers = 2,
      .servers = 2,
      .table = DENSE_SSP(MILLION),
      .n_keys = 100,
      .n_operations = 50000,
      .run = iterate,
      .run_limit = limit_gather_scatter },
    { .name = "local-get-10k-dense",
      .what = "Get of 10,000 sorted random keys of 10 M rows",
      .limit = "gather",
      .unit = BENCH_KEYS_PER_SECOND,
      .table = DENSE(10 * MILLION),
      .n_keys = 10000,
      .sorted = true,
      .n_operations = 500,
      .run = get_keys,
      .run_limit = limit_gather },
    { .name = "local-get-10k-dense-unsorted",
      .what = "the same, keys in random order",
      .limit = "gather",
      .unit = BENCH_KEYS_PER_SECOND,
      .table = DENSE(10 * MILLION),
      .n_keys = 10000,
      .n_operations = 500,
      .run = get_keys,
      .run_limit = limit_gather },
    { .name = "local-add-10k-dense",
      .what = "Add to 10,000 sorted random keys of 10 M rows",
      .limit = "scatter-add",
      .unit = BENCH_KEYS_PER_SECOND,
      .table = DENSE(10 * MILLION),
      .n_keys = 10000,
      .sorted = true,
      .n_operations = 500,
      .run = add_then_get,
      .run_limit = limit_scatter_add },
    { .name = "local-add-10k-dense-unsorted",
      .what = "the same, keys in random order",
      .limit = "scatter-add",
      .unit = BENCH_KEYS_PER_SECOND,
      .table = DENSE(10 * MILLION),
      .n_keys = 10000,
      .n_operations = 500,
      .run = add_then_get,
      .run_limit = limit_scatter_add },
    { .name = "tcp-get-1",
      .what = "Get of one key, between two processes",
      .limit = "ZeroMQ DEALER-ROUTER round trip",
      .unit = BENCH_SECONDS,
      .two_processes = true,
      .table = DENSE(MILLION),
      .n_keys = 1,
      .n_operations = 2000,
      .run = get_key,
      .run_limit = limit_zmq_round_trip },
    { .name = "tcp-add-1-pipelined",
      .what = "Adds of one key, one worker",
      .limit = "ZeroMQ stream of 64-byte messages",
      .unit = BENCH_PER_SECOND,
      .two_processes = true,
      .table = DENSE(MILLION),
      .n_keys = 1,
      .n_operations = 200000,
      .run = add_then_get,
      .run_limit = limit_zmq_stream },
    { .name = "tcp-get-10k-dense",
      .what = "Get of 10,000 sorted random keys, between two processes",
      .limit = "gather, in process",
      .unit = BENCH_KEYS_PER_SECOND,
      .two_processes = true,
      .table = DENSE(10 * MILLION),
      .n_keys = 10000,
      .sorted = true,
      .n_operations = 100,
      .run = get_keys,
      .run_limit = limit_gather },
    { .name = "tcp-add-10k-dense",
      .what = "Add to 10,000 sorted random keys, between two processes",
      .limit = "scatter-add, in process",
      .unit = BENCH_KEYS_PER_SECOND,
      .two_processes = true,
      .table = DENSE(10 * MILLION),
      .n_keys = 10000,
      .sorted = true,
      .n_operations = 100,
      .run = add_then_get,
      .run_limit = limit_scatter_add },
    { 0 },
};
