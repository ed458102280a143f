/* See serving.h.
 *
 * Why it ends what it does: it waits for the servers of this node, which wait for nothing, and for
 * the COMMIT of a call, which comes whatever steps follow a loss meanwhile. */
#include "engine/join/serving.h"

#include "engine/control/told_table.h"
#include "engine/control/told_task.h"
#include "engine/engine_private.h"
#include "engine/launch/launcher_news.h"
#include "engine/snapshot/led_snapshots.h"
#include "models/model.h"

#define LOOK_MS 1000u

/* What it was told. */
typedef struct {
    Control control;
    bool *lost, *workerless; /* as in PresentCall, when it came */
    bool is_own;             /* a call of this process's program */
} Told;

/* A task whose models the servers have. */
typedef struct {
    ToldTask task;     /* the servers use its workers_of */
    GPtrArray *tables; /* of Table, which the engine owns */
    pthread_mutex_t lock;
    GError *error; /* guarded by lock: the first */
} ServedTask;

struct Serving {
    GQueue queue; /* of Told; guarded by the engine's lock */

    /* the thread of serving_run only */
    GPtrArray *tasks; /* of ServedTask */
};

static void told_free(Told *told)
{
    control_clear(&told->control);
    g_free(told->lost);
    g_free(told->workerless);
    g_free(told);
}

static void served_task_free(ServedTask *served)
{
    told_task_clear(&served->task);
    g_ptr_array_unref(served->tables);
    g_clear_error(&served->error);
    pthread_mutex_destroy(&served->lock);
    g_free(served);
}

Serving *serving_new(void)
{
    Serving *const serving = g_new0(Serving, 1);

    g_queue_init(&serving->queue);
    serving->tasks = g_ptr_array_new_with_free_func((GDestroyNotify)served_task_free);
    return serving;
}

void serving_free(Serving *serving)
{
    if (serving == NULL)
        return;
    g_queue_clear_full(&serving->queue, (GDestroyNotify)told_free);
    g_ptr_array_unref(serving->tasks);
    g_free(serving);
}

void serving_hear(RubatoEngine *engine, const Control *control)
{
    Told *const told = g_new0(Told, 1);

    control_copy(&told->control, control);
    told->lost = g_new0(bool, engine->n_nodes);
    told->workerless = g_new0(bool, engine->n_nodes);
    pthread_mutex_lock(&engine->lock);
    engine_list_lost(engine, told->lost, told->workerless);
    told->is_own =
        control->kind == CONTROL_GO && newcomer_makes(engine->newcomer, control->go.call);
    if (control->kind == CONTROL_GO && engine->newcomer != NULL)
        newcomer_note_told(engine->newcomer, control->go.call);
    g_queue_push_tail(&engine->serving->queue, told);
    engine->n_told++;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* ---- tasks ---- */

static void begin_models(Server *server, void *data)
{
    ServedTask *const served = data;

    for (guint i = 0; i < served->tables->len; i++) {
        const Table *const table = served->tables->pdata[i];
        const RubatoModelSetup setup = { .spec = table->spec,
                                         .n_workers = served->task.n_workers,
                                         .hash_seed = table->hash_seed };
        GError *error = NULL;

        if (server_begin_task(server, served->task.epoch, table->id, &setup,
                              server->office->n_nodes, served->task.workers_of, &error)) {
            if (served->task.replaces)
                server_keep_lost_workers(server, served->task.epoch, table->id);
            continue;
        }
        pthread_mutex_lock(&served->lock);
        if (served->error == NULL)
            served->error = g_steal_pointer(&error);
        pthread_mutex_unlock(&served->lock);
        g_clear_error(&error);
    }
}

static void end_models(Server *server, void *data)
{
    server_end_task(server, ((const ServedTask *)data)->task.epoch);
}

static void end_served(RubatoEngine *engine, guint i)
{
    GPtrArray *const tasks = engine->serving->tasks;

    servers_run(engine->servers, engine->n_servers, end_models, tasks->pdata[i]);
    g_ptr_array_remove_index(tasks, i);
}

/* Nothing if there is no such task: it was cancelled, or never began here. */
static void end_task(RubatoEngine *engine, uint32_t epoch)
{
    const GPtrArray *const tasks = engine->serving->tasks;

    for (guint i = 0; i < tasks->len; i++)
        if (((const ServedTask *)tasks->pdata[i])->task.epoch == epoch) {
            end_served(engine, i);
            return;
        }
}

/* No table is made or dropped meanwhile: this thread does so. */
static bool find_tables(const RubatoEngine *engine, ServedTask *served, GError **error)
{
    for (uint32_t i = 0; i < served->task.n_tables; i++) {
        Table *const table = engine_find_told_table(engine, served->task.tables[i]);

        if (table == NULL) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                        "node %u, which has joined the run, was told a task with a table %u that "
                        "it does not have",
                        engine->id, served->task.tables[i]);
            return false;
        }
        g_ptr_array_add(served->tables, table);
    }
    return true;
}

/* Takes the task's members. */
static bool begin_task(RubatoEngine *engine, const ToldTask *task, GError **error)
{
    ServedTask *const served = g_new0(ServedTask, 1);

    served->task = *task;
    served->tables = g_ptr_array_new();
    pthread_mutex_init(&served->lock, NULL);
    g_ptr_array_add(engine->serving->tasks, served);
    if (find_tables(engine, served, error)) {
        servers_run(engine->servers, engine->n_servers, begin_models, served);
        if (served->error == NULL)
            return true;
        g_propagate_error(error, g_steal_pointer(&served->error));
    }
    end_task(engine, task->epoch);
    return false;
}

/* ---- calls ---- */

static bool perform_run(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    const char *at = data;
    ToldTask task;

    (void)go;
    if (told_task_read(&at, engine->n_nodes, &task))
        return begin_task(engine, &task, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                "node %u, which has joined the run, was told a task that makes no sense",
                engine->id);
    return false;
}

static void undo_run(RubatoEngine *engine, uint32_t id, void *data)
{
    (void)data;
    end_task(engine, id);
}

/* The program waits for it. */
static void do_own_call(RubatoEngine *engine, const Told *told)
{
    GError *error = NULL;

    pthread_mutex_lock(&engine->lock);
    const CollectiveCall *const call = engine->newcomer->call;
    pthread_mutex_unlock(&engine->lock);
    const bool ok =
        collective_serve_own(engine, call, &told->control.go, told->lost, told->workerless, &error);
    pthread_mutex_lock(&engine->lock);
    newcomer_end_call(engine, ok, error);
    pthread_mutex_unlock(&engine->lock);
}

static void do_call(RubatoEngine *engine, const Told *told)
{
    const ControlGo *const go = &told->control.go;
    CollectiveCall call = { .what = go->what, .text = "a call of the other nodes", .detail = "" };
    g_autoptr(GError) error = NULL;
    g_autofree char *text = g_strdup(go->told);

    if (go->what == CONTROL_CALL_RUN) {
        call.perform = perform_run;
        call.undo = undo_run;
        call.data = text;
        (void)collective_serve(engine, &call, go, told->lost, &error);
    } else if (go->what == CONTROL_CALL_MOVE) {
        engine_serve_move(engine, go, told->lost, &error);
    } else if (go->what == CONTROL_CALL_SNAPSHOT) {
        snapshot_serve(engine, go, told->lost, &error);
    } else if (go->what == CONTROL_CALL_RESTORE) { /* another node fills its parts */
        (void)collective_serve(engine, &call, go, told->lost, &error);
    } else {
        engine_serve_tables(engine, go, told->lost, &error);
    }
    if (error != NULL) /* the others hear the same */
        g_message("node %u: a call of the other nodes has failed: %s", engine->id, error->message);
}

/* ---- TABLES ---- */

/* False: it cannot read what it was told, and is of no use. */
static bool take_run(RubatoEngine *engine, const char *lines, GError **error)
{
    ToldTask task;

    while (*lines == '{')
        if (!engine_take_table(engine, &lines, error))
            return false;
    while (told_task_read(&lines, engine->n_nodes, &task))
        if (!begin_task(engine, &task, error))
            return false;
    if (*lines == '\0')
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "what the run has makes no sense");
    return false;
}

/* False: the process ends, and the others lose it again. */
static bool do_tables(RubatoEngine *engine, const ControlRecover *recover, GError **error)
{
    if (!take_run(engine, recover->lines, error)) {
        g_prefix_error(error, "node %u has joined the run and cannot serve: ", engine->id);
        return false;
    }
    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_RECOVERED,
                                              .recover = { .map = recover->map,
                                                           .step = recover->step,
                                                           .node = recover->node } });
    return true;
}

/* ---- until the run ends ---- */

static bool do_told(RubatoEngine *engine, const Told *told, GError **error)
{
    const Control *const control = &told->control;

    if (control->kind == CONTROL_RECOVER)
        return do_tables(engine, &control->recover, error);
    if (told->is_own)
        do_own_call(engine, told);
    else if (control->kind == CONTROL_GO)
        do_call(engine, told);
    else
        end_task(engine,
                 control->kind == CONTROL_CANCEL ? control->cancel.epoch : control->task_end.epoch);
    return true;
}

void serving_run(RubatoEngine *engine, GError **error)
{
    bool serves = true;

    g_message("node %u has %s, and %s", engine->id,
              engine->is_new ? "joined the run" : "taken the place of a lost process",
              engine->newcomer == NULL ? "serves until the run ends"
                                       : "makes the calls of its program again");
    pthread_mutex_lock(&engine->lock);
    while (serves && !engine->left && !engine->scheduler_lost) {
        Told *const told = g_queue_pop_head(&engine->serving->queue);

        if (told == NULL) {
            engine_wait_changed(engine, LOOK_MS);
            continue;
        }
        pthread_mutex_unlock(&engine->lock);
        serves = do_told(engine, told, error);
        pthread_mutex_lock(&engine->lock);
        if (told->control.kind == CONTROL_GO && engine->newcomer != NULL)
            newcomer_note_done(engine);
        told_free(told);
        engine->n_told_done++;
        pthread_cond_broadcast(&engine->changed);
    }
    if (serves && engine_check(engine, error))
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_SERVED,
                    "node %u has served%s until the run ended", engine->id,
                    engine->is_new ? ", as a node that had joined,"
                                   : " in the place of a lost process");
    pthread_mutex_unlock(&engine->lock);
    if (engine->newcomer == NULL)
        launcher_news_tell_served(engine->id);
    while (engine->serving->tasks->len > 0) /* what has not been taken would have ended them */
        end_served(engine, 0);
}

/* The run has ended before the program has caught up: no node answers its reads any more. */
static void end_program(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    const bool is_cut_off = engine->left && !engine->scheduler_lost &&
                            !engine->newcomer->has_caught_up && !engine->is_ending;
    pthread_mutex_unlock(&engine->lock);
    if (!is_cut_off)
        return;
    g_autofree char *text = newcomer_describe_end(engine);
    engine_break(engine, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text);
}

static void *serve(void *user)
{
    RubatoEngine *const engine = user;
    g_autoptr(GError) error = NULL;
    LOG_SINK_SCOPE(&engine->log);

    serving_run(engine, &error);
    if (!g_error_matches(error, RUBATO_ERROR, RUBATO_ERROR_SERVED)) /* or others say it */
        g_message("node %u: %s", engine->id, error->message);
    newcomer_end(engine);
    end_program(engine);
    return NULL;
}

bool serving_start(RubatoEngine *engine, GError **error)
{
    engine->newcomer->has_thread =
        log_sink_start_thread(&engine->newcomer->thread, serve, engine) == 0;
    if (!engine->newcomer->has_thread)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "cannot start the thread that serves for the program");
    return engine->newcomer->has_thread;
}

void serving_join(RubatoEngine *engine)
{
    if (engine->newcomer != NULL && engine->newcomer->has_thread)
        pthread_join(engine->newcomer->thread, NULL);
}
