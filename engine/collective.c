/* Collective calls: every node proposes, the scheduler compares, every node does its part, and all
 * nodes learn how the call ended.
 *
 * PROPOSE → GO → (this node's part) → READY → COMMIT. A call of several steps has a GO and a READY
 * for each. A mismatch is a COMMIT without a GO. The calling thread waits. The control actor's
 * owner sets the stage. */
#include "engine/engine_private.h"
#include "io/net/stall_clock.h"

#include <string.h>

/* Whether the call has come further than to that stage and step. The lock is held. */
static bool is_past(const RubatoEngine *engine, CallStage stage, uint32_t step)
{
    return engine->call.stage > stage ||
           (engine->call.stage == stage && stage == CALL_STAGE_GO && engine->call.go.step > step);
}

/* The scheduler is lost, and what is to be said of it is known: engine_break follows at once. The
 * lock is held. */
static bool has_lost_scheduler(const RubatoEngine *engine)
{
    return engine->scheduler_lost && engine->broken_text != NULL;
}

/* Waits until the call has come further, or the engine has ended. The lock is held. */
static bool wait_past(RubatoEngine *engine, const CollectiveCall *call, CallStage stage,
                      uint32_t step, GError **error)
{
    StallClock clock;

    stall_clock_start(&clock, engine->stall_ms);
    while (!is_past(engine, stage, step) && !has_lost_scheduler(engine))
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u waits for the other nodes to come to %s (for %.1f s so far)",
                      engine->id, call->text, stall_clock_s(&clock));
    return is_past(engine, stage, step) || engine_check(engine, error);
}

/* What is cut could be read as something else. */
static const char *find_told(const CollectiveCall *call)
{
    return call->told != NULL && strlen(call->told) <= CONTROL_MAX_FILE ? call->told : NULL;
}

static void propose(RubatoEngine *engine, const CollectiveCall *call, uint64_t number)
{
    const char *const detail = call->detail != NULL ? call->detail : "";
    g_autofree char *arguments = g_strdup_printf("%s\n%s", call->text, detail);
    g_autofree char *digest = call->detail != NULL
                                  ? g_compute_checksum_for_string(G_CHECKSUM_SHA256, arguments, -1)
                                  : NULL;

    engine_tell_scheduler(engine, &(Control){ .kind = CONTROL_PROPOSE,
                                              .propose = { .call = number,
                                                           .what = call->what,
                                                           .hash_seed = call->seed,
                                                           .name = call->text,
                                                           .digest = digest,
                                                           .arguments = detail,
                                                           .workers = call->workers,
                                                           .told = find_told(call),
                                                           .survives = call->survives,
                                                           .replace_ms = call->replace_ms } });
}

static void report_ready(RubatoEngine *engine, uint64_t number, const GError *error)
{
    const ControlOutcome outcome = { control_code_of(error),
                                     error == NULL ? NULL : error->message };

    engine_tell_scheduler(engine,
                          &(Control){ .kind = CONTROL_READY, .ready = { number, outcome } });
}

/* Returns what COMMIT said. The lock is held. */
static bool check_commit(RubatoEngine *engine, GError **error)
{
    return control_check(engine->call.commit_code, engine->call.commit_text, error);
}

/* Does this node's part after GO, step by step, and waits for all others. The caller holds the
 * lock; it is released while the part runs. */
static bool take_part(RubatoEngine *engine, const CollectiveCall *call, uint64_t number,
                      GError **error)
{
    bool done = true, goes_on = true, committed;
    uint32_t id = 0;

    while (goes_on && engine->call.stage == CALL_STAGE_GO) {
        const ControlGo go = engine->call.go;
        g_autoptr(GError) fault = NULL;

        pthread_mutex_unlock(&engine->lock);
        if (call->perform != NULL)
            done = call->perform(engine, &go, call->data, &fault);
        if (!done && fault == NULL) /* which others would take for success */
            g_set_error(&fault, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "%s: failed, and nothing said why", call->text);
        report_ready(engine, number, fault);
        pthread_mutex_lock(&engine->lock);
        id = go.id;
        goes_on = wait_past(engine, call, CALL_STAGE_GO, go.step, error);
    }
    committed = goes_on && check_commit(engine, error);
    if (done && !committed && call->undo != NULL) {
        pthread_mutex_unlock(&engine->lock);
        call->undo(engine, id, call->data);
        pthread_mutex_lock(&engine->lock);
    }
    return committed;
}

/* Two collective calls at once, perhaps one made from within the other, as by a function that
 * writes the log. The lock is held. */
static void refuse_second(const RubatoEngine *engine, const CollectiveCall *call, GError **error)
{
    const bool is_own = pthread_equal(engine->call.caller, pthread_self()) != 0;

    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "%s: %s is in a collective call of this engine, %s; make one call after the other",
                call->text, is_own ? "this thread itself" : "another thread", engine->call.text);
}

/* The lock is held. */
static void end_call(RubatoEngine *engine, const CollectiveCall *call, bool ok)
{
    if (ok && call->commit != NULL)
        call->commit(engine, call->data);
    engine->call.stage = CALL_STAGE_NONE;
    pthread_cond_broadcast(&engine->changed);
    g_clear_pointer(&engine->call.commit_text, g_free);
}

bool collective_serve(RubatoEngine *engine, const CollectiveCall *call, const ControlGo *go,
                      const bool *lost, GError **error)
{
    return collective_serve_own(engine, call, go, lost, lost, error);
}

bool collective_serve_own(RubatoEngine *engine, const CollectiveCall *call, const ControlGo *go,
                          const bool *lost, const bool *workerless, GError **error)
{
    bool ok;

    pthread_mutex_lock(&engine->lock);
    engine->call.number = go->call;
    engine->call.caller = pthread_self();
    engine->call.text = call->text;
    engine->call.go = *go;
    engine->call.go.told = NULL; /* the caller's */
    memcpy(engine->call.lost, lost, engine->n_nodes * sizeof *lost);
    memcpy(engine->call.workerless, workerless, engine->n_nodes * sizeof *workerless);
    engine->call.stage = CALL_STAGE_GO;
    ok = take_part(engine, call, go->call, error);
    end_call(engine, call, ok);
    pthread_mutex_unlock(&engine->lock);
    return ok;
}

/* A call of a program in the place of a lost process: the run may have made it before, or the
 * thread of serving.h does this node's part. */
static bool make_as_newcomer(RubatoEngine *engine, const CollectiveCall *call, GError **error)
{
    const Newcomer *const newcomer = engine->newcomer;
    StallClock clock;
    uint64_t number;

    pthread_mutex_lock(&engine->lock);
    if (newcomer->stage != NEWCOMER_NONE) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s: there is a collective call of this engine, %s; make one call after the "
                    "other",
                    call->text, newcomer->call->text);
        pthread_mutex_unlock(&engine->lock);
        return false;
    }
    number = newcomer_begin_call(engine, call);
    pthread_mutex_unlock(&engine->lock);
    propose(engine, call, number);
    stall_clock_start(&clock, engine->stall_ms);
    pthread_mutex_lock(&engine->lock);
    while (newcomer->stage == NEWCOMER_ASKED && !newcomer->has_ended)
        if (stall_clock_wait(&clock, &engine->changed, &engine->lock))
            g_message("node %u waits for the other nodes to come to %s (for %.1f s so far)",
                      engine->id, call->text, stall_clock_s(&clock));
    const bool was_past = newcomer->stage == NEWCOMER_PAST;
    if (was_past) /* so the next call finds the tables that there are */
        newcomer_await_done(engine, number);
    const uint32_t id = newcomer->past_id;
    g_autofree char *told = was_past ? g_strdup(newcomer->past_told) : NULL;
    const bool ok = newcomer_check_call(engine, error);
    pthread_mutex_unlock(&engine->lock);
    if (ok && was_past && call->past != NULL)
        call->past(engine, id, told, call->data);
    if (ok && engine->history != NULL)
        history_next_phase(engine->history);
    return ok;
}

bool collective(RubatoEngine *engine, const CollectiveCall *call, GError **error)
{
    LOG_SINK_SCOPE(&engine->log);
    uint64_t number;
    bool ok;

    if (!engine_check_caller(engine, call->text, error))
        return false;
    if (engine->newcomer != NULL)
        return make_as_newcomer(engine, call, error);
    pthread_mutex_lock(&engine->lock);
    if (engine->call.stage != CALL_STAGE_NONE) {
        refuse_second(engine, call, error);
        pthread_mutex_unlock(&engine->lock);
        return false;
    }
    number = ++engine->call.number;
    engine->call.caller = pthread_self();
    engine->call.text = call->text;
    engine->call.stage = CALL_STAGE_PROPOSED;
    pthread_mutex_unlock(&engine->lock);
    propose(engine, call, number);
    pthread_mutex_lock(&engine->lock);
    ok = wait_past(engine, call, CALL_STAGE_PROPOSED, 0, error);
    if (ok && engine->call.stage == CALL_STAGE_GO)
        ok = take_part(engine, call, number, error);
    else if (ok)
        ok = check_commit(engine, error);
    end_call(engine, call, ok);
    pthread_mutex_unlock(&engine->lock);
    if (ok && engine->history != NULL)
        history_next_phase(engine->history);
    return ok;
}
