/* See s3_place.h. */
#include "io/store/s3/s3_place.h"

#include <string.h>

bool s3_place_open(S3Place *place, const char *directory, GError **error)
{
    if (!s3_path_parse(directory, &place->path, error))
        return false;
    place->client = s3_client_new(error);
    return place->client != NULL;
}

void s3_place_clear(S3Place *place)
{
    g_clear_pointer(&place->client, s3_client_free);
    s3_path_clear(&place->path);
}

bool s3_place_put(const S3Place *place, const char *key, const char *text, GError **error)
{
    return s3_client_do(place->client,
                        &(S3Request){ .method = S3_PUT,
                                      .bucket = place->path.bucket,
                                      .key = key,
                                      .what = "written",
                                      .body = text,
                                      .n_body = strlen(text) },
                        error);
}

bool s3_place_remove(const S3Place *place, const char *key, GError **error)
{
    return s3_client_do(
        place->client,
        &(S3Request){
            .method = S3_DELETE, .bucket = place->path.bucket, .key = key, .what = "removed" },
        error);
}
