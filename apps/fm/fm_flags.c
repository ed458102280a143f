/* rubato-fm: its own flags, and what the training data says of the model. Runs on main's thread. */
#include <math.h>

#include "apps/fm/fm_job.h"

/* The learning rate if --learning-rate is not given. */
static const double learning_rates[APP_N_RULES] = {
    [APP_RULE_ADAGRAD] = 0.05, [APP_RULE_ADAM] = 0.003, [APP_RULE_FTRL] = 0.05, [APP_RULE_SGD] = 0.5
};

/* With softmax gradients are smaller, since a row's are shared among the classes. */
static const double softmax_rates[APP_N_RULES] = {
    [APP_RULE_ADAGRAD] = 0.2, [APP_RULE_ADAM] = 0.01, [APP_RULE_FTRL] = 0.1, [APP_RULE_SGD] = 1
};

#define FACTORS_DEFAULT 8
#define MAX_MIB (1 << 30)

/* The penalty on factors if --l2-factors is not given. With softmax a product of factors adds to
 * the scores of all classes, and nothing but penalties keeps it small. --l2, 1 / rows by default,
 * does so for rare keys, as in texts; this one for keys of every row whose values are at times far
 * from the others. Found on shuttle, and on two sets of texts of 20 classes: without one of them,
 * some test worse than linear models. */
#define L2_FACTORS_SOFTMAX 2e-3

/* ---- flags ---- */

/* A row's fields choose among the factors of one machine, and with softmax each class has one. */
static bool check_loss(const FmJob *job, GError **error)
{
    return job->model.loss.kind != APP_LOSS_SOFTMAX || !job->field_aware ||
           app_refuse(error, "--ffm: has no --loss softmax; leave out one of them");
}

/* The rest is refused when the table is made. */
static bool check_forgetting(const FmJob *job, GError **error)
{
    if (job->max_mib < 0 || job->max_mib > MAX_MIB)
        return app_refuse(error,
                          "--max-mib: expected a number from 1 to %d, found %" G_GINT64_FORMAT,
                          MAX_MIB, job->max_mib);
    if (job->evict != NULL && job->max_mib == 0)
        return app_refuse(error, "--evict: has no effect here; it needs --max-mib");
    if (job->admit_count != 0 && (job->admit_count < 2 || job->admit_count > 255))
        return app_refuse(error, "--admit-count: expected a number from 2 to 255, found %d",
                          job->admit_count);
    return true;
}

static bool take_flags(void *user_data, GError **error)
{
    FmJob *job = user_data;

    if (!app_check_count("factors", job->n_factors, FM_FACTORS_MAX, error))
        return false;
    if (!isfinite(job->init_stddev) || job->init_stddev <= 0)
        return app_refuse(error, "--init-stddev: expected a number above 0, found %g",
                          job->init_stddev);
    if (!check_forgetting(job, error))
        return false;
    if (!app_loss_take(&job->model.loss, job->loss_name, error) || !check_loss(job, error) ||
        !app_rule_take(&job->rule, job->rule_name, error) ||
        !app_check_number("l1", job->rule.l1, error) ||
        !app_check_number("l2", job->model.l2, error) ||
        !app_check_number("l2-factors", job->model.l2_factors, error))
        return false;
    if (job->rule.l1 > 0 && job->rule.kind != APP_RULE_FTRL)
        return app_refuse(error, "--l1: needs --rule ftrl");
    job->rate_falls = job->rule.kind != APP_RULE_FTRL; /* its weights would shrink with the rate */
    return true;
}

static void clear(FmJob *job)
{
    app_rows_clear(&job->rows);
    app_loss_clear(&job->model.loss);
    g_free(job->loss_name);
    g_free(job->rule_name);
    g_free(job->evict);
}

bool fm_parse(FmJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "ffm", 0, 0, G_OPTION_ARG_NONE, &job->field_aware,
          "Field-aware: a key has other factors against each field", NULL },
        { "factors", 'k', 0, G_OPTION_ARG_INT, &job->n_factors,
          "Factors of a key, against each field (default 8)", "N" },
        { "loss", 0, 0, G_OPTION_ARG_STRING, &job->loss_name,
          "logistic (default), hinge, squared (any numbers), softmax (classes)", "NAME" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule_name,
          "adagrad (default; .05), adam (.003), ftrl (.05), sgd (.5) or other", "NAME" },
        { "l1", 0, 0, G_OPTION_ARG_DOUBLE, &job->rule.l1,
          "Penalty on the sizes of all weights (ftrl; default 0)", "X" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2,
          "Penalty on all weights' squares (default 0; softmax 1 / rows)", "X" },
        { "l2-factors", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2_factors,
          "Penalty on the squares of factors in use (default 0; softmax .002)", "X" },
        { "init-stddev", 0, 0, G_OPTION_ARG_DOUBLE, &job->init_stddev,
          "Standard deviation of the factors at the start (default 0.05)", "X" },
        { "max-mib", 0, 0, G_OPTION_ARG_INT64, &job->max_mib,
          "MiB of weights on a server; beyond, rows are evicted (default any)", "N" },
        { "evict", 0, 0, G_OPTION_ARG_STRING, &job->evict,
          "Which rows: lru (default; least recently used), lfu (least often)", "NAME" },
        { "admit-count", 0, 0, G_OPTION_ARG_INT, &job->admit_count,
          "A key is learned from its N-th step on (default 1)", "N" },
        G_OPTION_ENTRY_NULL,
    };

    static const char *const of_training[] = { "rule",    "l1",    "l2",          "l2-factors",
                                               "max-mib", "evict", "admit-count", NULL };

    *job = (FmJob){ .n_factors = APP_COUNT_NOT_GIVEN,
                    .init_stddev = 0.05,
                    .model = { .l2 = APP_NOT_GIVEN, .l2_factors = APP_NOT_GIVEN },
                    .program = { .name = "rubato-fm",
                                 .summary = "Trains factorisation machines on sparse rows.",
                                 .options = options,
                                 .of_training = of_training,
                                 .data = &job->data,
                                 .take_flags = take_flags,
                                 .user_data = job,
                                 .epochs = 10,
                                 .batch_size = 256,
                                 .has_steps = true,
                                 .keeps_rows = true } };
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

/* ---- what no flag says: as the loaded model has it ---- */

static bool settle(FmJob *job, GError **error)
{
    if (!app_loss_follow(&job->model.loss, &job->app, job->loss_name, error))
        return false;
    job->model.n_factors =
        job->n_factors != APP_COUNT_NOT_GIVEN
            ? (uint32_t)job->n_factors
            : app_loaded_count(&job->app, "factors", FM_FACTORS_MAX, FACTORS_DEFAULT);
    if (g_strcmp0(app_loaded_setting(&job->app, "field_aware"), "yes") == 0)
        job->field_aware = TRUE;
    if (job->model.l2_factors <= APP_NOT_GIVEN)
        job->model.l2_factors = job->model.loss.kind == APP_LOSS_SOFTMAX ? L2_FACTORS_SOFTMAX : 0;
    app_rule_choose_rate(&job->app, &job->rule,
                         job->model.loss.kind == APP_LOSS_SOFTMAX ? softmax_rates : learning_rates);
    job->program.metric = app_loss_metric(&job->model.loss);
    return true;
}

/* ---- data ---- */

/* The fields that the training rows have. */
static bool take_fields(FmJob *job, GError **error)
{
    if (!job->field_aware)
        return true;
    if (job->rows.n_fields == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: --ffm needs rows with fields, as libffm, csv and ratings have them",
                    job->data.train[0]);
        return false;
    }
    if (job->rows.n_fields > FM_FIELDS_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: --ffm is for fields from 0 to %d, found field %u", job->data.train[0],
                    FM_FIELDS_MAX - 1, job->rows.n_fields - 1);
        return false;
    }
    job->model.n_fields = job->rows.n_fields;
    return true;
}

/* The fields of a model that is only loaded. */
static bool take_shape(FmJob *job, GError **error)
{
    uint32_t width;
    uint64_t n_keys;

    if (!job->field_aware)
        return true;
    if (!app_model_shape(&job->app, FM_WEIGHTS, &width, &n_keys, error))
        return false;
    job->model.n_fields = MAX(1, (width - 1) / job->model.n_factors);
    return true;
}

bool fm_load(FmJob *job, GError **error)
{
    return settle(job, error) &&
           app_rows_open(&job->rows, &job->app, &job->data, &job->model.loss, &job->model.l2,
                         error) &&
           (app_only_loads(&job->app) ? take_shape(job, error) : take_fields(job, error));
}
