/* The arithmetic of linear models. Pure functions.
 *
 * Sums are in single precision, over a row's entries and a batch's rows. */
#include "apps/lr/lr_model.h"

#include <string.h>

void lr_workspace_clear(LrWorkspace *workspace)
{
    g_free(workspace->bias);
    g_free(workspace->d_bias);
    g_free(workspace->weights);
    g_free(workspace->d_weights);
    g_free(workspace->share);
    *workspace = (LrWorkspace){ 0 };
}

bool lr_workspace_fit(LrWorkspace *workspace, const LrModel *model, const RubatoBatch *batch,
                      GError **error)
{
    const size_t n = MAX(1, batch->n_keys), n_scores = app_loss_n_scores(&model->loss);

    if (n <= workspace->n_keys_max)
        return true;
    lr_workspace_clear(workspace);
    workspace->bias = g_try_new0(float, n_scores);
    workspace->d_bias = g_try_new0(float, n_scores);
    workspace->weights = g_try_new0(float, n *n_scores);
    workspace->d_weights = g_try_new0(float, n *n_scores);
    workspace->share = g_try_new0(float, n);
    if (workspace->bias == NULL || workspace->d_bias == NULL || workspace->weights == NULL ||
        workspace->d_weights == NULL || workspace->share == NULL) {
        lr_workspace_clear(workspace);
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for a batch of %zu keys: give a smaller --batch-size", n);
        return false;
    }
    workspace->n_scores = (uint32_t)n_scores;
    workspace->n_keys_max = n;
    return true;
}

static float score_row(const RubatoBatch *batch, const LrWorkspace *workspace, size_t row)
{
    float score = workspace->bias[0];

    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
        score += workspace->weights[batch->index[e]] * batch->value[e];
    return score;
}

static void add_penalties(const LrModel *model, const RubatoBatch *batch, LrWorkspace *workspace,
                          float scale)
{
    const float l1 = (float)model->l1 * scale, l2 = (float)model->l2 * scale;

    const size_t n_scores = workspace->n_scores;

    for (size_t e = 0; e < batch->n_entries; e++) {
        const size_t key = batch->index[e];
        const float square = l2 > 0 ? l2 * workspace->share[key] : 0;

        for (size_t i = key * n_scores; i < (key + 1) * n_scores; i++) {
            const float weight = workspace->weights[i];
            const float sign = (float)((weight > 0) - (weight < 0));

            workspace->d_weights[i] += l1 * sign + square * weight;
        }
    }
}

static LrTally add_gradient(const LrModel *model, const RubatoBatch *batch, LrWorkspace *workspace,
                            double scale)
{
    LrTally tally = { 0 };
    double d_bias = 0;

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
    workspace->d_bias[0] = (float)d_bias;
    return tally;
}

/* ---- softmax ---- */

static void score_classes(const RubatoBatch *batch, const LrWorkspace *workspace, size_t row,
                          float *scores)
{
    const uint32_t n = workspace->n_scores;

    memcpy(scores, workspace->bias, n * sizeof *scores);
    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++) {
        const float *weights = workspace->weights + (size_t)batch->index[e] * n;

        for (uint32_t k = 0; k < n; k++)
            scores[k] += weights[k] * batch->value[e];
    }
}

static LrTally add_class_gradients(const LrModel *model, const RubatoBatch *batch,
                                   LrWorkspace *workspace, double scale)
{
    const uint32_t n = workspace->n_scores;
    LrTally tally = { 0 };
    float slopes[APP_CLASSES_MAX];

    memset(workspace->d_bias, 0, n * sizeof *workspace->d_bias);
    for (size_t row = 0; row < batch->n_rows; row++) {
        score_classes(batch, workspace, row, slopes);
        tally.loss += app_loss_of_classes(&model->loss, slopes, batch->label[row], (float)scale,
                                          &tally.n_right);
        for (uint32_t k = 0; k < n; k++)
            workspace->d_bias[k] += slopes[k];
        for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++) {
            float *d_weights = workspace->d_weights + (size_t)batch->index[e] * n;

            for (uint32_t k = 0; k < n; k++)
                d_weights[k] += slopes[k] * batch->value[e];
        }
    }
    return tally;
}

/* ---- both ---- */

LrTally lr_gradient(const LrModel *model, const RubatoBatch *batch, LrWorkspace *workspace,
                    double scale)
{
    memset(workspace->d_weights, 0,
           batch->n_keys * workspace->n_scores * sizeof *workspace->d_weights);
    const LrTally tally = model->loss.kind == APP_LOSS_SOFTMAX
                              ? add_class_gradients(model, batch, workspace, scale)
                              : add_gradient(model, batch, workspace, scale);
    if (model->l1 > 0 || model->l2 > 0)
        add_penalties(model, batch, workspace, (float)scale);
    return tally;
}

void lr_score(const RubatoBatch *batch, const LrWorkspace *workspace, double *scores)
{
    const uint32_t n = workspace->n_scores;
    float of_row[APP_CLASSES_MAX];

    for (size_t row = 0; row < batch->n_rows; row++) {
        if (n == 1)
            of_row[0] = score_row(batch, workspace, row);
        else
            score_classes(batch, workspace, row, of_row);
        for (uint32_t k = 0; k < n; k++)
            scores[row * n + k] = (double)of_row[k];
    }
}
