/* What a directory of snapshots is made of: a real one, or the keys of a bucket of S3 that begin
 * with a prefix. Its name says which.
 *
 * Threads: any. */
#ifndef RUBATO_IO_STORE_FOLDER_OPS_H
#define RUBATO_IO_STORE_FOLDER_OPS_H

#include "io/store/manifest.h"

typedef struct {
    /* The folder in which a snapshot is written. (transfer full) */
    char *(*writing)(const char *directory, uint64_t seed);

    /* Makes the directory, and the folder, where there are such things. */
    bool (*make)(const char *directory, GError **error);
    bool (*begin)(const char *directory, uint64_t seed, GError **error);

    /* Writes the manifest. At one moment the snapshot is there as a whole, and all of it is where
     * no crash takes it from. number: no other snapshot has it. */
    bool (*commit)(const char *directory, const Manifest *manifest, uint64_t number,
                   GError **error);

    /* As snapshot_folder_abandon and snapshot_folder_tidy. */
    void (*abandon)(const char *directory, uint64_t seed);
    void (*tidy)(const char *directory, uint64_t seed);

    /* The numbers that are in use, in any order: those of whole snapshots, and of what is left of
     * others under such a name. */
    bool (*list_used)(const char *directory, GArray *numbers, GError **error);

    /* At one moment the snapshot is there no more. */
    bool (*remove)(const char *directory, uint64_t number, GError **error);
} FolderWriteOps;

typedef struct {
    /* The numbers of whole snapshots, in any order; none if the directory is not there. */
    bool (*list)(const char *directory, GArray *numbers, GError **error);

    /* The numbers of what has the name of a snapshot and no manifest, in any order. NULL: there is
     * no such thing. */
    bool (*list_torn)(const char *directory, GArray *numbers, GError **error);

    /* The manifest; RUBATO_ERROR_NOT_FOUND. (transfer full) */
    Manifest *(*read)(const char *directory, uint64_t number, GError **error);

    /* The folder of the files of a whole snapshot. (transfer full) */
    char *(*rows)(const char *directory, uint64_t number, uint64_t seed);

    bool (*has_file)(const char *path);
} FolderReadOps;

extern const FolderWriteOps directory_write_ops;
extern const FolderReadOps directory_read_ops;
extern const FolderWriteOps s3_write_ops;
extern const FolderReadOps s3_read_ops;

/* The highest number of a snapshot. */
#define MOST_NUMBER (UINT64_MAX - 1)

/* The longest manifest that is read: one of the most tables and parts is far shorter. */
#define MOST_MANIFEST ((size_t)1 << 30)

#endif
