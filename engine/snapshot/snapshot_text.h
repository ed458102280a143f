/* What a node asks the scheduler for, and the scheduler tells all nodes: a RubatoSnapshotSpec as
 * text. Tables have the ids that they have on all nodes.
 *
 * Threads: any; the functions depend on their arguments only. */
#ifndef RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_TEXT_H
#define RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_TEXT_H

#include <rubato/snapshot.h>

#include "models/shard/changes.h"

typedef struct {
    RubatoSnapshotSpec spec; /* without `tables`; its texts are the two below */
    char *directory;
    char *note;     /* NULL: none */
    GArray *tables; /* of uint32_t: ids */
    ChangesFor whom;
} SnapshotText;

/* tables: of uint32_t. RUBATO_ERROR_INVALID: it is longer than a message may be. (transfer full) */
char *snapshot_text_write(const RubatoSnapshotSpec *spec, ChangesFor whom, const GArray *tables,
                          GError **error);

/* RUBATO_ERROR_FORMAT. */
bool snapshot_text_read(const char *text, SnapshotText *read, GError **error);
void snapshot_text_clear(SnapshotText *read);

#endif
