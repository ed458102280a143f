/* Collectives on tensors: how long the workers of a host take to combine theirs, in one process and
 * in one each. The goals are those of two ranks. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define US 1e-6

#define ALLREDUCE(size_, place_, ranks_, where_, bytes_, n_, most_, limit_, ...)              \
    {                                                                                         \
        .name = "allreduce-" size_ "-" place_ "-" #ranks_,                                    \
        .what = "allreduce of " size_ " bytes of doubles, which are in no cache, by " #ranks_ \
                " workers, " where_,                                                          \
        .limit = limit_, .unit = BENCH_UNIT_SECONDS, .goal = { .median = most_ },             \
        .on_demand = (ranks_) > 2, .n_rows = 1000, .n_keys = 1, .tensor_bytes = bytes_,       \
        .n_operations = n_, .sample = sample_allreduce, __VA_ARGS__                           \
    }

#define COPYING "copying the bytes that have to move once"
#define SHARING "bare processes that add what they share, spinning"

/* Between bare processes a ring has the fewest bytes, but a small tensor takes as long as its many
 * steps. */
#define OVER_TCP(bytes_) \
    ((bytes_) >= 1 << 20 ? "bare processes that add in a ring of sockets" : COPYING)

#define THREADS(size_, ranks_, bytes_, n_, most_)                            \
    ALLREDUCE(size_, "threads", ranks_, "in one process", bytes_, n_, most_, \
              "bare threads that add, spinning", .workers = ranks_)
#define NODES(size_, place_, ranks_, where_, bytes_, n_, most_, limit_)                          \
    ALLREDUCE(size_, place_, ranks_, "on as many nodes of this host", bytes_, n_, most_, limit_, \
              .place = where_, .nodes = ranks_, .mixed = true)

#define SIZES(size_, bytes_, n_, threads_, host_)                                 \
    THREADS(size_, 2, bytes_, n_, threads_), THREADS(size_, 4, bytes_, n_, 0),    \
        NODES(size_, "host", 2, BENCH_PLACE_HOST, bytes_, n_, host_, SHARING),    \
        NODES(size_, "host", 4, BENCH_PLACE_HOST, bytes_, n_, 0, SHARING),        \
        NODES(size_, "tcp", 2, BENCH_PLACE_TCP, bytes_, n_, 0, OVER_TCP(bytes_)), \
        NODES(size_, "tcp", 4, BENCH_PLACE_TCP, bytes_, n_, 0, OVER_TCP(bytes_))

/* What is left of it beside the limit is the negotiation of names that were negotiated before. */
#define CACHED(place_, where_, ...)                                                     \
    {                                                                                   \
        .name = "allreduce-cached-200-" place_ "-2",                                    \
        .what = "the same iteration again: a group of 200 tensors of one double, by 2 " \
                "workers, " where_,                                                     \
        .limit = "the same values in one tensor", .unit = BENCH_UNIT_SECONDS,           \
        .goal = { .median = 50 * US }, .n_rows = 1000, .n_keys = 1, .n_tensors = 200,   \
        .n_operations = 500, .sample = sample_allreduce_group, __VA_ARGS__              \
    }

/* So many bytes of floats of each worker. */
#define EXCHANGE(name_, size_, place_, ranks_, bytes_, n_, sample_, what_, limit_, where_, ...) \
    {                                                                                           \
        .name = name_ "-" size_ "-" place_ "-" #ranks_,                                         \
        .what = what_ " of " size_ " bytes of floats, which are in no cache, by " #ranks_       \
                      " workers, " where_,                                                      \
        .limit = limit_, .unit = BENCH_UNIT_SECONDS, .on_demand = true, .n_rows = 1000,         \
        .n_keys = 1, .tensor_bytes = bytes_, .n_operations = n_, .sample = sample_, __VA_ARGS__ \
    }

#define EXCHANGE_NODES(name_, size_, ranks_, bytes_, n_, sample_, what_, limit_)             \
    EXCHANGE(name_, size_, "host", ranks_, bytes_, n_, sample_, what_, limit_,               \
             "on as many nodes of this host", .place = BENCH_PLACE_HOST, .nodes = ranks_,    \
             .mixed = true),                                                                 \
        EXCHANGE(name_, size_, "tcp", ranks_, bytes_, n_, sample_, what_, limit_,            \
                 "on as many nodes of this host", .place = BENCH_PLACE_TCP, .nodes = ranks_, \
                 .mixed = true)

#define COMPRESSED(name_, sample_, what_)                            \
    EXCHANGE_NODES(name_, "1600k", 2, 1600000, 100, sample_, what_,  \
                   "the same without compression"),                  \
        EXCHANGE_NODES(name_, "64m", 2, 64 << 20, 4, sample_, what_, \
                       "the same without compression")

#define EXCHANGE_PLACES(name_, size_, ranks_, bytes_, n_, sample_, what_)          \
    EXCHANGE(name_, size_, "threads", ranks_, bytes_, n_, sample_, what_, COPYING, \
             "in one process", .workers = ranks_),                                 \
        EXCHANGE_NODES(name_, size_, ranks_, bytes_, n_, sample_, what_, COPYING)

#define EXCHANGE_RANKS(name_, size_, bytes_, n_, sample_, what_)  \
    EXCHANGE_PLACES(name_, size_, 2, bytes_, n_, sample_, what_), \
        EXCHANGE_PLACES(name_, size_, 4, bytes_, n_, sample_, what_)

#define EXCHANGE_SIZES(name_, sample_, what_)                         \
    EXCHANGE_RANKS(name_, "64k", 64 << 10, 1000, sample_, what_),     \
        EXCHANGE_RANKS(name_, "1600k", 1600000, 100, sample_, what_), \
        EXCHANGE_RANKS(name_, "64m", 64 << 20, 4, sample_, what_)

const BenchCase bench_collective_cases[] = {
    SIZES("1", 8, 2000, 3 * US, 15 * US),
    SIZES("64k", 64 << 10, 1000, 8 * US, 8 * US),
    SIZES("1600k", 1600000, 100, 75 * US, 75 * US),
    SIZES("64m", 64 << 20, 4, 15000 * US, 15000 * US),
    CACHED("threads", "in one process", .workers = 2),
    CACHED("host", "on as many nodes of this host", .place = BENCH_PLACE_HOST, .nodes = 2,
           .mixed = true),
    COMPRESSED("allreduce-f16", sample_allreduce_f16, "allreduce with compression to f16"),
    COMPRESSED("allreduce-bf16", sample_allreduce_bf16, "allreduce with compression to bf16"),
    EXCHANGE_SIZES("reduce-scatter", sample_reduce_scatter, "reduce_scatter"),
    EXCHANGE_SIZES("allgather", sample_allgather, "allgather"),
    EXCHANGE_SIZES("alltoall", sample_alltoall, "alltoall"),
    EXCHANGE_SIZES("broadcast", sample_broadcast, "broadcast"),
    { 0 },
};
