/* The arithmetic of linear models. Pure functions.
 *
 * Sums are in single precision, over a row's entries and a batch's rows. */
#include "apps/lr/lr_model.h"

#include <string.h>

void lr_workspace_clear(LrWorkspace *workspace)
{
    g_free(workspace->weights);
    g_free(workspace->d_weights);
    g_free(workspace->share);
    *workspace = (LrWorkspace){ 0 };
}

bool lr_workspace_fit(LrWorkspace *workspace, const RubatoBatch *batch, GError **error)
{
    const size_t n = MAX(1, batch->n_keys);

    if (n <= workspace->n_keys_max)
        return true;
    lr_workspace_clear(workspace);
    workspace->weights = g_try_new(float, n);
    workspace->d_weights = g_try_new(float, n);
    workspace->share = g_try_new(float, n);
    if (workspace->weights == NULL || workspace->d_weights == NULL || workspace->share == NULL) {
        lr_workspace_clear(workspace);
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for a batch of %zu keys: give a smaller --batch-size", n);
        return false;
    }
    workspace->n_keys_max = n;
    return true;
}

void lr_workspace_weigh(LrWorkspace *workspace, const RubatoBatch *batch,
                        const AppFeatures *features, uint64_t n_rows)
{
    for (size_t k = 0; k < batch->n_keys; k++) {
        const uint64_t n = app_features_n_entries(features, batch->keys[k]);

        workspace->share[k] = n > 0 ? (float)((double)n_rows / (double)n) : 1;
    }
}

static float score_row(const RubatoBatch *batch, const LrWorkspace *workspace, size_t row)
{
    float score = workspace->bias;

    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
        score += workspace->weights[batch->index[e]] * batch->value[e];
    return score;
}

static void add_penalties(const LrModel *model, const RubatoBatch *batch, LrWorkspace *workspace,
                          float scale)
{
    const float l1 = (float)model->l1 * scale, l2 = (float)model->l2 * scale;

    for (size_t e = 0; e < batch->n_entries; e++) {
        const float weight = workspace->weights[batch->index[e]];
        const float sign = (float)((weight > 0) - (weight < 0));

        workspace->d_weights[batch->index[e]] += l1 * sign;
        if (l2 > 0)
            workspace->d_weights[batch->index[e]] +=
                l2 * workspace->share[batch->index[e]] * weight;
    }
}

LrTally lr_gradient(const LrModel *model, const RubatoBatch *batch, LrWorkspace *workspace,
                    double scale)
{
    LrTally tally = { 0 };
    double d_bias = 0;

    memset(workspace->d_weights, 0, batch->n_keys * sizeof *workspace->d_weights);
    for (size_t row = 0; row < batch->n_rows; row++) {
        const float score = score_row(batch, workspace, row), label = batch->label[row];
        float slope;

        tally.loss += (double)app_loss_of(&model->loss, score, label, &slope);
        tally.n_right += app_loss_is_right(&model->loss, score, label);
        slope *= (float)scale;
        d_bias += (double)slope;
        for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
            workspace->d_weights[batch->index[e]] += slope * batch->value[e];
    }
    workspace->d_bias = (float)d_bias;
    if (model->l1 > 0 || model->l2 > 0)
        add_penalties(model, batch, workspace, (float)scale);
    return tally;
}

void lr_score(const RubatoBatch *batch, const LrWorkspace *workspace, double *scores)
{
    for (size_t row = 0; row < batch->n_rows; row++)
        scores[row] = (double)score_row(batch, workspace, row);
}
