/* rubato-mlp: its own flags, and its layers. Runs on main's thread. */
#include <string.h>

#include "apps/mlp/mlp_job.h"

#define HIDDEN "128"
#define DEFAULT_ROWS "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"

/* They were found on Fashion-MNIST with the other defaults. */
static const double learning_rates[MLP_N_RULES] = {
    [MLP_RULE_ADAM] = 0.003, [MLP_RULE_MOMENTUM] = 0.1, [MLP_RULE_SGD] = 0.4
};

/* ---- layers ---- */

static bool refuse_hidden(const char *text, GError **error)
{
    return app_refuse(error,
                      "--hidden: expected the units of 1 to %u layers, each from 1 to %u, such as "
                      "128,64, found \"%s\"",
                      MLP_HIDDEN_MAX, MLP_UNITS_MAX, text);
}

/* Takes the sizes of the hidden layers. */
static bool parse_hidden(MlpShape *shape, const char *text, GError **error)
{
    g_auto(GStrv) words = g_strsplit(text, ",", -1);
    const guint n = g_strv_length(words);

    if (n == 0 || n > MLP_HIDDEN_MAX)
        return refuse_hidden(text, error);
    for (guint i = 0; i < n; i++) {
        uint64_t units;

        if (!g_ascii_string_to_unsigned(words[i], 10, 1, MLP_UNITS_MAX, &units, NULL))
            return refuse_hidden(text, error);
        shape->sizes[i + 1] = (uint32_t)units;
    }
    shape->n_layers = n + 1;
    return true;
}

/* "128,64", as a model's setting has it: 0128 is 128. (transfer full) */
static char *hidden_text(const MlpShape *shape)
{
    GString *text = g_string_new(NULL);

    for (uint32_t l = 1; l < shape->n_layers; l++)
        g_string_append_printf(text, "%s%u", l > 1 ? "," : "", shape->sizes[l]);
    return g_string_free(text, FALSE);
}

/* The flag's layers, or the loaded model's. */
static bool settle_hidden(MlpJob *job, GError **error)
{
    const char *loaded = app_loaded_setting(&job->app, "hidden");
    const char *text = job->hidden != NULL ? job->hidden : loaded != NULL ? loaded : HIDDEN;

    if (!parse_hidden(&job->shape, text, error))
        return false;
    g_free(job->hidden);
    job->hidden = hidden_text(&job->shape);
    return true;
}

/* The columns of the rows to train on, or of the loaded model; then the rows may not have more. */
static bool settle_columns(MlpJob *job, GError **error)
{
    uint64_t n_units;
    uint32_t n_columns = 0, width;

    if (job->rows.train != NULL &&
        !app_dense_columns(job->rows.train, "--train", &n_columns, error))
        return false;
    job->shape.sizes[0] = n_columns;
    if (job->app.load == NULL)
        return true;
    if (!app_model_shape(&job->app, job->layers[0], &width, &n_units, error))
        return false;
    job->shape.sizes[0] = MAX(width, 2) - 1; /* others are refused when the model is loaded */
    if (n_columns <= job->shape.sizes[0])
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "--train: keys go up to %u, and the model in %s has columns up to %u; train anew "
                "without --load",
                n_columns - 1, job->app.load, job->shape.sizes[0] - 1);
    return false;
}

static bool settle_classes(MlpJob *job, GError **error)
{
    if (job->loss.n_classes == 0)
        return app_refuse(error, "--load %s: the model's description names no classes",
                          job->app.load);
    job->shape.sizes[job->shape.n_layers] = job->loss.n_classes;
    return true;
}

static void name_tables(MlpJob *job)
{
    size_t n = 0;

    for (uint32_t l = 0; l < job->shape.n_layers; l++) {
        g_snprintf(job->layers[l], sizeof job->layers[l], "layer-%u", l + 1);
        g_snprintf(job->states[l], sizeof job->states[l], "states-%u", l + 1);
        job->tables[n++] = job->layers[l];
    }
    if (job->by_allreduce && mlp_rule_n_states(job->rule) > 0)
        for (uint32_t l = 0; l < job->shape.n_layers; l++)
            job->tables[n++] = job->states[l];
}

bool mlp_load(MlpJob *job, GError **error)
{
    if (!app_loss_follow(&job->loss, &job->app, "softmax", error) || !settle_hidden(job, error))
        return false;
    name_tables(job);
    return app_rows_open(&job->rows, &job->app, &job->data, &job->loss, /* l2= */ NULL, error) &&
           settle_columns(job, error) && settle_classes(job, error);
}

/* ---- flags ---- */

static bool take_flags(void *user_data, GError **error)
{
    static const char *const ways[] = { "tables", "allreduce", NULL };
    MlpJob *job = user_data;
    MlpShape shape;
    size_t way = 0, rule = 0;

    if (!app_find_word("by", ways, job->by, &way, error) ||
        !app_find_word("rule", mlp_rule_names, job->rule_name, &rule, error) ||
        (job->hidden != NULL && !parse_hidden(&shape, job->hidden, error)))
        return false;
    job->by_allreduce = way == 1;
    job->rule = (MlpRule)rule;
    if (job->app.learning_rate <= 0)
        job->app.learning_rate = learning_rates[rule];
    if (job->by_allreduce && !job->app.model_traits->applies_by_clock)
        return app_refuse(error,
                          "--model %s: has no effect with --by allreduce, whose workers are always "
                          "in the same step; leave out one of them",
                          job->app.model);
    return !job->by_allreduce || job->app.replicas == 0 ||
           app_refuse(error, "--replicas: have no use with --by allreduce, which needs all "
                             "workers; leave out one of them");
}

static void clear(MlpJob *job)
{
    for (uint32_t i = 0; i < job->n_shares; i++)
        mlp_share_clear(&job->shares[i]);
    g_free(job->shares);
    app_rows_clear(&job->rows);
    app_loss_clear(&job->loss);
    g_free(job->hidden);
    g_free(job->by);
    g_free(job->rule_name);
}

bool mlp_parse(MlpJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "hidden", 0, 0, G_OPTION_ARG_STRING, &job->hidden,
          "Units of the hidden layers (default " HIDDEN ", or the loaded model's)", "N,..." },
        { "by", 0, 0, G_OPTION_ARG_STRING, &job->by,
          "How workers combine gradients: tables (default) or allreduce", "WAY" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule_name,
          "adam (default; rate 0.003), momentum (0.1) or sgd (0.4)", "NAME" },
        G_OPTION_ENTRY_NULL,
    };
    static const char *const of_training[] = { "by", "rule", NULL };

    *job = (MlpJob){ .loss = { .kind = APP_LOSS_SOFTMAX },
                     .program = { .name = "rubato-mlp",
                                  .summary = "Trains multi-layer perceptrons, which find the "
                                             "classes of rows.",
                                  .options = options,
                                  .of_training = of_training,
                                  .data = &job->data,
                                  .default_train = DEFAULT_ROWS,
                                  .take_flags = take_flags,
                                  .user_data = job,
                                  .metric = "accuracy",
                                  .epochs = 5,
                                  .batch_size = 128,
                                  .has_steps = true } };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    clear(job);
    return false;
}

int mlp_end(MlpJob *job, const GError *error)
{
    const int status = app_end(&job->app, error);

    clear(job);
    return status;
}
