/* The result card: what ran, how fast, how good; as text for people and as JSON for programs.
 * Runs on main's thread. */
#include "apps/app.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>

void app_add_metric(App *app, const char *name, double value)
{
    const AppMetric metric = { g_strdup(name), value };

    g_array_append_val(app->metrics, metric);
}

static uint32_t n_nodes(const App *app)
{
    return app->engine != NULL ? rubato_engine_n_nodes(app->engine) : 0;
}

static uint32_t n_servers(const App *app)
{
    return app->engine != NULL ? rubato_engine_n_servers(app->engine) : 0;
}

static uint32_t n_workers(const App *app)
{
    return app->engine != NULL ? rubato_engine_n_workers(app->engine) : 0;
}

static double samples_per_second(const App *app)
{
    return app->seconds > 0 ? (double)app->n_samples / app->seconds : 0;
}

static void add_count(GString *text, uint32_t n, const char *what)
{
    g_string_append_printf(text, "%u %s%s, ", n, what, n == 1 ? "" : "s");
}

static void add_run(GString *text, const App *app)
{
    add_count(text, n_nodes(app), "node");
    add_count(text, n_servers(app), "server");
    add_count(text, n_workers(app), "worker");
    g_string_append(text, app->model);
    if (g_str_has_suffix(app->model, "ssp"))
        g_string_append_printf(text, ", staleness %u", app->staleness);
    if (strcmp(app->model, "sparse_ssp") == 0)
        g_string_append_printf(text, ", speculation %u", app->speculation);
}

char *app_card_text(const App *app)
{
    GString *text = g_string_new(NULL);
    char samples[32], speed[32];

    app_format_count(app->n_samples, samples, sizeof samples);
    app_format_count((uint64_t)samples_per_second(app), speed, sizeof speed);
    g_string_append_printf(text, "%s\n  %-14s ", app->program->name, "run");
    add_run(text, app);
    g_string_append_printf(text, "\n  %-14s %u epoch%s, %s samples in %.2f s, %s samples/s\n",
                           "training", app->epochs, app->epochs == 1 ? "" : "s", samples,
                           app->seconds, speed);
    for (guint i = 0; i < app->metrics->len; i++) {
        const AppMetric *metric = &g_array_index(app->metrics, AppMetric, i);
        g_autofree char *name = g_strdelimit(g_strdup(metric->name), "_", ' ');

        if (g_str_has_suffix(name, "accuracy"))
            g_string_append_printf(text, "  %-14s %.2f %%\n", name, metric->value * 100);
        else
            g_string_append_printf(text, "  %-14s %.4f\n", name, metric->value);
    }
    return g_string_free(text, FALSE);
}

static void add_int(JsonBuilder *builder, const char *name, uint64_t value)
{
    json_builder_set_member_name(builder, name);
    json_builder_add_int_value(builder, (gint64)value);
}

/* JSON has no infinities and no NaN. */
static void add_double(JsonBuilder *builder, const char *name, double value)
{
    json_builder_set_member_name(builder, name);
    if (isfinite(value))
        json_builder_add_double_value(builder, value);
    else
        json_builder_add_null_value(builder);
}

static void add_string(JsonBuilder *builder, const char *name, const char *value)
{
    json_builder_set_member_name(builder, name);
    json_builder_add_string_value(builder, value);
}

char *app_card_json(const App *app)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    add_string(builder, "app", app->program->name);
    add_int(builder, "nodes", n_nodes(app));
    add_int(builder, "servers", n_servers(app));
    add_int(builder, "workers", n_workers(app));
    add_string(builder, "model", app->model);
    add_int(builder, "staleness", app->staleness);
    add_int(builder, "speculation", app->speculation);
    add_int(builder, "epochs", app->epochs);
    add_int(builder, "samples", app->n_samples);
    add_double(builder, "seconds", app->seconds);
    add_double(builder, "samples_per_second", samples_per_second(app));
    json_builder_set_member_name(builder, "metrics");
    json_builder_begin_object(builder);
    for (guint i = 0; i < app->metrics->len; i++) {
        const AppMetric *metric = &g_array_index(app->metrics, AppMetric, i);

        add_double(builder, metric->name, metric->value);
    }
    json_builder_end_object(builder);
    json_builder_end_object(builder);

    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    return json_generator_to_data(generator, NULL);
}

bool app_report(App *app, GError **error)
{
    if (!app_speaks(app))
        return true;

    g_autofree char *text = app_card_text(app);
    if (app->json == NULL) {
        g_print("%s", text);
        return true;
    }
    g_autofree char *json = app_card_json(app);
    g_autofree char *line = g_strconcat(json, "\n", NULL);
    if (strcmp(app->json, "-") == 0) {
        g_printerr("%s", text);
        g_print("%s", line);
        return true;
    }
    g_print("%s", text);

    g_autoptr(GError) cause = NULL;
    if (g_file_set_contents(app->json, line, -1, &cause))
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "--json: %s", cause->message);
    return false;
}
