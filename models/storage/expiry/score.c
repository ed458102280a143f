/* A row expires when its score falls below a bound. Its first two values are counts: how often what
 * it stands for was shown, and how often that was clicked. Both decay with each clock.
 *
 *     score = show_weight × (shows − clicks) + click_weight × clicks
 *
 * The counts are decayed when they are written next: a row keeps them as they were at its last
 * write, and its score follows from them and its age.
 *
 * Thread: the shard's present owner. */
#include <math.h>
#include <string.h>

#include "models/spec.h"
#include "models/storage/expiry/expiry.h"
#include "models/update/update.h"

#define DEFAULT_DECAY 0.98
#define DEFAULT_SHOW_WEIGHT 0.1
#define DEFAULT_CLICK_WEIGHT 1.0

/* By the conventions of RubatoRule: 0 is the default, and RUBATO_ZERO is 0. */
static double number_or(double number, double usual)
{
    if (number != 0)
        return number;
    return signbit(number) != 0 ? 0 : usual;
}

static double decay_of(const RubatoTableSpec *spec, uint32_t age)
{
    return pow(number_or(spec->expire_decay, DEFAULT_DECAY), age);
}

static bool check(const RubatoTableSpec *spec, GError **error)
{
    const double decay = number_or(spec->expire_decay, DEFAULT_DECAY);
    const bool is_real = spec->dtype == RUBATO_F32 || spec->dtype == RUBATO_F64;

    const RubatoUpdateTraits *rule = &update_find(spec_update_name(spec))->traits;

    if (!is_real || spec_width(spec) < 2 || rule->takes_gradients)
        return spec_refuse(spec, error,
                           "\"score\" goes by counts of shows and clicks, the first two values of "
                           "a row; it needs RUBATO_F32 or _F64, a width of 2 at least, and an "
                           "update rule that takes no gradients, such as \"add\"");
    if (!isfinite(spec->expire_below) || spec->expire_below <= 0)
        return spec_refuse(spec, error,
                           "expire_below is %g; \"score\" needs a score above 0, below which "
                           "rows expire",
                           spec->expire_below);
    if (!(decay >= 0 && decay < 1))
        return spec_refuse(spec, error,
                           "expire_decay is %g; take a number from 0 to below 1: the share of the "
                           "counts that a clock leaves",
                           spec->expire_decay);
    if (!isfinite(spec->expire_show_weight) || !isfinite(spec->expire_click_weight) ||
        spec->expire_show_weight < 0 || spec->expire_click_weight < 0)
        return spec_refuse(spec, error,
                           "expire_show_weight and expire_click_weight may not be below 0");
    return true;
}

/* Counts below 0, or of which there are more clicks than shows, make no sense; the score of such a
 * row grows by none of them. */
static double count_at(const RubatoTableSpec *spec, const void *values, size_t i)
{
    double count;

    if (spec->dtype == RUBATO_F64) {
        count = ((const double *)values)[i];
    } else {
        float narrow;

        memcpy(&narrow, (const float *)values + i, sizeof narrow);
        count = (double)narrow;
    }
    return count > 0 ? count : 0; /* no NaN either */
}

static double score(const RubatoTableSpec *spec, const void *values, uint32_t age)
{
    const double shows = count_at(spec, values, 0), clicks = count_at(spec, values, 1);
    const double sum = number_or(spec->expire_show_weight, DEFAULT_SHOW_WEIGHT) *
                           (shows > clicks ? shows - clicks : 0) +
                       number_or(spec->expire_click_weight, DEFAULT_CLICK_WEIGHT) * clicks;

    return sum * decay_of(spec, age);
}

static bool expires(const RubatoTableSpec *spec, RubatoKey key, const void *values, uint32_t age)
{
    (void)key;
    return age > 0 && score(spec, values, age) < spec->expire_below;
}

static void refresh(const RubatoTableSpec *spec, void *values, uint32_t age)
{
    const double decay = decay_of(spec, age);

    for (size_t i = 0; i < 2; i++)
        if (spec->dtype == RUBATO_F64)
            ((double *)values)[i] *= decay;
        else
            ((float *)values)[i] = (float)((double)((float *)values)[i] * decay);
}

const RubatoExpiryOps score_expiry_ops = {
    .name = "score",
    .unit = RUBATO_TIME_CLOCKS,
    .check = check,
    .expires = expires,
    .refresh = refresh,
    .score = score,
};
