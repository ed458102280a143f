/* rubato-lr: logistic regression on sparse libsvm files.
 *
 * The weights are one hash table, a row of one value for each column and one for the bias. A step
 * gets and adds just the keys that its rows use; which these are each worker tells ahead of time, so
 * that under sparse_ssp workers whose rows share no columns need not wait for each other. */
#include "apps/app.h"
#include "apps/app_batches.h"
#include "apps/lr_model.h"

#include <math.h>
#include <stdlib.h>

#define TABLE "weights"
#define EVALUATED_AT_ONCE 1024

typedef struct {
    App app;
    RubatoRows *train, *test;
    LrLabels labels;
    double l2;
} Job;

/* What a worker tells ahead: the keys of its part of each step. */
typedef struct {
    const Job *job;
    const AppBatches *batches;
    uint64_t n_steps;
    uint64_t *rows;
    GArray *keys;
} Ahead;

static bool tell_keys(uint64_t step, RubatoIteration *iteration, void *user_data)
{
    Ahead *ahead = user_data;
    uint64_t n_step;

    if (step >= ahead->n_steps)
        return false;
    const size_t n = app_batches_take(ahead->batches, step, ahead->rows, &n_step);
    lr_collect_keys(ahead->job->train, ahead->rows, n, ahead->keys);
    iteration->keys = (const RubatoKey *)(void *)ahead->keys->data;
    iteration->n = ahead->keys->len;
    return true;
}

static bool train_steps(Job *job, RubatoWorker *worker, Ahead *ahead, GError **error)
{
    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    const AppBatches *batches = ahead->batches;
    g_autofree uint64_t *rows = g_new(uint64_t, app_batches_max(batches));
    g_autoptr(GArray) weights = g_array_new(FALSE, FALSE, sizeof(float));
    g_autoptr(GArray) delta = g_array_new(FALSE, FALSE, sizeof(float));
    RubatoIteration keys;

    if (self == NULL)
        return false;
    g_autoptr(RubatoSparseKVClientTable) table = rubato_worker_open_sparse_kv_client_table_with(
        worker, TABLE, RUBATO_F32, tell_keys, ahead, error);
    if (table == NULL)
        return false;
    for (uint64_t step = 0;
         app_worker_goes_on(self) && rubato_sparse_kv_client_table_next(table, &keys); step++) {
        uint64_t n_step;
        const size_t n = app_batches_take(batches, step, rows, &n_step);
        const double rate = app_learning_rate(&job->app, step, ahead->n_steps);

        g_array_set_size(weights, (guint)keys.n);
        g_array_set_size(delta, (guint)keys.n);
        if (!rubato_sparse_kv_client_table_get(table, weights->data, error))
            return false;
        /* Divided by the whole step's rows: the workers' deltas add up to one mean gradient. */
        const double loss = lr_gradient(job->train, &job->labels, rows, n, keys.keys,
                                        (const float *)(void *)weights->data, keys.n, job->l2,
                                        -rate / (double)n_step, (float *)(void *)delta->data);
        if (!rubato_sparse_kv_client_table_add(table, delta->data, error) ||
            !app_worker_step(self, n, loss, 0, error))
            return false;
    }
    return true;
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    Job *job = user_data;
    AppBatches batches;

    app_batches_init(&batches, job->train->n_rows, job->app.batch_size, rubato_worker_rank(worker),
                     rubato_worker_n_workers(worker), job->app.seed);
    g_autofree uint64_t *rows = g_new(uint64_t, app_batches_max(&batches));
    g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    Ahead ahead = {
        .job = job,
        .batches = &batches,
        .n_steps = app_batches_per_epoch(&batches) * job->app.epochs,
        .rows = rows,
        .keys = keys,
    };
    return train_steps(job, worker, &ahead, error);
}

/* Scores rows by the table's weights, as many at a time as need few of them at once. */
static bool evaluate(Job *job, const RubatoRows *rows, LrRating *rating, GError **error)
{
    g_autofree double *scores = g_try_new(double, rows->n_rows);
    g_autoptr(GArray) keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    g_autoptr(GArray) weights = g_array_new(FALSE, FALSE, sizeof(float));
    uint64_t which[EVALUATED_AT_ONCE];

    if (scores == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory to score %zu rows",
                    rows->n_rows);
        return false;
    }
    for (size_t first = 0; first < rows->n_rows; first += EVALUATED_AT_ONCE) {
        const size_t n = MIN(rows->n_rows - first, EVALUATED_AT_ONCE);

        for (size_t i = 0; i < n; i++)
            which[i] = first + i;
        lr_collect_keys(rows, which, n, keys);
        g_array_set_size(weights, keys->len);
        const RubatoKey *wanted = (const RubatoKey *)(void *)keys->data;
        if (!rubato_engine_get(job->app.engine, TABLE, wanted, keys->len, weights->data, error))
            return false;
        lr_score(rows, first, n, wanted, (const float *)(void *)weights->data, keys->len, scores);
    }
    return lr_rate(rows, &job->labels, scores, rating, error);
}

static bool add_metrics(Job *job, GError **error)
{
    LrRating rating;

    if (!evaluate(job, job->train, &rating, error))
        return false;
    app_add_metric(&job->app, "train_loss", rating.logloss);
    if (job->test == NULL)
        return true;
    if (!evaluate(job, job->test, &rating, error))
        return false;
    app_add_metric(&job->app, "test_accuracy", rating.accuracy);
    app_add_metric(&job->app, "test_logloss", rating.logloss);
    app_add_metric(&job->app, "test_auc", rating.auc);
    return true;
}

static bool run(Job *job, GError **error)
{
    App *app = &job->app;
    const AppArray weights = {
        .name = TABLE,
        .spec = { .name = TABLE, .dtype = RUBATO_F32, .storage = "hash" },
    };
    const AppModel model = { .arrays = &weights, .n_arrays = 1 };
    const char *const tables[] = { TABLE, NULL };
    const RubatoTask task = { .name = "lr", .run = train, .user_data = job, .tables = tables };

    return app_start(app, error) && app_create_model(app, &model, error) &&
           app_train(app, &task, job->train->n_rows, error) &&
           (!app_speaks(app) || add_metrics(job, error)) && app_finish(app, &model, error);
}

static RubatoRows *load_rows(const char *path, GError **error)
{
    const char *const paths[] = { path, NULL };
    const RubatoDataSpec spec = { .paths = paths, .format = "libsvm" };

    return rubato_dataset_load(&spec, error);
}

static bool load(Job *job, const char *train_path, const char *test_path, GError **error)
{
    job->train = load_rows(train_path, error);
    if (job->train == NULL || !lr_find_labels(job->train, train_path, &job->labels, error))
        return false;
    if (test_path == NULL)
        return true;
    job->test = load_rows(test_path, error);
    return job->test != NULL && lr_check_labels(job->test, test_path, &job->labels, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *train_path = NULL;
    g_autofree char *test_path = NULL;
    Job job = { .train = NULL };
    const GOptionEntry options[] = {
        { "train", 0, 0, G_OPTION_ARG_FILENAME, &train_path,
          "The rows to train on, in libsvm's format, plain or gzipped", "FILE" },
        { "test", 0, 0, G_OPTION_ARG_FILENAME, &test_path, "The rows to test on", "FILE" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job.l2,
          "Penalty on the squares of the weights that a row uses (default 0)", "X" },
        G_OPTION_ENTRY_NULL,
    };
    const AppProgram program = {
        .name = "rubato-lr",
        .summary = "Trains logistic regression on sparse rows with two labels.",
        .options = options,
        .epochs = 10,
        .batch_size = 64,
        .learning_rate = 0.5,
    };

    if (!app_parse(&job.app, &program, argc, argv))
        return APP_EXIT_USAGE;
    if (train_path == NULL || !isfinite(job.l2) || job.l2 < 0) {
        g_printerr("rubato-lr: %s\nTry \"rubato-lr --help\".\n",
                   train_path == NULL ? "--train: give the file to train on"
                                      : "--l2: expected a number from 0");
        app_end(&job.app, NULL);
        return APP_EXIT_USAGE;
    }
    if (load(&job, train_path, test_path, &error))
        (void)run(&job, &error); /* what fails is in error */
    const int status = app_end(&job.app, error);
    rubato_rows_free(job.train);
    rubato_rows_free(job.test);
    return status;
}
