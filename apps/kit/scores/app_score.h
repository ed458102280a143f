/* Scores of whole files: their quality, and predictions made from them.
 *
 * Threads: main's, between tasks, on the reporting node. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_SCORE_H
#define RUBATO_APPS_KIT_SCORES_APP_SCORE_H

#include "apps/kit/app.h"
#include "apps/kit/scores/app_loss.h"
#include "apps/kit/scores/app_rows.h"

/* Writes the scores of a batch's rows; with softmax as many of a row as there are classes. */
typedef bool (*AppScoreFunc)(const RubatoBatch *batch, double *scores, void *user_data,
                             GError **error);

/* Puts train_loss on the result card, if the model was trained. If there are rows to test on,
 * also test_accuracy, test_auc and, for the logistic loss, test_logloss; for the squared loss
 * test_rmse instead; for softmax test_accuracy and test_logloss. Does nothing on a node that does
 * not report. */
bool app_add_score_metrics(App *app, const AppRows *rows, const AppLoss *loss, AppScoreFunc score,
                           void *user_data, GError **error);

/* The mean loss of the rows of --validate. */
bool app_score_validation(const AppRows *rows, const AppLoss *loss, AppScoreFunc score,
                          void *user_data, double *mean, GError **error);

/* Writes a line for each row of a file: for the logistic loss the probability of the positive
 * label, for the others the score. With softmax it is the most probable label, a tab, and its
 * probability. If labels are words, the line begins with the predicted word and
 * a tab, and the probability is that of this word. */
bool app_print_predictions(FILE *output, const AppData *data, const AppRows *rows, const char *path,
                           const AppLoss *loss, AppScoreFunc score, void *user_data,
                           GError **error);

#endif
