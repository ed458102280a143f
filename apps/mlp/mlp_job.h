/* rubato-mlp: what its files share.
 *
 *   mlp.c        the run: tables, evaluation and prediction
 *   mlp_flags.c  flags, and what follows from them, the rows and a loaded model
 *   mlp_train.c  what workers do, by tables or by allreduce
 *   mlp_share.c  a worker's rows, in batches
 *
 * Threads: main, except as said. */
#ifndef RUBATO_APPS_MLP_MLP_JOB_H
#define RUBATO_APPS_MLP_MLP_JOB_H

#include "apps/kit/app.h"
#include "apps/kit/net/app_layers.h"
#include "apps/kit/scores/app_rows.h"
#include "apps/mlp/mlp_share.h"

typedef struct {
    App app;
    AppProgram program;

    /* flags */
    AppData data;
    char *hidden;         /* NULL: not given, until it is settled; then "128,64" */
    char *by, *rule_name; /* NULL: not given */

    AppLoss loss; /* softmax */
    AppRows rows;
    AppLayers layers;
    float *weights[APP_NET_LAYERS_MAX]; /* main's, of the rows that it scores; NULL: not fetched */
    const char *tables[APP_LAYERS_TABLES_MAX + 1]; /* of the task; ended by NULL */

    MlpShare *shares; /* by rank; those of other nodes' workers stay zeroed */
    uint32_t n_shares;
} MlpJob;

/* Reads the flags. False if one is wrong, after printing what is wrong: APP_EXIT_USAGE. */
bool mlp_parse(MlpJob *job, int argc, char **argv);

/* After app_start: opens the rows, and settles the layers. */
bool mlp_load(MlpJob *job, GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int mlp_end(MlpJob *job, const GError *error);

/* A RubatoTaskFunc. user_data: a MlpJob. A worker's thread. */
bool mlp_train(RubatoWorker *worker, void *user_data, GError **error);

#endif
