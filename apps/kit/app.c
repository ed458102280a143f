/* The frame of a program: engine, training run, end. Runs on main's thread, except for the workers'
 * functions.
 *
 * While a task runs, worker 0 owns the members of App that it writes; main reads them when the task
 * has ended. */
#include "apps/kit/app_checkpoint.h"
#include "apps/kit/app_signal.h"
#include "apps/kit/app_stream.h"
#include "apps/kit/model/app_model.h"
#include "apps/kit/report/app_file.h"
#include "apps/kit/report/app_gnuplot.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FINAL_RATE 0.05
#define FAR_ABOVE 2 /* how many times the first loss */

void app_note(App *app, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_ptr_array_add(app->notes, g_strdup_vprintf(format, arguments));
    va_end(arguments);
}

bool app_reports(const App *app)
{
    return app->reports;
}

/* A program that trains on rows in files can also predict a glob of files. */
static bool check_input(const App *app, GError **error)
{
    if (app->predict == NULL || strpbrk(app->predict, "*?[") != NULL ||
        g_access(app->predict, R_OK) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "--predict %s: cannot be opened: %s",
                app->predict, g_strerror(errno));
    return false;
}

/* Checks what would otherwise fail only at the end, on the reporting node. */
static bool check_flags(App *app, void *data, GError **error)
{
    (void)data;
    return (app->save == NULL || app_model_check_place(app->save, error)) &&
           app_checkpoint_check(app, error) && check_input(app, error) &&
           (app->predict == NULL || app_file_check("--output", app->output, error)) &&
           app_file_check("--json", app->json, error) &&
           app_file_check("--plot", app->plot, error) &&
           (app->plot == NULL || app_gnuplot_check(error));
}

typedef struct {
    App *app;
    AppReporterFunc function;
    void *data;
    GError *cause; /* the reporting node's */
} Call;

static bool call_on_reporter(RubatoWorker *worker, void *user_data, GError **error)
{
    Call *call = user_data;

    if (rubato_worker_rank(worker) != 0)
        return true;
    call->app->reports = true;
    if (call->function(call->app, call->data, &call->cause))
        return true;
    g_propagate_error(error, g_error_copy(call->cause));
    return false;
}

bool app_call_on_reporter(App *app, const char *what, AppReporterFunc function, void *data,
                          GError **error)
{
    Call call = { .app = app, .function = function, .data = data };
    const RubatoTask task = { .name = what, .run = call_on_reporter, .user_data = &call };
    g_autoptr(GError) failure = NULL;

    if (rubato_engine_run(app->engine, &task, &failure))
        return true;
    /* On the node where it happened, the error does not name the node. */
    g_propagate_error(error, call.cause != NULL ? call.cause : g_steal_pointer(&failure));
    return false;
}

bool app_start(App *app, GError **error)
{
    const RubatoEngineConfig config = {
        .cluster_file = app->cluster,
        .node = app->node,
        .servers = app->servers,
        .workers = app->workers,
        .bind_cores = app->bind_cores,
        .numa = app->numa,
        .handle_signals = true,
        .take_signal = app_signal_take,
        .signal_data = app,
        .announcement = app->announcement.role != RUBATO_ROLE_NONE ? &app->announcement : NULL,
    };

    /* A file that is longer than the system allows is an error of one write, not the end. */
    (void)signal(SIGXFSZ, SIG_IGN);
    app->engine = rubato_engine_new(&config, error);
    return app->engine != NULL && app_call_on_reporter(app, "start", check_flags, NULL, error) &&
           (app->load == NULL || app_description_load(app, error));
}

void app_set_model(const App *app, RubatoTableSpec *spec)
{
    spec->model = app->model;
    spec->staleness = app->staleness;
    spec->speculation = app->speculation;
    spec->parts = app->parts;
}

bool app_create_table(const App *app, const RubatoTableSpec *spec, GError **error)
{
    RubatoTableSpec replicated = *spec;

    replicated.replicas = app->replicas;
    return rubato_engine_create_table(app->engine, &replicated, error);
}

/* The task's tables, and those in which the workers collect their totals and waits. */
static const char **add_own_tables(const App *app, const char *const *tables)
{
    const guint n = tables != NULL ? g_strv_length((char **)(uintptr_t)tables) : 0;
    const char **all = g_new0(const char *, n + 4);

    for (guint i = 0; i < n; i++)
        all[i] = tables[i];
    all[n] = APP_TOTALS;
    all[n + 1] = APP_WAITS;
    all[n + 2] = app->keeps_rows ? APP_ROWS_DONE : NULL;
    return all;
}

char *app_divergence_text(const App *app, const char *what, double loss)
{
    const double shown = isnan(loss) ? fabs(loss) : loss; /* the sign of NaN tells nothing */
    const AppData *data = app->program->data;
    const char *scaling = data == NULL || app->program->no_standardize != NULL
                              ? " or scale the data"
                          : !data->standardize ? " or scale the data (--standardize)"
                                               : "";

    return g_strdup_printf("training diverges: the loss %s %g. Take a smaller --learning-rate "
                           "(it was %g)%s",
                           what, shown, app->learning_rate, scaling);
}

void app_warn_of_divergence(App *app, const char *what, double loss)
{
    g_autofree char *text = app_divergence_text(app, what, loss);

    if (!app->diverged)
        g_printerr("%s: %s\n", app->program->name, text);
    app->diverged = true;
}

/* A run that has ended with a loss far above the first one has not learned. With a loaded model the
 * first loss may be very small. */
static void check_last_loss(App *app, double loss_sum)
{
    const double last = app_curve_loss(&app->curve);

    if (!isfinite(loss_sum)) {
        app_warn_of_divergence(app, "is", loss_sum);
    } else if (app->load == NULL && app->curve.points->len > 0) {
        const double first = g_array_index(app->curve.points, AppCurvePoint, 0).loss;

        if (first > 0 && last > FAR_ABOVE * first)
            app_warn_of_divergence(app, "has risen to", last);
    }
}

/* What the workers told last, when all have ended. */
static void take_totals(App *app, const double *totals)
{
    app->n_samples = (uint64_t)totals[APP_TOTAL_ROWS];
    app_curve_end(&app->curve, app->seconds, totals[APP_TOTAL_ROWS], totals[APP_TOTAL_LOSS],
                  totals[APP_TOTAL_METRIC]);
    check_last_loss(app, totals[APP_TOTAL_LOSS]);
}

bool app_training_begin(App *app, uint64_t n_rows, GError **error)
{
    const RubatoTableSpec spec = {
        .name = APP_TOTALS, .dtype = RUBATO_F64, .width = APP_N_TOTALS, .n_keys = 1
    };
    const bool is_fixed =
        app->program->data == NULL || app->program->data->split == RUBATO_SPLIT_FIXED;

    app->n_rows = n_rows;
    app_curve_init(&app->curve, n_rows);
    if (!app_create_table(app, &spec, error))
        return false;
    if (app->reports)
        for (guint i = 0; i < app->notes->len; i++)
            g_printerr("%s: %s\n", app->program->name, (const char *)app->notes->pdata[i]);
    app_progress_begin(&app->progress, app->epochs, app->n_rows * app->epochs);
    app->keeps_at_signals = app->save != NULL; /* until app_finish has saved it */
    app->takes_cuts = app->checkpoint != NULL && app->program->has_steps &&
                      (is_fixed || app->program->keeps_rows);
    app->keeps_rows = app->takes_cuts && !is_fixed;
    app->cuts_at_signals = app->takes_cuts;
    app->ends_at_signals = app->checkpoint != NULL && !app->takes_cuts;
    app->checkpoint_us = app->stream_written_us = g_get_monotonic_time();
    return app_signal_begin(app, error);
}

/* Of streams, on the node with worker 0. */
static uint64_t count_missed_versions(const App *app)
{
    RubatoEngineStats stats;

    rubato_engine_stats(app->engine, &stats);
    return stats.missed_versions;
}

bool app_training_run(App *app, const RubatoTask *task, GError **error)
{
    const uint64_t n_missed = count_missed_versions(app);
    RubatoTask whole = *task;
    g_autofree const char **tables = add_own_tables(app, task->tables);
    const RubatoTaskStream stream = app_stream_of(app, task->tables);
    const RubatoTableSpec waits = app_waits_table();

    whole.tables = tables;
    whole.stream = app->stream != NULL ? &stream : NULL;
    app->tables = task->tables;
    if (!app_create_table(app, &waits, error))
        return false;
    /* as if there had been nothing between two tasks */
    app->begun_us = g_get_monotonic_time() - (int64_t)(app->seconds * G_USEC_PER_SEC);
    const bool good = rubato_engine_run(app->engine, &whole, error);
    app->seconds = (double)(g_get_monotonic_time() - app->begun_us) / G_USEC_PER_SEC;
    app->lacks_version = count_missed_versions(app) > n_missed;
    return good &&
           (!app->reports || app_waits_read(&app->waits, app->engine,
                                            rubato_engine_n_workers(app->engine), error)) &&
           rubato_engine_drop_table(app->engine, APP_WAITS, error);
}

bool app_training_end(App *app, bool good, GError **error)
{
    const RubatoKey key = 0;
    double totals[APP_N_TOTALS] = { 0 };

    app_signal_end(app);
    const bool knows =
        good && app->reports && rubato_engine_get(app->engine, APP_TOTALS, &key, 1, totals, error);

    app->cuts_at_signals = app->ends_at_signals = false;
    app_progress_end(&app->progress,
                     (uint64_t)(totals[APP_TOTAL_ROWS] + totals[APP_TOTAL_SKIPPED]));
    if (knows)
        take_totals(app, totals);
    return good && (knows || !app->reports) &&
           rubato_engine_drop_table(app->engine, APP_TOTALS, error);
}

bool app_train(App *app, const RubatoTask *task, uint64_t n_rows, GError **error)
{
    bool good;

    if (app->epochs == 0)
        return true;
    if (!app_training_begin(app, n_rows, error))
        return false;
    good = app->checkpoint != NULL ? app_checkpoint_train(app, task, error)
                                   : app_training_run(app, task, error);
    return app_training_end(app, good, error);
}

double app_learning_rate(const App *app, uint64_t done, uint64_t total)
{
    return app->learning_rate * (1 - (1 - FINAL_RATE) * (double)done / (double)total);
}

int app_end(App *app, const GError *error)
{
    if (error != NULL)
        g_printerr("%s: %s\n", app->program->name, error->message);
    rubato_engine_free(app->engine);

    const bool has_failed =
        error != NULL && !g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_SERVED);
    const bool lacks = app->lacks_snapshot || app->lacks_version;
    if (lacks && error == NULL) /* also on nodes that have not told why */
        g_printerr("%s: the last %s has failed, so the exit status is %d\n", app->program->name,
                   app->lacks_snapshot ? "snapshot" : "version of the stream", EXIT_FAILURE);
    int status = has_failed || lacks ? EXIT_FAILURE : EXIT_SUCCESS;
    if (app->signal_number != 0)
        status = 128 + app->signal_number; /* as shells say it */
    for (guint i = 0; i < app->metrics->len; i++)
        g_free(g_array_index(app->metrics, AppMetric, i).name);
    g_array_unref(app->metrics);
    g_array_unref(app->table_rows);
    g_ptr_array_unref(app->notes);
    sem_destroy(&app->signals);
    if (app->program->data != NULL)
        app_data_clear(app->program->data);
    g_clear_pointer(&app->description, json_node_unref);
    app_curve_clear(&app->curve);
    g_clear_pointer(&app->validated.epochs, g_array_unref);
    app_waits_clear(&app->waits);
    g_free(app->model);
    g_free(app->json);
    g_free(app->checkpoint);
    g_free(app->stream);
    g_free(app->save);
    g_free(app->load);
    g_free(app->predict);
    g_free(app->output);
    g_free(app->plot);
    g_free(app->cluster);
    return status;
}
