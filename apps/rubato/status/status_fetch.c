/* One GET by HTTP/1.0, so that the answer comes in one piece and the connection ends with it. What
 * answers may be anything: it gets so much time and memory and no more. */
#include "apps/rubato/status/status_fetch.h"

#include <gio/gio.h>
#include <rubato/error.h>
#include <string.h>

#define MOST_BYTES ((size_t)64 << 20) /* of an answer */

static const char NOT_HERE[] =
    "a run answers at PORT if its scheduler's node was started with RUBATO_HEALTH=PORT";

struct StatusCall {
    char *address;
    double timeout_s;
    GSocketConnection *connection;
};

/* ---- the address ---- */

static GSocketConnectable *find_address(const char *text, GError **error)
{
    guint64 port;

    if (g_ascii_string_to_unsigned(text, 10, 1, UINT16_MAX, &port, NULL))
        return G_SOCKET_CONNECTABLE(
            g_inet_socket_address_new_from_string("127.0.0.1", (guint)port));

    g_autoptr(GSocketConnectable) address =
        strstr(text, "://") == NULL
            ? g_network_address_parse(text, 0, NULL)
            : (g_str_has_prefix(text, "http://") ? g_network_address_parse_uri(text, 80, NULL)
                                                 : NULL);
    if (address != NULL && g_network_address_get_port(G_NETWORK_ADDRESS(address)) > 0)
        return g_steal_pointer(&address);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "\"%s\" is no address of a node; give PORT, HOST:PORT or http://HOST:PORT", text);
    return NULL;
}

/* ---- bytes ---- */

static bool fail_late(const char *address, double timeout_s, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT, "%s has not answered within %g s",
                address, timeout_s);
    return false;
}

static bool fail_network(const char *address, const char *what, const GError *fault, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "%s %s: %s (%s)", what, address,
                fault->message, NOT_HERE);
    return false;
}

/* Waits until the socket is ready, or the time is over. */
static bool wait_for(GSocket *socket, GIOCondition condition, int64_t end_us)
{
    const int64_t left_us = end_us - g_get_monotonic_time();

    return left_us > 0 &&
           g_socket_condition_timed_wait(socket, condition, left_us, NULL, /* error= */ NULL);
}

/* Until the connection ends. */
static bool receive_all(StatusCall *call, int64_t end_us, GByteArray *answer, GError **error)
{
    GSocket *const socket = g_socket_connection_get_socket(call->connection);
    g_autoptr(GError) fault = NULL;
    guint8 piece[16384];
    gssize n;

    do {
        if (!wait_for(socket, G_IO_IN, end_us))
            return fail_late(call->address, call->timeout_s, error);
        n = g_socket_receive(socket, (char *)piece, sizeof piece, NULL, &fault);
        if (n < 0 && g_error_matches(fault, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) {
            g_clear_error(&fault);
            continue;
        }
        if (n < 0)
            return fail_network(call->address, "the answer broke off of", fault, error);
        g_byte_array_append(answer, piece, (guint)n);
        if (answer->len > MOST_BYTES) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "%s answers more than %zu MiB, which is no status", call->address,
                        MOST_BYTES >> 20);
            return false;
        }
    } while (n != 0);
    return true;
}

/* ---- what it says ---- */

/* The number behind "Content-Length:"; -1 if there is none. head: lines, and an empty one. */
static int64_t content_length(const char *head)
{
    g_auto(GStrv) lines = g_strsplit(head, "\r\n", -1);
    static const char name[] = "content-length:";
    guint64 n;

    for (char **line = lines; *line != NULL; line++)
        if (g_ascii_strncasecmp(*line, name, strlen(name)) == 0 &&
            g_ascii_string_to_unsigned(g_strstrip(*line + strlen(name)), 10, 0, MOST_BYTES, &n,
                                       NULL))
            return (int64_t)n;
    return -1;
}

/* Text of somebody else on one line. (transfer full) */
static char *one_line(const char *text, size_t n)
{
    char *line = g_utf8_make_valid(text, (gssize)MIN(n, 400));

    for (char *at = line; *at != '\0'; at++)
        if (g_ascii_iscntrl(*at))
            *at = ' ';
    return g_strstrip(line);
}

/* The body of an answer. */
static GBytes *read_answer(const GByteArray *answer, const char *address, GError **error)
{
    const char *const text = (const char *)answer->data;
    const char *const end = answer->len > 0 ? g_strstr_len(text, answer->len, "\r\n\r\n") : NULL;

    if (answer->len == 0) { /* as of a run that ends just now */
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "%s has closed the connection without an answer", address);
        return NULL;
    }
    if (end == NULL || end - text < (gssize)strlen("HTTP/1.1 200") ||
        !g_str_has_prefix(text, "HTTP/1.") || memchr(text, '\0', (size_t)(end - text)) != NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "what answers at %s is no node of a run: it does not speak HTTP", address);
        return NULL;
    }

    g_autofree char *head = g_strndup(text, (size_t)(end - text));
    const size_t at = (size_t)(end - text) + strlen("\r\n\r\n");
    const size_t n = answer->len - at;
    if (!g_str_has_prefix(head + strlen("HTTP/1.1"), " 200")) {
        g_autofree char *status = one_line(head, strcspn(head, "\r"));
        g_autofree char *body = one_line(text + at, n);

        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK, "%s answers \"%s\": %s", address,
                    status, body);
        return NULL;
    }
    if (content_length(head) != (int64_t)n) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NETWORK,
                    "the answer of %s broke off after %zu bytes", address, n);
        return NULL;
    }
    return g_bytes_new(text + at, n);
}

/* ---- connecting ---- */

typedef struct {
    GSocketConnection *connection;
    GError *fault;
    bool has_ended;
} Connecting;

static void note_connected(GObject *client, GAsyncResult *result, gpointer user)
{
    Connecting *const it = user;

    it->connection = g_socket_client_connect_finish(G_SOCKET_CLIENT(client), result, &it->fault);
    it->has_ended = true;
}

static gboolean give_up(gpointer cancellable)
{
    g_cancellable_cancel(cancellable);
    return G_SOURCE_REMOVE;
}

/* GLib's own time limit is one for each address of a name, and none for the name. This one is for
 * all together: it cancels, and then the loop ends. G_IO_ERROR_CANCELLED: the time is over. */
static GSocketConnection *connect_within(GSocketConnectable *at, int64_t end_us, GError **fault)
{
    const int64_t left_ms = (end_us - g_get_monotonic_time()) / 1000;
    GMainContext *const context = g_main_context_new();
    Connecting it = { .connection = NULL };

    g_main_context_push_thread_default(context);
    g_autoptr(GSocketClient) client = g_socket_client_new();
    g_autoptr(GCancellable) cancellable = g_cancellable_new();
    GSource *const timer = g_timeout_source_new((guint)MAX(left_ms, 1));
    g_source_set_callback(timer, give_up, cancellable, NULL);
    g_source_attach(timer, context);
    g_socket_client_set_enable_proxy(client, FALSE);
    g_socket_client_connect_async(client, at, cancellable, note_connected, &it);
    while (!it.has_ended)
        g_main_context_iteration(context, /* may_block= */ TRUE);
    g_source_destroy(timer);
    g_source_unref(timer);
    g_main_context_pop_thread_default(context);
    g_main_context_unref(context);
    if (it.fault != NULL)
        g_propagate_error(fault, it.fault);
    return it.connection;
}

/* ---- a question ---- */

static StatusCall *call_until(const char *address, const char *path, double timeout_s,
                              int64_t end_us, GError **error)
{
    g_autofree char *request = g_strdup_printf("GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", path);
    g_autoptr(GSocketConnectable) at = find_address(address, error);
    g_autoptr(GError) fault = NULL;

    if (at == NULL)
        return NULL;
    g_autoptr(GSocketConnection) connection = connect_within(at, end_us, &fault);
    if (connection == NULL) {
        if (g_error_matches(fault, G_IO_ERROR, G_IO_ERROR_CANCELLED))
            fail_late(address, timeout_s, error);
        else
            fail_network(address, "nothing answers at", fault, error);
        return NULL;
    }
    GSocket *const socket = g_socket_connection_get_socket(connection);
    g_socket_set_blocking(socket, FALSE);
    /* it fits any send buffer */
    if (g_socket_send(socket, request, strlen(request), NULL, &fault) < 0) {
        fail_network(address, "nothing can be asked of", fault, error);
        return NULL;
    }
    StatusCall *const call = g_new0(StatusCall, 1);
    call->address = g_strdup(address);
    call->timeout_s = timeout_s;
    call->connection = g_steal_pointer(&connection);
    return call;
}

static int64_t after(double seconds)
{
    return g_get_monotonic_time() + (int64_t)(seconds * G_USEC_PER_SEC);
}

static GBytes *read_until(StatusCall *call, int64_t end_us, GError **error)
{
    g_autoptr(GByteArray) answer = g_byte_array_new();

    return receive_all(call, end_us, answer, error) ? read_answer(answer, call->address, error)
                                                    : NULL;
}

StatusCall *status_call_new(const char *address, const char *path, double timeout_s, GError **error)
{
    return call_until(address, path, timeout_s, after(timeout_s), error);
}

bool status_call_wait(StatusCall *call, double seconds)
{
    return wait_for(g_socket_connection_get_socket(call->connection), G_IO_IN, after(seconds));
}

GBytes *status_call_read(StatusCall *call, GError **error)
{
    return read_until(call, after(call->timeout_s), error);
}

void status_call_free(StatusCall *call)
{
    if (call == NULL)
        return;
    g_object_unref(call->connection);
    g_free(call->address);
    g_free(call);
}

GBytes *status_fetch(const char *address, double timeout_s, GError **error)
{
    const int64_t end_us = after(timeout_s);
    g_autoptr(StatusCall) call = call_until(address, "/status", timeout_s, end_us, error);

    return call == NULL ? NULL : read_until(call, end_us, error);
}
