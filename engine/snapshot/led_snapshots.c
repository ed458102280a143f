/* Snapshots that the scheduler leads, on this node: a thread does the steps, one after the other,
 * because PREPARE and WRITE wait for the store, and CLOSE for senders.
 *
 * Why each wait ends: as snapshot_cut.c says. CLOSE waits for workers in the middle of a step, up
 * to stall_ms. PREPARE also waits for the end of a collective call that the scheduler has decided
 * before, whose COMMIT has come, or comes without a step of anybody.
 *
 * Threads: as the header says; the rest on the thread of the steps, which starts with the first
 * one. */
#include "engine/snapshot/led_snapshots.h"

#include "engine/snapshot/snapshot_files.h"
#include "engine/snapshot/snapshot_owner.h"
#include "engine/snapshot/snapshot_text.h"
#include "io/store/outside_requests.h"

/* The present one, from PREPARE to FORGET. */
struct LedSnapshot {
    SnapshotText text;
    SnapshotWriting writing;
};

typedef struct {
    Message message; /* first: the thread finds the step by it */
    RubatoEngine *engine;
    Control control;
    uint64_t call; /* the collective call that has to end before; 0: none */
} StepMail;

/* ---- its life ---- */

static void led_free(RubatoEngine *engine, LedSnapshot *led)
{
    cut_clear(engine, &led->writing.cut);
    snapshot_writing_clear(engine, &led->writing);
    snapshot_text_clear(&led->text);
    g_free(led);
}

/* failure: NULL if it is whole. */
static void end(RubatoEngine *engine, LedSnapshot *led, const char *failure)
{
    if (failure != NULL)
        snapshot_abandon(engine, &led->writing);
    snapshot_answer_requests(&led->writing, failure);
    led_free(engine, led);
}

static void forget(RubatoEngine *engine, const char *failure)
{
    if (engine->led != NULL)
        end(engine, g_steal_pointer(&engine->led), failure);
}

/* Holds the tables of the ids. */
static bool find_tables(RubatoEngine *engine, const GArray *ids, GPtrArray *tables, GError **error)
{
    bool ok = true;

    pthread_mutex_lock(&engine->lock);
    for (guint i = 0; i < ids->len && ok; i++) {
        const uint32_t id = g_array_index(ids, uint32_t, i);
        Table *found = NULL;

        for (guint j = 0; j < engine->tables->len && found == NULL; j++) {
            Table *const table = g_ptr_array_index(engine->tables, j);

            if (table->id == id)
                found = table;
        }
        ok = found != NULL;
        if (ok) {
            found->n_holds++;
            g_ptr_array_add(tables, found);
        } else {
            g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                                "a table of it was dropped before it began");
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return ok;
}

/* What the text asks for; NULL: it cannot be read. *ok: the rest can be, too. (transfer full) */
static LedSnapshot *led_new(RubatoEngine *engine, const char *text, bool *ok, GError **error)
{
    LedSnapshot *const led = g_new0(LedSnapshot, 1);
    SnapshotWriting *const writing = &led->writing;

    *ok = false;
    if (!snapshot_text_read(text, &led->text, error)) {
        g_free(led);
        return NULL;
    }
    writing->spec = &led->text.spec;
    snapshot_begin_requests(engine, writing);
    writing->tables = g_ptr_array_new();
    *ok = find_tables(engine, led->text.tables, writing->tables, error);
    snapshot_sort_tables(writing->tables);
    cut_init(&writing->cut, writing->tables, snapshot_make_spill(engine, writing));
    writing->cut.is_led = true;
    writing->cut.whom = led->text.whom;
    *ok = *ok && snapshot_check_spec(writing->spec, error);
    return led;
}

/* A step fails this node's part; FORGET follows, and undoes what was done. */
static bool begin(RubatoEngine *engine, const ControlSnapshot *step, GError **error)
{
    bool ok;

    forget(engine, "another one has begun"); /* there is none, unless the scheduler forgot it */
    engine->led = led_new(engine, step->spec, &ok, error);
    if (engine->led != NULL)
        engine->led->writing.cut.epoch = step->epoch;
    return ok;
}

/* ---- the steps ---- */

static bool perform(RubatoEngine *engine, const ControlSnapshot *step, GError **error)
{
    if (step->step == CONTROL_STEP_FORGET) {
        forget(engine, step->outcome.code == CONTROL_OK ? NULL : step->outcome.text);
        engine_release_cut(engine, CUT_HOLDS_NOTHING); /* also of one that could not begin */
        return true;
    }
    if (step->step == CONTROL_STEP_PREPARE && !begin(engine, step, error))
        return false;
    if (engine->led == NULL) {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "a step of a snapshot that has not begun");
        return false;
    }

    SnapshotWriting *const writing = &engine->led->writing;
    const CutWork work =
        engine->snapshot_work != NULL ? *engine->snapshot_work : snapshot_work(writing);

    return cut_perform(engine, &writing->cut, (ControlStep)step->step, step->seed, &work, error);
}

static void report(RubatoEngine *engine, const ControlSnapshot *step, uint64_t written,
                   const GError *fault)
{
    engine_tell_scheduler(
        engine, &(Control){ .kind = CONTROL_SNAPSHOT_DONE,
                            .snapshot = { .number = step->number,
                                          .step = step->step,
                                          .written = written,
                                          .outcome = { control_code_of(fault),
                                                       fault != NULL ? fault->message : NULL } } });
}

static void run_step(Message *message, void *actor)
{
    StepMail *const mail = (StepMail *)message;
    RubatoEngine *const engine = mail->engine;
    const ControlSnapshot *const step = &mail->control.snapshot;
    g_autoptr(GError) fault = NULL;
    uint64_t written = 0;
    bool done;

    (void)actor;
    engine_await_call(engine, mail->call);
    done = perform(engine, step, &fault);
    if (done && step->step == CONTROL_STEP_COMMIT)
        written = engine->led->writing.number;
    if (!done && fault == NULL) /* which the scheduler would take for success */
        g_set_error_literal(&fault, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "a step of a snapshot failed, and nothing said why");
    report(engine, step, written, fault);
    control_clear(&mail->control);
    g_free(mail);
}

static void handle_invoke(Actor *actor, Message *message)
{
    message->invoke(message, actor);
}

void led_snapshots_init(RubatoEngine *engine)
{
    actor_init(&engine->snapshot_steps, handle_invoke, NULL);
}

void led_snapshots_hear_step(RubatoEngine *engine, const Control *control)
{
    StepMail *const mail = g_new0(StepMail, 1);

    if (!engine->takes_snapshots)
        engine->takes_snapshots = actor_start(&engine->snapshot_steps, "snapshots");
    if (!engine->takes_snapshots) {
        const GError fault = { RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                               (char *)"a thread for snapshots cannot be started" };

        report(engine, &control->snapshot, 0, &fault);
        g_free(mail);
        return;
    }
    mail->message = (Message){ .kind = MESSAGE_INVOKE, .invoke = run_step };
    mail->engine = engine;
    control_copy(&mail->control, control);
    mail->call = engine_call_under_way(engine);
    actor_post(&engine->snapshot_steps, &mail->message);
}

/* ---- in a process that serves ---- */

typedef struct {
    LedSnapshot *led; /* NULL: nothing yet, or it could not be read */
    const char *text;
} Served;

static bool perform_served(RubatoEngine *engine, const ControlGo *go, void *data, GError **error)
{
    Served *const served = data;
    bool ok = true;

    if (go->step == CONTROL_STEP_PREPARE)
        served->led = led_new(engine, served->text, &ok, error);
    if (served->led == NULL || !ok)
        return go->step == CONTROL_STEP_FORGET;

    SnapshotWriting *const writing = &served->led->writing;
    const CutWork work = snapshot_work(writing);

    return cut_perform(engine, &writing->cut, (ControlStep)go->step, go->hash_seed, &work, error);
}

void snapshot_serve(RubatoEngine *engine, const ControlGo *go, const bool *lost, GError **error)
{
    g_autofree char *text = g_strdup(go->told != NULL ? go->told : "");
    Served served = { .text = text };
    const CollectiveCall call = { .what = CONTROL_CALL_SNAPSHOT,
                                  .text = "a snapshot of the other nodes",
                                  .detail = "",
                                  .perform = perform_served,
                                  .data = &served };

    g_autoptr(GError) fault = NULL;
    const bool ok = collective_serve(engine, &call, go, lost, &fault);

    if (served.led != NULL)
        end(engine, served.led, ok ? NULL : fault->message);
    else
        engine_release_cut(engine, CUT_HOLDS_NOTHING);
    if (!ok)
        g_propagate_error(error, g_steal_pointer(&fault));
}

void led_snapshots_stop(RubatoEngine *engine)
{
    actor_stop(&engine->snapshot_steps);
    forget(engine, "the run has ended");
    snapshot_disown(engine);
    outside_requests_stop();
}
