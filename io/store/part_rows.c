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
    RECORD_COVER,
    RECORD_PICKED,
    RECORD_ADMISSION,
    RECORD_LOSS,
} RecordKind;

/* Where the rounding is in a record's kind. */
#define ROUNDING_SHIFT 8

typedef struct {
    uint32_t kind; /* RecordKind; of rows also a Rounding */
    uint32_t n;    /* rows; words; the number of a tuned hyper-parameter */
    uint64_t n_bytes;
} RecordHead;

G_STATIC_ASSERT(sizeof(RecordHead) == 16);

/* At the start of a record of a cover. */
typedef struct {
    uint64_t n_bits;
    uint64_t is_range;
    uint64_t first;      /* KeyCover.first */
    uint64_t first_word; /* the words before are those of the records before */
} CoverHead;

/* At the start of a record of picked rows. */
typedef struct {
    RubatoKey first;
    uint64_t n_keys; /* bits, in as many words as these need */
} PickedHead;

/* At the start of a record of an admission. */
typedef struct {
    uint64_t n_all, first; /* PartAdmission */
} AdmissionHead;

/* A record of a loss. */
typedef struct {
    double largest, sum_of_squares;
    uint64_t n_values;
} LossRecord;

/* The most words of a cover in a record. */
#define COVER_WORDS (PART_ROWS_BYTES / sizeof(uint64_t))

/* The most bytes of rows in a record. */
#define MOST_BYTES (RUBATO_RAGGED_MOST_ROW_BYTES + ((size_t)1 << 20))

/* ---- writing ---- */

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

static RoundedRows find_rounded(const PartShape *shape, Rounding rounding)
{
    return (RoundedRows){ .rounding = rounding,
                          .width = shape->row_bytes / MAX(1, shape->value_bytes),
                          .value_bytes = shape->value_bytes };
}

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
    writer->rounded = find_rounded(shape, find_rounding(shape, packing));
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

    return write_head(writer, &head, error) &&
           block_writer_write(writer->file, rows->keys, n_keys, error) &&
           block_writer_write(writer->file, rows->lengths, n_lengths, error) &&
           block_writer_write(writer->file, zeros, lengths_bytes(rows->n) - n_lengths, error) &&
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

/* ---- reading ---- */

typedef struct {
    BlockReader *file;
    PartShape shape;
    const PartTaker *taker;
    uint64_t n_rows;
    const unsigned char *bytes; /* of the present record: in its block, or in `memory` */
    unsigned char *memory;
    size_t n_allocated;
    KeyCover *cover;        /* NULL: there must be none */
    bool has_cover;         /* its first record */
    uint64_t n_cover_words; /* that have come */
    GArray *picked;         /* of RubatoKey: of the present record */
    RoundedRows rounded;    /* what the values of the present record are */
    void *values;           /* which they were before; NULL: no record was rounded */
    size_t n_values;        /* bytes there */
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
    const uint64_t n = head->n;
    const uint64_t n_rows = rounding_bytes(&reader->rounded, n) + n * reader->shape.state_bytes;

    switch ((RecordKind)head->kind) {
    case RECORD_TUNED:
        return sizeof(double);
    case RECORD_RUN:
        return sizeof(RubatoKey) + n_rows;
    case RECORD_KEYED:
        return n * sizeof(RubatoKey) + n_rows;
    case RECORD_COVER:
        return sizeof(CoverHead) + n * sizeof(uint64_t);
    case RECORD_ADMISSION:
        return sizeof(AdmissionHead) + n * sizeof(uint64_t);
    case RECORD_LOSS:
        return sizeof(LossRecord);
    case RECORD_RAGGED:
    case RECORD_PICKED:
        break;
    }
    return 0;
}

static bool is_cover_whole(const PartReader *reader)
{
    return reader->has_cover && reader->n_cover_words == key_cover_n_words(reader->cover->n_bits);
}

/* The set of keys comes first, and in a file of changes alone. */
static bool check_cover(const PartReader *reader, const RecordHead *head, GError **error)
{
    const bool is_cover = head->kind == RECORD_COVER;

    if (is_cover && reader->cover == NULL)
        return fail(reader, "is of a file of changes, and this must have all rows", error);
    if (is_cover && is_cover_whole(reader))
        return fail(reader, "is of a set of keys that is whole already", error);
    if (!is_cover && head->kind != RECORD_TUNED && reader->cover != NULL && !is_cover_whole(reader))
        return fail(reader, "comes before the set of keys that changed", error);
    return true;
}

static bool has_rows_in(const RecordHead *head)
{
    return head->kind != RECORD_TUNED && head->kind != RECORD_COVER &&
           head->kind != RECORD_ADMISSION && head->kind != RECORD_LOSS;
}

static bool check_head(const PartReader *reader, const RecordHead *head, GError **error)
{
    const bool is_ragged = reader->shape.row_bytes == 0;
    const bool has_rows = has_rows_in(head);
    const uint64_t expected = expected_bytes(reader, head);

    if (head->kind < RECORD_TUNED || head->kind > RECORD_LOSS)
        return fail(reader, "is of no known kind", error);
    if (!check_cover(reader, head, error))
        return false;
    if (has_rows && (head->kind == RECORD_RAGGED) != is_ragged)
        return fail(reader, "is not of the table's shape", error);
    if (reader->rounded.rounding != ROUNDING_NONE &&
        (!has_rows || is_ragged || !reader->shape.is_real))
        return fail(reader, "has rounded values, which the table cannot have", error);
    if (has_rows && head->n == 0)
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

/* Gives rows to who takes them, as they are, or with values that were rounded. */
static bool take_rows(PartReader *reader, RubatoSnapshotRows *rows, GError **error)
{
    const size_t n_bytes = rows->n * reader->shape.row_bytes;

    if (reader->taker->rows == NULL)
        return true;
    if (reader->rounded.rounding != ROUNDING_NONE && n_bytes > reader->n_values) {
        g_free(reader->values);
        reader->values = g_try_malloc(n_bytes);
        reader->n_values = reader->values != NULL ? n_bytes : 0;
        if (reader->values == NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                        "%s: no memory for %zu bytes of values", block_reader_path(reader->file),
                        n_bytes);
            return false;
        }
    }
    if (reader->rounded.rounding != ROUNDING_NONE) {
        rounding_decode(&reader->rounded, rows->n, rows->values, reader->values);
        rows->values = reader->values;
    }
    return reader->taker->rows(rows, reader->taker->user_data, error);
}

static bool take_even(PartReader *reader, const RecordHead *head, GError **error)
{
    const bool is_run = head->kind == RECORD_RUN;
    const unsigned char *const values = reader->bytes + (is_run ? 1 : head->n) * sizeof(RubatoKey);
    const RubatoKey *keys = (const RubatoKey *)(const void *)reader->bytes;
    RubatoSnapshotRows rows = {
        .keys = is_run ? NULL : keys,
        .first = is_run ? keys[0] : 0,
        .n = head->n,
        .values = values,
        .states = reader->shape.state_bytes == 0
                      ? NULL
                      : values + rounding_bytes(&reader->rounded, head->n),
    };

    if (is_run && rows.first + (rows.n - 1) < rows.first)
        return fail(reader, "has keys beyond the last one", error);
    return take_rows(reader, &rows, error);
}

/* Writes the keys of a record; false: they are not as many as it says. */
static bool list_picked(PartReader *reader, const RecordHead *head, const PickedHead *picked)
{
    const unsigned char *const words = reader->bytes + sizeof *picked;

    if (reader->picked == NULL)
        reader->picked = g_array_new(FALSE, FALSE, sizeof(RubatoKey));
    g_array_set_size(reader->picked, 0);
    for (uint64_t i = 0; i < key_cover_n_words(picked->n_keys); i++) {
        uint64_t left;

        memcpy(&left, words + i * sizeof left, sizeof left);
        for (; left != 0; left &= left - 1) {
            const uint64_t bit = i * 64 + (uint64_t)__builtin_ctzll(left);
            const RubatoKey key = picked->first + bit;

            if (bit >= picked->n_keys || reader->picked->len == head->n)
                return false;
            g_array_append_val(reader->picked, key);
        }
    }
    return reader->picked->len == head->n;
}

static bool take_picked(PartReader *reader, const RecordHead *head, GError **error)
{
    const uint64_t n_values = rounding_bytes(&reader->rounded, head->n);
    const uint64_t n_states = head->n * (uint64_t)reader->shape.state_bytes;
    PickedHead picked = { .n_keys = 0 };
    uint64_t n_picking;

    if (head->n_bytes >= sizeof picked)
        memcpy(&picked, reader->bytes, sizeof picked);
    n_picking = key_cover_n_words(picked.n_keys) * sizeof(uint64_t);
    if (picked.n_keys == 0 || picked.first + (picked.n_keys - 1) < picked.first ||
        n_picking > head->n_bytes ||
        head->n_bytes != sizeof picked + n_picking + n_values + n_states ||
        !list_picked(reader, head, &picked))
        return fail(reader, "has other keys than it says", error);

    const unsigned char *const values = reader->bytes + sizeof picked + n_picking;
    RubatoSnapshotRows rows = {
        .keys = (const RubatoKey *)(const void *)reader->picked->data,
        .n = head->n,
        .values = values,
        .states = n_states == 0 ? NULL : values + n_values,
    };

    return take_rows(reader, &rows, error);
}

/* Memory grows with what has been read, whatever the record says. */
static bool take_cover(PartReader *reader, const RecordHead *head, GError **error)
{
    KeyCover *const cover = reader->cover;
    uint64_t *words;
    CoverHead cut;

    memcpy(&cut, reader->bytes, sizeof cut);
    if (!reader->has_cover)
        *cover =
            (KeyCover){ .n_bits = cut.n_bits, .is_range = cut.is_range != 0, .first = cut.first };
    reader->has_cover = true;
    if (cut.first_word != reader->n_cover_words || cut.n_bits != cover->n_bits ||
        (cut.is_range != 0) != cover->is_range || cut.first != cover->first ||
        head->n > key_cover_n_words(cut.n_bits) - cut.first_word ||
        (!cover->is_range && cut.n_bits == 0))
        return fail(reader, "does not go on where the set of keys ended", error);
    words = g_try_realloc_n(cover->words, cut.first_word + head->n + 1, sizeof *words);
    if (words == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory for a set of keys",
                    block_reader_path(reader->file));
        return false;
    }
    cover->words = words;
    if (head->n > 0)
        memcpy(words + cut.first_word, reader->bytes + sizeof cut, head->n * sizeof *words);
    key_cover_set_hash(cover);
    reader->n_cover_words = cut.first_word + head->n;
    return true;
}

static bool take_tuned(PartReader *reader, const RecordHead *head, GError **error)
{
    double value;

    memcpy(&value, reader->bytes, sizeof value);
    return reader->taker->tuned == NULL ||
           reader->taker->tuned(head->n, value, reader->taker->user_data, error);
}

static bool take_loss(PartReader *reader)
{
    LossRecord is;

    memcpy(&is, reader->bytes, sizeof is);
    if (reader->taker->loss != NULL)
        reader->taker->loss(&(RoundingLoss){ is.largest, is.sum_of_squares, is.n_values },
                            reader->taker->user_data);
    return true;
}

static bool take_admission(PartReader *reader, const RecordHead *head, GError **error)
{
    AdmissionHead cut;

    memcpy(&cut, reader->bytes, sizeof cut);
    const PartAdmission admission = {
        .n_all = cut.n_all,
        .first = cut.first,
        .n = head->n,
        .words = (const uint64_t *)(const void *)(reader->bytes + sizeof cut),
    };

    if (head->n == 0 || cut.first > cut.n_all || head->n > cut.n_all - cut.first)
        return fail(reader, "has words beyond those that there are", error);
    return reader->taker->admission == NULL ||
           reader->taker->admission(&admission, reader->taker->user_data, error);
}

/* *ends: its rows are not wanted, and neither is what follows. */
static bool read_record(PartReader *reader, bool *ends, GError **error)
{
    RecordHead head;

    if (!block_reader_read(reader->file, &head, sizeof head, error))
        return false;
    if (head.kind >> ROUNDING_SHIFT > ROUNDING_8BIT)
        return fail(reader, "is of no known kind", error);
    reader->rounded = find_rounded(&reader->shape, (Rounding)(head.kind >> ROUNDING_SHIFT));
    head.kind &= (1u << ROUNDING_SHIFT) - 1;
    if (!check_head(reader, &head, error))
        return false;
    *ends = reader->taker->ends_at_rows && has_rows_in(&head);
    if (*ends)
        return true;
    if (!find_bytes(reader, (size_t)head.n_bytes, error))
        return false;
    if (head.kind == RECORD_TUNED)
        return take_tuned(reader, &head, error);
    if (head.kind == RECORD_COVER)
        return take_cover(reader, &head, error);
    if (head.kind == RECORD_ADMISSION)
        return take_admission(reader, &head, error);
    if (head.kind == RECORD_LOSS)
        return take_loss(reader);
    reader->n_rows += head.n;
    switch (head.kind) {
    case RECORD_RAGGED:
        return take_ragged(reader, &head, error);
    case RECORD_PICKED:
        return take_picked(reader, &head, error);
    default:
        return take_even(reader, &head, error);
    }
}

/* Whether all rows have come, as far as this file tells. */
static bool check_end(const PartReader *reader, const PartFile *file, GError **error)
{
    if (block_reader_number(reader->file) != file->n_rows ||
        (reader->cover == NULL && reader->n_rows != file->n_rows))
        return fail(reader, "is the last one, and others are missing", error);
    if (reader->cover != NULL && !is_cover_whole(reader))
        return fail(reader, "is the last one, and the set of keys is not whole", error);
    return true;
}

bool part_rows_read(const PartFile *file, const PartTaker *taker, KeyCover *cover, GError **error)
{
    g_autoptr(BlockReader) blocks = block_reader_new(file->path, file->seed, &file->sum, error);
    PartReader reader = { .file = blocks, .shape = file->shape, .taker = taker, .cover = cover };
    bool at_end = false, ends = false, ok = blocks != NULL;

    if (cover != NULL)
        *cover = (KeyCover){ .n_bits = 0 };
    while (ok && !at_end && !ends) {
        ok = block_reader_at_end(blocks, &at_end, error);
        if (ok && !at_end)
            ok = read_record(&reader, &ends, error);
    }
    ok = ok && (ends || check_end(&reader, file, error));
    if (!ok && cover != NULL)
        key_cover_clear(cover);
    g_clear_pointer(&reader.picked, g_array_unref);
    g_free(reader.memory);
    g_free(reader.values);
    return ok;
}
