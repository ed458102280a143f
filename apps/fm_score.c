/* rubato-fm: scores of whole files by the tables' weights. Runs on main's thread, between tasks. */
#include <math.h>

#include "apps/app_rating.h"
#include "apps/fm_job.h"

#define EVALUATED_AT_ONCE 4096

static const RubatoKey bias_key = FM_BIAS_KEY;

static bool check_fields(const FmModel *model, const RubatoBatch *batch, GError **error)
{
    if (model->n_fields > 0 && batch->field == NULL && batch->n_entries > 0) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                            "rows have no fields: --ffm needs them, as libffm, csv and ratings "
                            "have them");
        return false;
    }
    for (size_t e = 0; model->n_fields > 0 && e < batch->n_entries; e++)
        if (batch->field[e] >= model->n_fields) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "a row has field %u: the rows to train on have fields from 0 to %u",
                        batch->field[e], model->n_fields - 1);
            return false;
        }
    return true;
}

bool fm_check_batch(const FmJob *job, const RubatoBatch *batch, GError **error)
{
    for (size_t i = 0; job->model.loss == FM_LOGISTIC && i < batch->n_rows; i++)
        if (batch->label[i] != (float)job->negative && batch->label[i] != (float)job->positive) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "a row has label %g: expected one of two labels, %g or %g",
                        (double)batch->label[i], job->negative, job->positive);
            return false;
        }
    return check_fields(&job->model, batch, error);
}

/* Gets called with each batch and its scores. */
typedef bool (*ScoredFunc)(const FmJob *job, const RubatoBatch *batch, const double *scores,
                           void *user_data, GError **error);

static bool get_weights(const FmJob *job, const RubatoBatch *batch, FmWorkspace *workspace,
                        GError **error)
{
    RubatoEngine *engine = job->app.engine;

    return fm_workspace_fit(workspace, &job->model, batch, error) &&
           rubato_engine_get(engine, FM_BIAS, &bias_key, 1, &workspace->bias, error) &&
           rubato_engine_get(engine, FM_LINEAR, batch->keys, batch->n_keys, workspace->linear,
                             error) &&
           rubato_engine_get(engine, FM_FACTORS, batch->keys, batch->n_keys, workspace->factors,
                             error);
}

/* Scores all rows by the tables' weights, in the files' order. */
static bool score(const FmJob *job, RubatoDataset *dataset, ScoredFunc scored, void *user_data,
                  GError **error)
{
    const RubatoReaderOptions options = { .batch_rows = EVALUATED_AT_ONCE };
    g_autoptr(RubatoReader) reader = rubato_dataset_open_reader(dataset, &options, error);
    g_autoptr(RubatoBatch) batch = NULL;
    g_auto(FmWorkspace) workspace = { 0 };
    double scores[EVALUATED_AT_ONCE];

    if (reader == NULL)
        return false;
    while (rubato_reader_next(reader, &batch, error)) {
        if (!check_fields(&job->model, batch, error) || !get_weights(job, batch, &workspace, error))
            return false;
        fm_score(&job->model, batch, &workspace, scores);
        if (!scored(job, batch, scores, user_data, error))
            return false;
    }
    return !rubato_reader_failed(reader);
}

typedef struct {
    GArray *scores; /* of double */
    GArray *labels; /* of float */
} Scored;

static bool keep_scores(const FmJob *job, const RubatoBatch *batch, const double *scores,
                        void *user_data, GError **error)
{
    const Scored *scored = user_data;

    if (!fm_check_batch(job, batch, error))
        return false;
    g_array_append_vals(scored->scores, scores, (guint)batch->n_rows);
    g_array_append_vals(scored->labels, batch->label, (guint)batch->n_rows);
    return true;
}

bool fm_evaluate(FmJob *job, GError **error)
{
    g_autoptr(GArray) scores = g_array_new(FALSE, FALSE, sizeof(double));
    g_autoptr(GArray) labels = g_array_new(FALSE, FALSE, sizeof(float));
    AppRating rating;

    app_add_metric(&job->app, "train_loss", app_curve_loss(&job->app.curve));
    if (job->test == NULL)
        return true;
    if (!score(job, job->test, keep_scores, &(Scored){ scores, labels }, error))
        return false;
    const double *score_of = (const double *)(void *)scores->data;
    const float *label_of = (const float *)(void *)labels->data;
    if (job->model.loss == FM_SQUARED) {
        app_add_metric(&job->app, "test_rmse", app_rmse(score_of, label_of, labels->len));
        return true;
    }
    if (!app_rate(score_of, label_of, job->model.positive, labels->len, &rating, error))
        return false;
    app_add_metric(&job->app, "test_accuracy", rating.accuracy);
    app_add_metric(&job->app, "test_logloss", rating.logloss);
    app_add_metric(&job->app, "test_auc", rating.auc);
    return true;
}

static bool print_scores(const FmJob *job, const RubatoBatch *batch, const double *scores,
                         void *user_data, GError **error)
{
    FILE *output = user_data;

    (void)error;
    for (size_t i = 0; i < batch->n_rows; i++)
        fprintf(output, "%.6g\n",
                job->model.loss == FM_SQUARED ? scores[i] : 1 / (1 + exp(-scores[i])));
    return true;
}

bool fm_predict(const char *path, FILE *output, void *user_data, GError **error)
{
    const FmJob *job = user_data;
    g_autoptr(RubatoDataset) dataset = app_data_open_file(&job->data, path, error);

    return dataset != NULL && score(job, dataset, print_scores, output, error);
}
