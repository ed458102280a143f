/* The files of a snapshot: each node writes its parts; the scheduler's node writes the manifest.
 *
 * Threads: one at a time. */
#ifndef RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_FILES_H
#define RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_FILES_H

#include <rubato/snapshot.h>

#include "engine/snapshot/snapshot_cut.h"
#include "engine/snapshot/write_pace.h"
#include "io/store/writer_lock.h"

/* A snapshot that is being written. */
typedef struct {
    const RubatoSnapshotSpec *spec;
    GPtrArray *tables; /* of Table, held, by name */
    Cut cut;
    WritePace pace;
    uint64_t seed;       /* of this snapshot; 0: no file has been begun */
    uint64_t base;       /* the number of the one on which it may build; 0: none */
    uint32_t n_links;    /* then: how many it needs */
    uint64_t number;     /* on the scheduler's node, once it is whole */
    GPtrArray *requests; /* on the scheduler's node: from outside, which it answers; else NULL */
    WriterLock *lock;    /* on the scheduler's node, unless the engine owns the directory */
} SnapshotWriting;

/* For rows that change while it is written. (transfer full) */
SpillFile *snapshot_make_spill(const RubatoEngine *engine, const SnapshotWriting *writing);

/* Before the cut: it answers the requests that there are now. */
void snapshot_begin_requests(const RubatoEngine *engine, SnapshotWriting *writing);

/* It has ended: tells those that have asked. failure: NULL if it is whole. */
void snapshot_answer_requests(SnapshotWriting *writing, const char *failure);

/* RUBATO_ERROR_INVALID: what the spec says makes no sense. */
bool snapshot_check_spec(const RubatoSnapshotSpec *spec, GError **error);

/* Of a caller that does not wait for the snapshot: nobody is there to take it again. */
bool snapshot_check_once(const RubatoSnapshotSpec *spec, GError **error);

/* Whether a snapshot that has failed n_tries times, now with this fault, is to be taken again. Each
 * time another node was lost, so there is an end of it. Where the run ends with the node, the next
 * one fails at once. All nodes get the same fault, so all of them come to the same answer. */
bool snapshot_goes_again(const RubatoEngine *engine, const RubatoSnapshotSpec *spec,
                         uint32_t n_tries, const GError *fault);

/* Whether a snapshot can have the table. RUBATO_ERROR_INVALID. */
bool snapshot_check_table(const Table *table, GError **error);

/* What is asked of the scheduler, as text. names: of tables, ended by NULL; NULL: all of the
 * engine. RUBATO_ERROR_INVALID, _NOT_FOUND. (transfer full) */
char *snapshot_write_ask(RubatoEngine *engine, const RubatoSnapshotSpec *spec, ChangesFor whom,
                         const char *const *names, GError **error);

/* Sorts the tables, as all nodes do. */
void snapshot_sort_tables(GPtrArray *tables);

/* The work of the steps PREPARE, WRITE and COMMIT. */
CutWork snapshot_work(SnapshotWriting *writing);

/* It has failed, and no node writes any more: the scheduler's node removes the files. */
void snapshot_abandon(const RubatoEngine *engine, const SnapshotWriting *writing);

/* When it has ended: releases its tables and the lock of its directory. */
void snapshot_writing_clear(RubatoEngine *engine, SnapshotWriting *writing);

#endif
