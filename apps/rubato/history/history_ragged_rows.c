/* See the header. It does what docs/reference/ragged-table.md says, and shares no code with
 * tables. A row keeps the hash of its whole words, so that appending costs what is appended.
 *
 * Threads: one. */
#include "apps/rubato/history/history_ragged_rows.h"

#include <string.h>

#include <rubato/mix.h>
#include <rubato/ragged_table.h>

/* ---- rows ---- */

static void free_row(gpointer data)
{
    RaggedRow *const row = data;

    g_array_unref(row->states);
    g_byte_array_unref(row->bytes);
    g_free(row);
}

void ragged_rows_init(RaggedRows *rows, RubatoDtype dtype)
{
    *rows = (RaggedRows){ .dtype = dtype };
    rows->rows = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_row);
}

void ragged_rows_clear(RaggedRows *rows)
{
    g_hash_table_unref(rows->rows);
}

const RaggedRow *ragged_rows_find(const RaggedRows *rows, uint64_t key)
{
    return g_hash_table_lookup(rows->rows, &key);
}

guint ragged_row_state_at(const RaggedRow *row, uint64_t order)
{
    guint least = 0, most = row->states->len - 1;

    while (least < most) {
        const guint middle = (least + most + 1) / 2;

        if (g_array_index(row->states, RaggedState, middle).order <= order)
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

/* ---- hashes ---- */

#define BEGIN_HASH UINT64_C(0x9e3779b97f4a7c15)

static uint64_t word_at(const uint8_t *bytes, size_t n)
{
    uint64_t word = 0;

    memcpy(&word, bytes, n);
    return GUINT64_FROM_LE(word);
}

/* The bytes before n_hashed are as they were. */
static uint64_t hash_row(RaggedRow *row)
{
    const size_t n = row->bytes->len, left = n % 8;
    uint64_t hash;

    for (; row->n_hashed < n - left; row->n_hashed += 8)
        row->hash_of_words =
            rubato_mix64(row->hash_of_words ^ word_at(row->bytes->data + row->n_hashed, 8));
    hash = row->hash_of_words;
    if (left > 0)
        hash = rubato_mix64(hash ^ word_at(row->bytes->data + n - left, left));
    return rubato_mix64(hash ^ n);
}

static void forget_hash(RaggedRow *row)
{
    row->hash_of_words = BEGIN_HASH;
    row->n_hashed = 0;
}

RaggedState ragged_empty_state(void)
{
    return (RaggedState){ .hash = rubato_mix64(BEGIN_HASH) };
}

bool ragged_sees_state(const RaggedRequest *request, uint32_t i, const RaggedState *state)
{
    uint64_t hash;

    if (ragged_length(request, i) != state->length)
        return false;
    if (request->op == RAGGED_LENGTHS)
        return true;
    memcpy(&hash, request->values + 8 * (size_t)i, sizeof hash);
    return GUINT64_FROM_LE(hash) == state->hash;
}

/* ---- requests that write ---- */

static RaggedRow *take_row(RaggedRows *rows, uint64_t key)
{
    RaggedRow *row = g_hash_table_lookup(rows->rows, &key);

    if (row == NULL) {
        const RaggedState empty = ragged_empty_state();

        row = g_new0(RaggedRow, 1);
        row->key = key;
        row->states = g_array_new(FALSE, FALSE, sizeof(RaggedState));
        g_array_append_val(row->states, empty);
        row->bytes = g_byte_array_new();
        forget_hash(row);
        g_hash_table_insert(rows->rows, &row->key, row);
    }
    return row;
}

/* A request may change a row more than once: its last state counts. */
static void note_state(const RaggedRows *rows, RaggedRow *row, uint64_t order)
{
    const RaggedState state = {
        .order = order,
        .hash = hash_row(row),
        .length = (uint32_t)(row->bytes->len / rubato_dtype_size(rows->dtype)),
    };
    RaggedState *const last = &g_array_index(row->states, RaggedState, row->states->len - 1);

    if (last->order == order)
        *last = state;
    else
        g_array_append_val(row->states, state);
}

#define ADD_VALUES(type, values, deltas, n)                        \
    for (size_t i = 0; i < (n); i++) {                             \
        type value, delta;                                         \
                                                                   \
        memcpy(&value, (values) + i * sizeof value, sizeof value); \
        memcpy(&delta, (deltas) + i * sizeof delta, sizeof delta); \
        value = (type)(value + delta);                             \
        memcpy((values) + i * sizeof value, &value, sizeof value); \
    }

static void add_values(RubatoDtype dtype, uint8_t *values, const uint8_t *deltas, size_t n_bytes)
{
    const size_t n = n_bytes / rubato_dtype_size(dtype);

    switch (dtype) {
    case RUBATO_F32:
        ADD_VALUES(float, values, deltas, n)
        break;
    case RUBATO_F64:
        ADD_VALUES(double, values, deltas, n)
        break;
    case RUBATO_I32:
        ADD_VALUES(uint32_t, values, deltas, n)
        break;
    case RUBATO_I64:
        ADD_VALUES(uint64_t, values, deltas, n)
        break;
    default: /* bytes; no table has another type */
        ADD_VALUES(uint8_t, values, deltas, n_bytes)
        break;
    }
}

/* An add is done as a whole or not at all: its lengths are those of the rows. */
static bool fits(const RaggedRows *rows, const RaggedRequest *request)
{
    for (uint32_t i = 0; i < request->n_keys; i++) {
        const RaggedRow *const row = ragged_rows_find(rows, ragged_key(request, i));
        const size_t n_bytes = ragged_length(request, i) * rubato_dtype_size(rows->dtype);

        if ((row == NULL ? 0 : row->bytes->len) != n_bytes)
            return false;
    }
    return true;
}

static void change_row(RaggedRow *row, RubatoDtype dtype, RaggedOp op, const uint8_t *values,
                       size_t n_bytes)
{
    if (op != RAGGED_APPEND)
        forget_hash(row);
    if (op == RAGGED_ASSIGN || op == RAGGED_ERASE)
        g_byte_array_set_size(row->bytes, 0);
    if (op == RAGGED_ADD)
        add_values(dtype, row->bytes->data, values, n_bytes);
    else if (n_bytes > 0)
        g_byte_array_append(row->bytes, values, (guint)n_bytes);
}

bool ragged_rows_run(RaggedRows *rows, const RaggedRequest *request)
{
    const uint8_t *values = request->values;

    if (request->op == RAGGED_ADD && !fits(rows, request))
        return true;
    for (uint32_t i = 0; i < request->n_keys; i++) {
        const size_t n_bytes = request->op == RAGGED_ERASE
                                   ? 0
                                   : ragged_length(request, i) * rubato_dtype_size(rows->dtype);
        RaggedRow *const row = take_row(rows, ragged_key(request, i));
        const size_t before = row->bytes->len;

        if (request->op == RAGGED_APPEND && n_bytes > RUBATO_RAGGED_MOST_ROW_BYTES - before)
            return true; /* that row and those after it stay */
        change_row(row, rows->dtype, request->op, values, n_bytes);
        note_state(rows, row, request->order);
        rows->n_bytes += row->bytes->len - before;
        values += n_bytes;
    }
    return false;
}
