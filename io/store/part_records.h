/* What a record of a part's file begins with; see part_rows.h.
 *
 * Threads: any. */
#ifndef RUBATO_IO_STORE_PART_RECORDS_H
#define RUBATO_IO_STORE_PART_RECORDS_H

#include "io/store/part_rows.h"

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

/* How rows of that shape are rounded. */
static inline RoundedRows part_records_rounded(const PartShape *shape, Rounding rounding)
{
    return (RoundedRows){ .rounding = rounding,
                          .width = shape->row_bytes / MAX(1, shape->value_bytes),
                          .value_bytes = shape->value_bytes };
}

static inline uint64_t part_records_ragged_values(const RubatoSnapshotRows *rows)
{
    uint64_t n_values = 0;

    for (size_t i = 0; i < rows->n; i++)
        n_values += rows->lengths[i];
    return n_values;
}

/* Bytes of the lengths of n rows, with what keeps the values behind them aligned. */
static inline uint64_t part_records_lengths_bytes(uint64_t n)
{
    return (n * sizeof(uint32_t) + 7) / 8 * 8;
}

#endif
