/* --load: reads what --save has written. The description, which every node has, and every header
 * are compared with what the program expects before a row is read.
 *
 * Runs on main's thread, or on worker 0's while main waits. */
#include "apps/kit/model/app_model.h"

#include <math.h>
#include <string.h>

#include "apps/kit/model/app_json.h"

typedef struct {
    uint64_t n_rows;
    char *checksum, *keys_checksum; /* NULL: the description has none */
} ArrayFiles;

struct AppModelFiles {
    size_t n_arrays;
    ArrayFiles *arrays;
    bool has_states; /* those of the rule that workers apply */
};

void app_model_files_free(AppModelFiles *files)
{
    if (files == NULL)
        return;
    for (size_t i = 0; i < files->n_arrays; i++) {
        g_free(files->arrays[i].checksum);
        g_free(files->arrays[i].keys_checksum);
    }
    g_free(files->arrays);
    g_free(files);
}

/* Whether it has no member but those of a list that ends with NULL. */
static bool check_members(const char *dir, JsonObject *object, const char *where,
                          const char *const *known, GError **error)
{
    g_autoptr(GList) names = object != NULL ? json_object_get_members(object) : NULL;

    for (const GList *name = names; name != NULL; name = name->next)
        if (!g_strv_contains(known, name->data))
            return app_description_refuse(dir, error, "there is an unknown \"%s\" in %s",
                                          (const char *)name->data, where);
    return true;
}

/* Whether it says what was saved. */
static bool check_checksum(const App *app, JsonNode *root, GError **error)
{
    static const char *const known[] = { "format", "version", "program", "settings", "numbers",
                                         "keys",   "arrays",  "states",  "checksum", NULL };
    JsonObject *object = json_node_get_object(root);
    const char *found = app_json_text(object, "checksum");
    g_autofree char *expected = app_model_checksum(root);
    uint64_t version = 0;

    if (!check_members(app->load, object, "the description", known, error))
        return false;
    if (!json_object_has_member(object, "checksum") && app_json_int(object, "version", &version) &&
        version == APP_MODEL_VERSION_WITHOUT_CHECKSUMS) {
        g_printerr("%s: --load: %s/" APP_MODEL_DESCRIPTION
                   ": an older version saved it without checksums, so nobody notices damage\n",
                   app->program->name, app->load);
        return true;
    }
    if (g_strcmp0(found, expected) == 0)
        return true;
    return app_description_refuse(
        app->load, error,
        "it is not as it was saved: its checksum is \"%s\", expected \"%s\"; save the model "
        "anew",
        found != NULL ? found : "missing", expected);
}

static bool check_settings(const App *app, const AppModel *model, JsonObject *root, GError **error)
{
    JsonObject *settings = app_json_object(root, "settings");
    g_autoptr(GPtrArray) known = g_ptr_array_new();

    for (const AppSetting *s = model->settings; s != NULL && s->name != NULL; s++) {
        const char *found = app_json_text(settings, s->name);

        if (found == NULL || strcmp(found, s->text) != 0)
            return app_description_refuse(
                app->load, error,
                "the model was saved with %s %s, this run has %s; give it "
                "the same flags",
                s->name, found != NULL ? found : "unknown", s->text);
        g_ptr_array_add(known, (gpointer)(uintptr_t)s->name);
    }
    g_ptr_array_add(known, NULL);
    return check_members(app->load, settings, "\"settings\"", (const char *const *)known->pdata,
                         error);
}

static bool check_numbers(const App *app, const AppModel *model, JsonObject *root, GError **error)
{
    JsonObject *numbers = app_json_object(root, "numbers");
    g_autoptr(GPtrArray) known = g_ptr_array_new();
    double value;

    for (const AppNumber *n = model->numbers; n != NULL && n->name != NULL; n++) {
        if (!app_json_double(numbers, n->name, &value))
            return app_description_refuse(app->load, error,
                                          "expected a number \"%s\" in \"numbers\"", n->name);
        g_ptr_array_add(known, (gpointer)(uintptr_t)n->name);
    }
    g_ptr_array_add(known, NULL);
    return check_members(app->load, numbers, "\"numbers\"", (const char *const *)known->pdata,
                         error);
}

static void set_numbers(const AppModel *model, JsonObject *root)
{
    JsonObject *numbers = app_json_object(root, "numbers");

    for (const AppNumber *n = model->numbers; n != NULL && n->name != NULL; n++)
        (void)app_json_double(numbers, n->name, n->value); /* check_numbers has seen it */
}

/* ---- arrays ---- */

/* What the description says of a table. */
typedef struct {
    const char *dtype, *storage;
    uint64_t width, first_key, n_rows;
    const char *checksum, *keys_checksum; /* NULL: none */
} Described;

static bool is_dense(const char *storage)
{
    return rubato_table_spec_holds_range(&(RubatoTableSpec){ .storage = storage });
}

/* For a model that lacks an array: the names of those that it has, "bias, linear". */
static char *list_arrays(JsonArray *arrays)
{
    const guint n = arrays != NULL ? json_array_get_length(arrays) : 0;
    GString *names = g_string_new(n == 0 ? "none" : NULL);

    for (guint i = 0; i < n; i++) {
        JsonNode *element = json_array_get_element(arrays, i);
        const char *name = JSON_NODE_HOLDS_OBJECT(element)
                               ? app_json_text(json_node_get_object(element), "name")
                               : NULL;

        g_string_append_printf(names, "%s%s", i == 0 ? "" : ", ", name != NULL ? name : "unnamed");
    }
    return g_string_free(names, FALSE);
}

static bool find_array(const char *dir, JsonObject *root, bool is_state, const char *name,
                       Described *described, GError **error)
{
    static const char *const known[] = { "name",     "dtype",         "width",
                                         "storage",  "first_key",     "rows",
                                         "checksum", "keys_checksum", NULL };
    JsonArray *arrays = app_json_array(root, app_model_list_name(is_state));
    const guint n = arrays != NULL ? json_array_get_length(arrays) : 0;

    for (guint i = 0; i < n; i++) {
        JsonNode *element = json_array_get_element(arrays, i);
        JsonObject *array = JSON_NODE_HOLDS_OBJECT(element) ? json_node_get_object(element) : NULL;

        if (g_strcmp0(app_json_text(array, "name"), name) != 0)
            continue;
        described->dtype = app_json_text(array, "dtype");
        described->storage = app_json_text(array, "storage");
        described->first_key = 0;
        if (described->dtype == NULL || described->storage == NULL ||
            !app_json_int(array, "width", &described->width) ||
            !app_json_int(array, "rows", &described->n_rows) ||
            (is_dense(described->storage) &&
             !app_json_int(array, "first_key", &described->first_key)))
            return app_description_refuse(
                dir, error,
                "array %s: expected dtype, width, storage, rows and, of a dense "
                "one, first_key",
                name);
        described->checksum = app_json_text(array, "checksum");
        described->keys_checksum = app_json_text(array, "keys_checksum");
        return check_members(dir, array, "an array", known, error);
    }
    g_autofree char *found = list_arrays(arrays);
    return app_description_refuse(
        dir, error,
        "expected an array \"%s\" in \"arrays\", found %s; a model that another version "
        "saved with other arrays cannot be loaded: train and save it anew",
        name, found);
}

static bool check_array(const char *dir, const AppArray *array, const Described *found,
                        GError **error)
{
    const RubatoTableSpec *spec = &array->spec;
    const bool is_hash = app_array_is_hash(array);
    const char *storage = is_hash ? "hash" : "dense", *dtype = rubato_dtype_name(spec->dtype);

    if (strcmp(found->dtype, dtype) == 0 && found->width == app_array_width(array) &&
        strcmp(found->storage, storage) == 0 &&
        (is_hash || (found->first_key == spec->first_key && found->n_rows == spec->n_keys)))
        return true;
    if (is_hash || !is_dense(found->storage))
        return app_description_refuse(
            dir, error,
            "array %s: expected a %s table of %s, %u a row; found a %s one of %s, "
            "%" G_GUINT64_FORMAT " a row",
            array->name, storage, dtype, app_array_width(array), found->storage, found->dtype,
            found->width);
    return app_description_refuse(
        dir, error,
        "array %s: expected %" G_GUINT64_FORMAT " rows of %u %s from key %" G_GUINT64_FORMAT
        " on; found %" G_GUINT64_FORMAT " rows of %" G_GUINT64_FORMAT
        " %s from key %" G_GUINT64_FORMAT,
        array->name, spec->n_keys, app_array_width(array), dtype, spec->first_key, found->n_rows,
        found->width, found->dtype, found->first_key);
}

static bool check_header(const char *path, const char *descr, unsigned n_dimensions,
                         const uint64_t *shape, GError **error)
{
    g_autoptr(RubatoNpy) npy = rubato_npy_open(path, error);

    return npy != NULL && rubato_npy_check(npy, descr, n_dimensions, shape, error);
}

static bool open_array(const App *app, const AppArray *array, JsonObject *root, ArrayFiles *files,
                       GError **error)
{
    g_autofree char *values = app_model_path(app->load, array->name, ".npy");
    g_autofree char *keys = app_model_path(app->load, array->name, ".keys.npy");
    Described described;

    if (!find_array(app->load, root, array->is_state, array->name, &described, error) ||
        !check_array(app->load, array, &described, error))
        return false;
    const uint64_t shape[] = { described.n_rows, described.width };
    files->n_rows = described.n_rows;
    if (json_object_has_member(root, "checksum") &&
        (described.checksum == NULL ||
         (app_array_is_hash(array) && described.keys_checksum == NULL)))
        return app_description_refuse(app->load, error,
                                      "array %s: expected a checksum and, of a hash table, a "
                                      "keys_checksum",
                                      array->name);
    files->checksum = g_strdup(described.checksum);
    files->keys_checksum = g_strdup(described.keys_checksum);
    return check_header(values, rubato_npy_descr(array->spec.dtype), 2, shape, error) &&
           (!app_array_is_hash(array) || check_header(keys, RUBATO_NPY_KEYS, 1, shape, error));
}

/* Whether there are no more arrays than the program has; each of those has been found. */
static bool check_arrays_known(const App *app, const AppModel *model, JsonObject *root,
                               GError **error)
{
    const guint n = json_array_get_length(app_json_array(root, "arrays"));
    const size_t expected = app_model_n_arrays(model, /* are_states= */ false);

    return n == expected || app_description_refuse(
                                app->load, error, "expected %zu \"arrays\", found %u", expected, n);
}

/* Whether the description has all that the rule keeps which workers apply, of these shapes. */
static bool has_states(const App *app, const AppModel *model, JsonObject *root)
{
    for (size_t i = 0; i < model->n_arrays; i++) {
        const AppArray *array = &model->arrays[i];
        Described found;

        if (array->is_state && (!find_array(app->load, root, true, array->name, &found, NULL) ||
                                !check_array(app->load, array, &found, NULL)))
            return false;
    }
    return true;
}

/* ---- what keys mean ---- */

/* Checks all rows that the flags name against what the description says of the keys. */
static bool check_keys(const App *app, JsonObject *root, GError **error)
{
    if (app->program->data == NULL)
        return true;
    if (!json_object_has_member(root, "keys")) {
        g_printerr(
            "%s: --load: %s/" APP_MODEL_DESCRIPTION
            ": an older version saved it without \"keys\", so nobody checks that rows have the "
            "columns that the model was trained on\n",
            app->program->name, app->load);
        return true;
    }
    return app_data_check_keys(app, error);
}

AppModelFiles *app_model_open(const App *app, const AppModel *model, GError **error)
{
    JsonNode *root = app->description;
    g_autoptr(AppModelFiles) files = NULL;

    if (!check_settings(app, model, json_node_get_object(root), error) ||
        !check_numbers(app, model, json_node_get_object(root), error) ||
        !check_keys(app, json_node_get_object(root), error))
        return NULL;
    files = g_new0(AppModelFiles, 1);
    files->arrays = g_new0(ArrayFiles, model->n_arrays);
    files->n_arrays = model->n_arrays;
    files->has_states = has_states(app, model, json_node_get_object(root));
    for (size_t i = 0; i < model->n_arrays; i++)
        if ((files->has_states || !model->arrays[i].is_state) &&
            !open_array(app, &model->arrays[i], json_node_get_object(root), &files->arrays[i],
                        error))
            return NULL;
    if (!check_arrays_known(app, model, json_node_get_object(root), error) ||
        !check_checksum(app, root, error))
        return NULL;
    set_numbers(model, json_node_get_object(root));
    return g_steal_pointer(&files);
}

bool app_model_shape(const App *app, const char *array, uint32_t *width, uint64_t *n_keys,
                     GError **error)
{
    Described described;

    if (!find_array(app->load, json_node_get_object(app->description), /* is_state= */ false, array,
                    &described, error))
        return false;
    if (described.width == 0 || described.width > UINT32_MAX)
        return app_description_refuse(app->load, error,
                                      "array %s: expected a width from 1, found %" G_GUINT64_FORMAT,
                                      array, described.width);
    *width = (uint32_t)described.width;
    *n_keys = is_dense(described.storage) ? described.n_rows : 0;
    return true;
}

/* ---- into the tables ---- */

/* Whether an array's bytes are those that were saved; expected is NULL if that is unknown. */
static bool compare_checksum(const App *app, const char *name, const char *suffix,
                             const char *found, const char *expected, GError **error)
{
    if (expected == NULL || strcmp(found, expected) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s/%s%s: it is not as it was saved: its checksum is %s, expected %s; save the "
                "model anew",
                app->load, name, suffix, found, expected);
    return false;
}

/* Whether the state of update rules is of use. */
static bool takes_state(const App *app)
{
    return !app_only_loads(app) || app->save != NULL;
}

static void note_state(const App *app, const char *why)
{
    if (!app_only_loads(app))
        g_printerr("%s: --load: the state of the update rule begins anew: %s\n", app->program->name,
                   why);
}

/* A table has the rule that the flags say. If the model was trained by another one, its rows are of
 * use, and its state is not. Nothing has been written when a file is refused. */
static bool load_table(const App *app, const AppArray *array, RubatoTableFiles *loaded,
                       GError **error)
{
    g_autofree char *path = g_build_filename(app->load, array->name, NULL);
    const char *const table = array->spec.name;
    g_autoptr(GError) failure = NULL;

    if (takes_state(app) &&
        rubato_engine_load_table(app->engine, table, path, RUBATO_TABLE_VALUES_AND_STATE, loaded,
                                 &failure))
        return true;
    if (failure != NULL && !g_error_matches(failure, RUBATO_ERROR, RUBATO_ERROR_MISMATCH)) {
        g_propagate_error(error, g_steal_pointer(&failure));
        return false;
    }
    if (!rubato_engine_load_table(app->engine, table, path, RUBATO_TABLE_VALUES, loaded, error))
        return false;
    if (failure != NULL)
        note_state(app, failure->message);
    return true;
}

static bool fill_array(const App *app, const AppArray *array, const ArrayFiles *files,
                       GError **error)
{
    RubatoTableFiles loaded;

    if (load_table(app, array, &loaded, error) &&
        compare_checksum(app, array->name, ".npy", loaded.values_checksum, files->checksum,
                         error) &&
        compare_checksum(app, array->name, ".keys.npy", loaded.keys_checksum, files->keys_checksum,
                         error))
        return true;
    g_prefix_error(error, "--load: ");
    return false;
}

bool app_model_fill(const App *app, const AppModel *model, AppModelFiles *files, GError **error)
{
    if (!files->has_states)
        note_state(app, "the model was not trained by workers with this rule");
    for (size_t i = 0; i < model->n_arrays; i++)
        if ((files->has_states || !model->arrays[i].is_state) &&
            !fill_array(app, &model->arrays[i], &files->arrays[i], error))
            return false;
    return true;
}
