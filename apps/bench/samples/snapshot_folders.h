/* Folders that samples of snapshots write to.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_FOLDERS_H
#define RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_FOLDERS_H

#include <glib.h>
#include <stdbool.h>

/* Calls a function with a new folder for temporary files, on a thread of its own: a worker cannot
 * take a snapshot. The folder is removed afterwards. */
typedef bool SnapshotFolderFunc(const char *directory, void *data, GError **error);
bool snapshot_folder_use(SnapshotFolderFunc *function, void *data, GError **error);

/* Removes a folder with all that is below it. */
void snapshot_folder_remove_all(const char *path);

#endif
