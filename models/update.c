/* The list of update rules.
 *
 * Thread: any. */
#include "models/update.h"

#include <string.h>

extern const RubatoUpdateOps add_update_ops, assign_update_ops;

static const RubatoUpdateOps *const rules[] = { &add_update_ops, &assign_update_ops };

const RubatoUpdateOps *update_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}

const char *update_name(size_t i)
{
    return i < G_N_ELEMENTS(rules) ? rules[i]->name : NULL;
}
