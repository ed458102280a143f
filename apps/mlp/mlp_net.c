/* Forward and backward through the layers. */
#include "apps/mlp/mlp_net.h"

#include "apps/mlp/mlp_products.h"

size_t mlp_layer_values(const MlpShape *shape, uint32_t layer)
{
    return (size_t)shape->sizes[layer + 1] * ((size_t)shape->sizes[layer] + 1);
}

bool mlp_workspace_init(MlpWorkspace *workspace, const MlpShape *shape, size_t n_rows,
                        GError **error)
{
    bool good = true;

    *workspace = (MlpWorkspace){ .shape = shape };
    for (uint32_t l = 0; l <= shape->n_layers; l++) {
        const size_t n = MAX(1, n_rows * shape->sizes[l]);

        workspace->outputs[l] = g_try_new(float, n);
        good = good && workspace->outputs[l] != NULL;
        if (l == 0 || l == shape->n_layers)
            continue;
        workspace->slopes[l] = g_try_new(float, n);
        good = good && workspace->slopes[l] != NULL;
    }
    if (!good)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for the layers' outputs of %zu rows; take smaller layers or batches",
                    n_rows);
    return good;
}

void mlp_workspace_clear(MlpWorkspace *workspace)
{
    for (uint32_t l = 0; l <= MLP_LAYERS_MAX; l++)
        g_free(workspace->outputs[l]);
    for (uint32_t l = 0; l < MLP_LAYERS_MAX; l++)
        g_free(workspace->slopes[l]);
    *workspace = (MlpWorkspace){ .shape = NULL };
}

const float *mlp_scores(MlpWorkspace *workspace, float *const *weights, size_t n)
{
    const MlpShape *const shape = workspace->shape;

    for (uint32_t l = 0; l < shape->n_layers; l++) {
        float *const outputs = workspace->outputs[l + 1];

        mlp_products_forward(n, shape->sizes[l], shape->sizes[l + 1], workspace->outputs[l],
                             weights[l], outputs);
        if (l + 1 < shape->n_layers)
            for (size_t i = 0; i < n * shape->sizes[l + 1]; i++)
                outputs[i] = MAX(outputs[i], 0);
    }
    return workspace->outputs[shape->n_layers];
}

MlpTally mlp_gradient(MlpWorkspace *workspace, float *const *weights, const AppLoss *loss,
                      const float *labels, size_t n, float scale, float *const *gradients)
{
    const MlpShape *const shape = workspace->shape;
    const uint32_t n_classes = shape->sizes[shape->n_layers];
    float *slopes = workspace->outputs[shape->n_layers];
    MlpTally tally = { 0 };

    (void)mlp_scores(workspace, weights, n);
    for (size_t r = 0; r < n; r++) /* scores become slopes in their place */
        tally.loss +=
            app_loss_of_classes(loss, slopes + r * n_classes, labels[r], scale, &tally.n_right);
    for (uint32_t l = shape->n_layers; l-- > 0;) {
        const size_t n_inputs = shape->sizes[l], n_units = shape->sizes[l + 1];
        const float *const inputs = workspace->outputs[l];

        mlp_products_gradient(n, n_inputs, n_units, inputs, slopes, gradients[l]);
        if (l == 0)
            break;
        mlp_products_backward(n, n_inputs, n_units, slopes, weights[l], workspace->slopes[l]);
        slopes = workspace->slopes[l];
        for (size_t i = 0; i < n * n_inputs; i++)
            slopes[i] = inputs[i] > 0 ? slopes[i] : 0;
    }
    return tally;
}
