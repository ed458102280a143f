/* The cases of several nodes on one host, each with a worker and a server: what it costs that they
 * keep step, and how many messages and packets that takes. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define MILLION UINT64_C(1000000)

/* n_: iterations of each worker in a sample. */
#define ITERATE(name_, place_, nodes_, keys_, n_, ...)                                       \
    {                                                                                        \
        .name = name_,                                                                       \
        .what = "Get + Add + Clock of " #keys_ " fresh keys by a worker of each of " #nodes_ \
                " nodes, which have a server each",                                          \
        .limit = "the same by one worker and one server in one process",                     \
        .unit = BENCH_UNIT_PER_SECOND, .place = place_, .nodes = nodes_, .mixed = true,      \
        .table = { __VA_ARGS__ }, .n_rows = MILLION, .n_keys = keys_, .n_sets = 64,          \
        .n_operations = n_, .run = iterate_fresh, .run_limit = limit_reference_run,          \
        .sample = sample_mixed                                                               \
    }

#define SSP .model = "ssp", .staleness = 2
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
    { 0 },
};
