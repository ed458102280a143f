/* Snapshots: tables on disk, with all that training needs to go on from there.
 *
 * A snapshot is a folder in a directory of snapshots. It is whole or it is not there: its folder
 * gets its name when all of it has reached the disk. Every block of it has a checksum. So a
 * snapshot that is torn, or of which a byte has changed, is never restored; the error names the
 * table, the part, the file and the offset.
 *
 * On a cluster the directory lies where all nodes see it under the same path. Each node writes the
 * parts that its servers have. One run at a time writes to a directory.
 *
 * Errors: RUBATO_ERROR_IO for what the system refuses, _FORMAT for what is damaged, _NOT_FOUND if
 * there is no such snapshot or table, _MEMORY.
 *
 * Threads: the calls on an engine are collective. A RubatoSnapshot belongs to one thread at a
 * time. */
#ifndef RUBATO_SNAPSHOT_H
#define RUBATO_SNAPSHOT_H

#include <rubato/engine.h>
#include <rubato/ticket.h>

G_BEGIN_DECLS

/* How blocks are stored. */
typedef enum {
    RUBATO_PACKING_NONE,
    RUBATO_PACKING_ZSTD, /* a block that gets no smaller is stored as it is */

    /* The values of f32 and f64 are rounded: to the upper 16 bits of an f32, or to 8 bits, of which
     * 127 steps are the largest value of the row. Rows of different lengths, what update rules keep
     * beside rows, and other dtypes are exact. rubato_snapshot_loss says what is lost. */
    RUBATO_PACKING_BF16,
    RUBATO_PACKING_8BIT,
} RubatoPacking;

typedef struct {
    const char *directory;     /* created if it is not there; the folder above it is */
    const char *const *tables; /* which ones, ended by NULL; NULL: all */
    RubatoPacking packing;
    uint32_t keep;       /* of all snapshots in the directory the newest so many stay, and those
                          * that they build on; 0: all */
    uint32_t full_every; /* of so many snapshots one holds all rows, and each of the others those
                          * that changed since the one before, on which it builds; 0 or 1: each
                          * holds all rows */
    const char *note; /* for the caller's own use, such as how far training has come: up to 64 KiB
                       * of UTF-8, the same on all nodes. NULL: none */

    /* If a node is lost meanwhile, the call takes the snapshot again, with what the nodes have that
     * live then: as often as nodes may be lost. In a run that ends with the node it fails at once.
     * The same on all nodes. Only of calls that wait for the snapshot: _INVALID elsewhere. */
    bool again_after_loss;
} RubatoSnapshotSpec;

/* Collective. Writes a snapshot of tables as they are: rows, the state that the update rule keeps
 * beside them, and the hyper-parameters that were tuned.
 *
 * Tasks that were started by rubato_engine_start may use the tables meanwhile. The snapshot is then
 * a cut: each worker passes it between two of its calls, and all that the workers added before is
 * in it, and nothing that came later. Calls that change rows wait for a moment at the cut, but not
 * while the snapshot is written: rows that change meanwhile are copied first, beyond 56 MiB a node
 * into a file. They do wait if the table has max_bytes, `expire`, rows of different lengths, or a
 * storage without `walk`. With one of these and create_on_get, a table that a task uses is
 * RUBATO_ERROR_INVALID. No other thread may make the engine's own calls that write to the tables.
 *
 * RUBATO_ERROR_NODE_LOST if a node is lost meanwhile, also in a run that goes on without it; the
 * next snapshot has what the nodes have that live (again_after_loss).
 *
 * With full_every, the servers note from then on which rows change, in two bits for each row, or 6
 * for one of hash storage, for as long as they have the table. A part of which nobody knows what
 * changed is written as a whole, such as one that has moved. So is all of the first snapshot of an
 * engine, and of one whose directory had a snapshot of somebody else last.
 *
 * If it fails, the earlier snapshots are there as before. number, if not NULL, is set to the
 * snapshot's; numbers ascend. */
RUBATO_API bool rubato_engine_snapshot(RubatoEngine *engine, const RubatoSnapshotSpec *spec,
                                       uint64_t *number, GError **error);

/* Has a directory, which is created, for the snapshots of this engine alone: until it is freed, or
 * its process ends, a file in it is held locked. Other runs take no snapshots there meanwhile, and
 * nothing streams there. Without this call the file is locked while a snapshot is written. In a
 * bucket, and on a file system without locks, nothing is held. Not collective: the scheduler's node
 * takes the lock, and the call does nothing on others. RUBATO_ERROR_IO: somebody has it, and which
 * process that is; or the directory cannot be written to. Any thread. */
RUBATO_API bool rubato_engine_own_snapshots(RubatoEngine *engine, const char *directory,
                                            GError **error);

/* A snapshot from inside a task, asked for by one worker: all nodes write it, and no other node or
 * worker makes a call for it. It returns when the snapshot is whole; other workers go on meanwhile.
 * tables NULL: all of the engine, also those that the task does not use.
 *
 * What the worker has added before the call is in the snapshot, by whatever handle, also by
 * requests whose tickets have not ended. Where the model applies Adds by their clock, as bsp does,
 * it has those of all clocks below that of the slowest worker, and no others. What other workers
 * have added is in it up to their own cuts.
 *
 * Several may be asked for at once, and are taken one after the other. While one is taken,
 * collective calls wait, and tables with max_bytes, `expire` or rows of different lengths must not
 * be changed by the engine's own calls. Errors are those of rubato_engine_snapshot, and
 * RUBATO_ERROR_CANCELLED: the task was cancelled, or its workers have ended before the cut, or the
 * run has ended. */
RUBATO_API bool rubato_worker_snapshot(RubatoWorker *worker, const RubatoSnapshotSpec *spec,
                                       uint64_t *number, GError **error);

/* The same, but it returns when the tables are cut, before they are written: the ticket ends when
 * the snapshot is whole. The spec may go at once; number, if not NULL, must stay until the ticket
 * has ended. 0 with the errors that are known at once; the others come with the ticket. */
RUBATO_API RubatoTicket rubato_worker_snapshot_async(RubatoWorker *worker,
                                                     const RubatoSnapshotSpec *spec,
                                                     uint64_t *number,
                                                     const RubatoRequestOptions *options,
                                                     GError **error);

/* A step: what a worker changes between these two calls is in a snapshot as a whole, or nothing of
 * it is, on all tables and under every model, if all of the task's tables apply Adds by their clock
 * or all apply them at once. (Of a task with tables of both kinds, a snapshot may have a fast
 * worker's Adds to the latter, and not those of the same step to the former.) So a program that
 * notes its place in the training data in a table, in the same step, goes on from a snapshot
 * exactly where each worker was. Under a model that applies Adds by their clock, the clocks of all
 * tables belong into the step as well: then these have the same clock in the snapshot.
 *
 * A snapshot waits until no worker is in the middle of a step, and steps begin again when the
 * tables are cut. So in a step a worker must not wait for others: no barrier, no collective, no Get
 * that waits for their clocks, no Add to a table whose servers keep max_kept_bytes of the worker's
 * earlier clocks, no clock while earlier calls of its handlers wait. Else the snapshot fails with
 * RUBATO_ERROR_TIMEOUT after the engine's stall_ms, and the task goes on. Tables that the task does
 * not use do not count.
 *
 * A worker that returns ends its step. Errors: RUBATO_ERROR_INVALID: there is a step, or none, or a
 * snapshot is asked for by the worker in the middle of one; _CANCELLED: the task was cancelled
 * while the worker waited. The worker's thread. */
RUBATO_API bool rubato_worker_begin_step(RubatoWorker *worker, GError **error);
RUBATO_API bool rubato_worker_end_step(RubatoWorker *worker, GError **error);

/* Snapshots that a task takes by itself, as if a worker asked for them (RubatoTask.snapshots). One
 * is asked for when the other is whole, from the node of worker 0, whose spec counts. It is looked
 * some times a second how far the clocks are. If one fails, the log says so, and the task goes on.
 * The directory is created when the task starts. */
struct RubatoTaskSnapshots {
    RubatoSnapshotSpec spec; /* tables NULL: those of the task */
    double every_s;          /* so many seconds after the one before was asked for; 0: not so */
    uint64_t every_clocks;   /* when the slowest worker has so many clocks more on the task's first
                              * table, as far as the node has heard; 0: not so */
    /* Also when somebody asks by rubato_snapshot_ask(). */
};

/* Asks the run that takes its snapshots in this directory for one, from any process that may write
 * there, and waits until it is whole, at most timeout_s seconds (infinite: until it has an answer).
 * It holds what the run did before it saw the request, and perhaps more. Programs of this project
 * take one before their next step, or after the present epoch; a task of your own, if its spec says
 * so (RubatoTaskSnapshots), or if it looks (rubato_snapshot_is_asked).
 *
 * number, if not NULL, is set to the snapshot's. Errors: RUBATO_ERROR_IO: the directory cannot be
 * written to, or the run could not take it, and why; _TIMEOUT: nobody has answered; the request is
 * then withdrawn. Any thread. */
RUBATO_API bool rubato_snapshot_ask(const char *directory, double timeout_s, uint64_t *number,
                                    GError **error);

/* Whether somebody asks so. The next snapshot in the directory that begins answers all of them,
 * also if it fails. A call reads the directory. Of a bucket of S3 it says what a thread has seen,
 * which looks once a second from the first call on until an engine of the process is freed: each
 * request counts some seconds after it was made, and once, unless it is there for long. Any
 * thread. */
RUBATO_API bool rubato_snapshot_is_asked(const char *directory);

/* What to restore. */
typedef enum {
    RUBATO_RESTORE_ALL,    /* values, state, tuned hyper-parameters, and what `admit` has counted */
    RUBATO_RESTORE_VALUES, /* values alone; the rows have the state of new ones */
} RubatoRestoreWhat;

typedef struct {
    const char *directory;
    uint64_t number;           /* 0: the newest one that is not damaged; the log says which newer
                                * ones are, and how */
    const char *const *tables; /* ended by NULL; NULL: all of the snapshot */
    RubatoRestoreWhat what;
} RubatoRestoreSpec;

/* Collective. Gives tables the rows of a snapshot. Between tasks only. The tables must be there,
 * and may differ from those of the snapshot in their storage, parts, model and initial values, and
 * lie on other nodes and servers; f32 may become f64 and the other way round, and i32 may become
 * i64. Rows that the snapshot does not have stay as they are: restore into new tables.
 *
 * The whole snapshot is read and checked before the first row is written. A table that does not fit
 * is RUBATO_ERROR_MISMATCH, with both shapes: another width, rows of one length and of different
 * lengths, a dtype that would lose more than digits, a range without all keys of the snapshot, or,
 * unless values alone are restored, another update rule.
 *
 * number, if not NULL, is set to the snapshot's. */
RUBATO_API bool rubato_engine_restore(RubatoEngine *engine, const RubatoRestoreSpec *spec,
                                      uint64_t *number, GError **error);

/* ---- reading without an engine ---- */

typedef struct RubatoSnapshot RubatoSnapshot;

/* A table of a snapshot, as it was. The names are those of RubatoTableSpec, never NULL. */
typedef struct {
    const char *name;
    RubatoDtype dtype;
    RubatoShape shape;
    uint32_t width;
    const char *storage;
    bool holds_range; /* its keys are first_key .. first_key + n_keys - 1 */
    RubatoKey first_key;
    uint64_t n_keys;
    const char *update;
    uint32_t state_width; /* values of state beside each row */
    const char *admit;    /* "all", or which keys were given rows */
    uint64_t clock;       /* of the slowest worker of the tasks that used it then; 0 if none did.
                           * Where the model applies Adds by their clock, as bsp does, the rows
                           * have exactly the Adds of all lower clocks */
    uint32_t n_parts;
    uint64_t n_rows;
    uint64_t n_bytes; /* on disk, without the snapshots on which this one builds */
} RubatoSnapshotTable;

/* Some rows of a part. */
typedef struct {
    const RubatoKey *keys; /* n; NULL: they follow one another from `first` on */
    RubatoKey first;
    size_t n;
    const void *values;      /* n × width values; of a ragged table the rows one after the other */
    const void *states;      /* n × state_width values; NULL: the table has none */
    const uint32_t *lengths; /* of a ragged table: values of each row; else NULL */
} RubatoSnapshotRows;

/* The numbers of the whole snapshots in a directory, ascending. None if the directory is not there.
 * (*numbers: transfer full, g_free) */
RUBATO_API bool rubato_snapshot_list(const char *directory, uint64_t **numbers, size_t *n,
                                     GError **error);

/* The numbers of what has the name of a snapshot in a directory and is none, because it has no
 * manifest: somebody has removed or copied a snapshot in part. They are in no list, and no snapshot
 * gets one of them. In a bucket of S3 there is no such thing. Errors: RUBATO_ERROR_IO.
 * (*numbers: transfer full, g_free) */
RUBATO_API bool rubato_snapshot_list_torn(const char *directory, uint64_t **numbers, size_t *n,
                                          GError **error);

/* Opens a snapshot and reads its manifest, and those of the snapshots on which it builds. number 0:
 * the newest. If one of them is not there, or another one than it was, it is RUBATO_ERROR_FORMAT,
 * which names it. (transfer full) */
RUBATO_API RubatoSnapshot *rubato_snapshot_open(const char *directory, uint64_t number,
                                                GError **error);

/* How far the values of a table in its files are from those that the table had. */
typedef struct {
    double largest;          /* infinite or NaN, if a value has become so that was not */
    double root_mean_square; /* of all rounded values */
    uint64_t n_values;       /* that were rounded; 0: all are exact */
} RubatoSnapshotLoss;

/* Sums up what RUBATO_PACKING_BF16 or _8BIT has lost in a table's files, and those of the snapshots
 * on which this one builds, and reads all of them for it; if all are exact, it
 * reads nothing. Errors as rubato_snapshot_read_part. */
RUBATO_API bool rubato_snapshot_loss(const RubatoSnapshot *snapshot, const char *table,
                                     RubatoSnapshotLoss *loss, GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_snapshot_free(RubatoSnapshot *snapshot);

RUBATO_API uint64_t rubato_snapshot_number(const RubatoSnapshot *snapshot);
RUBATO_API int64_t rubato_snapshot_time_us(const RubatoSnapshot *snapshot); /* since 1970, UTC */
RUBATO_API RubatoPacking rubato_snapshot_packing(const RubatoSnapshot *snapshot);

/* The snapshot on which it builds, if it holds what has changed since that one; 0: it holds all
 * rows. */
RUBATO_API uint64_t rubato_snapshot_base(const RubatoSnapshot *snapshot);

/* The caller's note; NULL: none. (transfer none) */
RUBATO_API const char *rubato_snapshot_note(const RubatoSnapshot *snapshot);

/* The tables, in the order of their names. NULL: there is none of that number or name. (transfer
 * none) */
RUBATO_API size_t rubato_snapshot_n_tables(const RubatoSnapshot *snapshot);
RUBATO_API const RubatoSnapshotTable *rubato_snapshot_table(const RubatoSnapshot *snapshot,
                                                            size_t i);
RUBATO_API const RubatoSnapshotTable *rubato_snapshot_find_table(const RubatoSnapshot *snapshot,
                                                                 const char *name);

/* Gets some rows, which are valid during the call. False, with the error set, ends the reading. */
typedef bool (*RubatoSnapshotRowsFunc)(const RubatoSnapshotRows *rows, void *user_data,
                                       GError **error);

/* Reads a part of a table. Each row comes once, in no order; dense rows ascend, unless a task used
 * the table when it was written, or the snapshot builds on others. No more is held in
 * memory than about 1 MB, or one row, and a few bits for each row of snapshots that build on
 * others. Rows of a damaged block do not come, but those before it have
 * come then. function NULL: the part is only checked. */
RUBATO_API bool rubato_snapshot_read_part(const RubatoSnapshot *snapshot, const char *table,
                                          uint32_t part, RubatoSnapshotRowsFunc function,
                                          void *user_data, GError **error);

/* Reads all of it, and checks every byte; also of the snapshots on which it builds, as far as their
 * rows are still its rows. */
RUBATO_API bool rubato_snapshot_verify(const RubatoSnapshot *snapshot, GError **error);

/* Makes one snapshot of a chain: if the newest in the directory builds on others, it is written
 * again with all rows, as a snapshot of its own with the next number. The chain stays, unless keep
 * says that it goes: of all snapshots the newest `keep` stay, and those that they build on; 0: all.
 * RUBATO_ERROR_IO while a run writes to the directory. number, if not NULL, is set to that of the
 * newest one then, which is the one before if that has all rows. It may also fail once the snapshot
 * is made, because others cannot be removed: the error says so, with the number. */
RUBATO_API bool rubato_snapshot_compact(const char *directory, uint32_t keep, uint64_t *number,
                                        GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoSnapshot, rubato_snapshot_free)

G_END_DECLS

#endif
