/* Another process goes on as the scheduler.
 *
 * It replays the journal of the one before (scheduler_record.c), and so has its state: nothing is
 * decided twice, also what was under way. Then
 *
 * - it counts its own node as lost, since the process that this node had has ended, and lets the
 *   node join again (scheduler_rendezvous.c) before any other;
 * - each node that lives has to come back: it leaves its link to the process before, opens one to
 *   this one, and says in BACK how many messages it has had. The others, which are held, follow in
 *   their order; and the node says again what the scheduler has not had. So both sides have had
 *   each message once;
 * - a node that does not come back within the timeout is lost like one that is silent.
 *
 * Why each wait ends: for a node that comes back, as just told; the rest as after any loss.
 *
 * Stale messages. The process before has no link any more that a node takes anything from; until
 * then the node counts what comes of it, so it is not held.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/journal/scheduler_resume.h"

#include <assert.h>
#include <string.h>

#include "engine/control/control_messages.h"
#include "engine/scheduler/journal/scheduler_as_bytes.h"
#include "engine/scheduler/journal/scheduler_record.h"
#include "engine/scheduler/recovery/scheduler_admission.h"
#include "engine/scheduler/rendezvous/scheduler_rendezvous.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_task.h"

/* ---- the journal ---- */

/* Whether a process that has said nothing knows that it has joined, nobody can tell. If it does
 * not, it cannot come back. */
static void lose_newcomers(Scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        const SchedulerNode *const node = &scheduler->nodes[i];

        if (i != scheduler->config.self && node->serves && !node->lost && node->n_taken == 0)
            scheduler_lose_newcomer(scheduler, i);
    }
}

static void go_on_as(Scheduler *scheduler, const SchedulerProcess *process)
{
    const uint32_t self = scheduler->config.self;

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        SchedulerNode *const node = &scheduler->nodes[i];

        node->is_away = i != self && !node->lost;
        node->is_linked = false;
        node->heard_ms = scheduler->now_ms;
    }
    g_free(scheduler->own.endpoint);
    g_free(scheduler->own.description);
    scheduler->own.incarnation = process->incarnation;
    scheduler->own.endpoint = g_strdup(process->endpoints);
    scheduler->own.description = g_strdup(process->description);
    scheduler->own.counted_from = admission_count_from(scheduler);
    scheduler_lose_own(scheduler);
    lose_newcomers(scheduler);
    scheduler_go_on(scheduler);
}

static void restore_readers(Scheduler *scheduler, const Record *record)
{
    GHashTable *const readers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    const char *const end = record->names + record->names_bytes;

    for (const char *name = record->names; name < end;) {
        const char *const text = name + strlen(name) + 1;

        g_hash_table_insert(readers, g_strdup(name), g_strdup(text));
        name = text + strlen(text) + 1;
    }
    scheduler_restore_readers(scheduler, readers);
}

static bool replay_begin(Scheduler *scheduler, const ControlWelcome *welcome)
{
    if (scheduler->begun || welcome->n_nodes != scheduler->config.n_nodes)
        return false;
    rendezvous_begin_again(scheduler, welcome);
    return true;
}

/* As far as the record has to do with a run that has begun. */
static bool replay(Scheduler *scheduler, const Record *record)
{
    const ControlHello *const hello = &record->control.hello;

    if (record->kind == RECORD_STATE)
        return !scheduler->begun && state_read(scheduler, record->state, record->state_bytes);
    if (record->kind == RECORD_BEGIN)
        return record->control.kind == CONTROL_WELCOME &&
               replay_begin(scheduler, &record->control.welcome);
    if (!scheduler->begun)
        return false;
    switch (record->kind) {
    case RECORD_MESSAGE:
        (void)scheduler_receive(scheduler, record->now_ms, record->node, &record->control);
        break;
    case RECORD_GREETING:
        (void)scheduler_greet(scheduler, record->now_ms, &record->control, record->version,
                              record->asker);
        break;
    case RECORD_GONE:
        scheduler_node_gone(scheduler, record->now_ms, record->node, record->text);
        break;
    case RECORD_EFFECT:
        task_fail_by_effect(scheduler, record->node);
        break;
    case RECORD_TICK:
        scheduler_tick_again(scheduler);
        break;
    case RECORD_READERS:
        restore_readers(scheduler, record);
        break;
    case RECORD_PROCESS:
        if (record->control.kind != CONTROL_JOIN)
            return false;
        go_on_as(scheduler,
                 &(SchedulerProcess){ hello->incarnation, hello->endpoints, hello->description });
        break;
    default:
        return false;
    }
    scheduler_deliver(scheduler);
    return true;
}

static bool take_record(void *user, const void *bytes, size_t size)
{
    Scheduler *const scheduler = user;
    Record record;
    bool makes_sense = record_read(bytes, size, &record) &&
                       (record.kind == RECORD_EFFECT || record.node < scheduler->config.n_nodes);

    if (makes_sense) {
        scheduler->now_ms = record.now_ms;
        makes_sense = replay(scheduler, &record);
    }
    if (record.kind == RECORD_STATE)
        scheduler->journal_begins = size;
    else
        scheduler->journal_grown += size;
    control_clear(&record.control);
    return makes_sense;
}

static bool read_journal(Scheduler *scheduler, GError **error)
{
    scheduler->replays = true;
    const bool is_read =
        scheduler->journal.read(scheduler->journal.user, take_record, scheduler, error);
    scheduler->replays = false;
    return is_read;
}

/* Why no process can go on; NULL: it can. */
static const char *find_obstacle(const Scheduler *scheduler)
{
    if (!scheduler->begun)
        return "the run had not begun";
    if (scheduler->ended)
        return "the run had ended";
    if (scheduler->doom.code != CONTROL_OK)
        return scheduler->doom.text;
    if (!scheduler->goes_on)
        return "no table has replicas, so the run ends with the process that was lost";
    return NULL;
}

bool scheduler_resume(Scheduler *scheduler, int64_t now_ms, const SchedulerProcess *process,
                      GError **error)
{
    assert(scheduler->journal.read != NULL && !scheduler->begun && !scheduler->config.single);
    if (!read_journal(scheduler, error))
        return false;
    const char *const obstacle = find_obstacle(scheduler);
    if (obstacle != NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST,
                    "nothing can go on as the scheduler: %s", obstacle);
        return false;
    }
    scheduler->ticked = false; /* nobody has ticked while there was no scheduler */
    scheduler->own.silent_ms = MAX(now_ms - scheduler->now_ms, 0);
    scheduler->now_ms = now_ms;
    record_process(scheduler, process);
    go_on_as(scheduler, process);
    scheduler_deliver(scheduler);
    return true;
}

char *scheduler_describe_resumed(const Scheduler *scheduler)
{
    uint32_t n_lost = 0;

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        n_lost += i != scheduler->config.self && scheduler->nodes[i].lost;
    return g_strdup_printf("part map %u, %u tables made so far, tasks that run: %u, nodes that are "
                           "lost beside this one: %u; its last record was made %.1f s ago",
                           scheduler->map_number, scheduler->next_table, scheduler->tasks->len,
                           n_lost, (double)scheduler->own.silent_ms / 1e3);
}

/* ---- nodes that come back ---- */

bool scheduler_find_link(const Scheduler *scheduler, uint32_t number, SchedulerLink *link)
{
    const SchedulerNode *const node = &scheduler->nodes[number];

    *link = (SchedulerLink){ .node = number,
                             .endpoints = node->endpoint,
                             .incarnation = node->incarnation,
                             .counted_from = scheduler->own.counted_from };
    return !node->lost;
}

uint64_t scheduler_run_id(const Scheduler *scheduler)
{
    return scheduler->run_id;
}

/* The node that says this, if it is one that may come back. NULL: it is not. */
static SchedulerNode *find_away(const Scheduler *scheduler, const ControlResume *resume)
{
    if (scheduler->own.endpoint == NULL || resume->run_id != scheduler->run_id ||
        resume->scheduler == scheduler->own.incarnation)
        return NULL;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler->nodes[i].id == resume->node_id &&
            scheduler->nodes[i].incarnation == resume->incarnation &&
            (scheduler->nodes[i].is_away || scheduler->nodes[i].lost))
            return &scheduler->nodes[i];
    return NULL;
}

void resume_greet(Scheduler *scheduler, const Control *control, uint16_t version, uint64_t asker)
{
    const ControlResume *const resume = &control->resume;
    const SchedulerNode *const node = find_away(scheduler, resume);
    const Verdict *loss;

    /* Also a node of another run, which had the same address, and one that this process, which has
     * lived on, has not heard for a moment. */
    if (node == NULL || version != scheduler->config.wire_version)
        return;
    loss = node->lost ? &node->loss : &(Verdict){ 0 };
    scheduler_send_greeting(scheduler, asker,
                            &(Control){ .kind = CONTROL_RESUMED,
                                        .resumed = { .incarnation = node->incarnation,
                                                     .scheduler = scheduler->own.incarnation,
                                                     .counted_from = scheduler->own.counted_from,
                                                     .endpoints = scheduler->own.endpoint,
                                                     .n_taken = node->n_taken,
                                                     .outcome = { loss->code, loss->text } } });
}

bool scheduler_opens_link(Scheduler *scheduler, const Control *resume, SchedulerLink *link)
{
    SchedulerNode *const node = find_away(scheduler, &resume->resume);

    if (node == NULL || node->lost || node->is_linked)
        return false;
    node->is_linked = true;
    return scheduler_find_link(scheduler, (uint32_t)(node - scheduler->nodes), link);
}

/* What it has had is dropped; what follows was held for it. */
bool resume_hears_back(Scheduler *scheduler, uint32_t number, const Control *control)
{
    SchedulerNode *const node = &scheduler->nodes[number];
    HeldMessage *held;

    if (!node->is_away || control->back.n_taken > node->n_sent)
        return false;
    node->is_away = false;
    record_was_heard(node, control->back.n_taken);
    if (scheduler->replays) /* a later process goes on with the others */
        return true;
    while ((held = g_queue_pop_head(&node->held)) != NULL) {
        scheduler_send(scheduler, number, &held->control);
        node->n_sent--; /* it is counted again when it leaves */
        control_clear(&held->control);
        g_free(held);
    }
    return true;
}
