/* Paths of objects. */
#include "io/store/s3/s3_path.h"

#include <rubato/error.h>
#include <string.h>

/* As S3 itself checks them, so that a name cannot become another part of a URL. */
static bool is_bucket(const char *name)
{
    const size_t n = strlen(name);

    for (const char *c = name; *c != '\0'; c++)
        if (!g_ascii_islower(*c) && !g_ascii_isdigit(*c) && *c != '-' && *c != '.')
            return false;
    return n >= 3 && n <= 63 && g_ascii_isalnum(name[0]) && g_ascii_isalnum(name[n - 1]);
}

/* Servers and what lies before them understand "." and ".." in different ways. */
static bool is_segment(const char *segment)
{
    return strcmp(segment, ".") != 0 && strcmp(segment, "..") != 0 &&
           g_utf8_validate(segment, -1, NULL);
}

bool s3_path_parse(const char *path, S3Path *parsed, GError **error)
{
    g_auto(GStrv) segments = NULL;
    g_autoptr(GString) key = g_string_new(NULL);
    bool ok;

    if (g_str_has_prefix(path, S3_SCHEME))
        segments = g_strsplit(path + strlen(S3_SCHEME), "/", -1);
    ok = segments != NULL && segments[0] != NULL && is_bucket(segments[0]);
    for (char **segment = segments; ok && *segment != NULL; segment++) {
        ok = is_segment(*segment);
        if (segment != segments && **segment != '\0')
            g_string_append_printf(key, "%s%s", key->len > 0 ? "/" : "", *segment);
    }
    if (!ok) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s: a place in S3 is named by s3://BUCKET/PREFIX, a bucket of 3 to 63 small "
                    "letters, digits, - and .",
                    path);
        return false;
    }
    *parsed = (S3Path){ .bucket = g_strdup(segments[0]),
                        .key = g_string_free(g_steal_pointer(&key), FALSE) };
    return true;
}

void s3_path_clear(S3Path *path)
{
    g_clear_pointer(&path->bucket, g_free);
    g_clear_pointer(&path->key, g_free);
}

char *s3_path_below(const S3Path *path, const char *name)
{
    return *path->key == '\0' ? g_strdup(name) : g_strconcat(path->key, "/", name, NULL);
}
