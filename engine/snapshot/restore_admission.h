/* Restoring what decides which keys of a table are given rows (`admit`), such as counts of Adds.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_ENGINE_SNAPSHOT_RESTORE_ADMISSION_H
#define RUBATO_ENGINE_SNAPSHOT_RESTORE_ADMISSION_H

#include "engine/engine_private.h"
#include "io/store/snapshot.h"

/* Gives the parts of the table that this node has, replicas too, what table `number` of the
 * snapshot has of that. Nothing if the one or the other has no such thing, or another. */
bool restore_admission(RubatoEngine *engine, const RubatoSnapshot *snapshot, size_t number,
                       const Table *table, GError **error);

#endif
