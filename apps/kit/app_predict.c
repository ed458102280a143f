/* --predict. Runs on main's thread, on the reporting node. */
#include "apps/kit/app.h"
#include "apps/kit/report/app_file.h"

typedef struct {
    const App *app;
    const AppModel *model;
} Prediction;

static bool write_predictions(FILE *file, void *data, GError **error)
{
    const Prediction *prediction = data;

    return prediction->model->predict(prediction->app->predict, file, prediction->model->user_data,
                                      error);
}

bool app_predict(const App *app, const AppModel *model, GError **error)
{
    Prediction prediction = { app, model };

    return app_file_write("--output", app->output, write_predictions, &prediction, error);
}
