/* The rules of nets against their formulas in double. */
#include <check.h>
#include <math.h>

#include <rubato/mix.h>

#include "apps/kit/net/app_net_rule.h"
#include "tests/support/runner.h"

enum { N = 37, STEPS = 5 };

static float number_at(uint64_t place)
{
    return (float)(rubato_mix64(place + 1) % 2000) / 1000 - 1;
}

START_TEST(a_rule_takes_the_steps_of_its_formula)
{
    const AppNetRule rule = (AppNetRule)_i;
    const double rate = 0.125;
    float weights[N], gradient[N], states[2 * N] = { 0 };
    double expected[N], first[N] = { 0 }, second[N] = { 0 };

    for (size_t i = 0; i < N; i++)
        expected[i] = (double)(weights[i] = number_at(i));
    for (uint64_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < N; i++) {
            const double g = (double)(gradient[i] = number_at(100 * (step + 1) + i));

            if (rule == APP_NET_RULE_ADAM) {
                first[i] = 0.9 * first[i] + 0.1 * g;
                second[i] = 0.999 * second[i] + 0.001 * g * g;
                expected[i] -= rate * first[i] / (1 - pow(0.9, (double)(step + 1))) /
                               (sqrt(second[i] / (1 - pow(0.999, (double)(step + 1)))) + 1e-8);
            } else {
                first[i] = (rule == APP_NET_RULE_MOMENTUM ? 0.9 : 0) * first[i] + g;
                expected[i] -= rate * first[i];
            }
        }
        app_net_rule_step(rule, rate, step, N, gradient, weights,
                          app_net_rule_n_states(rule) > 0 ? states : NULL);
        for (size_t i = 0; i < N; i++)
            ck_assert_double_eq_tol((double)weights[i], expected[i], 1e-4);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("app_net_rule");
    TCase *cases = tcase_create("rule");

    tcase_add_loop_test(cases, a_rule_takes_the_steps_of_its_formula, 0, APP_NET_N_RULES);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
