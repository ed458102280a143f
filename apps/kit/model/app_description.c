/* The description of a loaded model: the reporting node reads it, and all nodes get it, so that
 * each of them can take from it what its flags leave open.
 *
 * Its text travels in a table: row 0 has the number of its bytes, the next rows have the bytes.
 * Runs on main's thread, or on worker 0's while main waits. */
#include "apps/kit/model/app_model.h"

#include <string.h>
#include <sys/stat.h>

#include "apps/kit/model/app_keys.h"

#define DESCRIPTION_BYTES_MAX (4 << 20) /* a header of 64 KiB, each cell on a line, has room */

#define TABLE "app-description"
#define ROW_VALUES 512u
#define ROW_BYTES (ROW_VALUES * sizeof(int64_t))

bool app_description_refuse(const char *dir, GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "--load: %s/" APP_MODEL_DESCRIPTION ": %s", dir, text);
    return false;
}

/* ---- read ---- */

static bool check_kind(const App *app, JsonObject *root, GError **error)
{
    const char *format = app_json_text(root, "format"), *program = app_json_text(root, "program");
    uint64_t version;

    if (format == NULL || strcmp(format, APP_MODEL_FORMAT) != 0)
        return app_description_refuse(
            app->load, error,
            "expected the description of a saved model, with a \"format\" "
            "of \"" APP_MODEL_FORMAT "\"");
    if (!app_json_int(root, "version", &version) ||
        (version != APP_MODEL_VERSION && version != APP_MODEL_VERSION_WITHOUT_CHECKSUMS))
        return app_description_refuse(
            app->load, error, "expected \"version\" %d; save the model anew", APP_MODEL_VERSION);
    if (program == NULL || strcmp(program, app->program->name) != 0)
        return app_description_refuse(app->load, error, "expected a model of %s, found one of %s",
                                      app->program->name, program != NULL ? program : "no program");
    return true;
}

/* The root object of the description. (transfer full) */
static JsonNode *read_description(const App *app, GError **error)
{
    g_autofree char *path = g_build_filename(app->load, APP_MODEL_DESCRIPTION, NULL);
    g_autofree char *text = NULL;
    g_autoptr(GError) cause = NULL;
    struct stat about;

    if (stat(path, &about) == 0 && about.st_size > DESCRIPTION_BYTES_MAX) {
        app_description_refuse(app->load, error,
                               "expected at most %d bytes, found %" G_GINT64_FORMAT,
                               DESCRIPTION_BYTES_MAX, (int64_t)about.st_size);
        return NULL;
    }
    if (!g_file_get_contents(path, &text, NULL, &cause)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "--load: %s", cause->message);
        return NULL;
    }
    g_autoptr(JsonNode) root = json_from_string(text, &cause);
    if (root == NULL || !JSON_NODE_HOLDS_OBJECT(root)) {
        app_description_refuse(app->load, error, "expected an object of JSON: %s",
                               cause != NULL ? cause->message : "found something else");
        return NULL;
    }
    return check_kind(app, json_node_get_object(root), error) ? g_steal_pointer(&root) : NULL;
}

/* ---- told to all nodes ---- */

static bool read_here(App *app, void *data, GError **error)
{
    (void)data;
    app->description = read_description(app, error);
    return app->description != NULL;
}

static size_t rows_of(size_t n_bytes)
{
    return (n_bytes + ROW_BYTES - 1) / ROW_BYTES;
}

/* Rows 0 to n of the table. (transfer full) */
static RubatoKey *first_keys(size_t n)
{
    RubatoKey *keys = g_new(RubatoKey, n + 1);

    for (size_t i = 0; i <= n; i++)
        keys[i] = i;
    return keys;
}

static bool write_rows(const App *app, GError **error)
{
    g_autofree char *text = json_to_string(app->description, FALSE);
    const size_t n_bytes = strlen(text), n = rows_of(n_bytes);
    g_autofree RubatoKey *keys = first_keys(n);
    g_autofree char *rows = g_malloc0((n + 1) * ROW_BYTES);

    *(int64_t *)(void *)rows = (int64_t)n_bytes;
    memcpy(rows + ROW_BYTES, text, n_bytes);
    return rubato_engine_set(app->engine, TABLE, keys, n + 1, rows, error);
}

static bool read_rows(App *app, GError **error)
{
    int64_t first[ROW_VALUES];
    const RubatoKey key = 0;

    if (!rubato_engine_get(app->engine, TABLE, &key, 1, first, error))
        return false;
    const size_t n_bytes = (size_t)first[0], n = rows_of(n_bytes);
    g_autofree RubatoKey *keys = first_keys(n);
    g_autofree char *text = g_malloc0(n * ROW_BYTES + 1);

    if (!rubato_engine_get(app->engine, TABLE, keys + 1, n, text, error))
        return false;
    app->description = json_from_string(text, error);
    return app->description != NULL;
}

static bool tell_all(App *app, GError **error)
{
    const RubatoTableSpec spec = { .name = TABLE, .dtype = RUBATO_I64, .width = ROW_VALUES };

    return app_create_table(app, &spec, error) && (!app->reports || write_rows(app, error)) &&
           rubato_engine_barrier(app->engine, error) && (app->reports || read_rows(app, error)) &&
           rubato_engine_drop_table(app->engine, TABLE, error);
}

static bool take_keys(const App *app, GError **error)
{
    JsonObject *root = json_node_get_object(app->description);

    if (app->program->data == NULL || !json_object_has_member(root, "keys"))
        return true;
    RubatoDataKeys *keys = app_keys_read(app_json_object(root, "keys"));
    if (keys == NULL)
        return app_description_refuse(
            app->load, error,
            "\"keys\": expected a format and, of csv, the number of columns, their names, if "
            "they have any, and which of them are label and categorical");
    app_data_take_keys(app->program->data, keys);
    return true;
}

bool app_description_load(App *app, GError **error)
{
    return app_call_on_reporter(app, "load", read_here, NULL, error) &&
           (rubato_engine_n_nodes(app->engine) == 1 || tell_all(app, error)) &&
           take_keys(app, error);
}

const char *app_loaded_setting(const App *app, const char *name)
{
    return app->description == NULL
               ? NULL
               : app_json_text(app_json_object(json_node_get_object(app->description), "settings"),
                               name);
}

uint32_t app_loaded_count(const App *app, const char *name, uint32_t most, uint32_t otherwise)
{
    const char *text = app_loaded_setting(app, name);
    guint64 count = otherwise;

    if (text != NULL)
        (void)g_ascii_string_to_unsigned(text, 10, 1, most, &count, NULL);
    return (uint32_t)count;
}
