/* The model's tables: created, filled from files, saved. Runs on main's thread. */
#include "apps/app.h"

static bool create_tables(App *app, const AppModel *model, GError **error)
{
    for (size_t i = 0; i < model->n_arrays; i++) {
        RubatoTableSpec spec = model->arrays[i].spec;

        app_set_model(app, &spec);
        if (!rubato_engine_create_table(app->engine, &spec, error))
            return false;
    }
    return true;
}

static bool refuse_files(const App *app, GError **error)
{
    if (app->load == NULL && app->save == NULL && app->predict == NULL && app->plot == NULL)
        return true;
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "--load, --save, --predict and --plot: not yet");
    return false;
}

bool app_model_shape(const App *app, const char *array, uint32_t *width, uint64_t *n_keys,
                     GError **error)
{
    (void)array;
    (void)width;
    (void)n_keys;
    return refuse_files(app, error);
}

bool app_create_model(App *app, const AppModel *model, GError **error)
{
    return refuse_files(app, error) && create_tables(app, model, error);
}

bool app_finish(App *app, const AppModel *model, GError **error)
{
    (void)model;
    return app_report(app, error);
}
