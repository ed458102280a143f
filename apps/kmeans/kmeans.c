/* rubato-kmeans: k-means.
 *
 * Each worker keeps its rows in memory, and knows where they belong. The table of sums has the sum
 * of each cluster's rows. In an iteration a worker gets the sums, from which the centres follow,
 * gives each of its rows to the nearest centre, and adds by how much the sums have changed. Under
 * bsp all workers see the same centres, and stop together. Under the other models a worker may see
 * older sums of the others, but never counts a row twice.
 *
 * With mini-batches a step adds the rows of a batch, and never takes any away: so a centre is the
 * mean of all rows that it ever got, and moves less and less (D. Sculley: Web-scale k-means
 * clustering, WWW 2010). */
#include "apps/kmeans/kmeans_job.h"

#include <math.h>
#include <rubato/mix.h>
#include <string.h>

#define CLASSIFIED_AT_ONCE 4096

bool kmeans_load_share(KmeansJob *job, RubatoWorker *worker, GError **error)
{
    const RubatoReaderOptions options = { .epochs = 1,
                                          .batch_rows = 1024,
                                          .split = job->data.split };
    KmeansShare *share = &job->shares[rubato_worker_rank(worker)];

    if (share->sums != NULL)
        return true;
    return app_dense_read(&share->rows,
                          rubato_worker_open_reader(worker, job->rows.train, &options, error),
                          job->n_columns, 0, app_rows_scaling(&job->rows), error) &&
           kmeans_share_init(share, (uint32_t)job->n_clusters, error);
}

/* ---- training ---- */

/* A worker's tables and memory. */
typedef struct {
    KmeansJob *job;
    RubatoWorker *worker;
    AppWorker *self;
    KmeansShare *share;
    RubatoKVTable *table;
    size_t n_sums;   /* rows of the table */
    double *sums;    /* as the table has them */
    double *changes; /* to add */
} Trainer;

/* The last row of the table counts: how often rows have changed their clusters, and after training
 * the inertia. */
enum { COUNT_CHANGES, COUNT_INERTIA };

static double *counts_of(const Trainer *trainer, double *sums)
{
    return sums + (trainer->n_sums - 1) * KMEANS_SUM_WIDTH(trainer->job->n_columns);
}

/* Gets the sums, and lets the centres follow. */
static bool get(Trainer *trainer, GError **error)
{
    if (!rubato_kv_table_get_range(trainer->table, 0, trainer->n_sums, trainer->sums, error))
        return false;
    kmeans_centres_follow(&trainer->share->centres, trainer->sums, trainer->share->how_far);
    return true;
}

static bool add(Trainer *trainer, GError **error)
{
    return rubato_kv_table_add_range(trainer->table, 0, trainer->n_sums, trainer->changes, error) &&
           rubato_kv_table_clock(trainer->table, error);
}

/* Whether so few rows have changed their clusters since `before` that training ends: only under a
 * model by which all workers decide the same. */
static bool has_converged(const Trainer *trainer, double before)
{
    App *app = &trainer->job->app;
    const double n_changed = counts_of(trainer, trainer->sums)[COUNT_CHANGES] - before;

    if (app->model_traits->lead != RUBATO_LEAD_NONE ||
        n_changed > trainer->job->tolerance * (double)app->n_rows)
        return false;
    if (rubato_worker_local_rank(trainer->worker) == 0)
        app->stopped = APP_STOPPED_BY_CONVERGENCE;
    return true;
}

/* A step over all rows. Before the first one the rows belong nowhere, and the table may have the
 * sums of a snapshot: the worker with rank 0 takes them away, once all have seen them. */
static bool step_all(Trainer *trainer, GError **error)
{
    KmeansShare *share = trainer->share;
    const size_t n_values = trainer->n_sums * KMEANS_SUM_WIDTH(trainer->job->n_columns);
    const bool is_first = !share->is_assigned;

    if (is_first && !rubato_worker_barrier(trainer->worker, error))
        return false;
    const uint64_t n_changed = kmeans_share_assign(share, trainer->changes);
    counts_of(trainer, trainer->changes)[COUNT_CHANGES] = (double)n_changed;
    if (is_first && rubato_worker_rank(trainer->worker) == 0)
        for (size_t i = 0; i < n_values; i++)
            trainer->changes[i] -= trainer->sums[i];
    if (!add(trainer, error))
        return false;
    memset(trainer->changes, 0, n_values * sizeof *trainer->changes);
    return app_worker_step(trainer->self, share->rows.n_rows, kmeans_share_inertia(share), 0,
                           error);
}

static bool train_all(Trainer *trainer, bool *has_ended, GError **error)
{
    const App *app = &trainer->job->app;
    const uint32_t first = app->only_epoch > 0 ? app->only_epoch : 1;
    const uint32_t last = app->only_epoch > 0 ? app->only_epoch : app->epochs;

    if (!get(trainer, error))
        return false;
    for (uint32_t epoch = first; epoch <= last; epoch++) {
        const bool is_first = !trainer->share->is_assigned;
        const double before = is_first ? 0 : counts_of(trainer, trainer->sums)[COUNT_CHANGES];

        *has_ended = !app_worker_goes_on(trainer->self);
        if (*has_ended)
            return true;
        if (!step_all(trainer, error) || !get(trainer, error))
            return false;
        *has_ended = has_converged(trainer, before) || epoch == app->epochs;
        if (*has_ended)
            return true;
    }
    return true;
}

/* A worker draws any rows of its own: each may come again before another has come. */
static bool step_batch(Trainer *trainer, uint64_t step, uint64_t n_step, GError **error)
{
    const KmeansShare *share = trainer->share;
    const uint32_t n_workers = rubato_worker_n_workers(trainer->worker);
    const uint32_t rank = rubato_worker_rank(trainer->worker);
    const uint64_t seed = rubato_mix64(trainer->job->app.seed + 1) ^ rubato_mix64(rank + 1);
    const size_t n = (size_t)(n_step / n_workers + (rank < n_step % n_workers));
    const size_t n_drawn = share->rows.n_rows > 0 ? n : 0;
    g_autofree size_t *places = g_new(size_t, n + 1);

    for (size_t i = 0; i < n_drawn; i++)
        places[i] = (size_t)(rubato_mix64((rubato_mix64(seed ^ rubato_mix64(step + 1))) + i) %
                             share->rows.n_rows);
    const double inertia = kmeans_share_add(share, places, n_drawn, trainer->changes);
    if (!add(trainer, error))
        return false;
    memset(trainer->changes, 0,
           trainer->n_sums * KMEANS_SUM_WIDTH(trainer->job->n_columns) * sizeof(double));
    return app_worker_step(trainer->self, n, inertia, 0, error);
}

static bool train_batches(Trainer *trainer, bool *has_ended, GError **error)
{
    const App *app = &trainer->job->app;
    const uint64_t n_rows = trainer->job->rows.n_rows, n_batch = app->batch_size;
    const uint64_t per_epoch = (n_rows - 1) / n_batch + 1;
    const uint64_t begin = app->only_epoch > 0 ? per_epoch * (app->only_epoch - 1) : 0;
    const uint64_t end = app->only_epoch > 0 ? begin + per_epoch : per_epoch * app->epochs;

    for (uint64_t step = begin; step < end; step++) {
        *has_ended = !app_worker_goes_on(trainer->self);
        if (*has_ended)
            break;
        if (!get(trainer, error) ||
            !step_batch(trainer, step, MIN(n_batch, n_rows - step % per_epoch * n_batch), error))
            return false;
    }
    *has_ended |= end == per_epoch * app->epochs;
    return get(trainer, error);
}

/* At the end: how near all rows are to the last centres. The sums stay as these centres need
 * them. */
static bool tell_inertia(Trainer *trainer, GError **error)
{
    kmeans_share_assign(trainer->share, trainer->changes);
    memset(trainer->changes, 0,
           trainer->n_sums * KMEANS_SUM_WIDTH(trainer->job->n_columns) * sizeof(double));
    counts_of(trainer, trainer->changes)[COUNT_INERTIA] = kmeans_share_inertia(trainer->share);
    return add(trainer, error);
}

static bool train_with(Trainer *trainer, GError **error)
{
    const KmeansJob *job = trainer->job;
    bool has_ended = false;
    const bool good = job->app.batch_size == APP_WHOLE_BATCHES
                          ? train_all(trainer, &has_ended, error)
                          : train_batches(trainer, &has_ended, error);

    return good && (!has_ended || tell_inertia(trainer, error));
}

/* The centres to begin with. */
static bool get_centres(Trainer *trainer, GError **error)
{
    KmeansCentres *centres = &trainer->share->centres;
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(trainer->worker, KMEANS_CENTRES, RUBATO_F32, error);

    if (table == NULL ||
        !rubato_kv_table_get_range(table, 0, centres->n_clusters, centres->values, error))
        return false;
    kmeans_centres_update(centres);
    return true;
}

static bool train(RubatoWorker *worker, void *user_data, GError **error)
{
    KmeansJob *job = user_data;
    const size_t n_sums = (size_t)job->n_clusters + 1;
    KmeansShare *share = &job->shares[rubato_worker_rank(worker)];

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    if (self == NULL || !kmeans_load_share(job, worker, error))
        return false;
    g_autofree double *sums = g_new0(double, n_sums *KMEANS_SUM_WIDTH(job->n_columns));
    g_autofree double *changes = g_new0(double, n_sums *KMEANS_SUM_WIDTH(job->n_columns));
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(worker, KMEANS_SUMS, RUBATO_F64, error);
    Trainer trainer = { job, worker, self, share, table, n_sums, sums, changes };

    return table != NULL && (share->is_assigned || get_centres(&trainer, error)) &&
           train_with(&trainer, error);
}

/* ---- after training ---- */

/* The centres that the sums say; on the reporting node. */
static bool publish(KmeansJob *job, GError **error)
{
    const uint32_t n_clusters = (uint32_t)job->n_clusters;
    const size_t width = KMEANS_SUM_WIDTH(job->n_columns);
    RubatoEngine *engine = job->app.engine;
    g_autofree double *sums = g_new(double, (n_clusters + 1) * width);

    kmeans_centres_init(&job->final, n_clusters, job->n_columns);
    if (!rubato_engine_get_range(engine, KMEANS_CENTRES, 0, n_clusters, job->final.values, error))
        return false;
    kmeans_centres_update(&job->final);
    if (job->rows.train == NULL || job->app.epochs == 0)
        return true;
    if (!rubato_engine_get_range(engine, KMEANS_SUMS, 0, n_clusters + 1, sums, error))
        return false;
    kmeans_centres_follow(&job->final, sums, NULL);
    app_add_metric(&job->app, "train_inertia", sums[n_clusters * width + COUNT_INERTIA]);
    return rubato_engine_set_range(engine, KMEANS_CENTRES, 0, n_clusters, job->final.values, error);
}

/* What is done with the cluster of each row. */
typedef void (*TakeCluster)(uint32_t cluster, float distance, void *user_data);

/* Says which row has a key that is no column: the first of such, from 1. */
static void name_row(const RubatoBatch *batch, uint64_t n_before, uint32_t n_columns,
                     GError **error)
{
    for (size_t r = 0; r < batch->n_rows; r++)
        for (size_t e = batch->row_start[r]; e < batch->row_start[r + 1]; e++)
            if (batch->keys[batch->index[e]] >= n_columns) {
                g_prefix_error(error, "row %" G_GUINT64_FORMAT ": ", n_before + r + 1);
                return;
            }
}

static bool classify(const KmeansJob *job, RubatoDataset *rows, TakeCluster take, void *user_data,
                     GError **error)
{
    const RubatoReaderOptions options = { .batch_rows = CLASSIFIED_AT_ONCE };
    const AppFeatures *scaling = app_rows_scaling(&job->rows);
    g_autofree float *values = g_new(float, (size_t)CLASSIFIED_AT_ONCE * job->n_columns);
    g_autofree uint32_t *clusters = g_new(uint32_t, CLASSIFIED_AT_ONCE);
    g_autofree float *distances = g_new(float, CLASSIFIED_AT_ONCE);
    g_autoptr(RubatoReader) reader = rubato_dataset_open_reader(rows, &options, error);
    g_autoptr(RubatoBatch) batch = NULL;
    AppScaledBatch scaled = { .values = NULL };
    uint64_t n_rows = 0; /* before the batch */
    bool good = reader != NULL;

    for (; good && rubato_reader_next(reader, &batch, error); n_rows += batch->n_rows) {
        good = (scaling == NULL || app_scaled_batch_fill(&scaled, scaling, batch, error)) &&
               rubato_batch_fill_matrix(scaling != NULL ? &scaled.batch : batch, 0, job->n_columns,
                                        0, values, error);
        if (!good)
            name_row(batch, n_rows, job->n_columns, error);
        else
            kmeans_classify(&job->final, values, batch->n_rows, clusters, distances);
        for (size_t i = 0; good && i < batch->n_rows; i++)
            take(clusters[i], distances[i], user_data);
    }
    app_scaled_batch_clear(&scaled);
    return good && !rubato_reader_failed(reader);
}

static void print_cluster(uint32_t cluster, float distance, void *user_data)
{
    fprintf(user_data, "%u\t%.6g\n", cluster, sqrt((double)distance));
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    const KmeansJob *job = user_data;
    g_autoptr(RubatoDataset) rows = app_data_open_unlabelled(&job->data, path, error);

    return rows != NULL && classify(job, rows, print_cluster, output, error);
}

static void add_distance(uint32_t cluster, float distance, void *user_data)
{
    double *inertia = user_data;

    (void)cluster;
    *inertia += (double)distance;
}

static bool test(KmeansJob *job, GError **error)
{
    double inertia = 0;

    if (job->rows.test == NULL)
        return true;
    if (!classify(job, job->rows.test, add_distance, &inertia, error))
        return false;
    app_add_metric(&job->app, "test_inertia", inertia);
    return true;
}

/* ---- the run ---- */

/* How many clusters and columns there are: as the flags and rows say, or the loaded model. */
static bool settle(KmeansJob *job, GError **error)
{
    uint64_t n_clusters;

    if (!app_rows_open(&job->rows, &job->app, &job->data, &job->loss, /* l2= */ NULL, error))
        return false;
    if (job->app.load == NULL) {
        job->n_clusters = job->n_clusters > 0 ? job->n_clusters : KMEANS_CLUSTERS;
        return app_dense_columns(job->rows.train, "--train", &job->n_columns, error);
    }
    if (!app_model_shape(&job->app, KMEANS_CENTRES, &job->n_columns, &n_clusters, error))
        return false;
    if (n_clusters == 0 || n_clusters > KMEANS_CLUSTERS_MAX ||
        (job->n_clusters > 0 && (uint64_t)job->n_clusters != n_clusters))
        return app_refuse(error, "--clusters: the model in %s has %" G_GUINT64_FORMAT " clusters",
                          job->app.load, n_clusters);
    job->n_clusters = (int)n_clusters;
    return true;
}

static bool train_model(KmeansJob *job, GError **error)
{
    static const char *const tables[] = { KMEANS_CENTRES, KMEANS_SUMS, NULL };
    App *app = &job->app;
    RubatoTableSpec sums = { .name = KMEANS_SUMS,
                             .dtype = RUBATO_F64,
                             .width = (uint32_t)KMEANS_SUM_WIDTH(job->n_columns),
                             .n_keys = (uint64_t)job->n_clusters + 1 };
    const RubatoTask task = { .name = "kmeans", .run = train, .user_data = job, .tables = tables };

    if (job->rows.train == NULL || app->epochs == 0)
        return true;
    app_set_model(app, &sums);
    job->n_shares = rubato_engine_n_workers(app->engine);
    job->shares = g_new0(KmeansShare, job->n_shares);
    return app_create_table(app, &sums, error) && (app->load != NULL || kmeans_seed(job, error)) &&
           app_train(app, &task, job->rows.n_rows, error);
}

static bool run(KmeansJob *job, GError **error)
{
    App *app = &job->app;
    const AppArray arrays[] = {
        { .name = KMEANS_CENTRES,
          .spec = { .name = KMEANS_CENTRES,
                    .dtype = RUBATO_F32,
                    .width = job->n_columns,
                    .n_keys = (uint64_t)job->n_clusters } },
        { .name = APP_SCALING, .spec = app_features_table() },
    };
    const AppSetting settings[] = { { app_rows_setting(&job->rows), "yes" }, { NULL, NULL } };
    const AppModel model = {
        .arrays = arrays,
        .n_arrays = job->rows.standardised ? 2 : 1,
        .settings = settings,
        .predict = predict,
        .user_data = job,
    };

    return app_create_model(app, &model, error) && app_rows_settle(&job->rows, app, error) &&
           train_model(job, error) &&
           (!app_reports(app) || (publish(job, error) && test(job, error))) &&
           app_finish(app, &model, error);
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    KmeansJob job;

    if (!kmeans_parse(&job, argc, argv))
        return APP_EXIT_USAGE;
    if (app_start(&job.app, &error) && settle(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    return kmeans_end(&job, error);
}
