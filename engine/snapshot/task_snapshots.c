/* What a task tells of snapshots and of a stream: two schedules, each with a thread of its own.
 *
 * Runs on the thread of the engine's calls. */
#include "engine/snapshot/task_snapshots.h"

#include <rubato/stream.h>

#include "engine/snapshot/snapshot_cut.h"
#include "engine/snapshot/snapshot_schedule.h"
#include "engine/task/task_run.h"
#include "io/store/writer_lock.h"
#include "io/stream/stream_kind.h"

struct TaskSnapshots {
    SnapshotSchedule *snapshots; /* NULL: it takes none */
    SnapshotSchedule *stream;    /* NULL: nothing streams out of it */
    char *stream_uri, *stream_directory;
    WriterLock *lock; /* of the stream, on worker 0's node, until its last version is there */
};

/* ---- the stream ---- */

/* Versions flow out while the task uses the tables. */
static bool check_streams(RubatoEngine *engine, const char *const *names, GError **error)
{
    bool ok = true;

    pthread_mutex_lock(&engine->lock);
    for (; names != NULL && *names != NULL && ok; names++) {
        const Table *const table = engine_find_table(engine, *names, error);

        ok = table != NULL;
        if (ok && cut_fault(table->spec) != NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "table %s cannot stream while a task uses it: %s", *names,
                        cut_fault(table->spec));
            ok = false;
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return ok;
}

static bool add_stream(TaskSnapshots *snapshots, RubatoEngine *engine, const RubatoTask *task,
                       GError **error)
{
    const RubatoTaskStream *const told = task->stream;
    const char *const *const tables = told->tables != NULL ? told->tables : task->tables;

    snapshots->stream_uri = g_strdup(told->uri);
    snapshots->stream_directory = stream_find_directory(told->uri, error);
    if (snapshots->stream_directory == NULL || !check_streams(engine, tables, error)) {
        g_prefix_error(error, "task %s: ", task->name);
        return false;
    }

    const SnapshotTimes times = {
        .spec = { .directory = snapshots->stream_directory,
                  .tables = tables,
                  .packing = told->packing,
                  .keep = told->keep != 0 ? told->keep : RUBATO_STREAM_KEEP,
                  .full_every =
                      told->full_every != 0 ? told->full_every : RUBATO_STREAM_FULL_EVERY },
        .every_s = told->every_s,
        .every_clocks = told->every_clocks,
        .whom = CHANGES_FOR_STREAM,
    };

    snapshots->stream = snapshot_schedule_new(engine, task, &times, error);
    return snapshots->stream != NULL;
}

/* ---- its life ---- */

static bool add_snapshots(TaskSnapshots *snapshots, RubatoEngine *engine, const RubatoTask *task,
                          GError **error)
{
    const RubatoTaskSnapshots *const told = task->snapshots;
    const SnapshotTimes times = { .spec = told->spec,
                                  .every_s = told->every_s,
                                  .every_clocks = told->every_clocks,
                                  .whom = CHANGES_FOR_SNAPSHOTS };

    snapshots->snapshots = snapshot_schedule_new(engine, task, &times, error);
    return snapshots->snapshots != NULL;
}

TaskSnapshots *task_snapshots_new(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    TaskSnapshots *const snapshots = g_new0(TaskSnapshots, 1);

    if ((task->snapshots == NULL || add_snapshots(snapshots, engine, task, error)) &&
        (task->stream == NULL || add_stream(snapshots, engine, task, error)))
        return snapshots;
    task_snapshots_free(snapshots);
    return NULL;
}

bool task_snapshots_prepare(TaskSnapshots *snapshots, RubatoEngine *engine,
                            const RubatoTaskRun *run, GError **error)
{
    StreamWriter *writer;

    /* It is the node that asks for the versions, and waits for the last one. */
    if (snapshots == NULL || snapshots->stream == NULL || !task_run_has_first_worker(run))
        return true;
    snapshots->lock = writer_lock_take(snapshots->stream_directory, "streams", error);
    if (snapshots->lock == NULL ||
        !stream_writers_open(&engine->stream_writers, snapshots->stream_uri,
                             snapshots->stream_directory, &writer, error))
        return false;
    snapshot_schedule_tell(snapshots->stream, writer);
    return true;
}

void task_snapshots_start(TaskSnapshots *snapshots, const RubatoTaskRun *run)
{
    if (snapshots != NULL && snapshots->snapshots != NULL)
        snapshot_schedule_start(snapshots->snapshots, run);
    if (snapshots != NULL && snapshots->stream != NULL)
        snapshot_schedule_start(snapshots->stream, run);
}

void task_snapshots_finish(TaskSnapshots *snapshots)
{
    if (snapshots == NULL || snapshots->stream == NULL)
        return;
    snapshot_schedule_stop(snapshots->stream);
    snapshot_schedule_take_last(snapshots->stream);
}

void task_snapshots_free(TaskSnapshots *snapshots)
{
    if (snapshots == NULL)
        return;
    snapshot_schedule_free(snapshots->snapshots);
    snapshot_schedule_free(snapshots->stream);
    writer_lock_release(snapshots->lock);
    g_free(snapshots->stream_uri);
    g_free(snapshots->stream_directory);
    g_free(snapshots);
}
