/* Rows from a text, read through a file as an application reads them. */
#include "tests/support/data/data_text.h"

#include <glib/gstdio.h>
#include <string.h>

#include "tests/support/runner.h"

void remove_files(const char *dir)
{
    g_autoptr(GDir) files = g_dir_open(dir, 0, NULL);
    const char *name;

    while (files != NULL && (name = g_dir_read_name(files)) != NULL) {
        g_autofree char *path = g_build_filename(dir, name, NULL);

        g_unlink(path);
    }
    g_rmdir(dir);
}

RubatoRows *load_text(const RubatoDataSpec *spec, const void *text, size_t size, GError **error)
{
    g_autofree char *dir = g_dir_make_tmp("rubato-data-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(dir, "rows", NULL);
    g_autofree char *prefix = g_strconcat(dir, "/", NULL);
    const char *const paths[] = { path, NULL };
    RubatoDataSpec with_paths = *spec;
    RubatoRows *rows;

    with_paths.paths = paths;
    ck_assert(g_file_set_contents(path, text, (gssize)size, NULL));
    rows = rubato_dataset_load(&with_paths, error);
    remove_files(dir);
    if (rows == NULL && error != NULL && g_str_has_prefix((*error)->message, prefix))
        memmove((*error)->message, (*error)->message + strlen(prefix),
                strlen((*error)->message) - strlen(prefix) + 1);
    return rows;
}

RubatoRows *load_good(const RubatoDataSpec *spec, const char *text)
{
    g_autoptr(GError) error = NULL;
    RubatoRows *rows = load_text(spec, text, strlen(text), &error);

    ck_assert_msg(rows != NULL, "\"%s\" was refused: %s", text,
                  error != NULL ? error->message : "");
    return rows;
}

void check_refused(const RubatoDataSpec *spec, const void *text, size_t size, const char *message)
{
    g_autoptr(GError) error = NULL;

    ck_assert_msg(load_text(spec, text, size, &error) == NULL, "accepted where \"%s\" is wrong",
                  message);
    ck_assert(g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT));
    ck_assert_msg(g_str_has_prefix(error->message, message), "\"%s\" does not begin with \"%s\"",
                  error->message, message);
}

void check_row(const RubatoRows *rows, size_t row, float label, size_t n, const RubatoKey *keys,
               const uint32_t *fields, const float *values)
{
    const size_t first = rows->row_start[row];

    ck_assert_uint_eq(rows->row_start[row + 1] - first, n);
    ck_assert(rows->label[row] == label);
    ck_assert_mem_eq(rows->key + first, keys, n * sizeof *keys);
    ck_assert_mem_eq(rows->field + first, fields, n * sizeof *fields);
    ck_assert_mem_eq(rows->value + first, values, n * sizeof *values);
}
