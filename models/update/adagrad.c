/* The rule "adagrad": sum += gradient², value -= learning_rate × gradient / (√sum + epsilon).
 *
 * Duchi, Hazan, Singer, "Adaptive subgradient methods for online learning and stochastic
 * optimization", JMLR 12, 2011: the diagonal form. Row-wise, a row has one sum, which takes the
 * mean of its gradients' squares: Mudigere et al., "Software-hardware co-design for fast and
 * scalable training of deep learning recommendation models", ISCA 2022.
 *
 * State of a row: its sums, `width` values; row-wise 1.
 *
 * Thread: the shard's present owner. */
#include <rubato/update_loops.h>

#define DEFINE_STEP(suffix, type)                                                         \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row, \
                                          const type *restrict gradients, size_t width)   \
    {                                                                                     \
        const type rate = (type)update->rule.learning_rate;                               \
        const type epsilon = (type)update->rule.epsilon;                                  \
        type *restrict sums = row + width;                                                \
                                                                                          \
        if (update->rule.row_wise) {                                                      \
            type scale;                                                                   \
                                                                                          \
            sums[0] += rubato_sum_of_squares_##suffix(gradients, width) / (type)width;    \
            scale = rate / (rubato_root_##suffix(sums[0]) + epsilon);                     \
            for (size_t i = 0; i < width; i++)                                            \
                row[i] -= scale * gradients[i];                                           \
            return;                                                                       \
        }                                                                                 \
        RUBATO_UPDATE_INDEPENDENT                                                         \
        for (size_t i = 0; i < width; i++) {                                              \
            sums[i] += gradients[i] * gradients[i];                                       \
            row[i] -= rate * gradients[i] / (rubato_root_##suffix(sums[i]) + epsilon);    \
        }                                                                                 \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
RUBATO_DEFINE_APPLY_ROWS

static uint32_t state_width(const RubatoUpdate *update)
{
    return update->rule.row_wise ? 1 : update->width;
}

static void init_state(const RubatoUpdate *update, void *row)
{
    for (size_t i = update->width; i < (size_t)update->width + update->state_width; i++)
        if (update->dtype == RUBATO_F32)
            ((float *)row)[i] = (float)update->rule.initial_accumulator;
        else
            ((double *)row)[i] = update->rule.initial_accumulator;
}

const RubatoUpdateOps adagrad_update_ops = {
    .name = "adagrad",
    .traits = { .takes_gradients = true,
                .may_be_row_wise = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_EPSILON) |
                          RUBATO_HYPER_BIT(RUBATO_HYPER_INITIAL_ACCUMULATOR),
                .defaults = { .learning_rate = 0.01, .epsilon = 1e-8 } },
    .state_width = state_width,
    .init_state = init_state,
    .apply_rows = apply_rows,
};
