/* The cases of tables with replicas, and the same without: a worker in one process, and two others
 * with a server each, which keep each other's copies. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define MILLION UINT64_C(1000000)
#define N_SETS 32 /* of keys, so that no request finds the rows of the last one in a cache */

#define REPLICA_ADD(replicas_, beside_, share_, text_, limit_text_, limit_)                      \
    {                                                                                            \
        .name = "replica-add-10k-" #replicas_, .beside = beside_, .goal = { .share = share_ },   \
        .what = "Add to 10,000 random keys, sorted, of 10 M rows on two nodes, " text_,          \
        .limit = limit_text_, .unit = BENCH_UNIT_KEYS_PER_SECOND, .place = BENCH_PLACE_HOST,     \
        .nodes = 3, .table = { .storage = "dense", .replicas = replicas_ },                      \
        .n_rows = 10 * MILLION, .n_keys = 10000, .keys = BENCH_KEYS_SORTED, .n_operations = 200, \
        .n_sets = N_SETS, .run = add_keys_then_get, .run_limit = limit_,                         \
    }
#define REPLICA_GET(replicas_, text_)                                                             \
    {                                                                                             \
        .name = "replica-get-1-" #replicas_, .what = "Get of one key from two nodes, " text_,     \
        .limit = "round trip of 64 bytes in shared memory, both look for it",                     \
        .unit = BENCH_UNIT_SECONDS, .place = BENCH_PLACE_HOST, .nodes = 3,                        \
        .table = { .replicas = replicas_ }, .n_rows = MILLION, .n_keys = 1, .n_operations = 5000, \
        .run = get_key, .run_limit = limit_shm_round_trip,                                        \
    }

#define REPLICA_ITERATE(name_, replaces_, text_)                                       \
    {                                                                                  \
        .name = name_, .what = "Get + Add + Clock of 100 keys on two nodes, " text_,   \
        .limit = "round trip of 64 bytes in shared memory, both look for it",          \
        .unit = BENCH_UNIT_PER_SECOND, .place = BENCH_PLACE_HOST, .nodes = 3,          \
        .table = { .model = "ssp", .staleness = 2, .replicas = 1 }, .n_rows = MILLION, \
        .n_keys = 100, .n_operations = 5000, .replaces = replaces_, .run = iterate,    \
        .run_limit = limit_shm_round_trip,                                             \
    }

/* Node 1 has a third of the rows, and replicas of as many. */
#define REPLICA_COPY(name_, on_demand_, text_, n_rows_, ...)                                       \
    {                                                                                              \
        .name = name_, .what = "Get and Add of 200 keys while a node of three is drained, " text_, \
        .limit = "the same before", .unit = BENCH_UNIT_KEYS_PER_SECOND, .place = BENCH_PLACE_HOST, \
        .nodes = 4, .drains = true, .on_demand = on_demand_,                                       \
        .table = { .replicas = 1, __VA_ARGS__ }, .n_rows = n_rows_, .n_keys = 200,                 \
        .n_sets = N_SETS, .n_operations = 2000, .sample = sample_replica_copy,                     \
    }

const BenchCase bench_replica_cases[] = {
    REPLICA_ADD(0, NULL, 0, "without replicas", "two bare threads with half of the rows each",
                limit_parts_add),
    REPLICA_ADD(1, "replica-add-10k-0", 0.6, "with one replica",
                "the same, and each copies requests on to the other one, which has the rows too",
                limit_parts_add_twice),
    REPLICA_GET(0, "without replicas"),
    REPLICA_GET(1, "with one replica"),
    REPLICA_ITERATE("replica-iterate-100", false, "with one replica, SSP"),
    REPLICA_ITERATE("replica-iterate-100-replace", true,
                    "the same where lost workers are to be replaced"),
    REPLICA_COPY("replica-copy-dense", false, "dense rows of 256 MB", 4 * MILLION,
                 .storage = "dense", .width = 16),
    REPLICA_COPY("replica-copy-bounded", true, "hashed rows of 256 MB, of a table with max_bytes",
                 4 * MILLION, .storage = "hash", .width = 16, .max_bytes = UINT64_C(3) * 512 << 20),
    REPLICA_COPY("replica-copy-hash", true, "hashed rows of 256 MB", 4 * MILLION, .storage = "hash",
                 .width = 16),
    REPLICA_COPY("replica-copy-expiring", true, "hashed rows of 256 MB, which expire", 4 * MILLION,
                 .storage = "hash", .width = 16, .expire = "clocks", .expire_after = 1000),
    REPLICA_COPY("replica-copy-admitted", true,
                 "hashed rows of 256 MB, of a table that admits keys", 4 * MILLION,
                 .storage = "hash", .width = 16, .admit = "probability", .admit_probability = 1),
    REPLICA_COPY("replica-copy-counted", true,
                 "hashed rows, whose keys are admitted by 256 MB of counts", MILLION,
                 .storage = "hash", .width = 16, .admit = "count", .admit_count = 2,
                 .admit_bytes = 256 << 20),
    REPLICA_COPY("replica-copy-ragged", true, "ragged rows of 256 MB", 2 * MILLION,
                 .storage = "hash", .shape = RUBATO_SHAPE_RAGGED),
    { 0 },
};
