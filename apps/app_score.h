/* Scores of whole files: how good they are, and predictions made of them.
 *
 * Threads: main's, between tasks, on the speaking node. */
#ifndef RUBATO_APPS_APP_SCORE_H
#define RUBATO_APPS_APP_SCORE_H

#include "apps/app.h"
#include "apps/app_loss.h"

/* Writes the scores of a batch's rows. */
typedef bool (*AppScoreFunc)(const RubatoBatch *batch, double *scores, void *user_data,
                             GError **error);

/* Puts test_accuracy, test_auc and, of the logistic loss, test_logloss on the result card; of the
 * squared one test_rmse. */
bool app_add_test_metrics(App *app, RubatoDataset *rows, const AppLoss *loss, AppScoreFunc score,
                          void *user_data, GError **error);

/* Writes a line for each row: of the logistic loss the probability of the positive label, of the
 * others the score. */
bool app_print_predictions(FILE *output, RubatoDataset *rows, const AppLoss *loss,
                           AppScoreFunc score, void *user_data, GError **error);

#endif
