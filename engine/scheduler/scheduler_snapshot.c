/* Snapshots that a node asks for: a worker's, a task's, or one that was asked for from outside. All
 * nodes do the steps PREPARE, CLOSE, CUT, WRITE and COMMIT (engine/snapshot/snapshot_cut.c), and
 * FORGET, whatever came before. Each begins when all nodes have done the one before. After a step
 * that failed comes FORGET.
 *
 * One snapshot is taken at a time. None begins while nodes do their part of a collective call, and
 * no such call begins before it has ended: so all nodes agree on the tables that there are, and on
 * the tasks that use them.
 *
 * Why it ends. A node does a step without waiting for other nodes, or for workers longer than
 * stall_ms: CLOSE waits so long for those in the middle of a step of theirs. A store that is silent
 * is waited for until its client gives it up (io/store/s3/s3_client.c): in PREPARE, WRITE and
 * COMMIT, while workers go on. A lost node is not waited for. A node that has left the run still
 * does its part, because nobody may go before.
 *
 * A loss. If a node is lost before all have written their parts, the snapshot fails, also in a run
 * that goes on: the lost node's parts are missing. The next one begins when the steps that follow
 * the loss have ended.
 *
 * The scheduler's node alone completes a snapshot, in COMMIT. If its process is lost before it has
 * said so, nobody knows whether the snapshot is there: it fails, although it may be there as a
 * whole. None begins before the node has joined again as that of the next process.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_snapshot.h"

#include <string.h>

#include "engine/scheduler/data/scheduler_data.h"
#include "engine/scheduler/recovery/scheduler_admission.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_collective.h"
#include "engine/scheduler/scheduler_task.h"

#define TASK_HAS_ENDED "its task has ended"

/* What a node has asked for. */
typedef struct {
    uint32_t node;
    bool is_orphan;  /* the node was lost while its snapshot is taken */
    Control control; /* its own */
} Ask;

struct Snapshots {
    GQueue asks;     /* of Ask, oldest first; the first one is taken, if takes_snapshot */
    uint64_t number; /* of the newest one that has begun */
    ControlStep step;
    bool *done; /* by node number: this step */
    Verdict verdict;
    uint64_t written;
    int64_t since_ms;
};

static void ask_free(Ask *ask)
{
    control_clear(&ask->control);
    g_free(ask);
}

Snapshots *snapshots_new(uint32_t n_nodes)
{
    Snapshots *const snapshots = g_new0(Snapshots, 1);

    g_queue_init(&snapshots->asks);
    snapshots->done = g_new0(bool, n_nodes);
    return snapshots;
}

void snapshots_free(Snapshots *snapshots)
{
    g_queue_clear_full(&snapshots->asks, (GDestroyNotify)ask_free);
    verdict_clear(&snapshots->verdict);
    g_free(snapshots->done);
    g_free(snapshots);
}

/* ---- the steps ---- */

static void send_step(Scheduler *scheduler, ControlStep step)
{
    Snapshots *const snapshots = scheduler->snapshots;
    const Ask *const ask = g_queue_peek_head(&snapshots->asks);
    Control control = { .kind = CONTROL_SNAPSHOT_STEP, .snapshot = ask->control.snapshot };

    data_hear_step(scheduler, step, ask->control.snapshot.spec);
    snapshots->step = step;
    snapshots->since_ms = scheduler->now_ms;
    memset(snapshots->done, 0, scheduler->config.n_nodes * sizeof *snapshots->done);
    control.snapshot.number = snapshots->number;
    control.snapshot.step = step;
    control.snapshot.asker = ask->node;
    control.snapshot.asked = ask->control.snapshot.number;
    control.snapshot.outcome = (ControlOutcome){ snapshots->verdict.code, snapshots->verdict.text };
    if (step != CONTROL_STEP_PREPARE) /* which has said it */
        control.snapshot.spec = NULL;
    scheduler_send_all(scheduler, &control);
}

/* Takes the oldest one out, and tells its node how it has ended. */
static void answer(Scheduler *scheduler, uint64_t written, const Verdict *verdict)
{
    Ask *const ask = g_queue_pop_head(&scheduler->snapshots->asks);

    const Control end = { .kind = CONTROL_SNAPSHOT_END,
                          .snapshot = { .number = ask->control.snapshot.number,
                                        .written = written,
                                        .outcome = { verdict->code, verdict->text } } };

    if (!ask->is_orphan) /* another process may have the node's place now */
        scheduler_send(scheduler, ask->node, &end);
    ask_free(ask);
}

static void end_snapshot(Scheduler *scheduler)
{
    Snapshots *const snapshots = scheduler->snapshots;

    scheduler->takes_snapshot = false;
    answer(scheduler, snapshots->written, &snapshots->verdict);
    verdict_clear(&snapshots->verdict);
    collectives_go_on(scheduler);
}

static bool has_ended(const Scheduler *scheduler, uint32_t epoch)
{
    const SchedulerTask *const task = task_find(scheduler, epoch);

    return epoch != 0 && (task == NULL || !task->running || task->cause.code != CONTROL_OK);
}

/* PREPARE may take long. No worker is held up for a snapshot that nobody needs any more. */
static void check_task(Scheduler *scheduler)
{
    Snapshots *const snapshots = scheduler->snapshots;
    const Ask *const ask = g_queue_peek_head(&snapshots->asks);

    if (has_ended(scheduler, ask->control.snapshot.epoch))
        verdict_set(&snapshots->verdict, CONTROL_CODE(RUBATO_ERROR_CANCELLED), TASK_HAS_ENDED);
}

static void end_step(Scheduler *scheduler)
{
    Snapshots *const snapshots = scheduler->snapshots;
    bool failed;

    if (snapshots->step == CONTROL_STEP_PREPARE)
        check_task(scheduler);
    if (snapshots->step == CONTROL_STEP_CUT) {
        const Verdict tear = data_find_tear(scheduler);

        verdict_set(&snapshots->verdict, tear.code, tear.text);
    }
    failed = snapshots->verdict.code != CONTROL_OK;
    if (snapshots->step == CONTROL_STEP_FORGET)
        end_snapshot(scheduler);
    else
        send_step(scheduler, snapshot_step_after(snapshots->step, failed));
}

/* Whether the node lives, and has not done the step. */
static bool is_awaited(const Scheduler *scheduler, uint32_t node)
{
    return !scheduler->nodes[node].lost && !scheduler->snapshots->done[node];
}

/* Whether all nodes that live have done the step. */
static bool is_done(const Scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (is_awaited(scheduler, i))
            return false;
    return true;
}

/* ---- which one begins ---- */

/* Why none can succeed any more. A snapshot that is whole stays good. */
static const Verdict *find_cause(const Scheduler *scheduler)
{
    return scheduler->doom.code != CONTROL_OK ? &scheduler->doom : NULL;
}

/* Why this one cannot begin. Nothing is allocated. False: it can. */
static bool find_refusal(const Scheduler *scheduler, const Ask *ask, Verdict *refusal)
{
    const Verdict *const cause = find_cause(scheduler);

    *refusal = (Verdict){ .code = CONTROL_CODE(RUBATO_ERROR_CANCELLED) };
    if (cause != NULL)
        *refusal = *cause;
    else if (has_ended(scheduler, ask->control.snapshot.epoch))
        refusal->text = (char *)TASK_HAS_ENDED;
    else if (scheduler->nodes[ask->node].left)
        refusal->text = (char *)"its node has left the run";
    else if (scheduler->nodes[scheduler->config.self].lost && !admission_awaits_own(scheduler))
        *refusal = (Verdict){ CONTROL_CODE(RUBATO_ERROR_NODE_LOST), (char *)SCHEDULER_LACKS_OWN };
    else
        *refusal = tasks_find_awaited(scheduler, ask->control.snapshot.spec);
    return refusal->code != CONTROL_OK;
}

static void begin(Scheduler *scheduler)
{
    Snapshots *const snapshots = scheduler->snapshots;
    Ask *ask;
    Verdict refusal;

    while ((ask = g_queue_peek_head(&snapshots->asks)) != NULL) {
        if (find_refusal(scheduler, ask, &refusal)) {
            answer(scheduler, 0, &refusal);
            continue;
        }
        if (scheduler->recovers || scheduler->drain.stage > DRAIN_WAITS ||
            collectives_work(scheduler) || admission_awaits_own(scheduler) ||
            admission_is_due(scheduler))
            return;
        scheduler->takes_snapshot = true;
        snapshots->number++;
        snapshots->written = 0;
        send_step(scheduler, CONTROL_STEP_PREPARE);
        return;
    }
}

void snapshots_go_on(Scheduler *scheduler)
{
    Snapshots *const snapshots = scheduler->snapshots;
    const Verdict *cause;

    if (!scheduler->takes_snapshot && g_queue_is_empty(&snapshots->asks))
        return;
    cause = find_cause(scheduler);
    if (scheduler->takes_snapshot && cause != NULL && snapshots->step < CONTROL_STEP_COMMIT)
        verdict_set(&snapshots->verdict, cause->code, cause->text);
    if (scheduler->takes_snapshot && is_done(scheduler))
        end_step(scheduler);
    if (!scheduler->takes_snapshot)
        begin(scheduler);
}

/* Whether the snapshot that is taken may be incomplete without the node. */
static bool may_tear(const Scheduler *scheduler, uint32_t node)
{
    const Snapshots *const snapshots = scheduler->snapshots;
    const bool completes = snapshots->step == CONTROL_STEP_COMMIT &&
                           node == scheduler->config.self && !snapshots->done[node];

    return snapshots->step < CONTROL_STEP_COMMIT || completes;
}

void snapshots_lose_node(Scheduler *scheduler, uint32_t node, const char *text)
{
    Snapshots *const snapshots = scheduler->snapshots;
    GList *link = snapshots->asks.head;

    if (scheduler->takes_snapshot) {
        Ask *const taken = link->data;

        taken->is_orphan = taken->is_orphan || taken->node == node;
        if (may_tear(scheduler, node))
            verdict_set(&snapshots->verdict, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
        link = link->next;
    }
    for (GList *next; link != NULL; link = next) {
        Ask *const ask = link->data;

        next = link->next;
        if (ask->node != node)
            continue;
        ask_free(ask);
        g_queue_delete_link(&snapshots->asks, link);
    }
}

/* ---- what nodes say ---- */

bool snapshots_hear_ask(Scheduler *scheduler, uint32_t node, const Control *control)
{
    Ask *const ask = g_new0(Ask, 1);

    ask->node = node;
    control_copy(&ask->control, control);
    g_queue_push_tail(&scheduler->snapshots->asks, ask);
    return true;
}

bool snapshots_hear_done(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlSnapshot *const said = &control->snapshot;
    Snapshots *const snapshots = scheduler->snapshots;

    if (!scheduler->takes_snapshot || said->number != snapshots->number ||
        said->step != snapshots->step || snapshots->done[node])
        return false;
    snapshots->done[node] = true;
    verdict_set(&snapshots->verdict, said->outcome.code, said->outcome.text);
    snapshots->written = MAX(snapshots->written, said->written);
    return true;
}

void snapshots_add_waits(const Scheduler *scheduler, GArray *waits)
{
    g_autoptr(GArray) awaited = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    if (!scheduler->takes_snapshot)
        return;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (is_awaited(scheduler, i))
            g_array_append_val(awaited, i);
    g_autofree char *names = scheduler_name_nodes(scheduler, awaited, /* with_heard= */ true);

    wait_add(waits, g_strdup_printf("a snapshot waits for %s to do its part", names),
             scheduler->snapshots->done, scheduler->snapshots->since_ms);
}

/* ---- as bytes ---- */

void snapshots_walk(StateWalk *walk, Scheduler *scheduler)
{
    Snapshots *const it = scheduler->snapshots;
    const uint32_t n_nodes = scheduler->config.n_nodes;
    size_t n = walk_count(walk, it->asks.length);
    const GList *link = it->asks.head;

    for (; n > 0; n--) {
        Ask *const ask = walk_reads(walk) ? g_new0(Ask, 1) : link->data;

        link = walk_reads(walk) ? NULL : link->next;
        if (walk_reads(walk))
            g_queue_push_tail(&it->asks, ask);
        WALK(walk, ask->node);
        WALK(walk, ask->is_orphan);
        walk_control(walk, &ask->control);
        walk->is_wrong |= ask->node >= n_nodes || ask->control.kind != CONTROL_SNAPSHOT_ASK;
    }
    WALK(walk, scheduler->takes_snapshot);
    WALK(walk, it->number);
    WALK(walk, it->step);
    walk_flags(walk, it->done, n_nodes);
    verdict_walk(walk, &it->verdict);
    WALK(walk, it->written);
    WALK(walk, it->since_ms);
    walk->is_wrong |= scheduler->takes_snapshot && g_queue_is_empty(&it->asks);
}
