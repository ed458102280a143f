/* Factorisation machines with softmax: each class has a machine of its own, and a key's row has its
 * weights for class 0, then for class 1, and so on. The sums over pairs are those of fm_model.c, in
 * plain loops: the classes multiply the work, and the compiler makes vectors of the factors. Pure
 * functions. */
#include "apps/fm/fm_classes.h"

#include <math.h>
#include <string.h>

/* A row of the batch in a class. */
typedef struct {
    const FmModel *model;
    const RubatoBatch *batch;
    size_t row, class, width; /* width: of a key's row */
} Place;

static size_t weights_at(const Place *place, size_t e)
{
    return place->batch->index[e] * place->width + place->class * (1 + place->model->n_factors);
}

/* The score; the sums over the row's entries go to `sum`. */
static float score_class(const Place *place, const float *weights, float bias, float *sum)
{
    const RubatoBatch *batch = place->batch;
    const size_t k = place->model->n_factors;
    float score = bias, squares = 0, products = 0;

    memset(sum, 0, k * sizeof *sum);
    for (size_t e = batch->row_start[place->row]; e < batch->row_start[place->row + 1]; e++) {
        const float x = batch->value[e];
        const float *w = weights + weights_at(place, e);

        score += w[0] * x;
        for (size_t f = 0; f < k; f++) {
            const float term = x * w[1 + f];

            sum[f] += term;
            squares += term * term;
        }
    }
    for (size_t f = 0; f < k; f++)
        products += sum[f] * sum[f];
    return score + (products - squares) / 2;
}

/* Adds the gradient of a row whose error in the class is `slope`, and the penalties for its
 * entries. */
static void spread_class(const Place *place, const FmWorkspace *workspace, const float *sum,
                         float slope, float scale)
{
    const float *const weights = workspace->weights, *const shares = workspace->share;
    float *const gradient = workspace->d_weights;
    const RubatoBatch *batch = place->batch;
    const size_t k = place->model->n_factors;
    const float l2 = (float)place->model->l2 * scale;
    const float l2_factors = (float)place->model->l2_factors * scale;

    for (size_t e = batch->row_start[place->row]; e < batch->row_start[place->row + 1]; e++) {
        const float x = batch->value[e], error = slope * x;
        const float own = l2 * shares[batch->index[e]];
        const float *w = weights + weights_at(place, e);
        float *d = gradient + weights_at(place, e);

        d[0] += error + own * w[0];
        for (size_t f = 0; f < k; f++)
            d[1 + f] += error * (sum[f] - x * w[1 + f]) + (own + l2_factors) * w[1 + f];
    }
}

static void score_row(Place *place, const FmWorkspace *workspace, float *scores, float *sums)
{
    for (place->class = 0; place->class < place->model->loss.n_classes; place->class ++)
        scores[place->class] = score_class(place, workspace->weights, workspace->bias[place->class],
                                           sums + place->class * place->model->n_factors);
}

FmTally fm_classes_gradient(const FmModel *model, const RubatoBatch *batch, FmWorkspace *workspace,
                            double scale)
{
    const uint32_t n = model->loss.n_classes;
    const size_t width = fm_width(model);
    g_autofree float *sums = g_new(float, (size_t)n * model->n_factors);
    float slopes[APP_CLASSES_MAX];
    FmTally tally = { 0 };

    memset(workspace->d_weights, 0, batch->n_keys * width * sizeof *workspace->d_weights);
    memset(workspace->d_bias, 0, n * sizeof *workspace->d_bias);
    for (size_t row = 0; row < batch->n_rows; row++) {
        Place place = { model, batch, row, 0, width };

        score_row(&place, workspace, slopes, sums);
        tally.loss += app_loss_of_classes(&model->loss, slopes, batch->label[row], (float)scale,
                                          &tally.n_right);
        for (place.class = 0; place.class < n; place.class ++) {
            workspace->d_bias[place.class] += slopes[place.class];
            spread_class(&place, workspace, sums + place.class * model->n_factors,
                         slopes[place.class], (float)scale);
        }
    }
    return tally;
}

void fm_classes_score(const FmModel *model, const RubatoBatch *batch, const FmWorkspace *workspace,
                      double *scores)
{
    const uint32_t n = model->loss.n_classes;
    g_autofree float *sums = g_new(float, (size_t)n * model->n_factors);
    float of_row[APP_CLASSES_MAX];

    for (size_t row = 0; row < batch->n_rows; row++) {
        Place place = { model, batch, row, 0, fm_width(model) };

        score_row(&place, workspace, of_row, sums);
        for (uint32_t i = 0; i < n; i++)
            scores[row * n + i] = (double)of_row[i];
    }
}
