/* Files of snapshots as objects of S3.
 *
 * A short one is put at once when it is finished. A long one is sent in parts as it is written, of
 * which S3 makes the object at the end: until then nobody sees any of it.
 *
 * One that is read is fetched in windows, two of which stay: readers ahead of one another by less
 * than a window do not make it fetch bytes twice. */
#include <pthread.h>
#include <rubato/error.h>
#include <string.h>

#include "io/store/s3/s3_client.h"
#include "io/store/s3/s3_text.h"
#include "io/store/store_file.h"

/* Parts, and windows. S3 takes no part of less than 5 MiB but the last, and 10,000 parts. */
#define PART_BYTES ((size_t)8 << 20)
enum { PARTS_OF_A_SIZE = 1000, N_WINDOWS = 2, MOST_PARTS = 10000 };

typedef struct {
    uint64_t first;
    GByteArray *bytes; /* NULL: none */
} Window;

typedef struct {
    StoreFile file;
    S3Path path;
    S3Client *client;

    /* writing */
    GByteArray *waiting;
    char *upload;   /* NULL: no part was sent */
    GString *parts; /* as the end of the upload tells them */
    uint32_t n_parts;
    bool is_finished;

    uint64_t n_bytes; /* of all of it */

    /* reading */
    pthread_mutex_t lock;
    Window windows[N_WINDOWS]; /* guarded by lock, as is the client then */
    uint32_t oldest;
} S3File;

static void file_close(StoreFile *base);

static S3File *file_new(const char *path, GError **error)
{
    S3File *const file = g_new0(S3File, 1);

    file->file.ops = &s3_file_ops;
    file->file.path = g_strdup(path);
    pthread_mutex_init(&file->lock, NULL);
    if (s3_path_parse(path, &file->path, error))
        file->client = s3_client_new(error);
    if (file->client != NULL)
        return file;
    file_close(&file->file);
    return NULL;
}

/* A request on the object. */
static S3Request request_of(const S3File *file, S3Method method, const char *what)
{
    return (S3Request){
        .method = method, .bucket = file->path.bucket, .key = file->path.key, .what = what
    };
}

/* ---- writing ---- */

static StoreFile *file_create(const char *path, GError **error)
{
    S3File *const file = file_new(path, error);

    if (file == NULL)
        return NULL;
    file->waiting = g_byte_array_new();
    file->parts = g_string_new(NULL);
    return &file->file;
}

static bool fail(const S3File *file, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be written: %s", file->file.path,
                why);
    return false;
}

static bool begin_upload(S3File *file, GError **error)
{
    S3Request request = request_of(file, S3_POST, "written");
    g_auto(S3Answer) answer = { .body = NULL };

    request.query = "uploads=";
    if (!s3_client_ask(file->client, &request, &answer, error))
        return false;
    file->upload = s3_text_find(answer.body, "UploadId");
    return file->upload != NULL || fail(file, "the server gives no name to an upload", error);
}

/* (transfer full) */
static char *name_upload(const S3File *file, const char *before)
{
    g_autofree char *id = g_uri_escape_string(file->upload, NULL, FALSE);

    return g_strconcat(before, "uploadId=", id, NULL);
}

/* Sends what waits. */
static bool send_part(S3File *file, GError **error)
{
    S3Request request = request_of(file, S3_PUT, "written");
    g_auto(S3Answer) answer = { .body = NULL };
    g_autofree char *escaped = NULL, *query = NULL, *before = NULL;

    if (file->n_parts == MOST_PARTS)
        return fail(file, "it would have more than 10000 parts", error);
    before = g_strdup_printf("partNumber=%u&", file->n_parts + 1);
    query = name_upload(file, before);
    request.query = query;
    request.body = file->waiting->data;
    request.n_body = file->waiting->len;
    if (!s3_client_ask(file->client, &request, &answer, error))
        return false;
    if (answer.etag == NULL)
        return fail(file, "the server does not say what it got", error);
    escaped = g_markup_escape_text(answer.etag, -1);
    file->n_parts++;
    g_string_append_printf(file->parts, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>",
                           file->n_parts, escaped);
    g_byte_array_set_size(file->waiting, 0);
    return true;
}

/* Later parts are larger: so there is no end of a file before S3's own, of some TB. */
static size_t part_bytes(const S3File *file)
{
    return PART_BYTES << MIN(file->n_parts / PARTS_OF_A_SIZE, 8);
}

static bool append(S3File *file, const unsigned char *bytes, size_t n, GError **error)
{
    for (size_t done = 0; done < n;) {
        const size_t n_part = part_bytes(file);
        const size_t some = MIN(n - done, n_part - file->waiting->len);

        g_byte_array_append(file->waiting, bytes + done, (guint)some);
        done += some;
        file->n_bytes += some;
        if (file->waiting->len == n_part &&
            ((file->upload == NULL && !begin_upload(file, error)) || !send_part(file, error)))
            return false;
    }
    return true;
}

static bool file_append(StoreFile *base, const void *head, size_t n_head, const void *rest,
                        size_t n_rest, GError **error)
{
    S3File *const file = (S3File *)base;

    return append(file, head, n_head, error) && append(file, rest, n_rest, error);
}

static bool put_whole(S3File *file, GError **error)
{
    S3Request request = request_of(file, S3_PUT, "written");

    request.body = file->waiting->data;
    request.n_body = file->waiting->len;
    return s3_client_do(file->client, &request, error);
}

/* Whether the object is there, as long as it should be. Nobody else writes one of its name, which
 * has a random number. */
static bool is_there(S3File *file)
{
    S3Request request = request_of(file, S3_HEAD, "read");
    g_auto(S3Answer) answer = { .body = NULL };

    return s3_client_ask(file->client, &request, &answer, NULL) && answer.n_bytes == file->n_bytes;
}

/* The answer may say with the status 200 that it went wrong. */
static bool ask_for_end(const S3File *file, GError **error)
{
    S3Request request = request_of(file, S3_POST, "written");
    g_autofree char *query = name_upload(file, "");
    g_autofree char *text = g_strconcat("<CompleteMultipartUpload>", file->parts->str,
                                        "</CompleteMultipartUpload>", NULL);
    g_auto(S3Answer) answer = { .body = NULL };
    g_autofree char *code = NULL;

    request.query = query;
    request.body = text;
    request.n_body = strlen(text);
    if (!s3_client_ask(file->client, &request, &answer, error))
        return false;
    code = s3_text_find(answer.body, "Code");
    return code == NULL || fail(file, code, error);
}

/* If an answer was lost, the next try fails, because there is no such upload any more; what servers
 * say then differs. The object is there. */
static bool end_upload(S3File *file, GError **error)
{
    GError *fault = NULL;

    if (ask_for_end(file, &fault))
        return true;
    if (is_there(file)) {
        g_error_free(fault);
        return true;
    }
    g_propagate_error(error, fault);
    return false;
}

static bool file_finish(StoreFile *base, GError **error)
{
    S3File *const file = (S3File *)base;

    if (file->upload == NULL)
        file->is_finished = put_whole(file, error);
    else
        file->is_finished =
            (file->waiting->len == 0 || send_part(file, error)) && end_upload(file, error);
    return file->is_finished;
}

/* What was sent is dropped; what the server does not drop, a rule of the bucket may. */
static void abort_upload(S3File *file)
{
    S3Request request = request_of(file, S3_DELETE, "removed");
    g_autofree char *query = name_upload(file, "");

    request.query = query;
    s3_client_hurry(file->client);
    (void)s3_client_do(file->client, &request, NULL);
}

static void file_close(StoreFile *base)
{
    S3File *const file = (S3File *)base;

    if (file->upload != NULL && !file->is_finished)
        abort_upload(file);
    for (uint32_t i = 0; i < N_WINDOWS; i++)
        g_clear_pointer(&file->windows[i].bytes, g_byte_array_unref);
    g_clear_pointer(&file->waiting, g_byte_array_unref);
    if (file->parts != NULL)
        g_string_free(file->parts, TRUE);
    s3_client_free(file->client);
    s3_path_clear(&file->path);
    pthread_mutex_destroy(&file->lock);
    g_free(file->upload);
    g_free(file->file.path);
    g_free(file);
}

/* ---- reading ---- */

static StoreFile *file_open(const char *path, uint64_t *n_bytes, GError **error)
{
    S3File *const file = file_new(path, error);
    g_auto(S3Answer) answer = { .body = NULL };
    GError *fault = NULL;
    S3Request request;

    if (file == NULL)
        return NULL;
    request = request_of(file, S3_HEAD, "read");
    if (s3_client_ask(file->client, &request, &answer, &fault)) {
        file->n_bytes = *n_bytes = answer.n_bytes;
        return &file->file;
    }
    /* A file that a snapshot has is missing: as in a directory. */
    if (g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND))
        fault->code = RUBATO_ERROR_IO;
    g_propagate_error(error, fault);
    file_close(&file->file);
    return NULL;
}

static bool has_byte(const Window *window, uint64_t offset)
{
    return window->bytes != NULL && offset >= window->first &&
           offset - window->first < window->bytes->len;
}

/* Fetches a window that begins with a byte. The lock is held: others may want the same. */
static Window *fetch(S3File *file, uint64_t offset, GError **error)
{
    Window *const window = &file->windows[file->oldest];
    const size_t n = (size_t)MIN(file->n_bytes - offset, PART_BYTES);
    S3Request request = request_of(file, S3_GET, "read");
    g_auto(S3Answer) answer = { .body = NULL };

    request.first = offset;
    request.n_range = n;
    request.most = n;
    if (!s3_client_ask(file->client, &request, &answer, error))
        return NULL;
    g_clear_pointer(&window->bytes, g_byte_array_unref);
    window->bytes = g_steal_pointer(&answer.body);
    window->first = offset;
    file->oldest = (file->oldest + 1) % N_WINDOWS;
    return window;
}

static const Window *find_window(S3File *file, uint64_t offset, GError **error)
{
    for (uint32_t i = 0; i < N_WINDOWS; i++)
        if (has_byte(&file->windows[i], offset))
            return &file->windows[i];
    return fetch(file, offset, error);
}

static bool file_read(StoreFile *base, uint64_t offset, void *bytes, size_t n, size_t *n_read,
                      GError **error)
{
    S3File *const file = (S3File *)base;
    bool ok = true;

    *n_read = 0;
    n = (size_t)MIN(n, file->n_bytes - MIN(offset, file->n_bytes));
    pthread_mutex_lock(&file->lock);
    while (ok && *n_read < n) {
        const uint64_t from = offset + *n_read;
        const Window *const window = find_window(file, from, error);

        ok = window != NULL;
        if (ok) {
            const size_t at = (size_t)(from - window->first);
            const size_t some = MIN(n - *n_read, window->bytes->len - at);

            memcpy((char *)bytes + *n_read, window->bytes->data + at, some);
            *n_read += some;
        }
    }
    pthread_mutex_unlock(&file->lock);
    return ok;
}

const StoreFileOps s3_file_ops = {
    .create = file_create,
    .append = file_append,
    .finish = file_finish,
    .open = file_open,
    .read = file_read,
    .close = file_close,
};
