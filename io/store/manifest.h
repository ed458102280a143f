/* The manifest of a snapshot: which tables it has, and what stands for the file of each part.
 *
 * It is text, as GLib's key files are, with a checksum in its last line. It names no files: that of
 * part 3 of table 0 is "0.3.rows".
 *
 * Threads: a manifest belongs to one thread at a time. */
#ifndef RUBATO_IO_STORE_MANIFEST_H
#define RUBATO_IO_STORE_MANIFEST_H

#include "io/store/part_rows.h"

typedef struct {
    BlockFileSum sum;
    uint64_t n_rows;
    bool has_changes; /* alone: the other rows are in the snapshots before */
} ManifestPart;

typedef struct {
    RubatoSnapshotTable spec; /* its strings are the table's own */
    ManifestPart *parts;      /* spec.n_parts */
    uint64_t layout;          /* a digest of which part has which keys; 0: not known */
} ManifestTable;

/* A reader of training data that the snapshot keeps. */
typedef struct {
    char *name; /* RubatoReaderOptions.kept_as */
    char *text; /* for the scheduler, which checks it */
} ManifestReader;

typedef struct {
    uint64_t seed; /* of the checksums in this snapshot's files: random */
    int64_t time_us;
    RubatoPacking packing;
    char *note; /* NULL: none */
    /* That on which this one builds; 0: it holds all rows. */
    uint64_t base, base_seed;
    uint32_t n_links; /* how many snapshots it needs beside itself */
    size_t n_tables;
    ManifestTable *tables; /* ascending by name */
    size_t n_readers;
    ManifestReader *readers;

    bool is_for_kernel; /* not in the text: it gets its name before the disk has it */
} Manifest;

#define MANIFEST_NAME "manifest"

/* The most bytes of a note. */
#define MANIFEST_MOST_NOTE ((size_t)64 << 10)

/* The most snapshots that another one may need. */
#define MANIFEST_MOST_LINKS 9999u

Manifest *manifest_new(uint64_t seed, RubatoPacking packing, const char *note);

/* Adds a table with room for its parts; its strings are copied. The tables come in any order, and
 * manifest_sort puts them into theirs. Pointers to earlier ones are no longer valid. (transfer
 * none) */
ManifestTable *manifest_add_table(Manifest *manifest, const RubatoSnapshotTable *spec);
void manifest_sort(Manifest *manifest);

/* Adds a reader; both texts are copied. */
void manifest_add_reader(Manifest *manifest, const char *name, const char *text);

/* Sums up the rows and bytes of each table. */
void manifest_sum_up(Manifest *manifest);

void manifest_free(Manifest *manifest); /* NULL is allowed */

/* The shape of the rows of a table. */
PartShape manifest_shape(const RubatoSnapshotTable *spec);

/* What its file holds. (transfer full) */
char *manifest_text(const Manifest *manifest);

/* path: for errors. RUBATO_ERROR_FORMAT. (transfer full) */
Manifest *manifest_parse(const char *text, size_t n, const char *path, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Manifest, manifest_free)

#endif
