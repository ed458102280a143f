/* rubato-softmax: softmax regression on images, Fashion-MNIST unless told otherwise.
 *
 * The weights are one dense table: a row for each pixel and one for the bias, a value for each
 * class. softmax_train.c has what workers do with it. */
#include "apps/kit/app.h"
#include "apps/softmax/softmax_train.h"

#define DATA_DEFAULT "/usr/share/datasets/fashion-mnist"
#define N_GENERATED_TRAIN 60000
#define N_GENERATED_TEST 10000
#define GENERATED_SEED 2017

typedef SoftmaxJob Job;

/* All weights as they are now. (transfer full) */
static float *get_weights(const Job *job, GError **error)
{
    g_autofree float *weights = g_new(float, job->n_inputs * job->n_classes);

    if (!rubato_engine_get_range(job->app.engine, job->table, 0, job->n_inputs, weights, error))
        return NULL;
    return g_steal_pointer(&weights);
}

static void add_metrics(Job *job, const char *set, const float *weights, const RubatoImages *images)
{
    const SoftmaxTally tally = softmax_evaluate(weights, job->n_classes, images);
    const double n = (double)images->n_images;
    g_autofree char *loss = g_strconcat(set, "_loss", NULL);
    g_autofree char *accuracy = g_strconcat(set, "_accuracy", NULL);

    app_add_metric(&job->app, loss, tally.loss / n);
    app_add_metric(&job->app, accuracy, (double)tally.n_right / n);
}

static bool evaluate(Job *job, GError **error)
{
    g_autofree float *weights = get_weights(job, error);

    if (weights == NULL)
        return false;
    add_metrics(job, "train", weights, job->train);
    add_metrics(job, "test", weights, job->test);
    return true;
}

static bool predict(const char *path, FILE *output, void *user_data, GError **error)
{
    const Job *job = user_data;
    g_autoptr(RubatoImages) images = rubato_images_load(path, NULL, error);
    g_autofree float *weights = images != NULL ? get_weights(job, error) : NULL;

    if (weights == NULL)
        return false;
    if (softmax_n_inputs(images) != job->n_inputs) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s: expected images of %zu pixels, as the model has them, found %u × %u", path,
                    job->n_inputs - 1, images->width, images->height);
        return false;
    }
    for (size_t i = 0; i < images->n_images; i++)
        fprintf(output, "%u\n", softmax_classify(weights, job->n_classes, images, i));
    return true;
}

static bool run(Job *job, GError **error)
{
    App *app = &job->app;
    const AppArray weights = {
        .name = "weights",
        .spec = { .name = job->table,
                  .dtype = RUBATO_F32,
                  .width = job->n_classes,
                  .n_keys = job->n_inputs,
                  .model = job->app.by_allreduce ? "asp" : NULL },
    };
    const AppModel model = {
        .arrays = &weights, .n_arrays = 1, .predict = predict, .user_data = job
    };
    const char *const tables[] = { job->table, NULL };
    const RubatoTask task = {
        .name = "softmax",
        .run = softmax_train,
        .user_data = job,
        .tables = tables,
    };

    return app_create_model(app, &model, error) &&
           (job->train == NULL || (app_train(app, &task, job->train->n_images, error) &&
                                   (!app_reports(app) || evaluate(job, error)))) &&
           app_finish(app, &model, error);
}

/* The data: an IDX file NAME or NAME.gz in a folder. (transfer full) */
static char *find_file(const char *dir, const char *name)
{
    char *path = g_build_filename(dir, name, NULL);

    if (g_file_test(path, G_FILE_TEST_EXISTS))
        return path;
    char *packed = g_strconcat(path, ".gz", NULL);
    g_free(path);
    return packed;
}

static RubatoImages *load(const char *dir, const char *set, GError **error)
{
    g_autofree char *images_name = g_strconcat(set, "-images-idx3-ubyte", NULL);
    g_autofree char *labels_name = g_strconcat(set, "-labels-idx1-ubyte", NULL);
    g_autofree char *images = find_file(dir, images_name);
    g_autofree char *labels = find_file(dir, labels_name);

    return rubato_images_load(images, labels, error);
}

static bool check(const Job *job, GError **error)
{
    if (job->test->height == job->train->height && job->test->width == job->train->width &&
        job->test->n_classes <= job->train->n_classes)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "the test images (%u × %u, %u classes) do not go with the training images "
                "(%u × %u, %u classes)",
                job->test->width, job->test->height, job->test->n_classes, job->train->width,
                job->train->height, job->train->n_classes);
    return false;
}

static bool generate(Job *job, GError **error)
{
    job->table = "weights-generated";
    job->train = rubato_images_generate(N_GENERATED_TRAIN, GENERATED_SEED, 0, error);
    if (job->train == NULL)
        return false;
    job->test = rubato_images_generate(N_GENERATED_TEST, GENERATED_SEED, N_GENERATED_TRAIN, error);
    return job->test != NULL;
}

static bool get_images(Job *job, GError **error)
{
    const char *dir = job->dir;

    if (job->generated) {
        app_note(&job->app, "training on generated images");
        return generate(job, error);
    }
    if (dir == NULL && !g_file_test(DATA_DEFAULT, G_FILE_TEST_IS_DIR)) {
        app_note(&job->app, DATA_DEFAULT " is not there (Debian's package dataset-fashion-mnist "
                                         "puts it there)");
        app_note(&job->app, "training on generated images instead");
        return generate(job, error);
    }
    if (dir == NULL)
        dir = DATA_DEFAULT;
    job->table = "weights";
    job->train = load(dir, "train", error);
    if (job->train == NULL)
        return false;
    job->test = load(dir, "t10k", error);
    if (job->test == NULL || !check(job, error))
        return false;

    char n_train[32], n_test[32];
    app_format_count(job->train->n_images, n_train, sizeof n_train);
    app_format_count(job->test->n_images, n_test, sizeof n_test);
    app_note(&job->app, "%s images to train on, %s to test on, from %s", n_train, n_test, dir);
    return true;
}

static bool prepare(Job *job, GError **error)
{
    if (app_only_loads(&job->app)) {
        uint64_t n_inputs;

        job->table = "weights";
        if (!app_model_shape(&job->app, "weights", &job->n_classes, &n_inputs, error))
            return false;
        if (n_inputs == 0 || job->n_classes == 0 || job->n_classes > SOFTMAX_CLASSES_MAX) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "--load %s: expected 1 to %d classes for each of some pixels, found %u of "
                        "%" G_GUINT64_FORMAT,
                        job->app.load, SOFTMAX_CLASSES_MAX, job->n_classes, n_inputs);
            return false;
        }
        job->n_inputs = (size_t)n_inputs;
        return true;
    }
    if (!get_images(job, error))
        return false;
    job->n_inputs = softmax_n_inputs(job->train);
    job->n_classes = job->train->n_classes;
    return true;
}

static bool take_flags(void *user_data, GError **error)
{
    const Job *job = user_data;

    return job->dir == NULL || !job->generated ||
           app_refuse(error, "--data: has no effect with --generated; leave out one of them");
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    Job job = { .train = NULL };
    static const char *const of_rows[] = { "data", "generated", NULL };
    static const char *const of_training[] = { "by", NULL };
    const GOptionEntry options[] = {
        { "by", 0, 0, G_OPTION_ARG_STRING, &job.by,
          "How workers combine gradients: tables (default) or allreduce", "WAY" },
        { "data", 'd', 0, G_OPTION_ARG_FILENAME, &job.dir,
          "Folder of the IDX files (default " DATA_DEFAULT ")", "DIR" },
        { "generated", 0, 0, G_OPTION_ARG_NONE, &job.generated,
          "Train on generated images, which need no files", NULL },
        G_OPTION_ENTRY_NULL,
    };
    const AppProgram program = {
        .name = "rubato-softmax",
        .summary = "Trains softmax regression on images of ten or so classes.",
        .options = options,
        .by = &job.by,
        .of_training = of_training,
        .of_rows = of_rows,
        .take_flags = take_flags,
        .user_data = &job,
        .metric = "accuracy",
        .epochs = 10,
        .batch_size = 64,
        .has_steps = true,
        .learning_rate = 0.1,
    };

    if (!app_parse(&job.app, &program, argc, argv)) {
        g_free(job.dir);
        g_free(job.by);
        return APP_EXIT_USAGE;
    }
    if (app_start(&job.app, &error) && prepare(&job, &error))
        (void)run(&job, &error); /* a failure is in error */
    const int status = app_end(&job.app, error);
    rubato_images_free(job.train);
    rubato_images_free(job.test);
    g_free(job.dir);
    g_free(job.by);
    return status;
}
