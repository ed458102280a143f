/* The layers of a net, and their tables. Each layer is a dense table: a row for each of its units,
 * with the unit's bias and a weight for each input.
 *
 * Either servers apply the update rule, or workers do, by allreduce (app_weights.h). Then the
 * tables take what is added instead of what they have, and others beside them take what the rule
 * keeps.
 *
 * Threads: main's, between tasks. */
#ifndef RUBATO_APPS_KIT_NET_APP_LAYERS_H
#define RUBATO_APPS_KIT_NET_APP_LAYERS_H

#include "apps/kit/app.h"
#include "apps/kit/net/app_net.h"
#include "apps/kit/net/app_net_rule.h"

typedef struct {
    AppNetShape shape;
    AppNetRule rule;
    bool of_workers;                                                    /* who apply the rule */
    char names[APP_NET_LAYERS_MAX][16], states[APP_NET_LAYERS_MAX][16]; /* of tables */
} AppLayers;

/* The table with the number of steps that the rule has taken, where workers apply it. */
#define APP_LAYERS_STEPS "steps"

/* For take_flags: takes the units of the hidden layers from a text such as "128,64". */
bool app_layers_parse(AppNetShape *shape, const char *text, GError **error);

/* After app_start: takes them from the flag's text or, if it is NULL, as the loaded model or
 * `otherwise` says. The text then is that of the setting "hidden". (*text: transfer full) */
bool app_layers_settle(AppLayers *layers, const App *app, char **text, const char *otherwise,
                       GError **error);

/* Names the tables, and puts as many of their names as a task uses at the end of a list that has
 * room for them, and for the NULL that ends it. */
#define APP_LAYERS_TABLES_MAX (2 * APP_NET_LAYERS_MAX + 1)
void app_layers_name(AppLayers *layers, const char **tables);

/* The tables of the model, as many as the names above. Weights begin as numbers around 0 whose
 * variance is 2 / inputs (He and others: Delving Deep into Rectifiers, ICCV 2015), biases as 0.
 * Where workers apply a rule that keeps something, others are for that. */
size_t app_layers_describe(const AppLayers *layers, const App *app, AppArray *arrays);

/* Gets all weights, unless they are there. app_layers_forget frees them, in any case. */
bool app_layers_fetch(const AppLayers *layers, const App *app, float **weights, GError **error);
void app_layers_forget(float **weights);

#endif
