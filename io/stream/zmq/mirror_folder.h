/* The directory in which a reader keeps versions: made for it, below the folder for temporary
 * files (TMPDIR), and removed with it.
 *
 * It holds a file there locked. A reader that was killed leaves its directory behind; the next one
 * of the same user finds it unlocked, and removes it.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STREAM_ZMQ_MIRROR_FOLDER_H
#define RUBATO_IO_STREAM_ZMQ_MIRROR_FOLDER_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    char *path;
    int lock;
} MirrorFolder;

/* RUBATO_ERROR_IO. */
bool mirror_folder_make(MirrorFolder *folder, GError **error);

/* Removes it; a folder that was not made is left alone. */
void mirror_folder_remove(MirrorFolder *folder);

/* Removes a version, as snapshot_folder.h does: at one moment it is there no more. */
void mirror_folder_drop(const MirrorFolder *folder, uint64_t number);

/* Gives what was written (snapshot_folder_writing) the name of a version. RUBATO_ERROR_IO. */
bool mirror_folder_show(const MirrorFolder *folder, uint64_t seed, uint64_t number, GError **error);

#endif
