/* Functions that all parts of the scheduler use: the outbox, verdicts, names of nodes, finding and
 * cancelling tasks, the order of a snapshot's steps. Of the other parts it calls
 * scheduler_record.c.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_base.h"

#include "engine/control/control_messages.h"
#include "engine/scheduler/journal/scheduler_record.h"

#define NOBODY UINT32_MAX  /* an Outgoing that is a greeting */
#define MAX_NODES_NAMED 8u /* in one message */

typedef struct {
    uint32_t node;
    uint64_t asker;   /* of a greeting */
    Control *control; /* reference-counted: it may go to several nodes */
} Outgoing;

static Control *counted_copy(const Control *control)
{
    Control *const copy = g_rc_box_new(Control);

    control_copy(copy, control);
    return copy;
}

static void drop_control(Control *control)
{
    g_rc_box_release_full(control, (GDestroyNotify)control_clear);
}

static void outgoing_free(Outgoing *outgoing)
{
    drop_control(outgoing->control);
    g_free(outgoing);
}

/* Takes the message. */
static void queue_outgoing(Scheduler *scheduler, uint32_t node, uint64_t asker, Control *control)
{
    Outgoing *outgoing = g_new(Outgoing, 1);
    *outgoing = (Outgoing){ node, asker, control };
    g_queue_push_tail(&scheduler->outbox, outgoing);
}

void scheduler_send(Scheduler *scheduler, uint32_t node, const Control *control)
{
    if (!scheduler->nodes[node].lost)
        queue_outgoing(scheduler, node, 0, counted_copy(control));
}

void scheduler_send_last_word(Scheduler *scheduler, uint32_t node, const Control *control)
{
    queue_outgoing(scheduler, node, 0, counted_copy(control));
}

void scheduler_send_all(Scheduler *scheduler, const Control *control)
{
    Control *const copy = counted_copy(control);

    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (!scheduler->nodes[i].lost)
            queue_outgoing(scheduler, i, 0, g_rc_box_acquire(copy));
    drop_control(copy);
}

void scheduler_send_greeting(Scheduler *scheduler, uint64_t asker, const Control *control)
{
    queue_outgoing(scheduler, NOBODY, asker, counted_copy(control));
}

/* Processes that wait for an answer ask again. */
static void greet(Scheduler *scheduler, const Outgoing *outgoing)
{
    if (!scheduler->replays)
        scheduler->output.greet(scheduler->user, outgoing->asker, outgoing->control);
}

void scheduler_deliver(Scheduler *scheduler)
{
    Outgoing *outgoing;

    if (scheduler->delivering)
        return;
    scheduler->delivering = true;
    while ((outgoing = g_queue_pop_head(&scheduler->outbox)) != NULL) {
        if (outgoing->node == NOBODY)
            greet(scheduler, outgoing);
        else if (record_lets_go(scheduler, outgoing->node, outgoing->control))
            scheduler->output.send(scheduler->user, outgoing->node, outgoing->control);
        outgoing_free(outgoing);
    }
    scheduler->delivering = false;
}

void scheduler_clear_outbox(Scheduler *scheduler)
{
    g_queue_clear_full(&scheduler->outbox, (GDestroyNotify)outgoing_free);
}

bool scheduler_outbox_counts(const Scheduler *scheduler)
{
    for (const GList *link = scheduler->outbox.head; link != NULL; link = link->next) {
        const Outgoing *const outgoing = link->data;

        if (outgoing->node != NOBODY && control_message_counts(outgoing->control->kind))
            return true;
    }
    return false;
}

/* ---- verdicts, nodes and waits ---- */

void verdict_set(Verdict *verdict, uint32_t code, const char *text)
{
    if (verdict->code != CONTROL_OK || code == CONTROL_OK)
        return;
    verdict->code = code;
    verdict->text = g_strdup(text);
}

void verdict_clear(Verdict *verdict)
{
    g_free(verdict->text);
    *verdict = (Verdict){ 0 };
}

bool scheduler_is_absent(const Scheduler *scheduler, uint32_t node)
{
    return scheduler->nodes[node].lost && !scheduler->nodes[node].met;
}

bool scheduler_counts_on(const Scheduler *scheduler, uint32_t node)
{
    return scheduler_has_program(scheduler, node) && !scheduler->nodes[node].left;
}

bool scheduler_has_program(const Scheduler *scheduler, uint32_t node)
{
    return !scheduler->nodes[node].lost && !scheduler->nodes[node].serves;
}

bool scheduler_does_part(const Scheduler *scheduler, uint32_t node)
{
    return !scheduler->nodes[node].lost && !scheduler->nodes[node].left;
}

char *scheduler_name_nodes(const Scheduler *scheduler, const GArray *numbers, bool with_heard)
{
    GString *names = g_string_new(NULL);

    for (guint i = 0; i < numbers->len; i++) {
        const SchedulerNode *node = &scheduler->nodes[g_array_index(numbers, uint32_t, i)];
        if (i > 0)
            g_string_append(names, i + 1 == numbers->len || i == MAX_NODES_NAMED ? " and " : ", ");
        if (i == MAX_NODES_NAMED && i + 1 < numbers->len) {
            g_string_append_printf(names, "%u more", numbers->len - i);
            break;
        }
        g_string_append(names, node->label);
        if (with_heard && !scheduler->config.single)
            g_string_append_printf(names, " [last heard %.1f s ago]",
                                   (double)(scheduler->now_ms - node->heard_ms) / 1e3);
    }
    return g_string_free(names, FALSE);
}

void wait_add(GArray *waits, char *text, const bool *waiting, int64_t since_ms)
{
    const Wait wait = { text, waiting, since_ms };
    g_array_append_val(waits, wait);
}

/* ---- tasks ---- */

SchedulerTask *task_find(const Scheduler *scheduler, uint64_t epoch)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        SchedulerTask *task = scheduler->tasks->pdata[i];
        if (task->epoch == epoch)
            return task;
    }
    return NULL;
}

bool task_is_late(const Scheduler *scheduler, uint64_t epoch)
{
    return epoch > 0 && epoch < scheduler->next_epoch;
}

void task_send_cancel(Scheduler *scheduler, const SchedulerTask *task)
{
    const Control cancel = {
        .kind = CONTROL_CANCEL,
        .cancel = { task->epoch, { task->cause.code, task->cause.text } },
    };
    scheduler_send_all(scheduler, &cancel);
}

void task_cancel(Scheduler *scheduler, SchedulerTask *task, uint32_t code, const char *text)
{
    if (task->cause.code != CONTROL_OK)
        return;
    verdict_set(&task->cause, code, text);
    if (task->running)
        task_send_cancel(scheduler, task);
}

ControlStep snapshot_step_after(ControlStep step, bool failed)
{
    static const ControlStep next[CONTROL_STEP_END] = {
        [CONTROL_STEP_PREPARE] = CONTROL_STEP_CLOSE, [CONTROL_STEP_CLOSE] = CONTROL_STEP_CUT,
        [CONTROL_STEP_CUT] = CONTROL_STEP_WRITE,     [CONTROL_STEP_WRITE] = CONTROL_STEP_COMMIT,
        [CONTROL_STEP_COMMIT] = CONTROL_STEP_FORGET,
    };

    return failed ? CONTROL_STEP_FORGET : next[step];
}

/* ---- as bytes ---- */

void verdict_walk(StateWalk *walk, Verdict *verdict)
{
    WALK(walk, verdict->code);
    walk_text(walk, &verdict->text);
}
