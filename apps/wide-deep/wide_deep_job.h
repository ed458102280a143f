/* rubato-wide-deep: what its files share.
 *
 *   wide_deep.c        the run: tables, evaluation and prediction
 *   wide_deep_flags.c  flags, and what follows from them, the rows and a loaded model
 *   wide_deep_train.c  what workers do
 *   wide_deep_model.c  the arithmetic
 *
 * Threads: main, except as said. */
#ifndef RUBATO_APPS_WIDE_DEEP_WIDE_DEEP_JOB_H
#define RUBATO_APPS_WIDE_DEEP_WIDE_DEEP_JOB_H

#include "apps/kit/app.h"
#include "apps/kit/net/app_layers.h"
#include "apps/kit/scores/app_rows.h"
#include "apps/wide-deep/wide_deep_model.h"

/* The hash tables: the wide part's weights of keys and of pairs, and the embeddings of keys. */
#define WIDE_DEEP_WIDE "wide"
#define WIDE_DEEP_EMBEDDINGS "embeddings"

typedef struct {
    App app;
    AppProgram program;
    WideDeepModel model;

    /* flags */
    AppData data;
    char *only, *crosses, *rule_name; /* NULL: not given */
    char *hidden;                     /* the same, until it is settled; then "64,32" */
    int width;                        /* of an embedding */

    AppRows rows;
    AppLayers layers;
    float *weights[APP_NET_LAYERS_MAX]; /* main's, of the rows that it scores; NULL: not fetched */
    const char *hash_tables[3];         /* those that there are; ended by NULL */
    const char *tables[3 + APP_LAYERS_TABLES_MAX]; /* all of the task; ended by NULL */
} WideDeepJob;

/* Reads the flags. False if one is wrong, after printing what is wrong: APP_EXIT_USAGE. */
bool wide_deep_parse(WideDeepJob *job, int argc, char **argv);

/* After app_start: opens the rows, and settles the model. */
bool wide_deep_load(WideDeepJob *job, GError **error);

/* Frees everything, after printing the error if there is one; the program's exit status. */
int wide_deep_end(WideDeepJob *job, const GError *error);

/* The crosses as a model's setting: "1:2,1:3"; empty: none. (transfer full) */
char *wide_deep_crosses_text(const WideDeepModel *model);

/* "both", "wide" or "deep". */
const char *wide_deep_parts_text(const WideDeepModel *model);

/* A RubatoTaskFunc. user_data: a WideDeepJob. A worker's thread. */
bool wide_deep_train(RubatoWorker *worker, void *user_data, GError **error);

#endif
