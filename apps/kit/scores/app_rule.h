/* The update rules that a program may offer for tables that gradients are added to, and these
 * tables.
 *
 * Threads: main's. */
#ifndef RUBATO_APPS_KIT_SCORES_APP_RULE_H
#define RUBATO_APPS_KIT_SCORES_APP_RULE_H

#include "apps/kit/app.h"
#include "apps/kit/scores/app_loss.h"

typedef enum {
    APP_RULE_ADAGRAD,
    APP_RULE_ADAM,
    APP_RULE_FTRL, /* applies L1 on the servers; workers would have to shrink weights at the rule's
                    * own rate */
    APP_RULE_SGD,
    APP_N_RULES,
} AppRuleKind;

typedef struct {
    AppRuleKind kind;
    double l1; /* penalty on the sizes of the weights with ftrl; the servers apply none with the
                * other rules */
} AppRule;

/* Takes the kind by its name, NULL for the first. RUBATO_ERROR_INVALID, of --rule, if there is none
 * of that name. */
bool app_rule_take(AppRule *rule, const char *name, GError **error);

/* A hash table for gradients of rows that come multiplied by `scale`. */
RubatoTableSpec app_rule_table(const App *app, const char *name, const AppRule *rule, double scale);

/* The same of one value, the bias, which every step uses. */
RubatoTableSpec app_rule_bias(const App *app, const char *name, const AppRule *rule, double scale,
                              const AppLoss *loss);

#endif
