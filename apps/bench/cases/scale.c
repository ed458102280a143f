/* The cases of more workers and servers in one process: what a second one brings or costs, under
 * each model. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define MILLION UINT64_C(1000000)

/* n_: iterations of each worker in a sample. */
#define SCALE(model_, workers_, servers_, n_, ...)                                \
    {                                                                             \
        .name = "local-scale-" model_ "-" #workers_ "x" #servers_,                \
        .what = "Get + Add + Clock of 100 fresh keys; workers x servers",         \
        .limit = "bare threads on bare rows, a spinning lock for each server",    \
        .unit = BENCH_UNIT_PER_SECOND, .workers = workers_, .servers = servers_,  \
        .table = { __VA_ARGS__ }, .n_rows = MILLION, .n_keys = 100, .n_sets = 64, \
        .n_operations = n_, .run = iterate_fresh, .run_limit = limit_threads      \
    }

#define SCALE_ALL(model_, ...)                                                            \
    SCALE(model_, 1, 1, 20000, __VA_ARGS__), SCALE(model_, 2, 1, 20000, __VA_ARGS__),     \
        SCALE(model_, 4, 1, 10000, __VA_ARGS__), SCALE(model_, 1, 2, 20000, __VA_ARGS__), \
        SCALE(model_, 2, 2, 20000, __VA_ARGS__), SCALE(model_, 4, 2, 10000, __VA_ARGS__)

#define BARRIER(workers_, n_, most_)                                                      \
    {                                                                                     \
        .name = "local-barrier-" #workers_, .what = "a barrier of " #workers_ " workers", \
        .limit = "a barrier of bare threads that spin", .unit = BENCH_UNIT_SECONDS,       \
        .goal = { .median = most_ }, .workers = workers_, .n_rows = 1000, .n_keys = 1,    \
        .n_operations = n_, .sample = sample_barrier                                      \
    }

const BenchCase bench_scale_cases[] = {
    SCALE_ALL("asp", .model = "asp"),
    SCALE_ALL("ssp", .model = "ssp", .staleness = 2),
    SCALE_ALL("sparse", .model = "sparse_ssp", .staleness = 1, .speculation = 1),
    SCALE_ALL("bsp", .model = "bsp"),
    SCALE("ssp", 8, 1, 4000, .model = "ssp", .staleness = 2),
    SCALE("ssp", 16, 1, 2000, .model = "ssp", .staleness = 2),
    SCALE("ssp", 64, 1, 500, .model = "ssp", .staleness = 2),
    SCALE("bsp", 64, 1, 200, .model = "bsp"),
    BARRIER(1, 20000, 1e-6),
    BARRIER(2, 20000, 2e-6),
    BARRIER(64, 300, 100e-6),
    { 0 },
};
