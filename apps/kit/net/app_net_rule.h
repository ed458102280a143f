/* The update rules: those of tables (rubato/table.h), which servers apply by tables; by allreduce
 * each worker applies them here to weights of its own.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_KIT_NET_APP_NET_RULE_H
#define RUBATO_APPS_KIT_NET_APP_NET_RULE_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    APP_NET_RULE_ADAM,
    APP_NET_RULE_MOMENTUM,
    APP_NET_RULE_SGD,
    APP_NET_N_RULES
} AppNetRule;

/* As tables name them; ended by NULL. */
extern const char *const app_net_rule_names[];

/* How many values a rule keeps for each weight. */
uint32_t app_net_rule_n_states(AppNetRule rule);

/* A step with the gradient of n weights. states: n for each value that the rule keeps, one array
 * behind another; 0 at first. step: how many there were before. */
void app_net_rule_step(AppNetRule rule, double rate, uint64_t step, size_t n, const float *gradient,
                       float *weights, float *states);

#endif
