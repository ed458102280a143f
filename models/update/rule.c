/* The table of hyper-parameters, and the checks.
 *
 * A number is checked as the dtype holds it: the nearest float to 0.999999999 is 1.
 *
 * Thread: any. */
#include "models/update/rule.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <rubato/error.h>
#include <stddef.h>
#include <string.h>

#include "models/model.h"
#include "models/spec.h"
#include "models/update/update.h"

#define GRADIENT_HYPERS                                                                         \
    (RUBATO_HYPER_BIT(RUBATO_HYPER_LEARNING_RATE) | RUBATO_HYPER_BIT(RUBATO_HYPER_CLIP_VALUE) | \
     RUBATO_HYPER_BIT(RUBATO_HYPER_CLIP_NORM) | RUBATO_HYPER_BIT(RUBATO_HYPER_WEIGHT_DECAY))

typedef enum {
    RANGE_NOT_NEGATIVE,
    RANGE_POSITIVE,
    RANGE_BELOW_ONE, /* and not negative */
} Range;

static const struct {
    const char *name;
    size_t offset;
    Range range;
} hypers[N_HYPERS] = {
#define HYPER(hyper, member, range) \
    [RUBATO_HYPER_##hyper] = { #member, offsetof(RubatoRule, member), range }
    HYPER(LEARNING_RATE, learning_rate, RANGE_NOT_NEGATIVE),
    HYPER(MOMENTUM, momentum, RANGE_BELOW_ONE),
    HYPER(BETA1, beta1, RANGE_BELOW_ONE),
    HYPER(BETA2, beta2, RANGE_BELOW_ONE),
    HYPER(DECAY, decay, RANGE_BELOW_ONE),
    HYPER(EPSILON, epsilon, RANGE_POSITIVE),
    HYPER(BETA, beta, RANGE_NOT_NEGATIVE),
    HYPER(L1, l1, RANGE_NOT_NEGATIVE),
    HYPER(L2, l2, RANGE_NOT_NEGATIVE),
    HYPER(CLIP_VALUE, clip_value, RANGE_NOT_NEGATIVE),
    HYPER(CLIP_NORM, clip_norm, RANGE_NOT_NEGATIVE),
    HYPER(WEIGHT_DECAY, weight_decay, RANGE_NOT_NEGATIVE),
    HYPER(INITIAL_ACCUMULATOR, initial_accumulator, RANGE_NOT_NEGATIVE),
    HYPER(MAX_GRADIENT, max_gradient, RANGE_NOT_NEGATIVE),
#undef HYPER
};

static double number_of(const RubatoRule *rule, size_t hyper)
{
    return *(const double *)(const void *)((const char *)rule + hypers[hyper].offset);
}

static bool is_real(RubatoDtype dtype)
{
    return dtype == RUBATO_F32 || dtype == RUBATO_F64;
}

static const RubatoUpdateTraits *traits_of(const RubatoTableSpec *spec)
{
    return &update_find(spec_update_name(spec))->traits;
}

/* Whether the rule has the hyper-parameter; for max_gradient, whether bad deltas are searched. */
static bool has(const RubatoTableSpec *spec, const RubatoRule *resolved, size_t hyper)
{
    const RubatoUpdateTraits *traits = traits_of(spec);

    if (hyper == RUBATO_HYPER_MAX_GRADIENT)
        return resolved->on_bad_gradient != RUBATO_ON_BAD_GRADIENT_UNCHECKED;
    return ((traits->hypers | (traits->takes_gradients ? GRADIENT_HYPERS : 0)) &
            RUBATO_HYPER_BIT(hyper)) != 0;
}

/* Whether the field was set. */
static bool is_given(double value)
{
    return value != 0 || signbit(value);
}

void rule_set(RubatoRule *rule, RubatoHyper hyper, double value)
{
    assert((unsigned)hyper < N_HYPERS);
    *(double *)(void *)((char *)rule + hypers[hyper].offset) = value == 0 ? RUBATO_ZERO : value;
}

double rule_get(const RubatoRule *rule, RubatoHyper hyper)
{
    const double number = number_of(rule, (size_t)hyper);

    return number + 0.0; /* 0 without the sign of RUBATO_ZERO */
}

RubatoRule rule_resolve(const RubatoTableSpec *spec)
{
    const RubatoUpdateTraits *traits = traits_of(spec);
    RubatoRule rule = spec->rule;

    for (size_t i = 0; i < N_HYPERS; i++)
        if (!is_given(number_of(&rule, i)) && number_of(&traits->defaults, i) != 0)
            rule_set(&rule, (RubatoHyper)i, number_of(&traits->defaults, i));
    if (rule.on_bad_gradient == RUBATO_ON_BAD_GRADIENT_DEFAULT)
        rule.on_bad_gradient = traits->takes_gradients ? RUBATO_ON_BAD_GRADIENT_COUNT
                                                       : RUBATO_ON_BAD_GRADIENT_UNCHECKED;
    return rule;
}

static bool check_range(const RubatoTableSpec *spec, size_t hyper, double given, GError **error)
{
    const bool is_single = spec->dtype == RUBATO_F32;
    const double value = is_single ? (double)(float)given : given;
    const char *name = hypers[hyper].name;

    given += 0.0; /* 0 is written without the sign of RUBATO_ZERO */

    if (!isfinite(value) || value < 0)
        return spec_refuse(spec, error,
                           "%s is %g; it has to be a number of 0 or more that %s holds", name,
                           given, rubato_dtype_name(spec->dtype));
    if (hypers[hyper].range == RANGE_POSITIVE && value < (is_single ? (double)FLT_MIN : DBL_MIN))
        return spec_refuse(spec, error, "%s is %g; it has to be above 0", name, given);
    if (hypers[hyper].range == RANGE_BELOW_ONE && value >= 1)
        return spec_refuse(spec, error, "%s is %.17g; it has to be below 1", name, given);
    return true;
}

static bool check_bad_gradients(const RubatoTableSpec *spec, const RubatoRule *rule, GError **error)
{
    if ((unsigned)rule->on_bad_gradient > RUBATO_ON_BAD_GRADIENT_UNCHECKED)
        return spec_refuse(spec, error, "%d is no RubatoOnBadGradient", (int)rule->on_bad_gradient);
    if (rule->on_bad_gradient != RUBATO_ON_BAD_GRADIENT_UNCHECKED && !is_real(spec->dtype))
        return spec_refuse(spec, error,
                           "only deltas of f32 and f64 can be looked at for bad ones, not %s",
                           rubato_dtype_name(spec->dtype));
    if (rule->max_gradient != 0 && rule->on_bad_gradient == RUBATO_ON_BAD_GRADIENT_UNCHECKED)
        return spec_refuse(spec, error,
                           "max_gradient is given, but nobody looks: set on_bad_gradient to "
                           "RUBATO_ON_BAD_GRADIENT_COUNT or RUBATO_ON_BAD_GRADIENT_REFUSE");
    return true;
}

static bool check_aggregate(const RubatoTableSpec *spec, GError **error)
{
    if (spec->aggregate == RUBATO_AGGREGATE_NONE)
        return true;
    if ((unsigned)spec->aggregate > RUBATO_AGGREGATE_MEAN)
        return spec_refuse(spec, error, "%d is no RubatoAggregate", (int)spec->aggregate);
    if (!model_traits(spec)->applies_by_clock)
        return spec_refuse(
            spec, error, "the Adds of a clock are aggregated under \"bsp\" only, not under \"%s\"",
            spec_model_name(spec));
    if (!is_real(spec->dtype))
        return spec_refuse(spec, error, "Adds are aggregated for f32 and f64 only, not for %s",
                           rubato_dtype_name(spec->dtype));
    return true;
}

bool rule_check(const RubatoTableSpec *spec, GError **error)
{
    const RubatoUpdateOps *ops = update_find(spec_update_name(spec));
    RubatoTableSpec resolved = *spec;

    resolved.rule = rule_resolve(spec);
    if (ops->traits.takes_gradients && !is_real(spec->dtype))
        return spec_refuse(spec, error, "the update rule \"%s\" is for f32 and f64, not for %s",
                           ops->name, rubato_dtype_name(spec->dtype));
    if (spec->rule.row_wise && !ops->traits.may_be_row_wise)
        return spec_refuse(spec, error, "the update rule \"%s\" has no row-wise form", ops->name);
    if (!check_bad_gradients(spec, &resolved.rule, error) || !check_aggregate(spec, error))
        return false;
    for (size_t i = 0; i < N_HYPERS; i++) {
        const double given = number_of(&spec->rule, i);

        if (is_given(given) && !has(spec, &resolved.rule, i))
            return spec_refuse(spec, error, "the update rule \"%s\" has no %s; leave it out",
                               ops->name, hypers[i].name);
        if (has(spec, &resolved.rule, i) &&
            !check_range(spec, i, number_of(&resolved.rule, i), error))
            return false;
    }
    return ops->check == NULL || ops->check(&resolved, error);
}

bool rule_check_tuning(const RubatoTableSpec *spec, RubatoHyper hyper, double value, GError **error)
{
    RubatoTableSpec tuned = *spec;

    if ((unsigned)hyper >= N_HYPERS)
        return spec_refuse(spec, error, "%d is no RubatoHyper", (int)hyper);
    if (spec->shape == RUBATO_SHAPE_RAGGED)
        return spec_refuse_idle(spec, hypers[hyper].name, "rows of one length", error);
    tuned.rule = rule_resolve(spec);
    if (!has(spec, &tuned.rule, hyper))
        return spec_refuse(spec, error, "the update rule \"%s\" has no %s that could be tuned",
                           spec_update_name(spec), hypers[hyper].name);
    tuned = *spec;
    rule_set(&tuned.rule, hyper, value);
    return rule_check(&tuned, error);
}

bool rule_is_replayable(const RubatoTableSpec *spec)
{
    return traits_of(spec)->replayable &&
           rule_resolve(spec).on_bad_gradient != RUBATO_ON_BAD_GRADIENT_REFUSE;
}

bool rule_is_plain(const RubatoTableSpec *spec)
{
    return traits_of(spec)->replayable &&
           rule_resolve(spec).on_bad_gradient == RUBATO_ON_BAD_GRADIENT_UNCHECKED;
}

bool rule_stores_whole(const RubatoTableSpec *spec)
{
    return traits_of(spec)->stores_whole;
}

void rule_describe(const RubatoRule *rule, GString *text)
{
    for (size_t i = 0; i < N_HYPERS; i++)
        if (number_of(rule, i) != 0)
            g_string_append_printf(text, ", %s %.17g", hypers[i].name, number_of(rule, i));
    g_string_append_printf(text, ", bad gradients %d%s", (int)rule->on_bad_gradient,
                           rule->row_wise ? ", row-wise" : "");
}
