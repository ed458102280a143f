/* Rows to train and to test on, opened as the flags say. Runs on main's thread. */
#include "apps/kit/scores/app_rows.h"

static RubatoDataset *open_rows(const AppData *data, char *const *paths, GError **error)
{
    return app_data_open(data, (const char *const *)paths, error);
}

typedef struct {
    AppRows *rows;
    const AppData *data;
} Opening;

/* Of a loaded model, which is tested on the reporting node alone. */
static bool open_test(App *app, void *user_data, GError **error)
{
    const Opening *opening = user_data;

    (void)app;
    opening->rows->test = open_rows(opening->data, opening->data->test, error);
    return opening->rows->test != NULL;
}

bool app_rows_open(AppRows *rows, App *app, AppData *data, AppLoss *loss, GError **error)
{
    RubatoDataSummary summary;

    *rows = (AppRows){ .scale = 1 };
    if (app_only_loads(app))
        return data->test == NULL ||
               app_call_on_reporter(app, "open", open_test, &(Opening){ rows, data }, error);
    rows->train = open_rows(data, data->train, error);
    if (rows->train != NULL && data->loaded_keys == NULL)
        data->keys = rubato_dataset_keys(rows->train);
    if (rows->train == NULL || !rubato_dataset_summary(rows->train, &summary, error) ||
        !app_loss_fit(loss, &summary, rubato_dataset_keys(rows->train), data->train[0], error))
        return false;
    app_data_note_columns(app, data, rubato_dataset_keys(rows->train));
    app_data_note_bad_rows(app, &summary);
    rows->n_rows = summary.n_rows;
    rows->n_fields = summary.n_fields;
    rows->scale = 1.0 / (double)MIN(app->batch_size, summary.n_rows);
    if (data->test != NULL)
        rows->test = open_rows(data, data->test, error);
    return data->test == NULL || rows->test != NULL;
}

void app_rows_clear(AppRows *rows)
{
    rubato_dataset_free(rows->train);
    rubato_dataset_free(rows->test);
    *rows = (AppRows){ .train = NULL };
}

AppReadAhead *app_rows_read(const AppRows *rows, const App *app, const AppData *data,
                            RubatoWorker *worker, GError **error)
{
    const RubatoReaderOptions options =
        app_data_reader_options(app, data, rubato_worker_n_workers(worker));

    return app_read_ahead_new(rubato_worker_open_reader(worker, rows->train, &options, error),
                              MAX(1, app->speculation));
}
