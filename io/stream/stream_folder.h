/* The directory to which the nodes of a run write the versions of a stream: who does.
 *
 * Its versions are snapshots (io/store/snapshot_folder.h). DIR/.writer is a file that the run which
 * streams holds locked; it says which process that is. The kernel drops the lock when that process
 * ends, however it ends.
 *
 * Threads: any; a lock belongs to one at a time. */
#ifndef RUBATO_IO_STREAM_STREAM_FOLDER_H
#define RUBATO_IO_STREAM_STREAM_FOLDER_H

#include <glib.h>
#include <stdbool.h>

typedef struct StreamLock StreamLock;

/* Makes the directory, if it is not there, and takes its lock. RUBATO_ERROR_IO: who holds it, or
 * what the system refuses. (transfer full) */
StreamLock *stream_lock_take(const char *directory, GError **error);
void stream_lock_release(StreamLock *lock); /* NULL is allowed */

/* Returns when the disk has all that has been written to its file system. RUBATO_ERROR_IO. */
bool stream_folder_sync(const char *directory, GError **error);

#endif
