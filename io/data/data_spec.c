/* Copies of specs. Runs on the caller's thread, keeps nothing. */
#include "io/data/data_spec.h"

#include <glob.h>
#include <string.h>

#include "io/data/data_keys.h"

#define MEMORY_DEFAULT_BYTES (UINT64_C(1) << 30)

static bool has_wildcard(const char *path)
{
    return strpbrk(path, "*?[") != NULL;
}

/* Appends the files that a path names. A path with wildcards that exists under exactly this name
 * means that file. */
static bool add_files(GPtrArray *files, const char *path, bool skip_missing, GError **error)
{
    const bool there = g_file_test(path, G_FILE_TEST_EXISTS);
    glob_t found;

    if (!has_wildcard(path) || there) {
        if (there || !skip_missing)
            g_ptr_array_add(files, g_strdup(path));
        return true;
    }
    const int status = glob(path, 0, NULL, &found);
    if (status == GLOB_NOMATCH && skip_missing)
        return true;
    if (status != 0) {
        g_set_error(error, RUBATO_ERROR,
                    status == GLOB_NOMATCH ? RUBATO_ERROR_NOT_FOUND : RUBATO_ERROR_MEMORY,
                    status == GLOB_NOMATCH
                        ? "%s: there is no such file, or its folder cannot be read"
                        : "%s: no memory for the names of all such files",
                    path);
        return false;
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        g_ptr_array_add(files, g_strdup(found.gl_pathv[i]));
    globfree(&found);
    return true;
}

RubatoDataSpec *data_spec_copy(const RubatoDataSpec *spec, GError **error)
{
    g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);

    for (const char *const *path = spec->paths; path != NULL && *path != NULL; path++)
        if (!add_files(files, *path, spec->skip_missing, error))
            return NULL;
    if (spec->paths == NULL || spec->paths[0] == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "no file to read; name one at least");
        return NULL;
    }
    if (spec->hash_bits > 64) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "hash_bits %u: hashes have 64 bits; give 1 to 64, or 0 for all",
                    spec->hash_bits);
        return NULL;
    }
    if (!(spec->held_out >= 0 && spec->held_out < 1) ||
        (spec->only_held_out && !(spec->held_out > 0))) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "held_out %g: expected a fraction of the rows, from 0 up to but not including "
                    "1, and above 0 with only_held_out",
                    spec->held_out);
        return NULL;
    }
    if (!data_keys_check(spec, error))
        return NULL;
    g_ptr_array_add(files, NULL);

    RubatoDataSpec *copy = g_memdup2(spec, sizeof *spec);
    copy->paths = (const char *const *)g_ptr_array_steal(files, NULL);
    copy->format = g_strdup(spec->format);
    copy->label_column = g_strdup(spec->label_column);
    copy->categorical_columns =
        (const char *const *)g_strdupv((char **)(uintptr_t)spec->categorical_columns);
    copy->keys = data_keys_copy(spec->keys);
    copy->labels_path = g_strdup(spec->labels_path);
    copy->cache_directory = g_strdup(spec->cache_directory);
    if (copy->memory_bytes == 0)
        copy->memory_bytes = MEMORY_DEFAULT_BYTES;
    return copy;
}

void data_spec_free(RubatoDataSpec *spec)
{
    if (spec == NULL)
        return;
    g_strfreev((char **)(uintptr_t)spec->paths);
    g_free((char *)(uintptr_t)spec->format);
    g_free((char *)(uintptr_t)spec->label_column);
    g_strfreev((char **)(uintptr_t)spec->categorical_columns);
    data_keys_free((RubatoDataKeys *)(uintptr_t)spec->keys);
    g_free((char *)(uintptr_t)spec->labels_path);
    g_free((char *)(uintptr_t)spec->cache_directory);
    g_free(spec);
}

char *data_spec_describe(const RubatoDataSpec *spec)
{
    g_autofree char *columns = spec->categorical_columns != NULL
                                   ? g_strjoinv("\n", (char **)(uintptr_t)spec->categorical_columns)
                                   : g_strdup("");

    /* optional parts; without them the words, and caches made by them, stay as they were */
    g_autofree char *keys =
        !spec->skip_labels ? g_strdup("")
        : spec->keys != NULL
            ? g_strdup_printf("|-%u/%u", spec->keys->label_column, spec->keys->n_columns)
            : g_strdup("|-");

    g_autofree char *labels = spec->keys != NULL && spec->keys->label_words != NULL
                                  ? g_strjoinv("\n", (char **)(uintptr_t)spec->keys->label_words)
                                  : g_strdup("");

    g_autofree char *held_out =
        spec->held_out > 0 ? g_strdup_printf("|h%a/%d", spec->held_out, (int)spec->only_held_out)
                           : g_strdup("");

    return g_strdup_printf(
        "%s|%u|%d|%s|%s|%d|%u|%u|%s%s%s%s%s", spec->format != NULL ? spec->format : "",
        (unsigned)spec->separator, (int)spec->header,
        spec->label_column != NULL ? spec->label_column : "\n", columns, (int)spec->categories,
        spec->hash_bits, spec->words_per_row, spec->labels_path != NULL ? spec->labels_path : "",
        keys, *labels != '\0' ? "|=" : "", labels, held_out);
}
