/* The cases of tables that forget: a table of hash storage at its max_bytes. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define MILLION UINT64_C(1000000)
#define MAX_BYTES (UINT64_C(128) << 20)   /* 10 M rows have no room in it */
#define SKETCH_BYTES (UINT64_C(16) << 20) /* twelve counters for each of some 11 M keys */
#define N_SETS 32                         /* of keys, as in local.c */

#define INSERTS(case_name, what_is_done, order)                                         \
    {                                                                                   \
        .name = case_name, .what = what_is_done,                                        \
        .limit = "bare open addressing with prefetch, keys there",                      \
        .unit = BENCH_UNIT_KEYS_PER_SECOND, .goal = { .median = 8e6 },                  \
        .table = { .storage = "hash", .max_bytes = MAX_BYTES, .evict = (order) },       \
        .n_rows = 10 * MILLION, .n_keys = 10000, .n_sets = N_SETS, .n_operations = 200, \
        .run = add_new_keys_then_get, .run_limit = limit_hash_add                       \
    }

/* So many rows come before that both tables are at their bound. */
#define ADMITS(case_name, what_is_done, sample_it, ...)                                     \
    {                                                                                       \
        .name = case_name, .what = what_is_done,                                            \
        .limit = "the same Adds to a table that admits all keys",                           \
        .unit = BENCH_UNIT_KEYS_PER_SECOND, .goal = { .ratio = .9 }, .has_plain = true,     \
        .table = { .storage = "hash", .max_bytes = MAX_BYTES + SKETCH_BYTES, __VA_ARGS__ }, \
        .n_rows = 16 * MILLION, .starts_empty = true, .n_keys = 10000, .n_operations = 64,  \
        .sample = sample_it                                                                 \
    }

#define BY_COUNT .admit = "count", .admit_count = 2, .admit_bytes = SKETCH_BYTES
#define BY_PROBABILITY .admit = "probability", .admit_probability = .5
#define TWICE "Add to 10,000 keys at max_bytes, each of which comes twice, with admission by "

const BenchCase bench_forget_cases[] = {
    INSERTS("forget-add-lru", "Add to 10,000 new keys at max_bytes: each evicts a row", "lru"),
    INSERTS("forget-add-lfu", "the same, the row with the fewest writes", "lfu"),
    { .name = "forget-refuse",
      .what = "Add to 10,000 new keys that are counted and refused",
      .limit = "bare open addressing with prefetch, keys there",
      .unit = BENCH_UNIT_KEYS_PER_SECOND,
      .goal = { .median = 8e6 },
      .table = { .storage = "hash", .admit = "count", .admit_count = 255, .admit_bytes = 64 << 20 },
      .n_rows = MILLION,
      .n_keys = 10000,
      .n_sets = N_SETS,
      .n_operations = 200,
      .run = add_new_keys_then_get,
      .run_limit = limit_hash_add },
    ADMITS("forget-admit-count", TWICE "count", sample_admission, BY_COUNT),
    ADMITS("forget-admit-probability", TWICE "probability", sample_admission, BY_PROBABILITY),
    ADMITS("forget-admit-rare",
           "Add to 10,000 keys at max_bytes: half have rows, the others come once, by count",
           sample_admission_of_rare, BY_COUNT),
    { .name = "forget-add-expire",
      .what = "Add to 10,000 keys of 10 M whose rows expire by clocks, with the time of the write",
      .limit = "bare open addressing with prefetch",
      .unit = BENCH_UNIT_KEYS_PER_SECOND,
      .goal = { .median = 8e6 },
      .table = { .storage = "hash", .expire = "clocks", .expire_after = 1000 },
      .n_rows = 10 * MILLION,
      .n_keys = 10000,
      .n_sets = N_SETS,
      .n_operations = 200,
      .run = add_keys_then_get,
      .run_limit = limit_hash_add },
    { .name = "forget-get",
      .what = "Get of 10,000 random keys of 10 M, of which max_bytes leaves the last ones",
      .limit = "bare open addressing with prefetch",
      .unit = BENCH_UNIT_KEYS_PER_SECOND,
      .goal = { .median = 20e6 },
      .table = { .storage = "hash", .max_bytes = MAX_BYTES },
      .n_rows = 10 * MILLION,
      .n_keys = 10000,
      .n_sets = N_SETS,
      .n_operations = 500,
      .run = get_keys,
      .run_limit = limit_hash_get },
    { .name = "forget-stall",
      .what = "longest Add of 100 new keys + Get, while a table grows to its max_bytes and evicts",
      .limit = "longest first access to a huge page of as much bare memory",
      .unit = BENCH_UNIT_SECONDS,
      .goal = { .worst = 10e-3 },
      .table = { .storage = "hash", .max_bytes = MAX_BYTES },
      .n_rows = 10 * MILLION,
      .starts_empty = true,
      .n_keys = 100,
      .n_operations = 12500,
      .sample = sample_growth },
    { .name = "forget-slice",
      .what = "longest Get while sweeps remove the rows of a table that have all expired",
      .unit = BENCH_UNIT_SECONDS,
      .goal = { .worst = 10e-3 },
      .table = { .storage = "hash", .expire = "clocks", .expire_after = 1 },
      .n_rows = 2 * MILLION,
      .starts_empty = true,
      .n_keys = 100,
      .n_operations = 20000,
      .sample = sample_expiry },
    { 0 },
};
