/* The inside of a run of a test of an update rule.
 *
 * Threads: that of the test case. */
#ifndef TESTS_KIT_RULE_RULE_WORLD_PRIVATE_H
#define TESTS_KIT_RULE_RULE_WORLD_PRIVATE_H

#include "tests/kit/rule/rule_paper.h"

typedef struct {
    RubatoShardDriver *driver;
    RubatoTableSpec spec;
    RubatoBadGradients counted[2]; /* by worker: by shards whose place this one has taken */
} Shard;

/* An Add. */
typedef struct {
    RubatoKeys request;
    RubatoKey keys[RULE_N_MANY];
    uint32_t at[RULE_N_MANY];
    _Alignas(8) unsigned char deltas[RULE_N_MANY * RULE_MAX_WIDTH * 8];
} Call;

struct RuleWorld {
    const RuleScenario *scenario;
    RubatoDtype dtype;
    uint32_t width, state_width;
    size_t value_bytes;
    Shard together, alone; /* what they get: many keys in a call, or one */
    Shard reference;       /* of the rule same_as; no driver: none is asked for */
    Shard other;           /* whatever comes between: a rule must not remember it */
    double tuned[RULE_N_HYPERS];
    bool is_tuned[RULE_N_HYPERS];
    RubatoBadGradients expected[2]; /* by worker */
    Paper *paper;                   /* NULL: there is no formula */
    Call call;
    GString *story;
    char *failure;
};

/* Something is wrong; the first time counts. */
void rule_fail(RuleWorld *world, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* A shard of the rule `update`; false: it has failed. */
bool rule_shard_open(RuleWorld *world, Shard *shard, const char *storage, const char *update);

/* The first n keys. */
RubatoKeys rule_keys(uint32_t n);

/* The bad deltas that the shard, and those before it, have counted. */
RubatoBadGradients rule_shard_counts(const Shard *shard, uint32_t worker);

/* ---- rule_compare.c ---- */

/* Compares the first n rows, and what was counted. */
void rule_compare(RuleWorld *world, uint32_t n);

/* ---- rule_add.c ---- */

/* Fills in the keys of an action, and rows of values for them. */
void rule_make_call(RuleWorld *world, const RuleAction *action);
RubatoKey rule_call_key(const Call *call, size_t i);
void *rule_call_row(RuleWorld *world, size_t i);

void rule_perform_add(RuleWorld *world, const RuleAction *action);

#endif
