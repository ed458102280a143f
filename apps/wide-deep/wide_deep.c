/* rubato-wide-deep: wide and deep models on sparse rows (wide_deep_model.h).
 *
 * What is sparse lies in hash tables, of which a step gets the rows that its batch uses, and adds
 * their gradients. What is dense, the net, each worker has, and gradients are combined by
 * allreduce. wide_deep_train.c has what workers do with both. */
#include "apps/kit/app_validation.h"
#include "apps/kit/net/app_products.h"
#include "apps/kit/scores/app_score.h"
#include "apps/wide-deep/wide_deep_job.h"

/* ---- scores ---- */

/* An AppScoreFunc. The net is fetched with the first batch, and forgotten when it changes. */
static bool score(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    WideDeepJob *job = user_data;
    const WideDeepModel *const model = &job->model;
    RubatoEngine *const engine = job->app.engine;
    g_auto(WideDeepWorkspace) workspace = { .n_wide = 0 };

    if (!app_rows_check_fields(batch, model->n_fields, error) ||
        !wide_deep_workspace_fit(&workspace, model, batch, error) ||
        (model->has_wide && !rubato_engine_get(engine, WIDE_DEEP_WIDE, workspace.wide_keys,
                                               workspace.n_wide, workspace.wide, error)) ||
        (model->has_deep && !rubato_engine_get(engine, WIDE_DEEP_EMBEDDINGS, batch->keys,
                                               batch->n_keys, workspace.embeddings, error)) ||
        !app_layers_fetch(&job->layers, &job->app, job->weights, error))
        return false;
    wide_deep_score(model, batch, &workspace, job->weights, scores);
    return true;
}

/* An AppMeasureFunc. */
static bool validate(double *loss, void *user_data, GError **error)
{
    WideDeepJob *job = user_data;

    app_layers_forget(job->weights);
    return app_score_validation(&job->rows, &job->model.loss, score, job, loss, error);
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    WideDeepJob *job = user_data;

    return app_print_predictions(output, &job->data, &job->rows, path, &job->model.loss, score, job,
                                 error);
}

/* ---- tables ---- */

/* Gradients come as parts of a mean, which add up to it. */
static RubatoTableSpec hash_spec(const WideDeepJob *job, const char *name)
{
    return (RubatoTableSpec){
        .name = name,
        .dtype = RUBATO_F32,
        .storage = "hash",
        .width = 1,
        .update = app_net_rule_names[job->layers.rule],
        .rule = { .learning_rate = job->app.learning_rate },
        .aggregate = RUBATO_AGGREGATE_SUM,
        .seed = job->app.seed,
    };
}

/* Wide weights begin as 0; inputs of the net with about the variance 1. */
static size_t describe_tables(const WideDeepJob *job, AppArray *arrays)
{
    size_t n = 0;

    if (job->model.has_wide)
        arrays[n++] = (AppArray){ .name = WIDE_DEEP_WIDE, .spec = hash_spec(job, WIDE_DEEP_WIDE) };
    if (job->model.has_deep) {
        arrays[n] = (AppArray){ .name = WIDE_DEEP_EMBEDDINGS,
                                .spec = hash_spec(job, WIDE_DEEP_EMBEDDINGS) };
        arrays[n].spec.width = job->model.width;
        arrays[n].spec.init = "normal";
        arrays[n++].spec.init_stddev = 1;
    }
    n += app_layers_describe(&job->layers, &job->app, arrays + n);
    if (job->rows.standardised)
        arrays[n++] = (AppArray){ .name = APP_SCALING, .spec = app_features_table() };
    return n;
}

/* ---- the run ---- */

static bool train_model(WideDeepJob *job, const AppModel *model, GError **error)
{
    App *app = &job->app;
    const RubatoTask task = {
        .name = "wide-deep", .run = wide_deep_train, .user_data = job, .tables = job->tables
    };

    if (job->rows.train == NULL || app->epochs == 0)
        return true;
    const bool good =
        app_train_validated(app, &task, job->rows.n_rows, model, validate, job, error);
    app_layers_forget(job->weights);
    return good;
}

static bool run(WideDeepJob *job, GError **error)
{
    App *app = &job->app;
    AppArray arrays[2 + APP_LAYERS_TABLES_MAX + 1];
    char width[16], n_fields[16];
    g_autofree char *crosses = wide_deep_crosses_text(&job->model);
    const AppSetting settings[] = {
        { "parts", wide_deep_parts_text(&job->model) },
        { "crosses", crosses },
        { "embedding", width },
        { "hidden", job->hidden },
        { "fields", n_fields },
        { app_rows_setting(&job->rows), "yes" },
        { NULL, NULL },
    };
    const AppNumber numbers[] = {
        { "negative", &job->model.loss.negative },
        { "positive", &job->model.loss.positive },
        { NULL, NULL },
    };
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = describe_tables(job, arrays),
        .settings = settings,
        .numbers = numbers,
        .predict = predict,
        .user_data = job,
    };

    g_snprintf(width, sizeof width, "%u", job->model.width);
    g_snprintf(n_fields, sizeof n_fields, "%u", job->model.n_fields);
    return app_create_model(app, &model, error) && app_rows_settle(&job->rows, app, error) &&
           train_model(job, &model, error) &&
           app_add_score_metrics(app, &job->rows, &job->model.loss, score, job, error) &&
           app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    WideDeepJob job;

    if (!wide_deep_parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    app_products_begin();
    if (app_start(&job.app, &error) && wide_deep_load(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    return wide_deep_end(&job, error);
}
