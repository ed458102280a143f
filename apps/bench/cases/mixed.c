/* The cases of several nodes on one host, each with a worker and a server: what it costs that they
 * keep step, and how many messages and packets that takes. Some are for a picture alone
 * (docs/figures/measure-scale). */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define MILLION UINT64_C(1000000)

/* n_: iterations of each worker in a sample. */
#define ITERATE_IF(asked_, name_, place_, nodes_, keys_, n_, ...)                            \
    {                                                                                        \
        .name = name_,                                                                       \
        .what = "Get + Add + Clock of " #keys_ " fresh keys by a worker of each of " #nodes_ \
                " nodes, which have a server each",                                          \
        .limit = "bare threads on bare rows in one process, one for each node",              \
        .unit = BENCH_UNIT_PER_SECOND, .place = place_, .nodes = nodes_, .mixed = true,      \
        .on_demand = asked_, .table = { __VA_ARGS__ }, .n_rows = MILLION, .n_keys = keys_,   \
        .n_sets = 64, .n_operations = n_, .run = iterate_fresh, .run_limit = limit_threads,  \
        .sample = sample_mixed                                                               \
    }

#define ITERATE(name_, place_, nodes_, keys_, n_, ...) \
    ITERATE_IF(false, name_, place_, nodes_, keys_, n_, __VA_ARGS__)
#define DRAWN(name_, nodes_, n_, ...) \
    ITERATE_IF(true, "host-" name_, BENCH_PLACE_HOST, nodes_, 100, n_, __VA_ARGS__)

#define SSP .model = "ssp", .staleness = 2
#define SPARSE .model = "sparse_ssp", .staleness = 1, .speculation = 1
#define BOTH(name_, nodes_, keys_, n_, ...)                                   \
    ITERATE("host-" name_, BENCH_PLACE_HOST, nodes_, keys_, n_, __VA_ARGS__), \
        ITERATE("tcp-" name_, BENCH_PLACE_TCP, nodes_, keys_, n_, __VA_ARGS__)

const BenchCase bench_mixed_cases[] = {
    BOTH("iterate-asp-2", 2, 100, 10000, .model = "asp"),
    BOTH("iterate-ssp-2", 2, 100, 10000, SSP),
    BOTH("iterate-bsp-2", 2, 100, 10000, .model = "bsp"),
    BOTH("iterate-ssp-4", 4, 100, 2000, SSP),
    BOTH("iterate-ssp-8", 8, 100, 1000, SSP),
    BOTH("iterate-ssp-16", 16, 100, 500, SSP),
    DRAWN("iterate-asp-4", 4, 2000, .model = "asp"),
    DRAWN("iterate-asp-8", 8, 1000, .model = "asp"),
    DRAWN("iterate-asp-16", 16, 300, .model = "asp"),
    DRAWN("iterate-sparse-2", 2, 5000, SPARSE),
    DRAWN("iterate-sparse-4", 4, 1000, SPARSE),
    DRAWN("iterate-sparse-8", 8, 500, SPARSE),
    DRAWN("iterate-sparse-16", 16, 200, SPARSE),
    DRAWN("iterate-bsp-4", 4, 2000, .model = "bsp"),
    DRAWN("iterate-bsp-8", 8, 1000, .model = "bsp"),
    DRAWN("iterate-bsp-16", 16, 300, .model = "bsp"),
    { 0 },
};
