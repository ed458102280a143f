/* Forward and backward through the layers. */
#include "apps/kit/net/app_net.h"

#include "apps/kit/net/app_products.h"

size_t app_net_layer_values(const AppNetShape *shape, uint32_t layer)
{
    return (size_t)shape->sizes[layer + 1] * ((size_t)shape->sizes[layer] + 1);
}

bool app_net_workspace_init(AppNetWorkspace *workspace, const AppNetShape *shape, size_t n_rows,
                            GError **error)
{
    bool good = true;

    *workspace = (AppNetWorkspace){ .shape = shape };
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

void app_net_workspace_clear(AppNetWorkspace *workspace)
{
    for (uint32_t l = 0; l <= APP_NET_LAYERS_MAX; l++)
        g_free(workspace->outputs[l]);
    for (uint32_t l = 0; l < APP_NET_LAYERS_MAX; l++)
        g_free(workspace->slopes[l]);
    *workspace = (AppNetWorkspace){ .shape = NULL };
}

const float *app_net_scores(AppNetWorkspace *workspace, float *const *weights, size_t n)
{
    const AppNetShape *const shape = workspace->shape;

    for (uint32_t l = 0; l < shape->n_layers; l++) {
        float *const outputs = workspace->outputs[l + 1];

        app_products_forward(n, shape->sizes[l], shape->sizes[l + 1], workspace->outputs[l],
                             weights[l], outputs);
        if (l + 1 < shape->n_layers)
            for (size_t i = 0; i < n * shape->sizes[l + 1]; i++)
                outputs[i] = MAX(outputs[i], 0);
    }
    return workspace->outputs[shape->n_layers];
}

void app_net_backward(AppNetWorkspace *workspace, float *const *weights, size_t n,
                      float *const *gradients, float *input_slopes)
{
    const AppNetShape *const shape = workspace->shape;
    float *slopes = workspace->outputs[shape->n_layers];

    for (uint32_t l = shape->n_layers; l-- > 0;) {
        const size_t n_inputs = shape->sizes[l], n_units = shape->sizes[l + 1];
        const float *const inputs = workspace->outputs[l];
        float *const below = l > 0 ? workspace->slopes[l] : input_slopes;

        app_products_gradient(n, n_inputs, n_units, inputs, slopes, gradients[l]);
        if (below == NULL)
            break;
        app_products_backward(n, n_inputs, n_units, slopes, weights[l], below);
        slopes = below;
        for (size_t i = 0; l > 0 && i < n * n_inputs; i++)
            slopes[i] = inputs[i] > 0 ? slopes[i] : 0;
    }
}

AppNetTally app_net_gradient(AppNetWorkspace *workspace, float *const *weights, const AppLoss *loss,
                             const float *labels, size_t n, float scale, float *const *gradients)
{
    const AppNetShape *const shape = workspace->shape;
    const uint32_t n_classes = shape->sizes[shape->n_layers];
    float *const slopes = workspace->outputs[shape->n_layers];
    AppNetTally tally = { 0 };

    (void)app_net_scores(workspace, weights, n);
    for (size_t r = 0; r < n; r++) /* scores become slopes in their place */
        tally.loss +=
            app_loss_of_classes(loss, slopes + r * n_classes, labels[r], scale, &tally.n_right);
    app_net_backward(workspace, weights, n, gradients, /* input_slopes= */ NULL);
    return tally;
}
