/* The directory to which the nodes of a run write the versions of a stream. These are snapshots
 * (io/store/snapshot_folder.h), and the run that streams holds its lock (io/store/writer_lock.h).
 *
 * Threads: any. */
#ifndef RUBATO_IO_STREAM_STREAM_FOLDER_H
#define RUBATO_IO_STREAM_STREAM_FOLDER_H

#include <glib.h>
#include <stdbool.h>

/* Returns when the disk has all that has been written to its file system. RUBATO_ERROR_IO. */
bool stream_folder_sync(const char *directory, GError **error);

#endif
