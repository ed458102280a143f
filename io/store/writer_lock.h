/* Who writes to a directory of snapshots, or of the versions of a stream: one process at a time.
 *
 * DIR/.writer is a file that this process holds locked; it says which one that is. The kernel drops
 * the lock when the process ends, however it ends. A file system that has no locks is written to
 * without one, and so is a bucket: there nobody finds out that two write at once.
 *
 * Threads: any; a lock belongs to one at a time. */
#ifndef RUBATO_IO_STORE_WRITER_LOCK_H
#define RUBATO_IO_STORE_WRITER_LOCK_H

#include <glib.h>
#include <stdbool.h>

typedef struct WriterLock WriterLock;

/* Makes the directory, if it is not there, and takes its lock. does: what it does there, for the
 * others ("streams"). RUBATO_ERROR_IO: who holds it, or what the system refuses. (transfer full) */
WriterLock *writer_lock_take(const char *directory, const char *does, GError **error);
void writer_lock_release(WriterLock *lock); /* NULL is allowed */

/* Whether it is that of this directory, whatever its name here. */
bool writer_lock_is_of(const WriterLock *lock, const char *directory);

#endif
