/* The rule "momentum": velocity = momentum × velocity + gradient, value -= learning_rate × velocity.
 *
 * Polyak, "Some methods of speeding up the convergence of iteration methods", USSR Computational
 * Mathematics and Mathematical Physics 4(5), 1964. The velocity is one of gradients and not of values,
 * so that a new learning rate holds for all of the next step.
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
            row[i] -= rate * velocity[i];                                          \
        }                                                                          \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
DEFINE_APPLY_ROWS

static uint32_t state_width(const RubatoUpdate *update)
{
    return update->width;
}

const RubatoUpdateOps momentum_update_ops = {
    .name = "momentum",
    .traits = { .takes_gradients = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_MOMENTUM),
                .defaults = { .learning_rate = 0.01, .momentum = 0.9 } },
    .state_width = state_width,
    .apply_rows = apply_rows,
};
