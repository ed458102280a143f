/* The rule "nesterov": velocity = momentum × velocity + gradient,
 * value -= learning_rate × (gradient + momentum × velocity).
 *
 * Nesterov, "A method of solving a convex programming problem with convergence rate O(1/k²)", Soviet
 * Mathematics Doklady 27, 1983, as Sutskever, Martens, Dahl, Hinton, "On the importance of
 * initialization and momentum in deep learning", ICML 2013, write it with a velocity, and with the
 * values taken where the gradient is: Bengio, Boulanger-Lewandowski, Pascanu, "Advances in
 * optimizing recurrent networks", ICASSP 2013, eq. 7. As in "momentum", the velocity is one of
 * gradients.
 *
 * State of a row: its velocity, `width` values.
 *
 * Thread: the shard's present owner. */
#include "models/update_loops.h"

#define DEFINE_STEP(suffix, type)                                                  \
    UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row, \
                                   const type *restrict gradients, size_t width)   \
    {                                                                              \
        const type rate = (type)update->rule.learning_rate;                        \
        const type momentum = (type)update->rule.momentum;                         \
        type *restrict velocity = row + width;                                     \
                                                                                   \
        for (size_t i = 0; i < width; i++) {                                       \
            velocity[i] = momentum * velocity[i] + gradients[i];                   \
            row[i] -= rate * (gradients[i] + momentum * velocity[i]);              \
        }                                                                          \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
DEFINE_APPLY_ROWS

static uint32_t state_width(const RubatoUpdate *update)
{
    return update->width;
}

const RubatoUpdateOps nesterov_update_ops = {
    .name = "nesterov",
    .traits = { .takes_gradients = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_MOMENTUM),
                .defaults = { .learning_rate = 0.01, .momentum = 0.9 } },
    .state_width = state_width,
    .apply_rows = apply_rows,
};
