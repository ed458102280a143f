/* What a node does with each message that the scheduler sends it.
 *
 * Runs on the thread that owns the engine's control actor. */
#include "engine/control/node_messages.h"

#include "engine/engine_private.h"
#include "engine/join/admit.h"
#include "engine/join/scheduler_again.h"
#include "engine/launch/launcher_news.h"
#include "engine/snapshot/led_snapshots.h"
#include "engine/task/task_run.h"

/* ---- the rendezvous ---- */

/* Whether it is this process that is to come into the run, and has not yet. */
static bool is_for(const RubatoEngine *engine, const ControlWelcome *welcome)
{
    return !engine->rendezvous.welcome && welcome->n_nodes == engine->n_nodes &&
           welcome->incarnations[engine->self] == engine->incarnation;
}

static void join(RubatoEngine *engine, uint64_t run_id, const NetworkPeer *peers)
{
    g_autoptr(GError) error = NULL;
    const bool joined = network_join(engine->network, run_id, peers, &error);

    pthread_mutex_lock(&engine->lock);
    if (joined)
        engine->rendezvous.welcome = true;
    else if (engine->rendezvous.refusal == NULL)
        engine->rendezvous.refusal = g_strdup(error->message);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* A node without an address is lost or, if it has no process's number either, spare. */
static void note_peer(RubatoEngine *engine, uint32_t number, const ControlWelcome *welcome,
                      NetworkPeer *peer)
{
    const bool is_there = welcome->endpoints[number][0] != '\0';
    const uint64_t incarnation = welcome->incarnations[number];

    *peer = (NetworkPeer){ .endpoint = is_there ? welcome->endpoints[number] : NULL,
                           .incarnation = incarnation,
                           .counted_from = welcome->counted_from };
    if (!is_there && incarnation == 0)
        engine_note_absent(engine, number);
    else if (!is_there)
        engine_note_earlier_loss(engine, number);
}

void node_hears_welcome(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlWelcome *const welcome = &control->welcome;
    g_autofree NetworkPeer *peers = NULL;

    (void)from;
    if (engine->serving != NULL || !is_for(engine, welcome))
        return;
    peers = g_new0(NetworkPeer, engine->n_nodes);
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        note_peer(engine, i, welcome, &peers[i]);
    join(engine, welcome->run_id, peers);
}

void node_hears_refuse(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)from;
    pthread_mutex_lock(&engine->lock);
    if (!engine->rendezvous.welcome && engine->rendezvous.refusal == NULL) {
        engine->rendezvous.refusal = g_strdup(control->refuse.text);
        engine->rendezvous.refusal_code = control->refuse.code;
    }
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* A late answer: this node has its place, or it would have no engine's network (announce.c). */
void node_hears_place(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)engine;
    (void)from;
    (void)control;
}

static void refuse_itself(RubatoEngine *engine, const char *why)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->rendezvous.refusal == NULL)
        engine->rendezvous.refusal = g_strdup(why);
    engine->rendezvous.refusal_code = CONTROL_CODE(RUBATO_ERROR_INVALID);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

/* The process knows of the nodes what those know that have lived on. */
void node_hears_admitted(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlWelcome *const admitted = &control->welcome;
    g_autofree NetworkPeer *peers = NULL;

    (void)from;
    if (engine->serving == NULL || !is_for(engine, admitted))
        return;
    engine_prepare_replicas(engine); /* before a message of another node comes */
    if (!post_office_count_from(&engine->office, admitted->n_before) && engine->newcomer != NULL) {
        refuse_itself(engine, "too many processes have had the place of its node before");
        return;
    }
    peers = g_new0(NetworkPeer, engine->n_nodes);
    engine->is_new = admitted->n_before == 0;
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        note_peer(engine, i, admitted, &peers[i]);
    join(engine, admitted->run_id, peers);
}

void node_hears_beat(RubatoEngine *engine, uint32_t from, const Control *control)
{
    if (from == engine->scheduler_node)
        unheard_drop(&engine->unheard, control->beat.n_taken);
}

/* ---- collective calls ---- */

/* Whether this node's present call has that number and has not reached the stage. The lock is
 * held. */
static bool is_before(const RubatoEngine *engine, uint64_t call, CallStage stage)
{
    return call == engine->call.number && engine->call.stage != CALL_STAGE_NONE &&
           engine->call.stage < stage;
}

/* The lock is held. */
static void set_stage(RubatoEngine *engine, CallStage stage)
{
    engine->call.stage = stage;
    pthread_cond_broadcast(&engine->changed);
}

void node_hears_go(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlGo *const go = &control->go;

    (void)from;
    if (go->what == CONTROL_CALL_SNAPSHOT && go->step == CONTROL_STEP_CLOSE)
        engine_begin_cut(engine);
    pthread_mutex_lock(&engine->lock);
    const bool is_next = engine->call.stage == CALL_STAGE_GO && engine->call.go.call == go->call &&
                         go->step > engine->call.go.step;
    if (is_next || is_before(engine, go->call, CALL_STAGE_GO)) {
        engine->call.go = *go;
        engine->call.go.told = NULL; /* it lives as long as the message */
        engine_list_lost(engine, engine->call.lost, engine->call.workerless);
        set_stage(engine, CALL_STAGE_GO);
    }
    pthread_mutex_unlock(&engine->lock);
    if (engine->serving != NULL && !is_next) /* a call begins */
        serving_hear(engine, control);
}

void node_hears_commit(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlCallEnd *const commit = &control->commit;

    (void)from;
    pthread_mutex_lock(&engine->lock);
    if (is_before(engine, commit->call, CALL_STAGE_COMMITTED)) {
        engine->call.commit_code = commit->outcome.code;
        g_free(engine->call.commit_text);
        engine->call.commit_text = g_strdup(commit->outcome.text);
        set_stage(engine, CALL_STAGE_COMMITTED);
    }
    pthread_mutex_unlock(&engine->lock);
    newcomer_hears_commit(engine, commit);
}

void node_hears_past(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)from;
    if (engine->newcomer != NULL)
        newcomer_hears_past(engine, &control->past);
}

void node_hears_caught_up(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)from;
    newcomer_hears_caught_up(engine, &control->caught_up);
}

/* ---- tasks ---- */

/* Returns the run of that epoch and takes the engine's lock. NULL if there is no such run: then the
 * lock is not taken. */
static RubatoTaskRun *lock_run(RubatoEngine *engine, uint32_t epoch)
{
    pthread_mutex_lock(&engine->lock);
    RubatoTaskRun *const run = engine_find_run(engine, epoch);
    if (run == NULL)
        pthread_mutex_unlock(&engine->lock);
    return run;
}

void node_hears_cancel(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlTaskEnd *const cancel = &control->cancel;

    (void)from;
    newcomer_hears_cancel(engine, cancel);
    if (engine->serving != NULL)
        serving_hear(engine, control);
    RubatoTaskRun *const run = lock_run(engine, cancel->epoch);
    if (run == NULL)
        return;
    task_run_cancel(run, cancel->outcome.code, cancel->outcome.text);
    pthread_mutex_unlock(&engine->lock);
}

void node_hears_task_end(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlTaskEnd *const end = &control->task_end;

    (void)from;
    newcomer_hears_end(engine, end);
    if (engine->serving != NULL)
        serving_hear(engine, control);
    RubatoTaskRun *const run = lock_run(engine, end->epoch);
    if (run == NULL)
        return;
    task_run_end(run, end->outcome.code, end->outcome.text);
    pthread_mutex_unlock(&engine->lock);
}

void node_hears_release(RubatoEngine *engine, uint32_t from, const Control *control)
{
    RubatoTaskRun *const run = lock_run(engine, control->release.epoch);

    (void)from;
    if (run == NULL)
        return;
    task_run_release(run, control->release.round);
    pthread_mutex_unlock(&engine->lock);
}

void node_hears_blocks(RubatoEngine *engine, uint32_t from, const Control *control)
{
    RubatoTaskRun *const run = lock_run(engine, control->blocks.epoch);

    (void)from;
    if (run == NULL)
        return;
    task_run_blocks(run, &control->blocks);
    pthread_mutex_unlock(&engine->lock);
}

/* The router keeps the run: the engine's lock is not needed, and others may need it meanwhile. */
void node_hears_decide(RubatoEngine *engine, uint32_t from, const Control *control)
{
    if (!tensor_router_decide(engine->tensors, &control->decide))
        g_warning(
            "node %u sent a DECIDE that makes no sense: the collectives of its task have failed",
            engine->node_ids[from]);
}

/* ---- the run ---- */

/* Of another node, or of this one. */
void node_hears_lost(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlLost *const lost = &control->lost;

    (void)from;
    if (lost->number < engine->n_nodes) {
        pthread_mutex_lock(&engine->lock);
        engine_note_loss(engine, lost->number, lost->text);
        pthread_mutex_unlock(&engine->lock);
    }
    if (lost->number < engine->n_nodes && lost->number != engine->self && engine->network != NULL) {
        if (engine->self == engine->scheduler_node)
            dispatch_say_last_word(engine, lost->number, lost->text);
        network_forget(engine->network, lost->number);
    }
    engine_break(engine, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), lost->text);
}

/* Also a process that was to take the place of a lost node, and has not. Not the scheduler's: the
 * link leads to the process that goes on as it. */
static void forget_lost(RubatoEngine *engine)
{
    g_autofree bool *lost = g_new(bool, engine->n_nodes);
    g_autofree bool *workerless = g_new(bool, engine->n_nodes);

    pthread_mutex_lock(&engine->lock);
    engine_list_lost(engine, lost, workerless);
    pthread_mutex_unlock(&engine->lock);
    for (uint32_t i = 0; i < engine->n_nodes; i++)
        if (lost[i] && i != engine->scheduler_node)
            network_forget(engine->network, i);
    network_revoke_direct(engine->network);
}

/* Another process than the one that was lost first: it was lost before this node heard that it had
 * the place. The launcher is told of it, too. It knows by itself what becomes of the scheduler's
 * process. The lock is held. */
static void note_process(RubatoEngine *engine, const ControlRecover *recover)
{
    NodeLoss *const loss = &engine->losses[recover->node];

    if (loss->incarnation == recover->incarnation || recover->node == engine->scheduler_node)
        return;
    loss->incarnation = recover->incarnation;
    loss->is_told = false;
}

void node_hears_recover(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlRecover *const recover = &control->recover;
    const bool is_loss = control_cause_is_loss(recover->cause);

    (void)from;
    if (recover->node >= engine->n_nodes || (recover->node == engine->self && is_loss) ||
        (recover->step == CONTROL_RECOVER_TABLES && engine->serving == NULL))
        return;
    pthread_mutex_lock(&engine->lock);
    engine->newest_map = recover->map;
    if (recover->step == CONTROL_RECOVER_CLOSE && is_loss) {
        engine_note_loss(engine, recover->node, recover->text);
        engine->losses[recover->node].is_drained = recover->cause == CONTROL_CAUSE_LEAVE;
        note_process(engine, recover);
        engine->n_losses++;
    }
    pthread_mutex_unlock(&engine->lock);
    if (recover->step == CONTROL_RECOVER_CLOSE)
        engine_note_draining(engine, recover->lines);
    if (recover->step == CONTROL_RECOVER_CLOSE && recover->cause == CONTROL_CAUSE_JOIN) {
        if (recover->node == engine->self && engine->scheduler != NULL) {
            scheduler_again_note_losses(engine);
            forget_lost(engine);
        }
        admit_note_joined(engine, recover->node);
    } else if (recover->step == CONTROL_RECOVER_CLOSE && is_loss) {
        if (engine->self == engine->scheduler_node)
            dispatch_say_last_word(engine, recover->node, recover->text);
        forget_lost(engine);
    }
    if (recover->step == CONTROL_RECOVER_TABLES)
        serving_hear(engine, control);
    else
        engine_recover(engine, control);
}

void node_hears_drained(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)from;
    engine_hear_drained(engine, &control->drain);
}

void node_hears_made(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)from;
    atomic_fetch_add_explicit(&engine->n_new_replicas, control->made.n, memory_order_relaxed);
}

void node_hears_snapshot_step(RubatoEngine *engine, uint32_t from, const Control *control)
{
    const ControlSnapshot *const step = &control->snapshot;

    (void)from;
    if (step->step == CONTROL_STEP_CLOSE)
        engine_begin_cut(engine);
    if (step->step == CONTROL_STEP_WRITE && step->asker == engine->self)
        snapshot_asks_hear_cut(&engine->snapshot_asks, step->asked);
    led_snapshots_hear_step(engine, control);
}

void node_hears_snapshot_end(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)from;
    snapshot_asks_hear_end(&engine->snapshot_asks, &control->snapshot);
}

void node_hears_waiting(RubatoEngine *engine, uint32_t from, const Control *control)
{
    bool joins;

    (void)from;
    pthread_mutex_lock(&engine->lock);
    joins = engine->serving != NULL && !engine->rendezvous.welcome;
    if (joins) { /* it says so itself, and not with each answer */
        g_free(engine->rendezvous.later);
        engine->rendezvous.later = g_strdup(control->waiting.text);
        engine->rendezvous.later_ms = network_now_ms();
    }
    pthread_mutex_unlock(&engine->lock);
    if (!joins)
        g_message("%s", control->waiting.text);
}

/* A node that was lost when all others had left was told as lost in a CLOSE before this. What
 * follows a loss does not come any more, and the launcher is told of it here. */
void node_hears_left(RubatoEngine *engine, uint32_t from, const Control *control)
{
    (void)from;
    (void)control;
    /* relaxed, twice: both are set for good, by what the scheduler had said before */
    if (atomic_load_explicit(&engine->office.goes_on, memory_order_relaxed) &&
        !atomic_load_explicit(&engine->broken, memory_order_relaxed)) {
        launcher_news_tell_end();
        engine_tell_launcher(engine);
    }
    pthread_mutex_lock(&engine->lock);
    engine->left = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}
