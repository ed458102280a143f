/* The arithmetic of factorisation machines: scores are compared with the sums of the papers, and
 * the gradient with differences of the objective. */
#include <check.h>
#include <math.h>
#include <rubato/mix.h>
#include <stdlib.h>
#include <string.h>

#include "apps/fm/fm_model.h"
#include "tests/support/runner.h"

#define N_ROWS 12
#define N_KEYS 9
#define N_FIELDS 4
#define MAX_ENTRIES 7

/* A batch made up from a seed: rows of none to seven entries, keys that come up twice in a row,
 * values that are not 1. */
typedef struct {
    uint64_t state;
    RubatoKey keys[N_KEYS];
    size_t row_start[N_ROWS + 1];
    uint32_t index[N_ROWS * MAX_ENTRIES], field[N_ROWS * MAX_ENTRIES];
    float value[N_ROWS * MAX_ENTRIES], label[N_ROWS];
    RubatoBatch batch;
    FmModel model;
    FmWorkspace workspace;
} Rig;

static uint64_t draw(Rig *rig, uint64_t n)
{
    return rubato_mix64(++rig->state) % n;
}

static float draw_real(Rig *rig)
{
    return (float)draw(rig, 2001) / 1000 - 1;
}

static void fill_batch(Rig *rig)
{
    size_t n = 0;

    for (size_t i = 0; i < N_KEYS; i++)
        rig->keys[i] = 10 * i + 3;
    for (size_t i = 0; i < N_ROWS; i++) {
        rig->row_start[i] = n;
        rig->label[i] = rig->model.loss.kind == APP_LOSS_LOGISTIC ? (draw(rig, 2) == 1 ? 1 : -1)
                                                                  : 3 * draw_real(rig);
        for (size_t e = i == 0 ? 0 : draw(rig, MAX_ENTRIES + 1); e > 0; e--, n++) {
            rig->index[n] = (uint32_t)draw(rig, N_KEYS);
            rig->field[n] = (uint32_t)draw(rig, N_FIELDS);
            rig->value[n] = draw_real(rig);
        }
    }
    rig->row_start[N_ROWS] = n;
    rig->batch = (RubatoBatch){
        .n_rows = N_ROWS,
        .n_entries = n,
        .n_keys = N_KEYS,
        .keys = rig->keys,
        .row_start = rig->row_start,
        .index = rig->index,
        .field = rig->field,
        .value = rig->value,
        .label = rig->label,
    };
}

static size_t n_uses(const Rig *rig, size_t key)
{
    size_t n = 0;

    for (size_t e = 0; e < rig->batch.n_entries; e++)
        n += rig->index[e] == key;
    return n;
}

static void rig_init(Rig *rig, const FmModel *model)
{
    *rig = (Rig){ .model = *model, .state = 77 * model->n_factors + model->n_fields };
    rig->model.loss.positive = 1;
    fill_batch(rig);
    ck_assert(fm_workspace_fit(&rig->workspace, model, &rig->batch, NULL));
    *rig->workspace.bias = draw_real(rig);
    for (size_t i = 0; i < N_KEYS * fm_width(model); i++)
        rig->workspace.weights[i] = draw_real(rig) / (i % fm_width(model) == 0 ? 1 : 2);
    for (size_t k = 0; k < N_KEYS; k++)
        if (n_uses(rig, k) > 0)
            rig->workspace.share[k] = (float)N_ROWS / (float)n_uses(rig, k);
}

static const FmModel shapes[] = {
    { .n_factors = 1, .n_fields = 0, .loss.kind = APP_LOSS_LOGISTIC },
    { .n_factors = 3, .n_fields = 0, .loss.kind = APP_LOSS_SQUARED },
    { .n_factors = 4,
      .n_fields = 0,
      .loss.kind = APP_LOSS_LOGISTIC,
      .l2 = 0.5,
      .l2_factors = 0.25 },
    { .n_factors = 8, .n_fields = 0, .loss.kind = APP_LOSS_SQUARED, .l2_factors = 0.5 },
    { .n_factors = 16, .n_fields = 0, .loss.kind = APP_LOSS_LOGISTIC },
    { .n_factors = 17, .n_fields = 0, .loss.kind = APP_LOSS_LOGISTIC },
    { .n_factors = FM_FACTORS_MAX, .n_fields = 0, .loss.kind = APP_LOSS_SQUARED },
    { .n_factors = 1, .n_fields = N_FIELDS, .loss.kind = APP_LOSS_SQUARED },
    { .n_factors = 4,
      .n_fields = N_FIELDS,
      .loss.kind = APP_LOSS_LOGISTIC,
      .l2 = 0.5,
      .l2_factors = 0.25 },
    { .n_factors = 5, .n_fields = N_FIELDS, .loss.kind = APP_LOSS_LOGISTIC },
    { .n_factors = 8, .n_fields = N_FIELDS, .loss.kind = APP_LOSS_SQUARED },
    { .n_factors = 16, .n_fields = N_FIELDS, .loss.kind = APP_LOSS_LOGISTIC },
};

/* The papers' formula: pair by pair, in double precision. */
static double plain_score(const Rig *rig, size_t row)
{
    const FmModel *model = &rig->model;
    const size_t end = rig->row_start[row + 1];
    double score = (double)*rig->workspace.bias;

    for (size_t i = rig->row_start[row]; i < end; i++) {
        const float *v = rig->workspace.weights + rig->index[i] * fm_width(model);

        score += (double)*v++ * (double)rig->value[i];
        for (size_t j = i + 1; j < end; j++) {
            const float *u = rig->workspace.weights + rig->index[j] * fm_width(model) + 1;
            const size_t at_v = model->n_fields > 0 ? rig->field[j] * model->n_factors : 0;
            const size_t at_u = model->n_fields > 0 ? rig->field[i] * model->n_factors : 0;

            for (size_t f = 0; f < model->n_factors; f++)
                score += (double)v[at_v + f] * (double)u[at_u + f] * (double)rig->value[i] *
                         (double)rig->value[j];
        }
    }
    return score;
}

/* The objective whose gradient fm_gradient computes. The tally is without the penalties. */
static double objective(const Rig *rig, FmTally *tally)
{
    const FmModel *model = &rig->model;
    const size_t width = fm_width(model);
    double sum = 0, penalty = 0;
    size_t n_right = 0;

    for (size_t i = 0; i < N_ROWS; i++) {
        const double score = plain_score(rig, i), label = (double)rig->label[i];

        n_right += (score > 0) == (label > 0);
        sum += model->loss.kind == APP_LOSS_LOGISTIC ? log1p(exp(-label * score))
                                                     : (score - label) * (score - label) / 2;
    }
    for (size_t e = 0; e < rig->batch.n_entries; e++) {
        for (size_t i = 1; i < width; i++) {
            const double w = (double)rig->workspace.weights[rig->index[e] * width + i];

            penalty += model->l2_factors / 2 * w * w;
        }
    }
    /* All weights have the same penalty in each row, however often their keys come. */
    for (size_t k = 0; k < N_KEYS && model->l2 > 0; k++) {
        const double share = n_uses(rig, k) > 0 ? N_ROWS * model->l2 / 2 : 0;

        for (size_t i = 0; i < width; i++) {
            const double w = (double)rig->workspace.weights[k * width + i];

            penalty += share * w * w;
        }
    }
    if (tally != NULL)
        *tally = (FmTally){ sum, n_right };
    return sum + penalty;
}

START_TEST(scores_are_the_sum_over_all_pairs)
{
    double scores[N_ROWS];
    Rig rig;

    rig_init(&rig, &shapes[_i]);
    fm_score(&rig.model, &rig.batch, &rig.workspace, scores);
    for (size_t i = 0; i < N_ROWS; i++)
        ck_assert_double_eq_tol(scores[i], plain_score(&rig, i), 1e-4);
    fm_workspace_clear(&rig.workspace);
}
END_TEST

/* Half the difference of the objective on both sides of a weight. */
static double slope_by_difference(const Rig *rig, float *weight)
{
    const float kept = *weight, low = kept - 0x1p-7F, high = kept + 0x1p-7F;

    *weight = high;
    const double above = objective(rig, NULL);
    *weight = low;
    const double below = objective(rig, NULL);
    *weight = kept;
    return (above - below) / (double)(high - low);
}

static void check_slopes(const Rig *rig, float *weights, const float *gradient, size_t n,
                         double scale, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        const double expected = scale * slope_by_difference(rig, &weights[i]);

        require_msg(fabs((double)gradient[i] - expected) <= 2e-4 * (1 + fabs(expected)),
                    "%s %zu: %g by difference, %g in the gradient", what, i, expected,
                    (double)gradient[i]);
    }
}

START_TEST(gradient_is_the_slope_of_the_objective)
{
    const double scale = 0.5;
    FmTally expected;
    Rig rig;

    rig_init(&rig, &shapes[_i]);
    const FmTally tally = fm_gradient(&rig.model, &rig.batch, &rig.workspace, scale);
    (void)objective(&rig, &expected);
    ck_assert_double_eq_tol(tally.loss, expected.loss, 1e-4 * (1 + expected.loss));
    if (rig.model.loss.kind == APP_LOSS_LOGISTIC)
        ck_assert_uint_eq(tally.n_right, expected.n_right);
    check_slopes(&rig, rig.workspace.bias, rig.workspace.d_bias, 1, scale, "bias");
    check_slopes(&rig, rig.workspace.weights, rig.workspace.d_weights,
                 N_KEYS * fm_width(&rig.model), scale, "weight");
    fm_workspace_clear(&rig.workspace);
}
END_TEST

START_TEST(gradient_of_a_batch_does_not_keep_the_one_before)
{
    Rig rig;
    float before[N_KEYS * 5];

    rig_init(&rig, &shapes[2]);
    ck_assert_uint_eq(fm_width(&rig.model), 5);
    (void)fm_gradient(&rig.model, &rig.batch, &rig.workspace, 1);
    memcpy(before, rig.workspace.d_weights, sizeof before);
    (void)fm_gradient(&rig.model, &rig.batch, &rig.workspace, 1);
    ck_assert_mem_eq(before, rig.workspace.d_weights, sizeof before);
    fm_workspace_clear(&rig.workspace);
}
END_TEST

static const struct {
    float score, label;
    double loss, slope;
} extremes[] = {
    { 1000, 1, 0, 0 },     { 1000, -1, 1000, 1 }, { -1000, 1, 1000, -1 }, { -1000, -1, 0, 0 },
    { 0, 1, G_LN2, -0.5 }, { 0, -1, G_LN2, 0.5 }, { 1e30F, -1, 1e30, 1 }, { -1e30F, -1, 0, 0 },
};

START_TEST(loss_of_any_score_is_a_number)
{
    const FmModel model = { .n_factors = 4, .loss.positive = 1 };
    const size_t row_start[] = { 0, 0 };
    const RubatoBatch batch = { .n_rows = 1, .row_start = row_start, .label = &extremes[_i].label };
    FmWorkspace workspace = { 0 };

    ck_assert(fm_workspace_fit(&workspace, &model, &batch, NULL));
    *workspace.bias = extremes[_i].score;
    const FmTally tally = fm_gradient(&model, &batch, &workspace, 1);
    ck_assert_double_eq_tol(tally.loss, extremes[_i].loss, 1e-6 * (1 + extremes[_i].loss));
    ck_assert_double_eq_tol((double)*workspace.d_bias, extremes[_i].slope, 1e-6);
    fm_workspace_clear(&workspace);
}
END_TEST

START_TEST(workspace_grows_with_the_batches)
{
    const FmModel model = { .n_factors = 4 };
    FmWorkspace workspace = { 0 };

    for (size_t n = 0; n <= 100; n += 25) {
        const RubatoBatch batch = { .n_keys = n };

        ck_assert(fm_workspace_fit(&workspace, &model, &batch, NULL));
        memset(workspace.weights, 1, n * fm_width(&model) * sizeof(float));
        memset(workspace.d_weights, 1, n * fm_width(&model) * sizeof(float));
    }
    fm_workspace_clear(&workspace);
}
END_TEST

START_TEST(workspace_that_does_not_fit_into_memory_is_an_error)
{
    const FmModel model = { .n_factors = FM_FACTORS_MAX, .n_fields = 1 << 24 };
    const RubatoBatch batch = { .n_keys = (size_t)1 << 40 };
    FmWorkspace workspace = { 0 };
    g_autoptr(GError) error = NULL;

    ck_assert(!fm_workspace_fit(&workspace, &model, &batch, &error));
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY));
    ck_assert(strstr(error->message, "--batch-size") != NULL);
    fm_workspace_clear(&workspace);
}
END_TEST

static Suite *fm_model_suite(void)
{
    Suite *suite = suite_create("fm_model");
    TCase *tcase = tcase_create("fm_model");

    tcase_add_loop_test(tcase, scores_are_the_sum_over_all_pairs, 0, (int)G_N_ELEMENTS(shapes));
    tcase_add_loop_test(tcase, gradient_is_the_slope_of_the_objective, 0,
                        (int)G_N_ELEMENTS(shapes));
    tcase_add_test(tcase, gradient_of_a_batch_does_not_keep_the_one_before);
    tcase_add_loop_test(tcase, loss_of_any_score_is_a_number, 0, (int)G_N_ELEMENTS(extremes));
    tcase_add_test(tcase, workspace_grows_with_the_batches);
    tcase_add_test(tcase, workspace_that_does_not_fit_into_memory_is_an_error);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(fm_model_suite());
}
