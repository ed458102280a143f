/* Steps of a worker, in the middle of which no snapshot cuts it.
 *
 * Why the wait of a worker ends: the gate is closed while a snapshot is cut, and that ends whatever
 * workers do (engine/snapshot/snapshot_cut.c).
 *
 * Threads: the worker's. */
#include <rubato/snapshot.h>

#include "engine/task/kept_rows.h"
#include "engine/task/task_run_private.h"
#include "tables/worker.h"

/* How long a cancellation may go unnoticed. */
#define LOOK_MS 20

static bool refuse(const RubatoWorker *worker, const char *why, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "worker %u of task %s %s", worker->rank,
                worker->task, why);
    return false;
}

bool rubato_worker_begin_step(RubatoWorker *worker, GError **error)
{
    StallClock clock;

    g_return_val_if_fail(worker != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    if (worker->is_in_step)
        return refuse(worker, "begins a step in the middle of another one", error);
    const RubatoTaskRun *const run = worker->engine_data;

    stall_clock_start(&clock, run->host->stall_ms);
    while (!step_gate_enter(run->steps, worker->rank, LOOK_MS)) {
        if (task_run_is_cancelled(run)) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, "task %s was cancelled",
                        run->name);
            return false;
        }
        if (stall_clock_strikes(&clock))
            g_message("worker %u waits with its next step until a snapshot is cut (for %.1f s so "
                      "far)",
                      worker->rank, stall_clock_s(&clock));
    }
    worker->is_in_step = true;
    kept_rows_begin_step(worker);
    return true;
}

bool rubato_worker_end_step(RubatoWorker *worker, GError **error)
{
    g_return_val_if_fail(worker != NULL, false);
    if (!worker_check_owner(worker, error))
        return false;
    if (!worker->is_in_step)
        return refuse(worker, "ends a step that has not begun", error);
    const RubatoTaskRun *const run = worker->engine_data;
    const bool ok = kept_rows_end_step(worker, error);

    worker->is_in_step = false;
    step_gate_leave(run->steps, worker->rank);
    return ok;
}
