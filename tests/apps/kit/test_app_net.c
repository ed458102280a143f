/* Forward and backward through the layers, by plain loops: the gradient against differences. The
 * tests of the program use OpenBLAS where it is. */
#include <check.h>
#include <math.h>

#include <rubato/mix.h>

#include "apps/kit/net/app_net.h"
#include "tests/support/runner.h"

enum { N_ROWS = 5 };

static float classes[] = { 1, 4, 7 };
static const AppLoss loss = { .kind = APP_LOSS_SOFTMAX, .classes = classes, .n_classes = 3 };
static const float labels[N_ROWS] = { 4, 1, 7, 7, 1 };

/* Sizes that are no multiples of what loops are unrolled by. */
static const AppNetShape shapes[] = {
    { 2, { 11, 9, 3 } },
    { 3, { 2, 17, 4, 3 } },
    { 4, { 30, 1, 5, 6, 3 } },
};

static float number_at(uint64_t place)
{
    return (float)(rubato_mix64(place + 1) % 2000) / 1000 - 1;
}

static void make_weights(const AppNetShape *shape, float **weights)
{
    for (uint32_t l = 0; l < shape->n_layers; l++) {
        const size_t n = app_net_layer_values(shape, l);

        weights[l] = g_new(float, n);
        for (size_t i = 0; i < n; i++)
            weights[l][i] = number_at(1000 * l + i);
    }
}

static void free_weights(const AppNetShape *shape, float **weights)
{
    for (uint32_t l = 0; l < shape->n_layers; l++)
        g_free(weights[l]);
}

static void put_rows(const AppNetShape *shape, AppNetWorkspace *workspace)
{
    for (size_t i = 0; i < (size_t)N_ROWS * shape->sizes[0]; i++)
        workspace->outputs[0][i] = number_at(777 + i);
}

/* The loss in double, layer by layer as the page of the program has it. */
static double loss_of(const AppNetShape *shape, float *const *weights)
{
    double sum = 0;

    for (size_t r = 0; r < N_ROWS; r++) {
        double inputs[32], outputs[32];

        for (uint32_t i = 0; i < shape->sizes[0]; i++)
            inputs[i] = (double)number_at(777 + r * shape->sizes[0] + i);
        for (uint32_t l = 0; l < shape->n_layers; l++) {
            for (uint32_t u = 0; u < shape->sizes[l + 1]; u++) {
                const float *row = weights[l] + (size_t)u * (shape->sizes[l] + 1);

                outputs[u] = (double)row[0];
                for (uint32_t i = 0; i < shape->sizes[l]; i++)
                    outputs[u] += (double)row[i + 1] * inputs[i];
            }
            for (uint32_t u = 0; u < shape->sizes[l + 1]; u++)
                inputs[u] = l + 1 < shape->n_layers ? MAX(outputs[u], 0) : outputs[u];
        }
        sum += app_loss_of_row(&loss, inputs, labels[r]);
    }
    return sum;
}

START_TEST(the_gradient_is_that_of_the_loss)
{
    const AppNetShape *shape = &shapes[_i];
    float *weights[APP_NET_LAYERS_MAX] = { NULL }, *gradients[APP_NET_LAYERS_MAX] = { NULL };
    g_auto(AppNetWorkspace) workspace = { .shape = NULL };
    const float half = 0.5f, step = 1.0f / 1024;

    make_weights(shape, weights);
    make_weights(shape, gradients);
    ck_assert(app_net_workspace_init(&workspace, shape, N_ROWS, NULL));
    put_rows(shape, &workspace);
    const AppNetTally tally =
        app_net_gradient(&workspace, weights, &loss, labels, N_ROWS, half, gradients);
    ck_assert_double_eq_tol(tally.loss, loss_of(shape, weights), 1e-4);
    ck_assert_uint_le(tally.n_right, N_ROWS);
    for (uint32_t l = 0; l < shape->n_layers; l++)
        for (size_t i = 0; i < app_net_layer_values(shape, l); i++) {
            const float value = weights[l][i];

            weights[l][i] = value + step;
            const double above = loss_of(shape, weights);
            weights[l][i] = value - step;
            const double below = loss_of(shape, weights);
            weights[l][i] = value;
            /* the tolerance is of a kink of ReLU within the difference */
            ck_assert_double_eq_tol((double)gradients[l][i],
                                    0.5 * (above - below) / (2 * (double)step), 5e-3);
        }
    free_weights(shape, weights);
    free_weights(shape, gradients);
}
END_TEST

/* A worker may have no row in a step: it changes nothing. */
START_TEST(no_rows_have_no_gradient)
{
    const AppNetShape *shape = &shapes[_i];
    float *weights[APP_NET_LAYERS_MAX] = { NULL }, *gradients[APP_NET_LAYERS_MAX] = { NULL };
    g_auto(AppNetWorkspace) workspace = { .shape = NULL };

    make_weights(shape, weights);
    make_weights(shape, gradients);
    ck_assert(app_net_workspace_init(&workspace, shape, 0, NULL));
    const AppNetTally tally = app_net_gradient(&workspace, weights, &loss, labels, 0, 1, gradients);
    ck_assert_double_eq(tally.loss, 0);
    for (uint32_t l = 0; l < shape->n_layers; l++)
        for (size_t i = 0; i < app_net_layer_values(shape, l); i++)
            ck_assert_float_eq(gradients[l][i], 0);
    free_weights(shape, weights);
    free_weights(shape, gradients);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_net");
    TCase *cases = tcase_create("net");

    tcase_add_loop_test(cases, the_gradient_is_that_of_the_loss, 0, (int)G_N_ELEMENTS(shapes));
    tcase_add_loop_test(cases, no_rows_have_no_gradient, 0, (int)G_N_ELEMENTS(shapes));
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
