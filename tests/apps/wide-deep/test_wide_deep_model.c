/* The arithmetic of wide and deep models: the score by its formula, the gradient against
 * differences. */
#include <check.h>
#include <math.h>
#include <rubato/mix.h>

#include "apps/wide-deep/wide_deep_model.h"
#include "tests/support/runner.h"

enum { N_ROWS = 4, N_ENTRIES = 11, N_KEYS = 5, WIDTH = 3, N_FIELDS = 3, N_VALUES = 128 };

/* Rows of unlike lengths: one has a field twice, one is empty, two share a pair. */
static const RubatoKey keys[N_KEYS] = { 2, 3, 5, 7, UINT64_MAX };
static const size_t row_start[N_ROWS + 1] = { 0, 3, 7, 7, 11 };
static const uint32_t entry_keys[N_ENTRIES] = { 0, 1, 2, 0, 3, 4, 1, 0, 1, 4, 2 };
static const uint32_t fields[N_ENTRIES] = { 0, 1, 2, 0, 1, 1, 2, 0, 1, 2, 2 };
static const float values[N_ENTRIES] = { 1, 2, 0.5f, 1, 1, -1, 3, 0.25f, 1, 1, 2 };
static const float labels[N_ROWS] = { 1, 0, 1, 0 };

static const RubatoBatch batch = {
    .n_rows = N_ROWS,
    .n_entries = N_ENTRIES,
    .n_keys = N_KEYS,
    .keys = keys,
    .row_start = row_start,
    .index = entry_keys,
    .field = fields,
    .value = values,
    .label = labels,
};

static const AppNetShape net = { 2, { N_FIELDS * WIDTH, 6, 1 } };

static WideDeepModel model_of(int parts)
{
    return (WideDeepModel){
        .has_wide = parts != 2,
        .has_deep = parts != 1,
        .n_fields = N_FIELDS,
        .width = WIDTH,
        .n_crosses = 2,
        .crosses = { { 0, 1 }, { 1, 2 } },
        .loss = { .kind = APP_LOSS_LOGISTIC, .negative = 0, .positive = 1 },
        .net = &net,
    };
}

static float number_at(uint64_t place)
{
    return (float)(rubato_mix64(place + 1) % 2000) / 1000 - 1;
}

typedef struct {
    WideDeepModel model;
    WideDeepWorkspace workspace;
    float layers[2][N_VALUES], slopes[2][N_VALUES];
    float *weights[2], *gradients[2];
} Fixture;

static void begin(Fixture *it, int parts)
{
    *it = (Fixture){ .model = model_of(parts) };
    ck_assert(wide_deep_workspace_fit(&it->workspace, &it->model, &batch, NULL));
    for (uint32_t l = 0; l < 2; l++) {
        ck_assert_uint_le(app_net_layer_values(&net, l), N_VALUES);
        it->weights[l] = it->layers[l];
        it->gradients[l] = it->slopes[l];
        for (size_t i = 0; i < N_VALUES; i++)
            it->layers[l][i] = number_at(1000 * (l + 1) + i);
    }
    for (size_t i = 0; it->model.has_wide && i < it->workspace.n_wide; i++)
        it->workspace.wide[i] = number_at(100 + i);
    for (size_t i = 0; it->model.has_deep && i < (size_t)N_KEYS * WIDTH; i++)
        it->workspace.embeddings[i] = number_at(500 + i);
}

/* Pairs that have the same keys and fields have the same weight; others have others. */
START_TEST(a_pair_has_one_weight_wherever_it_is)
{
    Fixture it;
    double scores[N_ROWS];

    begin(&it, 1);
    /* keys, the bias, and of the fields 0 and 1: 2-3 twice, 2-7, 2-max; of 1 and 2: 3-5 twice,
     * 7-3, max-3, 3-max */
    ck_assert_uint_eq(it.workspace.n_wide, N_KEYS + 1 + 3 + 4);
    for (size_t i = 0; i < it.workspace.n_wide; i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_uint_ne(it.workspace.wide_keys[i], it.workspace.wide_keys[j]);

    /* All weights 1: the bias, the values, and the products of pairs. */
    for (size_t i = 0; i < it.workspace.n_wide; i++)
        it.workspace.wide[i] = 1;
    wide_deep_score(&it.model, &batch, &it.workspace, it.weights, scores);
    ck_assert_double_eq(scores[0], 1 + (1 + 2 + 0.5) + 1 * 2 + 2 * 0.5);
    ck_assert_double_eq(scores[1], 1 + (1 + 1 - 1 + 3) + (1 - 1) + (3 - 3));
    ck_assert_double_eq(scores[2], 1);
    ck_assert_double_eq(scores[3], 1 + (0.25 + 1 + 1 + 2) + 0.25 + (1 + 2));
    wide_deep_workspace_clear(&it.workspace);
}
END_TEST

static double loss_of(Fixture *it)
{
    double scores[N_ROWS], sum = 0;

    wide_deep_score(&it->model, &batch, &it->workspace, it->weights, scores);
    for (size_t r = 0; r < N_ROWS; r++)
        sum += app_loss_of_row(&it->model.loss, &scores[r], labels[r]);
    return sum;
}

static void check_slopes(Fixture *it, float *numbers, const float *slopes, size_t n)
{
    const float step = 1.0f / 128;

    for (size_t i = 0; i < n; i++) {
        const float value = numbers[i];

        numbers[i] = value + step;
        const double above = loss_of(it);
        numbers[i] = value - step;
        const double below = loss_of(it);
        numbers[i] = value;
        /* the tolerance is of a kink of ReLU within the difference */
        ck_assert_double_eq_tol((double)slopes[i], 0.5 * (above - below) / (2 * (double)step),
                                5e-3);
    }
}

START_TEST(the_gradient_is_that_of_the_loss)
{
    Fixture it;

    begin(&it, _i);
    const WideDeepTally tally =
        wide_deep_gradient(&it.model, &batch, &it.workspace, it.weights, 0.5f, it.gradients);

    ck_assert_double_eq_tol(tally.loss, loss_of(&it), 1e-4);
    if (it.model.has_wide)
        check_slopes(&it, it.workspace.wide, it.workspace.d_wide, it.workspace.n_wide);
    if (it.model.has_deep) {
        check_slopes(&it, it.workspace.embeddings, it.workspace.d_embeddings,
                     (size_t)N_KEYS * WIDTH);
        for (uint32_t l = 0; l < 2; l++)
            check_slopes(&it, it.weights[l], it.gradients[l], app_net_layer_values(&net, l));
    }
    wide_deep_workspace_clear(&it.workspace);
}
END_TEST

/* A worker may have no row in a step, before and after it has some: it changes nothing. */
START_TEST(no_rows_have_no_gradient)
{
    static const size_t none[] = { 0 };
    const RubatoBatch empty = { .row_start = none };
    Fixture it;

    begin(&it, 0);
    for (int i = 0; i < 3; i++) {
        const RubatoBatch *const rows = i == 1 ? &batch : &empty;

        ck_assert(wide_deep_workspace_fit(&it.workspace, &it.model, rows, NULL));
        for (size_t j = 0; j < it.workspace.n_wide; j++)
            it.workspace.wide[j] = 1;
        for (size_t j = 0; j < rows->n_keys * WIDTH; j++)
            it.workspace.embeddings[j] = 1;
        const WideDeepTally tally =
            wide_deep_gradient(&it.model, rows, &it.workspace, it.weights, 1, it.gradients);
        ck_assert_int_eq(tally.loss > 0, rows == &batch);
        if (rows == &batch)
            continue;
        for (uint32_t l = 0; l < 2; l++)
            for (size_t j = 0; j < app_net_layer_values(&net, l); j++)
                ck_assert_float_eq(it.gradients[l][j], 0);
    }
    wide_deep_workspace_clear(&it.workspace);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wide_deep_model");
    TCase *cases = tcase_create("model");

    tcase_add_test(cases, a_pair_has_one_weight_wherever_it_is);
    tcase_add_loop_test(cases, the_gradient_is_that_of_the_loss, 0, 3);
    tcase_add_test(cases, no_rows_have_no_gradient);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
