/* The arithmetic of linear models, on a small batch: scores by hand, and the gradient against
 * differences of the objective. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "apps/lr/lr_model.h"
#include "tests/support/runner.h"

/* A row that has a key twice, and one that has none. */
static const RubatoKey keys[] = { 3, 5, G_MAXUINT64 };
static const size_t row_start[] = { 0, 2, 2, 5, 6 };
static const uint32_t of_key[] = { 0, 2, 1, 2, 2, 0 };
static const float value[] = { 1, 0.5F, -2, 1, 3, 0.25F };
static const float label[] = { 1, -1, -1, 1 };
static const RubatoBatch batch = {
    .n_rows = 4,
    .n_entries = 6,
    .n_keys = 3,
    .keys = keys,
    .row_start = row_start,
    .index = of_key,
    .value = value,
    .label = label,
};

static const LrModel models[] = {
    { .loss = { .kind = APP_LOSS_LOGISTIC, .positive = 1 } },
    { .loss = { .kind = APP_LOSS_HINGE, .positive = 1 } },
    { .loss = { .kind = APP_LOSS_SQUARED, .positive = 1 } },
    { .loss = { .kind = APP_LOSS_LOGISTIC, .positive = 1 }, .l2 = 0.5 },
    { .loss = { .kind = APP_LOSS_LOGISTIC, .positive = 1 }, .l1 = 0.5 },
    { .loss = { .kind = APP_LOSS_SQUARED, .positive = 1 }, .l1 = 0.25, .l2 = 0.5 },
};

static void workspace_init(LrWorkspace *workspace)
{
    *workspace = (LrWorkspace){ 0 };
    ck_assert(lr_workspace_fit(workspace, &models[0], &batch, NULL));
    workspace->bias[0] = 0.125F;
    memcpy(workspace->weights, (const float[]){ 0.75F, 0.5F, -0.25F }, 3 * sizeof(float));
    memcpy(workspace->share, (const float[]){ 2, 4, 4.0F / 3 }, 3 * sizeof(float));
}

START_TEST(score_is_bias_and_weighted_sum)
{
    const double expected[] = { 0.75, 0.125, -1.875, 0.3125 };
    LrWorkspace workspace;
    double scores[4];

    workspace_init(&workspace);
    lr_score(&batch, &workspace, scores);
    for (size_t i = 0; i < batch.n_rows; i++)
        ck_assert_double_eq(scores[i], expected[i]);
    lr_workspace_clear(&workspace);
}
END_TEST

/* The objective whose gradient lr_gradient computes. Each weight has the same penalty, in each of
 * the four rows, however often its key comes. */
static double objective(const LrModel *model, const LrWorkspace *workspace)
{
    double scores[4], sum = 0;
    float slope;

    lr_score(&batch, workspace, scores);
    for (size_t i = 0; i < batch.n_rows; i++)
        sum += (double)app_loss_of(&model->loss, (float)scores[i], label[i], &slope);
    for (size_t e = 0; e < batch.n_entries; e++) {
        const double weight = (double)workspace->weights[of_key[e]];

        sum += model->l1 * fabs(weight);
    }
    for (size_t k = 0; k < batch.n_keys; k++)
        sum += (double)batch.n_rows * model->l2 / 2 * (double)workspace->weights[k] *
               (double)workspace->weights[k];
    return sum;
}

static double slope_by_difference(const LrModel *model, const LrWorkspace *workspace, float *weight)
{
    const float kept = *weight, low = kept - 0x1p-7F, high = kept + 0x1p-7F;

    *weight = high;
    const double above = objective(model, workspace);
    *weight = low;
    const double below = objective(model, workspace);
    *weight = kept;
    return (above - below) / (double)(high - low);
}

START_TEST(gradient_is_the_slope_of_the_objective)
{
    const double scale = 0.5;
    const LrModel *model = &models[_i];
    LrWorkspace workspace;

    workspace_init(&workspace);
    (void)lr_gradient(model, &batch, &workspace, scale);
    ck_assert_double_eq_tol((double)workspace.d_bias[0],
                            scale * slope_by_difference(model, &workspace, workspace.bias), 1e-4);
    for (size_t i = 0; i < batch.n_keys; i++)
        ck_assert_double_eq_tol(
            (double)workspace.d_weights[i],
            scale * slope_by_difference(model, &workspace, &workspace.weights[i]), 1e-4);
    lr_workspace_clear(&workspace);
}
END_TEST

/* Without penalties: with them it would depend on how often weights are used. */
START_TEST(tally_has_loss_and_right_rows_alone)
{
    LrWorkspace workspace;

    workspace_init(&workspace);
    const LrTally tally = lr_gradient(&models[4], &batch, &workspace, 1);
    ck_assert_double_eq_tol(tally.loss, objective(&models[0], &workspace), 1e-6);
    ck_assert_uint_eq(tally.n_right, 3); /* not the row without keys */
    lr_workspace_clear(&workspace);
}
END_TEST

START_TEST(gradient_of_a_batch_does_not_keep_the_one_before)
{
    LrWorkspace workspace;
    float before[3];

    workspace_init(&workspace);
    (void)lr_gradient(&models[3], &batch, &workspace, 1);
    memcpy(before, workspace.d_weights, sizeof before);
    (void)lr_gradient(&models[3], &batch, &workspace, 1);
    ck_assert_mem_eq(before, workspace.d_weights, sizeof before);
    lr_workspace_clear(&workspace);
}
END_TEST

/* ---- classes ---- */

static float classes[] = { -1, 1, 4 };
static const LrModel softmax = {
    .loss = { .kind = APP_LOSS_SOFTMAX, .classes = classes, .n_classes = 3 }, .l2 = 0.5
};

static void class_workspace_init(LrWorkspace *workspace)
{
    *workspace = (LrWorkspace){ 0 };
    ck_assert(lr_workspace_fit(workspace, &softmax, &batch, NULL));
    for (size_t i = 0; i < 9; i++)
        workspace->weights[i] = (float)i * 0.25F - 1;
    for (size_t k = 0; k < 3; k++) {
        workspace->bias[k] = 0.5F - (float)k * 0.25F;
        workspace->share[k] = (const float[]){ 2, 4, 4.0F / 3 }[k];
    }
}

static double class_objective(const LrWorkspace *workspace)
{
    double scores[12], sum = 0;

    lr_score(&batch, workspace, scores);
    for (size_t row = 0; row < batch.n_rows; row++)
        sum += app_loss_of_row(&softmax.loss, scores + 3 * row, label[row]);
    for (size_t i = 0; i < 9; i++)
        sum += (double)batch.n_rows * softmax.l2 / 2 * (double)workspace->weights[i] *
               (double)workspace->weights[i];
    return sum;
}

static double class_slope(const LrWorkspace *workspace, float *weight)
{
    const float kept = *weight, low = kept - 0x1p-7F, high = kept + 0x1p-7F;

    *weight = high;
    const double above = class_objective(workspace);
    *weight = low;
    const double below = class_objective(workspace);
    *weight = kept;
    return (above - below) / (double)(high - low);
}

START_TEST(gradient_of_classes_is_the_slope_of_the_objective)
{
    LrWorkspace workspace;

    class_workspace_init(&workspace);
    const LrTally tally = lr_gradient(&softmax, &batch, &workspace, 0.5);
    double scores[12], loss = 0, probability;
    size_t n_right = 0;

    lr_score(&batch, &workspace, scores);
    for (size_t row = 0; row < batch.n_rows; row++) {
        loss += app_loss_of_row(&softmax.loss, scores + 3 * row, label[row]);
        n_right += app_loss_best_class(&softmax.loss, scores + 3 * row, &probability) ==
                   app_loss_class_of(&softmax.loss, label[row]);
    }
    ck_assert_double_eq_tol(tally.loss, loss, 1e-5);
    ck_assert_uint_eq(tally.n_right, n_right);
    for (size_t k = 0; k < 3; k++)
        ck_assert_double_eq_tol((double)workspace.d_bias[k],
                                0.5 * class_slope(&workspace, &workspace.bias[k]), 1e-3);
    for (size_t i = 0; i < 9; i++)
        ck_assert_double_eq_tol((double)workspace.d_weights[i],
                                0.5 * class_slope(&workspace, &workspace.weights[i]), 1e-3);
    lr_workspace_clear(&workspace);
}
END_TEST

START_TEST(workspace_grows_with_the_batches)
{
    LrWorkspace workspace = { 0 };

    for (size_t n = 0; n <= 100; n += 25) {
        ck_assert(
            lr_workspace_fit(&workspace, &models[0], &(const RubatoBatch){ .n_keys = n }, NULL));
        memset(workspace.weights, 1, n * sizeof(float));
        memset(workspace.d_weights, 1, n * sizeof(float));
    }
    lr_workspace_clear(&workspace);
    lr_workspace_clear(&workspace);
}
END_TEST

static Suite *lr_model_suite(void)
{
    Suite *suite = suite_create("lr_model");
    TCase *tcase = tcase_create("lr_model");

    tcase_add_test(tcase, score_is_bias_and_weighted_sum);
    tcase_add_loop_test(tcase, gradient_is_the_slope_of_the_objective, 0,
                        (int)G_N_ELEMENTS(models));
    tcase_add_test(tcase, tally_has_loss_and_right_rows_alone);
    tcase_add_test(tcase, gradient_of_a_batch_does_not_keep_the_one_before);
    tcase_add_test(tcase, gradient_of_classes_is_the_slope_of_the_objective);
    tcase_add_test(tcase, workspace_grows_with_the_batches);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(lr_model_suite());
}
