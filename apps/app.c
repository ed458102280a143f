/* The frame of a program: flags, engine, training run, end. Runs on main's thread, except for what
 * app.h says workers call. */
#include "apps/app.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 4096
#define COUNT_MAX (1 << 30)
#define FINAL_RATE 0.05

static const char *const models[] = { "asp", "bsp", "ssp", "sparse_ssp", NULL };

/* The flags as GOption takes them; NOT_GIVEN where a number was not. */
#define NOT_GIVEN G_MININT

typedef struct {
    char *cluster, *model, *json;
    int node, servers, workers;
    int staleness, speculation;
    int epochs, batch_size;
    double learning_rate;
    int64_t seed;
    char **rest;
} Flags;

static bool refuse(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static bool refuse(GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, text);
    return false;
}

static bool check_count(const char *flag, int value, int low, int high, GError **error)
{
    if (value >= low && value <= high)
        return true;
    return refuse(error, "--%s: expected a number from %d to %d, found %d", flag, low, high, value);
}

/* Which node of which cluster: flags first, then what `rubato run` sets. */
static bool read_place(App *app, const Flags *flags, GError **error)
{
    const char *file = flags->cluster != NULL ? flags->cluster : g_getenv("RUBATO_CLUSTER");
    const char *node = g_getenv("RUBATO_NODE");

    if (file == NULL || *file == '\0') {
        if (flags->node != NOT_GIVEN)
            return refuse(error, "--node: needs --cluster FILE, the file that lists the nodes");
        if (flags->servers != NOT_GIVEN &&
            !check_count("servers", flags->servers, 1, THREADS_MAX, error))
            return false;
        if (flags->workers != NOT_GIVEN &&
            !check_count("workers", flags->workers, 1, THREADS_MAX, error))
            return false;
        app->servers = flags->servers != NOT_GIVEN ? (uint32_t)flags->servers : 0;
        app->workers = flags->workers != NOT_GIVEN ? (uint32_t)flags->workers : 0;
        return true;
    }

    if (flags->servers != NOT_GIVEN || flags->workers != NOT_GIVEN)
        return refuse(
            error, "--%s: is for a single process; on a cluster the numbers stand in its file, %s",
            flags->servers != NOT_GIVEN ? "servers" : "workers", file);
    if (flags->node != NOT_GIVEN) {
        if (!check_count("node", flags->node, 0, G_MAXINT, error))
            return false;
        app->node = (uint32_t)flags->node;
    } else if (node != NULL && *node != '\0') {
        uint64_t id;

        if (!g_ascii_string_to_unsigned(node, 10, 0, UINT32_MAX, &id, NULL))
            return refuse(error, "RUBATO_NODE: expected the id of a node, found \"%s\"", node);
        app->node = (uint32_t)id;
    } else {
        return refuse(error, "--node: give the id that this node has in %s", file);
    }
    app->cluster = g_strdup(file);
    return true;
}

static bool read_model(App *app, const Flags *flags, GError **error)
{
    const char *model = flags->model != NULL ? flags->model : "bsp";

    if (!g_strv_contains(models, model)) {
        g_autofree char *known = g_strjoinv(", ", (char **)models);

        return refuse(error, "--model: expected one of %s, found \"%s\"", known, model);
    }
    if (!check_count("staleness", flags->staleness, 0, COUNT_MAX, error) ||
        !check_count("speculation", flags->speculation, 0, COUNT_MAX, error))
        return false;

    const bool sparse = strcmp(model, "sparse_ssp") == 0;
    app->model = g_strdup(model);
    app->staleness = sparse || strcmp(model, "ssp") == 0 ? (uint32_t)flags->staleness : 0;
    app->speculation = sparse ? (uint32_t)flags->speculation : 0;
    return true;
}

static bool read_flags(App *app, const Flags *flags, GError **error)
{
    if (flags->rest != NULL && flags->rest[0] != NULL)
        return refuse(error, "unexpected argument \"%s\"", flags->rest[0]);
    if (!read_place(app, flags, error) || !read_model(app, flags, error) ||
        !check_count("epochs", flags->epochs, 1, COUNT_MAX, error) ||
        !check_count("batch-size", flags->batch_size, 1, COUNT_MAX, error))
        return false;
    if (!isfinite(flags->learning_rate) || flags->learning_rate <= 0)
        return refuse(error, "--learning-rate: expected a number above 0, found %g",
                      flags->learning_rate);
    if (flags->seed < 0)
        return refuse(error, "--seed: expected a number from 0, found %" G_GINT64_FORMAT,
                      flags->seed);
    app->epochs = (uint32_t)flags->epochs;
    app->batch_size = (uint32_t)flags->batch_size;
    app->learning_rate = flags->learning_rate;
    app->seed = (uint64_t)flags->seed;
    app->json = g_strdup(flags->json);
    return true;
}

static GOptionContext *context_new(const AppProgram *program, Flags *flags)
{
    const GOptionEntry shared[] = {
        { "model", 'm', 0, G_OPTION_ARG_STRING, &flags->model,
          "Consistency: asp, bsp (default), ssp or sparse_ssp", "NAME" },
        { "staleness", 's', 0, G_OPTION_ARG_INT, &flags->staleness,
          "Clocks that a worker may be ahead of the slowest (ssp, sparse_ssp; default 1)", "N" },
        { "speculation", 0, 0, G_OPTION_ARG_INT, &flags->speculation,
          "Clocks beyond it for whom no key is in dispute (sparse_ssp; default 1)", "N" },
        { "epochs", 'e', 0, G_OPTION_ARG_INT, &flags->epochs, "Passes over the data", "N" },
        { "batch-size", 'b', 0, G_OPTION_ARG_INT, &flags->batch_size,
          "Rows of a step, over all workers together", "N" },
        { "learning-rate", 'l', 0, G_OPTION_ARG_DOUBLE, &flags->learning_rate,
          "Length of the first steps; later ones are shorter", "X" },
        { "seed", 0, 0, G_OPTION_ARG_INT64, &flags->seed, "Of the order of the rows (default 1)",
          "N" },
        { "json", 0, 0, G_OPTION_ARG_FILENAME, &flags->json,
          "Write the result as JSON to FILE, - for standard output", "FILE" },
        { "cluster", 0, 0, G_OPTION_ARG_FILENAME, &flags->cluster,
          "Be a node of the cluster in FILE (or RUBATO_CLUSTER)", "FILE" },
        { "node", 0, 0, G_OPTION_ARG_INT, &flags->node, "Which of its nodes (or RUBATO_NODE)",
          "ID" },
        { "servers", 0, 0, G_OPTION_ARG_INT, &flags->servers,
          "Server threads of a single process (default 1)", "N" },
        { "workers", 'w', 0, G_OPTION_ARG_INT, &flags->workers,
          "Workers of a single process (default 1)", "N" },
        { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_STRING_ARRAY, &flags->rest, NULL, NULL },
        G_OPTION_ENTRY_NULL,
    };
    GOptionContext *context = g_option_context_new(NULL);

    g_autofree char *description = g_strdup_printf(
        "Defaults: --epochs %u --batch-size %u --learning-rate %g. Without --cluster it is one\n"
        "process; on a cluster start it with: rubato run FILE -- %s ...\n",
        program->epochs, program->batch_size, program->learning_rate, program->name);
    g_option_context_set_summary(context, program->summary);
    g_option_context_set_description(context, description);
    if (program->options != NULL)
        g_option_context_add_main_entries(context, program->options, NULL);
    g_option_context_add_main_entries(context, shared, NULL);
    return context;
}

bool app_parse(App *app, const AppProgram *program, int argc, char **argv)
{
    Flags flags = {
        .node = NOT_GIVEN,
        .servers = NOT_GIVEN,
        .workers = NOT_GIVEN,
        .staleness = 1,
        .speculation = 1,
        .epochs = (int)program->epochs,
        .batch_size = (int)program->batch_size,
        .learning_rate = program->learning_rate,
        .seed = 1,
    };
    g_autoptr(GOptionContext) context = context_new(program, &flags);
    g_autoptr(GError) error = NULL;

    *app = (App){ .program = program };
    app->notes = g_ptr_array_new_with_free_func(g_free);
    app->metrics = g_array_new(FALSE, FALSE, sizeof(AppMetric));
    setlocale(LC_CTYPE, ""); /* how text is encoded, but no decimal commas */
    g_set_prgname(program->name);

    const bool good =
        g_option_context_parse(context, &argc, &argv, &error) && read_flags(app, &flags, &error);
    g_free(flags.cluster);
    g_free(flags.model);
    g_free(flags.json);
    g_strfreev(flags.rest);
    if (good)
        return true;
    g_printerr("%s: %s\n", program->name, error->message);
    g_printerr("Try \"%s --help\".\n", program->name);
    app_end(app, NULL);
    return false;
}

bool app_start(App *app, GError **error)
{
    const RubatoEngineConfig config = {
        .cluster_file = app->cluster,
        .node = app->node,
        .servers = app->servers,
        .workers = app->workers,
        .handle_signals = true,
    };

    app->engine = rubato_engine_new(&config, error);
    return app->engine != NULL;
}

void app_note(App *app, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_ptr_array_add(app->notes, g_strdup_vprintf(format, arguments));
    va_end(arguments);
}

void app_set_model(const App *app, RubatoTableSpec *spec)
{
    spec->model = app->model;
    spec->staleness = app->staleness;
    spec->speculation = app->speculation;
}

bool app_train(App *app, const RubatoTask *task, uint64_t n_rows, GError **error)
{
    app->n_samples = n_rows * app->epochs;
    app_progress_begin(&app->progress, app->epochs, app->n_samples);

    const int64_t begun_us = g_get_monotonic_time();
    const bool good = rubato_engine_run(app->engine, task, error);
    app->seconds = (double)(g_get_monotonic_time() - begun_us) / G_USEC_PER_SEC;
    app_progress_end(&app->progress);
    return good;
}

void app_worker_begin(App *app, RubatoWorker *worker)
{
    if (rubato_worker_rank(worker) != 0)
        return;
    for (guint i = 0; i < app->notes->len; i++)
        g_printerr("%s: %s\n", app->program->name, (const char *)app->notes->pdata[i]);
    app_progress_speak(&app->progress, rubato_worker_n_workers(worker),
                       rubato_worker_n_local_workers(worker));
}

void app_worker_step(App *app, RubatoWorker *worker, uint64_t n_rows, double loss)
{
    app_progress_count(&app->progress, n_rows);
    if (rubato_worker_rank(worker) == 0)
        app_progress_draw(&app->progress, n_rows, loss);
}

double app_learning_rate(const App *app, uint64_t step, uint64_t n_steps)
{
    const double done = (double)step / (double)n_steps;

    return app->learning_rate * (1 - (1 - FINAL_RATE) * done);
}

bool app_speaks(const App *app)
{
    return app->progress.speaks;
}

int app_end(App *app, const GError *error)
{
    if (error != NULL)
        g_printerr("%s: %s\n", app->program->name, error->message);
    rubato_engine_free(app->engine);
    for (guint i = 0; i < app->metrics->len; i++)
        g_free(g_array_index(app->metrics, AppMetric, i).name);
    g_array_unref(app->metrics);
    g_ptr_array_unref(app->notes);
    g_free(app->model);
    g_free(app->json);
    g_free(app->cluster);
    return error != NULL ? EXIT_FAILURE : EXIT_SUCCESS;
}
