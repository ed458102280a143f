/* The files of parts that have been written, and that the disk may not have yet.
 *
 * As long as rows of a part are left to be read, those that change are copied, so the rows of all
 * parts are read before the disk is waited for.
 *
 * Threads: the one that writes. */
#ifndef RUBATO_ENGINE_SNAPSHOT_WRITTEN_PARTS_H
#define RUBATO_ENGINE_SNAPSHOT_WRITTEN_PARTS_H

#include "engine/engine_private.h"
#include "engine/server/server.h"
#include "engine/snapshot/write_pace.h"
#include "io/store/part_rows.h"

/* So many files are open at most; of more, the disk is waited for at once. */
#define WRITTEN_PARTS_MOST 64

typedef struct {
    RubatoEngine *engine;
    WritePace *pace;
    GQueue files; /* of WrittenPart, oldest first */
} WrittenParts;

/* (transfer none) */
void written_parts_init(WrittenParts *parts, RubatoEngine *engine, WritePace *pace);
void written_parts_clear(WrittenParts *parts);

/* All rows of a part have been written, which is on that server: ends its file. (writer: transfer
 * full; others: transfer none) */
bool written_parts_add(WrittenParts *parts, PartWriter *writer, const Table *table, uint32_t part,
                       Server *server, GError **error);

/* Returns when the disk has all of them: as the pace says, while training goes on. */
bool written_parts_sync(WrittenParts *parts, GError **error);

#endif
