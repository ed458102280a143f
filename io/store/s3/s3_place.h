/* A place in a bucket of S3, and who asks there.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STORE_S3_S3_PLACE_H
#define RUBATO_IO_STORE_S3_S3_PLACE_H

#include "io/store/s3/s3_client.h"
#include "io/store/s3/s3_path.h"

/* All zero: it is not open. */
typedef struct {
    S3Client *client;
    S3Path path;
} S3Place;

/* directory: s3://BUCKET/PREFIX. Errors: those of s3_path_parse and s3_client_new. */
bool s3_place_open(S3Place *place, const char *directory, GError **error);
void s3_place_clear(S3Place *place);

/* The text becomes the object of that key in the bucket; the object is removed. */
bool s3_place_put(const S3Place *place, const char *key, const char *text, GError **error);
bool s3_place_remove(const S3Place *place, const char *key, GError **error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(S3Place, s3_place_clear)

#endif
