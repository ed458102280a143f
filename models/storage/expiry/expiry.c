/* The list of expiries: the built-in ones, then those that the program has registered.
 *
 * Thread: any. */
#include "models/storage/expiry/expiry.h"

#include <string.h>

#include "models/registry.h"
#include "models/spec.h"

static const RubatoExpiryOps *const expiries[] = { &clocks_expiry_ops, &score_expiry_ops,
                                                   &seconds_expiry_ops };

const RubatoExpiryOps *expiry_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(expiries); i++)
        if (strcmp(expiries[i]->name, name) == 0)
            return expiries[i];
    return registry_find(REGISTRY_EXPIRIES, name);
}

const char *expiry_name(size_t i)
{
    return i < G_N_ELEMENTS(expiries)
               ? expiries[i]->name
               : registry_name(REGISTRY_EXPIRIES, i - G_N_ELEMENTS(expiries));
}

bool expiry_check_age(const RubatoTableSpec *spec, GError **error)
{
    if (spec->expire_after > 0)
        return true;
    return spec_refuse(spec, error, "expire_after is 0; \"%s\" needs 1 at least",
                       spec_expire_name(spec));
}

bool expiry_is_of_age(const RubatoTableSpec *spec, RubatoKey key, const void *values, uint32_t age)
{
    (void)key;
    (void)values;
    return age >= spec->expire_after;
}
