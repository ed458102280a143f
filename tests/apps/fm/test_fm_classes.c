/* Factorisation machines with softmax: scores and gradients of each class. */
#include "apps/fm/fm_model.h"
#include "tests/support/runner.h"

#include <math.h>

enum { N_CLASSES = 3, N_FACTORS = 2, N_KEYS = 4, N_ROWS = 3, OWN = 1 + N_FACTORS };

static const size_t row_start[] = { 0, 3, 3, 6 };
static const uint32_t key_index[] = { 0, 1, 3, 3, 2, 0 };
static const float value[] = { 1, -0.5f, 2, 0.25f, 1, 1.5f };
static const float label[] = { 7, 2, 4 };
static const RubatoKey keys[] = { 10, 20, 30, 40 };
static float classes[] = { 2, 4, 7 };

static const RubatoBatch batch = { .n_rows = N_ROWS,
                                   .n_entries = G_N_ELEMENTS(value),
                                   .n_keys = N_KEYS,
                                   .keys = keys,
                                   .row_start = row_start,
                                   .index = key_index,
                                   .value = value,
                                   .label = label };

static const FmModel model = {
    .n_factors = N_FACTORS,
    .loss = { .kind = APP_LOSS_SOFTMAX, .classes = classes, .n_classes = N_CLASSES },
    .l2 = 0.5,
    .l2_factors = 0.25,
};

static void workspace_init(FmWorkspace *workspace)
{
    *workspace = (FmWorkspace){ 0 };
    ck_assert(fm_workspace_fit(workspace, &model, &batch, NULL));
    ck_assert_uint_eq(fm_width(&model), N_CLASSES * OWN);
    for (int i = 0; i < N_CLASSES; i++)
        workspace->bias[i] = 0.1f * (float)(i - 1);
    for (int i = 0; i < N_KEYS * N_CLASSES * OWN; i++)
        workspace->weights[i] = sinf((float)(3 * i + 1));
    for (size_t k = 0; k < N_KEYS; k++)
        workspace->share[k] = 0.5f + (float)k;
}

static float weight(const FmWorkspace *workspace, size_t e, size_t class, size_t f)
{
    return workspace->weights[key_index[e] * N_CLASSES * OWN + class * OWN + f];
}

/* The sum over all pairs, as fm_model.h has it. */
static double score_of(const FmWorkspace *workspace, size_t row, size_t class)
{
    double score = (double)workspace->bias[class];

    for (size_t i = row_start[row]; i < row_start[row + 1]; i++) {
        score += (double)(weight(workspace, i, class, 0) * value[i]);
        for (size_t j = i + 1; j < row_start[row + 1]; j++)
            for (size_t f = 1; f < OWN; f++)
                score += (double)(weight(workspace, i, class, f) * weight(workspace, j, class, f) *
                                  value[i] * value[j]);
    }
    return score;
}

START_TEST(each_class_has_the_score_of_its_own_machine)
{
    g_auto(FmWorkspace) workspace;
    double scores[N_ROWS * N_CLASSES];

    workspace_init(&workspace);
    fm_score(&model, &batch, &workspace, scores);
    for (size_t row = 0; row < N_ROWS; row++)
        for (size_t class = 0; class < N_CLASSES; class ++)
            ck_assert_double_eq_tol(scores[row * N_CLASSES + class],
                                    score_of(&workspace, row, class), 1e-5);
}
END_TEST

/* The losses of all rows, and the penalties for each entry. */
static double objective(const FmWorkspace *workspace)
{
    double sum = 0;

    for (size_t row = 0; row < N_ROWS; row++) {
        double scores[N_CLASSES];

        for (size_t class = 0; class < N_CLASSES; class ++)
            scores[class] = score_of(workspace, row, class);
        sum += app_loss_of_row(&model.loss, scores, label[row]);
    }
    for (size_t e = 0; e < batch.n_entries; e++)
        for (size_t class = 0; class < N_CLASSES; class ++)
            for (size_t f = 0; f < OWN; f++) {
                const double w = (double)weight(workspace, e, class, f);
                const double share = (double)workspace->share[batch.index[e]];

                sum += (share * model.l2 + (f == 0 ? 0 : model.l2_factors)) / 2 * w * w;
            }
    return sum;
}

static void check_slopes(FmWorkspace *workspace, float *at, const float *slopes, size_t n,
                         double scale)
{
    for (size_t i = 0; i < n; i++) {
        const float kept = at[i], step = 1e-2f;

        at[i] = kept + step;
        const double above = objective(workspace);
        at[i] = kept - step;
        const double slope = (above - objective(workspace)) / (2 * (double)step);
        at[i] = kept;
        ck_assert_msg(fabs(slope * scale - (double)slopes[i]) < 2e-3, "%zu: %g is not %g", i,
                      (double)slopes[i], slope * scale);
    }
}

START_TEST(gradient_is_the_slope_of_the_objective)
{
    g_auto(FmWorkspace) workspace;
    size_t n_right = 0;

    workspace_init(&workspace);
    (void)fm_gradient(&model, &batch, &workspace, 1);
    const FmTally tally = fm_gradient(&model, &batch, &workspace, 0.5);
    check_slopes(&workspace, workspace.bias, workspace.d_bias, N_CLASSES, 0.5);
    check_slopes(&workspace, workspace.weights, workspace.d_weights, N_KEYS * N_CLASSES * OWN, 0.5);
    for (size_t row = 0; row < N_ROWS; row++) {
        double scores[N_CLASSES], probability;

        for (size_t class = 0; class < N_CLASSES; class ++)
            scores[class] = score_of(&workspace, row, class);
        n_right += app_loss_best_class(&model.loss, scores, &probability) ==
                   app_loss_class_of(&model.loss, label[row]);
    }
    ck_assert_uint_eq(tally.n_right, n_right);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("fm_classes");
    TCase *const cases = tcase_create("softmax");

    tcase_add_test(cases, each_class_has_the_score_of_its_own_machine);
    tcase_add_test(cases, gradient_is_the_slope_of_the_objective);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
