/* The cases of more workers and servers in one process: what a second one brings or costs, under
 * each model. Some are for a picture alone (docs/figures/measure-scale). */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define MILLION UINT64_C(1000000)

/* n_: iterations of each worker in a sample. */
#define SCALE_IF(asked_, beside_, share_, model_, workers_, servers_, n_, ...)             \
    {                                                                                      \
        .name = "local-scale-" model_ "-" #workers_ "x" #servers_, .beside = beside_,      \
        .goal = { .share = share_ },                                                       \
        .what = "Get + Add + Clock of 100 fresh keys; workers x servers",                  \
        .limit = "bare threads on bare rows, a spinning lock for each server",             \
        .unit = BENCH_UNIT_PER_SECOND, .workers = workers_, .servers = servers_,           \
        .on_demand = asked_, .table = { __VA_ARGS__ }, .n_rows = MILLION, .n_keys = 100,   \
        .n_sets = 64, .n_operations = n_, .run = iterate_fresh, .run_limit = limit_threads \
    }

#define SCALE(model_, workers_, servers_, n_, ...) \
    SCALE_IF(false, NULL, 0, model_, workers_, servers_, n_, __VA_ARGS__)
#define DRAWN(model_, workers_, servers_, n_, ...) \
    SCALE_IF(true, NULL, 0, model_, workers_, servers_, n_, __VA_ARGS__)

/* It should reach such a share of the case with fewer workers or servers. */
#define GROWN(share_, fewer_, model_, workers_, servers_, n_, ...)                            \
    SCALE_IF(false, "local-scale-" model_ "-" fewer_, share_, model_, workers_, servers_, n_, \
             __VA_ARGS__)

/* The same of other numbers of keys. */
#define KEYS(model_, keys_, workers_, servers_, n_, ...)                                   \
    {                                                                                      \
        .name = "local-keys-" model_ "-" #keys_ "-" #workers_ "x" #servers_,               \
        .what = "Get + Add + Clock of " #keys_ " fresh keys; workers x servers",           \
        .limit = "bare threads on bare rows, a spinning lock for each server",             \
        .unit = BENCH_UNIT_PER_SECOND, .workers = workers_, .servers = servers_,           \
        .on_demand = true, .table = { __VA_ARGS__ }, .n_rows = MILLION, .n_keys = keys_,   \
        .n_sets = 64, .n_operations = n_, .run = iterate_fresh, .run_limit = limit_threads \
    }
#define KEYS_ALL(model_, keys_, n_, ...)                                                    \
    KEYS(model_, keys_, 1, 1, n_, __VA_ARGS__), KEYS(model_, keys_, 2, 1, n_, __VA_ARGS__), \
        KEYS(model_, keys_, 2, 2, n_, __VA_ARGS__)
#define KEYS_EACH(model_, ...)                                                           \
    KEYS_ALL(model_, 10, 50000, __VA_ARGS__), KEYS_ALL(model_, 1000, 2000, __VA_ARGS__), \
        KEYS_ALL(model_, 3000, 1000, __VA_ARGS__), KEYS_ALL(model_, 10000, 200, __VA_ARGS__)

#define SSP .model = "ssp", .staleness = 2
#define SPARSE .model = "sparse_ssp", .staleness = 1, .speculation = 1

/* Four workers may be more than the processors: those on one server stand beside two without a
 * goal. */
#define SCALE_ALL(model_, ...)                                                                  \
    SCALE(model_, 1, 1, 20000, __VA_ARGS__), GROWN(1, "1x1", model_, 2, 1, 20000, __VA_ARGS__), \
        GROWN(0, "2x1", model_, 4, 1, 10000, __VA_ARGS__),                                      \
        GROWN(1, "1x1", model_, 1, 2, 20000, __VA_ARGS__),                                      \
        GROWN(1, "2x1", model_, 2, 2, 20000, __VA_ARGS__),                                      \
        GROWN(0.8, "2x2", model_, 4, 2, 10000, __VA_ARGS__)

#define BARRIER(workers_, n_, most_)                                                      \
    {                                                                                     \
        .name = "local-barrier-" #workers_, .what = "a barrier of " #workers_ " workers", \
        .limit = "a barrier of bare threads that spin", .unit = BENCH_UNIT_SECONDS,       \
        .goal = { .median = most_ }, .workers = workers_, .n_rows = 1000, .n_keys = 1,    \
        .n_operations = n_, .sample = sample_barrier                                      \
    }

const BenchCase bench_scale_cases[] = {
    SCALE_ALL("asp", .model = "asp"),
    SCALE_ALL("ssp", SSP),
    SCALE_ALL("sparse", SPARSE),
    SCALE_ALL("bsp", .model = "bsp"),
    SCALE("ssp", 8, 1, 4000, SSP),
    SCALE("ssp", 16, 1, 2000, SSP),
    SCALE("ssp", 64, 1, 500, SSP),
    SCALE("bsp", 64, 1, 200, .model = "bsp"),
    DRAWN("asp", 8, 1, 2000, .model = "asp"),
    DRAWN("asp", 16, 1, 1000, .model = "asp"),
    DRAWN("asp", 32, 1, 400, .model = "asp"),
    DRAWN("asp", 64, 1, 200, .model = "asp"),
    DRAWN("ssp", 32, 1, 1000, SSP),
    DRAWN("sparse", 8, 1, 1000, SPARSE),
    DRAWN("sparse", 16, 1, 400, SPARSE),
    DRAWN("sparse", 32, 1, 200, SPARSE),
    DRAWN("sparse", 64, 1, 100, SPARSE),
    DRAWN("bsp", 8, 1, 1000, .model = "bsp"),
    DRAWN("bsp", 16, 1, 500, .model = "bsp"),
    DRAWN("bsp", 32, 1, 300, .model = "bsp"),
    DRAWN("asp", 2, 3, 20000, .model = "asp"),
    DRAWN("asp", 2, 4, 20000, .model = "asp"),
    DRAWN("ssp", 2, 3, 20000, SSP),
    DRAWN("ssp", 2, 4, 20000, SSP),
    DRAWN("sparse", 2, 3, 10000, SPARSE),
    DRAWN("sparse", 2, 4, 10000, SPARSE),
    DRAWN("bsp", 2, 3, 10000, .model = "bsp"),
    DRAWN("bsp", 2, 4, 10000, .model = "bsp"),
    KEYS_EACH("asp", .model = "asp"),
    KEYS_EACH("ssp", SSP),
    KEYS_EACH("sparse", SPARSE),
    KEYS_EACH("bsp", .model = "bsp"),
    BARRIER(1, 20000, 1e-6),
    BARRIER(2, 20000, 2e-6),
    BARRIER(64, 300, 100e-6),
    { 0 },
};
