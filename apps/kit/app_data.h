/* The flags that say where a program's rows are and how they are read, for programs whose
 * AppProgram has a place for them.
 *
 * Threads: main's; app_data_reader_options from any. */
#ifndef RUBATO_APPS_KIT_APP_DATA_H
#define RUBATO_APPS_KIT_APP_DATA_H

#include <rubato/rubato.h>

typedef struct App App;

/* What the flags say; immutable once parsed, but for the last. */
typedef struct {
    char *validate;       /* a file or glob; NULL: not given, or a fraction */
    double held_out;      /* the fraction of the rows to train on that validate instead; 0: none */
    int patience;         /* epochs; 0: without end */
    char **train, **test; /* files and globs; NULL: not given */
    char *format;         /* NULL: by the name */
    RubatoCsvHeader header;
    char *label_column;  /* csv: NULL: the first */
    char **categorical;  /* csv: columns; NULL: none */
    uint32_t hash_bits;  /* 0: all */
    bool standardize;    /* the flag; a loaded model may be standardised without it */
    bool ignores_labels; /* the program's, set by its take_flags: images need none */
    RubatoDataCache cache;
    char *cache_directory; /* NULL: beside the input */
    RubatoSplit split;
    uint64_t max_bad_rows;

    /* What the keys of all rows must mean: those of the rows to train on, or those saved with the
     * loaded model. NULL: unknown, so nothing is checked. */
    const RubatoDataKeys *keys;
    RubatoDataKeys *loaded_keys;            /* NULL: keys are not the model's */
    bool format_is_loaded, label_is_loaded; /* the model's, as no flag says */
} AppData;

/* Opens files or globs, a list ended by NULL, as the flags say. RUBATO_ERROR_MISMATCH, with a
 * description of the model's rows, if keys would mean something else in these rows. (transfer
 * full) */
RubatoDataset *app_data_open(const AppData *data, const char *const *paths, GError **error);

/* The same for the rows to train on, without those that validate, and for those that validate. */
RubatoDataset *app_data_open_train(const AppData *data, GError **error);
RubatoDataset *app_data_open_validation(const AppData *data, GError **error);

/* Whether --validate was given. */
bool app_data_validates(const AppData *data);

/* The same for a file or glob of rows whose labels are not used: in csv the cells or the whole
 * column may be missing. (transfer full) */
RubatoDataset *app_data_open_unlabelled(const AppData *data, const char *path, GError **error);

/* Takes over what a loaded model says of its keys; what no flag says of the rows is then as it
 * says, too. (keys: transfer full) */
void app_data_take_keys(AppData *data, RubatoDataKeys *keys);

/* Whether the rows to train on and to predict fit the keys, as far as the heads of the files
 * show. */
bool app_data_check_keys(const App *app, GError **error);

/* Tells the user what was found in rows to train on: a header, and labels that are words. */
void app_data_note_columns(App *app, const AppData *data, const RubatoDataKeys *keys);

/* A label as it stands in the files: its word, or its number. (transfer full) */
char *app_data_label_text(const RubatoDataKeys *keys, double label);

/* Tells the user how many rows were left out, if any. */
void app_data_note_bad_rows(App *app, const RubatoDataSummary *rows);

/* How a worker of n_workers reads what it trains on: its part of each step, shuffled, all
 * epochs. */
RubatoReaderOptions app_data_reader_options(const App *app, const AppData *data,
                                            uint32_t n_workers);

/* ---- for app_flags.c ---- */

#define PATIENCE_NOT_GIVEN G_MININT

/* The flags as GOption takes them. */
typedef struct {
    char **train, **test;
    char *validate;
    int patience; /* or PATIENCE_NOT_GIVEN, as it must be at first */
    char *format, *header, *label_column, *categorical, *cache, *split;
    int hash_bits;
    gboolean standardize;
    int64_t max_bad_rows;
} AppDataFlags;

void app_data_add_flags(GOptionContext *context, AppDataFlags *flags);

/* Takes the values of the flags, and empties the flags. If one is wrong, *data must still be
 * cleared. */
bool app_data_take(AppData *data, AppDataFlags *flags, bool needs_train, GError **error);
void app_data_flags_clear(AppDataFlags *flags);
void app_data_clear(AppData *data);

#endif
