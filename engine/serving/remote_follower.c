/* The program's side of a follower. A call is a request and its answer, under a lock.
 *
 * All that an answer says is checked: who answers may be anything.
 *
 * Threads: as the header says. */
#include <pthread.h>
#include <rubato/bytes.h>
#include <rubato/error.h>
#include <rubato/remote_follower.h>
#include <string.h>

#include "engine/serving/serving_address.h"
#include "engine/serving/serving_line.h"
#include "engine/serving/serving_message.h"
#include "io/net/monotonic.h"

#define DEFAULT_TIMEOUT_S 10.0
#define MOST_TIMEOUT_S 1e6

struct RubatoRemoteFollower {
    /* immutable */
    char *address;
    RunSecret secret;
    bool has_secret;
    int64_t timeout_ms;

    pthread_mutex_t lock;
    ServingLine line; /* guarded by lock */
};

struct RubatoRemoteTable {
    /* immutable */
    RubatoRemoteFollower *remote;
    char *name;
    RubatoFollowedTable shape;
};

/* ---- a call ---- */

static bool is_connected(const RubatoRemoteFollower *remote)
{
    return remote->line.fd >= 0;
}

/* The lock is held, here and below. */
static bool connect_line(RubatoRemoteFollower *remote, int64_t end_ms, GError **error)
{
    const int fd = serving_connect_to(remote->address, end_ms, error);

    if (fd == -1)
        return false;
    if (serving_line_open(&remote->line, fd, HANDSHAKE_ROLE_CONNECTS,
                          remote->has_secret ? &remote->secret : NULL, end_ms, error))
        return true;
    g_prefix_error(error, "what answers at %s is no follower that %s, or it has too many clients: ",
                   remote->address, remote->has_secret ? "knows this secret" : "needs no secret");
    return false;
}

/* (transfer full) */
static uint8_t *exchange(RubatoRemoteFollower *remote, const RubatoByteWriter *request,
                         int64_t end_ms, size_t *n, GError **error)
{
    g_autofree uint8_t *sent = g_memdup2(request->bytes, request->n);
    g_autofree uint8_t *answer = NULL;
    ServingHead head;

    if (!serving_line_send(&remote->line, sent, request->n, end_ms, error) ||
        !serving_line_receive_head(&remote->line, &head, SERVING_MOST_ANSWER, end_ms, error))
        return NULL;
    answer = g_try_malloc(head.n + 1);
    if (answer == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for %zu bytes of %s",
                    head.n, remote->address);
        return NULL;
    }
    if (!serving_line_receive(&remote->line, &head, answer, end_ms, error))
        return NULL;
    *n = head.n;
    return g_steal_pointer(&answer);
}

/* A connection from an earlier call may have ended meanwhile, as with a follower that was started
 * again: then once more, on a new one. All requests may come twice. */
static uint8_t *exchange_again(RubatoRemoteFollower *remote, const RubatoByteWriter *request,
                               size_t *n, GError **error)
{
    const int64_t end_ms = monotonic_ms() + remote->timeout_ms;
    const bool is_old = is_connected(remote);
    g_autoptr(GError) fault = NULL;
    uint8_t *answer;

    if (!is_old && !connect_line(remote, end_ms, error))
        return NULL;
    answer = exchange(remote, request, end_ms, n, &fault);
    if (answer != NULL)
        return answer;
    serving_line_close(&remote->line);
    if (is_old && g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NETWORK)) {
        g_clear_error(&fault);
        if (!connect_line(remote, end_ms, error))
            return NULL;
        answer = exchange(remote, request, end_ms, n, &fault);
    }
    if (answer == NULL) {
        serving_line_close(&remote->line);
        g_propagate_prefixed_error(error, g_steal_pointer(&fault),
                                   "follower %s: ", remote->address);
    }
    return answer;
}

static bool fail_format(const RubatoRemoteFollower *remote, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s gives an answer that makes no sense",
                remote->address);
    return false;
}

/* The answer of a call that was refused, as its error: what no follower says is no error text. */
static void take_error(const RubatoRemoteFollower *remote, uint32_t code, RubatoByteReader *body,
                       GError **error)
{
    const size_t n = rubato_byte_reader_left(body);

    if (code - 1 > RUBATO_ERROR_SERVED || n > SERVING_MOST_NAME) {
        fail_format(remote, error);
        return;
    }
    g_autofree char *text = g_utf8_make_valid(rubato_read_bytes(body, n), (gssize)n);
    g_set_error(error, RUBATO_ERROR, (int)(code - 1), "follower %s: %s", remote->address, text);
}

/* *answer: transfer full; *body: what it says. The request is cleared. */
static bool call(RubatoRemoteFollower *remote, RubatoByteWriter *request, uint8_t **answer,
                 RubatoByteReader *body, GError **error)
{
    uint8_t *got = NULL;
    size_t n = 0;

    if (request->failed) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for a request");
    } else {
        pthread_mutex_lock(&remote->lock);
        got = exchange_again(remote, request, &n, error);
        pthread_mutex_unlock(&remote->lock);
    }
    rubato_byte_writer_clear(request);
    if (got == NULL)
        return false;
    *body = rubato_byte_reader_new(got, n);
    const uint32_t code = rubato_read_u32(body);
    if (code == 0 && !body->failed) {
        *answer = got;
        return true;
    }
    if (body->failed)
        fail_format(remote, error);
    else
        take_error(remote, code, body, error);
    g_free(got);
    return false;
}

static RubatoByteWriter begin_request(ServingKind kind)
{
    RubatoByteWriter request = rubato_byte_writer_new(SERVING_MOST_REQUEST);

    rubato_write_u32(&request, SERVING_FORMAT);
    rubato_write_u32(&request, kind);
    return request;
}

/* ---- its life ---- */

RubatoRemoteFollower *rubato_remote_follower_connect(const RubatoRemoteFollowerSpec *spec,
                                                     GError **error)
{
    const double timeout_s =
        spec != NULL && spec->timeout_s != 0 ? spec->timeout_s : DEFAULT_TIMEOUT_S;
    RubatoRemoteFollower *remote;
    bool ok;

    g_return_val_if_fail(spec != NULL && spec->address != NULL, NULL);
    if (!(timeout_s > 0 && timeout_s <= MOST_TIMEOUT_S)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "calls of %g seconds at most",
                    timeout_s);
        return NULL;
    }
    remote = g_new0(RubatoRemoteFollower, 1);
    remote->address = g_strdup(spec->address);
    remote->timeout_ms = MAX((int64_t)(timeout_s * 1000), 1);
    remote->line.fd = -1;
    pthread_mutex_init(&remote->lock, NULL);
    ok = serving_find_secret(spec->secret_file, &remote->secret, &remote->has_secret, error) &&
         connect_line(remote, monotonic_ms() + remote->timeout_ms, error);
    if (ok)
        return remote;
    rubato_remote_follower_free(remote);
    return NULL;
}

void rubato_remote_follower_free(RubatoRemoteFollower *remote)
{
    if (remote == NULL)
        return;
    serving_line_close(&remote->line);
    pthread_mutex_destroy(&remote->lock);
    run_secret_clear(&remote->secret);
    g_free(remote->address);
    g_free(remote);
}

/* ---- what it is told ---- */

static bool tell(RubatoRemoteFollower *remote, RubatoByteWriter *request, GError **error)
{
    g_autofree uint8_t *answer = NULL;
    RubatoByteReader body;

    return call(remote, request, &answer, &body, error) &&
           (rubato_byte_reader_left(&body) == 0 || fail_format(remote, error));
}

bool rubato_remote_follower_hold(RubatoRemoteFollower *remote, GError **error)
{
    RubatoByteWriter request = begin_request(SERVING_HOLD);

    g_return_val_if_fail(remote != NULL, false);
    return tell(remote, &request, error);
}

bool rubato_remote_follower_continue(RubatoRemoteFollower *remote, GError **error)
{
    RubatoByteWriter request = begin_request(SERVING_CONTINUE);

    g_return_val_if_fail(remote != NULL, false);
    return tell(remote, &request, error);
}

bool rubato_remote_follower_go_to(RubatoRemoteFollower *remote, uint64_t version, GError **error)
{
    RubatoByteWriter request = begin_request(SERVING_GO_TO);

    g_return_val_if_fail(remote != NULL, false);
    rubato_write_u64(&request, version);
    return tell(remote, &request, error);
}

/* ---- what it tells ---- */

bool rubato_remote_follower_status(RubatoRemoteFollower *remote, RubatoServedStatus *status,
                                   GError **error)
{
    RubatoByteWriter request = begin_request(SERVING_STATUS);
    g_autofree uint8_t *answer = NULL;
    RubatoServedStatus told = { 0 };
    RubatoByteReader body;
    size_t n;

    g_return_val_if_fail(remote != NULL && status != NULL, false);
    if (!call(remote, &request, &answer, &body, error))
        return false;
    told.version = rubato_read_u64(&body);
    told.time_us = rubato_read_i64(&body);
    told.is_held = rubato_read_u32(&body) != 0;
    told.n_clients = rubato_read_u32(&body);
    told.n_gets = rubato_read_u64(&body);
    told.n_keys = rubato_read_u64(&body);
    n = rubato_byte_reader_left(&body);
    if (body.failed || n >= sizeof told.fault)
        return fail_format(remote, error);
    rubato_read(&body, told.fault, n);
    *status = told;
    return true;
}

char **rubato_remote_follower_list_tables(RubatoRemoteFollower *remote, GError **error)
{
    RubatoByteWriter request = begin_request(SERVING_LIST);
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autofree uint8_t *answer = NULL;
    RubatoByteReader body;

    g_return_val_if_fail(remote != NULL, NULL);
    if (!call(remote, &request, &answer, &body, error))
        return NULL;
    for (size_t n; (n = rubato_byte_reader_left(&body)) > 0;) {
        const char *const zero = memchr(body.at, '\0', n);

        if (zero == NULL || zero == (const char *)body.at || /* no name is empty */
            !g_utf8_validate((const char *)body.at, -1, NULL)) {
            fail_format(remote, error);
            return NULL;
        }
        g_ptr_array_add(names, g_strdup((const char *)body.at));
        rubato_read_bytes(&body, (size_t)(zero - (const char *)body.at) + 1);
    }
    g_ptr_array_add(names, NULL);
    return (char **)g_ptr_array_free(g_steal_pointer(&names), FALSE);
}

/* ---- tables ---- */

bool rubato_remote_follower_describe_table(RubatoRemoteFollower *remote, const char *name,
                                           RubatoFollowedTable *shape, GError **error)
{
    RubatoByteWriter request = begin_request(SERVING_TABLE);
    g_autofree uint8_t *answer = NULL;
    RubatoByteReader body;

    g_return_val_if_fail(remote != NULL && name != NULL && shape != NULL, false);
    rubato_write(&request, name, strlen(name));
    if (!call(remote, &request, &answer, &body, error))
        return false;
    shape->dtype = (RubatoDtype)rubato_read_u32(&body);
    shape->shape = (RubatoShape)rubato_read_u32(&body);
    shape->width = rubato_read_u32(&body);
    shape->holds_range = rubato_read_u32(&body) != 0;
    shape->first_key = rubato_read_u64(&body);
    shape->n_keys = rubato_read_u64(&body);
    shape->n_rows = rubato_read_u64(&body);
    return rubato_byte_reader_finish(&body, "the shape of a table of a follower", error) &&
           ((rubato_dtype_size(shape->dtype) > 0 &&
             (unsigned)shape->shape <= RUBATO_SHAPE_RAGGED) ||
            fail_format(remote, error));
}

RubatoRemoteTable *rubato_remote_follower_open_table(RubatoRemoteFollower *remote, const char *name,
                                                     RubatoDtype dtype, GError **error)
{
    RubatoFollowedTable shape;
    RubatoRemoteTable *table;

    g_return_val_if_fail(remote != NULL && name != NULL, NULL);
    if (!rubato_remote_follower_describe_table(remote, name, &shape, error))
        return NULL;
    if (shape.dtype != dtype) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TYPE,
                    "table %s of follower %s has %s values, and was opened with %s", name,
                    remote->address, rubato_dtype_name(shape.dtype), rubato_dtype_name(dtype));
        return NULL;
    }
    table = g_new0(RubatoRemoteTable, 1);
    table->remote = remote;
    table->name = g_strdup(name);
    table->shape = shape;
    return table;
}

void rubato_remote_table_free(RubatoRemoteTable *table)
{
    if (table == NULL)
        return;
    g_free(table->name);
    g_free(table);
}

const RubatoFollowedTable *rubato_remote_table_shape(const RubatoRemoteTable *table)
{
    g_return_val_if_fail(table != NULL, NULL);
    return &table->shape;
}

/* ---- rows ---- */

typedef struct {
    uint8_t *answer;
    uint64_t version;
    const uint8_t *lengths; /* n × u32, at any alignment */
    const uint8_t *values;
} Rows;

static uint32_t length_of(const Rows *rows, size_t i)
{
    RubatoByteReader reader = rubato_byte_reader_new(rows->lengths + i * sizeof(uint32_t), 4);

    return rubato_read_u32(&reader);
}

/* Whether the rows are of the lengths that the table may have, and all there. */
static bool check_rows(const RubatoRemoteTable *table, const Rows *rows, size_t n, size_t left,
                       GError **error)
{
    const bool is_ragged = table->shape.shape == RUBATO_SHAPE_RAGGED;
    const size_t value_bytes = rubato_dtype_size(table->shape.dtype);

    for (size_t i = 0; i < n; i++) {
        const uint32_t n_values = length_of(rows, i);

        if (n_values == SERVING_NO_ROW)
            continue;
        if ((!is_ragged && n_values != table->shape.width) || n_values > left / value_bytes)
            return fail_format(table->remote, error);
        left -= n_values * value_bytes;
    }
    return left == 0 || fail_format(table->remote, error);
}

static bool read_rows(const RubatoRemoteTable *table, Rows *rows, RubatoByteReader *body, size_t n,
                      GError **error)
{
    rows->version = rubato_read_u64(body);
    const uint32_t dtype = rubato_read_u32(body), width = rubato_read_u32(body);
    const bool is_ragged = table->shape.shape == RUBATO_SHAPE_RAGGED;

    rows->lengths = rubato_read_bytes(body, n * sizeof(uint32_t));
    const size_t left = rubato_byte_reader_left(body);
    rows->values = rubato_read_bytes(body, left);
    if (body->failed)
        return fail_format(table->remote, error);
    if (dtype == table->shape.dtype && (is_ragged || width == table->shape.width))
        return check_rows(table, rows, n, left, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                "table %s of follower %s has rows of %u %s values now; it had %u %s when it was "
                "opened",
                table->name, table->remote->address, width, rubato_dtype_name((RubatoDtype)dtype),
                table->shape.width, rubato_dtype_name(table->shape.dtype));
    return false;
}

static bool get_rows(const RubatoRemoteTable *table, const RubatoKey *keys, size_t n,
                     uint32_t flags, Rows *rows, GError **error)
{
    RubatoByteWriter request;
    RubatoByteReader body;

    if (n > RUBATO_REMOTE_MOST_KEYS) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a Get of %zu keys: ask for %zu at most in a call", n, RUBATO_REMOTE_MOST_KEYS);
        return false;
    }
    request = begin_request(SERVING_GET);
    rubato_write_u32(&request, flags);
    rubato_write_u32(&request, (uint32_t)strlen(table->name));
    rubato_write(&request, table->name, strlen(table->name));
    for (size_t i = 0; i < n && !request.failed; i++)
        rubato_write_u64(&request, keys[i]);
    if (!call(table->remote, &request, &rows->answer, &body, error))
        return false;
    if (read_rows(table, rows, &body, n, error))
        return true;
    g_clear_pointer(&rows->answer, g_free);
    return false;
}

bool rubato_remote_table_get(RubatoRemoteTable *table, const RubatoKey *keys, size_t n,
                             void *values, bool *found, uint64_t *version, GError **error)
{
    Rows rows = { .answer = NULL };
    size_t row_bytes;

    g_return_val_if_fail(table != NULL && (n == 0 || (keys != NULL && values != NULL)), false);
    if (table->shape.shape == RUBATO_SHAPE_RAGGED) { /* check_rows lets them have any length */
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s of follower %s has rows of different lengths: read it row by row",
                    table->name, table->remote->address);
        return false;
    }
    if (!get_rows(table, keys, n, 0, &rows, error))
        return false;
    row_bytes = table->shape.width * rubato_dtype_size(table->shape.dtype);
    for (size_t i = 0, at = 0; i < n; i++) {
        const bool is_there = length_of(&rows, i) != SERVING_NO_ROW;

        if (is_there)
            memcpy((uint8_t *)values + i * row_bytes, rows.values + at, row_bytes);
        else
            memset((uint8_t *)values + i * row_bytes, 0, row_bytes);
        at += is_there ? row_bytes : 0;
        if (found != NULL)
            found[i] = is_there;
    }
    if (version != NULL)
        *version = rows.version;
    g_free(rows.answer);
    return true;
}

/* Values lie at any place in an answer; the function gets them aligned. */
static bool give_rows(const RubatoRemoteTable *table, const Rows *rows, size_t n,
                      RubatoFollowedRowFunc function, void *user_data, GError **error)
{
    const size_t value_bytes = rubato_dtype_size(table->shape.dtype);
    size_t most = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t n_values = length_of(rows, i);

        if (n_values != SERVING_NO_ROW)
            most = MAX(most, n_values * value_bytes);
    }
    g_autofree void *row = g_try_malloc(most + 1);
    if (row == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "no memory for a row of %zu bytes",
                    most);
        return false;
    }
    for (size_t i = 0, at = 0; i < n; i++) {
        const uint32_t n_values = length_of(rows, i);

        if (n_values == SERVING_NO_ROW) {
            function(i, NULL, 0, user_data);
            continue;
        }
        memcpy(row, rows->values + at, n_values * value_bytes);
        at += n_values * value_bytes;
        function(i, row, n_values, user_data);
    }
    return true;
}

bool rubato_remote_table_read(RubatoRemoteTable *table, const RubatoKey *keys, size_t n,
                              RubatoFollowedRowFunc function, void *user_data, uint64_t *version,
                              GError **error)
{
    Rows rows = { .answer = NULL };
    bool ok;

    g_return_val_if_fail(table != NULL && function != NULL && (n == 0 || keys != NULL), false);
    if (!get_rows(table, keys, n, SERVING_ANY_LENGTH, &rows, error))
        return false;
    ok = give_rows(table, &rows, n, function, user_data, error);
    if (ok && version != NULL)
        *version = rows.version;
    g_free(rows.answer);
    return ok;
}
