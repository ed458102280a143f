/* What a follower answers. The formats are in serving_message.h.
 *
 * All that a request says is checked before anything is done. An answer that fails in its middle is
 * written anew, as an error. */
#include "engine/serving/serving_answer.h"

#include <rubato/error.h>
#include <string.h>

#include "engine/serving/serving_message.h"
#include "io/net/link/wire.h"

/* More than any answer has but those with rows or names: the longest is the text of an error. */
#define SMALL_ANSWER ((size_t)2 * SERVING_MOST_NAME)

typedef struct {
    ServingFollowing *following;
    ServingCounts *counts;
    RubatoByteReader body;
    RubatoByteWriter *answer;
} Asked;

static bool refuse(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static bool refuse(GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, text);
    return false;
}

/* The next n bytes as a name. (transfer full) */
static char *read_name(RubatoByteReader *body, size_t n, GError **error)
{
    const char *const bytes = n <= SERVING_MOST_NAME ? rubato_read_bytes(body, n) : NULL;

    if (bytes != NULL && n > 0 && g_utf8_validate(bytes, (gssize)n, NULL))
        return g_strndup(bytes, n);
    refuse(error, "a request without the name of a table");
    return NULL;
}

/* ---- GET ---- */

typedef struct {
    RubatoByteWriter *answer;
    size_t at;     /* of the lengths in it */
    size_t n_rows; /* so far */
    size_t value_bytes;
    size_t left; /* bytes that rows may still have */
    bool is_full;
} Rows;

/* The follower is locked: no more than this is done in it. */
static void take_row(size_t i, const void *values, uint32_t n_values, void *user_data)
{
    Rows *const rows = user_data;
    const size_t n_bytes = values != NULL ? n_values * rows->value_bytes : 0;

    rows->is_full |= n_bytes > rows->left;
    if (rows->is_full || rows->answer->failed)
        return;
    rows->left -= n_bytes;
    wire_store_u32(rows->answer->bytes + rows->at + i * sizeof(uint32_t),
                   values != NULL ? n_values : SERVING_NO_ROW);
    rubato_write(rows->answer, values, n_bytes);
}

/* Room for a u32 of each key. */
static bool write_lengths(RubatoByteWriter *answer, size_t n)
{
    bool ok = true;

    for (size_t i = 0; i < n && ok; i++)
        ok = rubato_write_u32(answer, SERVING_NO_ROW);
    return ok;
}

/* Keys lie at any alignment. (transfer full) */
static RubatoKey *read_keys(RubatoByteReader *body, size_t *n, GError **error)
{
    const size_t left = rubato_byte_reader_left(body);
    RubatoKey *keys;

    *n = left / sizeof *keys;
    if (left % sizeof *keys != 0 || *n > RUBATO_REMOTE_MOST_KEYS) {
        refuse(error, "a Get of %zu keys: ask for %zu at most in a call", *n,
               RUBATO_REMOTE_MOST_KEYS);
        return NULL;
    }
    keys = g_try_new(RubatoKey, *n + 1);
    if (keys == NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "the follower has no memory for %zu keys", *n);
    for (size_t i = 0; keys != NULL && i < *n; i++)
        keys[i] = rubato_read_u64(body);
    return keys;
}

static bool write_rows(Asked *it, const char *name, const RubatoFollowedTable *table,
                       const RubatoKey *keys, size_t n, GError **error)
{
    RubatoByteWriter *const answer = it->answer;
    const size_t version_at = answer->n;
    uint64_t version;
    Rows rows = { .answer = answer,
                  .value_bytes = rubato_dtype_size(table->dtype),
                  .left = RUBATO_REMOTE_MOST_BYTES };

    rubato_write_u64(answer, 0);
    rubato_write_u32(answer, table->dtype);
    rubato_write_u32(answer, table->width);
    rows.at = answer->n;
    if (!write_lengths(answer, n) ||
        (table->shape != RUBATO_SHAPE_RAGGED &&
         n * (size_t)table->width * rows.value_bytes <= rows.left &&
         !rubato_byte_writer_reserve(answer, n * (size_t)table->width * rows.value_bytes)))
        return true; /* no memory: the writer knows it */
    if (!rubato_follower_read(serving_following_follower(it->following), name, keys, n, take_row,
                              &rows, &version, error))
        return false;
    if (rows.is_full)
        return refuse(error,
                      "a Get of %zu rows of table %s, which have more than %zu bytes: ask for "
                      "fewer in a call",
                      n, name, RUBATO_REMOTE_MOST_BYTES);
    if (!answer->failed)
        wire_store_u64(answer->bytes + version_at, version);
    it->counts->n_gets++;
    it->counts->n_keys += n;
    return true;
}

static bool answer_get(Asked *it, GError **error)
{
    const uint32_t flags = rubato_read_u32(&it->body);
    const uint32_t n_name = rubato_read_u32(&it->body);
    g_autofree char *name = read_name(&it->body, n_name, error);
    g_autofree RubatoKey *keys = NULL;
    RubatoFollowedTable table;
    size_t n;

    if (name == NULL || (keys = read_keys(&it->body, &n, error)) == NULL ||
        !rubato_follower_table(serving_following_follower(it->following), name, &table, error))
        return false;
    if (table.shape == RUBATO_SHAPE_RAGGED && (flags & SERVING_ANY_LENGTH) == 0)
        return refuse(error, "table %s has rows of different lengths: read it row by row", name);
    return write_rows(it, name, &table, keys, n, error);
}

/* ---- the others ---- */

static bool answer_table(Asked *it, GError **error)
{
    g_autofree char *name = read_name(&it->body, rubato_byte_reader_left(&it->body), error);
    RubatoFollowedTable table;

    if (name == NULL ||
        !rubato_follower_table(serving_following_follower(it->following), name, &table, error))
        return false;
    rubato_write_u32(it->answer, table.dtype);
    rubato_write_u32(it->answer, table.shape);
    rubato_write_u32(it->answer, table.width);
    rubato_write_u32(it->answer, table.holds_range);
    rubato_write_u64(it->answer, table.first_key);
    rubato_write_u64(it->answer, table.n_keys);
    rubato_write_u64(it->answer, table.n_rows);
    return true;
}

static bool answer_status(Asked *it, GError **error)
{
    RubatoServedStatus status = { 0 };

    (void)error;
    serving_following_status(it->following, &status);
    rubato_write_u64(it->answer, status.version);
    rubato_write_i64(it->answer, status.time_us);
    rubato_write_u32(it->answer, status.is_held);
    rubato_write_u32(it->answer, it->counts->n_clients);
    rubato_write_u64(it->answer, it->counts->n_gets);
    rubato_write_u64(it->answer, it->counts->n_keys);
    rubato_write(it->answer, status.fault, strlen(status.fault));
    return true;
}

static bool answer_list(Asked *it, GError **error)
{
    g_auto(GStrv) names = rubato_follower_list_tables(serving_following_follower(it->following));

    (void)error;
    for (char **name = names; *name != NULL; name++)
        rubato_write(it->answer, *name, strlen(*name) + 1);
    return true;
}

static bool answer_hold(Asked *it, GError **error)
{
    return rubato_byte_reader_finish(&it->body, "a request to hold", error) &&
           serving_following_hold(it->following, error);
}

static bool answer_continue(Asked *it, GError **error)
{
    if (!rubato_byte_reader_finish(&it->body, "a request to continue", error))
        return false;
    serving_following_continue(it->following);
    return true;
}

static bool answer_go_to(Asked *it, GError **error)
{
    const uint64_t version = rubato_read_u64(&it->body);

    return rubato_byte_reader_finish(&it->body, "a request to go to a version", error) &&
           serving_following_go_to(it->following, version, error);
}

/* ---- all ---- */

static bool (*const answers[SERVING_N_KINDS])(Asked *it, GError **error) = {
    [SERVING_GET] = answer_get,       [SERVING_TABLE] = answer_table,
    [SERVING_STATUS] = answer_status, [SERVING_LIST] = answer_list,
    [SERVING_HOLD] = answer_hold,     [SERVING_CONTINUE] = answer_continue,
    [SERVING_GO_TO] = answer_go_to,
};

static bool answer_request(Asked *it, GError **error)
{
    const uint32_t format = rubato_read_u32(&it->body);
    const uint32_t kind = rubato_read_u32(&it->body);

    if (format != SERVING_FORMAT) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MISMATCH,
                    "a request in format %u, and the follower knows %u: use the same version of "
                    "Rubato at both ends",
                    format, SERVING_FORMAT);
        return false;
    }
    if (kind >= SERVING_N_KINDS)
        return refuse(error, "a request of kind %u, which there is not", kind);
    return answers[kind](it, error);
}

size_t serving_answer_most(const uint8_t *request, size_t n)
{
    RubatoByteReader body = rubato_byte_reader_new(request, n);

    rubato_read_u32(&body); /* the format */
    const uint32_t kind = rubato_read_u32(&body);
    return !body.failed && (kind == SERVING_GET || kind == SERVING_LIST) ? SERVING_MOST_ANSWER
                                                                         : SMALL_ANSWER;
}

bool serving_answer(ServingFollowing *following, ServingCounts *counts, const uint8_t *request,
                    size_t n, RubatoByteWriter *answer)
{
    Asked it = { .following = following,
                 .counts = counts,
                 .body = rubato_byte_reader_new(request, n),
                 .answer = answer };
    g_autoptr(GError) error = NULL;

    rubato_write_u32(answer, 0);
    if (answer_request(&it, &error) && !answer->failed)
        return true;
    if (error == NULL)
        g_set_error_literal(&error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                            "the answer is too long, or the follower has no memory for it");
    rubato_byte_writer_clear(answer);
    *answer = rubato_byte_writer_new(SMALL_ANSWER);
    rubato_write_u32(answer, 1 + (uint32_t)error->code);
    const size_t n_text = strlen(error->message);
    rubato_write(answer, error->message, MIN(n_text, SERVING_MOST_NAME));
    return !answer->failed;
}
