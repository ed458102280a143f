/* file:DIR, a stream whose versions lie in a directory that its followers see.
 *
 * Threads: any. */
#include "io/store/store_file.h"
#include "io/stream/stream_kind.h"

#define FORM "file:DIR, the directory of its versions"

/* file:///DIR names no host. */
static char *find_directory(const char *rest, GError **error)
{
    if (*rest != '\0' && !store_is_bucket(rest))
        return g_strdup(g_str_has_prefix(rest, "///") ? rest + 2 : rest);
    /* A writer locks it, and followers look into it again and again. */
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        *rest != '\0'
                            ? "versions of a stream do not lie in S3; it is named by " FORM
                            : "it is named by " FORM);
    return NULL;
}

const RubatoStreamOps file_stream_ops = { .name = "file",
                                          .form = FORM,
                                          .find_directory = find_directory };
