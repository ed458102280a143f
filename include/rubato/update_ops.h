/* What an update rule implements: it decides what an Add does to a row.
 *
 * A program, or a plug-in file, registers one of its own: plugin.h. A built-in one is a file
 * models/update/<name>.c that ends in its constant RubatoUpdateOps, and a line in the array of
 * models/update/update.c. The loops run over plain arrays of one dtype, so that the compiler
 * vectorises them.
 *
 * A rule may keep state: some values of the table's dtype, stored after the values of each row. The
 * state is created, moved and reset with the row.
 *
 * Threads: the shard's present owner calls the ops, one thread at a time. None may block. */
#ifndef RUBATO_UPDATE_OPS_H
#define RUBATO_UPDATE_OPS_H

#include <rubato/table.h>

G_BEGIN_DECLS

/* What a rule knows about its table. */
typedef struct {
    RubatoDtype dtype;
    uint32_t width;       /* values in a row */
    uint32_t state_width; /* values of state after them */
    RubatoRule rule;      /* with every default filled in; changes only between two calls */
} RubatoUpdate;

/* What is special about a rule. */
typedef struct {
    /* Whether a process cache may apply the rule to its own copy of a row and get the server's
     * result (up to rounding). It is false for rules with state or hyper-parameters. */
    bool replayable;

    /* Whether apply_rows changes each row of a single value by one atomic store, so that other
     * threads may read it meanwhile. */
    bool stores_whole;

    /* Whether an Add carries gradients. Then the dtype is f32 or f64, and the rule has a learning
     * rate, clipping and weight decay. Its loops get the gradients after clipping and decay. */
    bool takes_gradients;

    /* Whether the rule has a row_wise form. */
    bool may_be_row_wise;

    /* The other hyper-parameters that it has: RUBATO_HYPER_BIT(RUBATO_HYPER_MOMENTUM), … */
    uint32_t hypers;

    /* The defaults of the hyper-parameters that it has. */
    RubatoRule defaults;
} RubatoUpdateTraits;

#define RUBATO_HYPER_BIT(hyper) (UINT32_C(1) << (hyper))

typedef struct {
    const char *name;
    RubatoUpdateTraits traits;

    /* Whether a table may have this rule, beyond what the traits say. May be NULL. */
    bool (*check)(const RubatoTableSpec *spec, GError **error);

    /* The number of state values of a row; update->state_width is not set yet. NULL: none. */
    uint32_t (*state_width)(const RubatoUpdate *update);

    /* Writes the state of a new row after its values, which are set already. NULL: zeros. */
    void (*init_state)(const RubatoUpdate *update, void *row);

    /* Applies n_values consecutive deltas to n_values consecutive values. NULL if the rule has
     * state, or needs to know where rows begin. */
    void (*apply)(const RubatoUpdate *update, void *values, const void *deltas, size_t n_values);

    /* Applies a row of deltas to each of n rows, in order; rows may repeat. Row i takes the deltas
     * at i × width, or at at[i] × width where `at` is not NULL. */
    void (*apply_rows)(const RubatoUpdate *update, void *const *rows, const void *deltas,
                       const uint32_t *at, size_t n);
} RubatoUpdateOps;

G_END_DECLS

#endif
