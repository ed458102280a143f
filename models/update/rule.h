/* The hyper-parameters of update rules: which table has which, their defaults and ranges.
 *
 * Threads: any; a spec is only read. */
#ifndef RUBATO_MODELS_UPDATE_RULE_H
#define RUBATO_MODELS_UPDATE_RULE_H

#include <rubato/table.h>

enum { N_HYPERS = RUBATO_HYPER_MAX_GRADIENT + 1 };

/* The hyper-parameters of a spec whose rule is a known one, with every default filled in.
 * RUBATO_ZERO stays as it is, so a second call changes nothing. */
RubatoRule rule_resolve(const RubatoTableSpec *spec);

/* Checks the rule of a spec whose names and dtype have been checked. */
bool rule_check(const RubatoTableSpec *spec, GError **error);

/* Gives a hyper-parameter (below N_HYPERS) a number; 0 is 0. */
void rule_set(RubatoRule *rule, RubatoHyper hyper, double value);

/* That number. */
double rule_get(const RubatoRule *rule, RubatoHyper hyper);

/* Whether a table, whose spec has passed rule_check, may get this number while it is in use. */
bool rule_check_tuning(const RubatoTableSpec *spec, RubatoHyper hyper, double value,
                       GError **error);

/* Whether a process cache may replay the rule on its own copies of rows. It cannot if bad deltas
 * are refused, because it does not know which. */
bool rule_is_replayable(const RubatoTableSpec *spec);

/* Whether the rule adds to a row, or replaces it, by the delta alone, without a look at whether it
 * is good. */
bool rule_is_plain(const RubatoTableSpec *spec);

/* Whether Adds to a list of keys change rows of a single value, each by one atomic store. Other
 * threads may then read such rows meanwhile, by atomic loads. */
bool rule_stores_whole(const RubatoTableSpec *spec);

/* All hyper-parameters in words. */
void rule_describe(const RubatoRule *rule, GString *text);

#endif
