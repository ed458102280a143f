/* Tasks and barriers as the application calls them: one collective call each. What a task is on
 * this node stands in task_run.c. */
#include "engine/node.h"
#include "engine/task/task_run.h"

static bool perform_run(RubatoEngine *engine, uint32_t id, uint64_t seed, void *data,
                        GError **error)
{
    (void)engine;
    (void)seed;
    return task_run_prepare(data, id, error);
}

static void undo_run(RubatoEngine *engine, uint32_t id, void *data)
{
    (void)engine;
    (void)id;
    task_run_abandon(data);
}

RubatoTaskRun *rubato_engine_start(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    RubatoTaskRun *run;

    g_return_val_if_fail(engine != NULL && task != NULL, NULL);
    run = task_run_new(engine, task, error);
    if (run == NULL)
        return NULL;
    text = g_strdup_printf("task %s", task->name);
    detail = task_run_describe(run);
    if (!collective(engine,
                    &(CollectiveCall){ .what = CONTROL_RUN,
                                       .text = text,
                                       .detail = detail,
                                       .perform = perform_run,
                                       .undo = undo_run,
                                       .data = run },
                    error)) {
        task_run_free(run);
        return NULL;
    }
    task_run_start_workers(run);
    return run;
}

bool rubato_engine_run(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    RubatoTaskRun *run = rubato_engine_start(engine, task, error);

    return run != NULL && rubato_task_run_wait(run, error);
}

bool rubato_engine_barrier(RubatoEngine *engine, GError **error)
{
    g_return_val_if_fail(engine != NULL, false);
    return collective(
        engine, &(CollectiveCall){ .what = CONTROL_BARRIER, .text = "a barrier", .detail = "" },
        error);
}

void rubato_engine_cancel(RubatoEngine *engine)
{
    g_autofree char *text = NULL;

    g_return_if_fail(engine != NULL);
    text = g_strdup_printf("node %u cancelled its tasks", engine->id);
    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_INTERRUPT, .interrupt = { text } });
}
