/* Flags of training data, and readers as they ask for them. */
#include "apps/kit/app_data.h"

#include <glib/gstdio.h>
#include <glob.h>
#include <string.h>

#include "apps/kit/app.h"
#include "apps/kit/model/app_keys.h"

#define HASH_BITS_MAX 64
#define EPOCH_SEED UINT64_C(0x9e3779b97f4a7c15) /* far apart from those of other epochs */
#define PATIENCE_DEFAULT 3
#define WORDS_SHOWN 10u
#define IMAGES_PART "-images-idx3-"
#define LABELS_PART "-labels-idx1-"

void app_data_add_flags(GOptionContext *context, AppDataFlags *flags)
{
    const GOptionEntry entries[] = {
        { "train", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &flags->train,
          "The rows to train on, a file or glob; may be given again for more", "FILE" },
        { "test", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &flags->test, "The rows to test on, likewise",
          "FILE" },
        { "validate", 0, 0, G_OPTION_ARG_FILENAME, &flags->validate,
          "Rows, or a part of --train, to measure on; keeps the best epoch", "FILE|FRACTION" },
        { "patience", 0, 0, G_OPTION_ARG_INT, &flags->patience,
          "--validate: stop after N epochs without a better loss (default 3)", "N" },
        { "format", 0, 0, G_OPTION_ARG_STRING, &flags->format,
          "libsvm, libffm, csv, ratings, bag_of_words, text, idx (by the name)", "NAME" },
        { "label-column", 0, 0, G_OPTION_ARG_STRING, &flags->label_column,
          "csv: the label, by name or number from 0 (default: the first)", "COLUMN" },
        { "header", 0, 0, G_OPTION_ARG_STRING, &flags->header,
          "csv: whether the first line has the columns' names (default: auto)", "auto|yes|no" },
        { "categorical", 0, 0, G_OPTION_ARG_STRING, &flags->categorical,
          "csv: columns whose cells are words, not numbers", "COLUMN,..." },
        { "standardize", 0, 0, G_OPTION_ARG_NONE, &flags->standardize,
          "Scale the values of each key to mean square 1, columns around 0", NULL },
        { "hash-bits", 0, 0, G_OPTION_ARG_INT, &flags->hash_bits,
          "csv, text: keep so many bits of a word's hash (default 64)", "N" },
        { "max-bad-rows", 0, 0, G_OPTION_ARG_INT64, &flags->max_bad_rows,
          "Skip up to N rows that cannot be read (default 0)", "N" },
        { "cache", 0, 0, G_OPTION_ARG_FILENAME, &flags->cache,
          "Keep rows in binary form, read faster later (default none)", "DIR|beside|none" },
        { "split", 0, 0, G_OPTION_ARG_STRING, &flags->split,
          "fixed (default): equal shares; dynamic: who is done gets more", "fixed|dynamic" },
        G_OPTION_ENTRY_NULL,
    };

    g_option_context_add_main_entries(context, entries, NULL);
}

void app_data_flags_clear(AppDataFlags *flags)
{
    g_strfreev(flags->train);
    g_strfreev(flags->test);
    g_free(flags->validate);
    g_free(flags->format);
    g_free(flags->label_column);
    g_free(flags->header);
    g_free(flags->categorical);
    g_free(flags->cache);
    g_free(flags->split);
    *flags = (AppDataFlags){ .train = NULL };
}

void app_data_clear(AppData *data)
{
    g_strfreev(data->train);
    g_strfreev(data->test);
    g_free(data->validate);
    g_free(data->format);
    g_free(data->label_column);
    g_strfreev(data->categorical);
    g_free(data->cache_directory);
    app_keys_free(data->loaded_keys);
    *data = (AppData){ .train = NULL };
}

static void take_cache(AppData *data, AppDataFlags *flags)
{
    if (flags->cache == NULL || strcmp(flags->cache, "none") == 0)
        return;
    data->cache = RUBATO_DATA_CACHE_KEEP;
    if (strcmp(flags->cache, "beside") != 0)
        data->cache_directory = g_steal_pointer(&flags->cache);
}

static bool take_header(AppData *data, const char *word, GError **error)
{
    static const char *const words[] = { "auto", "yes", "no", NULL };
    static const RubatoCsvHeader headers[] = { RUBATO_CSV_HEADER_AUTO, RUBATO_CSV_HEADER_YES,
                                               RUBATO_CSV_HEADER_NO };
    size_t i = 0;

    if (!app_find_word("header", words, word, &i, error))
        return false;
    data->header = headers[i];
    return true;
}

/* A number is a fraction of the rows to train on, unless a file has this name. */
static bool take_validation(AppData *data, GError **error)
{
    char *end = NULL;
    double number;

    if (data->validate == NULL || g_file_test(data->validate, G_FILE_TEST_EXISTS))
        return true;
    number = g_ascii_strtod(data->validate, &end);
    if (end == data->validate || *end != '\0')
        return true;
    if (!(number > 0 && number < 1))
        return app_refuse(error,
                          "--validate: expected a file, or a fraction of the rows to train on, "
                          "above 0 and below 1, found %s",
                          data->validate);
    data->held_out = number;
    g_clear_pointer(&data->validate, g_free);
    return true;
}

bool app_data_take(AppData *data, AppDataFlags *flags, bool needs_train, GError **error)
{
    *data = (AppData){
        .train = g_steal_pointer(&flags->train),
        .test = g_steal_pointer(&flags->test),
        .validate = g_steal_pointer(&flags->validate),
        .patience = flags->patience != PATIENCE_NOT_GIVEN ? flags->patience : PATIENCE_DEFAULT,
        .format = g_steal_pointer(&flags->format),
        .label_column = g_steal_pointer(&flags->label_column),
        .categorical = flags->categorical != NULL ? g_strsplit(flags->categorical, ",", -1) : NULL,
    };
    data->standardize = flags->standardize;
    take_cache(data, flags);
    if (!take_header(data, flags->header, error) || !take_validation(data, error))
        return false;
    if (needs_train && data->train == NULL)
        return app_refuse(error, "--train: give the file to train on (with --load, --test FILE or "
                                 "--predict FILE will do, too)");
    if (flags->hash_bits < 0 || flags->hash_bits > HASH_BITS_MAX)
        return app_refuse(error, "--hash-bits: expected a number from 1 to %d, found %d",
                          HASH_BITS_MAX, flags->hash_bits);
    if (flags->patience != PATIENCE_NOT_GIVEN && (flags->patience < 0 || !app_data_validates(data)))
        return app_refuse(error, !app_data_validates(data)
                                     ? "--patience: needs --validate FILE, the rows to measure on"
                                     : "--patience: expected a number from 0");
    if (flags->max_bad_rows < 0)
        return app_refuse(error,
                          "--max-bad-rows: expected a number from 0, found %" G_GINT64_FORMAT,
                          flags->max_bad_rows);
    data->hash_bits = flags->hash_bits == HASH_BITS_MAX ? 0 : (uint32_t)flags->hash_bits;
    data->max_bad_rows = (uint64_t)flags->max_bad_rows;
    if (flags->split == NULL || strcmp(flags->split, "fixed") == 0)
        data->split = RUBATO_SPLIT_FIXED;
    else if (strcmp(flags->split, "dynamic") == 0)
        data->split = RUBATO_SPLIT_DYNAMIC;
    else
        return app_refuse(error, "--split: expected fixed or dynamic, found \"%s\"", flags->split);
    return true;
}

/* ---- rows ---- */

static RubatoDataSpec spec_of(const AppData *data, const char *const *paths)
{
    return (RubatoDataSpec){
        .paths = paths,
        .format = data->format,
        .header = data->header,
        .label_column = data->label_column,
        .categorical_columns = (const char *const *)data->categorical,
        .hash_bits = data->hash_bits,
        .keys = data->keys,
        .max_bad_rows = data->max_bad_rows,
        .cache = data->cache,
        .cache_directory = data->cache_directory,
    };
}

/* Refuses flags that these rows have no use for. What they mean is known once they are open. */
static bool check_effects(const RubatoDataSpec *spec, const RubatoDataKeys *keys, GError **error)
{
    const bool is_csv = strcmp(keys->format, "csv") == 0;
    const bool is_elsewhere = is_csv && keys->n_columns == 0; /* the files are on other nodes */
    const struct {
        bool is_given, has_effect;
        const char *flag, *needs;
    } flags[] = {
        { spec->label_column != NULL, is_csv, "label-column", "the format csv" },
        { spec->header != RUBATO_CSV_HEADER_AUTO, is_csv, "header", "the format csv" },
        { spec->categorical_columns != NULL, is_csv, "categorical", "the format csv" },
        { spec->hash_bits > 0, is_elsewhere || keys->hash_bits > 0, "hash-bits",
          "the format text, or csv with --categorical" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(flags); i++)
        if (flags[i].is_given && !flags[i].has_effect)
            return app_refuse(error,
                              "--%s: has no effect here; it needs %s, and these rows are of the "
                              "format %s",
                              flags[i].flag, flags[i].needs, keys->format);
    return true;
}

/* Where the labels of images are: beside them, under the name that MNIST gives them. Of
 * train-images-idx3-ubyte.gz that is train-labels-idx1-ubyte, packed or not. NULL: nowhere, so all
 * labels are 0. (transfer full) */
static char *find_labels(const char *images)
{
    static const char *const packed[] = { "", ".gz", ".zst" };
    const char *const slash = strrchr(images, '/');
    const char *const part = g_strrstr(slash != NULL ? slash : images, IMAGES_PART);

    if (part == NULL)
        return NULL;
    g_autofree char *start = g_strndup(images, (gsize)(part - images));
    g_autofree char *rest = g_strdup(part + strlen(IMAGES_PART));
    for (size_t i = 1; i < G_N_ELEMENTS(packed); i++)
        if (g_str_has_suffix(rest, packed[i]))
            rest[strlen(rest) - strlen(packed[i])] = '\0';
    for (size_t i = 0; i < G_N_ELEMENTS(packed); i++) {
        g_autofree char *path = g_strconcat(start, LABELS_PART, rest, packed[i], NULL);

        if (g_file_test(path, G_FILE_TEST_EXISTS))
            return g_steal_pointer(&path);
    }
    return NULL;
}

/* The files that a path names, as a dataset finds them. One that names none is left to it. */
static void add_files(GPtrArray *files, const char *path)
{
    glob_t found;

    if (g_file_test(path, G_FILE_TEST_EXISTS) || glob(path, 0, NULL, &found) != 0) {
        g_ptr_array_add(files, g_strdup(path));
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        g_ptr_array_add(files, g_strdup(found.gl_pathv[i]));
    globfree(&found);
}

/* Those of the spec's images; NULL: they have none. A dataset has one file of labels, so several
 * files of labelled images are refused, unless the program does not look at labels. */
static bool take_labels(const AppData *data, const RubatoDataSpec *spec, char **labels,
                        GError **error)
{
    g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);

    *labels = NULL;
    if (spec->skip_labels || data->ignores_labels ||
        (spec->format != NULL && strcmp(spec->format, "idx") != 0))
        return true;
    for (size_t i = 0; spec->paths[i] != NULL; i++)
        add_files(files, spec->paths[i]);
    for (guint i = 0; i < files->len && *labels == NULL; i++)
        *labels = find_labels(g_ptr_array_index(files, i));
    if (*labels == NULL || files->len == 1)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "%s: are the labels of one of several files; give one file of images with labels",
                *labels);
    g_clear_pointer(labels, g_free);
    return false;
}

static RubatoDataset *open_rows(const AppData *data, const RubatoDataSpec *plain, GError **error)
{
    g_autofree char *labels = NULL;
    RubatoDataSpec with_labels = *plain;
    const RubatoDataSpec *const spec = &with_labels;
    g_autoptr(GError) cause = NULL;

    if (!take_labels(data, plain, &labels, error))
        return NULL;
    with_labels.labels_path = labels;
    if (spec->cache_directory != NULL) /* if this fails, the dataset logs that it has no cache */
        (void)g_mkdir(spec->cache_directory, 0777);
    g_autoptr(RubatoDataset) rows = rubato_dataset_open(spec, &cause);
    if (rows != NULL)
        return check_effects(spec, rubato_dataset_keys(rows), error) ? g_steal_pointer(&rows)
                                                                     : NULL;
    if (g_error_matches(cause, RUBATO_ERROR, RUBATO_ERROR_MISMATCH)) {
        g_autofree char *wanted = app_keys_text(spec->keys);
        const char *missing = "";

        if (spec->skip_labels && spec->keys->label_column != RUBATO_NO_COLUMN)
            missing = "; only the label may be missing (where no header shows it, say "
                      "--label-column '')";
        g_set_error(
            error, cause->domain, cause->code,
            "%s. The model's rows: %s. Give it rows with these, in this order, and the same "
            "flags%s",
            cause->message, wanted, missing);
    } else {
        if (data->format_is_loaded && g_error_matches(cause, RUBATO_ERROR, RUBATO_ERROR_FORMAT)) {
            g_autofree char *hint = g_strdup_printf("%s (read as %s, as the model's rows are)",
                                                    cause->message, data->format);
            g_set_error_literal(error, cause->domain, cause->code, hint);
            return NULL;
        }
        g_propagate_error(error, g_steal_pointer(&cause));
    }
    return NULL;
}

RubatoDataset *app_data_open(const AppData *data, const char *const *paths, GError **error)
{
    const RubatoDataSpec spec = spec_of(data, paths);

    return open_rows(data, &spec, error);
}

RubatoDataset *app_data_open_train(const AppData *data, GError **error)
{
    RubatoDataSpec spec = spec_of(data, (const char *const *)data->train);

    spec.held_out = data->held_out;
    return open_rows(data, &spec, error);
}

RubatoDataset *app_data_open_validation(const AppData *data, GError **error)
{
    const char *const paths[] = { data->validate, NULL };
    RubatoDataSpec spec = spec_of(data, paths);

    if (data->held_out > 0) {
        spec.paths = (const char *const *)data->train;
        spec.held_out = data->held_out;
        spec.only_held_out = true;
        spec.cache = RUBATO_DATA_CACHE_NONE; /* the cache of these files has the others */
    }
    return open_rows(data, &spec, error);
}

bool app_data_validates(const AppData *data)
{
    return data->validate != NULL || data->held_out > 0;
}

RubatoDataset *app_data_open_unlabelled(const AppData *data, const char *path, GError **error)
{
    const char *const paths[] = { path, NULL };
    RubatoDataSpec spec = spec_of(data, paths);

    spec.skip_labels = true;
    if (data->label_is_loaded)
        spec.label_column = NULL; /* then it may be missing */
    return open_rows(data, &spec, error);
}

/* Columns by their numbers, which rows have with and without a header. (transfer full) */
static char **categorical_numbers(const RubatoDataKeys *keys)
{
    char **numbers = g_new0(char *, keys->n_categorical_columns + 1);

    for (uint32_t i = 0; i < keys->n_categorical_columns; i++)
        numbers[i] = g_strdup_printf("%u", keys->categorical_columns[i]);
    return numbers;
}

void app_data_take_keys(AppData *data, RubatoDataKeys *keys)
{
    app_keys_free(data->loaded_keys);
    data->loaded_keys = keys;
    data->keys = keys;
    if (data->format == NULL) {
        data->format = g_strdup(keys->format);
        data->format_is_loaded = true;
    }
    if (data->hash_bits == 0)
        data->hash_bits = keys->hash_bits;
    if (keys->n_columns == 0)
        return;
    if (data->label_column == NULL) {
        data->label_column = keys->label_column == RUBATO_NO_COLUMN
                                 ? g_strdup("")
                                 : g_strdup_printf("%u", keys->label_column);
        data->label_is_loaded = true;
    }
    if (data->categorical == NULL)
        data->categorical = categorical_numbers(keys);
}

bool app_data_check_keys(const App *app, GError **error)
{
    AppData plain;

    if (app->program->data == NULL || app->program->data->keys == NULL)
        return true;
    plain = *app->program->data;
    plain.cache = RUBATO_DATA_CACHE_NONE;
    plain.cache_directory = NULL;
    if (plain.loaded_keys != NULL && !app_only_loads(app)) {
        g_autoptr(RubatoDataset) train = app_data_open_train(&plain, error);
        if (train == NULL)
            return false;
    }
    if (app->predict == NULL)
        return true;
    g_autoptr(RubatoDataset) rows = app_data_open_unlabelled(&plain, app->predict, error);
    return rows != NULL;
}

/* The list as the user wrote it, or its beginning. (transfer full) */
static char *list_words(const RubatoDataKeys *keys)
{
    GString *text = g_string_new(NULL);

    for (uint32_t i = 0; i < MIN(keys->n_label_words, WORDS_SHOWN); i++)
        g_string_append_printf(text, "%s%s", i > 0 ? ", " : "", keys->label_words[i]);
    if (keys->n_label_words > WORDS_SHOWN)
        g_string_append_printf(text, " and %u more", keys->n_label_words - WORDS_SHOWN);
    return g_string_free(text, FALSE);
}

void app_data_note_columns(App *app, const AppData *data, const RubatoDataKeys *keys)
{
    const bool decided = keys->n_columns > 0 && data->header == RUBATO_CSV_HEADER_AUTO;

    if (decided && keys->column_names != NULL)
        app_note(app, "the first line names the columns (--header no: it is a row)");
    else if (decided)
        app_note(app, "the first line is a row (--header yes: it names the columns)");
    if (keys->label_words == NULL)
        return;
    g_autofree char *words = list_words(keys);
    app_note(app, "labels are words: %s", words);
}

char *app_data_label_text(const RubatoDataKeys *keys, double label)
{
    if (keys != NULL && keys->label_words != NULL && label >= 0 && label < keys->n_label_words)
        return g_strdup(keys->label_words[(size_t)label]);
    return g_strdup_printf("%g", label);
}

void app_data_note_bad_rows(App *app, const RubatoDataSummary *rows)
{
    if (rows->n_bad_rows > 0)
        app_note(app, "rows left out because they cannot be read: %" G_GUINT64_FORMAT,
                 rows->n_bad_rows);
}

RubatoReaderOptions app_data_reader_options(const App *app, const AppData *data, uint32_t n_workers)
{
    return (RubatoReaderOptions){
        .epochs = app->only_epoch > 0 ? 1 : app->epochs,
        .batch_rows = (app->batch_size - 1) / n_workers + 1,
        .shuffle = true,
        .seed = app->seed + EPOCH_SEED * (app->only_epoch > 0 ? app->only_epoch - 1 : 0),
        .split = data->split,
        .kept_as = app->keeps_rows ? "rows" : NULL,
    };
}
