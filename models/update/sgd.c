/* The rule "sgd": value -= learning_rate × gradient.
 *
 * Robbins, Monro, "A stochastic approximation method", Annals of Mathematical Statistics 22(3),
 * 1951.
 *
 * Thread: the shard's present owner. */
#include <rubato/update_loops.h>

#define DEFINE_STEP(suffix, type)                                                            \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict values, \
                                          const type *restrict gradients, size_t n)          \
    {                                                                                        \
        const type rate = (type)update->rule.learning_rate;                                  \
                                                                                             \
        for (size_t i = 0; i < n; i++)                                                       \
            values[i] -= rate * gradients[i];                                                \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
RUBATO_DEFINE_APPLY_ROWS
RUBATO_DEFINE_APPLY

const RubatoUpdateOps sgd_update_ops = {
    .name = "sgd",
    .traits = { .takes_gradients = true, .defaults = { .learning_rate = 0.01 } },
    .apply = apply,
    .apply_rows = apply_rows,
};
