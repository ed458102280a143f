/* A worker's arrays for the layers of a net, while a task trains it.
 *
 * Where workers apply the rule, each has all weights, and the gradients of a step are combined: a
 * group of one tensor for each layer. All apply the rule to the same sums, so their weights stay
 * the same. The tables have weights, and what the rule keeps, before and after: worker 0 writes
 * them when it ends, and before each snapshot.
 *
 * Threads: the worker's. */
#ifndef RUBATO_APPS_KIT_NET_APP_WEIGHTS_H
#define RUBATO_APPS_KIT_NET_APP_WEIGHTS_H

#include "apps/kit/net/app_layers.h"

typedef struct {
    const AppLayers *layers;
    RubatoWorker *worker;
    RubatoKVTable *tables[APP_NET_LAYERS_MAX];
    RubatoKVTable *states_tables[APP_NET_LAYERS_MAX]; /* NULL: none */
    float *weights[APP_NET_LAYERS_MAX], *gradients[APP_NET_LAYERS_MAX];
    float *states[APP_NET_LAYERS_MAX]; /* NULL: the rule keeps none, or the servers do */
    RubatoKVTable *steps_table;        /* likewise */
    uint64_t n_steps;                  /* that the rule has taken; 0 at first if it keeps none */
} AppWeights;

/* Opens the tables, and makes room. RUBATO_ERROR_MEMORY; *weights must be cleared in any case. */
bool app_weights_open(AppWeights *weights, const AppLayers *layers, RubatoWorker *worker,
                      GError **error);
void app_weights_clear(AppWeights *weights);

/* Asks for all layers, and then waits for their answers. */
bool app_weights_get(const AppWeights *weights, GError **error);

/* ---- where workers apply the rule ---- */

/* Gets what the rule keeps. */
bool app_weights_get_states(AppWeights *weights, GError **error);

/* Writes all to the tables. An AppWriteFunc; user_data: an AppWeights. */
bool app_weights_write(void *user_data, GError **error);

/* The tensors of a step: the gradients of the layers, each of which gets its sum. Their number, at
 * most APP_NET_LAYERS_MAX. */
size_t app_weights_tensors(const AppWeights *weights, RubatoTensor *tensors);

/* Takes a step with the sums. */
void app_weights_step(AppWeights *weights, double rate);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(AppWeights, app_weights_clear)

#endif
