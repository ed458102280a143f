/* See the header. Only what is made very often is packed: requests to rows of one length, Clocks
 * and announcements. All other records stay as they are.
 *
 * A packed record has no more bytes than a plain one: of the 32 bytes of its header it needs at
 * most 27, and keys and values in any form are no longer than they were. */
#include "io/history/history_pack.h"

#include <string.h>

#include "io/history/history_forms.h"

/* What it is, its flags, and the forms of its keys and rows. Three numbers follow: of 3 bytes, and
 * twice of at most 10. */
#define PACKED_HEADER_BYTES ((size_t)4)

/* What is left to be read, what is written, and what records tell by a difference. */
typedef struct {
    HistoryChunkHeader of;
    const uint8_t *from, *end;
    uint8_t *to;
    uint64_t clock, n_adds; /* of the packed record before; 0: there is none */
} Packer;

/* 7 bits a byte, the lowest first; the highest bit tells that there are more. */
static uint8_t *put_varint(uint8_t *to, uint64_t number)
{
    for (; number > 0x7f; number >>= 7)
        *to++ = (uint8_t)(number | 0x80);
    *to++ = (uint8_t)number;
    return to;
}

/* Twice what it has more than the one before; if it has less, one less than twice that. */
static uint8_t *put_step(uint8_t *to, uint64_t *last, uint64_t now)
{
    const uint64_t step = now - *last;

    *last = now;
    return put_varint(to, step << 1 ^ (step >> 63 == 0 ? 0 : UINT64_MAX));
}

static bool is_to_pack(const HistoryRecordHeader *record)
{
    switch ((HistoryKind)record->kind) {
    case HISTORY_GET:
    case HISTORY_ADD:
    case HISTORY_SET:
    case HISTORY_CLOCK:
    case HISTORY_ANNOUNCE:
    case HISTORY_TUNE:
    case HISTORY_RETIRE:
    case HISTORY_HANDLER_KEYS:
    case HISTORY_HANDLER_PARTS:
        return true;
    case HISTORY_HANDLER:
    case HISTORY_APPLIED:
    case HISTORY_RAGGED:
    case HISTORY_RAGGED_RAN:
        break;
    }
    return false;
}

static uint8_t *put_keys(uint8_t *to, const HistoryRecordHeader *record, const uint8_t *keys,
                         HistoryKeysForm *form)
{
    *form = HISTORY_KEYS_PLAIN;
    if (!(record->flags & HISTORY_RUN_OF_KEYS))
        return history_put_keys((const uint64_t *)(const void *)keys, record->n_keys, to, form);
    memcpy(to, keys, sizeof(RubatoKey));
    return to + sizeof(RubatoKey);
}

static uint8_t *put_rows(const Packer *packer, uint8_t *to, uint32_t n, const uint8_t *rows,
                         HistoryRowsForm *form)
{
    const RubatoDtype dtype = (RubatoDtype)packer->of.dtype;
    const size_t row_bytes = rubato_dtype_size(dtype) * packer->of.width;

    if (row_bytes <= HISTORY_MOST_ROW_BYTES)
        return history_put_values(dtype, rows, (size_t)n * packer->of.width, to, form);
    *form = HISTORY_ROWS_PLAIN; /* numbers, which look random */
    memcpy(to, rows, (size_t)n * 8);
    return to + (size_t)n * 8;
}

static void pack_record(Packer *packer, const HistoryRecordHeader *record)
{
    const bool is_same = record->flags & HISTORY_SAME_KEYS;
    const bool is_run = record->flags & HISTORY_RUN_OF_KEYS;
    const size_t n_stored = is_same ? 0 : is_run ? MIN(record->n_keys, 1) : record->n_keys;
    const size_t key_bytes = n_stored * sizeof(RubatoKey);
    const uint8_t *const body = (const uint8_t *)(record + 1);
    uint8_t *const header = packer->to;
    HistoryKeysForm keys_form = HISTORY_KEYS_PLAIN;
    HistoryRowsForm rows_form = HISTORY_ROWS_NONE;
    uint8_t *to = header + PACKED_HEADER_BYTES;

    to = put_varint(to, record->n_keys);
    to = put_step(to, &packer->clock, record->clock);
    to = put_step(to, &packer->n_adds, record->n_adds);
    if (key_bytes > 0)
        to = put_keys(to, record, body, &keys_form);
    if (record->n_bytes > key_bytes)
        to = put_rows(packer, to, record->n_keys, body + key_bytes, &rows_form);
    header[0] = record->kind | HISTORY_PACKED;
    header[1] = record->flags;
    header[2] = (uint8_t)keys_form;
    header[3] = (uint8_t)rows_form;
    for (; (to - header) % 8 != 0; to++)
        *to = 0;
    packer->to = to;
}

void history_pack_chunk(const HistoryChunk *chunk, HistoryChunk *packed)
{
    Packer packer = { .of = chunk->header,
                      .from = chunk->bytes,
                      .end = chunk->bytes + chunk->header.n_bytes,
                      .to = packed->bytes };

    while (packer.from < packer.end) {
        const HistoryRecordHeader *const record =
            (const HistoryRecordHeader *)(const void *)packer.from;
        const size_t n = sizeof *record + record->n_bytes;

        if (is_to_pack(record)) {
            pack_record(&packer, record);
        } else {
            memcpy(packer.to, record, n);
            packer.to += n;
        }
        packer.from += n;
    }
    packed->header = chunk->header;
    packed->header.n_bytes = (uint32_t)(packer.to - packed->bytes);
}
