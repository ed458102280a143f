/* rubato-fm: what its files share.
 *
 *   fm.c        the tables and the training loop
 *   fm_flags.c  flags, data, and what the data says of the model
 *   fm_score.c  evaluation and prediction
 *   fm_model.c  the arithmetic
 *
 * Threads: main; fm_check_batch any. */
#ifndef RUBATO_APPS_FM_JOB_H
#define RUBATO_APPS_FM_JOB_H

#include "apps/app.h"
#include "apps/fm_model.h"

/* The tables. The bias is a dense one of one row; linear terms and factors are hash tables. */
#define FM_BIAS "bias"
#define FM_LINEAR "linear"
#define FM_FACTORS "factors"
#define FM_BIAS_KEY 0

typedef struct {
    App app;
    AppProgram program;
    FmModel model;

    /* flags */
    AppData data;
    gboolean field_aware;
    char *rule;
    double l1, init_stddev;

    /* what the training rows say, or a model that is loaded */
    RubatoDataset *train, *test; /* NULL: none */
    uint64_t n_rows;             /* to train on */
    double negative, positive;   /* logistic: the two labels that there are */
    double start;                /* of the bias */
} FmJob;

/* Reads the flags. False, after saying so, where one is wrong: APP_EXIT_USAGE. */
bool fm_parse(FmJob *job, int argc, char **argv);

/* Opens the data and fits the model to it. */
bool fm_load(FmJob *job, GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int fm_end(FmJob *job, const GError *error);

/* RUBATO_ERROR_FORMAT where a batch has labels, or fields, that the model has not. */
bool fm_check_batch(const FmJob *job, const RubatoBatch *batch, GError **error);

/* Puts how good the model is on the result card; on the node that speaks. */
bool fm_evaluate(FmJob *job, GError **error);

/* Writes a line for each row of a file: the probability of the positive label or, with squared loss,
 * the score. An AppPredictFunc over an FmJob. */
bool fm_predict(const char *path, FILE *output, void *job, GError **error);

#endif
