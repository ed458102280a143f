/* The records of a part. A reader takes nothing of a record before it knows that its lengths agree
 * with the table's: the blocks are what somebody wrote, but perhaps not this library. */
#include "io/store/part_rows.h"

#include <rubato/error.h>
#include <rubato/ragged_table.h>
#include <string.h>

typedef enum {
    RECORD_TUNED = 1,
    RECORD_RUN,
    RECORD_KEYED,
    RECORD_RAGGED,
} RecordKind;

typedef struct {
    uint32_t kind; /* RecordKind */
    uint32_t n;    /* rows; the number of a tuned hyper-parameter */
    uint64_t n_bytes;
} RecordHead;

G_STATIC_ASSERT(sizeof(RecordHead) == 16);

/* The most bytes of rows in a record. */
#define MOST_BYTES (RUBATO_RAGGED_MOST_ROW_BYTES + ((size_t)1 << 20))

/* ---- writing ---- */

struct PartWriter {
    BlockWriter *file;
    PartShape shape;
    uint64_t n_rows;
};

PartWriter *part_writer_new(const char *path, uint64_t seed, RubatoPacking packing,
                            const PartShape *shape, GError **error)
{
    BlockWriter *file = block_writer_new(path, seed, packing, error);
    PartWriter *writer;

    if (file == NULL)
        return NULL;
    writer = g_new0(PartWriter, 1);
    writer->file = file;
    writer->shape = *shape;
    return writer;
}

bool part_writer_tuned(PartWriter *writer, uint32_t hyper, double value, GError **error)
{
    const RecordHead head = { .kind = RECORD_TUNED, .n = hyper, .n_bytes = sizeof value };

    return block_writer_write(writer->file, &head, sizeof head, error) &&
           block_writer_write(writer->file, &value, sizeof value, error);
}

static uint64_t ragged_values(const RubatoSnapshotRows *rows)
{
    uint64_t n_values = 0;

    for (size_t i = 0; i < rows->n; i++)
        n_values += rows->lengths[i];
    return n_values;
}

/* Bytes of the lengths of n rows, with what keeps the values behind them aligned. */
static uint64_t lengths_bytes(uint64_t n)
{
    return (n * sizeof(uint32_t) + 7) / 8 * 8;
}

static bool write_ragged(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error)
{
    static const unsigned char zeros[8] = { 0 };
    const uint64_t n_values = ragged_values(rows) * writer->shape.value_bytes;
    const size_t n_keys = rows->n * sizeof *rows->keys, n_lengths = rows->n * sizeof(uint32_t);
    const RecordHead head = { .kind = RECORD_RAGGED,
                              .n = (uint32_t)rows->n,
                              .n_bytes = n_keys + lengths_bytes(rows->n) + n_values };

    return block_writer_write(writer->file, &head, sizeof head, error) &&
           block_writer_write(writer->file, rows->keys, n_keys, error) &&
           block_writer_write(writer->file, rows->lengths, n_lengths, error) &&
           block_writer_write(writer->file, zeros, lengths_bytes(rows->n) - n_lengths, error) &&
           block_writer_write(writer->file, rows->values, (size_t)n_values, error);
}

static bool write_even(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error)
{
    const size_t n_values = rows->n * writer->shape.row_bytes;
    const size_t n_states = rows->n * writer->shape.state_bytes;
    const size_t n_keys = (rows->keys == NULL ? 1 : rows->n) * sizeof(RubatoKey);
    const RecordHead head = { .kind = rows->keys == NULL ? RECORD_RUN : RECORD_KEYED,
                              .n = (uint32_t)rows->n,
                              .n_bytes = n_keys + n_values + n_states };
    const void *keys = rows->keys == NULL ? &rows->first : rows->keys;

    return block_writer_write(writer->file, &head, sizeof head, error) &&
           block_writer_write(writer->file, keys, n_keys, error) &&
           block_writer_write(writer->file, rows->values, n_values, error) &&
           block_writer_write(writer->file, rows->states, n_states, error);
}

bool part_writer_rows(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error)
{
    if (rows->n == 0)
        return true;
    writer->n_rows += rows->n;
    return writer->shape.row_bytes == 0 ? write_ragged(writer, rows, error)
                                        : write_even(writer, rows, error);
}

bool part_writer_finish(PartWriter *writer, GError **error)
{
    BlockFileSum sum;

    return block_writer_finish(writer->file, writer->n_rows, &sum, error);
}

void part_writer_free(PartWriter *writer)
{
    if (writer == NULL)
        return;
    block_writer_free(writer->file);
    g_free(writer);
}

/* ---- reading ---- */

typedef struct {
    BlockReader *file;
    PartShape shape;
    const PartTaker *taker;
    uint64_t n_rows;
    const unsigned char *bytes; /* of the present record: in its block, or in `memory` */
    unsigned char *memory;
    size_t n_allocated;
} PartReader;

static bool fail(const PartReader *reader, const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "%s: the record before byte %" G_GUINT64_FORMAT " of its contents %s",
                block_reader_path(reader->file), block_reader_position(reader->file), what);
    return false;
}

/* Makes room for a record; what was there is lost. */
static bool make_room(PartReader *reader, size_t n, GError **error)
{
    if (n <= reader->n_allocated)
        return true;
    g_free(reader->memory);
    reader->memory = g_try_malloc(n);
    reader->n_allocated = reader->memory == NULL ? 0 : n;
    if (reader->memory != NULL)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory for a record of %zu bytes",
                block_reader_path(reader->file), n);
    return false;
}

/* Finds the n bytes of a record: most lie in one block, and need not be copied. */
static bool find_bytes(PartReader *reader, size_t n, GError **error)
{
    reader->bytes = block_reader_borrow(reader->file, n);
    if (reader->bytes != NULL)
        return true;
    if (!make_room(reader, n, error) || !block_reader_read(reader->file, reader->memory, n, error))
        return false;
    reader->bytes = reader->memory;
    return true;
}

/* What a record of that kind must have; 0: it says so itself. */
static uint64_t expected_bytes(const PartReader *reader, const RecordHead *head)
{
    const uint64_t n = head->n, row_bytes = reader->shape.row_bytes + reader->shape.state_bytes;

    switch ((RecordKind)head->kind) {
    case RECORD_TUNED:
        return sizeof(double);
    case RECORD_RUN:
        return sizeof(RubatoKey) + n * row_bytes;
    case RECORD_KEYED:
        return n * (sizeof(RubatoKey) + row_bytes);
    case RECORD_RAGGED:
        break;
    }
    return 0;
}

static bool check_head(const PartReader *reader, const RecordHead *head, GError **error)
{
    const bool is_ragged = reader->shape.row_bytes == 0;
    const uint64_t expected = expected_bytes(reader, head);

    if (head->kind < RECORD_TUNED || head->kind > RECORD_RAGGED)
        return fail(reader, "is of no known kind", error);
    if (head->kind != RECORD_TUNED && (head->kind == RECORD_RAGGED) != is_ragged)
        return fail(reader, "is not of the table's shape", error);
    if (head->kind != RECORD_TUNED && head->n == 0)
        return fail(reader, "has no rows", error);
    if (head->n_bytes > MOST_BYTES || (expected != 0 && head->n_bytes != expected))
        return fail(reader, "has a length that cannot be", error);
    return true;
}

static bool take_ragged(PartReader *reader, const RecordHead *head, GError **error)
{
    const uint64_t n_heads = head->n * sizeof(RubatoKey) + lengths_bytes(head->n);
    const unsigned char *const lengths = reader->bytes + head->n * sizeof(RubatoKey);

    if (n_heads > head->n_bytes)
        return fail(reader, "has fewer lengths than rows", error);
    const RubatoSnapshotRows rows = { .keys = (const RubatoKey *)(const void *)reader->bytes,
                                      .n = head->n,
                                      .values = reader->bytes + n_heads,
                                      .lengths = (const uint32_t *)(const void *)lengths };
    if (ragged_values(&rows) * reader->shape.value_bytes != head->n_bytes - n_heads)
        return fail(reader, "has rows whose lengths do not fit their values", error);
    return reader->taker->rows == NULL ||
           reader->taker->rows(&rows, reader->taker->user_data, error);
}

static bool take_even(PartReader *reader, const RecordHead *head, GError **error)
{
    const bool is_run = head->kind == RECORD_RUN;
    const unsigned char *const values = reader->bytes + (is_run ? 1 : head->n) * sizeof(RubatoKey);
    const RubatoKey *keys = (const RubatoKey *)(const void *)reader->bytes;
    const RubatoSnapshotRows rows = {
        .keys = is_run ? NULL : keys,
        .first = is_run ? keys[0] : 0,
        .n = head->n,
        .values = values,
        .states =
            reader->shape.state_bytes == 0 ? NULL : values + head->n * reader->shape.row_bytes,
    };

    if (is_run && rows.first + (rows.n - 1) < rows.first)
        return fail(reader, "has keys beyond the last one", error);
    return reader->taker->rows == NULL ||
           reader->taker->rows(&rows, reader->taker->user_data, error);
}

static bool take_tuned(PartReader *reader, const RecordHead *head, GError **error)
{
    double value;

    memcpy(&value, reader->bytes, sizeof value);
    return reader->taker->tuned == NULL ||
           reader->taker->tuned(head->n, value, reader->taker->user_data, error);
}

static bool read_record(PartReader *reader, GError **error)
{
    RecordHead head;

    if (!block_reader_read(reader->file, &head, sizeof head, error) ||
        !check_head(reader, &head, error) || !find_bytes(reader, (size_t)head.n_bytes, error))
        return false;
    if (head.kind == RECORD_TUNED)
        return take_tuned(reader, &head, error);
    reader->n_rows += head.n;
    return head.kind == RECORD_RAGGED ? take_ragged(reader, &head, error)
                                      : take_even(reader, &head, error);
}

bool part_rows_read(const char *path, uint64_t seed, const BlockFileSum *sum,
                    const PartShape *shape, uint64_t n_rows, const PartTaker *taker, GError **error)
{
    g_autoptr(BlockReader) file = block_reader_new(path, seed, sum, error);
    PartReader reader = { .file = file, .shape = *shape, .taker = taker };
    bool at_end = false, ok = file != NULL;

    while (ok && !at_end) {
        ok = block_reader_at_end(file, &at_end, error);
        if (ok && !at_end)
            ok = read_record(&reader, error);
    }
    if (ok && (reader.n_rows != n_rows || block_reader_number(file) != n_rows))
        ok = fail(&reader, "is the last one, and others are missing", error);
    g_free(reader.memory);
    return ok;
}
