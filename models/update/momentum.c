/* The rule "momentum": velocity = momentum × velocity + gradient, value -= learning_rate ×
 * velocity.
 *
 * Polyak, "Some methods of speeding up the convergence of iteration methods", USSR Computational
 * Mathematics and Mathematical Physics 4(5), 1964.
 *
 * Thread: the shard's present owner. */
#include "models/update/velocity.h"

#define MOVE(gradient, momentum, velocity) (velocity)

DEFINE_VELOCITY_RULE

const RubatoUpdateOps momentum_update_ops = {
    .name = "momentum",
    .traits = { .takes_gradients = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_MOMENTUM),
                .defaults = { .learning_rate = 0.01, .momentum = 0.9 } },
    .state_width = state_width,
    .apply_rows = apply_rows,
};
