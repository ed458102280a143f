/* The rows of a table in the memory of a follower, and what a version changes in them.
 *
 * A change is made aside, from the files of a version. version_change_swap then exchanges its rows
 * with those of the table, which cannot fail, and the change has what was there before. So the same
 * call takes the table back.
 *
 * Threads: one at a time; but version_rows_find may run in others, except during
 * version_change_swap. */
#ifndef RUBATO_IO_STREAM_VERSION_ROWS_H
#define RUBATO_IO_STREAM_VERSION_ROWS_H

#include <rubato/snapshot.h>

#include "io/store/key_cover.h"

typedef struct VersionRows VersionRows;

typedef struct {
    size_t row_bytes;   /* 0: rows of different lengths */
    size_t value_bytes; /* of a value */
    bool is_range;      /* first .. first + n_keys - 1, which all have rows of one length */
    RubatoKey first;
    uint64_t n_keys;
} VersionShape;

/* A table without rows; of a range all rows are zeros. RUBATO_ERROR_MEMORY; _FORMAT: the range has
 * more keys than can be. (transfer full) */
VersionRows *version_rows_new(const VersionShape *shape, GError **error);
void version_rows_free(VersionRows *rows); /* NULL is allowed */

/* Puts rows of a part into a table that nobody else knows yet. RUBATO_ERROR_MEMORY; _FORMAT: a key
 * is not of the table. */
bool version_rows_put(VersionRows *rows, uint32_t part, const RubatoSnapshotRows *put,
                      GError **error);

uint64_t version_rows_n(const VersionRows *rows);

/* The values of a key, and how many these are; NULL: it has no row. */
const void *version_rows_find(const VersionRows *rows, RubatoKey key, uint32_t *n_values);

/* ---- changes ---- */

typedef struct VersionChange VersionChange;

/* Of that table, with that many parts. It is freed before the table. (transfer full) */
VersionChange *version_change_new(VersionRows *rows, uint32_t n_parts);
void version_change_free(VersionChange *change); /* NULL is allowed */

/* Rows that come, or are as they are now. RUBATO_ERROR_MEMORY, _FORMAT. */
bool version_change_put(VersionChange *change, uint32_t part, const RubatoSnapshotRows *put,
                        GError **error);

/* Rows of the part that these keys have, and that do not come, go. NULL: all of the part that do
 * not come. (cover: transfer full, of what it points to) */
void version_change_cover(VersionChange *change, uint32_t part, KeyCover *cover);

/* All of it is there: finds the rows that go, and takes all the memory that swapping needs. n_rows:
 * of the table, with the change. RUBATO_ERROR_MEMORY; _FORMAT: it would have another number. */
bool version_change_finish(VersionChange *change, uint64_t n_rows, GError **error);

void version_change_swap(VersionChange *change);

/* What going back takes of memory, about: the rows as they were before. It is finished. */
size_t version_change_bytes(const VersionChange *change);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(VersionRows, version_rows_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VersionChange, version_change_free)

#endif
