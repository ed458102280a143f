/* Requests to S3, or to what speaks as it does.
 *
 * The environment says where, and who asks: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
 * AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
 *
 * What may be gone in a moment, such as a lost connection, an overloaded server, or an answer that
 * ends early or does not say where it ends, is tried again, a few times, after longer and longer
 * pauses. So a request takes some 40 s at most if nothing answers at all, and as long as bytes move
 * otherwise. After some seconds the log says what it waits for. If the run of the calling thread's
 * engine is cancelled meanwhile (io/net/log_sink.h), a try ends when nothing has moved for 2 s, and
 * is the last. If a signal has asked the program to end, a try ends when nothing has moved for 5 s,
 * and a request takes some 10 s at most if nothing answers: what is saved then is tried again after
 * a fault, but not waited for as long.
 *
 * Errors: RUBATO_ERROR_NOT_FOUND if there is no such object, else RUBATO_ERROR_IO;
 * RUBATO_ERROR_CONFIG for what the environment lacks. They name the object and what the server
 * says, and no secret.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STORE_S3_S3_CLIENT_H
#define RUBATO_IO_STORE_S3_S3_CLIENT_H

#include <stdint.h>

#include "io/store/s3/s3_path.h"

typedef struct S3Client S3Client;

typedef enum {
    S3_GET,
    S3_HEAD,
    S3_PUT,
    S3_POST,
    S3_DELETE,
} S3Method;

typedef struct {
    S3Method method;
    const char *bucket;
    const char *key;   /* NULL: of the bucket */
    const char *query; /* NULL, or names in their order, escaped */
    const char *what;  /* "read": for the error */
    const void *body;  /* of PUT and POST */
    size_t n_body;
    uint64_t first; /* of GET: the first byte */
    size_t n_range; /* so many, and the answer has as many; 0: all */
    size_t most;    /* more bytes of an answer are an error */
} S3Request;

typedef struct {
    GByteArray *body;
    uint64_t n_bytes; /* of HEAD: of the object */
    char *etag;       /* of PUT; NULL: none */
} S3Answer;

/* (transfer full) */
S3Client *s3_client_new(GError **error);
void s3_client_free(S3Client *client); /* NULL is allowed */

/* From now on, or as soon as the flag is set, a request has one try, which waits for 5 s: for what
 * may be left undone, and at the end of a run. The flag is the caller's, for as long as the client.
 */
void s3_client_hurry(S3Client *client);
void s3_client_hurry_when(S3Client *client, const _Atomic bool *flag);

/* How long a try waits while nothing moves; for tests. At first 20 s. The rest of what the header
 * says changes in proportion. */
void s3_client_set_patience(int64_t ms);

/* The answer is set on success, for s3_answer_clear. */
bool s3_client_ask(S3Client *client, const S3Request *request, S3Answer *answer, GError **error);

/* The same where nothing of the answer is wanted. */
bool s3_client_do(S3Client *client, const S3Request *request, GError **error);

void s3_answer_clear(S3Answer *answer);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(S3Client, s3_client_free)
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(S3Answer, s3_answer_clear)

#endif
