/* The cases of up to 64 nodes on one host, each with a worker and a server that are idle: what it
 * costs that they are so many. Those of 4 nodes, and of more than 8, run only if they are named
 * (docs/figures/measure-nodes). */
#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"

/* n_: barriers in a sample. */
#define NODES(asked_, name_, place_, nodes_, n_)                                        \
    {                                                                                   \
        .name = name_ #nodes_, .what = "a barrier of the workers of " #nodes_ " nodes", \
        .limit = "a barrier of bare threads that spin", .unit = BENCH_UNIT_SECONDS,     \
        .place = place_, .nodes = nodes_, .mixed = true, .starts_tasks = true,          \
        .on_demand = asked_, .table = { .model = "asp" }, .n_rows = 1000, .n_keys = 1,  \
        .n_operations = n_, .sample = sample_nodes                                      \
    }
#define BOTH(asked_, nodes_, n_)                                \
    NODES(asked_, "host-nodes-", BENCH_PLACE_HOST, nodes_, n_), \
        NODES(asked_, "tcp-nodes-", BENCH_PLACE_TCP, nodes_, n_)

const BenchCase bench_many_nodes_cases[] = {
    BOTH(false, 2, 2000),
    BOTH(false, 8, 300),
    BOTH(true, 4, 1000),
    BOTH(true, 16, 100),
    BOTH(true, 32, 50),
    BOTH(true, 64, 20),
    { 0 },
};
