/* What the keys of a model mean, in JSON and in words. Runs on the caller's thread, keeps nothing.
 *
 *     { "format": "csv", "hash_bits": 64, "columns": 3, "names": ["y", "age", "town"],
 *       "label": 0, "categorical": [2] }
 *
 * Members without a value are left out: hash_bits if nothing is hashed, fields_in_keys if keys tell
 * no field, those about columns if the format has none, names without a header, label without a
 * label. "label_words": ["ham", "spam"] is there if labels are words.
 *
 * Files are bytes, JSON is UTF-8. Names that are not UTF-8 are read as ISO 8859-1, in which every
 * byte is a character, and "names_in" says so. So reading gives back the same bytes. */
#include "apps/kit/model/app_keys.h"

#include <string.h>

#define NAMES_IN "iso-8859-1"
#define COLUMNS_SHOWN 20

/* ---- names ---- */

/* (transfer full) */
static char *from_latin1(const char *text)
{
    GString *utf8 = g_string_new(NULL);

    for (; *text != '\0'; text++)
        g_string_append_unichar(utf8, (guchar)*text);
    return g_string_free(utf8, FALSE);
}

/* NULL if there are other letters in it. (transfer full) */
static char *to_latin1(const char *text)
{
    g_autoptr(GString) bytes = g_string_new(NULL);

    for (; *text != '\0'; text = g_utf8_next_char(text)) {
        const gunichar letter = g_utf8_get_char(text);

        if (letter > 0xff)
            return NULL;
        g_string_append_c(bytes, (char)letter);
    }
    return g_string_free(g_steal_pointer(&bytes), FALSE);
}

static bool are_utf8(const char *const *names)
{
    for (; names != NULL && *names != NULL; names++)
        if (!g_utf8_validate(*names, -1, NULL))
            return false;
    return true;
}

/* ---- written ---- */

static void write_words(JsonBuilder *builder, const char *member, const char *const *names,
                        bool plain)
{
    json_builder_set_member_name(builder, member);
    json_builder_begin_array(builder);
    for (; *names != NULL; names++) {
        g_autofree char *name = plain ? g_strdup(*names) : from_latin1(*names);
        json_builder_add_string_value(builder, name);
    }
    json_builder_end_array(builder);
}

static void write_columns(JsonBuilder *builder, const RubatoDataKeys *keys, bool plain)
{
    app_json_add_int(builder, "columns", keys->n_columns);
    if (keys->column_names != NULL)
        write_words(builder, "names", keys->column_names, plain);
    if (keys->label_column != RUBATO_NO_COLUMN)
        app_json_add_int(builder, "label", keys->label_column);
    json_builder_set_member_name(builder, "categorical");
    json_builder_begin_array(builder);
    for (uint32_t i = 0; i < keys->n_categorical_columns; i++)
        json_builder_add_int_value(builder, keys->categorical_columns[i]);
    json_builder_end_array(builder);
}

void app_keys_write(JsonBuilder *builder, const RubatoDataKeys *keys)
{
    const bool plain = are_utf8(keys->column_names) && are_utf8(keys->label_words);

    json_builder_begin_object(builder);
    app_json_add_text(builder, "format", keys->format);
    if (keys->hash_bits > 0)
        app_json_add_int(builder, "hash_bits", keys->hash_bits);
    if (keys->fields_in_keys > 0)
        app_json_add_int(builder, "fields_in_keys", keys->fields_in_keys);
    if (!plain)
        app_json_add_text(builder, "names_in", NAMES_IN);
    if (keys->label_words != NULL)
        write_words(builder, "label_words", keys->label_words, plain);
    if (keys->n_columns > 0)
        write_columns(builder, keys, plain);
    json_builder_end_object(builder);
}

/* ---- read ---- */

/* An optional number up to `most`; `otherwise` if it is left out. */
static bool read_number(JsonObject *object, const char *name, uint32_t otherwise, uint32_t most,
                        uint32_t *number)
{
    uint64_t value;

    *number = otherwise;
    if (!json_object_has_member(object, name))
        return true;
    if (!app_json_int(object, name, &value) || value > most)
        return false;
    *number = (uint32_t)value;
    return true;
}

/* An optional array of words, ended by NULL, and how many there are. */
static bool read_words(JsonObject *object, const char *member, const char *const **words,
                       uint32_t *n)
{
    const bool plain = !json_object_has_member(object, "names_in");
    JsonArray *array = app_json_array(object, member);
    g_autoptr(GPtrArray) read = g_ptr_array_new_with_free_func(g_free);

    if (!json_object_has_member(object, member))
        return true;
    if (array == NULL || (!plain && g_strcmp0(app_json_text(object, "names_in"), NAMES_IN) != 0))
        return false;
    *n = json_array_get_length(array);
    for (guint i = 0; i < *n; i++) {
        JsonNode *node = json_array_get_element(array, i);
        const char *text = JSON_NODE_HOLDS_VALUE(node) ? json_node_get_string(node) : NULL;
        char *word = text == NULL ? NULL : plain ? g_strdup(text) : to_latin1(text);

        if (word == NULL)
            return false;
        g_ptr_array_add(read, word);
    }
    g_ptr_array_add(read, NULL);
    *words = (const char *const *)g_ptr_array_steal(read, NULL);
    return true;
}

static bool read_names(JsonObject *object, RubatoDataKeys *keys)
{
    uint32_t n = keys->n_columns;

    return read_words(object, "names", &keys->column_names, &n) && n == keys->n_columns;
}

/* They ascend, as the places that labels are need it. */
static bool read_label_words(JsonObject *object, RubatoDataKeys *keys)
{
    if (!read_words(object, "label_words", &keys->label_words, &keys->n_label_words))
        return false;
    for (uint32_t i = 1; i < keys->n_label_words; i++)
        if (strcmp(keys->label_words[i - 1], keys->label_words[i]) >= 0)
            return false;
    return keys->label_words == NULL || keys->n_label_words > 0;
}

static bool read_categorical(JsonObject *object, RubatoDataKeys *keys)
{
    JsonArray *array = app_json_array(object, "categorical");
    const guint n = array != NULL ? json_array_get_length(array) : 0;
    uint32_t *columns = g_new(uint32_t, n);
    int64_t last = -1;

    keys->categorical_columns = columns;
    for (; keys->n_categorical_columns < n; keys->n_categorical_columns++) {
        JsonNode *node = json_array_get_element(array, keys->n_categorical_columns);
        const bool is_int =
            JSON_NODE_HOLDS_VALUE(node) && json_node_get_value_type(node) == G_TYPE_INT64;
        const int64_t column = is_int ? json_node_get_int(node) : -1;

        if (column <= last || column >= keys->n_columns || column == keys->label_column)
            return false;
        columns[keys->n_categorical_columns] = (uint32_t)column;
        last = column;
    }
    return array != NULL;
}

static bool read_columns(JsonObject *object, RubatoDataKeys *keys)
{
    if (!read_number(object, "columns", 0, RUBATO_NO_COLUMN - 1, &keys->n_columns))
        return false;
    return keys->n_columns == 0 || (read_number(object, "label", RUBATO_NO_COLUMN,
                                                keys->n_columns - 1, &keys->label_column) &&
                                    read_names(object, keys) && read_categorical(object, keys));
}

RubatoDataKeys *app_keys_read(JsonObject *object)
{
    g_autoptr(RubatoDataKeys) keys = g_new0(RubatoDataKeys, 1);
    const char *format = app_json_text(object, "format");

    keys->label_column = RUBATO_NO_COLUMN;
    keys->format = g_strdup(format);
    return format != NULL && read_number(object, "hash_bits", 0, 64, &keys->hash_bits) &&
                   read_number(object, "fields_in_keys", 0, UINT32_MAX, &keys->fields_in_keys) &&
                   read_columns(object, keys) && read_label_words(object, keys)
               ? g_steal_pointer(&keys)
               : NULL;
}

void app_keys_free(RubatoDataKeys *keys)
{
    if (keys == NULL)
        return;
    g_free((char *)(uintptr_t)keys->format);
    g_strfreev((char **)(uintptr_t)keys->column_names);
    g_strfreev((char **)(uintptr_t)keys->label_words);
    g_free((uint32_t *)(uintptr_t)keys->categorical_columns);
    g_free(keys);
}

/* ---- in words ---- */

/* A column as flags call it. */
static void add_column(GString *text, const RubatoDataKeys *keys, uint32_t column)
{
    if (keys->column_names != NULL)
        g_string_append(text, keys->column_names[column]);
    else
        g_string_append_printf(text, "%u", column);
}

static void add_columns(GString *text, const RubatoDataKeys *keys)
{
    g_string_append_printf(text, "%u columns%s", keys->n_columns,
                           keys->column_names != NULL ? ", " : " without names");
    for (uint32_t i = 0; keys->column_names != NULL && i < keys->n_columns; i++) {
        if (i == COLUMNS_SHOWN) {
            g_string_append(text, ", …");
            break;
        }
        g_string_append_printf(text, "%s%s", i > 0 ? ", " : "", keys->column_names[i]);
    }
    g_string_append(text, "; ");
}

char *app_keys_text(const RubatoDataKeys *keys)
{
    GString *text = g_string_new(NULL);

    if (keys->n_columns > 0)
        add_columns(text, keys);
    g_string_append_printf(text, "--format %s", keys->format);
    if (keys->n_columns > 0 && keys->label_column == RUBATO_NO_COLUMN)
        g_string_append(text, " --label-column ''");
    else if (keys->n_columns > 0) {
        g_string_append(text, " --label-column ");
        add_column(text, keys, keys->label_column);
    }
    for (uint32_t i = 0; i < keys->n_categorical_columns; i++) {
        g_string_append(text, i == 0 ? " --categorical " : ",");
        add_column(text, keys, keys->categorical_columns[i]);
    }
    if (keys->hash_bits > 0)
        g_string_append_printf(text, " --hash-bits %u", keys->hash_bits);
    return g_string_free(text, FALSE);
}
