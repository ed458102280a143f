/* One run of a test of an update rule: the same Adds go to one shard in calls of many keys, to
 * another one key by key, and to the formula if there is one. The rows must be the same.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_RULE_RULE_WORLD_H
#define TESTS_KIT_RULE_RULE_WORLD_H

#include <rubato/testing.h>

#define RULE_FIRST_KEY 50
#define RULE_N_KEYS 9   /* that most actions use */
#define RULE_N_MANY 600 /* more than several blocks and pieces */
#define RULE_MAX_WIDTH 37
#define RULE_MAX_LISTED 8
#define RULE_N_HYPERS (RUBATO_HYPER_MAX_GRADIENT + 1)

typedef enum {
    RULE_ACTION_ADD,
    RULE_ACTION_ADD_BAD, /* with deltas that are no numbers, infinite or large */
    RULE_ACTION_ADD_MANY,
    RULE_ACTION_SET,
    RULE_ACTION_RESET,
    RULE_ACTION_TUNE,
    RULE_ACTION_MOVE, /* the rows of the first shard go to a new one, which takes its place */
    RULE_ACTION_N_KINDS,
} RuleActionKind;

typedef enum { RULE_FORM_LIST, RULE_FORM_SELECTION, RULE_FORM_RUN } RuleForm;

typedef struct {
    RuleActionKind kind;
    RuleForm form;
    uint8_t n_keys;
    uint8_t keys[RULE_MAX_LISTED]; /* less the first key; of a run the first alone counts */
    uint8_t worker;                /* 0 or 1 */
    uint8_t hyper;                 /* of TUNE */
    double value;
    uint32_t mark; /* of deltas and values */
} RuleAction;

/* What a run is besides its actions. */
typedef struct {
    uint64_t seed;
    RubatoTableSpec spec; /* whole, but for the storage */
    const RubatoTestFormula *formula;
    const RubatoRule *means;
    const char *same_as;
    char *failure; /* not NULL: the rule cannot be used */
} RuleScenario;

typedef struct RuleWorld RuleWorld;

/* The name of a hyper-parameter, and where its number stands in a rule. */
const char *rule_hyper_name(uint32_t hyper);
double *rule_hyper(RubatoRule *rule, uint32_t hyper);

/* Whether a table with such a rule may tune it. */
bool rule_has_hyper(const RubatoUpdateTraits *traits, const RubatoRule *rule, uint32_t hyper);

/* Begins a run. story: what happens is written to it; NULL: not. (transfer full) */
RuleWorld *rule_world_new(const RuleScenario *scenario, GString *story);
void rule_world_free(RuleWorld *world);
void rule_world_perform(RuleWorld *world, const RuleAction *action);

/* Compares all rows. */
void rule_world_end(RuleWorld *world);

/* What was wrong first; NULL: nothing. */
const char *rule_world_failure(const RuleWorld *world);

/* ---- rule_ops.c ---- */

/* What is wrong with the ops by themselves: what they write, and in which order; NULL: nothing.
 * (transfer full) */
char *rule_check_ops(const RubatoUpdateOps *ops, const RubatoUpdate *update);

#endif
