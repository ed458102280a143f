/* The model's tables: created, and filled where there is a model to load. Runs on main's thread.
 *
 * The files are opened and checked inside a task, by worker 0: what is wrong with them so fails on
 * every node, and nobody waits for a node that has given up. */
#include "apps/app_model.h"

static bool create_tables(const App *app, const AppModel *model, GError **error)
{
    for (size_t i = 0; i < model->n_arrays; i++) {
        RubatoTableSpec spec = model->arrays[i].spec;

        app_set_model(app, &spec);
        if (!rubato_engine_create_table(app->engine, &spec, error))
            return false;
    }
    return true;
}

typedef struct {
    const App *app;
    const AppModel *model;
    AppModelFiles *files; /* worker 0's node only */
} Opening;

static bool open_files(RubatoWorker *worker, void *user_data, GError **error)
{
    Opening *opening = user_data;

    if (rubato_worker_rank(worker) != 0)
        return true;
    opening->files = app_model_open(opening->app, opening->model, error);
    return opening->files != NULL;
}

static bool load(const App *app, const AppModel *model, GError **error)
{
    Opening opening = { .app = app, .model = model };
    const RubatoTask task = { .name = "load", .run = open_files, .user_data = &opening };
    const bool good = rubato_engine_run(app->engine, &task, error);
    g_autoptr(AppModelFiles) files = opening.files;

    return good && (files == NULL || app_model_fill(app, model, files, error)) &&
           rubato_engine_barrier(app->engine, error);
}

bool app_create_model(App *app, const AppModel *model, GError **error)
{
    if (app->predict != NULL && model->predict == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "--predict: %s does not predict",
                    app->program->name);
        return false;
    }
    return create_tables(app, model, error) && (app->load == NULL || load(app, model, error));
}
