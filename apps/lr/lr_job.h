/* rubato-lr: what its files share.
 *
 *   lr.c        the tables, the training loop, evaluation and prediction
 *   lr_flags.c  flags and data
 *   lr_model.c  the arithmetic
 *
 * Threads: main. */
#ifndef RUBATO_APPS_LR_LR_JOB_H
#define RUBATO_APPS_LR_LR_JOB_H

#include "apps/kit/app.h"
#include "apps/kit/scores/app_rows.h"
#include "apps/kit/scores/app_rule.h"
#include "apps/lr/lr_model.h"

/* The tables: one hash table, and a dense one of one row. */
#define LR_WEIGHTS "weights"
#define LR_BIAS "bias"

typedef struct {
    App app;
    AppProgram program;
    LrModel model;

    /* flags */
    AppData data;
    char *loss_name, *rule_name; /* NULL: not given */
    gboolean has_bias;

    AppRule rule;
    AppRows rows;
    const char *tables[3]; /* ended by NULL */
    bool rate_falls;       /* during training */
} LrJob;

/* Reads the flags. False if one is wrong, after printing what is wrong: APP_EXIT_USAGE. */
bool lr_parse(LrJob *job, int argc, char **argv);

/* After app_start: opens the data and takes the labels from it, and takes from a loaded model what
 * no flag says. */
bool lr_load(LrJob *job, GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int lr_end(LrJob *job, const GError *error);

#endif
