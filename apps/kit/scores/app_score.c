/* Scores of whole files, batch by batch, in the files' order. Runs on main's thread. */
#include "apps/kit/scores/app_score.h"

#include <math.h>

#include "apps/kit/scores/app_test_metrics.h"

#define SCORED_AT_ONCE 4096

typedef struct {
    RubatoReader *reader;
    RubatoBatch *batch;
    const AppFeatures *scaling; /* NULL: none */
    AppScaledBatch scaled;
    AppScoreFunc score;
    void *user_data;
    size_t n_scores; /* of a row */
    double *scores;  /* of the batch */
} Pass;

static bool begin(Pass *pass, RubatoDataset *rows, const AppFeatures *scaling, const AppLoss *loss,
                  AppScoreFunc score, void *user_data, GError **error)
{
    const RubatoReaderOptions options = { .batch_rows = SCORED_AT_ONCE };

    pass->reader = rubato_dataset_open_reader(rows, &options, error);
    pass->batch = NULL;
    pass->scaling = scaling;
    pass->scaled = (AppScaledBatch){ .values = NULL };
    pass->score = score;
    pass->user_data = user_data;
    pass->n_scores = app_loss_n_scores(loss);
    pass->scores = g_new(double, SCORED_AT_ONCE * pass->n_scores);
    if (pass->reader == NULL)
        g_clear_pointer(&pass->scores, g_free);
    return pass->reader != NULL;
}

/* False at the end, and with an error. */
static bool next(Pass *pass, GError **error)
{
    const RubatoBatch *batch = pass->scaling != NULL ? &pass->scaled.batch : NULL;

    if (!rubato_reader_next(pass->reader, &pass->batch, error))
        return false;
    if (batch == NULL)
        batch = pass->batch;
    else if (!app_scaled_batch_fill(&pass->scaled, pass->scaling, pass->batch, error))
        return false;
    return pass->score(batch, pass->scores, pass->user_data, error);
}

static void end(Pass *pass)
{
    rubato_batch_free(pass->batch);
    app_scaled_batch_clear(&pass->scaled);
    g_free(pass->scores);
    rubato_reader_free(pass->reader);
}

static void add_class_metrics(App *app, const AppLoss *loss, const double *scores,
                              const float *labels, size_t n)
{
    double sum = 0, probability;
    size_t n_right = 0;

    for (size_t i = 0; i < n; i++) {
        const double *of_row = scores + i * loss->n_classes;

        n_right +=
            app_loss_best_class(loss, of_row, &probability) == app_loss_class_of(loss, labels[i]);
        sum += app_loss_of_row(loss, of_row, labels[i]);
    }
    app_add_metric(app, "test_accuracy", (double)n_right / (double)n);
    app_add_metric(app, "test_logloss", sum / (double)n);
}

static bool add_metrics(App *app, const AppLoss *loss, const GArray *scores, const GArray *labels,
                        GError **error)
{
    const double *score_of = (const double *)(const void *)scores->data;
    const float *label_of = (const float *)(const void *)labels->data;
    AppTestMetrics metrics;

    if (loss->kind == APP_LOSS_SOFTMAX) {
        add_class_metrics(app, loss, score_of, label_of, labels->len);
        return true;
    }
    if (loss->kind == APP_LOSS_SQUARED) {
        app_add_metric(app, "test_rmse", app_test_rmse(score_of, label_of, labels->len));
        return true;
    }
    if (!app_test_metrics_of(score_of, label_of, (float)loss->positive, labels->len, &metrics,
                             error))
        return false;
    app_add_metric(app, "test_accuracy", metrics.accuracy);
    if (loss->kind == APP_LOSS_LOGISTIC)
        app_add_metric(app, "test_logloss", metrics.logloss);
    app_add_metric(app, "test_auc", metrics.auc);
    return true;
}

static bool test(App *app, const AppRows *rows, const AppLoss *loss, AppScoreFunc score,
                 void *user_data, GError **error)
{
    g_autoptr(GArray) scores = g_array_new(FALSE, FALSE, sizeof(double));
    g_autoptr(GArray) labels = g_array_new(FALSE, FALSE, sizeof(float));
    g_autoptr(GError) cause = NULL;
    Pass pass;

    if (!begin(&pass, rows->test, app_rows_scaling(rows), loss, score, user_data, error))
        return false;
    while (next(&pass, &cause) && app_loss_check(loss, rows->test, pass.batch, &cause)) {
        g_array_append_vals(scores, pass.scores, (guint)(pass.batch->n_rows * pass.n_scores));
        g_array_append_vals(labels, pass.batch->label, (guint)pass.batch->n_rows);
    }
    end(&pass);
    if (cause == NULL && labels->len == 0)
        g_set_error(&cause, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "--test: there are no rows to test on");
    if (cause != NULL) {
        g_propagate_error(error, g_steal_pointer(&cause));
        return false;
    }
    return add_metrics(app, loss, scores, labels, error);
}

bool app_score_validation(const AppRows *rows, const AppLoss *loss, AppScoreFunc score,
                          void *user_data, double *mean, GError **error)
{
    g_autoptr(GError) cause = NULL;
    uint64_t n = 0;
    double sum = 0;
    Pass pass;

    if (!begin(&pass, rows->validation, app_rows_scaling(rows), loss, score, user_data, error))
        return false;
    while (next(&pass, &cause) && app_loss_check(loss, rows->validation, pass.batch, &cause)) {
        for (size_t i = 0; i < pass.batch->n_rows; i++)
            sum += app_loss_of_row(loss, pass.scores + i * pass.n_scores, pass.batch->label[i]);
        n += pass.batch->n_rows;
    }
    end(&pass);
    if (cause == NULL && n == 0)
        g_set_error(&cause, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "--validate: there are no rows to measure on");
    if (cause != NULL) {
        g_propagate_error(error, g_steal_pointer(&cause));
        return false;
    }
    *mean = sum / (double)n;
    return true;
}

bool app_add_score_metrics(App *app, const AppRows *rows, const AppLoss *loss, AppScoreFunc score,
                           void *user_data, GError **error)
{
    if (!app_reports(app))
        return true;
    if (rows->train != NULL && app->n_samples > 0)
        app_add_metric(app, "train_loss", app_curve_loss(&app->curve));
    return rows->test == NULL || test(app, rows, loss, score, user_data, error);
}

/* With labels that are words, the word comes first, and the probability is the word's. */
static void print_prediction(FILE *output, const RubatoDataKeys *keys, const AppLoss *loss,
                             const double *scores)
{
    const double score = scores[0];
    const bool has_words = keys != NULL && keys->label_words != NULL;
    const bool positive = score > 0;
    const double sign = has_words && !positive ? -1 : 1;

    if (loss->kind == APP_LOSS_SOFTMAX) {
        double probability;
        const uint32_t best = app_loss_best_class(loss, scores, &probability);
        g_autofree char *label = app_data_label_text(keys, (double)loss->classes[best]);

        fprintf(output, "%s\t%.6g\n", label, probability);
        return;
    }
    if (has_words) {
        g_autofree char *label =
            app_data_label_text(keys, positive ? loss->positive : loss->negative);
        fprintf(output, "%s\t", label);
    }
    fprintf(output, "%.6g\n",
            loss->kind == APP_LOSS_LOGISTIC ? 1 / (1 + exp(-sign * score)) : score);
}

bool app_print_predictions(FILE *output, const AppData *data, const AppRows *rows, const char *path,
                           const AppLoss *loss, AppScoreFunc score, void *user_data, GError **error)
{
    g_autoptr(RubatoDataset) unlabelled = app_data_open_unlabelled(data, path, error);
    g_autoptr(GError) cause = NULL;
    Pass pass;

    if (unlabelled == NULL ||
        !begin(&pass, unlabelled, app_rows_scaling(rows), loss, score, user_data, error))
        return false;
    while (next(&pass, &cause))
        for (size_t i = 0; i < pass.batch->n_rows; i++)
            print_prediction(output, data->keys, loss, pass.scores + i * pass.n_scores);
    end(&pass);
    if (cause == NULL)
        return true;
    g_propagate_error(error, g_steal_pointer(&cause));
    return false;
}
