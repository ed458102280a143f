/* The tables of layers. Runs on main's thread. */
#include "apps/kit/net/app_layers.h"

#include <math.h>
#include <rubato/mix.h>

/* ---- the sizes of hidden layers ---- */

static bool refuse_hidden(const char *text, GError **error)
{
    return app_refuse(error,
                      "--hidden: expected the units of 1 to %u layers, each from 1 to %u, such as "
                      "128,64, found \"%s\"",
                      APP_NET_HIDDEN_MAX, APP_NET_UNITS_MAX, text);
}

bool app_layers_parse(AppNetShape *shape, const char *text, GError **error)
{
    g_auto(GStrv) words = g_strsplit(text, ",", -1);
    const guint n = g_strv_length(words);

    if (n == 0 || n > APP_NET_HIDDEN_MAX)
        return refuse_hidden(text, error);
    for (guint i = 0; i < n; i++) {
        uint64_t units;

        if (!g_ascii_string_to_unsigned(words[i], 10, 1, APP_NET_UNITS_MAX, &units, NULL))
            return refuse_hidden(text, error);
        shape->sizes[i + 1] = (uint32_t)units;
    }
    shape->n_layers = n + 1;
    return true;
}

/* "128,64", as a model's setting has it: 0128 is 128. (transfer full) */
static char *hidden_text(const AppNetShape *shape)
{
    GString *text = g_string_new(NULL);

    for (uint32_t l = 1; l < shape->n_layers; l++)
        g_string_append_printf(text, "%s%u", l > 1 ? "," : "", shape->sizes[l]);
    return g_string_free(text, FALSE);
}

bool app_layers_settle(AppLayers *layers, const App *app, char **text, const char *otherwise,
                       GError **error)
{
    const char *loaded = app_loaded_setting(app, "hidden");

    if (!app_layers_parse(&layers->shape,
                          *text != NULL    ? *text
                          : loaded != NULL ? loaded
                                           : otherwise,
                          error))
        return false;
    g_free(*text);
    *text = hidden_text(&layers->shape);
    return true;
}

/* ---- tables ---- */

static uint32_t n_states_of(const AppLayers *layers)
{
    return layers->of_workers ? app_net_rule_n_states(layers->rule) : 0;
}

void app_layers_name(AppLayers *layers, const char **tables)
{
    const uint32_t n = layers->shape.n_layers;

    while (*tables != NULL)
        tables++;
    for (uint32_t l = 0; l < n; l++) {
        g_snprintf(layers->names[l], sizeof layers->names[l], "layer-%u", l + 1);
        g_snprintf(layers->states[l], sizeof layers->states[l], "states-%u", l + 1);
        *tables++ = layers->names[l];
    }
    for (uint32_t l = 0; n_states_of(layers) > 0 && l < n; l++)
        *tables++ = layers->states[l];
    if (n_states_of(layers) > 0)
        *tables++ = APP_LAYERS_STEPS;
    *tables = NULL;
}

static RubatoTableSpec weights_spec(const AppLayers *layers, const App *app, uint32_t layer)
{
    const uint32_t n_inputs = layers->shape.sizes[layer];
    RubatoTableSpec spec = {
        .name = layers->names[layer],
        .dtype = RUBATO_F32,
        .width = n_inputs + 1,
        .n_keys = layers->shape.sizes[layer + 1],
        .init = "zero_normal",
        .init_stddev = sqrt(2.0 / n_inputs),
        .seed = rubato_mix64(app->seed + rubato_mix64(layer + 1)),
    };

    if (layers->of_workers) {
        spec.model = "asp";
        spec.update = "assign";
        return spec;
    }
    spec.update = app_net_rule_names[layers->rule];
    spec.rule.learning_rate = app->learning_rate;
    if (app->model_traits->applies_by_clock)
        spec.aggregate = RUBATO_AGGREGATE_SUM;
    return spec;
}

static RubatoTableSpec states_spec(const AppLayers *layers, uint32_t layer)
{
    return (RubatoTableSpec){
        .name = layers->states[layer],
        .dtype = RUBATO_F32,
        .width = layers->shape.sizes[layer] + 1,
        .n_keys = (uint64_t)n_states_of(layers) * layers->shape.sizes[layer + 1],
        .model = "asp",
        .update = "assign",
    };
}

size_t app_layers_describe(const AppLayers *layers, const App *app, AppArray *arrays)
{
    static const RubatoTableSpec steps = { .name = APP_LAYERS_STEPS,
                                           .dtype = RUBATO_F64,
                                           .n_keys = 1,
                                           .model = "asp",
                                           .update = "assign" };
    const uint32_t n_layers = layers->shape.n_layers;
    size_t n = 0;

    for (uint32_t l = 0; l < n_layers; l++)
        arrays[n++] = (AppArray){ .name = layers->names[l], .spec = weights_spec(layers, app, l) };
    if (n_states_of(layers) == 0)
        return n;
    for (uint32_t l = 0; l < n_layers; l++)
        arrays[n++] = (AppArray){ .name = layers->states[l],
                                  .spec = states_spec(layers, l),
                                  .is_state = true };
    arrays[n++] = (AppArray){ .name = APP_LAYERS_STEPS, .spec = steps, .is_state = true };
    return n;
}

/* ---- weights between tasks ---- */

bool app_layers_fetch(const AppLayers *layers, const App *app, float **weights, GError **error)
{
    const AppNetShape *const shape = &layers->shape;

    for (uint32_t l = 0; l < shape->n_layers; l++) {
        if (weights[l] != NULL)
            continue;
        weights[l] = g_try_new(float, app_net_layer_values(shape, l));
        if (weights[l] == NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %s",
                        layers->names[l]);
            return false;
        }
        if (!rubato_engine_get_range(app->engine, layers->names[l], 0, shape->sizes[l + 1],
                                     weights[l], error)) {
            g_clear_pointer(&weights[l], g_free);
            return false;
        }
    }
    return true;
}

void app_layers_forget(float **weights)
{
    for (uint32_t l = 0; l < APP_NET_LAYERS_MAX; l++)
        g_clear_pointer(&weights[l], g_free);
}
