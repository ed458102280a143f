/* Rows to train and to test on, opened as the flags say. Runs on main's thread. */
#include "apps/kit/scores/app_rows.h"

#define SETTING "standardize"

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

/* Whether values are standardised: as the flag says, or the loaded model. */
static bool take_standardised(AppRows *rows, const App *app, const AppData *data, GError **error)
{
    const bool loaded = g_strcmp0(app_loaded_setting(app, SETTING), "yes") == 0;

    rows->standardised = data->standardize || loaded;
    return app->load == NULL || loaded || !data->standardize ||
           app_refuse(error,
                      "--standardize: the model in %s was trained without; leave it out, or "
                      "train anew without --load",
                      app->load);
}

static bool open_validation(App *app, void *user_data, GError **error)
{
    const Opening *opening = user_data;
    RubatoDataSummary summary;

    opening->rows->validation = app_data_open_validation(opening->data, error);
    if (opening->rows->validation == NULL || opening->data->held_out <= 0)
        return opening->rows->validation != NULL;
    if (!rubato_dataset_summary(opening->rows->validation, &summary, error))
        return false;
    app_note(app,
             "validated with %" G_GUINT64_FORMAT " of the %" G_GUINT64_FORMAT
             " rows, which are not trained on",
             summary.n_rows, summary.n_rows + opening->rows->n_rows);
    return true;
}

/* With softmax: the classes of all rows, also those that only rows set aside have. */
static bool learn_classes(AppLoss *loss, RubatoDataset *train, const AppData *data, GError **error)
{
    g_autoptr(RubatoDataset) held_out = NULL;

    if (loss->kind != APP_LOSS_SOFTMAX || loss->classes != NULL)
        return true;
    if (!app_loss_learn_classes(loss, train, data->train[0], error))
        return false;
    if (data->held_out <= 0)
        return true;
    held_out = app_data_open_validation(data, error);
    return held_out != NULL && app_loss_learn_classes(loss, held_out, data->train[0], error);
}

/* What no flag says. With classes each row tells little of each key's many weights, so a penalty is
 * needed; this one is C = 1 of liblinear and scikit-learn. */
static void settle_l2(double *l2, const AppLoss *loss, uint64_t n_rows)
{
    if (*l2 <= APP_NOT_GIVEN)
        *l2 = loss->kind == APP_LOSS_SOFTMAX ? 1 / (double)n_rows : 0;
}

static bool learn_features(AppRows *rows, const AppLoss *loss, double *l2, GError **error)
{
    if (l2 != NULL)
        settle_l2(l2, loss, rows->n_rows);
    if (!rows->standardised && (l2 == NULL || *l2 <= 0))
        return true;
    rows->features = app_features_learn(rows->train, error);
    return rows->features != NULL;
}

/* A large fraction of few rows may be all of them. */
static bool check_left(const RubatoDataSummary *train, const AppData *data, GError **error)
{
    if (train->n_rows > 0 || data->held_out <= 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: expected rows to train on, found none that --validate %g leaves",
                data->train[0], data->held_out);
    return false;
}

bool app_rows_open(AppRows *rows, App *app, AppData *data, AppLoss *loss, double *l2,
                   GError **error)
{
    RubatoDataSummary summary;

    *rows = (AppRows){ .scale = 1 };
    if (!take_standardised(rows, app, data, error))
        return false;
    if (app_only_loads(app))
        return data->test == NULL ||
               app_call_on_reporter(app, "open", open_test, &(Opening){ rows, data }, error);
    rows->train = app_data_open_train(data, error);
    if (rows->train != NULL && data->loaded_keys == NULL)
        data->keys = rubato_dataset_keys(rows->train);
    if (rows->train == NULL || !rubato_dataset_summary(rows->train, &summary, error) ||
        !check_left(&summary, data, error) ||
        !app_loss_fit(loss, &summary, rubato_dataset_keys(rows->train), data->train[0], error))
        return false;
    if (!learn_classes(loss, rows->train, data, error))
        return false;
    app_data_note_columns(app, data, rubato_dataset_keys(rows->train));
    app_data_note_bad_rows(app, &summary);
    rows->n_rows = summary.n_rows;
    rows->n_fields = summary.n_fields;
    if (!app->has_batch_size && loss->kind == APP_LOSS_SOFTMAX &&
        app->program->batch_size_softmax > 0)
        app->batch_size = app->program->batch_size_softmax;
    rows->scale = 1.0 / (double)MIN(app->batch_size, summary.n_rows);
    if (!learn_features(rows, loss, l2, error))
        return false;
    app->validated.patience = (uint32_t)data->patience;
    if (app_data_validates(data) &&
        !app_call_on_reporter(app, "open", open_validation, &(Opening){ rows, data }, error))
        return false;
    if (data->test != NULL)
        rows->test = open_rows(data, data->test, error);
    return data->test == NULL || rows->test != NULL;
}

void app_rows_clear(AppRows *rows)
{
    rubato_dataset_free(rows->train);
    rubato_dataset_free(rows->test);
    rubato_dataset_free(rows->validation);
    app_features_free(rows->features);
    *rows = (AppRows){ .train = NULL };
}

bool app_rows_check_fields(const RubatoBatch *batch, uint32_t n_fields, GError **error)
{
    for (size_t e = 0; batch->field != NULL && e < batch->n_entries; e++)
        if (batch->field[e] >= n_fields) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "a row has field %u: the rows to train on have fields from 0 to %u",
                        batch->field[e], n_fields - 1);
            return false;
        }
    return true;
}

bool app_rows_settle(AppRows *rows, const App *app, GError **error)
{
    return !rows->standardised || app_features_settle(&rows->features, app, error);
}

const char *app_rows_setting(const AppRows *rows)
{
    return rows->standardised ? SETTING : NULL;
}

const AppFeatures *app_rows_scaling(const AppRows *rows)
{
    return rows->standardised ? rows->features : NULL;
}

AppReadAhead *app_rows_read(const AppRows *rows, const App *app, const AppData *data,
                            RubatoWorker *worker, AppWorker *self, GError **error)
{
    const uint32_t n_workers = rubato_worker_n_workers(worker), rank = rubato_worker_rank(worker);
    const RubatoReaderOptions options = app_data_reader_options(app, data, n_workers);
    RubatoReader *const reader = rubato_worker_open_reader(worker, rows->train, &options, error);
    AppReadAhead *const ahead =
        app_read_ahead_new(reader, MAX(1, app->speculation), app_rows_scaling(rows));

    if (ahead == NULL)
        return NULL;
    app_worker_keep_rows(self, reader);
    /* Of a dynamic split the reader has the rows that are left; who had the others is not known. */
    app_worker_skip(self,
                    app->keeps_rows
                        ? app->n_rows_before / n_workers + (rank < app->n_rows_before % n_workers)
                        : app_read_ahead_skip(ahead, app_worker_first_step(self)));
    return ahead;
}
