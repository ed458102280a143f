/* An updater: a table's update rule at work on one shard. It takes rows and deltas, searches for
 * bad deltas, clips and decays gradients, and runs the rule's loops.
 *
 * Threads: the shard's present owner, one thread at a time. */
#ifndef RUBATO_MODELS_UPDATE_UPDATER_H
#define RUBATO_MODELS_UPDATE_UPDATER_H

#include <rubato/storage_ops.h>
#include <rubato/update_ops.h>

#include "models/update/bad_gradients.h"

typedef struct {
    /* immutable */
    const RubatoUpdateOps *ops;
    size_t value_bytes; /* of a row's values */
    size_t state_bytes; /* of the rule's state behind them */
    size_t row_bytes;   /* of both: from one row to the next */

    /* what changes */
    RubatoUpdate update;
    bool is_plain;   /* the rule's loops get the deltas as they came */
    bool prepares;   /* gradients are clipped or decayed first */
    double largest;  /* the largest size of a good delta */
    void *gradients; /* one row, for that; NULL: the rule takes none */
    BadGradients bad;

    /* Called when a worker's first delta that is infinite or not a number comes; NULL: nobody is
     * told. */
    void (*say_no_number)(void *user, uint32_t worker);
    void *user;
} Updater;

/* spec has passed spec_check. False if there is no memory. */
bool updater_init(Updater *updater, const RubatoTableSpec *spec);
void updater_clear(Updater *updater);

/* Gives a hyper-parameter, which rule_check_tuning has allowed, another number. */
void updater_tune(Updater *updater, RubatoHyper hyper, double value);

/* Applies deltas of a worker to n rows, as apply_rows of update_ops.h. n is at most
 * RUBATO_STORAGE_BLOCK. */
void updater_apply_rows(Updater *updater, uint32_t worker, void *const *rows, const void *deltas,
                        const uint32_t *at, size_t n);

/* The same for n consecutive rows, for any n. */
void updater_apply_run(Updater *updater, uint32_t worker, void *rows, const void *deltas, size_t n);

/* Whether a row of a worker's deltas is to be applied; its bad deltas are counted. */
bool updater_accepts(Updater *updater, uint32_t worker, const void *deltas);

/* Whether n rows of deltas are all good, or none is looked at. Counts nothing: if it is false,
 * updater_accepts tells for each row. */
bool updater_accepts_all(const Updater *updater, const void *deltas, size_t n);

/* Applies rows that updater_accepts has accepted. */
void updater_apply_accepted(Updater *updater, void *const *rows, const void *deltas, size_t n);

#endif
