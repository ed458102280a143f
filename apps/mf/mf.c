/* rubato-mf: matrix factorisation of ratings.
 *
 * A first task reads the ratings. One hash table has the rows of users and items. A worker keeps
 * the rows of its users while the task runs, and adds to the table at its end by how much they have
 * changed. In each stratum it gets the rows of a block of items, learns from the ratings of its
 * users and these items, adds by how much the items' rows have changed, and clocks (mf_blocks.h).
 * Under bsp no two workers use a block in the same clock, so that this is stochastic gradient
 * descent, rating by rating. */
#include "apps/kit/app_validation.h"
#include "apps/kit/scores/app_score.h"
#include "apps/mf/mf_blocks.h"

#include <string.h>

#define FACTORS "factors"
#define MEAN "mean"

typedef struct {
    App app;
    AppProgram program;
    MfModel model;

    /* flags */
    AppData data;
    char *rule_name; /* NULL: not given */
    int n_factors;

    AppLoss loss; /* squared */
    AppRows rows;
    MfBlocks blocks; /* n_blocks 0: not read yet */
} MfJob;

/* ---- training ---- */

/* Rows of a worker, and as the table has them. */
typedef struct {
    const RubatoKey *keys;
    size_t n, width;
    float *rows, *before;
} Rows;

static void rows_clear(Rows *rows)
{
    g_free(rows->rows);
    g_free(rows->before);
    *rows = (Rows){ .keys = NULL };
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Rows, rows_clear)

static bool rows_init(Rows *rows, size_t n_most, size_t width, GError **error)
{
    *rows = (Rows){ .width = width };
    rows->rows = g_try_new(float, (n_most + 1) * width);
    rows->before = g_try_new(float, (n_most + 1) * width);
    if (rows->rows != NULL && rows->before != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %zu rows of %zu numbers",
                n_most, width);
    return false;
}

static bool get(const MfJob *job, RubatoKVTable *table, Rows *rows, const RubatoKey *keys, size_t n,
                GError **error)
{
    rows->keys = keys;
    rows->n = n;
    if (!rubato_kv_table_get(table, keys, n, rows->before, error))
        return false;
    memcpy(rows->rows, rows->before, n * rows->width * sizeof *rows->rows);
    mf_begin_rows(&job->model, keys, n, rows->rows);
    return true;
}

static bool add(RubatoKVTable *table, const Rows *rows, GError **error)
{
    for (size_t i = 0; i < rows->n * rows->width; i++)
        rows->before[i] = rows->rows[i] - rows->before[i];
    return rubato_kv_table_add(table, rows->keys, rows->n, rows->before, error);
}

/* A worker's tables and memory. */
typedef struct {
    const MfJob *job;
    AppWorker *self;
    RubatoKVTable *table;
    const MfShare *share;
    uint32_t rank;
    Rows users, items;
} Trainer;

static bool train_stratum(Trainer *trainer, uint32_t stratum, double rate, GError **error)
{
    const MfJob *job = trainer->job;
    const MfBlocks *blocks = &job->blocks;
    const MfShare *share = trainer->share;
    const uint32_t block = (trainer->rank + stratum) % blocks->n_blocks;
    const size_t begin = share->starts[block], n = share->starts[block + 1] - begin;

    if (!get(job, trainer->table, &trainer->items, blocks->items[block], blocks->n_items[block],
             error))
        return false;
    const double loss = mf_learn(&job->model, rate, share->ratings + begin, n, trainer->users.rows,
                                 trainer->items.rows);
    return add(trainer->table, &trainer->items, error) &&
           rubato_kv_table_clock(trainer->table, error) &&
           app_worker_step(trainer->self, n, loss, 0, error);
}

static bool train_epochs(Trainer *trainer, GError **error)
{
    const App *app = &trainer->job->app;
    const uint32_t n_strata = trainer->job->blocks.n_blocks;
    const uint32_t first = app->only_epoch > 0 ? app->only_epoch - 1 : 0;
    const uint32_t last = app->only_epoch > 0 ? app->only_epoch : app->epochs;

    for (uint32_t epoch = first; epoch < last; epoch++)
        for (uint32_t stratum = 0; stratum < n_strata; stratum++) {
            const double rate = trainer->job->model.steps_are_even
                                    ? app_learning_rate(app, epoch, app->epochs)
                                    : app->learning_rate;

            if (!app_worker_goes_on(trainer->self))
                return true;
            if (!train_stratum(trainer, stratum, rate, error))
                return false;
        }
    return true;
}

/* The first worker of each node reads the ratings, for all of them. */
static bool read_blocks(RubatoWorker *worker, void *user_data, GError **error)
{
    MfJob *job = user_data;

    return rubato_worker_local_rank(worker) != 0 ||
           mf_blocks_read(&job->blocks, job->rows.train, rubato_worker_n_workers(worker),
                          rubato_worker_rank(worker), rubato_worker_n_local_workers(worker),
                          job->app.seed, error);
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    MfJob *job = user_data;
    const size_t width = MF_WIDTH(job->model.n_factors);
    g_auto(Rows) users = { 0 };
    g_auto(Rows) items = { 0 };
    size_t n_most = 0;

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    if (self == NULL)
        return false;
    const MfShare *share = &job->blocks.shares[rubato_worker_local_rank(worker)];
    for (uint32_t block = 0; block < job->blocks.n_blocks; block++)
        n_most = MAX(n_most, job->blocks.n_items[block]);
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, FACTORS, RUBATO_F32, error);
    if (table == NULL || !rows_init(&users, share->n_users, width, error) ||
        !rows_init(&items, n_most, width, error) ||
        !get(job, table, &users, share->users, share->n_users, error))
        return false;
    Trainer trainer = { job, self, table, share, rubato_worker_rank(worker), users, items };

    return train_epochs(&trainer, error) && add(table, &users, error);
}

/* ---- scores ---- */

/* Ratings of a batch's rows, by the rows as they are between tasks; an AppScoreFunc. */
static bool score(const RubatoBatch *batch, double *scores, void *user_data, GError **error)
{
    const MfJob *job = user_data;
    const size_t width = MF_WIDTH(job->model.n_factors);
    g_autofree float *rows = g_try_new(float, (batch->n_keys + 1) * width);

    if (rows == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %zu rows",
                    batch->n_keys);
        return false;
    }
    if (!mf_check_rows(batch, error) ||
        !rubato_engine_get(job->app.engine, FACTORS, batch->keys, batch->n_keys, rows, error))
        return false;
    for (size_t row = 0; row < batch->n_rows; row++)
        scores[row] = mf_score(&job->model, rows + batch->index[2 * row] * width,
                               rows + batch->index[2 * row + 1] * width);
    return true;
}

/* An AppMeasureFunc. */
static bool validate(double *loss, void *user_data, GError **error)
{
    MfJob *job = user_data;

    return app_score_validation(&job->rows, &job->loss, score, job, loss, error);
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    MfJob *job = user_data;

    return app_print_predictions(output, &job->data, &job->rows, path, &job->loss, score, job,
                                 error);
}

/* ---- the run ---- */

#define FACTORS_DEFAULT 32

static const char *const rule_names[] = { "adagrad", "sgd", NULL };
enum { RULE_ADAGRAD, RULE_SGD };
static const double learning_rates[] = { [RULE_ADAGRAD] = 0.1, [RULE_SGD] = 0.02 };

static bool take_flags(void *user_data, GError **error)
{
    MfJob *job = user_data;
    size_t rule = 0;

    if (!app_find_word("rule", rule_names, job->rule_name, &rule, error) ||
        !app_check_count("factors", job->n_factors, MF_FACTORS_MAX, error) ||
        !app_check_number("l2", job->model.l2, error) ||
        !app_check_number("l2-bias", job->model.l2_bias, error) ||
        !app_check_number("init-stddev", job->model.init_stddev, error))
        return false;
    if (job->data.split == RUBATO_SPLIT_DYNAMIC)
        return app_refuse(error, "--split: dynamic has no effect here, since each worker has the "
                                 "ratings of its own users and items");
    job->model.steps_are_even = rule == RULE_SGD;
    job->model.seed = job->app.seed;
    if (job->app.learning_rate <= 0)
        job->app.learning_rate = learning_rates[rule];
    return true;
}

static bool parse(MfJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "factors", 'k', 0, G_OPTION_ARG_INT, &job->n_factors,
          "Factors of a user or item (default 32)", "N" },
        { "rule", 0, 0, G_OPTION_ARG_STRING, &job->rule_name,
          "adagrad (default; learning rate .1) or sgd (.02, falling)", "NAME" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2,
          "Penalty on the squares of factors, for each rating (default 0.05)", "X" },
        { "l2-bias", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.l2_bias,
          "Penalty on the squares of biases, for each rating (default 0.02)", "X" },
        { "init-stddev", 0, 0, G_OPTION_ARG_DOUBLE, &job->model.init_stddev,
          "Standard deviation of the factors at the start (default 0.1)", "X" },
        G_OPTION_ENTRY_NULL,
    };

    static const char *const of_training[] = { "rule", "l2", "l2-bias", "init-stddev", NULL };

    *job = (MfJob){ .n_factors = APP_COUNT_NOT_GIVEN,
                    .model = { .l2 = 0.05, .l2_bias = 0.02, .init_stddev = 0.1 },
                    .loss = { .kind = APP_LOSS_SQUARED },
                    .program = { .name = "rubato-mf",
                                 .summary = "Factorises a matrix of ratings, of users and items.",
                                 .options = options,
                                 .of_training = of_training,
                                 .data = &job->data,
                                 .no_standardize = "rows of users and items have no values",
                                 .take_flags = take_flags,
                                 .user_data = job,
                                 .epochs = 20,
                                 .batch_size = APP_NO_BATCH_SIZE } };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    g_free(job->rule_name);
    return false;
}

/* The number of factors: as the flag says, or the loaded model. */
static bool settle(MfJob *job, GError **error)
{
    job->model.n_factors =
        job->n_factors != APP_COUNT_NOT_GIVEN
            ? (uint32_t)job->n_factors
            : app_loaded_count(&job->app, "factors", MF_FACTORS_MAX, FACTORS_DEFAULT);
    return app_rows_open(&job->rows, &job->app, &job->data, &job->loss,
                         /* l2= */ NULL, error);
}

/* The mean of all ratings: of the loaded model, or of the ratings to train on. */
static bool settle_mean(MfJob *job, GError **error)
{
    static const RubatoKey key = 0;
    RubatoEngine *engine = job->app.engine;

    if (job->app.load != NULL)
        return rubato_engine_get(engine, MEAN, &key, 1, &job->model.mean, error);
    job->model.mean = job->blocks.mean;
    return !app_reports(&job->app) ||
           rubato_engine_set(engine, MEAN, &key, 1, &job->model.mean, error);
}

static bool train_model(MfJob *job, const AppModel *model, GError **error)
{
    static const char *const tables[] = { FACTORS, NULL };
    App *app = &job->app;
    const RubatoTask reading = { .name = "mf-read", .run = read_blocks, .user_data = job };
    const RubatoTask task = { .name = "mf", .run = train, .user_data = job, .tables = tables };
    const bool trains = job->rows.train != NULL && app->epochs > 0;

    return (!trains || rubato_engine_run(app->engine, &reading, error)) &&
           settle_mean(job, error) &&
           (!trains ||
            app_train_validated(app, &task, job->rows.n_rows, model, validate, job, error));
}

static bool run(MfJob *job, GError **error)
{
    App *app = &job->app;
    char n_factors[16];
    const AppArray arrays[] = {
        { .name = FACTORS,
          .spec = { .name = FACTORS,
                    .dtype = RUBATO_F32,
                    .width = (uint32_t)MF_WIDTH(job->model.n_factors),
                    .storage = "hash" } },
        { .name = MEAN, .spec = { .name = MEAN, .dtype = RUBATO_F64, .n_keys = 1 } },
    };
    const AppSetting settings[] = { { "factors", n_factors }, { NULL, NULL } };
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = G_N_ELEMENTS(arrays),
        .settings = settings,
        .predict = predict,
        .user_data = job,
    };

    g_snprintf(n_factors, sizeof n_factors, "%u", job->model.n_factors);
    return app_create_model(app, &model, error) && train_model(job, &model, error) &&
           app_add_score_metrics(app, &job->rows, &job->loss, score, job, error) &&
           app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    MfJob job;

    if (!parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    if (app_start(&job.app, &error) && settle(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    const int status = app_end(&job.app, error);
    mf_blocks_clear(&job.blocks);
    app_rows_clear(&job.rows);
    g_free(job.rule_name);
    return status;
}
