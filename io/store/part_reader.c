/* Reads the records of a part. See part_rows.h. A reader takes nothing of a record before it knows
 * that its lengths agree with the table's: the blocks are what somebody wrote, but perhaps not this
 * library. */
#include <rubato/error.h>
#include <rubato/ragged_table.h>
#include <string.h>

#include "io/store/part_records.h"

/* The most bytes of rows in a record. */
#define MOST_BYTES (RUBATO_RAGGED_MOST_ROW_BYTES + ((size_t)1 << 20))

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
    const uint64_t n_heads = head->n * sizeof(RubatoKey) + part_records_lengths_bytes(head->n);
    const unsigned char *const lengths = reader->bytes + head->n * sizeof(RubatoKey);

    if (n_heads > head->n_bytes)
        return fail(reader, "has fewer lengths than rows", error);
    const RubatoSnapshotRows rows = { .keys = (const RubatoKey *)(const void *)reader->bytes,
                                      .n = head->n,
                                      .values = reader->bytes + n_heads,
                                      .lengths = (const uint32_t *)(const void *)lengths };
    if (part_records_ragged_values(&rows) * reader->shape.value_bytes != head->n_bytes - n_heads)
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
    reader->rounded = part_records_rounded(&reader->shape, (Rounding)(head.kind >> ROUNDING_SHIFT));
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
