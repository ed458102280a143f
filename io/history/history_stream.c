/* Records, and the chunk that a stream fills.
 *
 * A call with many keys becomes several records, so that each fits into a chunk. Keys that are
 * those of the record before are not written again. Nor does a Clock become a record, if a Get or
 * an Add of that clock comes next, which tells it.
 *
 * A stream that is flushed once is flushed often. From then on its chunks are mapped slots, where
 * nothing is left to do for that. Zeros follow the last record there. So a record is without its
 * kind, which is not zero, until the rest of it is written: the process may be killed between.
 *
 * Thread: the stream's user. */
#include <string.h>

#include <rubato/mix.h>
#include <rubato/vector_clones.h>

#include "io/history/history_mapped.h"

#define MOST_NAME_BYTES 256

#define LINE_BYTES 64
#define MOST_FETCHED_BYTES 2048u /* of the next record; the rest comes when it is written */

/* The line with the address comes, to be written. It is neither read nor changed. */
static inline void fetch_to_write(const uint8_t *address)
{
#if defined(__x86_64__)
    /* the builtin of a portable build would let other processors keep their copies */
    __asm__ volatile("prefetchw %0" : : "m"(*address));
#else
    __builtin_prefetch(address, /* rw= */ 1);
#endif
}

struct HistoryStream {
    History *history;
    HistoryIdentity identity;
    size_t row_bytes;
    size_t noted_bytes;  /* of a row */
    size_t most_keys;    /* of a record */
    bool is_kept;        /* chunks are slots, if these can be had */
    HistoryChunk *chunk; /* at most one of the two: is begun */
    HistorySlot *slot;
    uint8_t *bytes; /* of it; NULL: none is begun */
    size_t used, n_bytes;
    HistoryRecordHeader *open; /* the last record, which lacks its kind; NULL: it has it */
    uint8_t open_kind;
    bool has_clock;         /* a Clock is to be told */
    uint64_t clock, n_adds; /* of that */
    const uint64_t *keys;   /* in the chunk: of the last record with keys; NULL: none */
    size_t n_keys;
    bool is_run;
};

HistoryStream *history_stream_new(History *history, const HistoryIdentity *identity)
{
    HistoryStream *stream;

    if (history == NULL)
        return NULL;
    if (identity->rank != HISTORY_SERVER) /* which asks nothing */
        history_begin_requests(history);
    stream = g_new0(HistoryStream, 1);
    stream->history = history;
    stream->identity = *identity;
    stream->row_bytes = rubato_dtype_size(identity->dtype) * identity->width;
    stream->noted_bytes = history_noted_bytes(stream->row_bytes);
    stream->most_keys = (HISTORY_CHUNK_BYTES / 2 - sizeof(HistoryRecordHeader)) /
                        (sizeof(uint64_t) + stream->noted_bytes);
    return stream;
}

static HistoryChunkHeader header_of(const HistoryStream *stream)
{
    const HistoryIdentity *const identity = &stream->identity;

    return (HistoryChunkHeader){ .magic = HISTORY_CHUNK_MAGIC,
                                 .n_bytes = (uint32_t)stream->used,
                                 .epoch = identity->epoch,
                                 .rank = identity->rank,
                                 .table = identity->table,
                                 .dtype = (uint32_t)identity->dtype,
                                 .width = identity->width };
}

static void set_kind(HistoryRecordHeader *header, uint8_t kind)
{
    history_order_stores();
    header->kind = kind;
    history_order_stores();
}

static void end_record(HistoryStream *stream)
{
    if (stream->open != NULL)
        set_kind(stream->open, stream->open_kind);
    stream->open = NULL;
}

static void give_chunk(HistoryStream *stream)
{
    end_record(stream);
    if (stream->slot != NULL)
        history_mapped_give(stream->slot);
    if (stream->chunk != NULL) {
        stream->chunk->header = header_of(stream);
        history_give_chunk(stream->history, stream->chunk);
    }
    stream->slot = NULL;
    stream->chunk = NULL;
    stream->bytes = NULL;
    stream->keys = NULL;
}

static void take_chunk(HistoryStream *stream)
{
    const HistoryChunkHeader header = header_of(stream);

    stream->used = 0;
    if (stream->is_kept)
        stream->slot = history_take_slot(stream->history, &header);
    if (stream->slot != NULL) {
        stream->bytes = stream->slot->bytes;
        stream->n_bytes = sizeof stream->slot->bytes;
        return;
    }
    stream->chunk = history_take_chunk(stream->history);
    stream->bytes = stream->chunk->bytes;
    stream->n_bytes = sizeof stream->chunk->bytes;
}

static void make_room(HistoryStream *stream, size_t n_bytes)
{
    if (stream->bytes != NULL && stream->n_bytes - stream->used >= n_bytes)
        return;
    give_chunk(stream);
    take_chunk(stream);
}

/* The weight of column i in the number that stands for a row: odd for integers, from 1 to 2 for
 * floats. A sum of rows has the sum of their numbers. */
static uint64_t weight_of(uint32_t i)
{
    return rubato_mix64(i + 1) | 1;
}

static double real_weight_of(uint32_t i)
{
    return 1 + (double)(weight_of(i) >> 12) * 0x1p-52;
}

static void put_number(const HistoryStream *stream, const uint8_t *row, uint8_t *to)
{
    const uint32_t width = stream->identity.width;
    uint64_t whole = 0;
    double real = 0;

    for (uint32_t i = 0; i < width; i++) {
        float f32;
        double f64;
        int32_t i32;
        int64_t i64;

        switch (stream->identity.dtype) {
        case RUBATO_F32:
            memcpy(&f32, row + 4 * i, 4);
            real += real_weight_of(i) * (double)f32;
            break;
        case RUBATO_F64:
            memcpy(&f64, row + 8 * (size_t)i, 8);
            real += real_weight_of(i) * f64;
            break;
        case RUBATO_I32:
            memcpy(&i32, row + 4 * i, 4);
            whole += weight_of(i) * (uint64_t)(int64_t)i32;
            break;
        case RUBATO_I64:
            memcpy(&i64, row + 8 * (size_t)i, 8);
            whole += weight_of(i) * (uint64_t)i64;
            break;
        case RUBATO_U8:  /* in ragged rows alone, which have other records */
        case RUBATO_F16: /* the rest: of tensors alone */
        case RUBATO_BF16:
        case RUBATO_I8:
        case RUBATO_I16:
        case RUBATO_BOOL:
            break;
        }
    }
    if (stream->identity.dtype == RUBATO_F32 || stream->identity.dtype == RUBATO_F64)
        memcpy(to, &real, 8);
    else
        memcpy(to, &whole, 8);
}

/* Keys that are compared before a difference ends it. */
#define COMPARED_AT_ONCE ((size_t)128)

/* Not 0 if they are not the same. No early exit: several are compared at once. */
RUBATO_VECTOR_CLONES static uint64_t find_differences(const uint64_t *some, const uint64_t *others,
                                                      size_t n)
{
    uint64_t found = 0;

    for (size_t i = 0; i < n; i++)
        found |= some[i] ^ others[i];
    return found;
}

static bool are_same(const uint64_t *some, const uint64_t *others, size_t n)
{
    if (some[0] != others[0] || some[n - 1] != others[n - 1]) /* as most lists that differ */
        return false;
    for (size_t i = 0; i < n; i += COMPARED_AT_ONCE)
        if (find_differences(some + i, others + i, MIN(n - i, COMPARED_AT_ONCE)) != 0)
            return false;
    return true;
}

/* n > 0. */
static bool has_same_keys(const HistoryStream *stream, const RubatoKeys *keys, size_t begin,
                          size_t n)
{
    if (stream->keys == NULL || stream->n_keys != n || stream->is_run != (keys->keys == NULL))
        return false;
    return keys->keys == NULL ? stream->keys[0] == keys->first + begin
                              : are_same(stream->keys, keys->keys + begin, n);
}

static uint8_t *put_keys(HistoryStream *stream, uint8_t *at, const RubatoKeys *keys, size_t begin,
                         size_t n)
{
    stream->keys = (const uint64_t *)(void *)at;
    stream->n_keys = n;
    stream->is_run = keys->keys == NULL;
    if (keys->keys == NULL) {
        const uint64_t first = keys->first + begin;

        memcpy(at, &first, sizeof first);
        return at + sizeof first;
    }
    memcpy(at, keys->keys + begin, n * sizeof(RubatoKey));
    return at + n * sizeof(RubatoKey);
}

/* The memory of the next record, which will be about as long as this one, comes to this processor
 * while the worker does its next request: it was last at the one that wrote it to the file. */
static void fetch_next(const HistoryStream *stream, size_t n_bytes)
{
    const size_t end = MIN(stream->n_bytes, stream->used + MIN(n_bytes, MOST_FETCHED_BYTES));

    for (size_t at = stream->used; at < end; at += LINE_BYTES)
        fetch_to_write(&stream->bytes[at]);
}

static void put_rows(const HistoryStream *stream, const uint8_t *rows, size_t n, uint8_t *at)
{
    const size_t n_bytes = n * stream->noted_bytes;

    if (stream->noted_bytes == stream->row_bytes)
        memcpy(at, rows, n_bytes);
    else
        for (size_t i = 0; i < n; i++)
            put_number(stream, rows + i * stream->row_bytes, at + 8 * i);
    if (n_bytes % 8 != 0)
        memset(at + n_bytes, 0, 8 - n_bytes % 8);
}

/* One record of the call's keys from `begin` on. */
static void note_piece(HistoryStream *stream, const HistoryRecord *record, unsigned flags,
                       const RubatoKeys *keys, size_t begin, size_t n)
{
    const bool is_run = keys->keys == NULL;
    const size_t n_stored = is_run ? MIN(n, 1) : n;
    const size_t rows_bytes = record->rows == NULL ? 0 : (n * stream->noted_bytes + 7) / 8 * 8;

    end_record(stream);
    make_room(stream, sizeof(HistoryRecordHeader) + n_stored * sizeof(RubatoKey) + rows_bytes);
    HistoryRecordHeader *const header =
        (HistoryRecordHeader *)(void *)(stream->bytes + stream->used);
    uint8_t *at = (uint8_t *)(header + 1);
    const bool same = n > 0 && has_same_keys(stream, keys, begin, n);

    /* all of its fields, so that it is not cleared before */
    *header = (HistoryRecordHeader){
        .kind = 0,
        .flags =
            (uint8_t)(flags | (is_run ? HISTORY_RUN_OF_KEYS : 0) | (same ? HISTORY_SAME_KEYS : 0)),
        .zero = 0,
        .n_keys = (uint32_t)n,
        .clock = record->clock,
        .n_adds = record->n_adds,
        .n_bytes = (same ? 0 : n_stored * sizeof(RubatoKey)) + rows_bytes,
    };
    if (n > 0 && !same)
        at = put_keys(stream, at, keys, begin, n);
    if (rows_bytes > 0)
        put_rows(stream, (const uint8_t *)record->rows + begin * stream->row_bytes, n, at);
    const size_t n_bytes = sizeof *header + header->n_bytes;
    set_kind(header, (uint8_t)record->kind);
    stream->used += n_bytes;
    fetch_next(stream, n_bytes);
}

static const RubatoKeys no_keys = { .n = 0 };

static void tell_clock(HistoryStream *stream)
{
    if (!stream->has_clock)
        return;
    stream->has_clock = false;
    note_piece(
        stream,
        &(HistoryRecord){ .kind = HISTORY_CLOCK, .clock = stream->clock, .n_adds = stream->n_adds },
        /* flags= */ 0, &no_keys, 0, 0);
}

/* Of a record that may follow a Clock. */
static unsigned flags_of(HistoryStream *stream, const HistoryRecord *record)
{
    if (!stream->has_clock)
        return record->flags;
    if (record->clock == stream->clock &&
        (record->kind == HISTORY_GET || record->kind == HISTORY_ADD)) {
        stream->has_clock = false;
        return record->flags | HISTORY_CLOCKED;
    }
    tell_clock(stream);
    return record->flags;
}

void history_note(HistoryStream *stream, const HistoryRecord *record)
{
    const RubatoKeys *const keys = record->keys != NULL ? record->keys : &no_keys;
    unsigned flags = flags_of(stream, record);
    size_t begin = 0;

    if (record->kind == HISTORY_CLOCK && !stream->is_kept) {
        stream->has_clock = true;
        stream->clock = record->clock;
        stream->n_adds = record->n_adds;
        return;
    }
    do {
        const size_t n = MIN(keys->n - begin, stream->most_keys);

        note_piece(stream, record, flags, keys, begin, n);
        flags = record->flags;
        begin += n;
    } while (begin < keys->n);
}

uint8_t *history_stream_put(HistoryStream *stream, const HistoryRecord *record, size_t n_keys,
                            size_t n_bytes)
{
    tell_clock(stream);
    end_record(stream);
    make_room(stream, sizeof(HistoryRecordHeader) + n_bytes);
    HistoryRecordHeader *const header =
        (HistoryRecordHeader *)(void *)(stream->bytes + stream->used);

    *header = (HistoryRecordHeader){ .flags = (uint8_t)record->flags,
                                     .n_keys = (uint32_t)n_keys,
                                     .clock = record->clock,
                                     .n_adds = record->n_adds,
                                     .n_bytes = n_bytes };
    stream->open = header;
    stream->open_kind = (uint8_t)record->kind;
    stream->used += sizeof *header + n_bytes;
    return (uint8_t *)(header + 1);
}

void history_stream_hand_over(HistoryStream *stream)
{
    if (stream == NULL)
        return;
    tell_clock(stream);
    give_chunk(stream);
}

void history_stream_free(HistoryStream *stream)
{
    history_stream_hand_over(stream);
    g_free(stream);
}

RubatoDtype history_stream_dtype(const HistoryStream *stream)
{
    return stream->identity.dtype;
}

/* FNV-1a. */
static uint64_t hash_of(const uint8_t *bytes, size_t n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

void history_note_handler(HistoryStream *stream, const HistoryRecord *record, const char *handler,
                          const void *result, size_t n_bytes)
{
    const uint64_t hash = hash_of(result, n_bytes);
    const size_t length = strlen(handler);
    const size_t name_bytes = MIN(length, MOST_NAME_BYTES);
    const size_t padded = (name_bytes + 7) / 8 * 8;

    uint8_t *const at = history_stream_put(stream,
                                           &(HistoryRecord){ .kind = HISTORY_HANDLER,
                                                             .flags = record->flags,
                                                             .clock = record->clock,
                                                             .n_adds = record->n_adds },
                                           /* n_keys= */ 0, sizeof hash + padded);
    memcpy(at, &hash, sizeof hash);
    memset(at + sizeof hash, 0, padded);
    memcpy(at + sizeof hash, handler, name_bytes);
    history_note(stream, record);
}

/* ---- what a server has applied ---- */

/* What follows the header of such a record. */
typedef struct {
    uint32_t epoch, rank, part;
    uint32_t place; /* among the records of this call */
} AppliedHeader;

/* The record without what follows. Returns where that goes. */
static uint8_t *begin_applied(HistoryStream *stream, const HistoryApplied *applied, unsigned flags,
                              uint32_t place, size_t n_keys, size_t n_bytes)
{
    const AppliedHeader who = { applied->epoch, applied->rank, applied->part, place };

    const HistoryRecord record = {
        .kind = HISTORY_APPLIED, .flags = flags, .clock = applied->clock, .n_adds = applied->number
    };
    uint8_t *const at = history_stream_put(stream, &record, n_keys, sizeof who + n_bytes);

    memcpy(at, &who, sizeof who);
    return at + sizeof who;
}

/* Its keys are not those that a later record may leave out: no other kind is in the stream. */
static void note_applied_piece(HistoryStream *stream, const HistoryApplied *applied,
                               const RubatoKeys *keys, size_t begin, size_t n,
                               const unsigned char *rows, uint32_t place)
{
    const bool is_run = keys->keys == NULL;
    const size_t key_bytes = (is_run ? 1 : n) * sizeof(RubatoKey);
    const size_t rows_bytes = 2 * n * stream->noted_bytes, padded = (rows_bytes + 7) / 8 * 8;
    uint8_t *at = begin_applied(stream, applied, is_run ? HISTORY_RUN_OF_KEYS : 0, place, n,
                                key_bytes + padded);

    at = put_keys(stream, at, keys, begin, n);
    stream->keys = NULL;
    if (stream->noted_bytes == stream->row_bytes)
        memcpy(at, rows, rows_bytes);
    else
        for (size_t i = 0; i < 2 * n; i++)
            put_number(stream, rows + i * stream->row_bytes, at + 8 * i);
    memset(at + rows_bytes, 0, padded - rows_bytes);
}

void history_note_applied(HistoryStream *stream, const HistoryApplied *applied,
                          const RubatoKeys *keys, const void *rows, uint32_t *n_records)
{
    const size_t most = stream->most_keys / 2;

    for (size_t begin = 0; begin < keys->n; begin += most)
        note_applied_piece(stream, applied, keys, begin, MIN(keys->n - begin, most),
                           (const unsigned char *)rows + 2 * begin * stream->row_bytes,
                           (*n_records)++);
}

void history_note_applied_end(HistoryStream *stream, const HistoryApplied *applied, unsigned flags,
                              uint32_t n_records)
{
    (void)begin_applied(stream, applied, flags | HISTORY_LAST, n_records, 0, 0);
}

void history_stream_flush(HistoryStream *stream)
{
    end_record(stream);
    stream->is_kept = true;
    if (stream->chunk == NULL) /* what there was is in a slot */
        return;
    history_stream_hand_over(stream);
    history_flush(stream->history);
}
