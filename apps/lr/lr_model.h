/* Linear models on batches of sparse rows: the arithmetic, without tables.
 *
 * A row with the entries (key j, value x_j) has the score b + Σ_j w_j x_j.
 *
 * Threads: any; a workspace has one at a time. */
#ifndef RUBATO_APPS_LR_LR_MODEL_H
#define RUBATO_APPS_LR_LR_MODEL_H

#include <rubato/rubato.h>

#include "apps/kit/scores/app_loss.h"

typedef struct {
    AppLoss loss;
    double l1, l2; /* for each entry of a row: l1 × |w_j| + l2 / 2 × w_j² */
} LrModel;

/* The weights of a batch's keys, and their gradients; it grows with the largest batch. */
typedef struct {
    float bias;
    float d_bias;
    float *weights;   /* n_keys */
    float *d_weights; /* n_keys */
    size_t n_keys_max;
} LrWorkspace;

/* Makes room for a batch. RUBATO_ERROR_MEMORY if there is none. */
bool lr_workspace_fit(LrWorkspace *workspace, const RubatoBatch *batch, GError **error);

/* A zeroed one is allowed. */
void lr_workspace_clear(LrWorkspace *workspace);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LrWorkspace, lr_workspace_clear)

/* The results of a batch's rows. */
typedef struct {
    double loss;    /* their sum, without penalties */
    size_t n_right; /* scores on the side of the label, if there are two labels */
} LrTally;

/* From bias and weights: writes scale × the gradient over the batch's rows, penalties included,
 * into d_bias and d_weights. */
LrTally lr_gradient(const LrModel *model, const RubatoBatch *batch, LrWorkspace *workspace,
                    double scale);

/* From bias and weights: the scores of the batch's rows. */
void lr_score(const RubatoBatch *batch, const LrWorkspace *workspace, double *scores);

#endif
