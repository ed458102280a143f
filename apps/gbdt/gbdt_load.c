/* rubato-gbdt: flags, and what follows from them and from the rows. Runs on main's thread. */
#include "apps/gbdt/gbdt_job.h"

#include <math.h>
#include <rubato/mix.h>
#include <string.h>

#define CUT_ROWS 65536 /* about as many rows say where columns are cut */
#define READ_AT_ONCE 4096
#define SCALE ((double)(1 << 24))

static bool take_flags(void *user_data, GError **error)
{
    GbdtJob *job = user_data;

    if (!app_loss_take(&job->loss, job->loss_name, error) ||
        !app_check_number("l2", job->terms.l2, error) ||
        !app_check_number("min-weight", job->terms.min_weight, error) ||
        !app_check_number("min-gain", job->terms.min_gain, error))
        return false;
    if (job->loss.kind == APP_LOSS_HINGE)
        return app_refuse(error, "--loss: expected logistic, squared or softmax, found \"hinge\"");
    if (!app_check_count("max-depth", job->max_depth, GBDT_DEPTH_MAX, error))
        return false;
    if (job->n_bins < 3 || job->n_bins > GBDT_BINS_MAX)
        return app_refuse(error, "--bins: expected a number from 3 to %d, found %d", GBDT_BINS_MAX,
                          job->n_bins);
    if (job->data.split == RUBATO_SPLIT_DYNAMIC)
        return app_refuse(error, "--split: dynamic has no effect here, since each worker reads its "
                                 "rows once, before the first tree");
    if (!job->app.model_traits->applies_by_clock)
        return app_refuse(error,
                          "--model: trees need the histograms of all workers at once, as "
                          "bsp has them, found \"%s\"",
                          job->app.model);
    job->depth = (uint32_t)job->max_depth;
    return true;
}

static void clear(GbdtJob *job)
{
    for (uint32_t i = 0; i < job->n_shares; i++) {
        app_dense_clear(&job->shares[i].dense);
        gbdt_rows_clear(&job->shares[i].rows);
    }
    g_free(job->shares);
    gbdt_forest_clear(&job->forest);
    if (job->validation.scores != NULL)
        g_array_unref(job->validation.scores);
    if (job->bins.starts != NULL)
        gbdt_bins_clear(&job->bins);
    app_rows_clear(&job->rows);
    app_loss_clear(&job->loss);
    g_free(job->loss_name);
}

bool gbdt_parse(GbdtJob *job, int argc, char **argv)
{
    const GOptionEntry options[] = {
        { "loss", 0, 0, G_OPTION_ARG_STRING, &job->loss_name,
          "logistic (default), squared (any numbers), softmax (classes)", "NAME" },
        { "max-depth", 'd', 0, G_OPTION_ARG_INT, &job->max_depth,
          "Splits on the way to a leaf, at most (default 6)", "N" },
        { "bins", 0, 0, G_OPTION_ARG_INT, &job->n_bins,
          "Ranges of a column's values, and one for none (default 256)", "N" },
        { "l2", 0, 0, G_OPTION_ARG_DOUBLE, &job->terms.l2,
          "Penalty on the squares of the leaves' values (default 1)", "X" },
        { "min-weight", 0, 0, G_OPTION_ARG_DOUBLE, &job->terms.min_weight,
          "The least sum of second derivatives in a leaf (default 1)", "X" },
        { "min-gain", 0, 0, G_OPTION_ARG_DOUBLE, &job->terms.min_gain,
          "The least gain of a split (default 0)", "X" },
        G_OPTION_ENTRY_NULL,
    };

    static const char *const of_training[] = { "max-depth",  "bins",     "l2",
                                               "min-weight", "min-gain", NULL };

    *job = (GbdtJob){ .n_bins = GBDT_BINS_MAX,
                      .max_depth = 6,
                      .terms = { .l2 = 1, .min_weight = 1 },
                      .program = { .name = "rubato-gbdt",
                                   .summary = "Trains gradient-boosted trees on histograms.",
                                   .options = options,
                                   .of_training = of_training,
                                   .data = &job->data,
                                   .no_standardize = "has no effect on trees, which compare "
                                                     "values",
                                   .take_flags = take_flags,
                                   .user_data = job,
                                   .epochs = 100,
                                   .batch_size = APP_NO_BATCH_SIZE,
                                   .learning_rate = 0.1 } };
    if (app_parse(&job->app, &job->program, argc, argv))
        return true;
    clear(job);
    return false;
}

int gbdt_end(GbdtJob *job, const GError *error)
{
    const int status = app_end(&job->app, error);

    clear(job);
    return status;
}

/* ---- the rows ---- */

/* Reads all rows; some of them, the same on every node, say where columns are cut. So the cuts do
 * not depend on how many workers and nodes there are, nor do the trees. */
static bool read_sample(const GbdtJob *job, uint32_t n_columns, AppDense *sample, GError **error)
{
    const RubatoReaderOptions options = { .batch_rows = READ_AT_ONCE };
    const uint64_t n_rows = job->rows.n_rows;
    const uint64_t most = n_rows <= CUT_ROWS ? UINT64_MAX : UINT64_MAX / n_rows * CUT_ROWS;
    g_autoptr(RubatoReader) reader = rubato_dataset_open_reader(job->rows.train, &options, error);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autofree float *values = g_new(float, (size_t)READ_AT_ONCE *n_columns);
    uint64_t number = 0;
    bool good = reader != NULL;

    *sample = (AppDense){ .n_columns = n_columns };
    sample->values = g_new(float, (size_t)MIN(n_rows, 2 * CUT_ROWS) * n_columns + 1);
    while (good && rubato_reader_next(reader, &batch, error)) {
        good = rubato_batch_fill_matrix(batch, 0, n_columns, NAN, values, error);
        for (size_t row = 0; good && row < batch->n_rows; row++) {
            if (rubato_mix64(++number) > most || sample->n_rows == MIN(n_rows, 2 * CUT_ROWS))
                continue;
            memcpy(sample->values + sample->n_rows * n_columns, values + row * n_columns,
                   n_columns * sizeof *values);
            sample->n_rows++;
        }
    }
    return good && !rubato_reader_failed(reader);
}

static bool cut_columns(GbdtJob *job, GError **error)
{
    g_auto(AppDense) sample = { 0 };
    uint32_t n_columns;

    if (!app_dense_columns(job->rows.train, "--train", &n_columns, error) ||
        !read_sample(job, n_columns, &sample, error))
        return false;
    gbdt_bins_cut(&job->bins, &sample, (uint32_t)job->n_bins);
    job->terms.n_columns = n_columns;
    job->terms.starts = job->bins.starts;
    return true;
}

/* With the squared loss a gradient may be as large as the labels are apart. */
static double scale_of(const AppLoss *loss)
{
    const double spread = loss->positive - loss->negative;

    return loss->kind == APP_LOSS_SQUARED && spread > 0 ? SCALE / spread : SCALE;
}

/* The columns of a model that is only loaded. */
static bool take_columns(GbdtJob *job, GError **error)
{
    const char *text = app_loaded_setting(&job->app, "columns");
    guint64 n_columns = 0;

    if (text == NULL)
        return true;
    if (!g_ascii_string_to_unsigned(text, 10, 1, APP_DENSE_COLUMNS_MAX, &n_columns, NULL))
        return app_refuse(error, "--load %s: \"%s\" is no number of columns", job->app.load, text);
    if (job->rows.train == NULL)
        job->bins.n_columns = (uint32_t)n_columns;
    return true;
}

bool gbdt_load(GbdtJob *job, GError **error)
{
    if (!app_loss_follow(&job->loss, &job->app, job->loss_name, error) ||
        !app_rows_open(&job->rows, &job->app, &job->data, &job->loss, /* l2= */ NULL, error) ||
        !take_columns(job, error) || (job->rows.train != NULL && !cut_columns(job, error)))
        return false;
    job->program.metric = app_loss_metric(&job->loss);
    job->scale = scale_of(&job->loss);
    job->terms.scale = job->scale;
    return true;
}

/* ---- trees ---- */

bool gbdt_count_loaded(GbdtJob *job, GError **error)
{
    g_autofree RubatoKey *keys = NULL;
    size_t n;

    if (job->app.load == NULL)
        return true;
    if (!rubato_engine_list_keys(job->app.engine, GBDT_TREES, &keys, &n, error))
        return false;
    if (n > 0)
        job->n_loaded = (keys[n - 1] >> GBDT_NODE_BITS) / app_loss_n_scores(&job->loss) + 1;
    return true;
}

bool gbdt_read_forest(const GbdtJob *job, GbdtForest *forest, GError **error)
{
    g_autofree RubatoKey *keys = NULL;
    size_t n;

    return rubato_engine_list_keys(job->app.engine, GBDT_TREES, &keys, &n, error) &&
           gbdt_forest_read(forest, job->app.engine, GBDT_TREES, keys, n, job->bins.n_columns,
                            error);
}

bool gbdt_read_trees(const GbdtJob *job, uint64_t first, uint64_t end, GbdtForest *forest,
                     GError **error)
{
    const uint32_t n_nodes = (2u << job->depth) - 1; /* that a tree may have */
    g_autofree RubatoKey *keys = g_new(RubatoKey, (end - first) * n_nodes + 1);
    size_t n = 0;

    for (uint64_t tree = first; tree < end; tree++)
        for (uint32_t node = 1; node <= n_nodes; node++)
            keys[n++] = gbdt_node_key(tree, node);
    return gbdt_forest_read(forest, job->app.engine, GBDT_TREES, keys, n, job->bins.n_columns,
                            error);
}
