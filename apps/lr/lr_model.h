/* Linear models on batches of sparse rows: the arithmetic, without tables.
 *
 * A row with the entries (key j, value x_j) has the score b + Σ_j w_j x_j. With softmax each class
 * has a score, a bias and weights of its own.
 *
 * Threads: any; a workspace has one at a time. */
#ifndef RUBATO_APPS_LR_LR_MODEL_H
#define RUBATO_APPS_LR_LR_MODEL_H

#include <rubato/rubato.h>

#include "apps/kit/scores/app_loss.h"

typedef struct {
    AppLoss loss;
    double l1; /* for each entry of a row: l1 × |w_j| */
    double l2; /* for each row: l2 / 2 × Σ_j w_j² over all weights */
} LrModel;

/* The weights of a batch's keys, and their gradients; it grows with the largest batch. */
typedef struct {
    uint32_t n_scores; /* of a row */
    float *bias;       /* n_scores */
    float *d_bias;     /* n_scores */
    float *weights;    /* n_keys × n_scores */
    float *d_weights;  /* n_keys × n_scores */
    float *share;      /* n_keys, for l2: app_features_shares */
    size_t n_keys_max;
} LrWorkspace;

/* Makes room for a batch of a model; new memory is 0. RUBATO_ERROR_MEMORY if there is none. */
bool lr_workspace_fit(LrWorkspace *workspace, const LrModel *model, const RubatoBatch *batch,
                      GError **error);

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

/* From bias and weights: the n_scores scores of each of the batch's rows. */
void lr_score(const RubatoBatch *batch, const LrWorkspace *workspace, double *scores);

#endif
