/* What the rules that keep a velocity have in common.
 *
 * velocity = momentum × velocity + gradient, value -= learning_rate × move. A rule says what the
 * move is, from the gradient, the momentum and the new velocity, and gets its apply_rows and
 * state_width:
 *
 *     #define MOVE(gradient, momentum, velocity) …
 *     DEFINE_VELOCITY_RULE
 *
 * The velocity is in units of gradients and not of values, so that a new learning rate holds for
 * the whole next step. State of a row: its velocity, `width` values.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_MODELS_UPDATE_VELOCITY_H
#define RUBATO_MODELS_UPDATE_VELOCITY_H

#include <rubato/update_loops.h>

#define DEFINE_VELOCITY_STEP(suffix, type)                                                \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row, \
                                          const type *restrict gradients, size_t width)   \
    {                                                                                     \
        const type rate = (type)update->rule.learning_rate;                               \
        const type momentum = (type)update->rule.momentum;                                \
        type *restrict velocity = row + width;                                            \
                                                                                          \
        RUBATO_UPDATE_INDEPENDENT                                                         \
        for (size_t i = 0; i < width; i++) {                                              \
            velocity[i] = momentum * velocity[i] + gradients[i];                          \
            row[i] -= rate * MOVE(gradients[i], momentum, velocity[i]);                   \
        }                                                                                 \
    }

#define DEFINE_VELOCITY_RULE                                \
    DEFINE_VELOCITY_STEP(f32, float)                        \
    DEFINE_VELOCITY_STEP(f64, double)                       \
    RUBATO_DEFINE_APPLY_ROWS                                \
                                                            \
    static uint32_t state_width(const RubatoUpdate *update) \
    {                                                       \
        return update->width;                               \
    }

#endif
