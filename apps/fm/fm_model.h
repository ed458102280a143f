/* Factorisation machines on batches of sparse rows: the arithmetic, without tables.
 *
 * A row with the entries (key j, value x_j) has the score
 *
 *     b + Σ_j w_j x_j + Σ_{j<l} <v_j, v_l> x_j x_l
 *
 * (S. Rendle, "Factorization Machines", ICDM 2010). If the field of the other entry chooses the
 * factor, it has the score
 *
 *     b + Σ_j w_j x_j + Σ_{j<l} <v_{j,field l}, v_{l,field j}> x_j x_l
 *
 * (Y. Juan, Y. Zhuang, W. Chin, C. Lin, "Field-aware Factorization Machines for CTR Prediction",
 * RecSys 2016). With softmax there is such a machine without fields for each class.
 *
 * Threads: any; a workspace has one at a time. */
#ifndef RUBATO_APPS_FM_FM_MODEL_H
#define RUBATO_APPS_FM_FM_MODEL_H

#include <rubato/rubato.h>

#include "apps/kit/scores/app_loss.h"

#define FM_FACTORS_MAX 256
#define FM_FIELDS_MAX 4096

typedef struct {
    uint32_t n_factors; /* at most FM_FACTORS_MAX */
    uint32_t n_fields;  /* above every field, at most FM_FIELDS_MAX; 0: not field-aware */
    AppLoss loss;
    double l2;         /* for each row: half this × the squares of all weights, not the bias */
    double l2_factors; /* for each entry of a row: half this × the squares of its factors */
} FmModel;

/* Values in a key's row: its linear term, and behind it its factors, that is at 1 + the field's
 * number × n_factors + the factor's. With softmax, these for each class, one behind another. */
size_t fm_width(const FmModel *model);

/* The weights of a batch's keys, and their gradients; it grows with the largest batch. */
typedef struct {
    float *bias;      /* a value for each score of a row */
    float *weights;   /* n_keys rows of fm_width() */
    float *d_bias;    /* the gradients … */
    float *d_weights; /* … */
    float *share;     /* n_keys, for l2: app_features_shares */
    struct FmTotal *totals;
    size_t n_keys_max;
} FmWorkspace;

/* Makes room for a batch. RUBATO_ERROR_MEMORY if there is none. */
bool fm_workspace_fit(FmWorkspace *workspace, const FmModel *model, const RubatoBatch *batch,
                      GError **error);

/* A zeroed one is allowed. */
void fm_workspace_clear(FmWorkspace *workspace);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(FmWorkspace, fm_workspace_clear)

/* The results of a batch's rows. */
typedef struct {
    double loss;    /* their sum, without penalties */
    size_t n_right; /* scores on the side of the label; with softmax: labels of the highest score */
} FmTally;

/* From bias and weights: writes scale × the gradient over the batch's rows, penalties included,
 * into d_bias and d_weights. */
FmTally fm_gradient(const FmModel *model, const RubatoBatch *batch, FmWorkspace *workspace,
                    double scale);

/* From bias and weights: the scores of the batch's rows, of each row all its scores. */
void fm_score(const FmModel *model, const RubatoBatch *batch, const FmWorkspace *workspace,
              double *scores);

#endif
