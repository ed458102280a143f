/* Records of requests to ragged rows.
 *
 * What such a request brings, or sees, is a run of bytes: its keys, a length for each of them, and
 * values, or a hash of each row that was read. It is cut into records that fit into a chunk.
 *
 * Thread: the stream's user. */
#include <string.h>

#include <rubato/mix.h>

#include "io/history/history_private.h"

/* What follows the header of a request's record. */
typedef struct {
    uint32_t op, part;
    uint64_t number;
    uint64_t at, n_bytes; /* where these bytes begin among the request's; how many it has */
} RaggedHeader;

#define MOST_BYTES (HISTORY_RECORD_MOST_BYTES - sizeof(RaggedHeader))

/* What follows the header of what a server has run. */
typedef struct {
    uint32_t epoch, rank, part, zero;
    uint64_t order, row_bytes;
} RanHeader;

/* Some of a request's bytes; zeros pad them to a multiple of 8. */
typedef struct {
    const void *bytes;
    size_t n;
} Segment;

enum { KEYS, LENGTHS, VALUES, N_SEGMENTS };

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

/* Of words of 8 bytes, the last one padded with zeros, and then of the number of bytes. */
static uint64_t hash_of_row(const uint8_t *row, size_t n)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15), word;
    size_t left = n;

    for (; left >= sizeof word; row += sizeof word, left -= sizeof word) {
        memcpy(&word, row, sizeof word);
        hash = rubato_mix64(hash ^ word);
    }
    if (left > 0) {
        word = 0;
        memcpy(&word, row, left);
        hash = rubato_mix64(hash ^ word);
    }
    return rubato_mix64(hash ^ n);
}

/* ---- what a request has ---- */

static size_t bytes_of_row(const HistoryStream *stream, const HistoryRagged *request, size_t i)
{
    uint32_t length;

    memcpy(&length, (const uint8_t *)request->lengths + i * sizeof length, sizeof length);
    return length * rubato_dtype_size(history_stream_dtype(stream));
}

/* (transfer full) */
static uint64_t *hash_rows(const HistoryStream *stream, const HistoryRagged *request)
{
    uint64_t *const hashes = g_new(uint64_t, request->keys.n);
    const uint8_t *row = request->rows;

    for (size_t i = 0; i < request->keys.n; i++) {
        const size_t n = bytes_of_row(stream, request, i);

        hashes[i] = hash_of_row(row, n);
        if (n > 0) /* without values there may be no memory */
            row += n;
    }
    return hashes;
}

static size_t bytes_of_rows(const HistoryStream *stream, const HistoryRagged *request)
{
    size_t n = 0;

    for (size_t i = 0; i < request->keys.n; i++)
        n += bytes_of_row(stream, request, i);
    return n;
}

/* Of a selection. (transfer full) */
static RubatoKey *copy_keys(const RubatoKeys *keys)
{
    RubatoKey *const copy = g_new(RubatoKey, keys->n);

    for (size_t i = 0; i < keys->n; i++)
        copy[i] = keys->keys[keys->at[i]];
    return copy;
}

/* Copies the request's bytes from `at` on, and zeros between them. */
static void copy_bytes(const Segment *segments, size_t at, uint8_t *to, size_t n)
{
    for (size_t begin = 0, i = 0; i < N_SEGMENTS; begin += padded(segments[i++].n)) {
        const size_t end = begin + segments[i].n, first = MAX(at, begin), last = MIN(at + n, end);

        if (first < last)
            memcpy(to + (first - at), (const uint8_t *)segments[i].bytes + (first - begin),
                   last - first);
        if (end < at + n && padded(end) > at) /* a whole word begins and ends a piece */
            memset(to + (end - at), 0, padded(end) - end);
    }
}

static void put_request(HistoryStream *stream, const HistoryRagged *request,
                        const Segment *segments)
{
    RaggedHeader header = { .op = (uint32_t)request->op,
                            .part = request->part,
                            .number = request->number };
    const HistoryRecord record = {
        .kind = HISTORY_RAGGED,
        .flags = request->flags | (request->keys.keys == NULL ? HISTORY_RUN_OF_KEYS : 0),
        .clock = request->clock,
        .n_adds = request->n_adds,
    };

    for (size_t i = 0; i < N_SEGMENTS; i++)
        header.n_bytes += padded(segments[i].n);
    do {
        const size_t n = (size_t)MIN(header.n_bytes - header.at, MOST_BYTES);
        uint8_t *const to = history_stream_put(stream, &record, request->keys.n, sizeof header + n);

        memcpy(to, &header, sizeof header);
        copy_bytes(segments, (size_t)header.at, to + sizeof header, n);
        header.at += n;
    } while (header.at < header.n_bytes);
}

void history_note_ragged(HistoryStream *stream, const HistoryRagged *request)
{
    const RubatoKeys *const keys = &request->keys;
    g_autofree RubatoKey *selected = keys->at != NULL ? copy_keys(keys) : NULL;
    g_autofree uint64_t *hashes = NULL;
    Segment segments[N_SEGMENTS] = { 0 };

    segments[KEYS] =
        keys->keys == NULL
            ? (Segment){ &keys->first, MIN(keys->n, 1) * sizeof(RubatoKey) }
            : (Segment){ selected != NULL ? selected : keys->keys, keys->n * sizeof(RubatoKey) };
    if (request->lengths != NULL)
        segments[LENGTHS] = (Segment){ request->lengths, keys->n * sizeof(uint32_t) };
    if (request->op == HISTORY_RAGGED_GET) {
        hashes = hash_rows(stream, request);
        segments[VALUES] = (Segment){ hashes, keys->n * sizeof *hashes };
    } else if (request->rows != NULL) {
        segments[VALUES] = (Segment){ request->rows, bytes_of_rows(stream, request) };
    }
    put_request(stream, request, segments);
}

/* ---- what a server has run ---- */

void history_note_ragged_ran(HistoryStream *stream, const HistoryApplied *applied, unsigned flags,
                             uint64_t order, uint64_t row_bytes)
{
    const RanHeader who = { applied->epoch, applied->rank, applied->part, 0, order, row_bytes };
    const HistoryRecord record = { .kind = HISTORY_RAGGED_RAN,
                                   .flags = flags,
                                   .clock = applied->clock,
                                   .n_adds = applied->number };

    memcpy(history_stream_put(stream, &record, /* n_keys= */ 0, sizeof who), &who, sizeof who);
}
