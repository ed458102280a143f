/* See the header. Every size is checked against the bytes that are there, and every number of keys
 * against what a record may have, so that a wrong one does not ask for all memory. */
#include "apps/rubato/history/history_unpack.h"

#include <string.h>

enum {
    HEADER_BYTES = 4,
    MOST_KEYS = 1 << 13, /* a plain record of more does not fit into a chunk */
    BLOCK_BYTES = 1 << 20,
};

typedef enum {
    PACKED_KEYS_PLAIN,
    PACKED_KEYS_4,
    PACKED_KEYS_2,
    PACKED_KEYS_STEPS_4,
    PACKED_KEYS_STEPS_2,
    PACKED_KEYS_STEPS_1,
} PackedKeys;

typedef enum {
    PACKED_ROWS_NONE,
    PACKED_ROWS_PLAIN,
    PACKED_ROWS_ALIKE,
    PACKED_ROWS_WHOLE_1,
    PACKED_ROWS_WHOLE_2,
} PackedRows;

/* What is left of the chunk. */
typedef struct {
    const uint8_t *at, *end;
} Bytes;

static const char *const no_memory = "there is no memory for what it has";
static const char *const ends_behind = "a record ends behind its chunk";

/* NULL: there are not so many. */
static const uint8_t *take(Bytes *bytes, uint64_t n)
{
    const uint8_t *const at = bytes->at;

    if (n > (uint64_t)(bytes->end - at))
        return NULL;
    bytes->at += n;
    return at;
}

/* The number of some bytes, the lowest first. */
static uint64_t number_of(const uint8_t *at, unsigned n)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < n; i++)
        number |= (uint64_t)at[i] << (8 * i);
    return number;
}

static bool take_varint(Bytes *bytes, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *const at = take(bytes, 1);

        if (at == NULL)
            return false;
        *number |= (uint64_t)(*at & 0x7f) << shift;
        if (*at < 0x80)
            return true;
    }
    return false;
}

static bool take_step(Bytes *bytes, uint64_t *last)
{
    uint64_t step;

    if (!take_varint(bytes, &step))
        return false;
    *last += step >> 1 ^ (step & 1 ? UINT64_MAX : 0);
    return true;
}

/* Memory that stays until the file is closed, at a multiple of 8. NULL: there is none. */
static void *make_room(HistoryFile *file, size_t n_bytes)
{
    const size_t n = (n_bytes + 7) / 8 * 8;

    if (n > file->unpacked_left) {
        const size_t n_block = MAX(n, BLOCK_BYTES);
        uint8_t *const block = g_try_malloc(n_block);

        if (block == NULL)
            return NULL;
        if (file->unpacked == NULL)
            file->unpacked = g_ptr_array_new_with_free_func(g_free);
        g_ptr_array_add(file->unpacked, block);
        file->unpacked_at = block;
        file->unpacked_left = n_block;
    }
    void *const room = file->unpacked_at;
    file->unpacked_at += n;
    file->unpacked_left -= n;
    return room;
}

/* ---- keys ---- */

static const char *take_new_keys(HistoryFile *file, Bytes *bytes, unsigned form, bool run,
                                 Record *record)
{
    static const unsigned sizes[] = {
        [PACKED_KEYS_PLAIN] = 8,   [PACKED_KEYS_4] = 4,       [PACKED_KEYS_2] = 2,
        [PACKED_KEYS_STEPS_4] = 4, [PACKED_KEYS_STEPS_2] = 2, [PACKED_KEYS_STEPS_1] = 1
    };
    const size_t n = run ? 1 : record->n_keys;

    if (form >= G_N_ELEMENTS(sizes) || (run && form != PACKED_KEYS_PLAIN))
        return "its keys have a form that there is not";
    const bool are_steps = form >= PACKED_KEYS_STEPS_4;
    const unsigned size = sizes[form];
    const uint8_t *const first = are_steps ? take(bytes, 8) : NULL;
    const uint8_t *const at = take(bytes, (n - are_steps) * size);
    if (at == NULL || (are_steps && first == NULL))
        return ends_behind;
    uint64_t *const keys = make_room(file, n * sizeof *keys);
    if (keys == NULL)
        return no_memory;
    if (are_steps)
        keys[0] = number_of(first, 8);
    for (size_t i = are_steps; i < n; i++)
        keys[i] = are_steps ? keys[i - 1] + number_of(at + (i - 1) * size, size)
                            : number_of(at + i * size, size);
    record->keys = keys;
    return NULL;
}

static const char *take_keys(HistoryFile *file, RecordsBefore *before, Bytes *bytes, unsigned form,
                             Record *record)
{
    const unsigned run = record->flags & RECORD_RUN_OF_KEYS;

    if (record->n_keys == 0)
        return NULL;
    if (record->flags & RECORD_SAME_KEYS) {
        if (before->keys == NULL || before->n_keys != record->n_keys || before->run != run)
            return "it has the keys of a record that is not there";
        record->keys = before->keys;
        return NULL;
    }
    const char *const wrong = take_new_keys(file, bytes, form, run != 0, record);
    if (wrong != NULL)
        return wrong;
    before->keys = record->keys;
    before->n_keys = record->n_keys;
    before->run = run;
    return NULL;
}

/* ---- rows ---- */

/* The value that is a whole number. */
static void put_whole(RubatoDtype dtype, uint64_t whole, uint8_t *to)
{
    const double f64 = (double)(int64_t)whole;
    const float f32 = (float)(int32_t)(uint32_t)whole;
    const uint32_t low = (uint32_t)whole;

    if (dtype == RUBATO_F32)
        memcpy(to, &f32, sizeof f32);
    else if (dtype == RUBATO_F64)
        memcpy(to, &f64, sizeof f64);
    else if (dtype == RUBATO_I32)
        memcpy(to, &low, sizeof low);
    else
        memcpy(to, &whole, sizeof whole);
}

/* Of values that are all the same, or whole numbers in `size` bytes each (0: the same). */
static const char *take_values(HistoryFile *file, RubatoDtype dtype, Bytes *bytes, size_t n,
                               unsigned size, Record *record)
{
    const unsigned value_bytes = (unsigned)rubato_dtype_size(dtype);
    const uint8_t *const first = take(bytes, value_bytes);
    const uint8_t *const more = take(bytes, n * size);

    if (first == NULL || more == NULL)
        return ends_behind;
    uint8_t *const values = make_room(file, n * value_bytes);
    if (values == NULL)
        return no_memory;
    for (size_t i = 0; i < n; i++)
        if (size == 0)
            memcpy(values + i * value_bytes, first, value_bytes);
        else
            put_whole(dtype, number_of(first, value_bytes) + number_of(more + i * size, size),
                      values + i * value_bytes);
    record->rows = values;
    return NULL;
}

static const char *take_rows(HistoryFile *file, const RecordOwner *owner, Bytes *bytes,
                             unsigned form, Record *record)
{
    const size_t row_bytes = record_row_bytes(owner);
    const size_t n = record->n_keys;
    const bool are_numbers = row_bytes != rubato_dtype_size(owner->dtype) * owner->width;

    if (form == PACKED_ROWS_NONE)
        return NULL;
    if (form > PACKED_ROWS_WHOLE_2 || (form != PACKED_ROWS_PLAIN && are_numbers) ||
        owner->dtype > RUBATO_I64)
        return "its rows have a form that there is not";
    if (n == 0)
        return "its rows have another size";
    if (form == PACKED_ROWS_PLAIN) {
        record->rows = take(bytes, n * row_bytes);
        return record->rows == NULL ? ends_behind : NULL;
    }
    return take_values(file, owner->dtype, bytes, n * owner->width,
                       form == PACKED_ROWS_ALIKE     ? 0
                       : form == PACKED_ROWS_WHOLE_1 ? 1
                                                     : 2,
                       record);
}

/* ---- records ---- */

static const char *take_header(Bytes *bytes, RecordsBefore *before, Record *record, unsigned *forms)
{
    const uint8_t *const header = take(bytes, HEADER_BYTES);
    uint64_t n_keys;

    if (header == NULL || !take_varint(bytes, &n_keys) || !take_step(bytes, &before->clock) ||
        !take_step(bytes, &before->n_adds))
        return ends_behind;
    if (n_keys > MOST_KEYS)
        return "a record has more keys than it may have";
    *record = (Record){ .kind = (RecordKind)(header[0] & ~RECORD_PACKED),
                        .flags = header[1],
                        .n_keys = (uint32_t)n_keys,
                        .clock = before->clock,
                        .n_adds = before->n_adds };
    forms[0] = header[2];
    forms[1] = header[3];
    return NULL;
}

static bool can_be_packed(RecordKind kind)
{
    switch (kind) {
    case RECORD_GET:
    case RECORD_ADD:
    case RECORD_SET:
    case RECORD_CLOCK:
    case RECORD_ANNOUNCE:
    case RECORD_TUNE:
    case RECORD_RETIRE:
    case RECORD_HANDLER_KEYS:
    case RECORD_HANDLER_PARTS:
        return true;
    case RECORD_HANDLER:
    case RECORD_APPLIED:
    case RECORD_RAGGED:
    case RECORD_RAGGED_RAN:
        break;
    }
    return false;
}

const char *history_unpack(HistoryFile *file, const RecordOwner *owner, RecordsBefore *before,
                           const uint8_t **at, const uint8_t *end, Record *record)
{
    Bytes bytes = { *at, end };
    unsigned forms[2];
    const char *wrong = take_header(&bytes, before, record, forms);

    if (wrong == NULL && !can_be_packed(record->kind))
        wrong = "there is no such kind of record";
    if (wrong == NULL)
        wrong = take_keys(file, before, &bytes, forms[0], record);
    if (wrong == NULL)
        wrong = take_rows(file, owner, &bytes, forms[1], record);
    if (wrong == NULL && take(&bytes, (uint64_t)(*at - bytes.at) % 8) == NULL)
        wrong = ends_behind;
    *at = bytes.at;
    return wrong;
}
