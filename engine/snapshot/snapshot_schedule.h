/* Snapshots of a task at given times: a thread on the node of worker 0 asks the scheduler for them,
 * as a worker would.
 *
 * Threads: that of the engine's calls. */
#ifndef RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_SCHEDULE_H
#define RUBATO_ENGINE_SNAPSHOT_SNAPSHOT_SCHEDULE_H

#include "engine/engine_private.h"
#include "engine/snapshot/snapshot_files.h"
#include "io/stream/stream_writers.h"

typedef struct SnapshotSchedule SnapshotSchedule;

typedef struct {
    RubatoSnapshotSpec spec;
    double every_s;        /* 0: not by time */
    uint64_t every_clocks; /* 0: not by clocks */
    /* CHANGES_FOR_SNAPSHOTS: also when somebody asks from outside. CHANGES_FOR_STREAM: versions of
     * a stream, which need not be some 50 ms apart. */
    ChangesFor whom;
} SnapshotTimes;

/* Checks what is told of the task. RUBATO_ERROR_INVALID, _NOT_FOUND, _IO. (transfer full) */
SnapshotSchedule *snapshot_schedule_new(RubatoEngine *engine, const RubatoTask *task,
                                        const SnapshotTimes *times, GError **error);

/* Tells the writer of a stream of each version; NULL: nobody. Before the run's workers start. */
void snapshot_schedule_tell(SnapshotSchedule *schedule, StreamWriter *writer);

/* The run's workers start. */
void snapshot_schedule_start(SnapshotSchedule *schedule, const RubatoTaskRun *run);

/* Takes no more. The run is still there. */
void snapshot_schedule_stop(SnapshotSchedule *schedule);

/* Takes a last one, of the tables as they are now. It has been started and stopped. */
void snapshot_schedule_take_last(SnapshotSchedule *schedule);

/* Stops it. NULL is allowed. */
void snapshot_schedule_free(SnapshotSchedule *schedule);

#endif
