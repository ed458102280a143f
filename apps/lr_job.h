/* rubato-lr: what its files share.
 *
 *   lr.c        the tables, the training loop, evaluation and prediction
 *   lr_flags.c  flags and data
 *   lr_model.c  the arithmetic
 *
 * Threads: main. */
#ifndef RUBATO_APPS_LR_JOB_H
#define RUBATO_APPS_LR_JOB_H

#include "apps/app.h"
#include "apps/lr_model.h"

/* The tables: one hash table, and a dense one of one row. */
#define LR_WEIGHTS "weights"
#define LR_BIAS "bias"

typedef struct {
    App app;
    AppProgram program;
    LrModel model;

    /* flags */
    AppData data;
    char *loss, *rule;
    gboolean has_bias;

    const char *tables[3];              /* ended by NULL */
    RubatoDataset *train, *test;        /* NULL: none */
    uint64_t n_rows;                    /* to train on */
    double scale;                       /* of a row's gradient in a step */
    RubatoRule weights_rule, bias_rule; /* the bias has no penalty */
    bool rate_falls;                    /* in the course of training */
} LrJob;

/* Reads the flags. False, after saying so, where one is wrong: APP_EXIT_USAGE. */
bool lr_parse(LrJob *job, int argc, char **argv);

/* Opens the data and takes the labels from it. */
bool lr_load(LrJob *job, GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int lr_end(LrJob *job, const GError *error);

#endif
