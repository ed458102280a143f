/* rubato-fm: its own flags, and what the training data says of the model. Runs on main's thread. */
#include <math.h>
#include <string.h>

#include "apps/fm_job.h"

/* Where --learning-rate is not given. */
static const struct {
    const char *name;
    double learning_rate;
} rules[] = { { "adagrad", 0.05 }, { "adam", 0.003 }, { "ftrl", 0.05 }, { "sgd", 0.5 } };

/* ---- flags ---- */

static bool find_rule(FmJob *job, GError **error)
{
    const char *names[G_N_ELEMENTS(rules) + 1] = { NULL };

    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++)
        names[i] = rules[i].name;
    if (!app_check_word("rule", names, job->rule, error))
        return false;
    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++)
        if (strcmp(job->rule, rules[i].name) == 0 && job->app.learning_rate <= 0)
            job->app.learning_rate = rules[i].learning_rate;
    job->rate_falls = strcmp(job->rule, "ftrl") != 0; /* its weights would shrink with the rate */
    if (job->l1 > 0 && job->rate_falls)
        return app_refuse(error, "--l1: needs --rule ftrl");
    return true;
}

static bool take_flags(void *user_data, GError **error)
{
    FmJob *job = user_data;

    if (job->loss == NULL)
        job->loss = g_strdup(app_loss_names[0]);
    if (job->rule == NULL)
        job->rule = g_strdup(rules[0].name);
    if (job->n_factors < 1 || job->n_factors > FM_FACTORS_MAX)
        return app_refuse(error, "--factors: expected a number from 1 to %d, found %d",
                          FM_FACTORS_MAX, job->n_factors);
    if (!isfinite(job->init_stddev) || job->init_stddev <= 0)
        return app_refuse(error, "--init-stddev: expected a number above 0, found %g",
                          job->init_stddev);
    if (!app_check_word("loss", app_loss_names, job->loss, error) || !find_rule(job, error) ||
        !app_check_number("l1", job->l1, error) || !app_check_number("l2", job->model.l2, error) ||
        !app_check_number("l2-factors", job->model.l2_factors, error))
        return false;
    for (AppLossKind kind = 0; app_loss_names[kind] != NULL; kind++)
        if (strcmp(job->loss, app_loss_names[kind]) == 0)
            job->model.loss.kind = kind;
    if (job->model.loss.kind != APP_LOSS_SQUARED)
        job->program.metric = "accuracy";
    job->model.n_factors = (uint32_t)job->n_factors;
    return true;
}

static void clear(FmJob *job)
{
    rubato_dataset_free(job->train);
    rubato_dataset_free(job->test);
    g_free(job->loss);
    g_free(job->rule);
}

bool fm_parse(FmJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "ffm", 0, 0, G_OPTION_ARG_NONE, &job->field_aware,
          "Field-aware: a key has other factors against each field", NULL },
        { "factors", 'k', 0, G_OPTION_ARG_INT, &job->n_factors,
          "Factors of a key, against each field (default 8)", "N" },
        { "loss", 0, 0, G_OPTION_ARG_STRING, &job->loss,
          "logistic (default) or hinge (two labels), or squared (ratings)", "NAME" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule,
          "adagrad (default, rate 0.05), adam (0.003), ftrl (0.05), sgd (0.5)", "NAME" },
        { "l1", 0, 0, G_OPTION_ARG_DOUBLE, &job->l1,
          "Penalty on the sizes of all weights (ftrl; default 0)", "X" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2,
          "Penalty on the squares of linear terms in use (default 0)", "X" },
        { "l2-factors", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2_factors,
          "Penalty on the squares of factors in use (default 0)", "X" },
        { "init-stddev", 0, 0, G_OPTION_ARG_DOUBLE, &job->init_stddev,
          "Standard deviation of the factors at the start (default 0.05)", "X" },
        G_OPTION_ENTRY_NULL,
    };

    *job = (FmJob){ .n_factors = 8,
                    .init_stddev = 0.05,
                    .program = { .name = "rubato-fm",
                                 .summary = "Trains factorisation machines on sparse rows.",
                                 .options = options,
                                 .data = &job->data,
                                 .take_flags = take_flags,
                                 .user_data = job,
                                 .epochs = 10,
                                 .batch_size = 256 } };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    clear(job);
    return false;
}

int fm_end(FmJob *job, const GError *error)
{
    const int status = app_end(&job->app, error);

    clear(job);
    return status;
}

/* ---- data ---- */

/* What the training rows say of the model: labels, fields. */
static bool fit_model(FmJob *job, GError **error)
{
    RubatoDataSummary rows;

    if (!rubato_dataset_summary(job->train, &rows, error) ||
        !app_loss_fit(&job->model.loss, &rows, job->data.train[0], error))
        return false;
    if (job->field_aware && rows.n_fields == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: --ffm needs rows with fields, as libffm, csv and ratings have them",
                    job->data.train[0]);
        return false;
    }
    if (job->field_aware && rows.n_fields > FM_FIELDS_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: --ffm is for fields from 0 to %d, found field %u", job->data.train[0],
                    FM_FIELDS_MAX - 1, rows.n_fields - 1);
        return false;
    }
    app_data_note_bad_rows(&job->app, &rows);
    job->n_rows = rows.n_rows;
    job->scale = 1.0 / (double)MIN(job->app.batch_size, rows.n_rows);
    job->model.n_fields = job->field_aware ? rows.n_fields : 0;
    return true;
}

/* The fields of a model that is loaded only to predict. */
static bool take_shape(FmJob *job, GError **error)
{
    uint32_t width;
    uint64_t n_keys;

    if (!job->field_aware)
        return true;
    if (!app_model_shape(&job->app, FM_FACTORS, &width, &n_keys, error))
        return false;
    job->model.n_fields = MAX(1, width / job->model.n_factors);
    return true;
}

static RubatoDataset *open_data(const FmJob *job, char *const *paths, GError **error)
{
    return app_data_open(&job->data, (const char *const *)paths, error);
}

bool fm_load(FmJob *job, GError **error)
{
    job->scale = 1;
    if (app_predicts_only(&job->app))
        return take_shape(job, error);
    job->train = open_data(job, job->data.train, error);
    if (job->train == NULL || !fit_model(job, error))
        return false;
    if (job->data.test != NULL)
        job->test = open_data(job, job->data.test, error);
    return job->data.test == NULL || job->test != NULL;
}
