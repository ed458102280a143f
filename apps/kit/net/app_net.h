/* Multi-layer perceptrons: the arithmetic, without tables. Each layer's outputs are its weights
 * times its inputs; those of the hidden layers are then cut off below 0 (ReLU). The last layer's
 * outputs are scores: one for each class, or one.
 *
 * Threads: any; a workspace belongs to one. */
#ifndef RUBATO_APPS_KIT_NET_APP_NET_H
#define RUBATO_APPS_KIT_NET_APP_NET_H

#include <stdint.h>

#include "apps/kit/scores/app_loss.h"

#define APP_NET_HIDDEN_MAX 16u       /* layers */
#define APP_NET_UNITS_MAX (1u << 16) /* of a hidden layer */
#define APP_NET_LAYERS_MAX (APP_NET_HIDDEN_MAX + 1)

typedef struct {
    uint32_t n_layers; /* those that have weights: the hidden ones and the last */
    uint32_t sizes[APP_NET_LAYERS_MAX + 1]; /* columns of the rows, units of each layer */
} AppNetShape;

/* How many values a layer's weights have: for each unit a bias and a weight for each input. */
size_t app_net_layer_values(const AppNetShape *shape, uint32_t layer);

/* Memory for so many rows. */
typedef struct {
    const AppNetShape *shape;
    float *outputs[APP_NET_LAYERS_MAX + 1]; /* by layer; [0]: the rows, for the caller to write */
    float *slopes[APP_NET_LAYERS_MAX];      /* of the loss by the outputs of the hidden layers */
} AppNetWorkspace;

/* RUBATO_ERROR_MEMORY; then the workspace is to be cleared, too. */
bool app_net_workspace_init(AppNetWorkspace *workspace, const AppNetShape *shape, size_t n_rows,
                            GError **error);
void app_net_workspace_clear(AppNetWorkspace *workspace);

/* The scores of n rows, n × those of a row, which stay until the next call. */
const float *app_net_scores(AppNetWorkspace *workspace, float *const *weights, size_t n);

typedef struct {
    double loss; /* the sum over the rows */
    size_t n_right;
} AppNetTally;

/* Writes scale × the sum of the gradients of n rows, by layer, and tells how well the weights did
 * on them. The labels are classes of the loss. */
AppNetTally app_net_gradient(AppNetWorkspace *workspace, float *const *weights, const AppLoss *loss,
                             const float *labels, size_t n, float scale, float *const *gradients);

/* The same from the loss's slopes by the scores, which the caller has put in their place: the last
 * outputs. They are multiplied by the scale already. input_slopes: where to write the slopes by the
 * rows' values, n × sizes[0]; NULL: nowhere. */
void app_net_backward(AppNetWorkspace *workspace, float *const *weights, size_t n,
                      float *const *gradients, float *input_slopes);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(AppNetWorkspace, app_net_workspace_clear)

#endif
