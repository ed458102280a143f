/* The rule "nesterov": velocity = momentum × velocity + gradient,
 * value -= learning_rate × (gradient + momentum × velocity).
 *
 * Nesterov, "A method of solving a convex programming problem with convergence rate O(1/k²)",
 * Soviet Mathematics Doklady 27, 1983, as Sutskever, Martens, Dahl, Hinton, "On the importance of
 * initialization and momentum in deep learning", ICML 2013, write it with a velocity, and with the
 * values taken where the gradient is: Bengio, Boulanger-Lewandowski, Pascanu, "Advances in
 * optimizing recurrent networks", ICASSP 2013, eq. 7.
 *
 * Thread: the shard's present owner. */
#include "models/update/velocity.h"

#define MOVE(gradient, momentum, velocity) ((gradient) + (momentum) * (velocity))

DEFINE_VELOCITY_RULE

const RubatoUpdateOps nesterov_update_ops = {
    .name = "nesterov",
    .traits = { .takes_gradients = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_MOMENTUM),
                .defaults = { .learning_rate = 0.01, .momentum = 0.9 } },
    .state_width = state_width,
    .apply_rows = apply_rows,
};
