/* Tables of a snapshot as NumPy arrays: NAME.npy has the rows in the order of their keys, as --save
 * of the programs writes them; NAME.keys.npy, of a table that holds no range, the keys;
 * NAME.state.npy, if the update rule keeps any, the state. Of rows of different lengths NAME.npy
 * has all values, one row behind the other, and NAME.offsets.npy where each begins, and the end.
 *
 * Rows come in no order, so each is written where it belongs. 8 bytes of memory are needed for each
 * row of a table that holds no range, and 16 if the rows have different lengths. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "apps/rubato/checkpoint/array_folder.h"
#include "apps/rubato/checkpoint/checkpoint.h"
#include <rubato/npy.h>

typedef struct {
    const RubatoSnapshot *snapshot;
    const RubatoSnapshotTable *table;
    ArrayFolder *folder;
    size_t row_bytes, state_bytes;
    RubatoKey *keys; /* ascending; NULL: the table holds a range */
    size_t n_keys;
    uint64_t *offsets;   /* of ragged rows: n_keys + 1, of values; else NULL */
    FILE *rows, *states; /* NULL: it has no state */
    long rows_begin, states_begin;
} Export;

static bool fail_io(const Export *export, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: table %s cannot be written there: %s",
                export->folder->path, export->table->name, g_strerror(errno));
    return false;
}

static bool is_ragged(const Export *export)
{
    return export->table->shape == RUBATO_SHAPE_RAGGED;
}

/* ---- keys ---- */

static bool take_keys(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Export *export = user_data;

    if (rows->n > export->table->n_rows - export->n_keys) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                            "there are more rows than the manifest says");
        return false;
    }
    for (size_t i = 0; i < rows->n; i++)
        export->keys[export->n_keys++] = rows->keys != NULL ? rows->keys[i] : rows->first + i;
    return true;
}

static int compare_keys(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return (left > right) - (left < right);
}

static bool read_parts(Export *export, RubatoSnapshotRowsFunc function, GError **error)
{
    for (uint32_t part = 0; part < export->table->n_parts; part++)
        if (!rubato_snapshot_read_part(export->snapshot, export->table->name, part, function,
                                       export, error))
            return false;
    return true;
}

static bool list_keys(Export *export, GError **error)
{
    if (export->table->holds_range && !is_ragged(export))
        return true;
    export->keys = g_try_new(RubatoKey, export->table->n_rows + 1);
    if (export->keys == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for the keys of table %s",
                    export->table->name);
        return false;
    }
    if (!read_parts(export, take_keys, error))
        return false;
    qsort(export->keys, export->n_keys, sizeof *export->keys, compare_keys);
    return true;
}

/* ---- rows ---- */

/* The place of a key; UINT64_MAX: the table does not have it. */
static uint64_t find_place(const Export *export, RubatoKey key)
{
    const RubatoKey *found;

    if (export->keys == NULL)
        return key - export->table->first_key < export->table->n_keys
                   ? key - export->table->first_key
                   : UINT64_MAX;
    found = bsearch(&key, export->keys, export->n_keys, sizeof key, compare_keys);
    return found == NULL ? UINT64_MAX : (uint64_t)(found - export->keys);
}

static bool fail_key(GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "there is a key that the manifest does not allow");
    return false;
}

static bool take_lengths(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    const Export *export = user_data;

    for (size_t i = 0; i < rows->n; i++) {
        const uint64_t place = find_place(export, rows->keys[i]);

        if (place == UINT64_MAX)
            return fail_key(error);
        export->offsets[place + 1] = rows->lengths[i];
    }
    return true;
}

static bool find_offsets(Export *export, GError **error)
{
    if (!is_ragged(export))
        return true;
    export->offsets = g_try_new0(uint64_t, export->n_keys + 1);
    if (export->offsets == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "no memory for where the rows of table %s begin", export->table->name);
        return false;
    }
    if (!read_parts(export, take_lengths, error))
        return false;
    for (size_t i = 0; i < export->n_keys; i++)
        export->offsets[i + 1] += export->offsets[i];
    return true;
}

/* Writes a row to its place; rows that follow one another need no seek. */
static bool write_row(FILE *file, long begin, uint64_t offset, const void *row, size_t n_bytes)
{
    const off_t at = (off_t)begin + (off_t)offset;

    return (ftello(file) == at || fseeko(file, at, SEEK_SET) == 0) &&
           fwrite(row, 1, n_bytes, file) == n_bytes;
}

static bool take_rows(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Export *export = user_data;
    const unsigned char *values = rows->values, *states = rows->states;

    for (size_t i = 0; i < rows->n; i++) {
        const uint64_t place =
            find_place(export, rows->keys != NULL ? rows->keys[i] : rows->first + i);

        if (place == UINT64_MAX)
            return fail_key(error);
        if (!write_row(export->rows, export->rows_begin, place * export->row_bytes,
                       values + i * export->row_bytes, export->row_bytes) ||
            (states != NULL &&
             !write_row(export->states, export->states_begin, place * export->state_bytes,
                        states + i * export->state_bytes, export->state_bytes)))
            return fail_io(export, error);
    }
    return true;
}

static bool take_ragged(const RubatoSnapshotRows *rows, void *user_data, GError **error)
{
    Export *export = user_data;
    const size_t value_bytes = rubato_dtype_size(export->table->dtype);
    const unsigned char *values = rows->values;

    for (size_t i = 0; i < rows->n; i++) {
        const size_t n_bytes = rows->lengths[i] * value_bytes;
        const uint64_t place = find_place(export, rows->keys[i]);

        if (place == UINT64_MAX)
            return fail_key(error);
        if (!write_row(export->rows, export->rows_begin, export->offsets[place] * value_bytes,
                       values, n_bytes))
            return fail_io(export, error);
        values += n_bytes;
    }
    return true;
}

/* ---- files ---- */

/* Makes NAMEsuffix in the folder, with its header. NULL: errno says why. */
static FILE *begin_file(const Export *export, const char *suffix, const char *descr,
                        unsigned n_dimensions, const uint64_t *shape)
{
    g_autofree char *name = g_strdelimit(g_strdup(export->table->name), "/", '_');
    g_autofree char *file_name = g_strconcat(name, suffix, NULL);
    FILE *file = array_folder_add(export->folder, file_name);
    size_t n;
    g_autofree char *header = rubato_npy_header(descr, n_dimensions, shape, &n);

    if (file != NULL)
        fwrite(header, 1, n, file);
    return file;
}

static bool end_file(FILE *file)
{
    const bool ok = file == NULL || (fflush(file) == 0 && !ferror(file));

    return file == NULL || (fclose(file) == 0 && ok);
}

/* NULL numbers: no file. */
static bool write_numbers(const Export *export, const char *suffix, const uint64_t *numbers,
                          size_t n, GError **error)
{
    const uint64_t shape[] = { n };
    FILE *file;

    if (numbers == NULL)
        return true;
    file = begin_file(export, suffix, RUBATO_NPY_KEYS, 1, shape);
    if (file == NULL)
        return fail_io(export, error);
    fwrite(numbers, sizeof *numbers, n, file);
    return end_file(file) || fail_io(export, error);
}

static bool write_keys(const Export *export, GError **error)
{
    return write_numbers(export, ".keys.npy", export->keys, export->n_keys, error) &&
           write_numbers(export, ".offsets.npy", export->offsets, export->n_keys + 1, error);
}

static bool begin_rows(Export *export)
{
    const RubatoSnapshotTable *table = export->table;
    const char *descr = rubato_npy_descr(table->dtype);
    const uint64_t n = table->holds_range ? table->n_keys : export->n_keys;

    export->rows =
        is_ragged(export)
            ? begin_file(export, ".npy", descr, 1, export->offsets + export->n_keys)
            : begin_file(export, ".npy", descr, 2, (const uint64_t[]){ n, table->width });
    if (export->rows == NULL)
        return false;
    export->rows_begin = ftell(export->rows);
    if (table->state_width == 0)
        return true;
    export->states =
        begin_file(export, ".state.npy", descr, 2, (const uint64_t[]){ n, table->state_width });
    if (export->states == NULL)
        return false;
    export->states_begin = ftell(export->states);
    return true;
}

static bool write_rows(Export *export, GError **error)
{
    const bool begun = begin_rows(export) || fail_io(export, error);
    const bool written =
        begun && read_parts(export, is_ragged(export) ? take_ragged : take_rows, error);
    const bool rows_ended = end_file(export->rows), states_ended = end_file(export->states);

    return written && ((rows_ended && states_ended) || fail_io(export, error));
}

static bool export_table(const RubatoSnapshot *snapshot, const RubatoSnapshotTable *table,
                         ArrayFolder *folder, GError **error)
{
    const size_t value_bytes = rubato_dtype_size(table->dtype);
    Export export = { .snapshot = snapshot,
                      .table = table,
                      .folder = folder,
                      .row_bytes = table->width * value_bytes,
                      .state_bytes = table->state_width * value_bytes };
    bool ok;

    ok = list_keys(&export, error) && find_offsets(&export, error) && write_keys(&export, error) &&
         write_rows(&export, error);
    g_free(export.keys);
    g_free(export.offsets);
    return ok;
}

bool checkpoint_export(const RubatoSnapshot *snapshot, const char *path, GError **error)
{
    ArrayFolder folder;
    bool good = true;

    if (!array_folder_begin(&folder, path, error))
        return false;
    for (size_t i = 0; good && i < rubato_snapshot_n_tables(snapshot); i++)
        good = export_table(snapshot, rubato_snapshot_table(snapshot, i), &folder, error);
    return array_folder_end(&folder, good, error);
}
