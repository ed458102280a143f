/* Writes the records of a part. See part_rows.h. */
#include <string.h>

#include "io/store/part_records.h"

/* The most words of a cover in a record. */
#define COVER_WORDS (PART_ROWS_BYTES / sizeof(uint64_t))

struct PartWriter {
    BlockWriter *file;
    PartShape shape;
    uint64_t n_rows;
    bool has_cover;
    uint64_t n_all;  /* with a cover: rows of the part */
    GArray *picking; /* of uint64_t: the words of a record */
    RoundedRows rounded;
    GByteArray *rounding; /* the values of a record, rounded; NULL: they are not */
    RoundingLoss loss;
};

static Rounding find_rounding(const PartShape *shape, RubatoPacking packing)
{
    if (!shape->is_real || shape->row_bytes == 0)
        return ROUNDING_NONE;
    return packing == RUBATO_PACKING_BF16   ? ROUNDING_BF16
           : packing == RUBATO_PACKING_8BIT ? ROUNDING_8BIT
                                            : ROUNDING_NONE;
}

PartWriter *part_writer_new(const char *path, uint64_t seed, RubatoPacking packing,
                            const PartShape *shape, GError **error)
{
    const RubatoPacking of_blocks =
        packing == RUBATO_PACKING_ZSTD ? RUBATO_PACKING_ZSTD : RUBATO_PACKING_NONE;
    BlockWriter *file = block_writer_new(path, seed, of_blocks, error);
    PartWriter *writer;

    if (file == NULL)
        return NULL;
    writer = g_new0(PartWriter, 1);
    writer->file = file;
    writer->shape = *shape;
    writer->rounded = part_records_rounded(shape, find_rounding(shape, packing));
    if (writer->rounded.rounding != ROUNDING_NONE)
        writer->rounding = g_byte_array_new();
    return writer;
}

void part_writer_leave_to_kernel(PartWriter *writer)
{
    block_writer_leave_to_kernel(writer->file);
}

void part_writer_hold(PartWriter *writer, bool holds)
{
    block_writer_hold(writer->file, holds);
}

static bool write_head(PartWriter *writer, const RecordHead *head, GError **error)
{
    return block_writer_begin_record(writer->file, sizeof *head + head->n_bytes, error) &&
           block_writer_write(writer->file, head, sizeof *head, error);
}

bool part_writer_tuned(PartWriter *writer, uint32_t hyper, double value, GError **error)
{
    const RecordHead head = { .kind = RECORD_TUNED, .n = hyper, .n_bytes = sizeof value };

    return write_head(writer, &head, error) &&
           block_writer_write(writer->file, &value, sizeof value, error);
}

bool part_writer_admission(PartWriter *writer, const PartAdmission *admission, GError **error)
{
    const AdmissionHead cut = { admission->n_all, admission->first };
    const size_t n_words = admission->n * sizeof *admission->words;
    const RecordHead head = { .kind = RECORD_ADMISSION,
                              .n = (uint32_t)admission->n,
                              .n_bytes = sizeof cut + n_words };

    return write_head(writer, &head, error) &&
           block_writer_write(writer->file, &cut, sizeof cut, error) &&
           block_writer_write(writer->file, admission->words, n_words, error);
}

static bool write_ragged(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error)
{
    static const unsigned char zeros[8] = { 0 };
    const uint64_t n_values = part_records_ragged_values(rows) * writer->shape.value_bytes;
    const size_t n_keys = rows->n * sizeof *rows->keys, n_lengths = rows->n * sizeof(uint32_t);
    const RecordHead head = { .kind = RECORD_RAGGED,
                              .n = (uint32_t)rows->n,
                              .n_bytes = n_keys + part_records_lengths_bytes(rows->n) + n_values };

    return write_head(writer, &head, error) &&
           block_writer_write(writer->file, rows->keys, n_keys, error) &&
           block_writer_write(writer->file, rows->lengths, n_lengths, error) &&
           block_writer_write(writer->file, zeros, part_records_lengths_bytes(rows->n) - n_lengths,
                              error) &&
           block_writer_write(writer->file, rows->values, (size_t)n_values, error);
}

/* Whether the keys ascend, and bits for them take fewer bytes than they. */
static bool are_close(const RubatoSnapshotRows *rows)
{
    const uint64_t range = rows->keys[rows->n - 1] - rows->keys[0];

    for (size_t i = 1; i < rows->n; i++)
        if (rows->keys[i] <= rows->keys[i - 1])
            return false;
    return range / 64 + 3 < rows->n;
}

/* The bits of keys that are close. */
static void pick(PartWriter *writer, const RubatoSnapshotRows *rows)
{
    const uint64_t n_words = (rows->keys[rows->n - 1] - rows->keys[0]) / 64 + 1;

    if (writer->picking == NULL)
        writer->picking = g_array_new(FALSE, /* clear= */ TRUE, sizeof(uint64_t));
    g_array_set_size(writer->picking, 0);
    g_array_set_size(writer->picking, (guint)n_words);
    for (size_t i = 0; i < rows->n; i++) {
        const uint64_t bit = rows->keys[i] - rows->keys[0];

        g_array_index(writer->picking, uint64_t, bit / 64) |= UINT64_C(1) << bit % 64;
    }
}

static uint32_t kind_of(const PartWriter *writer, RecordKind kind)
{
    return (uint32_t)kind | (uint32_t)writer->rounded.rounding << ROUNDING_SHIFT;
}

/* The bytes to write. */
static const void *round_values(PartWriter *writer, const RubatoSnapshotRows *rows, size_t n_values)
{
    if (writer->rounding == NULL)
        return rows->values;
    g_byte_array_set_size(writer->rounding, (guint)n_values);
    rounding_encode(&writer->rounded, rows->n, rows->values, writer->rounding->data, &writer->loss);
    return writer->rounding->data;
}

/* Many values with the states right behind them are written at a time: see block_writer.c. */
static bool write_values(PartWriter *writer, const RubatoSnapshotRows *rows, size_t n_values,
                         GError **error)
{
    const size_t n_states = rows->n * writer->shape.state_bytes;
    const unsigned char *const values = round_values(writer, rows, n_values);

    if (rows->states == values + n_values)
        return block_writer_write(writer->file, values, n_values + n_states, error);
    return block_writer_write(writer->file, values, n_values, error) &&
           block_writer_write(writer->file, rows->states, n_states, error);
}

static bool write_picked(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error)
{
    const size_t n_values = (size_t)rounding_bytes(&writer->rounded, rows->n);
    const size_t n_states = rows->n * writer->shape.state_bytes;
    const PickedHead picked = { .first = rows->keys[0],
                                .n_keys = rows->keys[rows->n - 1] - rows->keys[0] + 1 };

    pick(writer, rows);

    const size_t n_picking = writer->picking->len * sizeof(uint64_t);
    const RecordHead head = { .kind = kind_of(writer, RECORD_PICKED),
                              .n = (uint32_t)rows->n,
                              .n_bytes = sizeof picked + n_picking + n_values + n_states };

    return write_head(writer, &head, error) &&
           block_writer_write(writer->file, &picked, sizeof picked, error) &&
           block_writer_write(writer->file, writer->picking->data, n_picking, error) &&
           write_values(writer, rows, n_values, error);
}

static bool write_even(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error)
{
    if (writer->has_cover && rows->keys != NULL && are_close(rows))
        return write_picked(writer, rows, error);

    const size_t n_values = (size_t)rounding_bytes(&writer->rounded, rows->n);
    const size_t n_states = rows->n * writer->shape.state_bytes;
    const size_t n_keys = (rows->keys == NULL ? 1 : rows->n) * sizeof(RubatoKey);
    const RecordHead head = { .kind =
                                  kind_of(writer, rows->keys == NULL ? RECORD_RUN : RECORD_KEYED),
                              .n = (uint32_t)rows->n,
                              .n_bytes = n_keys + n_values + n_states };
    const void *keys = rows->keys == NULL ? &rows->first : rows->keys;

    return write_head(writer, &head, error) &&
           block_writer_write(writer->file, keys, n_keys, error) &&
           write_values(writer, rows, n_values, error);
}

bool part_writer_rows(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error)
{
    if (rows->n == 0)
        return true;
    writer->n_rows += rows->n;
    return writer->shape.row_bytes == 0 ? write_ragged(writer, rows, error)
                                        : write_even(writer, rows, error);
}

bool part_writer_cover(PartWriter *writer, const KeyCover *cover, uint64_t n_rows, GError **error)
{
    const uint64_t n_words = key_cover_n_words(cover->n_bits);
    uint64_t word = 0;
    bool ok;

    writer->has_cover = true;
    writer->n_all = n_rows;
    do { /* also of no words */
        const uint64_t n = MIN(n_words - word, COVER_WORDS);
        const CoverHead cut = { cover->n_bits, cover->is_range, cover->first, word };
        const RecordHead head = { .kind = RECORD_COVER,
                                  .n = (uint32_t)n,
                                  .n_bytes = sizeof cut + n * sizeof(uint64_t) };

        ok = write_head(writer, &head, error) &&
             block_writer_write(writer->file, &cut, sizeof cut, error) &&
             block_writer_write(writer->file, cover->words + word, n * sizeof(uint64_t), error);
        word += n;
    } while (ok && word < n_words);
    return ok;
}

void part_writer_add_loss(PartWriter *writer, const RoundingLoss *loss)
{
    rounding_loss_add(&writer->loss, loss);
}

static bool write_loss(PartWriter *writer, GError **error)
{
    const RoundingLoss *const is = &writer->loss;
    const LossRecord loss = { is->largest, is->sum_of_squares, is->n_values };
    const RecordHead head = { .kind = RECORD_LOSS, .n_bytes = sizeof loss };

    return write_head(writer, &head, error) &&
           block_writer_write(writer->file, &loss, sizeof loss, error);
}

bool part_writer_end(PartWriter *writer, GError **error)
{
    BlockFileSum sum;

    if (writer->rounding != NULL && !write_loss(writer, error))
        return false;
    return block_writer_end(writer->file, writer->has_cover ? writer->n_all : writer->n_rows, &sum,
                            error);
}

bool part_writer_keeps_much(const PartWriter *writer)
{
    return block_writer_keeps_much(writer->file);
}

bool part_writer_settle(PartWriter *writer, bool *has_more, GError **error)
{
    return block_writer_settle(writer->file, has_more, error);
}

bool part_writer_sync(PartWriter *writer, GError **error)
{
    return block_writer_sync(writer->file, error);
}

bool part_writer_finish(PartWriter *writer, GError **error)
{
    return part_writer_end(writer, error) && part_writer_sync(writer, error);
}

void part_writer_free(PartWriter *writer)
{
    if (writer == NULL)
        return;
    block_writer_free(writer->file);
    g_clear_pointer(&writer->picking, g_array_unref);
    g_clear_pointer(&writer->rounding, g_byte_array_unref);
    g_free(writer);
}
