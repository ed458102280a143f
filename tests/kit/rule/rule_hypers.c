/* The hyper-parameters by number.
 *
 * Thread: any. */
#include "tests/kit/rule/rule_world.h"

static const struct {
    const char *name;
    size_t offset;
} hypers[RULE_N_HYPERS] = {
#define HYPER(hyper, member) [RUBATO_HYPER_##hyper] = { #member, offsetof(RubatoRule, member) }
    HYPER(LEARNING_RATE, learning_rate),
    HYPER(MOMENTUM, momentum),
    HYPER(BETA1, beta1),
    HYPER(BETA2, beta2),
    HYPER(DECAY, decay),
    HYPER(EPSILON, epsilon),
    HYPER(BETA, beta),
    HYPER(L1, l1),
    HYPER(L2, l2),
    HYPER(CLIP_VALUE, clip_value),
    HYPER(CLIP_NORM, clip_norm),
    HYPER(WEIGHT_DECAY, weight_decay),
    HYPER(INITIAL_ACCUMULATOR, initial_accumulator),
    HYPER(MAX_GRADIENT, max_gradient),
#undef HYPER
};

const char *rule_hyper_name(uint32_t hyper)
{
    return hypers[hyper].name;
}

double *rule_hyper(RubatoRule *rule, uint32_t hyper)
{
    return (double *)(void *)((char *)rule + hypers[hyper].offset);
}

bool rule_has_hyper(const RubatoUpdateTraits *traits, const RubatoRule *rule, uint32_t hyper)
{
    const uint32_t of_gradients =
        RUBATO_HYPER_BIT(RUBATO_HYPER_LEARNING_RATE) | RUBATO_HYPER_BIT(RUBATO_HYPER_CLIP_VALUE) |
        RUBATO_HYPER_BIT(RUBATO_HYPER_CLIP_NORM) | RUBATO_HYPER_BIT(RUBATO_HYPER_WEIGHT_DECAY);

    if (hyper == RUBATO_HYPER_MAX_GRADIENT)
        return rule->on_bad_gradient == RUBATO_ON_BAD_GRADIENT_COUNT ||
               rule->on_bad_gradient == RUBATO_ON_BAD_GRADIENT_REFUSE;
    return ((traits->hypers | (traits->takes_gradients ? of_gradients : 0)) &
            RUBATO_HYPER_BIT(hyper)) != 0;
}
