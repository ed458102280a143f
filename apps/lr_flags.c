/* rubato-lr: its own flags, and its data. Runs on main's thread. */
#include <string.h>

#include "apps/lr_job.h"

/* Where --learning-rate is not given. Found on a9a and w8a: each gives there, with the other
 * defaults, about the best that its rule gives. */
static const struct {
    const char *name;
    double learning_rate;
} rules[] = { { "adagrad", 0.5 }, { "adam", 0.05 }, { "ftrl", 0.3 }, { "sgd", 2 } };

static bool find_rule(LrJob *job, GError **error)
{
    const char *names[G_N_ELEMENTS(rules) + 1] = { NULL };

    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++)
        names[i] = rules[i].name;
    if (!app_check_word("rule", names, job->rule, error))
        return false;
    for (size_t i = 0; i < G_N_ELEMENTS(rules); i++)
        if (strcmp(job->rule, rules[i].name) == 0 && job->app.learning_rate <= 0)
            job->app.learning_rate = rules[i].learning_rate;
    return true;
}

static bool take_flags(void *user_data, GError **error)
{
    LrJob *job = user_data;

    if (job->loss == NULL)
        job->loss = g_strdup(app_loss_names[0]);
    if (job->rule == NULL)
        job->rule = g_strdup(rules[0].name);
    if (!app_check_word("loss", app_loss_names, job->loss, error) || !find_rule(job, error) ||
        !app_check_number("l1", job->model.l1, error) ||
        !app_check_number("l2", job->model.l2, error))
        return false;
    for (AppLossKind kind = 0; app_loss_names[kind] != NULL; kind++)
        if (strcmp(job->loss, app_loss_names[kind]) == 0)
            job->model.loss.kind = kind;
    if (job->model.loss.kind != APP_LOSS_SQUARED)
        job->program.metric = "accuracy";
    job->tables[0] = LR_WEIGHTS;
    job->tables[1] = job->has_bias ? LR_BIAS : NULL;
    return true;
}

static void clear(LrJob *job)
{
    rubato_dataset_free(job->train);
    rubato_dataset_free(job->test);
    g_free(job->loss);
    g_free(job->rule);
}

bool lr_parse(LrJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "loss", 0, 0, G_OPTION_ARG_STRING, &job->loss,
          "logistic (default) or hinge (two labels), or squared (any number)", "NAME" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule,
          "adagrad (default, rate 0.5), adam (0.05), ftrl (0.3) or sgd (2)", "NAME" },
        { "l1", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l1,
          "Penalty on the sizes of weights; ftrl makes many 0 (default 0)", "X" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2,
          "Penalty on the squares of the weights that a row uses (default 0)", "X" },
        { "no-bias", 0, G_OPTION_FLAG_REVERSE, G_OPTION_ARG_NONE, &job->has_bias,
          "Scores have no constant term", NULL },
        G_OPTION_ENTRY_NULL,
    };

    *job = (LrJob){ .has_bias = TRUE,
                    .program = { .name = "rubato-lr",
                                 .summary = "Trains linear models on sparse rows: logistic "
                                            "regression and its like.",
                                 .options = options,
                                 .data = &job->data,
                                 .take_flags = take_flags,
                                 .user_data = job,
                                 .epochs = 30,
                                 .batch_size = 2048 } };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    clear(job);
    return false;
}

int lr_end(LrJob *job, const GError *error)
{
    const int status = app_end(&job->app, error);

    clear(job);
    return status;
}

/* What the servers are told. With ftrl they see to L1, without the workers. */
static void fit_rule(LrJob *job)
{
    const bool ftrl = strcmp(job->rule, "ftrl") == 0;

    job->rate_falls = !ftrl; /* its weights would shrink with the rate */
    job->weights_rule.learning_rate = job->app.learning_rate;
    /* It holds beta and L1 against sums of rows' gradients, which come scaled. */
    if (ftrl)
        job->weights_rule.beta = job->scale;
    job->bias_rule = job->weights_rule;
    if (ftrl) {
        job->weights_rule.l1 = job->model.l1 * job->scale;
        job->model.l1 = 0;
    }
}

static RubatoDataset *open_data(const LrJob *job, char *const *paths, GError **error)
{
    return app_data_open(&job->data, (const char *const *)paths, error);
}

bool lr_load(LrJob *job, GError **error)
{
    RubatoDataSummary rows;

    job->scale = 1;
    if (app_predicts_only(&job->app)) {
        fit_rule(job);
        return true;
    }
    job->train = open_data(job, job->data.train, error);
    if (job->train == NULL || !rubato_dataset_summary(job->train, &rows, error) ||
        !app_loss_fit(&job->model.loss, &rows, job->data.train[0], error))
        return false;
    app_data_note_bad_rows(&job->app, &rows);
    job->n_rows = rows.n_rows;
    job->scale = 1.0 / (double)MIN(job->app.batch_size, rows.n_rows);
    fit_rule(job);
    if (job->data.test != NULL)
        job->test = open_data(job, job->data.test, error);
    return job->data.test == NULL || job->test != NULL;
}
