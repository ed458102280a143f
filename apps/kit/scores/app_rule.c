/* The specs of tables that take gradients. Pure functions. */
#include "apps/kit/scores/app_rule.h"

#include <string.h>

static const char *const names[] = { "adagrad", "adam", "ftrl", "sgd", NULL };

bool app_rule_take(AppRule *rule, const char *name, GError **error)
{
    size_t kind = 0;

    if (!app_find_word("rule", names, name, &kind, error))
        return false;
    rule->kind = (AppRuleKind)kind;
    return true;
}

RubatoTableSpec app_rule_table(const App *app, const char *name, const AppRule *rule, double scale)
{
    RubatoTableSpec spec = {
        .name = name,
        .dtype = RUBATO_F32,
        .storage = "hash",
        .update = names[rule->kind],
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
