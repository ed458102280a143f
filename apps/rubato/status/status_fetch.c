/* One GET by HTTP/1.0, so that the answer comes in one piece and the connection ends with it. What
 * answers may be anything: it gets so much time and memory and no more. */
#include "apps/rubato/status/status_fetch.h"

#include <gio/gio.h>
#include <rubato/error.h>
#include <string.h>

#define MOST_BYTES ((size_t)64 << 20) /* of an answer */

static const char NOT_HERE[] =
    "a run answers at PORT if its scheduler's node was started with RUBATO_HEALTH=PORT";

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

static bool exchange(GSocket *socket, const char *address, double timeout_s, int64_t end_us,
                     GByteArray *answer, GError **error)
{
    static const char request[] = "GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n";
    g_autoptr(GError) fault = NULL;
    guint8 piece[16384];
    gssize n;

    g_socket_set_blocking(socket, FALSE);
    /* it fits any send buffer */
    if (g_socket_send(socket, request, strlen(request), NULL, &fault) < 0)
        return fail_network(address, "nothing can be asked of", fault, error);
    do {
        if (!wait_for(socket, G_IO_IN, end_us))
            return fail_late(address, timeout_s, error);
        n = g_socket_receive(socket, (char *)piece, sizeof piece, NULL, &fault);
        if (n < 0 && g_error_matches(fault, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) {
            g_clear_error(&fault);
            continue;
        }
        if (n < 0)
            return fail_network(address, "the answer broke off of", fault, error);
        g_byte_array_append(answer, piece, (guint)n);
        if (answer->len > MOST_BYTES) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                        "%s answers more than %zu MiB, which is no status", address,
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

GBytes *status_fetch(const char *address, double timeout_s, GError **error)
{
    const int64_t end_us = g_get_monotonic_time() + (int64_t)(timeout_s * G_USEC_PER_SEC);
    g_autoptr(GSocketConnectable) at = find_address(address, error);
    g_autoptr(GByteArray) answer = g_byte_array_new();
    g_autoptr(GError) fault = NULL;

    if (at == NULL)
        return NULL;
    g_autoptr(GSocketClient) client = g_socket_client_new();
    g_socket_client_set_enable_proxy(client, FALSE);
    g_socket_client_set_timeout(client, (guint)MAX(timeout_s, 1));
    g_autoptr(GSocketConnection) connection = g_socket_client_connect(client, at, NULL, &fault);
    if (connection == NULL) {
        if (g_error_matches(fault, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
            fail_late(address, timeout_s, error);
        else
            fail_network(address, "nothing answers at", fault, error);
        return NULL;
    }
    if (!exchange(g_socket_connection_get_socket(connection), address, timeout_s, end_us, answer,
                  error))
        return NULL;
    return read_answer(answer, address, error);
}
