/* The scheduler's base: which part gets a message, and which nodes are alive.
 *
 * Every public function first changes the state and puts its messages into the outbox. The
 * outermost call then hands the outbox to the callbacks. So a callback sees a consistent state and
 * may call in again with an answer. Each node gets its messages in the order in which they were
 * caused.
 *
 * A lost node and a STOP are handled alike, as a doom: the first cause is kept. Running tasks are
 * cancelled with it, and collective calls fail with it from then on.
 *
 * Runs on the one thread that its owner chooses. */
#include "engine/scheduler/scheduler_state.h"

#include <assert.h>

#include "engine/control/control_messages.h"
#include "engine/scheduler/data/scheduler_kept.h"
#include "engine/scheduler/journal/scheduler_as_bytes.h"
#include "engine/scheduler/journal/scheduler_record.h"
#include "engine/scheduler/recovery/scheduler_admission.h"
#include "engine/scheduler/recovery/scheduler_drain.h"
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/rendezvous/scheduler_rendezvous.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_collective.h"
#include "engine/scheduler/scheduler_past.h"
#include "engine/scheduler/scheduler_snapshot.h"
#include "engine/scheduler/scheduler_task.h"

Scheduler *scheduler_new(const SchedulerConfig *config, const SchedulerOutput *output, void *user)
{
    assert(config->n_nodes > 0 && config->self < config->n_nodes);
    assert(!config->single || config->n_nodes == 1);

    Scheduler *scheduler = g_new0(Scheduler, 1);
    scheduler->config = *config;
    scheduler->output = *output;
    if (config->journal != NULL)
        scheduler->journal = *config->journal;
    scheduler->user = user;
    scheduler->digest = g_strdup(config->digest != NULL ? config->digest : "");
    scheduler->registered = g_strdup(config->registered != NULL ? config->registered : "");
    scheduler->begun = config->single;
    scheduler->next_epoch = 1;
    scheduler->map_number = 1; /* that of every new table */
    scheduler->recovery = recovery_new(config->n_nodes);
    scheduler->tables = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
    scheduler->snapshots = snapshots_new(config->n_nodes);
    kept_init(scheduler);
    scheduler->former = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    scheduler->tasks = g_ptr_array_new();
    g_queue_init(&scheduler->collectives);
    scheduler->past = past_new();
    g_queue_init(&scheduler->outbox);

    scheduler->nodes = g_new0(SchedulerNode, config->n_nodes);
    for (uint32_t i = 0; i < config->n_nodes; i++) {
        SchedulerNode *node = &scheduler->nodes[i];
        node->id = config->node_ids != NULL ? config->node_ids[i] : i;
        node->here = config->single;
        g_queue_init(&node->held);
        if (config->node_names != NULL && config->node_names[i] != NULL)
            node->label = g_strdup_printf("node %u (%s)", node->id, config->node_names[i]);
        else
            node->label = g_strdup_printf("node %u", node->id);
        if (config->is_spare != NULL && config->is_spare[i])
            rendezvous_leave_out(node);
    }
    return scheduler;
}

void scheduler_free(Scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    assert(!scheduler->delivering);
    recovery_free(scheduler->recovery);
    g_hash_table_unref(scheduler->tables);
    snapshots_free(scheduler->snapshots);
    kept_clear(scheduler);
    admission_end(scheduler);
    drain_clear(scheduler);
    g_array_unref(scheduler->former);
    collectives_clear(scheduler);
    past_free(scheduler->past);
    tasks_clear(scheduler);
    g_ptr_array_free(scheduler->tasks, TRUE);
    scheduler_clear_outbox(scheduler);
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        SchedulerNode *node = &scheduler->nodes[i];
        g_free(node->label);
        g_free(node->refused);
        g_free(node->endpoint);
        g_free(node->description);
        verdict_clear(&node->loss);
        control_clear(&node->asks);
        record_forget_sent(node);
    }
    g_free(scheduler->nodes);
    g_free(scheduler->own.endpoint);
    g_free(scheduler->own.description);
    g_free(scheduler->digest);
    g_free(scheduler->registered);
    verdict_clear(&scheduler->refusal);
    verdict_clear(&scheduler->doom);
    g_free(scheduler);
}

bool scheduler_has_begun(const Scheduler *scheduler)
{
    return scheduler->begun;
}

bool scheduler_has_ended(const Scheduler *scheduler)
{
    return scheduler->ended;
}

/* If no node is left that could need another: all may leave. Nodes that have left still do their
 * part of a snapshot, and those that have to come back could not be told. */
static void check_left(Scheduler *scheduler)
{
    if (scheduler->takes_snapshot)
        return;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler_counts_on(scheduler, i) ||
            (scheduler->nodes[i].is_away && !scheduler->nodes[i].lost))
            return;
    if (!scheduler->ended) {
        scheduler_send_all(scheduler, &(Control){ .kind = CONTROL_LEFT });
        /* The process that goes on as the scheduler waits for it, too. */
        if (scheduler->nodes[scheduler->config.self].lost)
            scheduler_send_last_word(scheduler, scheduler->config.self,
                                     &(Control){ .kind = CONTROL_LEFT });
    }
    scheduler->ended = true;
}

/* A node in whose place another process has come may be lost again. */
static void note_loss(SchedulerNode *node, const char *text)
{
    node->lost = true;
    verdict_clear(&node->loss);
    verdict_set(&node->loss, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
}

/* All learn the text as the reason why the run ends. */
static void end_without(Scheduler *scheduler, uint32_t number, const char *text)
{
    note_loss(&scheduler->nodes[number], text);
    scheduler_send_all(
        scheduler, &(Control){ .kind = CONTROL_LOST, .lost = { .number = number, .text = text } });
    scheduler_doom(scheduler, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
    collectives_node_out(scheduler, number);
    tasks_node_out(scheduler, number);
    check_left(scheduler);
}

/* The run goes on: parts of the node get another primary. */
static void go_on_without(Scheduler *scheduler, uint32_t number, const char *text)
{
    note_loss(&scheduler->nodes[number], text);
    recovery_begin(scheduler, number, text);
    tasks_lose_node(scheduler, number, text);
    collectives_lose_node(scheduler, number, text);
    snapshots_lose_node(scheduler, number, text);
    tasks_node_out(scheduler, number);
    check_left(scheduler);
}

static void lose_node(Scheduler *scheduler, uint32_t number, const char *how)
{
    g_autofree char *text = g_strdup_printf("%s was lost: %s", scheduler->nodes[number].label, how);

    if (scheduler->goes_on && scheduler->doom.code == CONTROL_OK)
        go_on_without(scheduler, number, text);
    else
        end_without(scheduler, number, text);
}

void scheduler_lose_newcomer(Scheduler *scheduler, uint32_t node)
{
    lose_node(scheduler, node,
              "it was to join the run when the scheduler's process ended; start it again");
}

void scheduler_lose_own(Scheduler *scheduler)
{
    const uint32_t self = scheduler->config.self;
    const char *const how = "its process has ended, and another one goes on as the scheduler";

    if (scheduler->nodes[self].lost) {
        /* It had not joined the run yet: what was done for that is given up. */
        recovery_begin(scheduler, self, scheduler->nodes[self].loss.text);
        check_left(scheduler);
    } else {
        lose_node(scheduler, self, how);
    }
}

/* ---- what nodes say to the scheduler itself ---- */

bool scheduler_hears_beat(Scheduler *scheduler, uint32_t node, const Control *beat)
{
    SchedulerNode *const sender = &scheduler->nodes[node];

    if (beat->beat.n_taken > sender->n_sent)
        return false;
    record_was_heard(sender, beat->beat.n_taken);
    return true;
}

bool scheduler_hears_made(Scheduler *scheduler, uint32_t node, const Control *made)
{
    if (!recovery_hears_made(scheduler, node, made->made.n, made->made.n_missing))
        return false;
    scheduler_send_all(scheduler, made);
    return true;
}

bool scheduler_hears_runs(Scheduler *scheduler, uint32_t node, const Control *runs)
{
    (void)node;
    scheduler_send_all(scheduler, runs);
    return true;
}

static const char *text_of(const ControlText *said)
{
    return said->text != NULL ? said->text : "";
}

bool scheduler_hears_interrupt(Scheduler *scheduler, uint32_t node, const Control *control)
{
    (void)node;
    tasks_cancel(scheduler, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text_of(&control->interrupt));
    return true;
}

bool scheduler_hears_stop(Scheduler *scheduler, uint32_t node, const Control *control)
{
    (void)node;
    scheduler_doom(scheduler, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text_of(&control->stop));
    return true;
}

bool scheduler_hears_leave(Scheduler *scheduler, uint32_t node, const Control *control)
{
    (void)control;
    if (drain_awaits_leave(scheduler, node)) {
        g_autofree char *text =
            g_strdup_printf("%s was drained, and has left the run", scheduler->nodes[node].label);

        scheduler->nodes[node].left_drained = true;
        go_on_without(scheduler, node, text);
        return true;
    }
    if (scheduler->nodes[node].left || scheduler->nodes[node].serves)
        return false;
    scheduler->nodes[node].left = true;
    scheduler->nodes[node].left_ms = scheduler->now_ms;
    collectives_node_out(scheduler, node);
    tasks_node_out(scheduler, node);
    check_left(scheduler);
    return true;
}

/* A report about any node ends the run. So the scheduler need not judge which of two nodes is
 * right. */
bool scheduler_hears_broken(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlLost *const broken = &control->broken;

    if (broken->number >= scheduler->config.n_nodes || broken->number == node)
        return false;
    const SchedulerNode *const named = &scheduler->nodes[broken->number];
    /* It may also mean the process before the one that has taken the node's place. */
    if (named->lost || broken->incarnation != named->incarnation)
        return true;
    g_autofree char *how =
        node == scheduler->config.self
            ? g_strdup(broken->text)
            : g_strdup_printf("%s (says %s)", broken->text, scheduler->nodes[node].label);
    if (broken->number != scheduler->config.self) {
        lose_node(scheduler, broken->number, how);
        return true;
    }
    /* The scheduler's own node lives as long as the scheduler does. The node that has lost it does
     * nothing more for the run, and hears nothing more. */
    g_autofree char *text =
        g_strdup_printf("%s, where the scheduler runs, was lost: %s", named->label, how);
    end_without(scheduler, node, text);
    return true;
}

/* ---- the public functions ---- */

static bool dispatch(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlMessage *const message = control_message(control->kind);

    return message != NULL && message->to_scheduler != NULL &&
           message->to_scheduler(scheduler, node, control);
}

void scheduler_go_on(Scheduler *scheduler)
{
    snapshots_go_on(scheduler);
    drain_go_on(scheduler);
    rendezvous_admit_own(scheduler);
    check_left(scheduler);
}

bool scheduler_receive(Scheduler *scheduler, int64_t now_ms, uint32_t node, const Control *control)
{
    bool sensible;

    if (node >= scheduler->config.n_nodes)
        return false;
    if (!scheduler->begun && node == scheduler->config.self && control->kind == CONTROL_STOP) {
        scheduler->now_ms = now_ms;
        rendezvous_stop(scheduler, text_of(&control->stop));
        scheduler_deliver(scheduler);
        return true;
    }
    if (!scheduler->begun)
        return false;
    if (scheduler->ended)
        return true;

    scheduler->now_ms = now_ms;
    record_message(scheduler, node, control);
    SchedulerNode *sender = &scheduler->nodes[node];
    if (sender->lost) {
        /* The node was only stopped for a while. It must learn that the others continued without
         * it. */
        const Control lost = { .kind = CONTROL_LOST,
                               .lost = { .number = node, .text = sender->loss.text } };
        scheduler_send_last_word(scheduler, node, &lost);
        sensible = true;
    } else {
        sender->heard_ms = now_ms;
        sensible = dispatch(scheduler, node, control);
        scheduler_go_on(scheduler);
    }
    scheduler_deliver(scheduler);
    return sensible;
}

/* Not a node that another one has called broken: its message is recorded. */
static void lose_known(Scheduler *scheduler, uint32_t node, const char *how)
{
    record_gone(scheduler, node, how);
    lose_node(scheduler, node, how);
    scheduler_go_on(scheduler);
}

void scheduler_node_gone(Scheduler *scheduler, int64_t now_ms, uint32_t node, const char *text)
{
    assert(node < scheduler->config.n_nodes);
    if (scheduler->ended || scheduler->config.single || scheduler->nodes[node].lost)
        return;
    scheduler->now_ms = now_ms;
    if (scheduler->begun)
        lose_known(scheduler, node, text);
    else
        rendezvous_node_gone(scheduler, node);
    scheduler_deliver(scheduler);
}

static void send_beats(Scheduler *scheduler)
{
    const SchedulerConfig *config = &scheduler->config;
    Control beat = { .kind = CONTROL_BEAT };

    if (config->heartbeat_ms == 0 ||
        scheduler->now_ms - scheduler->last_beat_ms < config->heartbeat_ms)
        return;
    scheduler->last_beat_ms = scheduler->now_ms;
    for (uint32_t i = 0; i < config->n_nodes; i++) {
        beat.beat.n_taken = scheduler->nodes[i].n_taken;
        scheduler_send(scheduler, i, &beat);
    }
}

int64_t scheduler_longest_tick_ms(uint32_t heartbeat_ms, uint32_t timeout_ms)
{
    return MIN(MAX(heartbeat_ms, timeout_ms / 8), timeout_ms / 2);
}

/* A node that was itself stopped cannot tell whether others were silent: it has not yet read what
 * they sent in that time. So that time does not count as their silence. */
static void find_lost_nodes(Scheduler *scheduler)
{
    const SchedulerConfig *config = &scheduler->config;
    const int64_t pause_ms = scheduler->now_ms - scheduler->last_tick_ms;

    if (config->timeout_ms == 0)
        return;

    if (pause_ms > scheduler_longest_tick_ms(config->heartbeat_ms, config->timeout_ms)) {
        for (uint32_t i = 0; i < config->n_nodes; i++)
            scheduler->nodes[i].heard_ms =
                MIN(scheduler->nodes[i].heard_ms + pause_ms, scheduler->now_ms);
        tasks_leave_out_pause(scheduler, pause_ms);
    }

    for (uint32_t i = 0; i < config->n_nodes && !scheduler->ended; i++) {
        const SchedulerNode *node = &scheduler->nodes[i];
        const int64_t silence_ms = scheduler->now_ms - node->heard_ms;
        /* The scheduler's own node lives as long as the scheduler does. */
        if (i == config->self || node->lost || silence_ms < config->timeout_ms)
            continue;
        g_autofree char *how =
            g_strdup_printf("nothing heard from it for %.1f s", (double)silence_ms / 1e3);
        lose_known(scheduler, i, how);
    }
}

static void wait_clear(Wait *wait)
{
    g_free(wait->text);
}

/* The nodes that have left wait for the others. */
static void add_wait_for_leaving(const Scheduler *scheduler, GArray *waits)
{
    g_autoptr(GArray) staying = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    int64_t since_ms = INT64_MAX;

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        if (scheduler_counts_on(scheduler, i))
            g_array_append_val(staying, i);
        else if (scheduler->nodes[i].left && !scheduler->nodes[i].lost)
            since_ms = MIN(since_ms, scheduler->nodes[i].left_ms);
    }
    if (since_ms == INT64_MAX || staying->len == 0)
        return;
    g_autofree char *names = scheduler_name_nodes(scheduler, staying, /* with_heard= */ true);
    wait_add(waits, g_strdup_printf("the end of the run waits for %s to leave it", names), NULL,
             since_ms);
}

GArray *scheduler_list_waits(const Scheduler *scheduler)
{
    GArray *waits = g_array_new(FALSE, FALSE, sizeof(Wait));
    g_array_set_clear_func(waits, (GDestroyNotify)wait_clear);
    collectives_add_waits(scheduler, waits);
    tasks_add_waits(scheduler, waits);
    recovery_add_waits(scheduler, waits);
    snapshots_add_waits(scheduler, waits);
    drain_add_waits(scheduler, waits);
    add_wait_for_leaving(scheduler, waits);
    return waits;
}

/* Tells the nodes that have waited for a stall time, or for another one since the last tick. */
static void tell_waiting(Scheduler *scheduler)
{
    const int64_t stall_ms = scheduler->config.stall_ms;

    if (stall_ms == 0 || scheduler->ended)
        return;
    g_autoptr(GArray) waits = scheduler_list_waits(scheduler);
    for (guint i = 0; i < waits->len; i++) {
        const Wait *wait = &g_array_index(waits, Wait, i);
        const int64_t told = MAX(scheduler->last_tick_ms - wait->since_ms, 0) / stall_ms;
        if ((scheduler->now_ms - wait->since_ms) / stall_ms <= told)
            continue;
        g_autofree char *text =
            g_strdup_printf("%s (for %.1f s so far)", wait->text,
                            (double)(scheduler->now_ms - wait->since_ms) / 1000);
        const Control control = { .kind = CONTROL_WAITING, .waiting = { text } };
        for (uint32_t n = 0; n < scheduler->config.n_nodes; n++)
            if (wait->waiting != NULL ? wait->waiting[n] : scheduler->nodes[n].left)
                scheduler_send(scheduler, n, &control);
    }
}

void scheduler_tick_again(Scheduler *scheduler)
{
    tasks_go_on(scheduler);
    scheduler_go_on(scheduler);
}

void scheduler_tick(Scheduler *scheduler, int64_t now_ms)
{
    if (scheduler->ended)
        return;
    scheduler->now_ms = now_ms;
    if (!scheduler->ticked) {
        scheduler->ticked = true;
        scheduler->start_ms = scheduler->last_tick_ms = scheduler->last_beat_ms = now_ms;
    }
    if (!scheduler->begun) {
        rendezvous_tick(scheduler);
    } else {
        /* The scheduler's own node sends no beats. */
        scheduler->nodes[scheduler->config.self].heard_ms = now_ms;
        if (!scheduler->config.single) {
            send_beats(scheduler);
            find_lost_nodes(scheduler);
        }
        tasks_tick(scheduler);
        const bool counted = scheduler_outbox_counts(scheduler);
        scheduler_tick_again(scheduler);
        if (!counted && scheduler_outbox_counts(scheduler))
            record_tick(scheduler);
        tell_waiting(scheduler);
    }
    scheduler->last_tick_ms = now_ms;
    scheduler_deliver(scheduler);
    state_keep(scheduler);
}

void scheduler_heard(Scheduler *scheduler, uint32_t node, int64_t heard_ms)
{
    assert(node < scheduler->config.n_nodes);
    SchedulerNode *const sender = &scheduler->nodes[node];
    if (scheduler->begun && !sender->lost)
        sender->heard_ms = MAX(sender->heard_ms, heard_ms);
}

bool scheduler_greet(Scheduler *scheduler, int64_t now_ms, const Control *greeting,
                     uint16_t version, uint64_t asker)
{
    const ControlMessage *const message = control_message(greeting->kind);

    if (scheduler->config.single || message == NULL || message->to_rendezvous == NULL)
        return false;
    scheduler->now_ms = now_ms;
    record_greeting(scheduler, greeting, version, asker);
    message->to_rendezvous(scheduler, greeting, version, asker);
    scheduler_deliver(scheduler);
    return true;
}

char *scheduler_waiting(Scheduler *scheduler, int64_t now_ms)
{
    scheduler->now_ms = MAX(scheduler->now_ms, now_ms);
    g_autoptr(GArray) waits = scheduler_list_waits(scheduler);
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < waits->len; i++)
        g_string_append_printf(text, "%s%s", i > 0 ? "\n" : "", g_array_index(waits, Wait, i).text);
    return g_string_free(text, /* free_segment= */ text->len == 0);
}
