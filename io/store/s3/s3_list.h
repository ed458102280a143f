/* Which objects there are.
 *
 * Threads: one at a time for each client. */
#ifndef RUBATO_IO_STORE_S3_S3_LIST_H
#define RUBATO_IO_STORE_S3_S3_LIST_H

#include "io/store/s3/s3_client.h"

/* As many as S3 gives at a time. */
#define S3_LIST_MOST 1000

/* More names than any run makes: some thousand snapshots of some thousand parts. */
#define S3_LIST_MOST_NAMES (1u << 24)

/* Appends the keys that begin with the prefix to `keys`. With prefixes not NULL: of those that go
 * on with a slash, only what is before the end of it, to `prefixes`. They are asked for in pages of
 * `most`. */
bool s3_list(S3Client *client, const char *bucket, const char *prefix, uint32_t most,
             GPtrArray *keys, GPtrArray *prefixes, GError **error);
/* The same, where `most_names` names or more are an error, and not S3_LIST_MOST_NAMES. */
bool s3_list_at_most(S3Client *client, const char *bucket, const char *prefix, uint32_t most,
                     uint32_t most_names, GPtrArray *keys, GPtrArray *prefixes, GError **error);

#endif
