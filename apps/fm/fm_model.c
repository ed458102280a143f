/* The arithmetic of factorisation machines. Pure functions.
 *
 * Without fields there is no loop over the pairs of a row: with s = Σ_j x_j v_j their sum is (|s|²
 * − Σ_j x_j² |v_j|²) / 2 (Rendle, lemma 3.1), and an entry's gradient from the row's error e is e
 * x_j s − e x_j² v_j. The first part is added for each entry. In the second part, and in the
 * penalty, v_j is a common factor of all entries of a key; so it is added once for a key, from sums
 * over its entries.
 *
 * The loops over factors go by vectors of four and are compiled once for each usual number of
 * factors, as a constant: s then stays in registers. Sums are in single precision, over a row's
 * entries and a batch's rows. */
#include "apps/fm/fm_model.h"

#include <string.h>

#include "apps/fm/fm_classes.h"

/* Sums over the entries of one key: of e x and e x², scaled, and of 1. */
typedef struct FmTotal {
    float slope, curvature, uses;
} FmTotal;

/* The state of a pass over a batch. */
typedef struct {
    const FmModel *model;
    const RubatoBatch *batch;
    float bias;
    const float *weights;
    float *d_bias, *d_weights;
    const float *share;
    FmTotal *totals;
    float scale;
} Pass;

size_t fm_width(const FmModel *model)
{
    return app_loss_n_scores(&model->loss) *
           (1 + (size_t)model->n_factors * MAX(1, model->n_fields));
}

/* ---- the workspace ---- */

void fm_workspace_clear(FmWorkspace *workspace)
{
    g_free(workspace->bias);
    g_free(workspace->d_bias);
    g_free(workspace->weights);
    g_free(workspace->d_weights);
    g_free(workspace->share);
    g_free(workspace->totals);
    *workspace = (FmWorkspace){ 0 };
}

static bool workspace_allocate(FmWorkspace *workspace, size_t n, const FmModel *model)
{
    const size_t width = fm_width(model), n_scores = app_loss_n_scores(&model->loss);
    size_t n_values;

    if (!g_size_checked_mul(&n_values, MAX(1, n), width))
        return false;
    workspace->bias = g_new0(float, n_scores);
    workspace->d_bias = g_new0(float, n_scores);
    workspace->weights = g_try_new(float, n_values);
    workspace->d_weights = g_try_new(float, n_values);
    workspace->share = g_try_new0(float, MAX(1, n));
    workspace->totals = g_try_new(FmTotal, MAX(1, n));
    return workspace->weights != NULL && workspace->d_weights != NULL && workspace->share != NULL &&
           workspace->totals != NULL;
}

bool fm_workspace_fit(FmWorkspace *workspace, const FmModel *model, const RubatoBatch *batch,
                      GError **error)
{
    const size_t n = batch->n_keys;

    if (n > workspace->n_keys_max || workspace->weights == NULL) {
        fm_workspace_clear(workspace);
        if (!workspace_allocate(workspace, n, model)) {
            fm_workspace_clear(workspace);
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "no memory for a batch of %zu keys with %zu weights each: "
                        "give a smaller --batch-size or fewer --factors",
                        n, fm_width(model));
            return false;
        }
        workspace->n_keys_max = n;
    }
    return true;
}

/* ---- vectors ---- */

#define LANES 4
#define KERNEL static inline __attribute__((always_inline))

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

KERNEL Lanes load(const float *from)
{
    return *(const Lanes *)(const void *)from;
}

KERNEL void store(float *to, Lanes lanes)
{
    *(Lanes *)(void *)to = lanes;
}

KERNEL float sum_of(Lanes lanes)
{
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/* How many of k values are in whole vectors. */
KERNEL size_t whole(size_t k)
{
    return k / LANES * LANES;
}

KERNEL void add_scaled(float *restrict to, const float *restrict from, float x, size_t k)
{
    for (size_t f = 0; f < whole(k); f += LANES)
        store(to + f, load(to + f) + x * load(from + f));
    for (size_t f = whole(k); f < k; f++)
        to[f] += x * from[f];
}

KERNEL float dot(const float *a, const float *b, size_t k)
{
    Lanes lanes = { 0 };
    float rest = 0;

    for (size_t f = 0; f < whole(k); f += LANES)
        lanes += load(a + f) * load(b + f);
    for (size_t f = whole(k); f < k; f++)
        rest += a[f] * b[f];
    return sum_of(lanes) + rest;
}

/* ---- a key's row ---- */

/* The number of its values, of which k is the number of factors against a field. */
KERNEL size_t width_of(const Pass *pass, size_t k, bool fields)
{
    return 1 + (fields ? k * pass->model->n_fields : k);
}

/* ---- a row without fields ---- */

/* The part of the row's score that comes from its pairs; the sums over its entries go to `sum`. */
KERNEL float score_pairs(const Pass *pass, size_t row, size_t k, float *sum)
{
    const RubatoBatch *batch = pass->batch;
    Lanes s[FM_FACTORS_MAX / LANES], squares = { 0 };
    float rest = 0;

    for (size_t f = 0; f < whole(k); f += LANES)
        s[f / LANES] = (Lanes){ 0 };
    for (size_t f = whole(k); f < k; f++)
        sum[f] = 0;
    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++) {
        const float x = batch->value[e];
        const float *v = pass->weights + batch->index[e] * (k + 1) + 1;

        for (size_t f = 0; f < whole(k); f += LANES) {
            const Lanes term = x * load(v + f);

            s[f / LANES] += term;
            squares += term * term;
        }
        for (size_t f = whole(k); f < k; f++) {
            sum[f] += x * v[f];
            rest -= x * v[f] * x * v[f];
        }
    }
    for (size_t f = 0; f < whole(k); f += LANES)
        store(sum + f, s[f / LANES]);
    return (dot(sum, sum, k) - sum_of(squares) + rest) / 2;
}

/* Adds the first part of the gradient of a row whose error is `slope`. */
KERNEL void spread_pairs(const Pass *pass, size_t row, size_t k, const float *sum, float slope)
{
    const RubatoBatch *batch = pass->batch;

    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
        add_scaled(pass->d_weights + batch->index[e] * (k + 1) + 1, sum, slope * batch->value[e],
                   k);
}

/* ---- a row with fields ---- */

/* Where the factors of entry e against the field of entry `other` are. */
KERNEL size_t factors_at(const Pass *pass, size_t k, size_t e, size_t other)
{
    const RubatoBatch *batch = pass->batch;

    return batch->index[e] * width_of(pass, k, true) + 1 + batch->field[other] * k;
}

KERNEL float score_fields(const Pass *pass, size_t row, size_t k)
{
    const RubatoBatch *batch = pass->batch;
    const size_t end = batch->row_start[row + 1];
    float score = 0;

    for (size_t i = batch->row_start[row]; i < end; i++)
        for (size_t j = i + 1; j < end; j++)
            score += dot(pass->weights + factors_at(pass, k, i, j),
                         pass->weights + factors_at(pass, k, j, i), k) *
                     batch->value[i] * batch->value[j];
    return score;
}

KERNEL void spread_fields(const Pass *pass, size_t row, size_t k, float slope)
{
    const RubatoBatch *batch = pass->batch;
    const size_t end = batch->row_start[row + 1];

    for (size_t i = batch->row_start[row]; i < end; i++)
        for (size_t j = i + 1; j < end; j++) {
            const size_t at_v = factors_at(pass, k, i, j), at_u = factors_at(pass, k, j, i);
            const float x = slope * batch->value[i] * batch->value[j];

            add_scaled(pass->d_weights + at_v, pass->weights + at_u, x, k);
            add_scaled(pass->d_weights + at_u, pass->weights + at_v, x, k);
        }
}

/* ---- a batch ---- */

KERNEL float linear_score(const Pass *pass, size_t row, size_t width)
{
    const RubatoBatch *batch = pass->batch;
    float score = pass->bias;

    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++)
        score += pass->weights[batch->index[e] * width] * batch->value[e];
    return score;
}

/* Adds a row's error to the linear terms and to the other sums by key. */
KERNEL void count_totals(const Pass *pass, size_t row, float slope)
{
    const RubatoBatch *batch = pass->batch;

    for (size_t e = batch->row_start[row]; e < batch->row_start[row + 1]; e++) {
        FmTotal *total = &pass->totals[batch->index[e]];
        const float x = slope * batch->value[e];

        total->slope += x;
        total->curvature += x * batch->value[e];
        total->uses += 1;
    }
}

/* All rows, with k a constant if it is called with one; scores: NULL if the gradient is
 * wanted. */
KERNEL FmTally go_through(const Pass *pass, size_t k, bool fields, double *scores)
{
    const RubatoBatch *batch = pass->batch;
    float sum[FM_FACTORS_MAX];
    FmTally tally = { 0 };
    double d_bias = 0;

    for (size_t row = 0; row < batch->n_rows; row++) {
        float score = linear_score(pass, row, width_of(pass, k, fields)), slope;

        score += fields ? score_fields(pass, row, k) : score_pairs(pass, row, k, sum);
        if (scores != NULL) {
            scores[row] = (double)score;
            continue;
        }
        tally.loss += (double)app_loss_of(&pass->model->loss, score, batch->label[row], &slope);
        tally.n_right += app_loss_is_right(&pass->model->loss, score, batch->label[row]);
        slope *= pass->scale;
        d_bias += (double)slope;
        count_totals(pass, row, slope);
        if (fields)
            spread_fields(pass, row, k, slope);
        else
            spread_pairs(pass, row, k, sum, slope);
    }
    if (scores == NULL)
        *pass->d_bias = (float)d_bias;
    return tally;
}

static FmTally go_through_all(const Pass *pass, double *scores)
{
    const bool fields = pass->model->n_fields > 0;

    switch (pass->model->n_factors) {
    case 4:
        return fields ? go_through(pass, 4, true, scores) : go_through(pass, 4, false, scores);
    case 8:
        return fields ? go_through(pass, 8, true, scores) : go_through(pass, 8, false, scores);
    case 16:
        return fields ? go_through(pass, 16, true, scores) : go_through(pass, 16, false, scores);
    default:
        return go_through(pass, pass->model->n_factors, fields, scores);
    }
}

/* Adds the part that is common to all entries of a key. */
static void add_totals(const Pass *pass)
{
    const FmModel *model = pass->model;
    const size_t width = fm_width(model);
    const float l2 = (float)model->l2 * pass->scale;
    const float l2_factors = (float)model->l2_factors * pass->scale;

    for (size_t j = 0; j < pass->batch->n_keys; j++) {
        const FmTotal *total = &pass->totals[j];
        const float of_all = l2 > 0 ? l2 * pass->share[j] * total->uses : 0;
        const float own =
            of_all + l2_factors * total->uses - (model->n_fields > 0 ? 0 : total->curvature);
        const float *weights = pass->weights + j * width;
        float *gradient = pass->d_weights + j * width;

        gradient[0] = total->slope + of_all * weights[0];
        add_scaled(gradient + 1, weights + 1, own, width - 1);
    }
}

FmTally fm_gradient(const FmModel *model, const RubatoBatch *batch, FmWorkspace *workspace,
                    double scale)
{
    if (model->loss.kind == APP_LOSS_SOFTMAX)
        return fm_classes_gradient(model, batch, workspace, scale);

    const Pass pass = {
        .model = model,
        .batch = batch,
        .bias = workspace->bias[0],
        .weights = workspace->weights,
        .d_bias = workspace->d_bias,
        .d_weights = workspace->d_weights,
        .share = workspace->share,
        .totals = workspace->totals,
        .scale = (float)scale,
    };

    memset(pass.d_weights, 0, batch->n_keys * fm_width(model) * sizeof *pass.d_weights);
    memset(pass.totals, 0, batch->n_keys * sizeof *pass.totals);
    const FmTally tally = go_through_all(&pass, /* scores= */ NULL);
    add_totals(&pass);
    return tally;
}

void fm_score(const FmModel *model, const RubatoBatch *batch, const FmWorkspace *workspace,
              double *scores)
{
    if (model->loss.kind == APP_LOSS_SOFTMAX) {
        fm_classes_score(model, batch, workspace, scores);
        return;
    }

    const Pass pass = {
        .model = model,
        .batch = batch,
        .bias = workspace->bias[0],
        .weights = workspace->weights,
    };

    (void)go_through_all(&pass, scores);
}
