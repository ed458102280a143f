/* rubato_engine_save_table: a table's rows as arrays. Runs on the caller's thread.
 *
 * A file is created only where there is none, and the text beside the arrays comes last. So whoever
 * finds the text finds the arrays whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "engine/snapshot/table_shape.h"

typedef struct {
    RubatoEngine *engine;
    const char *table, *path;
    TableShape shape;
    RubatoKey *keys; /* NULL: a range */
    size_t n;
    TableText text;
    bool is_made[TABLE_N_FILES];
} Saving;

static bool fail(const char *path, GError **error)
{
    const int code = errno;

    g_set_error(error, RUBATO_ERROR, code == EEXIST ? RUBATO_ERROR_EXISTS : RUBATO_ERROR_IO,
                code == EEXIST ? "%s: is there already; save the table under another name"
                               : "%s: cannot be written: %s",
                path, g_strerror(code));
    return false;
}

/* ---- files ---- */

static FILE *create(Saving *saving, TableFile kind, GError **error)
{
    g_autofree char *path = table_file_path(saving->path, kind);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0) {
        fail(path, error);
        return NULL;
    }
    saving->is_made[kind] = true;
    return fdopen(fd, "wb");
}

/* Makes sure that the file is on the disk. Closes it. */
static bool finish(const Saving *saving, TableFile kind, FILE *file, bool good, GError **error)
{
    if (good && (fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0)) {
        g_autofree char *path = table_file_path(saving->path, kind);

        good = fail(path, error);
    }
    fclose(file);
    return good;
}

/* Has the disk take the names of the files. */
static bool sync_folder(const Saving *saving, GError **error)
{
    g_autofree char *folder = g_path_get_dirname(saving->path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool good = fd >= 0 && fsync(fd) == 0;

    if (!good)
        fail(folder, error);
    if (fd >= 0)
        close(fd);
    return good;
}

static void remove_made(const Saving *saving)
{
    for (size_t i = 0; i < TABLE_N_FILES; i++) {
        g_autofree char *path = table_file_path(saving->path, (TableFile)i);

        if (saving->is_made[i])
            (void)unlink(path);
    }
}

/* ---- arrays ---- */

static void write_header(FILE *file, const char *descr, unsigned n_dimensions,
                         const uint64_t *shape)
{
    size_t n;
    g_autofree char *header = rubato_npy_header(descr, n_dimensions, shape, &n);

    fwrite(header, 1, n, file);
}

static bool read_rows(const Saving *saving, TableFile kind, size_t from, size_t n, void *rows,
                      GError **error)
{
    RubatoEngine *engine = saving->engine;
    const RubatoKey *keys = saving->keys != NULL ? saving->keys + from : NULL;
    const RubatoKey first = saving->shape.first_key + from;

    if (kind == TABLE_FILE_VALUES)
        return keys != NULL ? rubato_engine_get(engine, saving->table, keys, n, rows, error)
                            : rubato_engine_get_range(engine, saving->table, first, n, rows, error);
    return keys != NULL
               ? rubato_engine_get_state(engine, saving->table, keys, n, rows, error)
               : rubato_engine_get_state_range(engine, saving->table, first, n, rows, error);
}

static bool write_rows(Saving *saving, TableFile kind, uint32_t width, FILE *file, GError **error)
{
    const size_t row_bytes = width * rubato_dtype_size(saving->shape.dtype);
    const size_t chunk = table_shape_chunk(&saving->shape);
    g_autofree void *rows = g_try_malloc(MIN(chunk, saving->n + 1) * row_bytes);
    g_autoptr(ByteSum) sum = byte_sum_new();

    if (rows == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "table %s: no memory for its rows",
                    saving->table);
        return false;
    }
    for (size_t done = 0; done < saving->n; done += chunk) {
        const size_t n = MIN(chunk, saving->n - done);

        if (!read_rows(saving, kind, done, n, rows, error))
            return false;
        fwrite(rows, row_bytes, n, file);
        byte_sum_add(sum, rows, n * row_bytes);
    }
    byte_sum_text(sum, saving->text.sums[kind]);
    return true;
}

static bool save_rows(Saving *saving, TableFile kind, uint32_t width, GError **error)
{
    FILE *file = create(saving, kind, error);

    if (file == NULL)
        return false;
    write_header(file, rubato_npy_descr(saving->shape.dtype), 2,
                 (const uint64_t[]){ saving->n, width });
    return finish(saving, kind, file, write_rows(saving, kind, width, file, error), error);
}

static bool save_keys(Saving *saving, GError **error)
{
    FILE *file = create(saving, TABLE_FILE_KEYS, error);
    g_autoptr(ByteSum) sum = byte_sum_new();

    if (file == NULL)
        return false;
    write_header(file, RUBATO_NPY_KEYS, 1, (const uint64_t[]){ saving->n });
    fwrite(saving->keys, sizeof *saving->keys, saving->n, file);
    byte_sum_add(sum, saving->keys, saving->n * sizeof *saving->keys);
    byte_sum_text(sum, saving->text.sums[TABLE_FILE_KEYS]);
    return finish(saving, TABLE_FILE_KEYS, file, /* good= */ true, error);
}

static bool save_text(Saving *saving, GError **error)
{
    TableText *text = &saving->text;
    FILE *file = create(saving, TABLE_FILE_TEXT, error);

    if (file == NULL)
        return false;
    g_strlcpy(text->dtype, rubato_dtype_name(saving->shape.dtype), sizeof text->dtype);
    text->width = saving->shape.width;
    text->state_width = saving->shape.state_width;
    text->is_range = saving->shape.is_range;
    text->first_key = saving->shape.first_key;
    text->n_rows = saving->n;
    text->update = g_strdup(saving->shape.update);
    g_autofree char *lines = table_text_write(text);
    fputs(lines, file);
    return finish(saving, TABLE_FILE_TEXT, file, /* good= */ true, error);
}

static bool find_keys(Saving *saving, GError **error)
{
    saving->n = (size_t)saving->shape.n_keys;
    return saving->shape.is_range ||
           rubato_engine_list_keys(saving->engine, saving->table, &saving->keys, &saving->n, error);
}

static bool save(Saving *saving, RubatoTableContent content, GError **error)
{
    const uint32_t state_width =
        content == RUBATO_TABLE_VALUES_AND_STATE ? saving->shape.state_width : 0;

    return find_keys(saving, error) &&
           save_rows(saving, TABLE_FILE_VALUES, saving->shape.width, error) &&
           (saving->shape.is_range || save_keys(saving, error)) &&
           (state_width == 0 || save_rows(saving, TABLE_FILE_STATE, state_width, error)) &&
           save_text(saving, error) && sync_folder(saving, error);
}

/* Files of an earlier table that this one would not write, such as its keys, would be taken for its
 * own. */
static bool check_free(const char *path, GError **error)
{
    for (size_t i = 0; i < TABLE_N_FILES; i++) {
        g_autofree char *file = table_file_path(path, (TableFile)i);

        errno = EEXIST;
        if (g_file_test(file, G_FILE_TEST_EXISTS))
            return fail(file, error);
    }
    return true;
}

bool rubato_engine_save_table(RubatoEngine *engine, const char *table, const char *path,
                              RubatoTableContent content, RubatoTableFiles *files, GError **error)
{
    Saving saving = { .engine = engine, .table = table, .path = path };

    g_return_val_if_fail(engine != NULL && table != NULL && path != NULL, false);
    LOG_SINK_SCOPE(&engine->log);
    if (!table_shape_find(engine, table, &saving.shape, error))
        return false;
    const bool good = check_free(path, error) && save(&saving, content, error);
    if (!good)
        remove_made(&saving);
    if (good && files != NULL) {
        *files = (RubatoTableFiles){ .n_rows = saving.n };
        g_strlcpy(files->values_checksum, saving.text.sums[TABLE_FILE_VALUES], BYTE_SUM_TEXT);
        g_strlcpy(files->keys_checksum, saving.text.sums[TABLE_FILE_KEYS], BYTE_SUM_TEXT);
    }
    g_free(saving.keys);
    table_text_clear(&saving.text);
    table_shape_clear(&saving.shape);
    return good;
}
