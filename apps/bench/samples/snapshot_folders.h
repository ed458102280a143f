/* Folders that samples of snapshots write to.
 *
 * Threads: any. */
#ifndef RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_FOLDERS_H
#define RUBATO_APPS_BENCH_SAMPLES_SNAPSHOT_FOLDERS_H

/* Removes a folder with all that is below it. */
void snapshot_folder_remove_all(const char *path);

#endif
