/* An applier: a table's update rule at work on one shard. It takes rows and deltas, looks for bad
 * ones, clips and decays gradients, and runs the rule's loops.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_UPDATE_APPLIER_H
#define RUBATO_MODELS_UPDATE_APPLIER_H

#include <rubato/storage_ops.h>
#include <rubato/update_ops.h>

#include "models/update/bad_gradients.h"

typedef struct {
    /* immutable */
    const RubatoUpdateOps *ops;
    size_t value_bytes; /* of a row's values */
    size_t state_bytes; /* of what the rule keeps behind them */
    size_t row_bytes;   /* of both: from one row to the next */

    /* what changes */
    RubatoUpdate update;
    bool is_plain;   /* the rule's loops get the deltas as they came */
    bool prepares;   /* gradients are clipped or decayed first */
    double largest;  /* that a good delta may be */
    void *gradients; /* one row, for that; NULL: the rule takes none */
    BadGradients bad;
} Applier;

/* spec has passed spec_check. False where there is no memory. */
bool applier_init(Applier *applier, const RubatoTableSpec *spec);
void applier_clear(Applier *applier);

/* Gives a hyper-parameter, which rule_check_tuning has allowed, another number. */
void applier_tune(Applier *applier, RubatoHyper hyper, double value);

/* Applies deltas of a worker to n rows, as apply_rows of update_ops.h. n is at most
 * RUBATO_STORAGE_BLOCK. */
void applier_apply_rows(Applier *applier, uint32_t worker, void *const *rows, const void *deltas,
                        const uint32_t *at, size_t n);

/* The same to n rows that lie one after the other. n may be anything. */
void applier_apply_run(Applier *applier, uint32_t worker, void *rows, const void *deltas, size_t n);

/* Whether a row of a worker's deltas is to be applied; what is bad in it is counted. */
bool applier_accepts(Applier *applier, uint32_t worker, const void *deltas);

/* Applies rows that applier_accepts was asked about before. */
void applier_apply_accepted(Applier *applier, void *const *rows, const void *deltas, size_t n);

#endif
