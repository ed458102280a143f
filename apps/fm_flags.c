/* rubato-fm: its own flags, and what the training data says of the model. Runs on main's thread. */
#include <math.h>
#include <string.h>

#include "apps/fm_job.h"

static const char *const rules[] = { "adagrad", "adam", "ftrl", "sgd", NULL };
static const char *const losses[] = { "logistic", "squared", NULL };

/* Flags as GOption takes them. */
typedef struct {
    char *loss;
    int n_factors;
} Flags;

static bool refuse(GError **error, RubatoError code, const char *format, ...) G_GNUC_PRINTF(3, 4);

static bool refuse(GError **error, RubatoError code, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, RUBATO_ERROR, (int)code, text);
    return false;
}

/* ---- flags ---- */

static bool check_word(const char *flag, const char *const *words, const char *word, GError **error)
{
    if (g_strv_contains(words, word))
        return true;
    g_autofree char *known = g_strjoinv(", ", (char **)(uintptr_t)words);
    return refuse(error, RUBATO_ERROR_INVALID, "--%s: expected one of %s, found \"%s\"", flag,
                  known, word);
}

static bool check_number(const char *flag, double number, GError **error)
{
    return (isfinite(number) && number >= 0) ||
           refuse(error, RUBATO_ERROR_INVALID, "--%s: expected a number from 0, found %g", flag,
                  number);
}

static bool check_flags(const FmJob *job, const Flags *flags, GError **error)
{
    if (flags->n_factors < 1 || flags->n_factors > FM_FACTORS_MAX)
        return refuse(error, RUBATO_ERROR_INVALID,
                      "--factors: expected a number from 1 to %d, found %d", FM_FACTORS_MAX,
                      flags->n_factors);
    if (!isfinite(job->init_stddev) || job->init_stddev <= 0)
        return refuse(error, RUBATO_ERROR_INVALID,
                      "--init-stddev: expected a number above 0, found %g", job->init_stddev);
    if (job->l1 > 0 && strcmp(job->rule, "ftrl") != 0)
        return refuse(error, RUBATO_ERROR_INVALID, "--l1: needs --rule ftrl");
    return check_word("loss", losses, flags->loss, error) &&
           check_word("rule", rules, job->rule, error) && check_number("l1", job->l1, error) &&
           check_number("l2", job->model.l2, error) &&
           check_number("l2-factors", job->model.l2_factors, error);
}

/* Takes over what the flags say, once they are good. */
static bool take_flags(FmJob *job, Flags *flags, GError **error)
{
    if (flags->loss == NULL)
        flags->loss = g_strdup(losses[0]);
    if (job->rule == NULL)
        job->rule = g_strdup(rules[0]);
    if (!check_flags(job, flags, error))
        return false;
    job->model.loss = strcmp(flags->loss, losses[0]) == 0 ? FM_LOGISTIC : FM_SQUARED;
    job->model.n_factors = (uint32_t)flags->n_factors;
    job->program.metric = job->model.loss == FM_LOGISTIC ? "accuracy" : NULL;
    return true;
}

static void clear(FmJob *job)
{
    rubato_dataset_free(job->train);
    rubato_dataset_free(job->test);
    g_free(job->rule);
}

bool fm_parse(FmJob *job, int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    Flags flags = { .n_factors = 8 };
    const GOptionEntry options[] = {
        { "ffm", 0, 0, G_OPTION_ARG_NONE, &job->field_aware,
          "Field-aware: a key has other factors against each field", NULL },
        { "factors", 'k', 0, G_OPTION_ARG_INT, &flags.n_factors,
          "Factors of a key, against each field (default 8)", "N" },
        { "loss", 0, 0, G_OPTION_ARG_STRING, &flags.loss,
          "logistic (default; two labels) or squared (ratings)", "NAME" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule,
          "How servers apply gradients: adagrad (default), adam, ftrl or sgd", "NAME" },
        { "l1", 0, 0, G_OPTION_ARG_DOUBLE, &job->l1,
          "Penalty on the sizes of all weights (ftrl; default 0)", "X" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2,
          "Penalty on the squares of the linear terms that a row uses (default 0)", "X" },
        { "l2-factors", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2_factors,
          "Penalty on the squares of the factors of the keys that a row uses (default 0)", "X" },
        { "init-stddev", 0, 0, G_OPTION_ARG_DOUBLE, &job->init_stddev,
          "Standard deviation of the factors at the start (default 0.05)", "X" },
        G_OPTION_ENTRY_NULL,
    };

    *job = (FmJob){ .init_stddev = 0.05,
                    .program = { .name = "rubato-fm",
                                 .summary = "Trains factorisation machines on sparse rows.",
                                 .options = options,
                                 .data = &job->data,
                                 .epochs = 10,
                                 .batch_size = 256,
                                 .learning_rate = 0.05 } };
    if (!app_parse(&job->app, &job->program, argc, argv)) {
        clear(job);
        g_free(flags.loss);
        return false;
    }
    const bool good = take_flags(job, &flags, &error);
    g_free(flags.loss);
    if (!good) {
        g_printerr("rubato-fm: %s\nTry \"rubato-fm --help\".\n", error->message);
        fm_end(job, NULL);
    }
    return good;
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

    if (!rubato_dataset_summary(job->train, &rows, error))
        return false;
    if (job->model.loss == FM_LOGISTIC && !(rows.min_label < rows.max_label))
        return refuse(error, RUBATO_ERROR_FORMAT,
                      "%s: expected two labels, such as -1 and 1; all rows have label %g",
                      job->data.train[0], (double)rows.min_label);
    if (job->field_aware && rows.n_fields == 0)
        return refuse(error, RUBATO_ERROR_FORMAT,
                      "%s: --ffm needs rows with fields, as libffm, csv and ratings have them",
                      job->data.train[0]);
    if (job->field_aware && rows.n_fields > FM_FIELDS_MAX)
        return refuse(error, RUBATO_ERROR_FORMAT,
                      "%s: --ffm is for fields from 0 to %d, found field %u", job->data.train[0],
                      FM_FIELDS_MAX - 1, rows.n_fields - 1);
    job->n_rows = rows.n_rows;
    job->negative = (double)rows.min_label;
    job->positive = (double)rows.max_label;
    job->model.positive = rows.max_label;
    job->model.n_fields = job->field_aware ? rows.n_fields : 0;
    if (job->model.loss == FM_SQUARED)
        job->start = (job->negative + job->positive) / 2;
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
    if (app_predicts_only(&job->app))
        return take_shape(job, error);
    job->train = open_data(job, job->data.train, error);
    if (job->train == NULL || !fit_model(job, error))
        return false;
    if (job->data.test != NULL)
        job->test = open_data(job, job->data.test, error);
    return job->data.test == NULL || job->test != NULL;
}
