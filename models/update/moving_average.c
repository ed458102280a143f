/* The rule "moving_average": value = decay × value + (1 - decay) × observation.
 *
 * Roberts, "Control chart tests based on geometric moving averages", Technometrics 1(3), 1959.
 *
 * Thread: the shard's present owner. */
#include <rubato/error.h>

#include <rubato/update_loops.h>

#define DEFINE_STEP(suffix, type)                                                            \
    RUBATO_UPDATE_STEP void step_##suffix(const RubatoUpdate *update, type *restrict values, \
                                          const type *restrict observations, size_t n)       \
    {                                                                                        \
        const type decay = (type)update->rule.decay;                                         \
        const type rest = (type)(1 - update->rule.decay);                                    \
                                                                                             \
        for (size_t i = 0; i < n; i++)                                                       \
            values[i] = decay * values[i] + rest * observations[i];                          \
    }

DEFINE_STEP(f32, float)
DEFINE_STEP(f64, double)
RUBATO_DEFINE_APPLY_ROWS
RUBATO_DEFINE_APPLY

static bool check(const RubatoTableSpec *spec, GError **error)
{
    if (spec->dtype == RUBATO_F32 || spec->dtype == RUBATO_F64)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: the update rule \"moving_average\" is for f32 and f64, not for %s",
                spec->name, rubato_dtype_name(spec->dtype));
    return false;
}

const RubatoUpdateOps moving_average_update_ops = {
    .name = "moving_average",
    .traits = { .hypers = RUBATO_HYPER_BIT(RUBATO_HYPER_DECAY), .defaults = { .decay = 0.99 } },
    .check = check,
    .apply = apply,
    .apply_rows = apply_rows,
};
