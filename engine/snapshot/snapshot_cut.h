/* The cut of a snapshot: the moment that its tables show, also while tasks use them.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_CUT_H
#define RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_CUT_H

#include "engine/engine_private.h"

/* A table of the snapshot. */
typedef struct {
    Table *table;   /* held by the caller */
    bool is_used;   /* a task uses it: it gets images */
    bool is_closed; /* its map */
    uint64_t clock; /* of the slowest worker at the cut; 0 if no task uses it */
} CutTable;

typedef struct {
    size_t n_tables;
    CutTable *tables;
    pthread_mutex_t lock;
    bool starved; /* guarded by lock: a server has no memory for an image */
} Cut;

/* (tables: transfer none) */
void cut_init(Cut *cut, const GPtrArray *tables);

/* A collective call. Cuts the tables: from then on this node's parts of tables that tasks use have
 * images, which are to be written, and all other tables are as they will be written. text and
 * detail are those of the call. RUBATO_ERROR_INVALID: a task uses a table that can only be written
 * between tasks. */
bool cut_make(RubatoEngine *engine, Cut *cut, const char *text, const char *detail, GError **error);

/* Frees the images. */
void cut_clear(RubatoEngine *engine, Cut *cut);

#endif
