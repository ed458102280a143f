/* Validated training. An epoch is a task, so between two epochs all Adds are in the tables, under
 * every model. The reporting node measures, and decides whether training goes on; the others read
 * its decision in a table. Runs on main's thread. */
#include "apps/kit/app_validation.h"

#include <math.h>

#include "apps/kit/model/app_model.h"

#define DECISION "app-decision"

/* The rows of a table. */
typedef struct {
    RubatoKey *keys; /* NULL: a range */
    size_t n;
    char *rows;
} Copy;

typedef struct {
    App *app;
    const AppModel *model;
    AppMeasureFunc measure;
    void *user_data;
    Copy *best; /* n_arrays, of the reporting node; rows NULL: none yet */
    uint32_t last_epoch;
} Validation;

/* ---- copies ---- */

static void copy_clear(Copy *copy)
{
    g_free(copy->keys);
    g_free(copy->rows);
    *copy = (Copy){ .keys = NULL };
}

/* Moves some rows between the copy and the table: from the table, unless `put`. */
static bool move(const App *app, const AppArray *array, Copy *copy, size_t from, size_t n, bool put,
                 GError **error)
{
    const char *table = array->spec.name;
    char *rows = copy->rows + from * app_array_row_bytes(array);
    const RubatoKey *keys = copy->keys != NULL ? copy->keys + from : NULL;
    const RubatoKey first = array->spec.first_key + from;

    if (put)
        return keys != NULL ? rubato_engine_set(app->engine, table, keys, n, rows, error)
                            : rubato_engine_set_range(app->engine, table, first, n, rows, error);
    return keys != NULL ? rubato_engine_get(app->engine, table, keys, n, rows, error)
                        : rubato_engine_get_range(app->engine, table, first, n, rows, error);
}

static bool move_all(const App *app, const AppArray *array, Copy *copy, bool put, GError **error)
{
    const size_t chunk = app_array_chunk(array);

    for (size_t from = 0; from < copy->n; from += chunk)
        if (!move(app, array, copy, from, MIN(chunk, copy->n - from), put, error))
            return false;
    return true;
}

static bool copy_table(const App *app, const AppArray *array, Copy *copy, GError **error)
{
    copy_clear(copy);
    copy->n = (size_t)array->spec.n_keys;
    if (app_array_is_hash(array) &&
        !rubato_engine_list_keys(app->engine, array->spec.name, &copy->keys, &copy->n, error))
        return false;
    copy->rows = g_try_malloc((copy->n + 1) * app_array_row_bytes(array));
    if (copy->rows == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "--validate: no memory for a copy of the %zu rows of %s", copy->n, array->name);
        return false;
    }
    return move_all(app, array, copy, /* put= */ false, error);
}

static bool copy_model(const Validation *validation, GError **error)
{
    for (size_t i = 0; i < validation->model->n_arrays; i++)
        if (!copy_table(validation->app, &validation->model->arrays[i], &validation->best[i],
                        error))
            return false;
    return true;
}

/* Every key that a later epoch could have learned was there in the first: the rows of the best
 * epoch are the whole model. */
static bool put_back(const Validation *validation, GError **error)
{
    const AppValidated *validated = &validation->app->validated;

    if (validated->best_epoch == 0 || validated->best_epoch == validation->last_epoch)
        return true;
    for (size_t i = 0; i < validation->model->n_arrays; i++)
        if (!move_all(validation->app, &validation->model->arrays[i], &validation->best[i],
                      /* put= */ true, error))
            return false;
    return true;
}

/* ---- after an epoch ---- */

static bool measure(Validation *validation, uint32_t epoch, GError **error)
{
    App *app = validation->app;
    AppValidated *validated = &app->validated;
    AppValidatedEpoch point = { .epoch = epoch, .seconds = app->seconds };

    if (!validation->measure(&point.loss, validation->user_data, error))
        return false;
    const bool is_best =
        isfinite(point.loss) && (validated->best_epoch == 0 || point.loss < validated->best_loss);
    g_array_append_val(validated->epochs, point);
    app_progress_say(&app->progress, "%s: epoch %u: validation loss %.5g%s\n", app->program->name,
                     epoch, point.loss, is_best ? ", the best so far" : "");
    validation->last_epoch = epoch;
    if (is_best) {
        validated->best_epoch = epoch;
        validated->best_loss = point.loss;
        return copy_model(validation, error);
    }
    if (app->stopped == APP_STOPPED_NOT && validated->patience > 0 &&
        epoch - validated->best_epoch >= validated->patience && epoch < app->epochs)
        app->stopped = APP_STOPPED_BY_PATIENCE;
    return true;
}

static bool give_cause(App *app, void *data, GError **error)
{
    GError **cause = data;

    (void)app;
    if (*cause == NULL)
        return true;
    g_propagate_error(error, g_steal_pointer(cause));
    return false;
}

/* The same on all nodes: fails if the reporting node failed, and says what it has decided. */
static bool agree(App *app, GError **cause, bool *goes_on, GError **error)
{
    const RubatoKey key = 0;
    int64_t decision = app->stopped == APP_STOPPED_NOT;

    if (!app_call_on_reporter(app, "validate", give_cause, cause, error) ||
        (app->reports && !rubato_engine_set(app->engine, DECISION, &key, 1, &decision, error)) ||
        !rubato_engine_barrier(app->engine, error) ||
        !rubato_engine_get(app->engine, DECISION, &key, 1, &decision, error))
        return false;
    *goes_on = decision != 0;
    return true;
}

static bool train_epochs(Validation *validation, const RubatoTask *task, GError **error)
{
    App *app = validation->app;
    bool goes_on = true;

    for (uint32_t epoch = 1; goes_on && epoch <= app->epochs; epoch++) {
        g_autoptr(GError) cause = NULL;

        app->only_epoch = epoch;
        if (!app_training_run(app, task, error))
            return false;
        if (app->reports)
            (void)measure(validation, epoch, &cause); /* a failure is in cause */
        if (!agree(app, &cause, &goes_on, error))
            return false;
    }
    return true;
}

static bool restore_best(const Validation *validation, GError **error)
{
    App *app = validation->app;
    g_autoptr(GError) cause = NULL;
    bool goes_on;

    if (app->reports)
        (void)put_back(validation, &cause); /* a failure is in cause */
    return agree(app, &cause, &goes_on, error);
}

bool app_train_validated(App *app, const RubatoTask *task, uint64_t n_rows, const AppModel *model,
                         AppMeasureFunc measure_rows, void *user_data, GError **error)
{
    const RubatoTableSpec spec = { .name = DECISION, .dtype = RUBATO_I64, .n_keys = 1 };
    Validation validation = {
        .app = app, .model = model, .measure = measure_rows, .user_data = user_data
    };

    if (app->epochs == 0 || !app_data_validates(app->program->data))
        return app_train(app, task, n_rows, error);
    if (!app_create_table(app, &spec, error) || !app_training_begin(app, n_rows, error))
        return false;
    validation.best = g_new0(Copy, model->n_arrays);
    app->validated.epochs = g_array_new(FALSE, FALSE, sizeof(AppValidatedEpoch));
    const bool good = train_epochs(&validation, task, error);
    const bool ended = app_training_end(app, good, error) && restore_best(&validation, error) &&
                       rubato_engine_drop_table(app->engine, DECISION, error);
    for (size_t i = 0; i < model->n_arrays; i++)
        copy_clear(&validation.best[i]);
    g_free(validation.best);
    return ended;
}
