/* Multi-layer perceptrons: the arithmetic, without tables. Each layer's outputs are its weights
 * times its inputs; those of the hidden layers are then cut off below 0 (ReLU). The last layer's
 * outputs are a score for each class.
 *
 * Threads: any; a workspace belongs to one. */
#ifndef RUBATO_APPS_MLP_MLP_NET_H
#define RUBATO_APPS_MLP_MLP_NET_H

#include <stdint.h>

#include "apps/kit/scores/app_loss.h"

#define MLP_HIDDEN_MAX 16u       /* layers */
#define MLP_UNITS_MAX (1u << 16) /* of a hidden layer */
#define MLP_LAYERS_MAX (MLP_HIDDEN_MAX + 1)

typedef struct {
    uint32_t n_layers;                  /* those that have weights: the hidden ones and the last */
    uint32_t sizes[MLP_LAYERS_MAX + 1]; /* columns of the rows, units of each layer */
} MlpShape;

/* How many values a layer's weights have: for each unit a bias and a weight for each input. */
size_t mlp_layer_values(const MlpShape *shape, uint32_t layer);

/* Memory for so many rows. */
typedef struct {
    const MlpShape *shape;
    float *outputs[MLP_LAYERS_MAX + 1]; /* by layer; [0]: the rows, for the caller to write */
    float *slopes[MLP_LAYERS_MAX];      /* of the loss by the outputs of the hidden layers */
} MlpWorkspace;

/* RUBATO_ERROR_MEMORY; then the workspace is to be cleared, too. */
bool mlp_workspace_init(MlpWorkspace *workspace, const MlpShape *shape, size_t n_rows,
                        GError **error);
void mlp_workspace_clear(MlpWorkspace *workspace);

/* The scores of n rows, n × classes, which stay until the next call. */
const float *mlp_scores(MlpWorkspace *workspace, float *const *weights, size_t n);

typedef struct {
    double loss; /* the sum over the rows */
    size_t n_right;
} MlpTally;

/* Writes scale × the sum of the gradients of n rows, by layer, and tells how well the weights did
 * on them. The labels are classes of the loss. */
MlpTally mlp_gradient(MlpWorkspace *workspace, float *const *weights, const AppLoss *loss,
                      const float *labels, size_t n, float scale, float *const *gradients);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(MlpWorkspace, mlp_workspace_clear)

#endif
