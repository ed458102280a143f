/* The names and contents of the files of a saved model. For app_model*.c.
 *
 *     DIR/model.json        the description
 *     DIR/NAME.npy          the rows of a table, in the order of their keys
 *     DIR/NAME.keys.npy     of a hash table: these keys
 *     DIR/NAME.state.npy    what the table's update rule keeps of each row, if it keeps something
 *     DIR/NAME.table        what these are: rubato/table_files.h
 *
 * The description has a checksum of each array's values and keys, and one of its own text without
 * that checksum and without blanks. So if any byte of a model changes, the model is refused, or the
 * change has no meaning. Version 1 had none of these.
 *
 * Threads: main's, or worker 0's while main waits. */
#ifndef RUBATO_APPS_KIT_MODEL_APP_MODEL_H
#define RUBATO_APPS_KIT_MODEL_APP_MODEL_H

#include "apps/kit/app.h"
#include "apps/kit/model/app_json.h"
#include <rubato/npy.h>

#define APP_MODEL_FORMAT "rubato-model"
#define APP_MODEL_VERSION 2
#define APP_MODEL_VERSION_WITHOUT_CHECKSUMS 1
#define APP_MODEL_DESCRIPTION "model.json"

/* Bytes of rows that are on their way between files and tables. */
#define APP_MODEL_CHUNK_BYTES ((size_t)1 << 20)

/* As in table.h: the defaults of the spec. */
static inline bool app_array_is_hash(const AppArray *array)
{
    return !rubato_table_spec_holds_range(&array->spec);
}

static inline uint32_t app_array_width(const AppArray *array)
{
    return array->spec.width != 0 ? array->spec.width : 1;
}

static inline size_t app_array_row_bytes(const AppArray *array)
{
    return app_array_width(array) * rubato_dtype_size(array->spec.dtype);
}

/* Rows in a chunk, one at least. */
static inline size_t app_array_chunk(const AppArray *array)
{
    const size_t n_rows = APP_MODEL_CHUNK_BYTES / app_array_row_bytes(array);

    return MAX(1, n_rows);
}

/* Where the description lists arrays of this kind. */
static inline const char *app_model_list_name(bool are_states)
{
    return are_states ? "states" : "arrays";
}

static inline size_t app_model_n_arrays(const AppModel *model, bool are_states)
{
    size_t n = 0;

    for (size_t i = 0; i < model->n_arrays; i++)
        n += model->arrays[i].is_state == are_states;
    return n;
}

/* The checksum of a description, which may have one already; its root is an object. (transfer
 * full) */
char *app_model_checksum(JsonNode *root);

/* DIR/NAME.npy and DIR/NAME.keys.npy. (transfer full) */
static inline char *app_model_path(const char *dir, const char *name, const char *suffix)
{
    g_autofree char *file = g_strconcat(name, suffix, NULL);

    return g_build_filename(dir, file, NULL);
}

/* Whether --save may put a model there: a folder that is not there yet, an empty one, or one that
 * --save made. */
bool app_model_check_place(const char *dir, GError **error);

/* The files of --save. */
bool app_model_save(const App *app, const AppModel *model, GError **error);

/* Reads the description of --load on the reporting node, and gives it to every node, which takes
 * from it what the keys mean. Collective. */
bool app_description_load(App *app, GError **error);

/* Refuses the description in a folder, as RUBATO_ERROR_FORMAT; false. */
bool app_description_refuse(const char *dir, GError **error, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* The files of --load, read up to the values, and checked. Sets the model's numbers. */
typedef struct AppModelFiles AppModelFiles;
AppModelFiles *app_model_open(const App *app, const AppModel *model, GError **error);
void app_model_files_free(AppModelFiles *files);

/* Puts the values into the tables. */
bool app_model_fill(const App *app, const AppModel *model, AppModelFiles *files, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(AppModelFiles, app_model_files_free)

#endif
