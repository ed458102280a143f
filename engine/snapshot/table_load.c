/* rubato_engine_load_table: arrays into a table. Runs on the caller's thread.
 *
 * The files are read twice: first to check that they are whole and fit the table, then to write the
 * rows. So a table is as it was if they do not. */
#include <errno.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/snapshot/table_shape.h"

typedef struct {
    RubatoEngine *engine;
    const char *table, *path;
    TableShape shape;
    bool has_text;
    TableText text;
    RubatoNpy *arrays[TABLE_N_ARRAYS]; /* NULL: there is none, or it is not needed */
    size_t row_bytes[TABLE_N_ARRAYS];
    void *rows[TABLE_N_ARRAYS]; /* a chunk of each */
    RubatoKey first_key;        /* of an array without keys */
    uint64_t n;
    ByteSum *running[TABLE_N_ARRAYS];
    char sums[TABLE_N_ARRAYS][BYTE_SUM_TEXT]; /* of the arrays that there are */
} Loading;

static bool mismatch(const Loading *loading, GError **error, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

static bool mismatch(const Loading *loading, GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *what = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH, "%s.npy, for table %s: %s",
                loading->path, loading->table, what);
    return false;
}

/* ---- what is there ---- */

static bool read_text(Loading *loading, GError **error)
{
    g_autofree char *path = table_file_path(loading->path, TABLE_FILE_TEXT);
    g_autofree char *bytes = NULL;
    g_autoptr(GError) why = NULL;

    if (g_file_get_contents(path, &bytes, NULL, &why)) {
        loading->has_text = true;
        return table_text_read(path, bytes, &loading->text, error);
    }
    if (g_error_matches(why, G_FILE_ERROR, G_FILE_ERROR_NOENT)) {
        g_message("%s is not there, so %s.npy is not compared with it", path, loading->path);
        return true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s", path, why->message);
    return false;
}

/* Whether a file is to be read: the text says so or, without one, its name is there. */
static bool has_array(const Loading *loading, TableFile kind)
{
    g_autofree char *path = table_file_path(loading->path, kind);

    return loading->has_text ? *loading->text.sums[kind] != '\0'
                             : g_file_test(path, G_FILE_TEST_EXISTS);
}

static bool open_array(Loading *loading, TableFile kind, uint32_t width, GError **error)
{
    g_autofree char *path = table_file_path(loading->path, kind);
    const bool is_keys = kind == TABLE_FILE_KEYS;
    const char *descr = is_keys ? RUBATO_NPY_KEYS : rubato_npy_descr(loading->shape.dtype);
    RubatoNpy *npy = rubato_npy_open(path, error);

    if (npy == NULL)
        return false;
    loading->arrays[kind] = npy;
    loading->row_bytes[kind] =
        is_keys ? sizeof(RubatoKey) : width * rubato_dtype_size(loading->shape.dtype);
    if (kind == TABLE_FILE_VALUES)
        loading->n = loading->has_text ? loading->text.n_rows : npy->shape[0];
    /* numpy.save of a vector */
    const bool is_flat = npy->n_dimensions == 1 && width == 1;
    return rubato_npy_check(npy, descr, is_keys || is_flat ? 1 : 2,
                            (const uint64_t[]){ loading->n, width }, error);
}

static void close_arrays(Loading *loading)
{
    for (size_t i = 0; i < TABLE_N_ARRAYS; i++)
        g_clear_pointer(&loading->arrays[i], rubato_npy_free);
}

static bool open_arrays(Loading *loading, RubatoTableContent content, GError **error)
{
    const TableShape *shape = &loading->shape;
    const bool takes_state = content == RUBATO_TABLE_VALUES_AND_STATE && shape->state_width > 0;

    if (!open_array(loading, TABLE_FILE_VALUES, shape->width, error) ||
        (has_array(loading, TABLE_FILE_KEYS) && !open_array(loading, TABLE_FILE_KEYS, 1, error)))
        return false;
    if (!takes_state || !has_array(loading, TABLE_FILE_STATE))
        return true;
    if (loading->has_text && strcmp(loading->text.update, shape->update) != 0)
        return mismatch(loading, error,
                        "its state is that of update rule \"%s\", the table has \"%s\"; load the "
                        "values alone",
                        loading->text.update, shape->update);
    return open_array(loading, TABLE_FILE_STATE, shape->state_width, error);
}

/* ---- whether the table can take it ---- */

static bool check_range(Loading *loading, GError **error)
{
    const TableShape *shape = &loading->shape;
    const bool is_described = loading->has_text && loading->text.is_range;

    loading->first_key = is_described      ? loading->text.first_key
                         : shape->is_range ? shape->first_key
                                           : 0;
    if (loading->arrays[TABLE_FILE_KEYS] != NULL || !shape->is_range)
        return true;
    return (loading->n == shape->n_keys && loading->first_key == shape->first_key) ||
           mismatch(loading, error,
                    "expected %" G_GUINT64_FORMAT " rows from key %" G_GUINT64_FORMAT
                    " on, found %" G_GUINT64_FORMAT " from key %" G_GUINT64_FORMAT " on",
                    shape->n_keys, shape->first_key, loading->n, loading->first_key);
}

static bool check_keys(const Loading *loading, const RubatoKey *keys, size_t n, GError **error)
{
    const TableShape *shape = &loading->shape;

    for (size_t i = 0; i < n && shape->is_range; i++)
        if (keys[i] < shape->first_key || keys[i] - shape->first_key >= shape->n_keys)
            return mismatch(loading, error,
                            "key %" G_GUINT64_FORMAT " is none of the table's %" G_GUINT64_FORMAT
                            " from key %" G_GUINT64_FORMAT " on",
                            keys[i], shape->n_keys, shape->first_key);
    return true;
}

/* Compares what was read with what the text says. */
static bool check_sums(const Loading *loading, GError **error)
{
    for (size_t i = 0; i < TABLE_N_ARRAYS && loading->has_text; i++)
        if (loading->arrays[i] != NULL && strcmp(loading->sums[i], loading->text.sums[i]) != 0) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "%s: it is not as it was saved: its checksum is %s, expected %s; save the "
                        "table anew",
                        loading->arrays[i]->path, loading->sums[i], loading->text.sums[i]);
            return false;
        }
    return true;
}

/* ---- reading ---- */

typedef bool (*TakeFunc)(Loading *loading, uint64_t from, size_t n, GError **error);

/* Reads all arrays, a chunk of rows of each at a time. */
static bool read_arrays(Loading *loading, TakeFunc take, GError **error)
{
    const size_t chunk = table_shape_chunk(&loading->shape);

    for (uint64_t done = 0; done < loading->n; done += chunk) {
        const size_t n = (size_t)MIN(chunk, loading->n - done);

        for (size_t i = 0; i < TABLE_N_ARRAYS; i++)
            if (loading->arrays[i] != NULL && !rubato_npy_read(loading->arrays[i], loading->rows[i],
                                                               n * loading->row_bytes[i], error))
                return false;
        if (!take(loading, done, n, error))
            return false;
    }
    return true;
}

static bool write_rows(Loading *loading, uint64_t from, size_t n, GError **error)
{
    RubatoEngine *const engine = loading->engine;
    const void *state =
        loading->arrays[TABLE_FILE_STATE] != NULL ? loading->rows[TABLE_FILE_STATE] : NULL;
    const void *values = loading->rows[TABLE_FILE_VALUES];
    const RubatoKey first = loading->first_key + from;

    if (loading->arrays[TABLE_FILE_KEYS] == NULL)
        return rubato_engine_set_range(engine, loading->table, first, n, values, error) &&
               (state == NULL ||
                rubato_engine_set_state_range(engine, loading->table, first, n, state, error));

    const RubatoKey *keys = loading->rows[TABLE_FILE_KEYS];
    return rubato_engine_set(engine, loading->table, keys, n, values, error) &&
           (state == NULL ||
            rubato_engine_set_state(engine, loading->table, keys, n, state, error));
}

/* The first reading. */
static bool check_rows(Loading *loading, uint64_t from, size_t n, GError **error)
{
    (void)from;
    for (size_t i = 0; i < TABLE_N_ARRAYS; i++)
        if (loading->arrays[i] != NULL)
            byte_sum_add(loading->running[i], loading->rows[i], n * loading->row_bytes[i]);
    return loading->arrays[TABLE_FILE_KEYS] == NULL ||
           check_keys(loading, loading->rows[TABLE_FILE_KEYS], n, error);
}

static bool make_room(Loading *loading, GError **error)
{
    const size_t most = table_shape_chunk(&loading->shape);
    const size_t chunk = (size_t)MIN(most, loading->n + 1);

    for (size_t i = 0; i < TABLE_N_ARRAYS; i++)
        if (loading->arrays[i] != NULL) {
            loading->rows[i] = g_try_malloc(chunk * loading->row_bytes[i]);
            if (loading->rows[i] == NULL) {
                g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                            "table %s: no memory for its rows", loading->table);
                return false;
            }
        }
    return true;
}

static bool check(Loading *loading, GError **error)
{
    if (!check_range(loading, error) || !make_room(loading, error))
        return false;
    for (size_t i = 0; i < TABLE_N_ARRAYS; i++)
        loading->running[i] = byte_sum_new();
    if (!read_arrays(loading, check_rows, error))
        return false;
    for (size_t i = 0; i < TABLE_N_ARRAYS; i++)
        if (loading->arrays[i] != NULL)
            byte_sum_text(loading->running[i], loading->sums[i]);
    return check_sums(loading, error);
}

static bool load(Loading *loading, RubatoTableContent content, GError **error)
{
    if (!read_text(loading, error) || !open_arrays(loading, content, error) ||
        !check(loading, error))
        return false;
    close_arrays(loading);
    return open_arrays(loading, content, error) && read_arrays(loading, write_rows, error);
}

static void loading_clear(Loading *loading)
{
    close_arrays(loading);
    for (size_t i = 0; i < TABLE_N_ARRAYS; i++) {
        g_free(loading->rows[i]);
        byte_sum_free(loading->running[i]);
    }
    table_text_clear(&loading->text);
    table_shape_clear(&loading->shape);
}

bool rubato_engine_load_table(RubatoEngine *engine, const char *table, const char *path,
                              RubatoTableContent content, RubatoTableFiles *files, GError **error)
{
    Loading loading = { .engine = engine, .table = table, .path = path };

    g_return_val_if_fail(engine != NULL && table != NULL && path != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!table_shape_find(engine, table, &loading.shape, error))
        return false;
    const bool good = load(&loading, content, error);
    if (good && files != NULL) {
        *files = (RubatoTableFiles){ .n_rows = loading.n };
        g_strlcpy(files->values_checksum, loading.sums[TABLE_FILE_VALUES], BYTE_SUM_TEXT);
        g_strlcpy(files->keys_checksum, loading.sums[TABLE_FILE_KEYS], BYTE_SUM_TEXT);
    }
    loading_clear(&loading);
    return good;
}
