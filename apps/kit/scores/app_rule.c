/* The specs of tables that take gradients. Pure functions. */
#include "apps/kit/scores/app_rule.h"

#include <string.h>

#define DEFAULT_RATE 0.01

static const char *const names[] = { "adagrad", "adam", "ftrl", "sgd", NULL };

/* The names of the other rules that take gradients, behind those of the kinds. (transfer container)
 */
static GPtrArray *list_rules(void)
{
    GPtrArray *rules = g_ptr_array_new();
    const char *name;

    for (size_t i = 0; names[i] != NULL; i++)
        g_ptr_array_add(rules, (gpointer)(uintptr_t)names[i]);
    for (size_t i = 0; (name = rubato_update_rule_name(i)) != NULL; i++)
        if (rubato_update_rule_traits(name)->takes_gradients && !g_strv_contains(names, name))
            g_ptr_array_add(rules, (gpointer)(uintptr_t)name);
    g_ptr_array_add(rules, NULL);
    return rules;
}

bool app_rule_take(AppRule *rule, const char *name, GError **error)
{
    g_autoptr(GPtrArray) rules = list_rules();
    const char *const *words = (const char *const *)rules->pdata;
    size_t i = 0;

    if (!app_find_word("rule", words, name, &i, error))
        return false;
    rule->kind = (AppRuleKind)MIN(i, APP_RULE_OTHER);
    rule->name = words[i];
    return true;
}

void app_rule_choose_rate(App *app, const AppRule *rule, const double rates[APP_N_RULES])
{
    const double own = rubato_update_rule_traits(rule->name)->defaults.learning_rate;

    if (app->learning_rate > 0)
        return;
    app->learning_rate = rates[rule->kind];
    if (app->learning_rate <= 0)
        app->learning_rate = own > 0 ? own : DEFAULT_RATE;
}

RubatoTableSpec app_rule_table(const App *app, const char *name, const AppRule *rule, double scale)
{
    RubatoTableSpec spec = {
        .name = name,
        .dtype = RUBATO_F32,
        .storage = "hash",
        .update = rule->name,
        .rule = { .learning_rate = app->learning_rate },
        .aggregate =
            app->model_traits->applies_by_clock ? RUBATO_AGGREGATE_SUM : RUBATO_AGGREGATE_NONE,
        .seed = app->seed,
    };

    /* ftrl compares beta and L1 with sums of rows' gradients, and these are scaled. */
    if (rule->kind == APP_RULE_FTRL) {
        spec.rule.beta = scale;
        spec.rule.l1 = rule->l1 * scale;
    }
    return spec;
}

RubatoTableSpec app_rule_bias(const App *app, const char *name, const AppRule *rule, double scale,
                              const AppLoss *loss)
{
    RubatoTableSpec spec = app_rule_table(app, name, rule, scale);

    spec.storage = "dense";
    spec.n_keys = 1;
    spec.init_value = app_loss_start(loss);
    /* Every worker uses it: under sparse_ssp none could run further ahead than the staleness. */
    if (app->model_traits->takes_announcements) {
        spec.model = "ssp";
        spec.staleness = app->staleness + app->speculation;
    }
    return spec;
}
