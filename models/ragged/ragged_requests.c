/* What requests do to rows of different lengths.
 *
 * A request is checked before anything changes: its sizes when it comes, the lengths of an Add
 * against the rows when it takes effect. So an Add whose lengths do not agree changes no row of the
 * part.
 *
 * A shard whose rows have not all come is told which requests fail (models/shard/shard_roles.h).
 *
 * Rows and lengths of a request lie at any alignment.
 *
 * Thread: the shard's present owner. */
#include "models/ragged/ragged.h"

#include <rubato/error.h>
#include <rubato/vector_clones.h>
#include <string.h>

#include "models/handlers/part.h"
#include "models/keys.h"

/* Of a request that brings no rows; tables/ragged/ragged_request.c asks for fewer. */
enum { MOST_KEYS = 1 << 16 };

/* A Get fetches a row into the cache so many rows before it copies it. The processor itself fetches
 * what is longer than a few lines. */
enum { ROWS_AHEAD = 16, LINES_AHEAD = 6, LINE = 64 };

/* ---- what a request brings ---- */

/* Lengths, and the bytes of each row, one behind the other. */
typedef struct {
    const unsigned char *lengths;
    const unsigned char *values;
    size_t n_bytes; /* of values */
    size_t value_bytes;
} Given;

static uint32_t length_at(const unsigned char *lengths, size_t i)
{
    uint32_t length;

    memcpy(&length, lengths + i * sizeof length, sizeof length);
    return length;
}

static size_t given_bytes(const Given *given, size_t i)
{
    return length_at(given->lengths, i) * given->value_bytes;
}

/* Takes the arguments of n keys apart. What is wrong with them; NULL if nothing is. */
static const char *take_apart(Given *given, size_t n, const void *bytes, size_t n_bytes,
                              RubatoDtype dtype)
{
    const size_t most = RUBATO_RAGGED_MOST_ROW_BYTES / rubato_dtype_size(dtype);
    uint64_t n_values = 0;

    if (n_bytes / sizeof(uint32_t) < n)
        return "rows of fewer lengths than keys";
    given->lengths = bytes;
    given->values = given->lengths + n * sizeof(uint32_t);
    given->n_bytes = n_bytes - n * sizeof(uint32_t);
    given->value_bytes = rubato_dtype_size(dtype);
    for (size_t i = 0; i < n; i++) {
        const uint32_t length = length_at(given->lengths, i);

        if (length > most)
            return "a row that is longer than rows may be";
        n_values += length;
    }
    return given->n_bytes % given->value_bytes == 0 &&
                   n_values == given->n_bytes / given->value_bytes
               ? NULL
               : "rows whose lengths do not fit their values";
}

/* ---- finding rows ---- */

/* The rows of a request, a block of keys at a time. */
typedef struct {
    RubatoShard *shard;
    const RubatoKeys *keys;
    size_t begin, n; /* the present block */
    const RubatoKey *block;
    RaggedRow *rows[BLOCK]; /* NULL for absent ones */
    RubatoKey copied[BLOCK];
} Rows;

typedef enum {
    ABSENT_ROWS_STAY,
    ABSENT_ROWS_ARE_CREATED,
} AbsentRows;

static void begin_rows(Rows *rows, RubatoPart *part)
{
    rows->shard = part->shard;
    rows->keys = part->keys;
    rows->begin = rows->n = 0;
}

/* False behind the last block, or without memory; then the shard's alarm is set. */
static bool next_rows(Rows *rows, AbsentRows absent)
{
    void *found[BLOCK];

    rows->begin += rows->n;
    rows->n = MIN(rows->keys->n - rows->begin, BLOCK);
    if (rows->n == 0)
        return false;
    rows->block = shard_take_block(rows->keys, rows->begin, rows->n, rows->copied);
    if (absent == ABSENT_ROWS_STAY)
        shard_find(rows->shard, rows->block, rows->n, found);
    else if (!shard_find_or_create(rows->shard, rows->block, rows->n, found))
        return false;
    for (size_t i = 0; i < rows->n; i++)
        rows->rows[i] = found[i];
    for (size_t i = 0; i < rows->n; i++)
        if (rows->rows[i] != NULL)
            ragged_heap_prefetch(rows->shard->ragged, *rows->rows[i]);
    return true;
}

/* For requests that create no rows; those that do watch when they find their rows. */
static void watch_rows(const RubatoPart *part)
{
    if (part->shard->is_watched)
        shard_watch(part->shard, part->keys);
}

/* ---- reading ---- */

/* Writes the lengths. Returns what the rows take in all; sets where each of them is, if there is
 * `found`. */
static uint64_t write_lengths(RubatoPart *part, RubatoByteWriter *result,
                              const unsigned char **found)
{
    const RaggedHeap *const heap = part->shard->ragged;
    const size_t value_bytes = rubato_dtype_size(part->shard->spec->dtype);
    uint32_t lengths[BLOCK];
    uint64_t n_bytes = 0;
    Rows rows;

    for (begin_rows(&rows, part); next_rows(&rows, ABSENT_ROWS_STAY);) {
        for (size_t i = 0; i < rows.n; i++) {
            RaggedRow *const row = rows.rows[i];
            const size_t bytes = row == NULL ? 0 : ragged_heap_length(heap, *row);

            lengths[i] = (uint32_t)(bytes / value_bytes);
            n_bytes += bytes;
            if (found != NULL)
                found[rows.begin + i] = row == NULL ? NULL : ragged_heap_bytes(heap, row);
        }
        rubato_write(result, lengths, rows.n * sizeof lengths[0]);
    }
    return n_bytes;
}

static bool run_lengths(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                        GError **error)
{
    (void)arguments;
    (void)error;
    write_lengths(part, result, NULL);
    return true;
}

static void prefetch_row(const unsigned char *row, size_t n_bytes)
{
    const size_t n = MIN(n_bytes, LINES_AHEAD * LINE);

    for (size_t at = 0; at < n; at += LINE)
        __builtin_prefetch(row + at);
    if (n > 0)
        __builtin_prefetch(row + n - 1);
}

/* Copies n rows one behind the other. */
static void copy_rows(const unsigned char *const *rows, const unsigned char *lengths, size_t n,
                      size_t value_bytes, unsigned char *to)
{
    for (size_t i = 0; i < MIN(n, ROWS_AHEAD); i++)
        prefetch_row(rows[i], length_at(lengths, i) * value_bytes);
    for (size_t i = 0; i < n; i++) {
        const size_t n_bytes = length_at(lengths, i) * value_bytes;

        if (i + ROWS_AHEAD < n)
            prefetch_row(rows[i + ROWS_AHEAD], length_at(lengths, i + ROWS_AHEAD) * value_bytes);
        if (n_bytes > 0)
            memcpy(to, rows[i], n_bytes);
        to += n_bytes;
    }
}

static bool run_get(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                    GError **error)
{
    const size_t n = part->keys->n, at = result->n;
    g_autofree const unsigned char **found = g_try_new(const unsigned char *, n);

    (void)arguments;
    if (n == 0)
        return true;
    if (found == NULL) {
        result->failed = true;
        return true;
    }
    const uint64_t n_bytes = write_lengths(part, result, found);

    if (n_bytes > RUBATO_HANDLER_MOST_BYTES - result->n) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the rows take %" G_GUINT64_FORMAT
                    " bytes, more than a part gives at once (%zu); get fewer of them at a time",
                    n_bytes, RUBATO_HANDLER_MOST_BYTES);
        return false;
    }
    if (!rubato_byte_writer_reserve(result, (size_t)n_bytes))
        return true; /* the result says so */
    copy_rows(found, result->bytes + at, n, rubato_dtype_size(part->shard->spec->dtype),
              result->bytes + result->n);
    result->n += (size_t)n_bytes;
    ragged_heap_compact(part->shard->ragged);
    return true;
}

/* ---- writing ---- */

typedef enum {
    WRITE_ADD,
    WRITE_ASSIGN,
    WRITE_APPEND,
} Write;

static bool begin_write(const RubatoPart *part, RubatoByteReader *arguments, Given *given,
                        GError **error)
{
    const size_t n = rubato_byte_reader_left(arguments);
    const char *const fault = take_apart(given, part->keys->n, rubato_read_bytes(arguments, n), n,
                                         part->shard->spec->dtype);

    if (fault != NULL)
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, fault);
    return fault == NULL;
}

/* Values at any alignment; integers wrap around. */
#define DEFINE_ADD(suffix, type)                                                         \
    RUBATO_VECTOR_CLONES static void add_##suffix(unsigned char *values,                 \
                                                  const unsigned char *deltas, size_t n) \
    {                                                                                    \
        for (size_t i = 0; i < n; i++) {                                                 \
            type value, delta;                                                           \
                                                                                         \
            memcpy(&value, values + i * sizeof value, sizeof value);                     \
            memcpy(&delta, deltas + i * sizeof delta, sizeof delta);                     \
            value = (type)(value + delta);                                               \
            memcpy(values + i * sizeof value, &value, sizeof value);                     \
        }                                                                                \
    }

DEFINE_ADD(f32, float)
DEFINE_ADD(f64, double)
DEFINE_ADD(u32, uint32_t)
DEFINE_ADD(u64, uint64_t)
DEFINE_ADD(u8, uint8_t)

static void add_values(RubatoDtype dtype, unsigned char *values, const unsigned char *deltas,
                       size_t n)
{
    switch (dtype) {
    case RUBATO_F32:
        add_f32(values, deltas, n);
        break;
    case RUBATO_F64:
        add_f64(values, deltas, n);
        break;
    case RUBATO_I32:
        add_u32(values, deltas, n);
        break;
    case RUBATO_I64:
        add_u64(values, deltas, n);
        break;
    case RUBATO_U8:
        add_u8(values, deltas, n);
        break;
    case RUBATO_F16: /* the rest: of tensors alone */
    case RUBATO_BF16:
    case RUBATO_I8:
    case RUBATO_I16:
    case RUBATO_BOOL:
        break;
    }
}

/* As the request of the primary, of which a shard is told. */
static bool fail_as_told(const ShardFate *fate, GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, fate->reason);
    return false;
}

static bool check_lengths(RubatoPart *part, const Given *given, const ShardFate *fate,
                          GError **error)
{
    GError *found = NULL;
    Rows rows;

    if (fate->reason != NULL)
        return fail_as_told(fate, error);
    if (fate->is_told)
        return true;

    for (begin_rows(&rows, part); next_rows(&rows, ABSENT_ROWS_STAY);)
        for (size_t i = 0; i < rows.n; i++) {
            const size_t bytes =
                rows.rows[i] == NULL ? 0 : ragged_heap_length(part->shard->ragged, *rows.rows[i]);

            if (bytes == given_bytes(given, rows.begin + i))
                continue;
            g_set_error(&found, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "an Add brings %u values for key %" G_GUINT64_FORMAT
                        ", whose row has %zu; nothing was added to its part",
                        length_at(given->lengths, rows.begin + i), rows.block[i],
                        bytes / given->value_bytes);
            shard_note_failure(part->shard, 0, found->message);
            g_propagate_error(error, found);
            return false;
        }
    return true;
}

/* Of a row that may be absent. */
static bool has_other_length(const RaggedHeap *heap, const RaggedRow *row, size_t bytes)
{
    return row == NULL || ragged_heap_length(heap, *row) != bytes;
}

static bool run_add(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                    GError **error)
{
    const RaggedHeap *const heap = part->shard->ragged;
    const RubatoDtype dtype = part->shard->spec->dtype;
    const ShardFate fate = shard_begin_write(part->shard);
    const unsigned char *from;
    Given given;
    Rows rows;

    (void)result;
    if (!begin_write(part, arguments, &given, error) || !check_lengths(part, &given, &fate, error))
        return false;
    watch_rows(part);
    from = given.values;
    for (begin_rows(&rows, part); next_rows(&rows, ABSENT_ROWS_STAY);)
        for (size_t i = 0; i < rows.n; i++) {
            const size_t bytes = given_bytes(&given, rows.begin + i);

            if (bytes > 0 && !(fate.is_told && has_other_length(heap, rows.rows[i], bytes)))
                add_values(dtype, ragged_heap_bytes(heap, rows.rows[i]), from,
                           bytes / given.value_bytes);
            from += bytes;
        }
    ragged_heap_compact(part->shard->ragged);
    return true;
}

/* A row becomes kept bytes of what it was and the given ones. False with an error, or without
 * memory; then the shard's alarm is set. */
static bool write_row(RubatoPart *part, RubatoKey key, RaggedRow *row, size_t kept,
                      const unsigned char *from, size_t n, const ShardFate *fate, GError **error)
{
    RaggedHeap *const heap = part->shard->ragged;

    if (n > RUBATO_RAGGED_MOST_ROW_BYTES - kept) {
        if (fate->is_told)
            return true;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the row of key %" G_GUINT64_FORMAT " has %zu bytes, and %zu are appended; a "
                    "row may have %zu",
                    key, kept, n, RUBATO_RAGGED_MOST_ROW_BYTES);
        return false;
    }
    if (!ragged_heap_resize(heap, key, row, kept + n, kept)) {
        shard_starve(part->shard);
        return false;
    }
    if (n > 0)
        memcpy((char *)ragged_heap_bytes(heap, row) + kept, from, n);
    return true;
}

static bool write_rows(RubatoPart *part, RubatoByteReader *arguments, Write write, GError **error)
{
    RaggedHeap *const heap = part->shard->ragged;
    const ShardFate fate = shard_begin_write(part->shard);
    GError *found = NULL;
    const unsigned char *from;
    bool ok = true;
    Given given;
    Rows rows;

    if (!begin_write(part, arguments, &given, error))
        return false;
    from = given.values;
    for (begin_rows(&rows, part); ok && next_rows(&rows, ABSENT_ROWS_ARE_CREATED);)
        for (size_t i = 0; i < rows.n && ok; i++) {
            const size_t n = given_bytes(&given, rows.begin + i);
            const size_t kept = write == WRITE_APPEND ? ragged_heap_length(heap, *rows.rows[i]) : 0;

            ok = rows.begin + i == fate.n_rows
                     ? fail_as_told(&fate, &found)
                     : write_row(part, rows.block[i], rows.rows[i], kept, from, n, &fate, &found);
            if (found != NULL)
                shard_note_failure(part->shard, rows.begin + i, found->message);
            from += n;
        }
    ragged_heap_compact(heap);
    if (found != NULL)
        g_propagate_error(error, found);
    return found == NULL; /* without memory the alarm says so */
}

static bool run_assign(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                       GError **error)
{
    (void)result;
    return write_rows(part, arguments, WRITE_ASSIGN, error);
}

static bool run_append(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                       GError **error)
{
    (void)result;
    return write_rows(part, arguments, WRITE_APPEND, error);
}

static bool run_erase(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error)
{
    Rows rows;

    (void)arguments;
    (void)result;
    (void)error;
    watch_rows(part);
    for (begin_rows(&rows, part); next_rows(&rows, ABSENT_ROWS_STAY);)
        for (size_t i = 0; i < rows.n; i++)
            if (rows.rows[i] != NULL)
                (void)ragged_heap_resize(part->shard->ragged, rows.block[i], rows.rows[i], 0, 0);
    ragged_heap_compact(part->shard->ragged);
    return true;
}

/* ---- a part that comes from elsewhere ---- */

static bool run_go_on(RubatoPart *part, RubatoByteReader *arguments, RubatoByteWriter *result,
                      GError **error)
{
    (void)result;
    (void)error;
    call_trace_go_on(part->shard, rubato_read_u64(arguments));
    return true;
}

/* ---- the requests ---- */

#define BRINGS_ROWS SIZE_MAX

static const struct {
    RubatoHandlerOps ops;
    size_t n_bytes; /* of its arguments, or BRINGS_ROWS */
} requests[] = {
    { { .name = "ragged.get", .access = RUBATO_ACCESS_READS, .run = run_get }, 0 },
    { { .name = "ragged.lengths", .access = RUBATO_ACCESS_READS, .run = run_lengths }, 0 },
    { { .name = "ragged.add", .access = RUBATO_ACCESS_WRITES, .run = run_add }, BRINGS_ROWS },
    { { .name = "ragged.assign", .access = RUBATO_ACCESS_WRITES, .run = run_assign }, BRINGS_ROWS },
    { { .name = "ragged.append", .access = RUBATO_ACCESS_WRITES, .run = run_append }, BRINGS_ROWS },
    { { .name = "ragged.erase", .access = RUBATO_ACCESS_WRITES, .run = run_erase }, 0 },
    { { .name = "ragged.go_on", .access = RUBATO_ACCESS_WRITES, .run = run_go_on },
      sizeof(uint64_t) },
};

const RubatoHandlerOps *ragged_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(requests); i++)
        if (strcmp(requests[i].ops.name, name) == 0)
            return &requests[i].ops;
    return NULL;
}

static size_t index_of(const RubatoHandlerOps *ops)
{
    size_t i = 0;

    while (i < G_N_ELEMENTS(requests) && &requests[i].ops != ops)
        i++;
    return i;
}

bool ragged_is_request(const RubatoHandlerOps *ops)
{
    return index_of(ops) < G_N_ELEMENTS(requests);
}

bool ragged_is_of_move(const RubatoHandlerOps *ops)
{
    return ops->run == run_go_on;
}

const char *ragged_find_fault(const RubatoTableSpec *spec, const HandlerCall *call,
                              const RubatoKeys *keys)
{
    const size_t i = index_of(call->ops);
    Given given;

    if (spec->shape != RUBATO_SHAPE_RAGGED || i == G_N_ELEMENTS(requests))
        return "a call that rows of this table do not take";
    if (call->is_whole)
        return "a request for all rows of different lengths";
    if (requests[i].n_bytes == BRINGS_ROWS)
        return take_apart(&given, keys->n, call->arguments, call->n_bytes, spec->dtype);
    if (keys->n > MOST_KEYS) /* a run costs its sender nothing */
        return "a request for more ragged rows than one may name";
    if (call->n_bytes == requests[i].n_bytes)
        return NULL;
    return ragged_is_of_move(call->ops) ? "a count of writes that is no number of 8 bytes"
                                        : "rows with a request that takes none";
}
