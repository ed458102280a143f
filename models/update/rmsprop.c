/* The rule "rmsprop": mean = decay × mean + (1 - decay) × gradient²,
 * value -= learning_rate × gradient / (√mean + epsilon).
 *
 * Tieleman, Hinton, "Lecture 6.5: rmsprop", Coursera, Neural networks for machine learning, 2012.
 *
 * State of a row: its means of squares, `width` values.
 *
 * Thread: the shard's present owner. */
#include <rubato/update_loops.h>

#define DEFINE_STEP(suffix, type)                                                         \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row, \
                                          const type *restrict gradients, size_t width)   \
    {                                                                                     \
        const type rate = (type)update->rule.learning_rate;                               \
        const type decay = (type)update->rule.decay;                                      \
        const type rest = (type)(1 - update->rule.decay);                                 \
        const type epsilon = (type)update->rule.epsilon;                                  \
        type *restrict means = row + width;                                               \
                                                                                          \
        RUBATO_UPDATE_INDEPENDENT                                                         \
        for (size_t i = 0; i < width; i++) {                                              \
            means[i] = decay * means[i] + rest * (gradients[i] * gradients[i]);           \
            row[i] -= rate * gradients[i] / (rubato_root_##suffix(means[i]) + epsilon);   \
        }                                                                                 \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
RUBATO_DEFINE_APPLY_ROWS

static uint32_t state_width(const RubatoUpdate *update)
{
    return update->width;
}

const RubatoUpdateOps rmsprop_update_ops = {
    .name = "rmsprop",
    .traits = { .takes_gradients = true,
                .hypers =
                    RUBATO_HYPER_BIT(RUBATO_HYPER_DECAY) | RUBATO_HYPER_BIT(RUBATO_HYPER_EPSILON),
                .defaults = { .learning_rate = 0.01, .decay = 0.9, .epsilon = 1e-8 } },
    .state_width = state_width,
    .apply_rows = apply_rows,
};
