/* The result card: what ran, how fast, how good; as text for people and as JSON for programs.
 * Runs on main's thread. */
#include "apps/kit/model/app_model.h"
#include "apps/kit/report/app_file.h"
#include "apps/kit/report/app_table_rows.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>

void app_add_metric(App *app, const char *name, double value)
{
    const AppMetric metric = { g_strdup(name), value };

    g_array_append_val(app->metrics, metric);
}

/* Those of nodes that were in the run. */
typedef struct {
    uint32_t n_nodes, n_servers;
} RunSize;

static RunSize run_size(const App *app)
{
    size_t n = 0;
    RubatoNodeState *const states =
        app->engine != NULL ? rubato_engine_list_nodes(app->engine, &n) : NULL;
    RunSize size = { 0 };

    for (size_t i = 0; i < n; i++) {
        if (states[i].is_spare)
            continue;
        size.n_nodes++;
        size.n_servers += states[i].servers;
    }
    rubato_node_states_free(states, n);
    return size;
}

static uint32_t n_workers(const App *app)
{
    return app->engine != NULL ? rubato_engine_n_workers(app->engine) : 0;
}

/* Which threads of this node are bound where; NULL: none. */
static const char *app_binding(const App *app)
{
    return app->engine != NULL ? rubato_engine_binding(app->engine) : NULL;
}

/* The faults on demand of this run; NULL: none. */
static const char *app_faults(const App *app)
{
    return app->engine != NULL ? rubato_engine_faults(app->engine) : NULL;
}

/* How many nodes are in the run no more, which went on without them. */
typedef struct {
    uint32_t n_lost, n_drained;
} GoneNodes;

static GoneNodes count_gone_nodes(const App *app)
{
    size_t n = 0;
    GoneNodes gone = { 0, 0 };
    RubatoNodeState *states;

    if (app->engine == NULL || app->replicas == 0)
        return gone;
    states = rubato_engine_list_nodes(app->engine, &n);
    for (size_t i = 0; i < n; i++) {
        gone.n_lost += states[i].is_lost && !states[i].is_drained;
        gone.n_drained += states[i].is_drained;
    }
    rubato_node_states_free(states, n);
    return gone;
}

static uint64_t n_new_replicas(const App *app)
{
    RubatoEngineStats stats = { .new_replicas = 0 };

    if (app->engine != NULL)
        rubato_engine_stats(app->engine, &stats);
    return stats.new_replicas;
}

static double samples_per_second(const App *app)
{
    return app->seconds > 0 ? (double)app->n_samples / app->seconds : 0;
}

static void add_count(GString *text, uint32_t n, const char *what)
{
    g_string_append_printf(text, "%u %s%s, ", n, what, n == 1 ? "" : "s");
}

char *app_run_text(const App *app)
{
    const RunSize size = run_size(app);
    GString *text = g_string_new(NULL);

    add_count(text, size.n_nodes, "node");
    add_count(text, size.n_servers, "server");
    add_count(text, n_workers(app), "worker");
    g_string_append(text, app->model);
    if (app->model_traits->lead == RUBATO_LEAD_STALENESS)
        g_string_append_printf(text, ", staleness %u", app->staleness);
    if (app->model_traits->takes_announcements)
        g_string_append_printf(text, ", speculation %u", app->speculation);
    if (app->replicas > 0)
        g_string_append_printf(text, ", %u replica%s", app->replicas,
                               app->replicas == 1 ? "" : "s");
    return g_string_free(text, FALSE);
}

/* What was done of what was to be done: "10 epochs", "2.31 of 10 epochs". (transfer full) */
static char *epochs_text(const App *app)
{
    const char *ending = app->epochs == 1 ? "" : "s";

    if (app->stopped == APP_STOPPED_NOT)
        return g_strdup_printf("%u epoch%s", app->epochs, ending);
    return g_strdup_printf("%.2f of %u epoch%s", (double)app->n_samples / (double)app->n_rows,
                           app->epochs, ending);
}

static void add_training(GString *text, const App *app)
{
    g_autofree char *epochs = epochs_text(app);
    char samples[32], speed[32];

    app_format_count(app->n_samples, samples, sizeof samples);
    app_format_count((uint64_t)samples_per_second(app), speed, sizeof speed);
    g_string_append_printf(text, "  %-14s %s, %s samples in %.2f s, %s samples/s\n", "training",
                           epochs, samples, app->seconds, speed);
    if (app->stopped == APP_STOPPED_BY_TIME)
        g_string_append_printf(text, "  %-14s after the time limit of %g s\n", "stopped",
                               app->time_limit);
    if (app->stopped == APP_STOPPED_BY_SIGNAL)
        g_string_append_printf(text, "  %-14s by a signal\n", "stopped");
    if (app->stopped == APP_STOPPED_BY_CONVERGENCE)
        g_string_append_printf(text, "  %-14s by convergence\n", "stopped");
    if (app->stopped == APP_STOPPED_BY_LOSS)
        g_string_append_printf(text, "  %-14s at the target loss of %g\n", "stopped",
                               app->target_loss);
}

static void add_validation(GString *text, const App *app)
{
    const AppValidated *validated = &app->validated;

    if (app->stopped == APP_STOPPED_BY_PATIENCE)
        g_string_append_printf(text, "  %-14s after %u epochs without a better validation loss\n",
                               "stopped", validated->patience);
    if (validated->best_epoch > 0)
        g_string_append_printf(text, "  %-14s of epoch %u, with validation loss %.4f\n", "model",
                               validated->best_epoch, validated->best_loss);
}

char *app_card_text(const App *app)
{
    GString *text = g_string_new(NULL);
    g_autofree char *run = app_run_text(app);
    const GoneNodes gone = count_gone_nodes(app);

    g_string_append_printf(text, "%s\n  %-14s %s\n", app->program->name, "run", run);
    if (app_faults(app) != NULL)
        g_string_append_printf(text, "  %-14s %s\n", "FAULTS", app_faults(app));
    if (app_binding(app) != NULL)
        g_string_append_printf(text, "  %-14s %s\n", "bound", app_binding(app));
    if (gone.n_lost > 0)
        g_string_append_printf(text, "  %-14s %u of %u, and the run went on\n", "lost nodes",
                               gone.n_lost, run_size(app).n_nodes);
    if (gone.n_drained > 0)
        g_string_append_printf(text, "  %-14s %u of %u, which left the run in order\n",
                               "drained nodes", gone.n_drained, run_size(app).n_nodes);
    if (n_new_replicas(app) > 0)
        g_string_append_printf(
            text, "  %-14s %" G_GUINT64_FORMAT " of parts, in the place of those that are gone\n",
            "new replicas", n_new_replicas(app));
    if (app->epochs > 0)
        add_training(text, app);
    add_validation(text, app);
    app_waits_add_text(&app->waits, text);
    app_table_rows_add_text(app->table_rows, text);
    for (guint i = 0; i < app->metrics->len; i++) {
        const AppMetric *metric = &g_array_index(app->metrics, AppMetric, i);
        g_autofree char *name = g_strdelimit(g_strdup(metric->name), "_", ' ');

        if (g_str_has_suffix(name, "accuracy"))
            g_string_append_printf(text, "  %-14s %.2f %%\n", name, metric->value * 100);
        else if (g_str_has_prefix(name, "nonzero"))
            g_string_append_printf(text, "  %-14s %.0f\n", name, metric->value);
        else
            g_string_append_printf(text, "  %-14s %.4f\n", name, metric->value);
    }
    return g_string_free(text, FALSE);
}

/* JSON has no infinities and no NaN. */
static void add_value(JsonBuilder *builder, double value)
{
    if (isfinite(value))
        json_builder_add_double_value(builder, value);
    else
        json_builder_add_null_value(builder);
}

static void add_double(JsonBuilder *builder, const char *name, double value)
{
    json_builder_set_member_name(builder, name);
    add_value(builder, value);
}

/* The curve, an array for each of its columns. */
static void add_curve_column(JsonBuilder *builder, const App *app, const char *name, size_t offset)
{
    const GArray *points = app->curve.points;

    json_builder_set_member_name(builder, name);
    json_builder_begin_array(builder);
    for (guint i = 0; points != NULL && i < points->len; i++) {
        const AppCurvePoint *point = &g_array_index(points, AppCurvePoint, i);

        add_value(builder, G_STRUCT_MEMBER(double, point, offset));
    }
    json_builder_end_array(builder);
}

static void add_curve(JsonBuilder *builder, const App *app)
{
    json_builder_set_member_name(builder, "curve");
    json_builder_begin_object(builder);
    add_curve_column(builder, app, "seconds", offsetof(AppCurvePoint, seconds));
    add_curve_column(builder, app, "epoch", offsetof(AppCurvePoint, epoch));
    add_curve_column(builder, app, "loss", offsetof(AppCurvePoint, loss));
    if (app->program->metric != NULL)
        add_curve_column(builder, app, app->program->metric, offsetof(AppCurvePoint, metric));
    json_builder_end_object(builder);
}

/* Only of a run that was validated. */
static void add_validated(JsonBuilder *builder, const App *app)
{
    const GArray *epochs = app->validated.epochs;

    if (epochs == NULL)
        return;
    json_builder_set_member_name(builder, "validation");
    json_builder_begin_object(builder);
    app_json_add_int(builder, "best_epoch", app->validated.best_epoch);
    for (int column = 0; column < 3; column++) {
        static const char *const names[] = { "epoch", "seconds", "loss" };

        json_builder_set_member_name(builder, names[column]);
        json_builder_begin_array(builder);
        for (guint i = 0; i < epochs->len; i++) {
            const AppValidatedEpoch *epoch = &g_array_index(epochs, AppValidatedEpoch, i);

            add_value(builder, column == 0   ? epoch->epoch
                               : column == 1 ? epoch->seconds
                                             : epoch->loss);
        }
        json_builder_end_array(builder);
    }
    json_builder_end_object(builder);
}

static const char *stopped_name(AppStopped stopped)
{
    switch (stopped) {
    case APP_STOPPED_BY_TIME:
        return "time-limit";
    case APP_STOPPED_BY_LOSS:
        return "target-loss";
    case APP_STOPPED_BY_SIGNAL:
        return "signal";
    case APP_STOPPED_BY_PATIENCE:
        return "patience";
    case APP_STOPPED_BY_CONVERGENCE:
        return "convergence";
    case APP_STOPPED_NOT:
        break;
    }
    return NULL;
}

char *app_card_json(const App *app)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const GoneNodes gone = count_gone_nodes(app);

    json_builder_begin_object(builder);
    app_json_add_text(builder, "app", app->program->name);
    app_json_add_int(builder, "nodes", run_size(app).n_nodes);
    app_json_add_int(builder, "servers", run_size(app).n_servers);
    app_json_add_int(builder, "workers", n_workers(app));
    app_json_add_text(builder, "model", app->model);
    app_json_add_int(builder, "staleness", app->staleness);
    app_json_add_int(builder, "speculation", app->speculation);
    app_json_add_int(builder, "replicas", app->replicas);
    app_json_add_int(builder, "lost_nodes", gone.n_lost);
    app_json_add_int(builder, "drained_nodes", gone.n_drained);
    app_json_add_int(builder, "new_replicas", n_new_replicas(app));
    app_json_add_text(builder, "faults", app_faults(app));
    if (app_binding(app) != NULL)
        app_json_add_text(builder, "bound", app_binding(app));
    app_json_add_int(builder, "epochs", app->epochs);
    app_json_add_int(builder, "samples", app->n_samples);
    add_double(builder, "seconds", app->seconds);
    add_double(builder, "samples_per_second", samples_per_second(app));
    app_json_add_text(builder, "stopped", stopped_name(app->stopped));
    app_waits_add_json(&app->waits, builder);
    app_table_rows_add_json(app->table_rows, builder);
    json_builder_set_member_name(builder, "metrics");
    json_builder_begin_object(builder);
    for (guint i = 0; i < app->metrics->len; i++) {
        const AppMetric *metric = &g_array_index(app->metrics, AppMetric, i);

        add_double(builder, metric->name, metric->value);
    }
    json_builder_end_object(builder);
    add_curve(builder, app);
    add_validated(builder, app);
    json_builder_end_object(builder);

    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    return json_generator_to_data(generator, NULL);
}

/* Whether all that was printed has been written. */
static bool check_output(GError **error)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_IO,
                        "standard output cannot be written: the result is lost");
    return false;
}

bool app_report(const App *app, GError **error)
{
    const bool json_takes_output = app->json != NULL && strcmp(app->json, "-") == 0;
    const bool output_taken =
        json_takes_output || (app->predict != NULL && strcmp(app->output, "-") == 0);

    if (!app_reports(app))
        return true;

    g_autofree char *text = app_card_text(app);
    if (output_taken)
        g_printerr("%s", text);
    else
        g_print("%s", text);
    if (!output_taken && !check_output(error))
        return false;
    if (app->json == NULL)
        return true;

    g_autofree char *json = app_card_json(app);
    g_autofree char *line = g_strconcat(json, "\n", NULL);
    return app_file_write_text("--json", app->json, line, error);
}

bool app_finish(const App *app, const AppModel *model, GError **error)
{
    for (size_t i = 0; i < model->n_arrays; i++)
        if (!app_table_rows_count(app->table_rows, app->engine, model->arrays[i].name,
                                  &model->arrays[i].spec, error))
            return false;
    if (!app_reports(app))
        return true;
    return (app->save == NULL || app_model_save(app, model, error)) && app_report(app, error) &&
           (app->plot == NULL || app_plot(app, error)) &&
           (app->predict == NULL || app_predict(app, model, error));
}
