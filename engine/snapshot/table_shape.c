/* The shape of a table's rows, and the text beside its arrays. The text is a GLib key file; its
 * last line is the checksum of those before it. */
#include "engine/snapshot/table_shape.h"

#include <string.h>

#include "engine/engine_private.h"

#define GROUP "rubato-table"
#define VERSION 1
#define LAST_LINE "checksum="

/* ---- the table ---- */

bool table_shape_find(RubatoEngine *engine, const char *name, TableShape *shape, GError **error)
{
    Table *table;

    pthread_mutex_lock(&engine->lock);
    table = engine_find_table(engine, name, error);
    if (table != NULL && table->spec->shape == RUBATO_SHAPE_RAGGED) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s has rows of different lengths, which are no array; a snapshot can "
                    "hold it",
                    name);
        table = NULL;
    }
    if (table != NULL) {
        const RubatoTableSpec *spec = table->spec;

        *shape = (TableShape){ .dtype = spec->dtype,
                               .width = spec->width,
                               .state_width =
                                   (uint32_t)(table->state_bytes / rubato_dtype_size(spec->dtype)),
                               .is_range = rubato_table_spec_holds_range(spec),
                               .first_key = spec->first_key,
                               .n_keys = spec->n_keys,
                               .update = g_strdup(spec->update) };
    }
    pthread_mutex_unlock(&engine->lock);
    return table != NULL;
}

void table_shape_clear(TableShape *shape)
{
    g_clear_pointer(&shape->update, g_free);
}

size_t table_shape_chunk(const TableShape *shape)
{
    const size_t width = MAX(shape->width, shape->state_width);

    const size_t n_rows = TABLE_CHUNK_BYTES / (width * rubato_dtype_size(shape->dtype));

    return MAX(1, n_rows);
}

/* ---- the files ---- */

static const char *const suffixes[TABLE_N_FILES] = { ".npy", ".keys.npy", ".state.npy", ".table" };
static const char *const sum_names[TABLE_N_ARRAYS] = { "values", "keys", "state" };

char *table_file_path(const char *path, TableFile file)
{
    return g_strconcat(path, suffixes[file], NULL);
}

void table_text_clear(TableText *text)
{
    g_clear_pointer(&text->update, g_free);
}

static void sum_up(const char *text, size_t n, char sum_text[BYTE_SUM_TEXT])
{
    g_autoptr(ByteSum) sum = byte_sum_new();

    byte_sum_add(sum, text, n);
    byte_sum_text(sum, sum_text);
}

char *table_text_write(const TableText *text)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    char sum[BYTE_SUM_TEXT];

    g_key_file_set_integer(file, GROUP, "version", VERSION);
    g_key_file_set_string(file, GROUP, "dtype", text->dtype);
    g_key_file_set_uint64(file, GROUP, "width", text->width);
    g_key_file_set_uint64(file, GROUP, "rows", text->n_rows);
    if (text->is_range)
        g_key_file_set_uint64(file, GROUP, "first_key", text->first_key);
    g_key_file_set_string(file, GROUP, "update", text->update);
    g_key_file_set_uint64(file, GROUP, "state_width", text->state_width);
    for (size_t i = 0; i < TABLE_N_ARRAYS; i++)
        if (*text->sums[i] != '\0')
            g_key_file_set_string(file, GROUP, sum_names[i], text->sums[i]);
    g_autofree char *lines = g_key_file_to_data(file, NULL, NULL);
    sum_up(lines, strlen(lines), sum);
    return g_strconcat(lines, LAST_LINE, sum, "\n", NULL);
}

/* Whether the last line is the checksum of those before it. */
static bool is_whole(const char *bytes)
{
    const char *last = g_strrstr(bytes, "\n" LAST_LINE);
    char sum[BYTE_SUM_TEXT];

    if (last == NULL)
        return false;
    last++;
    sum_up(bytes, (size_t)(last - bytes), sum);
    last += strlen(LAST_LINE);
    return strncmp(last, sum, strlen(sum)) == 0 && strcmp(last + strlen(sum), "\n") == 0;
}

static bool take_number(GKeyFile *file, const char *key, uint64_t most, uint64_t *number)
{
    g_autoptr(GError) error = NULL;

    *number = g_key_file_get_uint64(file, GROUP, key, &error);
    return error == NULL && *number <= most;
}

static bool take_text(GKeyFile *file, TableText *text)
{
    g_autofree char *dtype = g_key_file_get_string(file, GROUP, "dtype", NULL);
    uint64_t version, width, state_width;

    text->update = g_key_file_get_string(file, GROUP, "update", NULL);
    if (!take_number(file, "version", VERSION, &version) || version != VERSION || dtype == NULL ||
        text->update == NULL || !take_number(file, "width", UINT32_MAX, &width) ||
        !take_number(file, "rows", UINT64_MAX, &text->n_rows) ||
        !take_number(file, "state_width", UINT32_MAX, &state_width))
        return false;
    text->width = (uint32_t)width;
    text->state_width = (uint32_t)state_width;
    text->is_range = g_key_file_has_key(file, GROUP, "first_key", NULL);
    if (text->is_range && !take_number(file, "first_key", UINT64_MAX, &text->first_key))
        return false;
    g_strlcpy(text->dtype, dtype, sizeof text->dtype);
    for (size_t i = 0; i < TABLE_N_ARRAYS; i++) {
        g_autofree char *sum = g_key_file_get_string(file, GROUP, sum_names[i], NULL);

        if (sum != NULL)
            g_strlcpy(text->sums[i], sum, sizeof text->sums[i]);
    }
    return *text->sums[TABLE_FILE_VALUES] != '\0';
}

bool table_text_read(const char *path, const char *bytes, TableText *text, GError **error)
{
    g_autoptr(GKeyFile) file = g_key_file_new();

    if (is_whole(bytes) &&
        g_key_file_load_from_data(file, bytes, (gsize)-1, G_KEY_FILE_NONE, NULL) &&
        take_text(file, text))
        return true;
    table_text_clear(text);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: it is not as it was saved, or of a later version; save the table anew", path);
    return false;
}
