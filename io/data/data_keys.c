/* What keys mean. Runs on the caller's thread, keeps nothing. */
#include "io/data/data_keys.h"

#include <string.h>

RubatoDataKeys *data_keys_copy(const RubatoDataKeys *keys)
{
    RubatoDataKeys *copy;

    if (keys == NULL)
        return NULL;
    copy = g_memdup2(keys, sizeof *keys);
    copy->format = g_strdup(keys->format);
    copy->column_names = (const char *const *)g_strdupv((char **)(uintptr_t)keys->column_names);
    copy->label_words = (const char *const *)g_strdupv((char **)(uintptr_t)keys->label_words);
    copy->categorical_columns = g_memdup2(
        keys->categorical_columns, keys->n_categorical_columns * sizeof *keys->categorical_columns);
    return copy;
}

void data_keys_free(RubatoDataKeys *keys)
{
    if (keys == NULL)
        return;
    g_free((char *)(uintptr_t)keys->format);
    g_strfreev((char **)(uintptr_t)keys->column_names);
    g_strfreev((char **)(uintptr_t)keys->label_words);
    g_free((uint32_t *)(uintptr_t)keys->categorical_columns);
    g_free(keys);
}

static bool are_columns(const RubatoDataKeys *keys)
{
    uint32_t next = 0; /* the least that is above those before */

    if (keys->column_names != NULL &&
        g_strv_length((char **)(uintptr_t)keys->column_names) != keys->n_columns)
        return false;
    if (keys->label_column != RUBATO_NO_COLUMN && keys->label_column >= keys->n_columns)
        return false;
    for (uint32_t i = 0; i < keys->n_categorical_columns; i++) {
        const uint32_t column = keys->categorical_columns[i];

        if (column < next || column >= keys->n_columns || column == keys->label_column)
            return false;
        next = column + 1;
    }
    return true;
}

static bool are_label_words(const RubatoDataKeys *keys)
{
    if (keys->label_words == NULL)
        return keys->n_label_words == 0;
    if (g_strv_length((char **)(uintptr_t)keys->label_words) != keys->n_label_words)
        return false;
    for (uint32_t i = 1; i < keys->n_label_words; i++)
        if (strcmp(keys->label_words[i - 1], keys->label_words[i]) >= 0)
            return false;
    return keys->n_label_words > 0;
}

bool data_keys_check(const RubatoDataSpec *spec, GError **error)
{
    if (spec->keys == NULL)
        return true;
    if (spec->keys->format == NULL || spec->keys->hash_bits > 64)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "keys: they need the name of a format, and hashes of 64 bits at most");
    else if (spec->keys->n_columns > 0 && !are_columns(spec->keys))
        g_set_error(
            error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
            "keys: of %u columns, expected a name for each or none, a label and, ascending, "
            "categorical ones among them",
            spec->keys->n_columns);
    else if (!are_label_words(spec->keys))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "keys: expected words of labels in the order of their bytes, each once, and as "
                    "many as n_label_words says");
    else if (spec->categories == RUBATO_CATEGORIES_CODED)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "keys: codes of categories are not those of other rows; have them hashed");
    else
        return true;
    return false;
}

bool data_keys_check_format(const RubatoDataKeys *wanted, const char *format, const char *path,
                            GError **error)
{
    if (strcmp(wanted->format, format) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "%s: expected rows of the format %s, as the model's, found %s", path,
                wanted->format, format);
    return false;
}

static const char *how_fields_share(const RubatoDataKeys *keys)
{
    return keys->fields_in_keys > 0 ? "each field has of its own" : "different fields share";
}

bool data_keys_check_way(const RubatoDataKeys *wanted, const RubatoDataKeys *found,
                         const char *path, GError **error)
{
    if (wanted->fields_in_keys != found->fields_in_keys) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                    "%s: expected keys that %s, as in the model's rows, found keys that %s; if an "
                    "older version saved the model, train it anew",
                    path, how_fields_share(wanted), how_fields_share(found));
        return false;
    }
    /* without a line in them, files have neither columns nor hashes */
    if (wanted->hash_bits == found->hash_bits || wanted->n_columns != found->n_columns)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "%s: expected hashes of %u bits, as of the model's rows, found %u", path,
                wanted->hash_bits, found->hash_bits);
    return false;
}
