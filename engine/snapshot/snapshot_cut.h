/* The cut of a snapshot: the moment that its tables show, also while tasks use them.
 *
 * Threads: that of the engine's calls, or that of the steps which the scheduler leads. */
#ifndef RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_CUT_H
#define RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_CUT_H

#include "engine/engine_private.h"
#include "io/store/spill_file.h"
#include "models/shard/changes.h"

/* A table of the snapshot. */
typedef struct {
    Table *table;   /* held by the caller */
    bool is_cut;    /* a task uses it, or may change meanwhile */
    bool is_paused; /* it can have no images: it does not change until all nodes have written it */
    bool is_closed; /* its map */
    uint64_t clock; /* of the slowest worker at the cut; 0 if no task uses it */
} CutTable;

typedef struct {
    size_t n_tables;
    CutTable *tables;
    bool is_led;        /* by the scheduler, at any time: what can be cut is cut */
    ChangesFor whom;    /* for whom servers note which rows change */
    bool notes_changes; /* set in PREPARE: they do, from the cut on */
    uint64_t base;    /* likewise: the seed of the snapshot on which this one may build; 0: none */
    uint32_t epoch;   /* the task that has to go on until the cut; 0: none */
    GPtrArray *steps; /* of StepGate, held: those that are closed */
    SpillFile *spill; /* for copies beyond a bound of memory */
    uint64_t seed;    /* the snapshot's, from CUT on */
    pthread_mutex_t lock;
    bool starved;     /* guarded by lock: a server has no memory for an image */
    GPtrArray *ended; /* guarded by lock, in FORGET: of ShardImage */
    bool has_images;  /* CUT has begun, and FORGET has not been done */
    bool holds;       /* CLOSE has begun, and FORGET has not been done: see engine_begin_cut */
} Cut;

/* What else nodes do for a snapshot, each when all have done the step before. The first one that
 * fails ends it. */
struct CutWork {
    /* What takes long and changes no row: while requests go on. NULL: nothing. */
    bool (*prepare)(RubatoEngine *engine, const Cut *cut, void *data, GError **error);
    /* Writes this node's parts. seed: the snapshot's random number, the same on all nodes. */
    bool (*write)(RubatoEngine *engine, const Cut *cut, uint64_t seed, void *data, GError **error);
    bool (*commit)(RubatoEngine *engine, const Cut *cut, void *data, GError **error);
    void *data;
};

/* (tables: transfer none; spill: transfer full) */
void cut_init(Cut *cut, const GPtrArray *tables, SpillFile *spill);

/* Why a table that a task uses cannot be cut; NULL: it can be. */
const char *cut_fault(const RubatoTableSpec *spec);

/* This node's part of a step: PREPARE, CLOSE, CUT, WRITE, COMMIT or FORGET. From CUT on its parts
 * of tables that tasks use have images, which are to be written, and all other tables are as they
 * will be written. RUBATO_ERROR_INVALID: a task uses a table that can only be written between
 * tasks. */
bool cut_perform(RubatoEngine *engine, Cut *cut, ControlStep step, uint64_t seed,
                 const CutWork *work, GError **error);

typedef struct {
    const char *text, *detail; /* as CollectiveCall's */
    uint64_t seed;
    const char *told; /* as CollectiveCall's */
} CutCall;

/* A collective call: all steps. */
bool cut_make(RubatoEngine *engine, Cut *cut, const CutCall *call, const CutWork *work,
              GError **error);

/* Frees it; images that there still are, too. */
void cut_clear(RubatoEngine *engine, Cut *cut);

#endif
