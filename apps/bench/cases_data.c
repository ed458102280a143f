/* The cases that read training data. */
#include "apps/bench/bench.h"

const BenchCase bench_data_cases[] = {
    { .name = "parse-libsvm",
      .what = "libsvm text like a9a into rows, by one thread",
      .limit = "the file read, memchr over its lines",
      .unit = BENCH_BYTES_PER_SECOND,
      .goal = { .median = 150e6 },
      .n_rows = 1,
      .n_keys = 1,
      .n_operations = 250000,
      .sample = sample_parse_libsvm },
    { .name = "parse-csv",
      .what = "CSV of 6 numbers and 8 hashed categories a row into rows, by one thread",
      .limit = "the file read, memchr over its lines",
      .unit = BENCH_BYTES_PER_SECOND,
      .goal = { .median = 150e6 },
      .n_rows = 1,
      .n_keys = 1,
      .n_operations = 250000,
      .sample = sample_parse_csv },
    { 0 },
};
