/* The update rules: those of tables (rubato/table.h), which servers apply by tables; by allreduce
 * each worker applies them here to weights of its own.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_MLP_MLP_RULE_H
#define RUBATO_APPS_MLP_MLP_RULE_H

#include <stddef.h>
#include <stdint.h>

typedef enum { MLP_RULE_ADAM, MLP_RULE_MOMENTUM, MLP_RULE_SGD, MLP_N_RULES } MlpRule;

/* As tables name them; ended by NULL. */
extern const char *const mlp_rule_names[];

/* How many values a rule keeps for each weight. */
uint32_t mlp_rule_n_states(MlpRule rule);

/* A step with the gradient of n weights. states: n for each value that the rule keeps, one array
 * behind another; 0 at first. step: how many there were before. */
void mlp_rule_step(MlpRule rule, double rate, uint64_t step, size_t n, const float *gradient,
                   float *weights, float *states);

#endif
