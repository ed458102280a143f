/* Tasks and barriers as the application calls them: one collective call each. What a task does on
 * this node is in task/task_run.c.
 *
 * Invariant: a run is in the engine's list from prepare to the end of its wait. So a thread that
 * finds it there under the engine's lock may use it while it holds that lock.
 *
 * Threads: that of the engine's calls. */
#include "engine/engine_private.h"
#include "engine/snapshot/task_snapshots.h"
#include "engine/task/task_run.h"
#include "models/model.h"

static RubatoEngine *engine_of_run(const RubatoTaskRun *run)
{
    return task_run_host(run)->user;
}

/* ---- the tables of a task ---- */

static void release_tables(RubatoEngine *engine, Table *const *tables, size_t n)
{
    pthread_mutex_lock(&engine->lock);
    for (size_t i = 0; i < n; i++)
        engine_release_table(engine, tables[i]);
    pthread_mutex_unlock(&engine->lock);
}

static bool is_among(Table *const *tables, size_t n, const Table *table)
{
    for (size_t i = 0; i < n; i++)
        if (tables[i] == table)
            return true;
    return false;
}

/* Holds the tables that a task names, all or none. RUBATO_ERROR_NOT_FOUND, _INVALID. (*tables:
 * transfer full) */
static bool hold_tables(RubatoEngine *engine, const RubatoTask *task, Table ***tables, size_t *n,
                        GError **error)
{
    size_t n_names = 0, n_held = 0;
    bool ok = true;

    while (task->tables != NULL && task->tables[n_names] != NULL)
        n_names++;
    g_autofree Table **held = g_new0(Table *, n_names + 1);
    pthread_mutex_lock(&engine->lock);
    for (size_t i = 0; i < n_names && ok; i++) {
        Table *const table = engine_hold_table(engine, task->tables[i], error);

        ok = table != NULL && !is_among(held, n_held, table);
        if (table == NULL)
            g_prefix_error(error, "task %s: ", task->name);
        else if (!ok)
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "task %s names table %s twice",
                        task->name, task->tables[i]);
        if (table != NULL)
            held[n_held++] = table;
    }
    pthread_mutex_unlock(&engine->lock);
    if (!ok) {
        release_tables(engine, held, n_held);
        return false;
    }
    *tables = g_steal_pointer(&held);
    *n = n_held;
    return true;
}

/* ---- its life ---- */

/* A field that has no effect is refused, because its user expects one. */
static bool check_allocation(const RubatoTask *task, GError **error)
{
    if ((task->n_allocation > 0) != (task->allocation != NULL)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "task %s: n_allocation is %zu, but allocation is %s", task->name,
                    task->n_allocation, task->allocation == NULL ? "NULL" : "not NULL");
        return false;
    }
    if (task->n_allocation > 0 && task->workers_per_node > 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "task %s: workers_per_node has no effect here; it needs no allocation, which "
                    "has a number of workers for each node",
                    task->name);
        return false;
    }
    return true;
}

static void free_run(RubatoEngine *engine, RubatoTaskRun *run)
{
    size_t n;
    Table *const *const own = task_run_tables(run, &n);
    g_autofree Table **tables = g_memdup2(own, n * sizeof *own);

    task_snapshots_free(task_run_data(run));
    task_run_free(run);
    release_tables(engine, tables, n);
}

/* The rows of lost servers must live on, or no task can. */
static bool check_on_loss(const RubatoTask *task, Table *const *tables, size_t n, GError **error)
{
    const bool replaces = task->on_loss == RUBATO_ON_LOSS_REPLACE;

    if (task->on_loss > RUBATO_ON_LOSS_REPLACE) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "task %s: on_loss is %u, which is none of the choices", task->name,
                    (unsigned)task->on_loss);
        return false;
    }
    if (task->replace_ms > 0 && !replaces) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "task %s: replace_ms has no effect without RUBATO_ON_LOSS_REPLACE", task->name);
        return false;
    }
    for (size_t i = 0; i < n && task->on_loss != RUBATO_ON_LOSS_FAIL; i++)
        if (tables[i]->spec->replicas == 0) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "task %s is to %s after a loss, but its table %s has no replicas; "
                        "give it one, or take RUBATO_ON_LOSS_FAIL",
                        task->name, replaces ? "replace its workers" : "continue",
                        tables[i]->spec->name);
            return false;
        }
    return true;
}

static RubatoTaskRun *make_run(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    g_autofree Table **tables = NULL;
    RubatoTaskRun *run;
    size_t n;

    if (task->name == NULL || task->name[0] == '\0' || task->run == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a task needs a name and a function");
        return NULL;
    }
    if (!check_allocation(task, error) || !hold_tables(engine, task, &tables, &n, error))
        return NULL;
    run = check_on_loss(task, tables, n, error)
              ? task_run_new(&engine->task_host, task, tables, n, error)
              : NULL;
    if (run == NULL)
        release_tables(engine, tables, n);
    if (run == NULL || (task->snapshots == NULL && task->stream == NULL))
        return run;
    task_run_set_data(run, task_snapshots_new(engine, task, error));
    if (task_run_data(run) == NULL)
        free_run(engine, g_steal_pointer(&run));
    return run;
}

static bool perform_run(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->had_newcomers) /* so on all nodes: none catches up while others do this */
        task_run_note_losses(data);
    pthread_mutex_unlock(&engine->lock);
    if (!task_run_prepare(data, go->id, engine->call.workerless, error))
        return false;
    if (!task_snapshots_prepare(task_run_data(data), engine, data, error)) {
        task_run_abandon(data);
        return false;
    }
    pthread_mutex_lock(&engine->lock);
    g_ptr_array_add(engine->runs, data);
    pthread_mutex_unlock(&engine->lock);
    return true;
}

static void forget_run(RubatoEngine *engine, RubatoTaskRun *run)
{
    pthread_mutex_lock(&engine->lock);
    g_ptr_array_remove(engine->runs, run);
    pthread_mutex_unlock(&engine->lock);
}

static void undo_run(RubatoEngine *engine, uint32_t id, void *data)
{
    (void)id;
    forget_run(engine, data);
    task_run_abandon(data);
}

/* The numbers of its tables, for processes that serve. (transfer full) */
static char *tell_tables(const RubatoTaskRun *run)
{
    GString *const text = g_string_new(NULL);
    size_t n;
    Table *const *const tables = task_run_tables(run, &n);

    for (size_t i = 0; i < n; i++)
        g_string_append_printf(text, "%s%u", i > 0 ? " " : "", tables[i]->id);
    return g_string_free(text, FALSE);
}

/* The others had begun it before this process joined, and it has the workers of the lost process.
 * Without them the task cannot go on: it fails. */
static void take_over(RubatoEngine *engine, const ToldTask *told, const char *barriers,
                      RubatoTaskRun *run)
{
    g_autoptr(GError) error = NULL;

    task_snapshots_free(
        task_run_data(run)); /* it asks for none: worker 0 was lost, or is elsewhere */
    task_run_set_data(run, NULL);
    if (task_run_take_over(run, told, &error)) {
        pthread_mutex_lock(&engine->lock);
        g_ptr_array_add(engine->runs, run);
        newcomer_bring_up(engine, run);
        pthread_mutex_unlock(&engine->lock);
        if (task_run_return(run, barriers, &error) ||
            g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED))
            return; /* its workers end at once if it is cancelled */
    } else {
        task_run_set_past(run, told->epoch);
    }
    g_prefix_error(&error, "node %u cannot take over the workers of a lost process: ", engine->id);
    const ControlOutcome outcome = { control_code_of(error), error->message };
    engine_tell_scheduler(engine,
                          &(Control){ .kind = CONTROL_FAIL, .fail = { told->epoch, outcome } });
    if (task_run_past(run) != 0)
        engine_tell_scheduler(
            engine, &(Control){ .kind = CONTROL_TASK_DONE, .task_done = { told->epoch } });
}

/* The others had begun it before this process joined: it has no workers here, unless it is told all
 * of it. */
static void note_past_run(RubatoEngine *engine, uint32_t id, const char *told, void *data)
{
    ToldTask task;

    if (told != NULL && told_task_read(&told, engine->n_nodes, &task)) {
        take_over(engine, &task, told, data);
        told_task_clear(&task);
    } else {
        task_run_set_past(data, id);
    }
}

/* A program that has yet to catch up may name tables that were dropped since: if the task is not
 * one of those that were run before, it is refused. */
static RubatoTaskRun *make_run_of_newcomer(RubatoEngine *engine, const RubatoTask *task,
                                           bool *is_known, GError **error)
{
    g_autoptr(GError) fault = NULL;
    RubatoTaskRun *run = make_run(engine, task, &fault);

    *is_known = run != NULL;
    if (run == NULL && newcomer_catches_up(engine) &&
        g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND))
        run = task_run_new(&engine->task_host, task, NULL, 0, error);
    else if (run == NULL)
        g_propagate_error(error, g_steal_pointer(&fault));
    return run;
}

RubatoTaskRun *rubato_engine_start(RubatoEngine *engine, const RubatoTask *task, GError **error)
{
    g_autofree char *text = NULL;
    g_autofree char *detail = NULL;
    g_autofree char *workers = NULL;
    g_autofree char *told = NULL;
    RubatoTaskRun *run;
    bool is_known;

    g_return_val_if_fail(engine != NULL && task != NULL, NULL);
    LOG_SINK_SCOPE(&engine->log);
    run = make_run_of_newcomer(engine, task, &is_known, error);
    if (run == NULL)
        return NULL;
    text = g_strdup_printf("task %s", task->name);
    detail = is_known ? task_run_describe(run) : NULL;
    workers = task_run_workers(run);
    told = tell_tables(run);
    if (!collective(engine,
                    &(CollectiveCall){ .what = CONTROL_CALL_RUN,
                                       .text = text,
                                       .detail = detail,
                                       .workers = workers,
                                       .told = told,
                                       .survives = task_run_continues(run),
                                       .replace_ms = task_run_replace_ms(run),
                                       .perform = perform_run,
                                       .undo = undo_run,
                                       .past = note_past_run,
                                       .data = run },
                    error)) {
        free_run(engine, run);
        return NULL;
    }
    if (task_run_past(run) != 0)
        return run;
    engine_note_task(engine, run);
    task_run_start_workers(run);
    task_snapshots_start(task_run_data(run), run);
    return run;
}

bool rubato_task_run_wait(RubatoTaskRun *run, GError **error)
{
    RubatoEngine *engine;
    bool ok;

    g_return_val_if_fail(run != NULL, false);
    engine = engine_of_run(run);
    LOG_SINK_SCOPE(&engine->log);
    if (!engine_check_caller(engine, task_run_name(run), error))
        return false;
    if (task_run_past(run) != 0) {
        ok = newcomer_wait_task(engine, task_run_past(run), error);
        engine_note_past_end(engine);
        free_run(engine, run);
        return ok;
    }
    task_run_finish(run);
    forget_run(engine, run);
    ok = task_run_check(run, error);
    engine_note_end(engine, run, ok);
    if (ok)
        task_snapshots_finish(task_run_data(run));
    free_run(engine, run);
    return ok;
}

/* A caller that may not wait keeps all handles. */
static bool check_caller_of_all(RubatoTaskRun *const *runs, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++)
        if (runs[i] != NULL)
            return engine_check_caller(engine_of_run(runs[i]), task_run_name(runs[i]), error);
    return true;
}

bool rubato_task_runs_wait_all(RubatoTaskRun **runs, size_t n, GError **error)
{
    bool ok = true;

    g_return_val_if_fail(runs != NULL || n == 0, false);
    if (!check_caller_of_all(runs, n, error))
        return false;
    for (size_t i = 0; i < n; i++) {
        RubatoTaskRun *run = g_steal_pointer(&runs[i]);

        if (run != NULL && !rubato_task_run_wait(run, ok ? error : NULL))
            ok = false;
    }
    return ok;
}

void rubato_task_run_free(RubatoTaskRun *run)
{
    g_autoptr(GError) error = NULL;

    if (run == NULL)
        return;
    if (engine_check_caller(engine_of_run(run), "rubato_task_run_free", &error))
        (void)rubato_task_run_wait(run, NULL);
    else
        g_critical("%s; the handle was not freed", error->message);
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
        engine,
        &(CollectiveCall){ .what = CONTROL_CALL_BARRIER, .text = "a barrier", .detail = "" },
        error);
}

void rubato_engine_cancel(RubatoEngine *engine)
{
    g_autofree char *text = NULL;

    g_return_if_fail(engine != NULL);
    text = g_strdup_printf("node %u cancelled its tasks", engine->id);
    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_INTERRUPT, .interrupt = { text } });
}
