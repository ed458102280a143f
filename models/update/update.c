/* The list of update rules: the built-in ones, then those that the program has registered.
 *
 * Thread: any. */
#include "models/update/update.h"

#include <string.h>

#include "models/registry.h"

/* The built-in rules, a line each. */
#define FOR_EACH_RULE(DO)   \
    DO(add_update_ops)      \
    DO(assign_update_ops)   \
    DO(sgd_update_ops)      \
    DO(momentum_update_ops) \
    DO(nesterov_update_ops) \
    DO(adagrad_update_ops)  \
    DO(rmsprop_update_ops)  \
    DO(adam_update_ops)     \
    DO(ftrl_update_ops)     \
    DO(moving_average_update_ops)

#define DECLARE(ops) extern const RubatoUpdateOps ops;
#define LIST(ops) &ops,
FOR_EACH_RULE(DECLARE)
static const RubatoUpdateOps *const rules[] = { FOR_EACH_RULE(LIST) };

const RubatoUpdateOps *update_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return registry_find(REGISTRY_UPDATE_RULES, name);
}

const char *update_name(size_t i)
{
    return i < G_N_ELEMENTS(rules) ? rules[i]->name
                                   : registry_name(REGISTRY_UPDATE_RULES, i - G_N_ELEMENTS(rules));
}
