/* The cases of update rules: what each costs beside plain additions. */
#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define ON_ROWS(words, ...)                                                                       \
    .what = "Add of gradients to 1,000 random rows of 32 floats, of 10,000" words,                \
    .limit = "the same additions to bare rows", .unit = BENCH_UNIT_KEYS_PER_SECOND,               \
    .table = { .width = 32, __VA_ARGS__ }, .n_rows = 10000, .n_keys = 1000, .n_operations = 3000, \
    .run = add_keys_then_get, .run_limit = limit_scatter_add_rows

const BenchCase bench_rule_cases[] = {
    { .name = "rule-sgd", ON_ROWS(", rule sgd", .update = "sgd") },
    { .name = "rule-momentum", ON_ROWS(", rule momentum", .update = "momentum") },
    { .name = "rule-nesterov", ON_ROWS(", rule nesterov", .update = "nesterov") },
    { .name = "rule-adagrad", ON_ROWS(", rule adagrad", .update = "adagrad") },
    { .name = "rule-adagrad-row",
      ON_ROWS(", rule adagrad, row-wise", .update = "adagrad", .rule = { .row_wise = true }) },
    { .name = "rule-rmsprop", ON_ROWS(", rule rmsprop", .update = "rmsprop") },
    { .name = "rule-adam", ON_ROWS(", rule adam", .update = "adam") },
    { .name = "rule-ftrl", ON_ROWS(", rule ftrl", .update = "ftrl", .rule = { .l1 = 1, .l2 = 1 }) },
    { .name = "rule-moving-average", ON_ROWS(", rule moving_average", .update = "moving_average") },
    { .name = "rule-sgd-decay",
      ON_ROWS(", rule sgd, clipped and decayed", .update = "sgd",
              .rule = { .clip_value = 2, .clip_norm = 10, .weight_decay = 1e-4 }) },
    { .name = "rule-sgd-unchecked",
      ON_ROWS(", rule sgd, bad ones not looked for", .update = "sgd",
              .rule = { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_UNCHECKED }) },
    { .name = "rule-add-checked",
      ON_ROWS(", rule add, bad ones counted",
              .rule = { .on_bad_gradient = RUBATO_ON_BAD_GRADIENT_COUNT }) },
    { 0 },
};
