/* See newcomer.h.
 *
 * Why its waits end. The scheduler answers each call: at once, or as it answers those of the
 * others. Otherwise the thread of serving.h ends, because the run has ended for this node. Before
 * that it ends a call of the program that it has begun.
 *
 * newcomer_await_done waits for the end of calls that the scheduler has decided: it has told this
 * node so before.
 *
 * newcomer_await_release waits for the program, in the thread of serving.h, which does nothing for
 * the program meanwhile. So it does not wait if the program asks for the very call that is made: it
 * may have another one in its place, and is refused after this one. An earlier call is answered by
 * the scheduler, and no other thread. A task that goes on may need the others, which are in this
 * call: it is not waited for either. What is left is a task that has ended, and reads, which
 * servers answer. */
#include "engine/join/newcomer.h"

#include "engine/engine_private.h"
#include "engine/task/task_run.h"
#include "io/net/stall_clock.h"

/* A task of a call that was made before. */
typedef struct {
    uint32_t epoch;
    bool has_ended;
    bool is_cancelled; /* or it is, and will end */
    uint32_t code;
    char *text;
} WatchedTask;

static void clear_watched(void *data)
{
    g_free(((WatchedTask *)data)->text);
}

Newcomer *newcomer_new(void)
{
    Newcomer *const newcomer = g_new0(Newcomer, 1);

    newcomer->watched = g_array_new(FALSE, FALSE, sizeof(WatchedTask));
    g_array_set_clear_func(newcomer->watched, clear_watched);
    newcomer->tables = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    newcomer->told = g_queue_new();
    return newcomer;
}

void newcomer_free(Newcomer *newcomer)
{
    if (newcomer == NULL)
        return;
    g_array_unref(newcomer->watched);
    g_queue_free_full(newcomer->told, g_free);
    g_hash_table_unref(newcomer->tables);
    g_clear_error(&newcomer->error);
    g_free(newcomer->past_text);
    g_free(newcomer->past_told);
    g_free(newcomer);
}

bool newcomer_catches_up(RubatoEngine *engine)
{
    bool catches_up;

    if (engine->newcomer == NULL)
        return false;
    pthread_mutex_lock(&engine->lock);
    catches_up = !engine->newcomer->has_caught_up;
    pthread_mutex_unlock(&engine->lock);
    return catches_up;
}

/* ---- what the scheduler says ---- */

static bool awaits(const Newcomer *newcomer, uint64_t call)
{
    return newcomer != NULL && newcomer->stage == NEWCOMER_ASKED && newcomer->n_calls == call;
}

/* It hears of the end after this message, if the task goes on. */
static void watch(Newcomer *newcomer, const ControlPast *past)
{
    const WatchedTask task = { .epoch = past->id,
                               .has_ended = !past->goes_on,
                               .code = past->end.code,
                               .text = g_strdup(past->end.text) };

    g_array_append_val(newcomer->watched, task);
}

void newcomer_hears_past(RubatoEngine *engine, const ControlPast *past)
{
    pthread_mutex_lock(&engine->lock);
    Newcomer *const newcomer = engine->newcomer;
    if (awaits(newcomer, past->call)) {
        newcomer->stage = NEWCOMER_PAST;
        newcomer->past_id = past->id;
        newcomer->past_code = past->outcome.code;
        g_free(newcomer->past_text);
        newcomer->past_text = g_strdup(past->outcome.text);
        g_free(newcomer->past_told);
        newcomer->past_told = g_strdup(past->told);
        if (newcomer->call->what == CONTROL_CALL_RUN && past->outcome.code == CONTROL_OK)
            watch(newcomer, past);
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* All nodes hear so between the same two calls: so they count the same workers in a new task. */
void newcomer_hears_caught_up(RubatoEngine *engine, const ControlCaughtUp *caught_up)
{
    g_auto(GStrv) words = g_strsplit(caught_up->lines, " ", -1);
    guint64 number;

    if (caught_up->number >= engine->n_nodes)
        return;
    pthread_mutex_lock(&engine->lock);
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        engine->losses[i].serves = false;
    for (char **word = words; *word != NULL; word++)
        if (g_ascii_string_to_unsigned(*word, 10, 0, engine->n_nodes - 1, &number, NULL))
            engine->losses[number].serves = true;
    engine->had_newcomers = true;
    if (caught_up->number == engine->self && engine->newcomer != NULL)
        engine->newcomer->has_caught_up = true;
    pthread_mutex_unlock(&engine->lock);
    g_message("node %u, which has joined the run, has come to where the others are, and makes the "
              "same calls from now on",
              engine->node_ids[caught_up->number]);
}

/* The lock is held. */
static WatchedTask *find_watched(const Newcomer *newcomer, uint32_t epoch)
{
    for (guint i = 0; i < newcomer->watched->len; i++)
        if (g_array_index(newcomer->watched, WatchedTask, i).epoch == epoch)
            return &g_array_index(newcomer->watched, WatchedTask, i);
    return NULL;
}

void newcomer_hears_cancel(RubatoEngine *engine, const ControlTaskEnd *cancel)
{
    if (engine->newcomer == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    WatchedTask *const task = find_watched(engine->newcomer, cancel->epoch);
    if (task != NULL && !task->has_ended && !task->is_cancelled) {
        task->is_cancelled = true;
        task->code = cancel->outcome.code;
        g_free(task->text);
        task->text = g_strdup(cancel->outcome.text);
    }
    pthread_mutex_unlock(&engine->lock);
}

void newcomer_bring_up(RubatoEngine *engine, RubatoTaskRun *run)
{
    const WatchedTask *const task = find_watched(engine->newcomer, task_run_epoch(run));

    if (task->is_cancelled)
        task_run_cancel(run, task->code, task->text);
    if (task->has_ended)
        task_run_end(run, task->code, task->text);
}

void newcomer_hears_end(RubatoEngine *engine, const ControlTaskEnd *end)
{
    if (engine->newcomer == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    WatchedTask *const task = find_watched(engine->newcomer, end->epoch);
    if (task != NULL && !task->has_ended) {
        task->has_ended = true;
        task->code = end->outcome.code;
        g_free(task->text);
        task->text = g_strdup(end->outcome.text);
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Of a call that has had a GO, the thread of serving.h hears. */
void newcomer_hears_commit(RubatoEngine *engine, const ControlCallEnd *commit)
{
    GError *error = NULL;

    if (engine->newcomer == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    if (awaits(engine->newcomer, commit->call) && engine->newcomer->has_caught_up &&
        !engine->newcomer->has_gone) {
        const bool ok = control_check(commit->outcome.code, commit->outcome.text, &error);

        newcomer_end_call(engine, ok, error);
    }
    pthread_mutex_unlock(&engine->lock);
}

bool newcomer_makes(Newcomer *newcomer, uint64_t call)
{
    if (!awaits(newcomer, call) || !newcomer->has_caught_up)
        return false;
    newcomer->has_gone = true;
    return true;
}

/* ---- its thread ---- */

void newcomer_note_told(Newcomer *newcomer, uint64_t call)
{
    g_queue_push_tail(newcomer->told, g_memdup2(&call, sizeof call));
}

void newcomer_note_done(RubatoEngine *engine)
{
    g_free(g_queue_pop_head(engine->newcomer->told));
    pthread_cond_broadcast(&engine->changed);
}

static bool has_to_do(const Newcomer *newcomer, uint64_t call)
{
    const uint64_t *const first = g_queue_peek_head(newcomer->told);

    return first != NULL && *first <= call && !newcomer->has_ended;
}

void newcomer_await_done(RubatoEngine *engine, uint64_t call)
{
    StallClock clock;

    stall_clock_start(&clock, engine->stall_ms);
    while (has_to_do(engine->newcomer, call))
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u, which has joined the run, has yet to do its part of calls that the "
                      "others have made (for %.1f s so far)",
                      engine->id, stall_clock_s(&clock));
}

void newcomer_end_call(RubatoEngine *engine, bool ok, GError *error)
{
    Newcomer *const newcomer = engine->newcomer;

    newcomer->stage = NEWCOMER_DONE;
    newcomer->is_ok = ok;
    g_clear_error(&newcomer->error);
    newcomer->error = error;
    pthread_cond_broadcast(&engine->changed);
}

void newcomer_end(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->newcomer->has_ended = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* ---- the program ---- */

char *newcomer_describe_end(const RubatoEngine *engine)
{
    return g_strdup_printf("node %u, which has joined the run: the run has ended meanwhile",
                           engine->id);
}

/* Why nothing is heard any more. The lock is held. */
static void tell_end(RubatoEngine *engine, GError **error)
{
    if (!engine_check(engine, error))
        return;
    g_autofree char *text = newcomer_describe_end(engine);
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED, text);
}

bool newcomer_wait_placed(RubatoEngine *engine, GError **error)
{
    const Newcomer *const newcomer = engine->newcomer;
    StallClock clock;

    stall_clock_start(&clock, engine->stall_ms);
    pthread_mutex_lock(&engine->lock);
    while (!newcomer->is_placed && !newcomer->has_ended)
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u waits to hear where the parts of tables are (for %.1f s so far)",
                      engine->id, stall_clock_s(&clock));
    const bool is_placed = !newcomer->has_ended;
    if (!is_placed)
        tell_end(engine, error);
    pthread_mutex_unlock(&engine->lock);
    return is_placed;
}

void newcomer_note_placed(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->newcomer->is_placed = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* The lock is held. */
static bool is_in_run(const RubatoEngine *engine, const Table *table)
{
    for (guint i = 0; i < engine->runs->len; i++) {
        size_t n;
        Table *const *const tables = task_run_tables(g_ptr_array_index(engine->runs, i), &n);

        for (size_t j = 0; j < n; j++)
            if (tables[j] == table)
                return true;
    }
    return false;
}

/* The lock is held. */
static bool will_release(const RubatoEngine *engine, const Table *table, uint64_t call)
{
    const Newcomer *const newcomer = engine->newcomer;
    const bool asks_for_it = newcomer->stage == NEWCOMER_ASKED && newcomer->n_calls >= call;
    const bool awaits_task =
        newcomer->awaited != 0 && !find_watched(newcomer, newcomer->awaited)->has_ended;

    return table->n_holds > 0 && !newcomer->has_caught_up && !asks_for_it && !awaits_task &&
           !engine->left && !engine->scheduler_lost && !is_in_run(engine, table);
}

void newcomer_await_release(RubatoEngine *engine, const Table *table, uint64_t call)
{
    StallClock clock;

    if (engine->newcomer == NULL)
        return;
    stall_clock_start(&clock, engine->stall_ms);
    while (will_release(engine, table, call))
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u cannot drop table %s yet: its program, which has yet to catch up, "
                      "uses it (for %.1f s so far)",
                      engine->id, table->spec->name, stall_clock_s(&clock));
}

uint64_t newcomer_begin_call(RubatoEngine *engine, const CollectiveCall *call)
{
    Newcomer *const newcomer = engine->newcomer;

    newcomer->stage = NEWCOMER_ASKED;
    newcomer->call = call;
    newcomer->has_gone = false;
    newcomer->n_calls++;
    pthread_cond_broadcast(&engine->changed); /* see newcomer_await_release */
    return newcomer->n_calls;
}

bool newcomer_check_call(RubatoEngine *engine, GError **error)
{
    Newcomer *const newcomer = engine->newcomer;
    bool ok = false;

    if (newcomer->stage == NEWCOMER_PAST) {
        ok = control_check(newcomer->past_code, newcomer->past_text, error);
    } else if (newcomer->stage == NEWCOMER_DONE) {
        ok = newcomer->is_ok;
        if (!ok)
            g_propagate_error(error, g_steal_pointer(&newcomer->error));
    } else {
        tell_end(engine, error);
    }
    newcomer->stage = NEWCOMER_NONE;
    newcomer->call = NULL;
    return ok;
}

bool newcomer_has_table(RubatoEngine *engine, const char *name)
{
    pthread_mutex_lock(&engine->lock);
    const bool has = g_hash_table_contains(engine->newcomer->tables, name);
    pthread_mutex_unlock(&engine->lock);
    return has;
}

void newcomer_note_table(RubatoEngine *engine, const char *name, bool is_there)
{
    pthread_mutex_lock(&engine->lock);
    if (is_there)
        g_hash_table_add(engine->newcomer->tables, g_strdup(name));
    else
        g_hash_table_remove(engine->newcomer->tables, name);
    pthread_mutex_unlock(&engine->lock);
}

bool newcomer_wait_task(RubatoEngine *engine, uint32_t epoch, GError **error)
{
    Newcomer *const newcomer = engine->newcomer;
    StallClock clock;
    bool ok = false;

    stall_clock_start(&clock, engine->stall_ms);
    pthread_mutex_lock(&engine->lock);
    newcomer->awaited = epoch;
    pthread_cond_broadcast(&engine->changed); /* see newcomer_await_release */
    while (!find_watched(newcomer, epoch)->has_ended && !newcomer->has_ended)
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u, which has joined the run, waits for the end of a task that "
                      "the others had begun before (for %.1f s so far)",
                      engine->id, stall_clock_s(&clock));
    newcomer->awaited = 0;
    const WatchedTask *const task = find_watched(newcomer, epoch);
    if (task->has_ended)
        ok = control_check(task->code, task->text, error);
    else
        tell_end(engine, error);
    pthread_mutex_unlock(&engine->lock);
    return ok;
}
