/* rubato-fm: what its files share.
 *
 *   fm.c        the tables, the training loop, evaluation and prediction
 *   fm_flags.c  flags, data, and what the data says of the model
 *   fm_model.c  the arithmetic
 *
 * Threads: main. */
#ifndef RUBATO_APPS_FM_FM_JOB_H
#define RUBATO_APPS_FM_FM_JOB_H

#include "apps/fm/fm_model.h"
#include "apps/kit/app.h"
#include "apps/kit/scores/app_rows.h"
#include "apps/kit/scores/app_rule.h"

/* The tables. The bias is a dense one of one row; the weights are a hash table, with a key's linear
 * term and its factors in one row, so that a key is looked up once. */
#define FM_BIAS "bias"
#define FM_WEIGHTS "weights"
#define FM_BIAS_KEY 0

typedef struct {
    App app;
    AppProgram program;
    FmModel model;

    /* flags */
    AppData data;
    char *loss_name, *rule_name; /* NULL: not given */
    gboolean field_aware;
    int n_factors;
    double init_stddev;
    int64_t max_mib; /* of the weights on a server; 0: any number */
    char *evict;     /* NULL: not given */
    int admit_count; /* 0: each key has its row from its first Add on */

    AppRule rule;
    AppRows rows;
    bool rate_falls; /* during training */
} FmJob;

/* Reads the flags. False if one is wrong, after printing what is wrong: APP_EXIT_USAGE. */
bool fm_parse(FmJob *job, int argc, char **argv);

/* After app_start: opens the data and fits the model to it, or to a model that is only loaded;
 * takes from a loaded model what no flag says. */
bool fm_load(FmJob *job, GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int fm_end(FmJob *job, const GError *error);

#endif
