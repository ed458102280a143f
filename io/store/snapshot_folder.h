/* The folders of a directory of snapshots: how one is written, found and removed.
 *
 *   DIR/snapshot-000012/manifest    a whole snapshot
 *   DIR/snapshot-000012/0.3.rows    part 3 of its table 0
 *   DIR/snapshot-000012/0.3.changes-SEED
 *                                   the same, if it holds what changed since the one of that seed
 *   DIR/.writing-SEED/              one that is being written
 *   DIR/.removing-000009/           one that is being removed
 *
 * A folder gets the name of a snapshot when all files in it, the manifest last, have reached the
 * disk. So what a crash leaves behind has a name that begins with a dot, and no reader sees it. The
 * next snapshot removes it.
 *
 * In a bucket of S3 no folder can get another name. There it is (s3/s3_folder.c):
 *
 *   PREFIX/snapshot-000012-SEED     the manifest: with it the snapshot is whole
 *   PREFIX/rows-SEED/0.3.rows       its files
 *
 * Errors: RUBATO_ERROR_IO; of a file it names the path.
 *
 * Threads: any; one process at a time writes to a directory (writer_lock.h), but several nodes of a
 * run may write into the same folder. */
#ifndef RUBATO_IO_STORE_SNAPSHOT_FOLDER_H
#define RUBATO_IO_STORE_SNAPSHOT_FOLDER_H

#include "io/store/manifest.h"

/* The folder in which a snapshot is written, that of the files of a whole one, that of a whole one
 * in a real directory, and the file of a part. (transfer full) */
char *snapshot_folder_writing(const char *directory, uint64_t seed);
char *snapshot_folder_rows(const char *directory, uint64_t number, uint64_t seed);
char *snapshot_folder_whole(const char *directory, uint64_t number);
char *snapshot_folder_part(const char *folder, size_t table, uint32_t part);
char *snapshot_folder_changes(const char *folder, size_t table, uint32_t part, uint64_t base_seed);

/* Whether a file is there. */
bool snapshot_folder_has_file(const char *path);

/* A random number for a snapshot. */
bool snapshot_folder_draw_seed(uint64_t *seed, GError **error);

/* Makes the directory, which may be there. */
bool snapshot_folder_make_directory(const char *directory, GError **error);

/* Makes the directory and the folder of a snapshot that is to be written. Either may be there. */
bool snapshot_folder_begin(const char *directory, uint64_t seed, GError **error);

/* Writes the manifest and gives the folder its name, when all parts are in it. */
bool snapshot_folder_commit(const char *directory, const Manifest *manifest, uint64_t *number,
                            GError **error);

/* Removes what was written, after an error. What cannot be removed stays for the next time. */
void snapshot_folder_abandon(const char *directory, uint64_t seed);

/* Removes what earlier runs left behind, but not the folder of `seed`. */
void snapshot_folder_tidy(const char *directory, uint64_t seed);

/* Removes all snapshots but the newest `keep` ones, and those on which they build. If one does not
 * say which these are, all before it stay, and the error names it. */
bool snapshot_folder_keep(const char *directory, uint32_t keep, GError **error);

/* Reads the manifest of a whole snapshot. RUBATO_ERROR_NOT_FOUND: there is none. (transfer full) */
Manifest *snapshot_folder_read(const char *directory, uint64_t number, GError **error);

#endif
