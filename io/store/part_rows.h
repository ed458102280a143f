/* The file of a part in a snapshot: a block file whose stream is a sequence of records.
 *
 *   tuned   a hyper-parameter that was tuned, and its number
 *   run     rows of consecutive keys: the first key, values, state
 *   keyed   rows of any keys: keys, values, state
 *   ragged  rows of different lengths: keys, lengths, values
 *   loss    how far rounded values in the file are from those that were written, the last one
 *   admission
 *           some words from which the part answers which keys are given rows
 *
 * In a snapshot that holds changes alone there are also
 *
 *   cover   some words of the set of keys which the file covers (key_cover.h), before all rows
 *   picked  rows of some keys of a short range: the range, a bit for each key of it, values, state
 *
 * A record begins with its kind, the number of its rows and the bytes that follow. The kind of run,
 * keyed and picked rows whose values are rounded (rounding.h) has that 8 bits further up. The
 * number of the block file is the number of rows that the part has: those in the file, or with a
 * cover also those of the snapshots before that it does not cover.
 *
 * Threads: a writer and a reader belong to one thread at a time. */
#ifndef RUBATO_IO_STORE_PART_ROWS_H
#define RUBATO_IO_STORE_PART_ROWS_H

#include "io/store/block_file.h"
#include "io/store/key_cover.h"
#include "io/store/rounding.h"

/* About so many bytes of rows make a record: with what stands before them, four fill a block. One
 * row is written even if it is longer. */
#define PART_ROWS_BYTES (((size_t)256 << 10) - 64)

/* The same of rows that are read where they lie, so that no request waits for it: they and their
 * keys fill a block. */
#define PART_LENT_BYTES (BLOCK_FILE_MOST - 64)

/* What all rows of a part have in common. */
typedef struct {
    size_t row_bytes;   /* 0: rows of different lengths */
    size_t state_bytes; /* beside each row */
    size_t value_bytes;
    bool is_real; /* values are f32 or f64, so they may be rounded */
} PartShape;

/* Some words of what decides which keys of a part are given rows. */
typedef struct {
    uint64_t n_all; /* words that the part has */
    uint64_t first;
    size_t n; /* at least 1 */
    const uint64_t *words;
} PartAdmission;

/* The most words of it at a time. */
#define PART_ADMISSION_WORDS (PART_ROWS_BYTES / sizeof(uint64_t))

/* ---- writing ---- */

typedef struct PartWriter PartWriter;

/* (transfer full) */
PartWriter *part_writer_new(const char *path, uint64_t seed, RubatoPacking packing,
                            const PartShape *shape, GError **error);

/* As block_writer_leave_to_kernel. */
void part_writer_leave_to_kernel(PartWriter *writer);

/* As block_writer_hold. */
void part_writer_hold(PartWriter *writer, bool holds);

bool part_writer_tuned(PartWriter *writer, uint32_t hyper, double value, GError **error);
bool part_writer_admission(PartWriter *writer, const PartAdmission *admission, GError **error);
bool part_writer_rows(PartWriter *writer, const RubatoSnapshotRows *rows, GError **error);

/* What the rows had lost before. */
void part_writer_add_loss(PartWriter *writer, const RoundingLoss *loss);

/* Before all rows: they are those of these keys. n_rows: of the part. */
bool part_writer_cover(PartWriter *writer, const KeyCover *cover, uint64_t n_rows, GError **error);

/* As block_writer_end and those that follow it; only they may follow. */
bool part_writer_end(PartWriter *writer, GError **error);
bool part_writer_keeps_much(const PartWriter *writer);
bool part_writer_settle(PartWriter *writer, bool *has_more, GError **error);
bool part_writer_sync(PartWriter *writer, GError **error);
bool part_writer_finish(PartWriter *writer, GError **error);
void part_writer_free(PartWriter *writer); /* NULL is allowed */

/* ---- reading ---- */

/* Gets what is in a part. NULL functions: it is only checked. ends_at_rows: what lies behind the
 * first row, and in other files of a chain, is neither read nor checked. */
typedef struct {
    bool (*rows)(const RubatoSnapshotRows *rows, void *user_data, GError **error);
    bool (*tuned)(uint32_t hyper, double value, void *user_data, GError **error);
    bool (*admission)(const PartAdmission *admission, void *user_data, GError **error);
    void (*loss)(const RoundingLoss *loss, void *user_data);
    void *user_data;
    bool ends_at_rows;
} PartTaker;

/* The file of a part, as its manifest has it. */
typedef struct {
    const char *path;
    uint64_t seed;
    BlockFileSum sum;
    PartShape shape;
    uint64_t n_rows; /* that the part must have */
} PartFile;

/* Reads all of a file. cover: NULL if it must have all rows of the part; else set to what it
 * covers, for key_cover_clear. */
bool part_rows_read(const PartFile *file, const PartTaker *taker, KeyCover *cover, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(PartWriter, part_writer_free)

#endif
