/* --save: the model's tables as .npy files with a description, in a folder that is put in place
 * when it is complete. So at any time the earlier model or the new one is there as a whole.
 *
 * Runs on main's thread, on the reporting node. */
#include "apps/kit/model/app_model.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "apps/kit/model/app_json.h"
#include "apps/kit/model/app_keys.h"

static bool fail(const char *path, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "--save: %s: %s", path, why);
    return false;
}

/* ---- arrays ---- */

static bool write_array(const App *app, const AppArray *array, const char *dir,
                        RubatoTableFiles *written, GError **error)
{
    g_autofree char *path = g_build_filename(dir, array->name, NULL);

    if (rubato_engine_save_table(app->engine, array->spec.name, path, RUBATO_TABLE_VALUES_AND_STATE,
                                 written, error))
        return true;
    g_prefix_error(error, "--save: ");
    return false;
}

/* ---- the description ---- */

/* Makes sure that the file is on the disk, or says why not. Closes the file. */
static bool finish_file(FILE *file, const char *path, bool good, GError **error)
{
    if (good && (fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0))
        good = fail(path, g_strerror(errno), error);
    fclose(file);
    return good;
}

static void add_array(JsonBuilder *builder, const AppArray *array, const RubatoTableFiles *written)
{
    json_builder_begin_object(builder);
    app_json_add_text(builder, "name", array->name);
    app_json_add_text(builder, "dtype", rubato_dtype_name(array->spec.dtype));
    app_json_add_int(builder, "width", app_array_width(array));
    app_json_add_text(builder, "storage", app_array_is_hash(array) ? "hash" : "dense");
    if (!app_array_is_hash(array))
        app_json_add_int(builder, "first_key", array->spec.first_key);
    app_json_add_int(builder, "rows", written->n_rows);
    app_json_add_text(builder, "checksum", written->values_checksum);
    if (*written->keys_checksum != '\0')
        app_json_add_text(builder, "keys_checksum", written->keys_checksum);
    json_builder_end_object(builder);
}

/* The arrays of one kind. */
static void add_arrays(JsonBuilder *builder, const AppModel *model, bool are_states,
                       const RubatoTableFiles *written)
{
    json_builder_set_member_name(builder, app_model_list_name(are_states));
    json_builder_begin_array(builder);
    for (size_t i = 0; i < model->n_arrays; i++)
        if (model->arrays[i].is_state == are_states)
            add_array(builder, &model->arrays[i], &written[i]);
    json_builder_end_array(builder);
}

/* (transfer full) */
static char *describe(const App *app, const AppModel *model, const RubatoTableFiles *written)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const AppData *data = app->program->data;

    json_builder_begin_object(builder);
    app_json_add_text(builder, "format", APP_MODEL_FORMAT);
    app_json_add_int(builder, "version", APP_MODEL_VERSION);
    app_json_add_text(builder, "program", app->program->name);
    json_builder_set_member_name(builder, "settings");
    json_builder_begin_object(builder);
    for (const AppSetting *s = model->settings; s != NULL && s->name != NULL; s++)
        app_json_add_text(builder, s->name, s->text);
    json_builder_end_object(builder);
    json_builder_set_member_name(builder, "numbers");
    json_builder_begin_object(builder);
    for (const AppNumber *number = model->numbers; number != NULL && number->name != NULL;
         number++) {
        json_builder_set_member_name(builder, number->name);
        json_builder_add_double_value(builder, *number->value);
    }
    json_builder_end_object(builder);
    if (data != NULL && data->keys != NULL) {
        json_builder_set_member_name(builder, "keys");
        app_keys_write(builder, data->keys);
    }
    add_arrays(builder, model, /* are_states= */ false, written);
    if (app_model_n_arrays(model, /* are_states= */ true) > 0)
        add_arrays(builder, model, /* are_states= */ true, written);
    json_builder_end_object(builder);

    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = json_builder_get_root(builder);
    g_autofree char *checksum = app_model_checksum(root);
    json_object_set_string_member(json_node_get_object(root), "checksum", checksum);
    json_generator_set_root(generator, root);
    json_generator_set_pretty(generator, TRUE);
    return json_generator_to_data(generator, NULL);
}

static bool write_description(const App *app, const AppModel *model,
                              const RubatoTableFiles *written, const char *dir, GError **error)
{
    g_autofree char *text = describe(app, model, written);
    g_autofree char *path = g_build_filename(dir, APP_MODEL_DESCRIPTION, NULL);
    FILE *file = fopen(path, "we");

    if (file == NULL)
        return fail(path, g_strerror(errno), error);
    fprintf(file, "%s\n", text);
    return finish_file(file, path, true, error);
}

/* ---- the folder ---- */

/* Whether a folder has nothing in it but what --save writes. */
static bool check_content(const char *path, GDir *dir, GError **error)
{
    bool is_empty = true, is_model = false;

    for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
        is_empty = false;
        if (strcmp(name, APP_MODEL_DESCRIPTION) == 0)
            is_model = true;
        else if (!g_str_has_suffix(name, ".npy") && !g_str_has_suffix(name, ".table")) {
            g_autofree char *why =
                g_strdup_printf("there is a %s in it, which is no part of a saved model; name "
                                "another folder",
                                name);
            return fail(path, why, error);
        }
    }
    return is_empty || is_model ||
           fail(path, "is there, and no saved model; name another folder", error);
}

/* Makes the folder that will get its name when all is written. (transfer full) */
static char *make_beside(const char *dir, GError **error)
{
    g_autofree char *made = g_strconcat(dir, ".XXXXXX", NULL);

    if (g_mkdtemp_full(made, 0777) != NULL)
        return g_steal_pointer(&made);
    g_autofree char *why = g_strdup_printf("cannot be made: %s", g_strerror(errno));
    fail(dir, why, error);
    return NULL;
}

/* Access rights do not tell all: root may write everywhere, but nobody in /proc. */
static bool check_can_make(const char *dir, GError **error)
{
    g_autofree char *made = make_beside(dir, error);

    if (made != NULL)
        g_rmdir(made);
    return made != NULL;
}

static bool check_is_free(const char *dir, GError **error)
{
    g_autoptr(GDir) content = g_dir_open(dir, 0, NULL);

    if (content != NULL)
        return check_content(dir, content, error);
    return !g_file_test(dir, G_FILE_TEST_EXISTS) ||
           fail(dir, "is there, and no folder that can be read", error);
}

bool app_model_check_place(const char *dir, GError **error)
{
    return check_is_free(dir, error) && check_can_make(dir, error);
}

/* Removes a folder of files; a rest after a failure does no harm. */
static void remove_folder(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);

    if (dir == NULL)
        return;
    for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
        g_autofree char *file = g_build_filename(path, name, NULL);
        g_unlink(file);
    }
    g_rmdir(path);
}

/* Puts a complete folder in place of nothing, of an empty folder, or of an older model. The older
 * model gets the new folder's temporary name, and is removed. */
static bool put_in_place(const char *made, const char *dir, GError **error)
{
    if (g_rename(made, dir) == 0)
        return true;
    if ((errno != ENOTEMPTY && errno != EEXIST) || !check_is_free(dir, NULL) ||
        renameat2(AT_FDCWD, made, AT_FDCWD, dir, RENAME_EXCHANGE) != 0)
        return fail(dir, g_strerror(errno), error);
    remove_folder(made);
    return true;
}

static bool write_all(const App *app, const AppModel *model, const char *dir, GError **error)
{
    g_autofree RubatoTableFiles *written = g_new0(RubatoTableFiles, model->n_arrays);
    bool good = true;

    for (size_t i = 0; good && i < model->n_arrays; i++)
        good = write_array(app, &model->arrays[i], dir, &written[i], error);
    return good && write_description(app, model, written, dir, error);
}

bool app_model_save(const App *app, const AppModel *model, GError **error)
{
    g_autofree char *made = make_beside(app->save, error);

    if (made == NULL)
        return false;
    if (write_all(app, model, made, error) && put_in_place(made, app->save, error))
        return true;
    remove_folder(made);
    return false;
}
