/* The rows that a program learns scores from, and those that it is tested on.
 *
 * Threads: main's, except app_rows_read. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_ROWS_H
#define RUBATO_APPS_KIT_SCORES_APP_ROWS_H

#include "apps/kit/app.h"
#include "apps/kit/scores/app_loss.h"
#include "apps/kit/scores/app_read_ahead.h"

typedef struct {
    RubatoDataset *train, *test; /* NULL: none */
    RubatoDataset *validation;   /* of the reporting node; NULL: none */
    uint64_t n_rows;             /* to train on */
    uint32_t n_fields;           /* that they have; 0: they have none */
    double scale;                /* of a row's gradient in a step */
    AppFeatures *features;       /* NULL: not needed */
    bool standardised;           /* by these, as are all rows that the model gets */
} AppRows;

/* Opens what the flags name, takes labels and the keys' meaning from the rows to train on, and
 * notes for the user how many rows were left out. If a model is only loaded, the reporting node
 * opens the rows to test on, and nobody those to train on.
 *
 * l2: the penalty on all weights, for which it is learned how many entries each key has.
 * APP_NOT_GIVEN becomes 0 or, with softmax, 1 / rows. NULL: the program has none. Collective, after
 * app_start. If it fails, *rows must still be cleared. */
bool app_rows_open(AppRows *rows, App *app, AppData *data, AppLoss *loss, double *l2,
                   GError **error);
void app_rows_clear(AppRows *rows);

/* Whether all entries of a batch have fields below n_fields, which the rows to train on have.
 * RUBATO_ERROR_FORMAT. Any thread. */
bool app_rows_check_fields(const RubatoBatch *batch, uint32_t n_fields, GError **error);

/* After app_create_model: how rows are standardised, if they are. Collective. */
bool app_rows_settle(AppRows *rows, const App *app, GError **error);

/* The setting of a model whose rows are standardised: its name, and NULL for other models. */
const char *app_rows_setting(const AppRows *rows);

/* By what rows are standardised; NULL: they are not. */
const AppFeatures *app_rows_scaling(const AppRows *rows);

/* Opens a worker's part of the rows to train on, read as the flags say, and so far ahead that its
 * keys can be announced, from the worker's first step on. The worker's thread. (transfer full) */
AppReadAhead *app_rows_read(const AppRows *rows, const App *app, const AppData *data,
                            RubatoWorker *worker, AppWorker *self, GError **error);

#endif
