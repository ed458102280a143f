/* The flags that every program has. Runs on main's thread. */
#include "apps/kit/app.h"
#include "apps/kit/app_effects.h"
#include "apps/kit/app_stream.h"
#include "apps/kit/report/app_output.h"
#include "apps/kit/report/app_table_rows.h"

#include <float.h>
#include <glib/gstdio.h>
#include <locale.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 4096
#define PARTS_MAX 4096
#define REPLICAS_MAX 7
#define COUNT_MAX (1 << 30)
#define DEFAULT_KEEP 3
#define MOST_FULL_EVERY 9999
#define DEFAULT_CLOCKS 1 /* of staleness, and of speculation */
#define STRAGGLER_MS_MAX (3600.0 * 1000)

/* The flags as GOption takes them; NOT_GIVEN if a number was not given. */
#define NOT_GIVEN G_MININT
#define RATE_NOT_GIVEN (-DBL_MAX)

typedef struct {
    char *cluster, *model, *json;
    char *save, *load, *predict, *output, *plot, *straggler, *target_loss;
    int node, servers, workers;
    int staleness, speculation, parts, replicas;
    int epochs, batch_size;
    double learning_rate;
    double time_limit; /* 0: not given */
    gboolean keep_going, bind_cores, numa;
    char *checkpoint;
    char *checkpoint_every;
    int full_every;
    int keep;
    gboolean resume;
    char *stream, *stream_every;
    char *checkpoint_packing, *stream_packing;
    int64_t seed;
    char **rest, **plugins;
    AppDataFlags data;
} Flags;

bool app_refuse(GError **error, const char *format, ...)
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
    return app_refuse(error, "--%s: expected a number from %d to %d, found %d", flag, low, high,
                      value);
}

bool app_find_word(const char *flag, const char *const *words, const char *word, size_t *index,
                   GError **error)
{
    for (size_t i = 0; words[i] != NULL; i++)
        if (word == NULL || strcmp(words[i], word) == 0) {
            *index = i;
            return true;
        }
    g_autofree char *known = g_strjoinv(", ", (char **)(uintptr_t)words);
    return app_refuse(error, "--%s: expected one of %s, found \"%s\"", flag, known, word);
}

bool app_check_count(const char *flag, int count, int most, GError **error)
{
    return count == APP_COUNT_NOT_GIVEN || check_count(flag, count, 1, most, error);
}

bool app_check_number(const char *flag, double number, GError **error)
{
    return number == APP_NOT_GIVEN || (isfinite(number) && number >= 0) ||
           app_refuse(error, "--%s: expected a number from 0, found %g", flag, number);
}

/* Takes --servers and --workers, if they are given. */
static bool read_own_numbers(const Flags *flags, uint32_t *servers, uint32_t *workers,
                             GError **error)
{
    if (flags->servers != NOT_GIVEN &&
        !check_count("servers", flags->servers, 1, THREADS_MAX, error))
        return false;
    if (flags->workers != NOT_GIVEN &&
        !check_count("workers", flags->workers, 1, THREADS_MAX, error))
        return false;
    if (flags->servers != NOT_GIVEN)
        *servers = (uint32_t)flags->servers;
    if (flags->workers != NOT_GIVEN)
        *workers = (uint32_t)flags->workers;
    return true;
}

/* Which node of which cluster: flags first, then what `rubato run`, or another command of rubato,
 * sets. */
static bool read_place(App *app, const Flags *flags, GError **error)
{
    const char *file = flags->cluster != NULL ? flags->cluster : g_getenv("RUBATO_CLUSTER");
    const char *node = g_getenv("RUBATO_NODE");

    if (flags->cluster == NULL && flags->node == NOT_GIVEN &&
        !rubato_announcement_from_environment(&app->announcement, error))
        return false;
    if (app->announcement.role == RUBATO_ROLE_NODE)
        return read_own_numbers(flags, &app->announcement.servers, &app->announcement.workers,
                                error);
    if (app->announcement.role != RUBATO_ROLE_NONE) {
        if (flags->servers != NOT_GIVEN || flags->workers != NOT_GIVEN)
            return app_refuse(error,
                              "--%s: is for a single process; RUBATO_ROLE says that this is one of "
                              "several, and RUBATO_THREADS how many threads it has",
                              flags->servers != NOT_GIVEN ? "servers" : "workers");
        return true;
    }
    if (file == NULL || *file == '\0') {
        if (flags->node != NOT_GIVEN)
            return app_refuse(error, "--node: needs --cluster FILE, the file that lists the nodes");
        return read_own_numbers(flags, &app->servers, &app->workers, error);
    }

    if (flags->servers != NOT_GIVEN || flags->workers != NOT_GIVEN)
        return app_refuse(
            error, "--%s: is for a single process; on a cluster the numbers stand in its file, %s",
            flags->servers != NOT_GIVEN ? "servers" : "workers", file);
    if (flags->node != NOT_GIVEN) {
        if (!check_count("node", flags->node, 0, G_MAXINT, error))
            return false;
        app->node = (uint32_t)flags->node;
    } else if (node != NULL && *node != '\0') {
        uint64_t id;

        if (!g_ascii_string_to_unsigned(node, 10, 0, UINT32_MAX, &id, NULL))
            return app_refuse(error, "RUBATO_NODE: expected the id of a node, found \"%s\"", node);
        app->node = (uint32_t)id;
    } else {
        return app_refuse(error, "--node: give the id that this node has in %s", file);
    }
    app->cluster = g_strdup(file);
    return true;
}

/* The cluster file's, so that flags may name what is in them. */
static bool load_plugins_of_cluster(const App *app, GError **error)
{
    return app->cluster == NULL || rubato_load_plugins_of(app->cluster, error);
}

bool app_load_plugins(char *const *paths, GError **error)
{
    for (char *const *path = paths; path != NULL && *path != NULL; path++)
        if (!rubato_load_plugin(*path, error)) {
            g_prefix_error(error, "--plugin: ");
            return false;
        }
    return true;
}

static bool read_way(App *app, GError **error)
{
    static const char *const ways[] = { "tables", "allreduce", NULL };
    size_t way = 0;

    if (app->program->by != NULL && !app_find_word("by", ways, *app->program->by, &way, error))
        return false;
    app->by_allreduce = way == 1;
    return true;
}

/* A number of clocks that some models take. */
static bool read_model_number(const App *app, const char *flag, int given, bool has_effect,
                              uint32_t *number, GError **error)
{
    if (given == NOT_GIVEN) {
        *number = has_effect ? DEFAULT_CLOCKS : 0;
        return true;
    }
    if (!check_count(flag, given, 0, COUNT_MAX, error))
        return false;
    if (!has_effect && app->by_allreduce) /* another model would be refused next */
        return app_refuse(error,
                          "--%s: has no effect with --by allreduce, whose workers are always in "
                          "the same step; leave out one of them",
                          flag);
    if (!has_effect)
        return app_refuse(error,
                          "--%s: has no effect under --model %s; leave it out, or take another "
                          "model",
                          flag, app->model);
    *number = (uint32_t)given;
    return true;
}

static bool read_model(App *app, const Flags *flags, GError **error)
{
    const char *model = flags->model != NULL ? flags->model : "bsp";
    g_autoptr(GPtrArray) models = g_ptr_array_new();
    const char *name;
    size_t index = 0;

    for (size_t i = 0; (name = rubato_model_name(i)) != NULL; i++)
        g_ptr_array_add(models, (gpointer)(uintptr_t)name);
    g_ptr_array_add(models, NULL);
    if (!app_find_word("model", (const char *const *)models->pdata, model, &index, error) ||
        !check_count("parts", flags->parts, 0, PARTS_MAX, error))
        return false;

    app->model = g_strdup(model);
    app->model_traits = rubato_model_traits(model);
    app->parts = (uint32_t)flags->parts;
    if (app->by_allreduce && !app->model_traits->applies_by_clock)
        return app_refuse(error,
                          "--model %s: has no effect with --by allreduce, whose workers are always "
                          "in the same step; leave out one of them",
                          model);
    return read_model_number(app, "staleness", flags->staleness,
                             app->model_traits->lead == RUBATO_LEAD_STALENESS, &app->staleness,
                             error) &&
           read_model_number(app, "speculation", flags->speculation,
                             app->model_traits->takes_announcements, &app->speculation, error);
}

static bool read_replicas(App *app, const Flags *flags, GError **error)
{
    if (!check_count("replicas", flags->replicas, 0, REPLICAS_MAX, error))
        return false;
    app->replicas = (uint32_t)flags->replicas;
    if (app->replicas == 0)
        return true;
    if (app->by_allreduce)
        return app_refuse(error, "--replicas: have no use with --by allreduce, which needs all "
                                 "workers; leave out one of them");
    if (app->cluster == NULL && app->announcement.role == RUBATO_ROLE_NONE)
        return app_refuse(error, "--replicas: needs several nodes, which `rubato run FILE` starts; "
                                 "this is a single process");
    return true;
}

/* "0.1:250": a tenth of the iterations, 250 ms each. */
static bool read_straggler(App *app, const char *text, GError **error)
{
    char *colon, *end;

    if (text == NULL)
        return true;
    const double probability = g_ascii_strtod(text, &colon);
    const double ms = *colon == ':' ? g_ascii_strtod(colon + 1, &end) : -1;
    if (colon == text || *colon != ':' || end == colon + 1 || *end != '\0' ||
        !(probability >= 0 && probability <= 1) || !(ms >= 0 && ms <= STRAGGLER_MS_MAX))
        return app_refuse(
            error,
            "--straggler: expected PROBABILITY:MS, a number from 0 to 1 and milliseconds "
            "from 0 to %.0f, such as 0.05:20, found \"%s\"",
            STRAGGLER_MS_MAX, text);
    app->straggler_probability = probability;
    app->straggler_ms = ms;
    return true;
}

static bool read_ends(App *app, const Flags *flags, GError **error)
{
    char *end;

    app->time_limit = (double)INFINITY;
    app->target_loss = -(double)INFINITY;
    if (!isfinite(flags->time_limit) || flags->time_limit < 0)
        return app_refuse(error, "--time-limit: expected seconds above 0, found %g",
                          flags->time_limit);
    if (flags->time_limit > 0)
        app->time_limit = flags->time_limit;
    if (flags->target_loss == NULL)
        return true;
    app->target_loss = g_ascii_strtod(flags->target_loss, &end);
    if (end == flags->target_loss || *end != '\0' || !isfinite(app->target_loss))
        return app_refuse(error, "--target-loss: expected a number, found \"%s\"",
                          flags->target_loss);
    return true;
}

/* A folder whose name is completed to others beside it. (transfer full) */
static char *without_slashes(const char *path)
{
    char *text = g_strdup(path);
    size_t n = text != NULL ? strlen(text) : 0;
    const size_t least = n > 0 && g_str_has_prefix(text, "s3://") ? strlen("s3://") : 1;

    while (n > least && text[n - 1] == '/')
        text[--n] = '\0';
    return text;
}

static bool read_files(App *app, const Flags *flags, GError **error)
{
    if (flags->output != NULL && flags->predict == NULL)
        return app_refuse(error, "--output: needs --predict FILE, the rows to predict");
    app->json = g_strdup(flags->json);
    app->save = without_slashes(flags->save);
    app->load = g_strdup(flags->load);
    app->predict = g_strdup(flags->predict);
    app->output = g_strdup(flags->output != NULL ? flags->output : "-");
    app->plot = g_strdup(flags->plot);
    if (app->predict != NULL && app->json != NULL && strcmp(app->json, "-") == 0 &&
        strcmp(app->output, "-") == 0)
        return app_refuse(error,
                          "--json and --output: standard output cannot take both; name a file "
                          "for one of them");
    return true;
}

/* A model that is loaded to predict, or to be tested without rows to train on, is not trained on,
 * unless the user says so. */
static bool read_epochs(App *app, const Flags *flags, GError **error)
{
    const bool is_tested = flags->data.test != NULL && flags->data.train == NULL;
    const bool is_used = flags->load != NULL && (flags->predict != NULL || is_tested);

    app->epochs = is_used ? 0 : app->program->epochs;
    if (flags->epochs != NOT_GIVEN) {
        if (!check_count("epochs", flags->epochs, 0, COUNT_MAX, error))
            return false;
        app->epochs = (uint32_t)flags->epochs;
    }
    app->only_loads = is_used && app->epochs == 0;
    return true;
}

/* "5" epochs, "30s" or "1000c" */
static bool read_checkpoint_every(App *app, const Flags *flags, GError **error)
{
    const char *const text = flags->checkpoint_every;
    char *end;

    if (text == NULL)
        return true;
    const double number = g_ascii_strtod(text, &end);
    const bool is_steps = strcmp(end, "c") == 0, is_seconds = strcmp(end, "s") == 0;

    if (end == text || !(is_steps || is_seconds || *end == '\0') || !(number > 0) ||
        number > COUNT_MAX || (!is_seconds && number != floor(number)))
        return app_refuse(error,
                          "--checkpoint-every: expected epochs such as 5, seconds such as 30s, or "
                          "steps such as 1000c, found \"%s\"",
                          text);
    if (*end != '\0' && !app->program->has_steps)
        return app_refuse(error,
                          "--checkpoint-every %s: %s takes snapshots between epochs alone; give a "
                          "number of them",
                          text, app->program->name);
    if (*end != '\0' && g_strcmp0(flags->data.split, "dynamic") == 0 && !app->program->keeps_rows)
        return app_refuse(error,
                          "--checkpoint-every %s and --split dynamic: %s does not know which rows "
                          "a worker has had in the middle of an epoch; leave out one",
                          text, app->program->name);
    app->checkpoint_every = *end == '\0' ? (uint32_t)number : 0;
    app->checkpoint_steps = is_steps ? (uint64_t)number : 0;
    app->checkpoint_seconds = is_seconds ? number : 0;
    return true;
}

/* NULL: none */
static bool read_packing(const char *flag, const char *text, RubatoPacking *packing, GError **error)
{
    static const char *const words[] = { "none", "zstd", "bf16", "8bit", NULL };
    static const RubatoPacking packings[] = { RUBATO_PACKING_NONE, RUBATO_PACKING_ZSTD,
                                              RUBATO_PACKING_BF16, RUBATO_PACKING_8BIT };
    size_t i = 0;

    if (!app_find_word(flag, words, text, &i, error))
        return false;
    *packing = packings[i];
    return true;
}

static bool read_stream(App *app, const Flags *flags, GError **error)
{
    if (app->stream == NULL && flags->stream_packing != NULL)
        return app_refuse(error,
                          "--stream-packing: needs --stream URI, where the model streams to");
    return read_packing("stream-packing", flags->stream_packing, &app->stream_packing, error);
}

static bool read_checkpoint(App *app, const Flags *flags, GError **error)
{
    const char *const needy = flags->resume                       ? "resume"
                              : flags->checkpoint_every != NULL   ? "checkpoint-every"
                              : flags->checkpoint_packing != NULL ? "checkpoint-packing"
                              : flags->full_every != NOT_GIVEN    ? "full-every"
                              : flags->keep != NOT_GIVEN          ? "keep"
                                                                  : NULL;

    app->checkpoint = without_slashes(flags->checkpoint);
    app->resume = flags->resume;
    app->checkpoint_every = 1;
    app->keep = DEFAULT_KEEP;
    if (app->checkpoint == NULL)
        return needy == NULL ||
               app_refuse(error, "--%s: needs --checkpoint DIR, the directory of snapshots", needy);
    if (flags->data.validate != NULL)
        return app_refuse(error, "--checkpoint and --validate: a snapshot does not have what "
                                 "validation found before it; leave out one");
    if (app->resume && app->load != NULL)
        return app_refuse(error, "--resume and --load: both say what to begin with; leave out one");
    if (!read_checkpoint_every(app, flags, error) ||
        !read_packing("checkpoint-packing", flags->checkpoint_packing, &app->checkpoint_packing,
                      error))
        return false;
    if (flags->full_every != NOT_GIVEN) {
        if (!check_count("full-every", flags->full_every, 1, MOST_FULL_EVERY, error))
            return false;
        app->full_every = (uint32_t)flags->full_every;
    }
    if (flags->keep != NOT_GIVEN) {
        if (!check_count("keep", flags->keep, 0, COUNT_MAX, error))
            return false;
        app->keep = (uint32_t)flags->keep;
    }
    return true;
}

static bool read_data(App *app, Flags *flags, GError **error)
{
    const bool validates = flags->data.validate != NULL;

    if (validates && app->epochs == 0)
        return app_refuse(error, "--validate: there is no training that it could measure (--test "
                                 "FILE tests a loaded model)");
    const char *usual = app->program->default_train;
    const bool is_usual = usual != NULL && flags->data.train == NULL && !app->only_loads &&
                          g_access(usual, R_OK) == 0;

    if (is_usual)
        flags->data.train = g_strsplit(usual, "\n", 1);
    if (flags->data.standardize && app->program->no_standardize != NULL)
        return app_refuse(error, "--standardize: %s", app->program->no_standardize);
    return app->program->data == NULL ||
           app_data_take(app->program->data, &flags->data, !app->only_loads, error);
}

static bool read_flags(App *app, Flags *flags, GError **error)
{
    if (flags->rest != NULL && flags->rest[0] != NULL)
        return app_refuse(error, "unexpected argument \"%s\"", flags->rest[0]);
    if (!read_place(app, flags, error) || !load_plugins_of_cluster(app, error) ||
        !app_load_plugins(flags->plugins, error) || !read_way(app, error) ||
        !read_model(app, flags, error) || !read_replicas(app, flags, error) ||
        !read_epochs(app, flags, error) || !read_files(app, flags, error) ||
        !read_checkpoint(app, flags, error) ||
        !app_stream_take(app, flags->stream, flags->stream_every, error) ||
        !read_stream(app, flags, error) || !read_data(app, flags, error) ||
        !read_straggler(app, flags->straggler, error) || !read_ends(app, flags, error) ||
        (flags->batch_size != NOT_GIVEN &&
         !check_count("batch-size", flags->batch_size, 1, COUNT_MAX, error)))
        return false;
    if (flags->learning_rate != RATE_NOT_GIVEN &&
        app->program->learning_rate == APP_NO_LEARNING_RATE)
        return app_refuse(error, "--learning-rate: %s has none", app->program->name);
    if (flags->batch_size != NOT_GIVEN && app->program->batch_size == APP_NO_BATCH_SIZE)
        return app_refuse(error, "--batch-size: %s has no batches", app->program->name);
    if (flags->learning_rate != RATE_NOT_GIVEN &&
        !(isfinite(flags->learning_rate) && flags->learning_rate > 0))
        return app_refuse(error, "--learning-rate: expected a number above 0, found %g",
                          flags->learning_rate);
    if (flags->seed < 0)
        return app_refuse(error, "--seed: expected a number from 0, found %" G_GINT64_FORMAT,
                          flags->seed);
    app->has_batch_size = flags->batch_size != NOT_GIVEN;
    app->batch_size = app->has_batch_size ? (uint32_t)flags->batch_size : app->program->batch_size;
    app->learning_rate =
        flags->learning_rate != RATE_NOT_GIVEN ? flags->learning_rate : app->program->learning_rate;
    app->seed = (uint64_t)flags->seed;
    app->keep_going = flags->keep_going;
    app->bind_cores = flags->bind_cores;
    app->numa = flags->numa;
    return true;
}

/* " --batch-size 256", or what --help says instead. (transfer full) */
static char *batch_size_text(const AppProgram *program)
{
    GString *text = g_string_new(NULL);

    if (program->batch_size != APP_WHOLE_BATCHES && program->batch_size != APP_NO_BATCH_SIZE)
        g_string_append_printf(text, " --batch-size %u", program->batch_size);
    if (program->batch_size_softmax > 0)
        g_string_append_printf(text, " (softmax: %u)", program->batch_size_softmax);
    return g_string_free(text, FALSE);
}

static void add_model_flags(GOptionContext *context, Flags *flags)
{
    const GOptionEntry entries[] = {
        { "model", 'm', 0, G_OPTION_ARG_STRING, &flags->model,
          "Consistency: asp, bsp (default), ssp, sparse_ssp, or a plug-in's", "NAME" },
        { "plugin", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &flags->plugins,
          "Load models, storages and update rules from FILE; may be repeated", "FILE" },
        { "staleness", 's', 0, G_OPTION_ARG_INT, &flags->staleness,
          "ssp, sparse_ssp: clocks ahead of the slowest worker (default 1)", "N" },
        { "speculation", 0, 0, G_OPTION_ARG_INT, &flags->speculation,
          "sparse_ssp: clocks beyond, if no key is shared (default 1)", "N" },
        { "parts", 0, 0, G_OPTION_ARG_INT, &flags->parts,
          "Parts of each table (default one for each server thread)", "N" },
        { "replicas", 0, 0, G_OPTION_ARG_INT, &flags->replicas,
          "Copies of each part on other nodes (default 0)", "N" },
        G_OPTION_ENTRY_NULL,
    };

    g_option_context_add_main_entries(context, entries, NULL);
}

static void add_training_flags(GOptionContext *context, Flags *flags)
{
    const GOptionEntry entries[] = {
        { "epochs", 'e', 0, G_OPTION_ARG_INT, &flags->epochs, "Passes over the data", "N" },
        { "batch-size", 'b', 0, G_OPTION_ARG_INT, &flags->batch_size,
          "Rows of a step, over all workers together", "N" },
        { "learning-rate", 'l', 0, G_OPTION_ARG_DOUBLE, &flags->learning_rate,
          "Length of the first steps; later ones are shorter", "X" },
        { "seed", 0, 0, G_OPTION_ARG_INT64, &flags->seed,
          "Of the order of the rows, and of stragglers (default 1)", "N" },
        { "straggler", 0, 0, G_OPTION_ARG_STRING, &flags->straggler,
          "Let workers sleep MS before a step, with this probability", "PROBABILITY:MS" },
        G_OPTION_ENTRY_NULL,
    };

    g_option_context_add_main_entries(context, entries, NULL);
}

static void add_result_flags(GOptionContext *context, Flags *flags)
{
    const GOptionEntry entries[] = {
        { "json", 0, 0, G_OPTION_ARG_FILENAME, &flags->json,
          "Write the result as JSON to FILE, - for standard output", "FILE" },
        { "save", 0, 0, G_OPTION_ARG_FILENAME, &flags->save,
          "Save the trained model into the folder DIR", "DIR" },
        { "load", 0, 0, G_OPTION_ARG_FILENAME, &flags->load,
          "Begin with the model that --save left in DIR", "DIR" },
        { "predict", 0, 0, G_OPTION_ARG_FILENAME, &flags->predict,
          "Predict the rows of FILE; with --load and no --epochs, only that", "FILE" },
        { "output", 0, 0, G_OPTION_ARG_FILENAME, &flags->output,
          "Write the predictions to FILE (default -, standard output)", "FILE" },
        { "plot", 0, 0, G_OPTION_ARG_FILENAME, &flags->plot,
          "Draw loss and metric over time as SVG; needs gnuplot", "FILE" },
        G_OPTION_ENTRY_NULL,
    };

    g_option_context_add_main_entries(context, entries, NULL);
}

static void add_snapshot_flags(GOptionContext *context, Flags *flags)
{
    const GOptionEntry entries[] = {
        { "checkpoint", 0, 0, G_OPTION_ARG_FILENAME, &flags->checkpoint,
          "Take snapshots between epochs into the directory DIR", "DIR" },
        { "checkpoint-every", 0, 0, G_OPTION_ARG_STRING, &flags->checkpoint_every,
          "... each N epochs (default 1), or seconds (30s) or steps (1000c)", "N" },
        { "checkpoint-packing", 0, 0, G_OPTION_ARG_STRING, &flags->checkpoint_packing,
          "... packed: none (default), zstd, or values rounded: bf16, 8bit", "HOW" },
        { "full-every", 0, 0, G_OPTION_ARG_INT, &flags->full_every,
          "... with all rows in one of N, else those that changed (default 1)", "N" },
        { "keep", 0, 0, G_OPTION_ARG_INT, &flags->keep,
          "... and keep the newest N; 0: all (default 3)", "N" },
        { "resume", 0, 0, G_OPTION_ARG_NONE, &flags->resume,
          "Go on from the newest good snapshot in it, if there is one", NULL },
        { "stream", 0, 0, G_OPTION_ARG_STRING, &flags->stream,
          "Stream the model out while it is trained: file:DIR, or zmq:...", "URI" },
        { "stream-every", 0, 0, G_OPTION_ARG_STRING, &flags->stream_every,
          "... a version each so many seconds (default 1s) or clocks (100c)", "N" },
        { "stream-packing", 0, 0, G_OPTION_ARG_STRING, &flags->stream_packing,
          "... packed: none (default), zstd, or values rounded: bf16, 8bit", "HOW" },
        G_OPTION_ENTRY_NULL,
    };

    g_option_context_add_main_entries(context, entries, NULL);
}

static void add_limit_flags(GOptionContext *context, Flags *flags)
{
    const GOptionEntry entries[] = {
        { "time-limit", 0, 0, G_OPTION_ARG_DOUBLE, &flags->time_limit,
          "Stop training after so many seconds", "SECONDS" },
        { "target-loss", 0, 0, G_OPTION_ARG_STRING, &flags->target_loss,
          "Stop training when its smoothed loss is down to X", "X" },
        { "keep-going", 0, 0, G_OPTION_ARG_NONE, &flags->keep_going,
          "Train on when the loss is no number any more", NULL },
        G_OPTION_ENTRY_NULL,
    };

    g_option_context_add_main_entries(context, entries, NULL);
}

static void add_place_flags(GOptionContext *context, Flags *flags)
{
    const GOptionEntry entries[] = {
        { "cluster", 0, 0, G_OPTION_ARG_FILENAME, &flags->cluster,
          "Be a node of the cluster in FILE (or RUBATO_CLUSTER)", "FILE" },
        { "node", 0, 0, G_OPTION_ARG_INT, &flags->node, "Which of its nodes (or RUBATO_NODE)",
          "ID" },
        { "bind-cores", 0, 0, G_OPTION_ARG_NONE, &flags->bind_cores,
          "Bind servers to cores of their own, and workers to the others", NULL },
        { "numa", 0, 0, G_OPTION_ARG_NONE, &flags->numa,
          "... and rows to the NUMA nodes of their servers", NULL },
        { "servers", 0, 0, G_OPTION_ARG_INT, &flags->servers,
          "Server threads of a single process (default 1)", "N" },
        { "workers", 'w', 0, G_OPTION_ARG_INT, &flags->workers,
          "Workers of a single process (default 1)", "N" },
        { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_STRING_ARRAY, &flags->rest, NULL, NULL },
        G_OPTION_ENTRY_NULL,
    };

    g_option_context_add_main_entries(context, entries, NULL);
}

static GOptionContext *context_new(const AppProgram *program, Flags *flags)
{
    GOptionContext *context = g_option_context_new(NULL);

    g_autofree char *rate = program->learning_rate > 0
                                ? g_strdup_printf(" --learning-rate %g", program->learning_rate)
                                : g_strdup("");
    g_autofree char *batch = batch_size_text(program);
    g_autofree char *description =
        g_strdup_printf("Defaults: --epochs %u%s%s. Without --cluster it is one\n"
                        "process; on a cluster start it with: rubato run FILE -- %s ...\n",
                        program->epochs, batch, rate, program->name);
    g_option_context_set_summary(context, program->summary);
    g_option_context_set_description(context, description);
    if (program->options != NULL)
        g_option_context_add_main_entries(context, program->options, NULL);
    if (program->data != NULL)
        app_data_add_flags(context, &flags->data);
    add_model_flags(context, flags);
    add_training_flags(context, flags);
    add_result_flags(context, flags);
    add_snapshot_flags(context, flags);
    add_limit_flags(context, flags);
    add_place_flags(context, flags);
    return context;
}

static void flags_clear(Flags *flags)
{
    char *const texts[] = { flags->cluster,       flags->model,        flags->json,
                            flags->save,          flags->load,         flags->predict,
                            flags->output,        flags->plot,         flags->straggler,
                            flags->target_loss,   flags->checkpoint,   flags->checkpoint_every,
                            flags->stream,        flags->stream_every, flags->checkpoint_packing,
                            flags->stream_packing };

    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
        g_free(texts[i]);
    g_strfreev(flags->rest);
    g_strfreev(flags->plugins);
    app_data_flags_clear(&flags->data);
}

bool app_parse(App *app, const AppProgram *program, int argc, char **argv)
{
    Flags flags = {
        .node = NOT_GIVEN,
        .servers = NOT_GIVEN,
        .workers = NOT_GIVEN,
        .staleness = NOT_GIVEN,
        .speculation = NOT_GIVEN,
        .epochs = NOT_GIVEN,
        .full_every = NOT_GIVEN,
        .keep = NOT_GIVEN,
        .batch_size = NOT_GIVEN,
        .learning_rate = RATE_NOT_GIVEN,
        .seed = 1,
        .data = { .patience = PATIENCE_NOT_GIVEN },
    };
    g_autoptr(GOptionContext) context = context_new(program, &flags);
    g_autoptr(GError) error = NULL;

    g_auto(GStrv) arguments = g_new0(char *, (size_t)argc + 1); /* parsing takes them away */
    for (int i = 1; i < argc; i++)
        arguments[i - 1] = g_strdup(argv[i]);
    *app = (App){ .program = program };
    app->notes = g_ptr_array_new_with_free_func(g_free);
    sem_init(&app->signals, 0, 0);
    app->metrics = g_array_new(FALSE, FALSE, sizeof(AppMetric));
    app->table_rows = g_array_new(FALSE, FALSE, sizeof(AppTableRows));
    app_output_check_at_exit();
    setlocale(LC_CTYPE, ""); /* how text is encoded, but no decimal commas */
    g_set_prgname(program->name);

    const bool good =
        g_option_context_parse(context, &argc, &argv, &error) && read_flags(app, &flags, &error) &&
        app_effects_check(app, arguments, &error) &&
        (program->take_flags == NULL || program->take_flags(program->user_data, &error));
    flags_clear(&flags);
    if (good)
        return true;
    g_printerr("%s: %s\n", program->name, error->message);
    g_printerr("Try \"%s --help\".\n", program->name);
    app_end(app, NULL);
    return false;
}

bool app_only_loads(const App *app)
{
    return app->only_loads;
}
