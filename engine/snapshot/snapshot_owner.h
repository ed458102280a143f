/* Directories that a run has for its snapshots alone.
 *
 * Each snapshot is written under the lock of its directory (io/store/writer_lock.h), which the
 * scheduler's node takes: it begins and ends snapshots. Of a directory that the program owns the
 * engine holds the lock until its end.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_SNAPSHOT_OWNER_H
#define RUBATO_ENGINE_SNAPSHOT_OWNER_H

#include "engine/engine_private.h"
#include "io/store/writer_lock.h"

/* For one snapshot: *lock, for the caller to release, stays NULL if the engine owns the directory,
 * and on other nodes than the scheduler's. RUBATO_ERROR_IO: who else writes there. */
bool snapshot_lock_directory(RubatoEngine *engine, const char *directory, WriterLock **lock,
                             GError **error);

/* When no snapshot is written any more. */
void snapshot_disown(RubatoEngine *engine);

#endif
