/* The update rules of tables that gradients are added to, and these tables. Any rule that takes
 * gradients will do; for four of them a program knows good learning rates.
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
    APP_RULE_OTHER, /* built in, or registered by a plug-in */
    APP_N_RULES,
} AppRuleKind;

typedef struct {
    AppRuleKind kind;
    const char *name; /* static */
    double l1; /* penalty on the sizes of the weights with ftrl; the servers apply none with the
                * other rules */
} AppRule;

/* Takes the rule by its name, NULL for "adagrad". RUBATO_ERROR_INVALID, of --rule, if there is none
 * of that name, or if it takes no gradients. */
bool app_rule_take(AppRule *rule, const char *name, GError **error);

/* Sets the program's learning rate where its user gave none: to that of the rule's kind, or of the
 * rule itself where that is 0. */
void app_rule_choose_rate(App *app, const AppRule *rule, const double rates[APP_N_RULES]);

/* A hash table for gradients of rows that come multiplied by `scale`. */
RubatoTableSpec app_rule_table(const App *app, const char *name, const AppRule *rule, double scale);

/* The same of one value, the bias, which every step uses. */
RubatoTableSpec app_rule_bias(const App *app, const char *name, const AppRule *rule, double scale,
                              const AppLoss *loss);

#endif
