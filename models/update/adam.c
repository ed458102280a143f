/* The rule "adam": m = beta1 × m + (1 - beta1) × gradient, v = beta2 × v + (1 - beta2) × gradient²,
 * value -= learning_rate × (m / c1) / (√(v / c2) + epsilon).
 *
 * Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1. c1 and c2
 * correct the bias of means that began with 0. The paper has c1 = 1 - beta1^t in step t; here each
 * row keeps c1 = beta1 × c1 + (1 - beta1), and c2 likewise, from 0 on. This is the same number as
 * long as beta1 does not change. After a change it is still the sum of the weights in m, and it
 * needs no power function. So a row that is seldom updated is corrected by its own steps.
 *
 * Row-wise, a row has one v, of the mean of its gradients' squares.
 *
 * State of a row: c1, c2, m (`width` values), v (`width` values; row-wise 1).
 *
 * Thread: the shard's present owner. */
#include <rubato/update_loops.h>

#define DEFINE_STEP(suffix, type)                                                            \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row,    \
                                          const type *restrict gradients, size_t width)      \
    {                                                                                        \
        const type beta1 = (type)update->rule.beta1, rest1 = (type)(1 - update->rule.beta1); \
        const type beta2 = (type)update->rule.beta2, rest2 = (type)(1 - update->rule.beta2); \
        const type epsilon = (type)update->rule.epsilon;                                     \
        type *restrict corrections = row + width;                                            \
        type *restrict m = corrections + 2;                                                  \
        type *restrict v = m + width;                                                        \
        const type c1 = beta1 * corrections[0] + rest1, c2 = beta2 * corrections[1] + rest2; \
        const type rate = (type)update->rule.learning_rate / c1, per_c2 = 1 / c2;            \
                                                                                             \
        corrections[0] = c1;                                                                 \
        corrections[1] = c2;                                                                 \
        if (update->rule.row_wise) {                                                         \
            type scale;                                                                      \
                                                                                             \
            v[0] = beta2 * v[0] +                                                            \
                   rest2 * rubato_sum_of_squares_##suffix(gradients, width) / (type)width;   \
            scale = rate / (rubato_root_##suffix(v[0] * per_c2) + epsilon);                  \
            for (size_t i = 0; i < width; i++) {                                             \
                m[i] = beta1 * m[i] + rest1 * gradients[i];                                  \
                row[i] -= scale * m[i];                                                      \
            }                                                                                \
            return;                                                                          \
        }                                                                                    \
        RUBATO_UPDATE_INDEPENDENT                                                            \
        for (size_t i = 0; i < width; i++) {                                                 \
            m[i] = beta1 * m[i] + rest1 * gradients[i];                                      \
            v[i] = beta2 * v[i] + rest2 * (gradients[i] * gradients[i]);                     \
            row[i] -= rate * m[i] / (rubato_root_##suffix(v[i] * per_c2) + epsilon);         \
        }                                                                                    \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
RUBATO_DEFINE_APPLY_ROWS

static uint32_t state_width(const RubatoUpdate *update)
{
    return 2 + update->width + (update->rule.row_wise ? 1 : update->width);
}

const RubatoUpdateOps adam_update_ops = {
    .name = "adam",
    .traits = { .takes_gradients = true,
                .may_be_row_wise = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_BETA1) |
                          RUBATO_HYPER_BIT(RUBATO_HYPER_BETA2) |
                          RUBATO_HYPER_BIT(RUBATO_HYPER_EPSILON),
                .defaults = { .learning_rate = 0.001,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .epsilon = 1e-8 } },
    .state_width = state_width,
    .apply_rows = apply_rows,
};
