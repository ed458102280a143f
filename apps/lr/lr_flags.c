/* rubato-lr: its own flags, and its data. Runs on main's thread. */
#include "apps/lr/lr_job.h"

/* The learning rates if --learning-rate is not given. They were found on a9a and w8a: there each
 * gives about the best result of its rule with the other defaults. */
static const double learning_rates[APP_N_RULES] = {
    [APP_RULE_ADAGRAD] = 0.5, [APP_RULE_ADAM] = 0.05, [APP_RULE_FTRL] = 0.3, [APP_RULE_SGD] = 2
};

/* With softmax gradients are smaller, since a row's are shared among the classes. */
static const double softmax_rates[APP_N_RULES] = {
    [APP_RULE_ADAGRAD] = 2, [APP_RULE_ADAM] = 0.05, [APP_RULE_FTRL] = 0.3, [APP_RULE_SGD] = 2
};

static bool take_flags(void *user_data, GError **error)
{
    LrJob *job = user_data;

    if (!app_loss_take(&job->model.loss, job->loss_name, error) ||
        !app_rule_take(&job->rule, job->rule_name, error) ||
        !app_check_number("l1", job->rule.l1, error) ||
        !app_check_number("l2", job->model.l2, error))
        return false;
    job->rate_falls = job->rule.kind != APP_RULE_FTRL; /* its weights would shrink with the rate */
    job->model.l1 = job->rule.kind != APP_RULE_FTRL ? job->rule.l1 : 0; /* else the servers' */
    return true;
}

static void clear(LrJob *job)
{
    app_rows_clear(&job->rows);
    app_loss_clear(&job->model.loss);
    g_free(job->loss_name);
    g_free(job->rule_name);
}

bool lr_parse(LrJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "loss", 0, 0, G_OPTION_ARG_STRING, &job->loss_name,
          "logistic (default), hinge, squared (any numbers), softmax (classes)", "NAME" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule_name,
          "adagrad (default; 0.5), adam (0.05), ftrl (0.3), sgd (2) or other", "NAME" },
        { "l1", 0, 0, G_OPTION_ARG_DOUBLE, &job->rule.l1,
          "Penalty on the sizes of weights; ftrl makes many 0 (default 0)", "X" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2,
          "Penalty on all weights' squares (default 0; softmax 1 / rows)", "X" },
        { "no-bias", 0, G_OPTION_FLAG_REVERSE, G_OPTION_ARG_NONE, &job->has_bias,
          "Scores have no constant term", NULL },
        G_OPTION_ENTRY_NULL,
    };

    static const char *const of_training[] = { "rule", "l1", "l2", NULL };

    *job = (LrJob){ .has_bias = TRUE,
                    .model = { .l2 = APP_NOT_GIVEN },
                    .program = { .name = "rubato-lr",
                                 .summary = "Trains linear models on sparse rows: logistic "
                                            "regression and its like.",
                                 .options = options,
                                 .of_training = of_training,
                                 .data = &job->data,
                                 .take_flags = take_flags,
                                 .user_data = job,
                                 .epochs = 30,
                                 .batch_size = 2048,
                                 .batch_size_softmax = 128,
                                 .has_steps = true,
                                 .keeps_rows = true } };
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

/* Settles what no flag says: as the loaded model has it. */
static bool settle(LrJob *job, GError **error)
{
    if (!app_loss_follow(&job->model.loss, &job->app, job->loss_name, error))
        return false;
    if (g_strcmp0(app_loaded_setting(&job->app, "bias"), "no") == 0)
        job->has_bias = FALSE;
    app_rule_choose_rate(&job->app, &job->rule,
                         job->model.loss.kind == APP_LOSS_SOFTMAX ? softmax_rates : learning_rates);
    job->program.metric = app_loss_metric(&job->model.loss);
    job->tables[0] = LR_WEIGHTS;
    job->tables[1] = job->has_bias ? LR_BIAS : NULL;
    return true;
}

bool lr_load(LrJob *job, GError **error)
{
    return settle(job, error) && app_rows_open(&job->rows, &job->app, &job->data, &job->model.loss,
                                               &job->model.l2, error);
}
