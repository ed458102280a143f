/* The formulas are those of docs/update-rules.md, with the defaults that tables have. Pure
 * functions. */
#include "apps/kit/net/app_net_rule.h"

#include <math.h>
#include <rubato/rubato.h>
#include <rubato/vector_clones.h>

const char *const app_net_rule_names[] = { "adam", "momentum", "sgd", NULL };

uint32_t app_net_rule_n_states(AppNetRule rule)
{
    return rule == APP_NET_RULE_ADAM ? 2 : rule == APP_NET_RULE_MOMENTUM ? 1 : 0;
}

RUBATO_VECTOR_CLONES static void adam(const RubatoRule *rule, double rate, uint64_t step, size_t n,
                                      const float *restrict gradient, float *restrict weights,
                                      float *restrict m, float *restrict v)
{
    const float beta1 = (float)rule->beta1, rest1 = (float)(1 - rule->beta1);
    const float beta2 = (float)rule->beta2, rest2 = (float)(1 - rule->beta2);
    const float epsilon = (float)rule->epsilon;
    const float length = (float)(rate / (1 - pow(rule->beta1, (double)(step + 1))));
    const float per_c2 = (float)(1 / (1 - pow(rule->beta2, (double)(step + 1))));

    for (size_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + rest1 * gradient[i];
        v[i] = beta2 * v[i] + rest2 * (gradient[i] * gradient[i]);
        weights[i] -= length * m[i] / (sqrtf(v[i] * per_c2) + epsilon);
    }
}

RUBATO_VECTOR_CLONES static void momentum(float share, float rate, size_t n,
                                          const float *restrict gradient, float *restrict weights,
                                          float *restrict velocity)
{
    for (size_t i = 0; i < n; i++) {
        velocity[i] = share * velocity[i] + gradient[i];
        weights[i] -= rate * velocity[i];
    }
}

RUBATO_VECTOR_CLONES static void sgd(float rate, size_t n, const float *restrict gradient,
                                     float *restrict weights)
{
    for (size_t i = 0; i < n; i++)
        weights[i] -= rate * gradient[i];
}

void app_net_rule_step(AppNetRule rule, double rate, uint64_t step, size_t n, const float *gradient,
                       float *weights, float *states)
{
    const RubatoRule *defaults = &rubato_update_rule_traits(app_net_rule_names[rule])->defaults;

    switch (rule) {
    case APP_NET_RULE_ADAM:
        adam(defaults, rate, step, n, gradient, weights, states, states + n);
        break;
    case APP_NET_RULE_MOMENTUM:
        momentum((float)defaults->momentum, (float)rate, n, gradient, weights, states);
        break;
    case APP_NET_RULE_SGD:
    case APP_NET_N_RULES:
    default:
        sgd((float)rate, n, gradient, weights);
    }
}
