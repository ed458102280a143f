/* Questions about an engine that all files of engine/ ask. The lock is held where engine_private.h
 * says so. */
#include "engine/engine_private.h"

#include <string.h>

#include "engine/launch/launcher_news.h"
#include "engine/task/task_run.h"
#include "io/net/caller.h"
#include "io/net/monotonic.h"

/* How long the end of the run may go unnoticed. */
#define LOOK_MS 50

char *engine_node_text(const RubatoEngine *engine, uint32_t number)
{
    return g_strdup_printf("node %u (%s)", engine->node_ids[number], engine->node_names[number]);
}

void engine_note_loss(RubatoEngine *engine, uint32_t number, const char *text)
{
    NodeLoss *const loss = &engine->losses[number];

    if (loss->text != NULL)
        return;
    loss->text = g_strdup(text);
    loss->at_us = g_get_real_time();
    loss->is_told = false;
    if (engine->network != NULL && number != engine->self) {
        loss->incarnation = network_incarnation(engine->network, number);
        const int64_t heard_ms = network_heard_ms(engine->network, number);
        loss->silent_s = heard_ms >= 0 ? (double)(network_now_ms() - heard_ms) / 1e3 : 0;
    }
}

static void note_without(RubatoEngine *engine, uint32_t number, const char *why)
{
    g_autofree char *name = engine_node_text(engine, number);
    g_autofree char *text = g_strconcat(name, " ", why, NULL);

    post_office_lose_node(&engine->office, number);
    pthread_mutex_lock(&engine->lock);
    engine_note_loss(engine, number, text);
    engine->losses[number].is_told = true; /* by others, or nobody need know */
    pthread_mutex_unlock(&engine->lock);
}

void engine_note_earlier_loss(RubatoEngine *engine, uint32_t number)
{
    note_without(engine, number, "was lost, or had left, before this process began");
}

void engine_note_absent(RubatoEngine *engine, uint32_t number)
{
    note_without(engine, number, "is spare, and no process has joined the run as it yet");
    pthread_mutex_lock(&engine->lock);
    engine->losses[number].is_absent = true;
    engine->losses[number].at_us = 0;
    pthread_mutex_unlock(&engine->lock);
}

void engine_wait_changed(RubatoEngine *engine, uint32_t ms)
{
    monotonic_wait(&engine->changed, &engine->lock, monotonic_ms() + ms);
}

void engine_list_lost(const RubatoEngine *engine, bool *lost, bool *workerless)
{
    for (uint32_t i = 0; i < engine->n_nodes; i++) {
        lost[i] = engine->losses[i].text != NULL;
        workerless[i] = lost[i] || engine->losses[i].serves;
    }
}

void engine_tell_launcher(RubatoEngine *engine)
{
    for (uint32_t i = 0; i < engine->n_nodes; i++) {
        pthread_mutex_lock(&engine->lock);
        NodeLoss *const loss = &engine->losses[i];
        const bool tells = loss->text != NULL && !loss->is_told;
        const uint64_t incarnation = loss->incarnation;

        loss->is_told = true;
        pthread_mutex_unlock(&engine->lock);
        if (tells)
            launcher_news_tell_lost(engine->node_ids[i], incarnation);
    }
}

uint64_t engine_call_under_way(RubatoEngine *engine)
{
    uint64_t call;

    pthread_mutex_lock(&engine->lock);
    if (engine->serving != NULL)
        call = engine->n_told;
    else
        call = engine->call.stage >= CALL_STAGE_GO ? engine->call.number : 0;
    pthread_mutex_unlock(&engine->lock);
    return call;
}

uint64_t engine_short_call_under_way(RubatoEngine *engine)
{
    bool is_long;

    pthread_mutex_lock(&engine->lock);
    is_long =
        engine->call.stage >= CALL_STAGE_GO && (engine->call.go.what == CONTROL_CALL_SNAPSHOT ||
                                                engine->call.go.what == CONTROL_CALL_RESTORE);
    pthread_mutex_unlock(&engine->lock);
    return is_long ? 0 : engine_call_under_way(engine);
}

void engine_begin_cut(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->cut_holds = CUT_HOLDS_MAPS;
    engine->cut_losses = engine->n_losses;
    pthread_mutex_unlock(&engine->lock);
}

void engine_release_cut(RubatoEngine *engine, CutHolds holds)
{
    pthread_mutex_lock(&engine->lock);
    engine->cut_holds = MIN(engine->cut_holds, holds);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

void engine_await_cut(RubatoEngine *engine, CutHolds holds)
{
    pthread_mutex_lock(&engine->lock);
    while (engine->cut_holds > holds && !engine->scheduler_lost)
        engine_wait_changed(engine, LOOK_MS);
    pthread_mutex_unlock(&engine->lock);
}

bool engine_cut_is_torn(RubatoEngine *engine)
{
    pthread_mutex_lock(&engine->lock);
    const bool is_torn = engine->n_losses != engine->cut_losses;
    pthread_mutex_unlock(&engine->lock);
    return is_torn;
}

/* The lock is held. */
static bool has_ended(const RubatoEngine *engine, uint64_t call)
{
    if (engine->newcomer != NULL)
        return engine->n_told_done >= call || engine->newcomer->has_ended;
    if (engine->serving != NULL)
        return engine->n_told_done >= call || engine->is_ending;
    return engine->call.number != call || engine->call.stage == CALL_STAGE_NONE;
}

void engine_await_call(RubatoEngine *engine, uint64_t call)
{
    pthread_mutex_lock(&engine->lock);
    while (call != 0 && !has_ended(engine, call) && !engine->scheduler_lost)
        engine_wait_changed(engine, LOOK_MS);
    pthread_mutex_unlock(&engine->lock);
}

Table *engine_find_table(RubatoEngine *engine, const char *name, GError **error)
{
    g_autoptr(GString) known = NULL;

    for (guint i = 0; i < engine->tables->len; i++) {
        Table *table = g_ptr_array_index(engine->tables, i);

        if (strcmp(table->spec->name, name) == 0)
            return table;
    }
    known = g_string_new(engine->tables->len == 0 ? "no table has been created" : "there are");
    for (guint i = 0; i < engine->tables->len; i++)
        g_string_append_printf(known, "%s %s", i == 0 ? "" : ",",
                               ((Table *)g_ptr_array_index(engine->tables, i))->spec->name);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "no table %s; %s", name, known->str);
    return NULL;
}

Table *engine_hold_table(RubatoEngine *engine, const char *name, GError **error)
{
    Table *table = engine_find_table(engine, name, error);

    if (table != NULL)
        table->n_holds++;
    return table;
}

void engine_release_table(RubatoEngine *engine, Table *table)
{
    g_assert(table->n_holds > 0);
    table->n_holds--;
    if (engine->newcomer != NULL) /* see newcomer_await_release */
        pthread_cond_broadcast(&engine->changed);
}

void engine_tell_deferred(RubatoEngine *engine)
{
    for (guint i = 0; i < engine->runs->len; i++)
        task_run_tell_deferred(g_ptr_array_index(engine->runs, i));
}

RubatoTaskRun *engine_find_run(RubatoEngine *engine, uint64_t epoch)
{
    for (guint i = 0; i < engine->runs->len; i++) {
        RubatoTaskRun *run = g_ptr_array_index(engine->runs, i);

        if (task_run_epoch(run) == epoch)
            return run;
    }
    return NULL;
}

bool engine_is_here(const RubatoEngine *engine)
{
    return engine->n_forks == caller_n_forks();
}

bool engine_check_place(const char *what, GError **error)
{
    if (caller_place == CALLER_IN_TASK)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s: called from a task's function, whose end it may wait for; call it from "
                    "outside",
                    what);
    else if (caller_place == CALLER_IN_CALLBACK)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s: called from a callback, which must not block", what);
    else if (caller_place == CALLER_IN_HANDLER)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s: called from a handler, whose end it may wait for; call it from outside",
                    what);
    else
        return true;
    return false;
}

bool engine_check_caller(const RubatoEngine *engine, const char *what, GError **error)
{
    if (engine_is_here(engine))
        return engine_check_place(what, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "%s: the engine belongs to the process that this one was forked from; nothing "
                "of it works in a forked process",
                what);
    return false;
}

bool engine_check_caller_or_worker(const RubatoEngine *engine, const char *what, GError **error)
{
    if (engine_is_here(engine) && caller_place == CALLER_IN_TASK)
        return true;
    return engine_check_caller(engine, what, error);
}

bool engine_check(RubatoEngine *engine, GError **error)
{
    return engine->broken_text == NULL ||
           control_check(engine->broken_code, engine->broken_text, error);
}
