/* Wide and deep models on batches of sparse rows: the arithmetic, without tables (H. Cheng and
 * others, "Wide & Deep Learning for Recommender Systems", DLRS 2016).
 *
 * The wide part of a row's score is linear: b + Σ_j w_j x_j + Σ w_jl x_j x_l, where the last sum
 * goes over pairs of the row's entries whose fields are crossed. So it remembers which pairs go
 * together. The deep part is a net over the embeddings of the entries: an input of the net is
 * Σ_j x_j e_j over the entries of a field. So it also tells of rows that are like no other.
 *
 * Threads: any; a workspace has one at a time. */
#ifndef RUBATO_APPS_WIDE_DEEP_WIDE_DEEP_MODEL_H
#define RUBATO_APPS_WIDE_DEEP_WIDE_DEEP_MODEL_H

#include <rubato/rubato.h>

#include "apps/kit/net/app_net.h"
#include "apps/kit/scores/app_loss.h"

#define WIDE_DEEP_CROSSES_MAX 64u
#define WIDE_DEEP_WIDTH_MAX 256 /* of an embedding */
#define WIDE_DEEP_FIELDS_MAX 4096u

/* Two fields whose pairs have weights of their own; first < second. */
typedef struct {
    uint32_t first, second;
} WideDeepCross;

typedef struct {
    bool has_wide, has_deep;
    uint32_t n_fields; /* above every field; 1: rows have no fields, or it is not known yet */
    uint32_t width;    /* of an embedding */
    uint32_t n_crosses;
    WideDeepCross crosses[WIDE_DEEP_CROSSES_MAX];
    AppLoss loss;           /* logistic */
    const AppNetShape *net; /* whose inputs are n_fields × width; one score */
} WideDeepModel;

/* What a batch uses of the tables, and its gradients. It grows with the largest batch. */
typedef struct {
    /* wide: the batch's keys, those of its pairs, and the bias's */
    size_t n_wide;
    RubatoKey *wide_keys;
    float *wide, *d_wide; /* n_wide */

    /* deep: of the batch's keys */
    float *embeddings, *d_embeddings; /* n_keys × width */
    AppNetWorkspace net;
    float *input_slopes;

    struct WideDeepPair *pairs; /* of all rows, one row behind another */
    size_t n_pairs, n_rows_max;
} WideDeepWorkspace;

/* Gets ready for a batch, and lists its wide keys. RUBATO_ERROR_MEMORY. */
bool wide_deep_workspace_fit(WideDeepWorkspace *workspace, const WideDeepModel *model,
                             const RubatoBatch *batch, GError **error);

/* A zeroed one is allowed. */
void wide_deep_workspace_clear(WideDeepWorkspace *workspace);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(WideDeepWorkspace, wide_deep_workspace_clear)

/* The scores of the batch's rows from wide, embeddings and the layers' weights. */
void wide_deep_score(const WideDeepModel *model, const RubatoBatch *batch,
                     WideDeepWorkspace *workspace, float *const *weights, double *scores);

/* The results of a batch's rows. */
typedef struct {
    double loss; /* their sum */
    size_t n_right;
} WideDeepTally;

/* Writes scale × the gradient over the batch's rows: d_wide, d_embeddings, and the layers'. */
WideDeepTally wide_deep_gradient(const WideDeepModel *model, const RubatoBatch *batch,
                                 WideDeepWorkspace *workspace, float *const *weights, float scale,
                                 float *const *gradients);

#endif
