/* Requests to S3, by libcurl, which signs them.
 *
 * Why waits end: a connection is given up after a quarter of the patience, and one on which nothing
 * moves after all of it. There are N_TRIES of each request, with pauses that add up to some
 * seconds; and no more of them once nothing has moved for one and a half times the patience in all.
 * After a signal the patience is a quarter of this, also of a try that is under way: somebody waits
 * for the end of the program. What fails otherwise than by silence is tried again all the same.
 * libcurl asks look_at_progress once a second at least, also while nothing moves. */
#include "io/store/s3/s3_client.h"

#include <rubato/error.h>

/* Of one try, which waits for so long while nothing moves. */
static _Atomic int64_t patience_ms = (int64_t)20 * 1000;

#ifdef RUBATO_HAS_CURL

#include <rubato/mix.h>
#include <stdatomic.h>
#include <string.h>

#include "io/kernel_random.h"
#include "io/net/log_sink.h"
#include "io/store/s3/curl_library.h"
#include "io/store/s3/s3_text.h"

enum { N_TRIES = 6, FIRST_PAUSE_MS = 100 };

/* A quarter of the patience: of a connection, of one that hurries, and until the log says it. */
#define SHORT_OF(patience) ((patience) / 4)

/* Of a run that is cancelled. */
#define LEAST_OF(patience) ((patience) / 10)

/* The longest text that tells of a fault; of other answers the longest, if its caller says none. */
#define MOST_TEXT ((size_t)64 << 10)

/* S3 stores what it got; what it got is checked by our own checksums. */
#define UNSIGNED "x-amz-content-sha256:UNSIGNED-PAYLOAD"

struct S3Client {
    const CurlLibrary *curl;
    CURL *handle;
    char *endpoint;
    char *signature; /* what is signed for */
    char *user;      /* whose it is: KEY:SECRET */
    struct curl_slist *headers;
    uint64_t random;
    const _Atomic bool *hurries; /* NULL: it never does */
};

/* A try of a request. */
typedef struct {
    const S3Client *client;
    const S3Request *request;
    int64_t patience_ms;
    size_t n_sent;
    GByteArray *body;
    char *etag;
    bool is_too_long;
    bool has_length; /* the answer's head says where its body ends */
    long status;

    curl_off_t n_moved; /* bytes, there and back */
    int64_t moved_us;   /* when the last of them did, or it began */
    bool is_silent;     /* it was given up, because nothing moved */

    /* of all tries */
    int64_t silent_us; /* in which nothing moved, at the end of each try before */
    bool has_told;     /* the log says that it waits */
} Try;

/* ---- the environment ---- */

/* Of several variables the first that says something. */
static const char *find_setting(const char *first, const char *second, const char *otherwise)
{
    const char *const names[] = { first, second };

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        const char *const value = names[i] != NULL ? g_getenv(names[i]) : NULL;

        if (value != NULL && *value != '\0')
            return value;
    }
    return otherwise;
}

static bool read_environment(S3Client *client, GError **error)
{
    const char *const key = find_setting("AWS_ACCESS_KEY_ID", NULL, NULL);
    const char *const secret = find_setting("AWS_SECRET_ACCESS_KEY", NULL, NULL);
    const char *const token = find_setting("AWS_SESSION_TOKEN", NULL, NULL);
    const char *const region = find_setting("AWS_REGION", "AWS_DEFAULT_REGION", "us-east-1");
    const char *const endpoint = find_setting("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL);

    if (key == NULL || secret == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "s3:// needs credentials in the environment, and there is no %s",
                    key == NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY");
        return false;
    }
    if (endpoint != NULL && !g_str_has_prefix(endpoint, "http://") &&
        !g_str_has_prefix(endpoint, "https://")) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "AWS_ENDPOINT_URL: %s: it begins with http:// or https://", endpoint);
        return false;
    }
    client->endpoint = endpoint != NULL ? g_strdup(endpoint)
                                        : g_strdup_printf("https://s3.%s.amazonaws.com", region);
    while (g_str_has_suffix(client->endpoint, "/"))
        client->endpoint[strlen(client->endpoint) - 1] = '\0';
    client->signature = g_strdup_printf("aws:amz:%s:s3", region);
    client->user = g_strdup_printf("%s:%s", key, secret);
    client->headers = client->curl->curl_slist_append(NULL, UNSIGNED);
    if (token != NULL) {
        g_autofree char *header = g_strconcat("x-amz-security-token:", token, NULL);

        client->headers = client->curl->curl_slist_append(client->headers, header);
    }
    return true;
}

S3Client *s3_client_new(GError **error)
{
    const CurlLibrary *const curl = curl_library_load(error);
    g_autoptr(S3Client) client = NULL;

    if (curl == NULL)
        return NULL;
    client = g_new0(S3Client, 1);
    client->curl = curl;
    if (!kernel_random(&client->random))
        client->random = (uint64_t)g_get_monotonic_time(); /* pauses need no good one */
    client->handle = curl->curl_easy_init();
    if (client->handle == NULL) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for a connection");
        return NULL;
    }
    return read_environment(client, error) ? g_steal_pointer(&client) : NULL;
}

void s3_client_free(S3Client *client)
{
    if (client == NULL)
        return;
    if (client->handle != NULL)
        client->curl->curl_easy_cleanup(client->handle);
    client->curl->curl_slist_free_all(client->headers);
    g_free(client->endpoint);
    g_free(client->signature);
    g_free(client->user);
    g_free(client);
}

/* ---- one try ---- */

static size_t take_body(char *bytes, size_t one, size_t n, void *data)
{
    Try *const try = data;
    /* What tells of a fault may be longer than what was asked for. */
    const size_t most = MAX(try->request->most, MOST_TEXT);

    (void)one;
    if (n > most - try->body->len) {
        try->is_too_long = true;
        return 0;
    }
    g_byte_array_append(try->body, (const guint8 *)bytes, (guint)n);
    return n;
}

static bool begins_with(const char *bytes, size_t n, const char *name)
{
    return n > strlen(name) && g_ascii_strncasecmp(bytes, name, strlen(name)) == 0;
}

/* An answer of HTTP/1 that says neither its length nor that it comes in chunks ends with its
 * connection, and so does one that was cut. Later versions say the end themselves. */
static size_t take_header(char *bytes, size_t one, size_t n, void *data)
{
    static const char etag[] = "etag:";
    Try *const try = data;

    (void)one;
    if (begins_with(bytes, n, "HTTP/")) {
        try->has_length = !begins_with(bytes, n, "HTTP/1");
    } else if (begins_with(bytes, n, "content-length:") ||
               begins_with(bytes, n, "transfer-encoding:")) {
        try->has_length = true;
    } else if (begins_with(bytes, n, etag)) {
        g_free(try->etag);
        try->etag = g_strstrip(g_strndup(bytes + strlen(etag), n - strlen(etag)));
    }
    return n;
}

static size_t give_body(char *bytes, size_t one, size_t n, void *data)
{
    Try *const try = data;
    const size_t some = MIN(one * n, try->request->n_body - try->n_sent);

    if (some > 0)
        memcpy(bytes, (const char *)try->request->body + try->n_sent, some);
    try->n_sent += some;
    return some;
}

/* ---- waiting ---- */

static const _Atomic bool always = true;

void s3_client_hurry(S3Client *client)
{
    client->hurries = &always;
}

void s3_client_hurry_when(S3Client *client, const _Atomic bool *flag)
{
    client->hurries = flag;
}

/* relaxed: nothing else follows from it, and it is asked again */
static bool is_in_a_hurry(const S3Client *client)
{
    return client->hurries != NULL && atomic_load_explicit(client->hurries, memory_order_relaxed);
}

static int64_t present_patience(const Try *try)
{
    return log_sink_is_asked() ? SHORT_OF(try->patience_ms) : try->patience_ms;
}

/* How long one try waits while nothing moves. */
static int64_t most_silence_ms(const Try *try)
{
    if (log_sink_is_over() || (log_sink_is_asked() && is_in_a_hurry(try->client)))
        return LEAST_OF(try->patience_ms);
    return is_in_a_hurry(try->client) ? SHORT_OF(try->patience_ms) : present_patience(try);
}

/* Once a request. */
static void tell_wait(Try *try, int64_t silent_us)
{
    const S3Request *const request = try->request;

    if (try->has_told || silent_us < SHORT_OF(try->patience_ms) * 1000)
        return;
    try->has_told = true;
    g_message(S3_SCHEME "%s%s%s cannot be %s yet: waits for %s, from which nothing has come for "
                        "%.1f s",
              request->bucket, request->key != NULL ? "/" : "",
              request->key != NULL ? request->key : "", request->what, try->client->endpoint,
              (double)silent_us / G_USEC_PER_SEC);
}

/* Not 0: libcurl gives the try up. */
static int look_at_progress(void *data, curl_off_t n_down, curl_off_t down, curl_off_t n_up,
                            curl_off_t up)
{
    Try *const try = data;
    const int64_t now_us = g_get_monotonic_time();
    const int64_t most_ms = most_silence_ms(try);

    (void)n_down, (void)n_up;
    if (down + up != try->n_moved) {
        try->n_moved = down + up;
        try->moved_us = now_us;
    }
    try->is_silent = now_us - try->moved_us >= most_ms * 1000;
    if (!try->is_silent)
        tell_wait(try, try->silent_us + now_us - try->moved_us);
    return try->is_silent;
}

/* It asks for this if it has to send the body once more. */
static int seek_body(void *data, curl_off_t offset, int origin)
{
    Try *const try = data;

    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > try->request->n_body)
        return CURL_SEEKFUNC_FAIL;
    try->n_sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void set_method(const S3Client *client, Try *try)
{
    const S3Request *const request = try->request;
    const CurlLibrary *const curl = client->curl;
    CURL *const handle = client->handle;

    switch (request->method) {
    case S3_GET:
        break;
    case S3_HEAD:
        curl->curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
        break;
    case S3_DELETE:
        curl->curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, "DELETE");
        break;
    case S3_POST:
        curl->curl_easy_setopt(handle, CURLOPT_POST, 1L);
        curl->curl_easy_setopt(handle, CURLOPT_POSTFIELDS,
                               request->body != NULL ? request->body : "");
        curl->curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->n_body);
        break;
    case S3_PUT:
        curl->curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
        curl->curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->n_body);
        curl->curl_easy_setopt(handle, CURLOPT_READFUNCTION, give_body);
        curl->curl_easy_setopt(handle, CURLOPT_READDATA, try);
        curl->curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, seek_body);
        curl->curl_easy_setopt(handle, CURLOPT_SEEKDATA, try);
        break;
    }
}

/* (transfer full) */
static char *write_url(const S3Client *client, const S3Request *request)
{
    g_autofree char *key =
        request->key != NULL ? g_uri_escape_string(request->key, "/", FALSE) : NULL;

    return g_strconcat(client->endpoint, "/", request->bucket, key != NULL ? "/" : "",
                       key != NULL ? key : "", request->query != NULL ? "?" : "",
                       request->query != NULL ? request->query : "", NULL);
}

static CURLcode try_once(const S3Client *client, Try *try)
{
    const S3Request *const request = try->request;
    const CurlLibrary *const curl = client->curl;
    CURL *const handle = client->handle;
    g_autofree char *url = write_url(client, request);
    CURLcode code;

    curl->curl_easy_reset(handle);
    curl->curl_easy_setopt(handle, CURLOPT_URL, url);
    curl->curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    curl->curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl->curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl->curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, (long)SHORT_OF(try->patience_ms));
    curl->curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl->curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, look_at_progress);
    curl->curl_easy_setopt(handle, CURLOPT_XFERINFODATA, try);
    curl->curl_easy_setopt(handle, CURLOPT_AWS_SIGV4, client->signature);
    curl->curl_easy_setopt(handle, CURLOPT_USERPWD, client->user);
    curl->curl_easy_setopt(handle, CURLOPT_HTTPHEADER, client->headers);
    curl->curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
    curl->curl_easy_setopt(handle, CURLOPT_WRITEDATA, try);
    curl->curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
    curl->curl_easy_setopt(handle, CURLOPT_HEADERDATA, try);
    set_method(client, try);
    if (request->n_range > 0) {
        g_autofree char *range =
            g_strdup_printf("%" G_GUINT64_FORMAT "-%" G_GUINT64_FORMAT, request->first,
                            request->first + request->n_range - 1);

        curl->curl_easy_setopt(handle, CURLOPT_RANGE, range);
    }
    code = curl->curl_easy_perform(handle);
    curl->curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &try->status);
    try->is_too_long |= try->status / 100 == 2 && try->body->len > request->most;
    return code;
}

/* ---- all tries ---- */

/* Whether the server says that the request came too slowly. S3 has no status of its own for it. */
static bool was_slow(const Try *try)
{
    g_autofree char *code = try->status == 400 ? s3_text_find(try->body, "Code") : NULL;

    return g_strcmp0(code, "RequestTimeout") == 0;
}

/* What is missing of an answer that libcurl takes for a whole one. NULL: nothing, or it is wrong
 * anyway. (transfer full) */
static char *find_missing(const Try *try)
{
    const S3Request *const request = try->request;
    const bool is_read = request->method != S3_PUT && request->method != S3_DELETE;

    if (try->status / 100 != 2 || !is_read)
        return NULL;
    if (!try->has_length)
        return g_strdup("the answer does not say how long it is");
    if (request->n_range > 0 && try->body->len != request->n_range)
        return g_strdup_printf("the server gives %u bytes of %zu", try->body->len,
                               request->n_range);
    return NULL;
}

static bool is_whole(const Try *try)
{
    g_autofree char *missing = find_missing(try);

    return missing == NULL;
}

/* Whether the same request may go well later. */
static bool may_pass(const Try *try, CURLcode code)
{
    if (try->is_too_long)
        return false;
    switch (code) {
    case CURLE_OK:
        return try->status == 408 || try->status == 429 || try->status >= 500 || was_slow(try) ||
               !is_whole(try);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_ABORTED_BY_CALLBACK: /* silent */
        return true;
    default:
        return false;
    }
}

/* Between one half of the present step and the whole: so that many clients do not come back at
 * once. */
static void pause_before(S3Client *client, uint32_t n_tries)
{
    const uint64_t step_us = (uint64_t)FIRST_PAUSE_MS * 1000 << (n_tries - 1);

    client->random = rubato_mix64(client->random + n_tries);
    g_usleep((gulong)(step_us / 2 + client->random % (step_us / 2)));
}

static bool is_good(const Try *try, CURLcode code)
{
    const bool is_part = try->request->n_range > 0;

    return code == CURLE_OK && !try->is_too_long && is_whole(try) &&
           (is_part ? try->status == 206 : try->status >= 200 && try->status < 300);
}

static void set_error(const S3Client *client, const Try *try, CURLcode code, GError **error)
{
    const S3Request *const request = try->request;
    g_autofree char *error_code = s3_text_find(try->body, "Code");
    g_autofree char *message = s3_text_find(try->body, "Message");
    g_autofree char *missing = find_missing(try);
    g_autoptr(GString) why = g_string_new(NULL);
    const bool is_absent =
        code == CURLE_OK && try->status == 404 && g_strcmp0(error_code, "NoSuchBucket") != 0;

    if (try->is_too_long)
        g_string_append(why, "the answer is longer than it should be");
    else if (try->is_silent)
        g_string_append_printf(why, "%s: nothing has come from there for %.1f s", client->endpoint,
                               (double)try->silent_us / G_USEC_PER_SEC);
    else if (code != CURLE_OK)
        g_string_append_printf(why, "%s: %s", client->endpoint,
                               client->curl->curl_easy_strerror(code));
    else if (missing != NULL)
        g_string_append_printf(why, "%s: %s", client->endpoint, missing);
    else
        g_string_append_printf(why, "HTTP %ld%s%s%s%s", try->status, error_code != NULL ? " " : "",
                               error_code != NULL ? error_code : "", message != NULL ? ": " : "",
                               message != NULL ? message : "");
    g_set_error(error, RUBATO_ERROR, is_absent ? RUBATO_ERROR_NOT_FOUND : RUBATO_ERROR_IO,
                S3_SCHEME "%s%s%s: cannot be %s: %s", request->bucket,
                request->key != NULL ? "/" : "", request->key != NULL ? request->key : "",
                request->what, why->str);
}

static void read_size(const S3Client *client, S3Answer *answer)
{
    curl_off_t n = -1;

    client->curl->curl_easy_getinfo(client->handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &n);
    answer->n_bytes = n >= 0 ? (uint64_t)n : 0;
}

static void begin_try(Try *try)
{
    g_clear_pointer(&try->body, g_byte_array_unref);
    g_clear_pointer(&try->etag, g_free);
    try->body = g_byte_array_new();
    try->n_sent = 0;
    try->is_too_long = false;
    try->has_length = false;
    try->status = 0;
    try->n_moved = 0;
    try->moved_us = g_get_monotonic_time();
    try->is_silent = false;
}

/* Whether there is another try, if it may go well. */
static bool has_patience(const S3Client *client, const Try *try, uint32_t n_tries)
{
    return n_tries < N_TRIES && !is_in_a_hurry(client) && !log_sink_is_over() &&
           try->silent_us * 2 < present_patience(try) * 3 * 1000;
}

bool s3_client_ask(S3Client *client, const S3Request *request, S3Answer *answer, GError **error)
{
    S3Request asked = *request;
    Try try = { .client = client,
                .request = &asked,
                .patience_ms = atomic_load_explicit(&patience_ms, memory_order_relaxed) };
    uint32_t n_tries = 0;
    CURLcode code;
    bool ok;

    if (asked.most == 0)
        asked.most = MOST_TEXT;
    do {
        if (n_tries > 0)
            pause_before(client, n_tries);
        begin_try(&try);
        code = try_once(client, &try);
        ok = is_good(&try, code);
        n_tries++;
        try.silent_us += g_get_monotonic_time() - try.moved_us;
        if (!ok)
            tell_wait(&try, try.silent_us);
    } while (!ok && may_pass(&try, code) && has_patience(client, &try, n_tries));
    if (ok) {
        *answer =
            (S3Answer){ .body = g_steal_pointer(&try.body), .etag = g_steal_pointer(&try.etag) };
        if (request->method == S3_HEAD)
            read_size(client, answer);
    } else {
        set_error(client, &try, code, error);
    }
    g_clear_pointer(&try.body, g_byte_array_unref);
    g_free(try.etag);
    return ok;
}

#else

S3Client *s3_client_new(GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                        "s3:// needs libcurl, without which this library was built");
    return NULL;
}

void s3_client_free(S3Client *client)
{
    (void)client; /* there is none */
}

void s3_client_hurry(S3Client *client)
{
    (void)client;
}

void s3_client_hurry_when(S3Client *client, const _Atomic bool *flag)
{
    (void)client, (void)flag;
}

bool s3_client_ask(S3Client *client, const S3Request *request, S3Answer *answer, GError **error)
{
    (void)client, (void)request, (void)answer, (void)error;
    return false; /* there is no client */
}

#endif

void s3_client_set_patience(int64_t ms)
{
    patience_ms = ms; /* a number, from which nothing else follows */
}

bool s3_client_do(S3Client *client, const S3Request *request, GError **error)
{
    g_auto(S3Answer) answer = { .body = NULL };

    return s3_client_ask(client, request, &answer, error);
}

void s3_answer_clear(S3Answer *answer)
{
    g_clear_pointer(&answer->body, g_byte_array_unref);
    g_clear_pointer(&answer->etag, g_free);
}
