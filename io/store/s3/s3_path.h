/* s3://BUCKET/KEY in its pieces.
 *
 * Threads: any. */
#ifndef RUBATO_IO_STORE_S3_S3_PATH_H
#define RUBATO_IO_STORE_S3_S3_PATH_H

#include <glib.h>
#include <stdbool.h>

#define S3_SCHEME "s3://"

typedef struct {
    char *bucket;
    char *key; /* without slashes at its ends or doubled ones; may be empty */
} S3Path;

/* RUBATO_ERROR_INVALID: what it should look like. */
bool s3_path_parse(const char *path, S3Path *parsed, GError **error);
void s3_path_clear(S3Path *path);

/* key/name, or the name alone. (transfer full) */
char *s3_path_below(const S3Path *path, const char *name);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(S3Path, s3_path_clear)

#endif
