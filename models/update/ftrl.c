/* The rule "ftrl": follow the regularised leader, proximal, with L1 and L2.
 *
 *     sigma = (√(n + gradient²) - √n) / alpha
 *     z += gradient - sigma × value
 *     n += gradient²
 *     value = 0 where |z| ≤ l1, else (sign(z) × l1 - z) / ((beta + √n) / alpha + l2)
 *
 * McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013, algorithm 1, by
 * coordinate; alpha is the learning rate. A new row has the z that gives its initial values (0 for
 * 0), so that learning begins there.
 *
 * State of a row: z, then n, `width` values each.
 *
 * Thread: the shard's present owner. */
#include <float.h>
#include <rubato/error.h>

#include <rubato/update_loops.h>

#define DEFINE_STEP(suffix, type)                                                            \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict row,    \
                                          const type *restrict gradients, size_t width)      \
    {                                                                                        \
        const type per_alpha = (type)(1 / update->rule.learning_rate);                       \
        const type beta = (type)update->rule.beta;                                           \
        const type l1 = (type)update->rule.l1, l2 = (type)update->rule.l2;                   \
        type *restrict z = row + width;                                                      \
        type *restrict n = z + width;                                                        \
                                                                                             \
        RUBATO_UPDATE_INDEPENDENT                                                            \
        for (size_t i = 0; i < width; i++) {                                                 \
            const type before = rubato_root_##suffix(n[i]);                                  \
            const type squares = n[i] + gradients[i] * gradients[i];                         \
            const type root = rubato_root_##suffix(squares);                                 \
            const type moved = z[i] + (gradients[i] - (root - before) * per_alpha * row[i]); \
            const type size = moved < 0 ? -moved : moved;                                    \
            const type pull = moved < 0 ? -l1 : l1;                                          \
            const type value = (pull - moved) / ((beta + root) * per_alpha + l2);            \
                                                                                             \
            n[i] = squares;                                                                  \
            z[i] = moved;                                                                    \
            row[i] = size <= l1 ? 0 : value;                                                 \
        }                                                                                    \
    }                                                                                        \
                                                                                             \
    static void init_##suffix(const RubatoUpdate *update, type *row)                         \
    {                                                                                        \
        const RubatoRule *rule = &update->rule;                                              \
        const type hold = (type)(rule->beta / rule->learning_rate + rule->l2);               \
        const type l1 = (type)rule->l1;                                                      \
        const size_t width = update->width;                                                  \
                                                                                             \
        for (size_t i = 0; i < width; i++) {                                                 \
            const type pull = row[i] < 0 ? -l1 : l1;                                         \
                                                                                             \
            row[width + i] = row[i] == 0 ? 0 : -row[i] * hold - pull;                        \
            row[2 * width + i] = 0;                                                          \
        }                                                                                    \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
RUBATO_DEFINE_APPLY_ROWS

static uint32_t state_width(const RubatoUpdate *update)
{
    return 2 * update->width;
}

static void init_state(const RubatoUpdate *update, void *row)
{
    if (update->dtype == RUBATO_F32)
        init_f32(update, row);
    else
        init_f64(update, row);
}

/* It is divided by; 1 / alpha has to be a number of the dtype. */
static bool check(const RubatoTableSpec *spec, GError **error)
{
    const double least = spec->dtype == RUBATO_F32 ? 1 / (double)FLT_MAX : 1 / DBL_MAX;

    if (spec->rule.learning_rate > least)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: the learning_rate of \"ftrl\" has to be above 0; it is %g", spec->name,
                spec->rule.learning_rate);
    return false;
}

const RubatoUpdateOps ftrl_update_ops = {
    .name = "ftrl",
    .traits = { .takes_gradients = true,
                .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_BETA) | RUBATO_HYPER_BIT(RUBATO_HYPER_L1) |
                          RUBATO_HYPER_BIT(RUBATO_HYPER_L2),
                .defaults = { .learning_rate = 0.1, .beta = 1 } },
    .check = check,
    .state_width = state_width,
    .init_state = init_state,
    .apply_rows = apply_rows,
};
