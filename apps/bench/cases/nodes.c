/* The cases of two processes on one host: the worker in one, the server in the other. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define MILLION UINT64_C(1000000)
#define RANGE_KEYS (UINT64_C(1) << 20)
#define N_SETS 32 /* of keys, so that no request finds the rows of the last one in a cache */

/* A Get or Add of many keys of a storage. */
#define MANY(case_name, text, storage_name, key_count, operation, limit_operation,               \
             operation_count)                                                                    \
    {                                                                                            \
        .name = (case_name), .what = (text),                                                     \
        .limit = "bare rows in the other process, by shared memory",                             \
        .unit = BENCH_UNIT_KEYS_PER_SECOND, .goal = { .ratio = 0.5 }, .place = BENCH_PLACE_HOST, \
        .table = { .storage = (storage_name) }, .n_rows = 10 * MILLION, .n_keys = (key_count),   \
        .keys = BENCH_KEYS_SORTED, .n_operations = (operation_count), .run = (operation),        \
        .n_sets = N_SETS, .run_limit = (limit_operation),                                        \
    }

/* An Add to a range of rows, and a Get of it. */
#define SOCKET_RANGE(case_name, text, at, least, operation, limit_operation)                       \
    {                                                                                              \
        .name = (case_name), .what = (text), .limit = "ZeroMQ stream of 1 MB messages, zero-copy", \
        .unit = BENCH_UNIT_BYTES_PER_SECOND, .goal = { .ratio = (least) }, .place = (at),          \
        .n_rows = RANGE_KEYS, .n_keys = RANGE_KEYS, .n_operations = 50, .run = (operation),        \
        .run_limit = (limit_operation),                                                            \
    }
#define SOCKET_ONE(case_name, text, operation)                                           \
    {                                                                                    \
        .name = (case_name), .what = (text), .limit = "ZeroMQ DEALER-ROUTER round trip", \
        .unit = BENCH_UNIT_SECONDS, .goal = { .ratio = 0.5 }, .place = BENCH_PLACE_TCP,  \
        .n_rows = MILLION, .n_keys = 1, .n_operations = 2000, .run = (operation),        \
        .run_limit = limit_zmq_round_trip,                                               \
    }
#define SOCKET_RANGES(push_name, pull_name, where, at, least)                                      \
    SOCKET_RANGE(push_name, "Add to a range of 1 M floats, " where, at, least, add_range_then_get, \
                 limit_zmq_push),                                                                  \
        SOCKET_RANGE(pull_name, "Get of a range of 1 M floats, " where, at, least, get_range,      \
                     limit_zmq_pull)

/* A Get of high priority beside a stream of pushes. */
#define BESIDE_PUSHES(case_name, where, limit_text, at, limit_operation)                          \
    {                                                                                             \
        .name = (case_name),                                                                      \
        .what = "Get of one key of high priority, beside pushes of 64 MB, " where,                \
        .limit = (limit_text), .unit = BENCH_UNIT_SECONDS, .goal = { .ratio = 5 }, .place = (at), \
        .workers = 2, .n_rows = 16 * RANGE_KEYS, .n_keys = 16 * RANGE_KEYS, .n_operations = 4000, \
        .sample = sample_priority, .run_limit = (limit_operation),                                \
    }

const BenchCase bench_nodes_cases[] = {
    { .name = "host-get-1",
      .what = "Get of one key from another process",
      .limit = "round trip of 64 bytes in shared memory, both look for it",
      .unit = BENCH_UNIT_SECONDS,
      .goal = { .ratio = 8, .p99 = 3 },
      .place = BENCH_PLACE_HOST,
      .n_rows = MILLION,
      .n_keys = 1,
      .n_operations = 5000,
      .run = get_key,
      .run_limit = limit_shm_round_trip },
    { .name = "host-push-range",
      .what = "Add to a range of 1 M floats",
      .limit = "memcpy through shared memory",
      .unit = BENCH_UNIT_BYTES_PER_SECOND,
      .goal = { .ratio = 0.7 },
      .place = BENCH_PLACE_HOST,
      .n_rows = RANGE_KEYS,
      .n_keys = RANGE_KEYS,
      .n_operations = 50,
      .run = add_range_then_get,
      .run_limit = limit_shm_push },
    { .name = "host-pull-range",
      .what = "Get of a range of 1 M floats",
      .limit = "memcpy through shared memory",
      .unit = BENCH_UNIT_BYTES_PER_SECOND,
      .goal = { .ratio = 0.7 },
      .place = BENCH_PLACE_HOST,
      .n_rows = RANGE_KEYS,
      .n_keys = RANGE_KEYS,
      .n_operations = 50,
      .run = get_range,
      .run_limit = limit_shm_pull },
    MANY("host-get-10k-dense", "Get of 10,000 random keys, sorted, of 10 M rows", "dense", 10000,
         get_keys, limit_shm_get, 200),
    MANY("host-add-10k-dense", "Add to 10,000 random keys, sorted, of 10 M rows", "dense", 10000,
         add_keys_then_get, limit_shm_add, 200),
    MANY("host-get-10k-hash", "Get of 10,000 random keys of 10 M, hash storage", "hash", 10000,
         get_keys, limit_shm_get, 200),
    MANY("host-add-10k-hash", "Add to 10,000 random keys of 10 M, hash storage", "hash", 10000,
         add_keys_then_get, limit_shm_add, 200),
    MANY("host-get-100k-dense", "Get of 100,000 random keys, sorted, of 10 M rows", "dense", 100000,
         get_keys, limit_shm_get, 20),
    MANY("host-add-100k-dense", "Add to 100,000 random keys, sorted, of 10 M rows", "dense", 100000,
         add_keys_then_get, limit_shm_add, 20),
    MANY("host-get-100k-hash", "Get of 100,000 random keys of 10 M, hash storage", "hash", 100000,
         get_keys, limit_shm_get, 20),
    MANY("host-add-100k-hash", "Add to 100,000 random keys of 10 M, hash storage", "hash", 100000,
         add_keys_then_get, limit_shm_add, 20),
    BESIDE_PUSHES("host-priority", "in shared memory", "the same Get alone", BENCH_PLACE_HOST,
                  NULL),

    { .name = "tcp-get-1",
      .what = "Get of one key from another process, over TCP",
      .limit = "round trip of 64 bytes by a bare socket",
      .unit = BENCH_UNIT_SECONDS,
      .goal = { .ratio = 1.5 },
      .place = BENCH_PLACE_TCP,
      .n_rows = MILLION,
      .n_keys = 1,
      .n_operations = 2000,
      .run = get_key,
      .run_limit = limit_tcp_round_trip },
    SOCKET_ONE("tcp-get-1-zmq", "Get of one key from another process, over TCP", get_key),
    SOCKET_RANGES("tcp-push-range", "tcp-pull-range", "over TCP", BENCH_PLACE_TCP, 0.9),
    SOCKET_ONE("push-1", "Add of one key and a wait for it, over TCP", push_key),
    SOCKET_ONE("pull-1", "Get of one key by a ticket, over TCP", pull_key),
    SOCKET_ONE("add-get-1", "Add and Get of one key in one request, over TCP", add_get_key),
    SOCKET_RANGE("push-range",
                 "Add to a range of 1 M floats, borrowed, and a wait for it, over TCP",
                 BENCH_PLACE_TCP, 0.9, push_range, limit_zmq_push),
    SOCKET_RANGE("pull-range", "Get of a range of 1 M floats by a ticket, over TCP",
                 BENCH_PLACE_TCP, 0.9, pull_range, limit_zmq_pull),
    { .name = "tcp-add-1-pipelined",
      .what = "Adds of one key, one worker, over TCP",
      .limit = "ZeroMQ stream of 64-byte messages",
      .unit = BENCH_UNIT_PER_SECOND,
      .goal = { .ratio = 0.5 },
      .place = BENCH_PLACE_TCP,
      .n_rows = MILLION,
      .n_keys = 1,
      .n_operations = 200000,
      .run = add_key_then_get,
      .run_limit = limit_zmq_stream },
    { .name = "tcp-get-10k-dense",
      .what = "Get of 10,000 random keys, sorted, of 10 M rows, over TCP",
      .limit = "bare rows in the other process, by a bare socket",
      .unit = BENCH_UNIT_KEYS_PER_SECOND,
      .place = BENCH_PLACE_TCP,
      .n_rows = 10 * MILLION,
      .n_keys = 10000,
      .keys = BENCH_KEYS_SORTED,
      .n_operations = 100,
      .n_sets = N_SETS,
      .run = get_keys,
      .run_limit = limit_tcp_get },
    { .name = "tcp-add-10k-dense",
      .what = "Add to 10,000 random keys, sorted, of 10 M rows, over TCP",
      .limit = "bare rows in the other process, by a bare socket",
      .unit = BENCH_UNIT_KEYS_PER_SECOND,
      .place = BENCH_PLACE_TCP,
      .n_rows = 10 * MILLION,
      .n_keys = 10000,
      .keys = BENCH_KEYS_SORTED,
      .n_operations = 100,
      .n_sets = N_SETS,
      .run = add_keys_then_get,
      .run_limit = limit_tcp_add },
    BESIDE_PUSHES("priority", "over TCP", "round trip of 64 bytes by a bare socket, alone",
                  BENCH_PLACE_TCP, limit_tcp_round_trip),
    SOCKET_RANGES("tcp-mac-push", "tcp-mac-pull", "over TCP, with MACs", BENCH_PLACE_TCP_MAC, 0),
    SOCKET_RANGES("tcp-encrypt-push", "tcp-encrypt-pull", "over TCP, encrypted",
                  BENCH_PLACE_TCP_ENCRYPTED, 0),
    SOCKET_RANGES("zmq-push-range", "zmq-pull-range", "over ZeroMQ", BENCH_PLACE_ZMQ, 0),
    SOCKET_RANGES("zmq-curve-push", "zmq-curve-pull", "over ZeroMQ, by CURVE",
                  BENCH_PLACE_ZMQ_CURVE, 0),
#ifdef RUBATO_HAS_UCX
    { .name = "ucx-get-1",
      .what = "Get of one key from another process, over UCX",
      .limit = "round trip of 64 bytes by a bare socket",
      .unit = BENCH_UNIT_SECONDS,
      .place = BENCH_PLACE_UCX,
      .n_rows = MILLION,
      .n_keys = 1,
      .n_operations = 2000,
      .run = get_key,
      .run_limit = limit_tcp_round_trip },
    SOCKET_RANGES("ucx-push-range", "ucx-pull-range", "over UCX", BENCH_PLACE_UCX, 0),
#endif
    { 0 },
};
