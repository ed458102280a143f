/* The arithmetic of wide and deep models. Pure functions.
 *
 * The key of a pair is a hash of the keys and fields of its entries, so the table of the wide part
 * has pairs beside single keys. */
#include "apps/wide-deep/wide_deep_model.h"

#include <rubato/mix.h>
#include <stdlib.h>
#include <string.h>

#define BIAS_KEY UINT64_C(0x9d5f2a6c81b3e047) /* like a hash, and no column's number */

typedef struct WideDeepPair {
    RubatoKey key;
    uint32_t row, place; /* place: in wide_keys */
    float value;
} WideDeepPair;

/* ---- the workspace ---- */

void wide_deep_workspace_clear(WideDeepWorkspace *workspace)
{
    g_free(workspace->wide_keys);
    g_free(workspace->wide);
    g_free(workspace->d_wide);
    g_free(workspace->embeddings);
    g_free(workspace->d_embeddings);
    g_free(workspace->input_slopes);
    g_free(workspace->pairs);
    app_net_workspace_clear(&workspace->net);
    *workspace = (WideDeepWorkspace){ .n_wide = 0 };
}

/* Room for n values in place of what is there. */
static bool make_room(float **values, size_t n)
{
    g_free(*values);
    *values = g_try_new(float, MAX(1, n));
    return *values != NULL;
}

static uint32_t field_of(const RubatoBatch *batch, size_t entry)
{
    return batch->field != NULL ? batch->field[entry] : 0;
}

/* The pairs of a row for a cross, written if there is room for them; their number. */
static size_t list_pairs(const RubatoBatch *batch, size_t row, const WideDeepCross *cross,
                         WideDeepPair *pairs)
{
    const size_t begin = batch->row_start[row], end = batch->row_start[row + 1];
    const uint64_t fields = rubato_mix64(((uint64_t)cross->first << 32) + cross->second);
    size_t n = 0;

    for (size_t i = begin; i < end; i++)
        for (size_t j = begin; field_of(batch, i) == cross->first && j < end; j++) {
            if (field_of(batch, j) != cross->second)
                continue;
            if (pairs != NULL)
                pairs[n] = (WideDeepPair){
                    .key = rubato_mix64(rubato_mix64(fields ^ batch->keys[batch->index[i]]) +
                                        batch->keys[batch->index[j]]),
                    .row = (uint32_t)row,
                    .value = batch->value[i] * batch->value[j],
                };
            n++;
        }
    return n;
}

static size_t list_all_pairs(const WideDeepModel *model, const RubatoBatch *batch,
                             WideDeepPair *pairs)
{
    size_t n = 0;

    for (size_t row = 0; row < batch->n_rows; row++)
        for (uint32_t c = 0; c < model->n_crosses; c++)
            n += list_pairs(batch, row, &model->crosses[c], pairs != NULL ? pairs + n : NULL);
    return n;
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey x = *(const RubatoKey *)a, y = *(const RubatoKey *)b;

    return (x > y) - (x < y);
}

/* Lists the wide keys: those of the batch, the bias's, and those of its pairs, each once. */
static bool list_keys(WideDeepWorkspace *workspace, const WideDeepModel *model,
                      const RubatoBatch *batch)
{
    const size_t n_before = batch->n_keys + 1;
    size_t n = 0;

    g_free(workspace->pairs);
    g_free(workspace->wide_keys);
    workspace->n_pairs = list_all_pairs(model, batch, /* pairs= */ NULL);
    workspace->pairs = g_try_new(WideDeepPair, workspace->n_pairs + 1);
    workspace->wide_keys = g_try_new(RubatoKey, n_before + workspace->n_pairs);
    if (workspace->pairs == NULL || workspace->wide_keys == NULL)
        return false;
    (void)list_all_pairs(model, batch, workspace->pairs);
    for (size_t j = 0; j < batch->n_keys; j++)
        workspace->wide_keys[j] = batch->keys[j];
    workspace->wide_keys[batch->n_keys] = BIAS_KEY;

    RubatoKey *const keys = workspace->wide_keys + n_before;
    for (size_t p = 0; p < workspace->n_pairs; p++)
        keys[p] = workspace->pairs[p].key;
    qsort(keys, workspace->n_pairs, sizeof *keys, compare_keys);
    for (size_t p = 0; p < workspace->n_pairs; p++)
        if (n == 0 || keys[p] != keys[n - 1])
            keys[n++] = keys[p];
    for (size_t p = 0; p < workspace->n_pairs; p++) {
        WideDeepPair *const pair = &workspace->pairs[p];
        const RubatoKey *const found = bsearch(&pair->key, keys, n, sizeof *keys, compare_keys);

        pair->place = (uint32_t)(found - workspace->wide_keys);
    }
    workspace->n_wide = n_before + n;
    return true;
}

static bool fit_deep(WideDeepWorkspace *workspace, const WideDeepModel *model,
                     const RubatoBatch *batch)
{
    const size_t n = batch->n_keys * model->width;

    if (!make_room(&workspace->embeddings, n) || !make_room(&workspace->d_embeddings, n))
        return false;
    if (workspace->net.shape != NULL && batch->n_rows <= workspace->n_rows_max)
        return true;
    app_net_workspace_clear(&workspace->net);
    workspace->n_rows_max = batch->n_rows;
    return make_room(&workspace->input_slopes, batch->n_rows * model->net->sizes[0]) &&
           app_net_workspace_init(&workspace->net, model->net, batch->n_rows, NULL);
}

bool wide_deep_workspace_fit(WideDeepWorkspace *workspace, const WideDeepModel *model,
                             const RubatoBatch *batch, GError **error)
{
    const bool good = (!model->has_wide || (list_keys(workspace, model, batch) &&
                                            make_room(&workspace->wide, workspace->n_wide) &&
                                            make_room(&workspace->d_wide, workspace->n_wide))) &&
                      (!model->has_deep || fit_deep(workspace, model, batch));

    if (!good)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for a batch of %zu rows; take smaller layers or batches",
                    batch->n_rows);
    return good;
}

/* ---- scores ---- */

/* Where the inputs of the net for an entry begin. */
static size_t input_at(const WideDeepModel *model, const RubatoBatch *batch, size_t row,
                       size_t entry)
{
    return row * model->net->sizes[0] + (size_t)field_of(batch, entry) * model->width;
}

static void put_inputs(const WideDeepModel *model, const RubatoBatch *batch,
                       WideDeepWorkspace *workspace)
{
    float *const inputs = workspace->net.outputs[0];

    memset(inputs, 0, batch->n_rows * model->net->sizes[0] * sizeof *inputs);
    for (size_t row = 0; row < batch->n_rows; row++)
        for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++) {
            const float *const embedding =
                workspace->embeddings + (size_t)batch->index[e] * model->width;
            float *const input = inputs + input_at(model, batch, row, e);

            for (uint32_t k = 0; k < model->width; k++)
                input[k] += batch->value[e] * embedding[k];
        }
}

/* The wide part of a row; *pair: the first pair that is not of a row before, then of this one. */
static float wide_score(const RubatoBatch *batch, const WideDeepWorkspace *workspace, size_t row,
                        size_t *pair)
{
    float score = workspace->wide[batch->n_keys];

    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
        score += workspace->wide[batch->index[e]] * batch->value[e];
    for (; *pair < workspace->n_pairs && workspace->pairs[*pair].row == row; ++*pair)
        score += workspace->wide[workspace->pairs[*pair].place] * workspace->pairs[*pair].value;
    return score;
}

/* The deep parts of all rows, which the wide ones are added to later; NULL: there are none. */
static float *deep_scores(const WideDeepModel *model, const RubatoBatch *batch,
                          WideDeepWorkspace *workspace, float *const *weights)
{
    if (!model->has_deep)
        return NULL;
    put_inputs(model, batch, workspace);
    (void)app_net_scores(&workspace->net, weights, batch->n_rows);
    return workspace->net.outputs[model->net->n_layers];
}

void wide_deep_score(const WideDeepModel *model, const RubatoBatch *batch,
                     WideDeepWorkspace *workspace, float *const *weights, double *scores)
{
    const float *const deep = deep_scores(model, batch, workspace, weights);
    size_t pair = 0;

    for (size_t row = 0; row < batch->n_rows; row++)
        scores[row] = (double)((model->has_wide ? wide_score(batch, workspace, row, &pair) : 0) +
                               (deep != NULL ? deep[row] : 0));
}

/* ---- gradients ---- */

/* From `pair` on, the pairs of the row and of those behind it. */
static void spread_wide(const RubatoBatch *batch, WideDeepWorkspace *workspace, size_t row,
                        size_t pair, float slope)
{
    workspace->d_wide[batch->n_keys] += slope;
    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
        workspace->d_wide[batch->index[e]] += slope * batch->value[e];
    for (; pair < workspace->n_pairs && workspace->pairs[pair].row == row; pair++)
        workspace->d_wide[workspace->pairs[pair].place] += slope * workspace->pairs[pair].value;
}

/* From the slopes by the net's inputs. */
static void spread_embeddings(const WideDeepModel *model, const RubatoBatch *batch,
                              WideDeepWorkspace *workspace)
{
    memset(workspace->d_embeddings, 0,
           batch->n_keys * model->width * sizeof *workspace->d_embeddings);
    for (size_t row = 0; row < batch->n_rows; row++)
        for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++) {
            const float *const slopes = workspace->input_slopes + input_at(model, batch, row, e);
            float *const gradient =
                workspace->d_embeddings + (size_t)batch->index[e] * model->width;

            for (uint32_t k = 0; k < model->width; k++)
                gradient[k] += batch->value[e] * slopes[k];
        }
}

WideDeepTally wide_deep_gradient(const WideDeepModel *model, const RubatoBatch *batch,
                                 WideDeepWorkspace *workspace, float *const *weights, float scale,
                                 float *const *gradients)
{
    float *const deep = deep_scores(model, batch, workspace, weights);
    WideDeepTally tally = { 0 };
    size_t pair = 0;

    if (model->has_wide)
        memset(workspace->d_wide, 0, workspace->n_wide * sizeof *workspace->d_wide);
    for (size_t row = 0; row < batch->n_rows; row++) {
        const size_t first_pair = pair;
        const float score = (model->has_wide ? wide_score(batch, workspace, row, &pair) : 0) +
                            (deep != NULL ? deep[row] : 0);
        float slope;

        tally.loss += (double)app_loss_of(&model->loss, score, batch->label[row], &slope);
        tally.n_right += app_loss_is_right(&model->loss, score, batch->label[row]);
        slope *= scale;
        if (model->has_wide)
            spread_wide(batch, workspace, row, first_pair, slope);
        if (deep != NULL)
            deep[row] = slope;
    }
    if (!model->has_deep)
        return tally;
    app_net_backward(&workspace->net, weights, batch->n_rows, gradients, workspace->input_slopes);
    spread_embeddings(model, batch, workspace);
    return tally;
}
