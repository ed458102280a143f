/* rubato-wide-deep: its own flags, and its model. Runs on main's thread. */
#include <string.h>

#include "apps/wide-deep/wide_deep_job.h"

#define HIDDEN "64,32"
#define WIDTH_DEFAULT 8

static const double learning_rates[APP_NET_N_RULES] = {
    [APP_NET_RULE_ADAM] = 0.003, [APP_NET_RULE_MOMENTUM] = 0.03, [APP_NET_RULE_SGD] = 0.2
};

/* ---- the parts ---- */

enum { BOTH, WIDE, DEEP };
static const char *const parts[] = { "both", "wide", "deep", NULL };

const char *wide_deep_parts_text(const WideDeepModel *model)
{
    return parts[!model->has_deep ? WIDE : !model->has_wide ? DEEP : BOTH];
}

static bool take_parts(WideDeepModel *model, const char *text, GError **error)
{
    size_t part = BOTH;

    if (!app_find_word("only", parts, text, &part, error))
        return false;
    model->has_wide = part != DEEP;
    model->has_deep = part != WIDE;
    return true;
}

/* ---- crosses ---- */

static bool refuse_crosses(const char *text, GError **error)
{
    return app_refuse(error,
                      "--cross: expected up to %u pairs of two different fields below %u, such as "
                      "1:2,1:4, found \"%s\"",
                      WIDE_DEEP_CROSSES_MAX, WIDE_DEEP_FIELDS_MAX, text);
}

static bool take_cross(WideDeepModel *model, const char *text)
{
    g_auto(GStrv) fields = g_strsplit(text, ":", -1);
    uint64_t a, b;

    if (g_strv_length(fields) != 2 || model->n_crosses == WIDE_DEEP_CROSSES_MAX ||
        !g_ascii_string_to_unsigned(fields[0], 10, 0, WIDE_DEEP_FIELDS_MAX - 1, &a, NULL) ||
        !g_ascii_string_to_unsigned(fields[1], 10, 0, WIDE_DEEP_FIELDS_MAX - 1, &b, NULL) || a == b)
        return false;
    const WideDeepCross cross = { (uint32_t)MIN(a, b), (uint32_t)MAX(a, b) };
    for (uint32_t c = 0; c < model->n_crosses; c++)
        if (model->crosses[c].first == cross.first && model->crosses[c].second == cross.second)
            return false;
    model->crosses[model->n_crosses++] = cross;
    return true;
}

/* NULL or empty: none. */
static bool take_crosses(WideDeepModel *model, const char *text, GError **error)
{
    g_auto(GStrv) words = g_strsplit(text != NULL ? text : "", ",", -1);

    model->n_crosses = 0;
    for (size_t i = 0; words[i] != NULL; i++)
        if (!take_cross(model, words[i]))
            return refuse_crosses(text, error);
    return true;
}

char *wide_deep_crosses_text(const WideDeepModel *model)
{
    GString *text = g_string_new(NULL);

    for (uint32_t c = 0; c < model->n_crosses; c++)
        g_string_append_printf(text, "%s%u:%u", c > 0 ? "," : "", model->crosses[c].first,
                               model->crosses[c].second);
    return g_string_free(text, FALSE);
}

/* ---- what no flag says: as the loaded model has it ---- */

static bool settle_parts(WideDeepJob *job, GError **error)
{
    WideDeepModel *const model = &job->model;
    const char *const only = job->only != NULL ? job->only : app_loaded_setting(&job->app, "parts");
    const char *const crosses =
        job->crosses != NULL ? job->crosses : app_loaded_setting(&job->app, "crosses");

    if (!take_parts(model, only, error) || !take_crosses(model, crosses, error))
        return false;
    model->width =
        job->width != APP_COUNT_NOT_GIVEN
            ? (uint32_t)job->width
            : app_loaded_count(&job->app, "embedding", WIDE_DEEP_WIDTH_MAX, WIDTH_DEFAULT);
    return app_layers_settle(&job->layers, &job->app, &job->hidden, HIDDEN, error);
}

static bool check_crosses(const WideDeepJob *job, GError **error)
{
    for (uint32_t c = 0; c < job->model.n_crosses; c++)
        if (job->model.crosses[c].second >= job->model.n_fields)
            return app_refuse(error, "--cross %u:%u: the fields of the rows end with %u",
                              job->model.crosses[c].first, job->model.crosses[c].second,
                              job->model.n_fields - 1);
    return true;
}

/* Those of the rows to train on, or of a model that is only loaded. */
static bool settle_fields(WideDeepJob *job, GError **error)
{
    WideDeepModel *const model = &job->model;

    model->n_fields = MAX(1, job->rows.n_fields);
    if (app_only_loads(&job->app))
        model->n_fields = app_loaded_count(&job->app, "fields", WIDE_DEEP_FIELDS_MAX, 1);
    if (model->n_fields > WIDE_DEEP_FIELDS_MAX) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: rubato-wide-deep is for fields from 0 to %u, found field %u",
                    job->data.train[0], WIDE_DEEP_FIELDS_MAX - 1, model->n_fields - 1);
        return false;
    }
    return check_crosses(job, error);
}

static void name_tables(WideDeepJob *job)
{
    size_t n = 0;

    if (job->model.has_wide)
        job->hash_tables[n++] = WIDE_DEEP_WIDE;
    if (job->model.has_deep)
        job->hash_tables[n++] = WIDE_DEEP_EMBEDDINGS;
    for (size_t i = 0; i < n; i++)
        job->tables[i] = job->hash_tables[i];
    if (!job->model.has_deep)
        job->layers.shape.n_layers = 0;
    app_layers_name(&job->layers, job->tables);
}

bool wide_deep_load(WideDeepJob *job, GError **error)
{
    AppNetShape *const shape = &job->layers.shape;

    if (!app_loss_follow(&job->model.loss, &job->app, "logistic", error) ||
        !settle_parts(job, error) ||
        !app_rows_open(&job->rows, &job->app, &job->data, &job->model.loss, /* l2= */ NULL,
                       error) ||
        !settle_fields(job, error))
        return false;
    shape->sizes[0] = job->model.n_fields * job->model.width;
    shape->sizes[shape->n_layers] = 1;
    job->model.net = shape;
    name_tables(job);
    return true;
}

/* ---- flags ---- */

static bool check_parts(const WideDeepJob *job, const WideDeepModel *model, GError **error)
{
    if (!model->has_wide && job->crosses != NULL)
        return app_refuse(error, "--cross: has no effect with --only deep");
    if (!model->has_deep && job->hidden != NULL)
        return app_refuse(error, "--hidden: has no effect with --only wide");
    return model->has_deep || job->width == APP_COUNT_NOT_GIVEN ||
           app_refuse(error, "--embedding: has no effect with --only wide");
}

static bool take_flags(void *user_data, GError **error)
{
    WideDeepJob *job = user_data;
    WideDeepModel model = { .n_crosses = 0 };
    AppNetShape shape;
    size_t rule = 0;

    if (!take_parts(&model, job->only, error) || !take_crosses(&model, job->crosses, error) ||
        !app_check_count("embedding", job->width, WIDE_DEEP_WIDTH_MAX, error) ||
        (job->hidden != NULL && !app_layers_parse(&shape, job->hidden, error)) ||
        !check_parts(job, &model, error) ||
        !app_find_word("rule", app_net_rule_names, job->rule_name, &rule, error))
        return false;
    job->layers.rule = (AppNetRule)rule;
    job->layers.of_workers = true;
    if (job->app.learning_rate <= 0)
        job->app.learning_rate = learning_rates[rule];
    return job->app.model_traits->applies_by_clock ||
           app_refuse(error,
                      "--model %s: has no effect on rubato-wide-deep, whose workers are always in "
                      "the same step",
                      job->app.model);
}

static void clear(WideDeepJob *job)
{
    app_layers_forget(job->weights);
    app_rows_clear(&job->rows);
    app_loss_clear(&job->model.loss);
    g_free(job->only);
    g_free(job->crosses);
    g_free(job->hidden);
    g_free(job->rule_name);
}

bool wide_deep_parse(WideDeepJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "only", 0, 0, G_OPTION_ARG_STRING, &job->only,
          "The parts: both (default), wide or deep, or the loaded model's", "PART" },
        { "cross", 0, 0, G_OPTION_ARG_STRING, &job->crosses,
          "wide: fields whose pairs of keys have weights, too (default none)", "A:B,..." },
        { "embedding", 'k', 0, G_OPTION_ARG_INT, &job->width,
          "deep: values of a key (default 8, or the loaded model's)", "N" },
        { "hidden", 0, 0, G_OPTION_ARG_STRING, &job->hidden,
          "deep: units of its hidden layers (default " HIDDEN ", or loaded)", "N,..." },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule_name,
          "adam (default; rate 0.003), momentum (0.03) or sgd (0.2)", "NAME" },
        G_OPTION_ENTRY_NULL,
    };
    static const char *const of_training[] = { "rule", NULL };

    *job = (WideDeepJob){
        .width = APP_COUNT_NOT_GIVEN,
        .model = { .loss = { .kind = APP_LOSS_LOGISTIC } },
        .program = { .name = "rubato-wide-deep",
                     .summary = "Trains wide and deep models on sparse rows of two labels.",
                     .options = options,
                     .of_training = of_training,
                     .data = &job->data,
                     .take_flags = take_flags,
                     .user_data = job,
                     .metric = "accuracy",
                     .epochs = 5,
                     .batch_size = 256,
                     .has_steps = true,
                     .combines = true,
                     .keeps_rows = true },
    };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    clear(job);
    return false;
}

int wide_deep_end(WideDeepJob *job, const GError *error)
{
    const int status = app_end(&job->app, error);

    clear(job);
    return status;
}
