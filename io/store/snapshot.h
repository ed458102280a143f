/* A snapshot that is read: what the public calls on it share with the engine's.
 *
 * Threads: one at a time. */
#ifndef RUBATO_IO_STORE_SNAPSHOT_H
#define RUBATO_IO_STORE_SNAPSHOT_H

#include "io/store/manifest.h"

/* (transfer none) */
const Manifest *snapshot_manifest(const RubatoSnapshot *snapshot);

/* As rubato_snapshot_read_part; the error names table and part. */
bool snapshot_read_part(const RubatoSnapshot *snapshot, size_t table, uint32_t part,
                        const PartTaker *taker, GError **error);

#endif
