/* The tables of a stream as they are at one version, in memory, and how a version gets there.
 *
 * Threads: one at a time; which calls others may make meanwhile, follower.c decides. */
#ifndef RUBATO_IO_STREAM_VERSION_TABLES_H
#define RUBATO_IO_STREAM_VERSION_TABLES_H

#include <rubato/stream.h>

#include "io/store/manifest.h"
#include "io/stream/version_rows.h"

typedef struct {
    char *name;
    RubatoFollowedTable shape; /* without n_rows */
    uint32_t n_parts;
    VersionRows *rows;
} VersionTable;

typedef struct {
    uint64_t number, seed; /* of the version; 0: it has none */
    int64_t time_us;
    size_t n_tables;
    VersionTable *tables; /* ascending by name */
} VersionTables;

/* Reads a whole version. names: of tables, ended by NULL; NULL: all. RUBATO_ERROR_NOT_FOUND, and
 * those of reading a snapshot. (transfer full) */
VersionTables *version_tables_read(const char *directory, uint64_t number, const char *const *names,
                                   GError **error);
void version_tables_free(VersionTables *all); /* NULL is allowed */

/* NULL: there is none of that name. */
VersionTable *version_tables_find(const VersionTables *all, const char *name);

/* Whether another one has the same tables. RUBATO_ERROR_MISMATCH. */
bool version_tables_check_same(const VersionTables *all, const VersionTables *other,
                               GError **error);

/* Whether they have as many parts there as here. If not, a version that builds on theirs must be
 * read as a whole: which rows go is told by part. */
bool version_tables_have_parts(const VersionTables *all, const Manifest *manifest);

/* What takes tables to the version that builds on its own, and back. */
typedef struct {
    uint64_t number, seed;
    int64_t time_us;
    size_t n;
    VersionChange **changes; /* by table */
} VersionStep;

/* Reads what a version changes, which builds on that of these tables. (transfer full) */
VersionStep *version_step_read(const VersionTables *all, const char *directory,
                               const Manifest *manifest, uint64_t number, GError **error);

/* Before the tables. NULL is allowed. */
void version_step_free(VersionStep *step);

/* Takes the tables there. Then the step takes it back. */
void version_step_swap(VersionTables *all, VersionStep *step);

size_t version_step_bytes(const VersionStep *step);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(VersionTables, version_tables_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VersionStep, version_step_free)

#endif
