/* Nodes that are drained: their parts, primaries and replicas, go to servers of other nodes, while
 * requests and tasks go on (docs/replication.md).
 *
 *   WAITS  --nothing else is under way--> COPIES
 *   COPIES --each part there has its copies elsewhere--> HANDS_OVER
 *   HANDS_OVER --all nodes have opened their maps--> it is drained
 *   ENDS   --the node has said LEAVE, or is lost--> it has left the run
 *
 * The nodes do the steps of a recovery twice: to make copies, and to put them in the place of what
 * the node has. If another node is lost meanwhile, the steps that follow its loss come in between:
 * they also make the copies that are missing now, and then the second round begins. No call begins
 * meanwhile, and no snapshot: so no new part comes to the node.
 *
 * A node that has been drained stays in the run, without parts, or leaves it, if that was asked
 * for: as soon as no task has workers there, it is told that it may end. Its LEAVE shows that it
 * knows so, and then the run goes on without it as after a loss, in which no part moves. No call
 * begins in between: it could be a task with workers there.
 *
 * Why it ends. The steps end as those of a recovery do. A server tells when it has made its copies,
 * or that it cannot; if it is lost, others make them. LEAVE is said at once by whoever handles the
 * node's control messages.
 *
 * A node that has joined gets its share of the parts by the same steps. Its first round is that of
 * JOIN; its second one begins where a drain would, and has no asker.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/recovery/scheduler_drain.h"

#include <string.h>

#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_collective.h"
#include "engine/scheduler/scheduler_task.h"

/* The sender of a greeting has no number. */
#define OUTSIDE UINT32_MAX

/* Outside askers that wait for the same end; others are only told that it goes on. */
#define MOST_OUTSIDE 16u

/* Who waits for the end. */
typedef struct {
    uint32_t node; /* OUTSIDE: it asks again */
    uint64_t number;
} Asker;

void drain_clear(Scheduler *scheduler)
{
    Drain *const drain = &scheduler->drain;

    g_clear_pointer(&drain->askers, g_array_unref);
    g_clear_pointer(&drain->later, g_array_unref);
    g_clear_pointer(&drain->heard, g_array_unref);
    g_clear_pointer(&drain->told, g_free);
    verdict_clear(&drain->last);
}

/* ---- what those that ask hear ---- */

static Control answer_to(uint64_t number, uint32_t node_id, const Verdict *verdict)
{
    return (Control){ .kind = CONTROL_DRAINED,
                      .drain = { .number = number,
                                 .node_id = node_id,
                                 .outcome = { verdict->code, verdict->text } } };
}

/* Takes the verdict's text. */
static void end_drain(Scheduler *scheduler, Verdict verdict)
{
    Drain *const drain = &scheduler->drain;
    const uint32_t node = drain->node;

    drain->stage = DRAIN_NONE;
    g_array_set_size(drain->heard, 0);
    for (guint i = 0; i < drain->askers->len; i++) {
        const Asker *const asker = &g_array_index(drain->askers, Asker, i);
        const Control answer = answer_to(asker->number, scheduler->nodes[node].id, &verdict);

        if (asker->node != OUTSIDE)
            scheduler_send(scheduler, asker->node, &answer);
        else
            g_array_append_val(drain->heard, asker->number);
    }
    g_array_set_size(drain->askers, 0);
    verdict_clear(&drain->last);
    drain->last = verdict;
}

/* The node keeps its parts. Other nodes hear so in the steps that follow, which change nothing
 * else, unless it is lost. */
static void fail(Scheduler *scheduler, uint32_t code, const char *text)
{
    const uint32_t node = scheduler->drain.node;
    const bool has_begun = scheduler->drain.stage > DRAIN_WAITS;

    scheduler->nodes[node].drains = scheduler->nodes[node].ends = false;
    end_drain(scheduler, (Verdict){ .code = code, .text = g_strdup(text) });
    if (has_begun && !scheduler->nodes[node].lost && scheduler->doom.code == CONTROL_OK)
        recovery_drain(scheduler, CONTROL_CAUSE_DRAIN, node, "keeps its parts");
    else
        collectives_go_on(scheduler);
}

/* ---- what is asked ---- */

static uint32_t find_node(const Scheduler *scheduler, uint32_t id)
{
    uint32_t i = 0;

    while (i < scheduler->config.n_nodes && scheduler->nodes[i].id != id)
        i++;
    return i;
}

static bool any_has_left(const Scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler->nodes[i].left)
            return true;
    return false;
}

/* Whether another node is being drained. */
static bool is_busy(const Drain *drain, uint32_t number)
{
    return drain->stage != DRAIN_NONE && drain->node != number;
}

/* Why the node cannot be drained. (transfer full) NULL: it can, or has been. */
static char *find_obstacle(const Scheduler *scheduler, uint32_t number, const ControlDrain *asked,
                           uint32_t *code)
{
    const Drain *const drain = &scheduler->drain;
    const uint32_t id = asked->node_id;

    *code = CONTROL_CODE(RUBATO_ERROR_INVALID);
    if (number == scheduler->config.n_nodes)
        return g_strdup_printf("there is no node %u in this run", id);
    const SchedulerNode *const node = &scheduler->nodes[number];

    if (scheduler->doom.code != CONTROL_OK) {
        *code = scheduler->doom.code;
        return g_strdup(scheduler->doom.text);
    }
    if (node->lost) {
        *code = CONTROL_CODE(RUBATO_ERROR_NODE_LOST);
        return g_strdup_printf("node %u cannot be drained: %s", id, node->loss.text);
    }
    if (scheduler->ended || any_has_left(scheduler)) {
        *code = CONTROL_CODE(RUBATO_ERROR_CANCELLED);
        return g_strdup_printf("node %u cannot be drained: the run ends", id);
    }
    if (number == scheduler->config.self)
        return g_strdup_printf("node %u cannot be drained: the scheduler runs there, and the run "
                               "ends with it",
                               id);
    if (is_busy(drain, number))
        return g_strdup_printf("node %u cannot be drained now, because node %u is being drained; "
                               "try again when that has ended",
                               id, scheduler->nodes[drain->node].id);
    if (asked->ends && !scheduler->goes_on)
        return g_strdup_printf("node %u cannot be drained: no table has replicas, so the run would "
                               "end with it",
                               id);
    return NULL;
}

static void make_lists(Scheduler *scheduler)
{
    Drain *const drain = &scheduler->drain;

    drain->askers = g_array_new(FALSE, FALSE, sizeof(Asker));
    drain->later = g_array_new(FALSE, FALSE, sizeof(Asker));
    drain->heard = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    drain->told = g_new(bool, scheduler->config.n_nodes);
    memset(drain->told, true, scheduler->config.n_nodes * sizeof *drain->told);
}

static void begin(Scheduler *scheduler, uint32_t number, bool ends)
{
    Drain *const drain = &scheduler->drain;

    scheduler->nodes[number].ends |= ends;
    if (drain->askers == NULL)
        make_lists(scheduler);
    if (drain->stage == DRAIN_NONE) {
        drain->stage = DRAIN_WAITS;
        drain->node = number;
        drain->since_ms = scheduler->now_ms;
    }
}

static bool waits_for_later(const Drain *drain, uint32_t node)
{
    for (guint i = 0; i < drain->later->len; i++)
        if (g_array_index(drain->later, Asker, i).node == node)
            return true;
    return false;
}

/* Whether what is asked for has been done. A node that is to end has nothing to hear then. */
static bool is_done(const Scheduler *scheduler, uint32_t number, bool ends)
{
    return scheduler->nodes[number].is_drained && !ends;
}

/* A node that ends, and asks for itself, waits while another one is drained. */
bool drain_hears_ask(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlDrain *const asked = &control->drain;
    Drain *const drain = &scheduler->drain;
    const uint32_t number = find_node(scheduler, asked->node_id);
    const Asker asker = { node, asked->number };
    Verdict verdict = { 0 };

    if (asked->ends && number == node && is_busy(drain, number)) {
        if (waits_for_later(drain, node))
            return false;
        g_array_append_val(drain->later, asker);
        return true;
    }
    verdict.text = find_obstacle(scheduler, number, asked, &verdict.code);
    if (verdict.text == NULL)
        verdict.code = CONTROL_OK;
    if (verdict.text != NULL || is_done(scheduler, number, asked->ends)) {
        const Control answer = answer_to(asked->number, asked->node_id, &verdict);

        scheduler_send(scheduler, node, &answer);
        verdict_clear(&verdict);
        return true;
    }
    begin(scheduler, number, asked->ends);
    g_array_append_val(drain->askers, asker);
    return true;
}

/* It is asked again and again, by the same number. *n: how many outside askers there are. */
static bool is_awaited(const Drain *drain, uint64_t number, guint *n)
{
    bool is_there = false;

    *n = 0;
    for (guint i = 0; drain->stage != DRAIN_NONE && i < drain->askers->len; i++) {
        const Asker *const asker = &g_array_index(drain->askers, Asker, i);

        *n += asker->node == OUTSIDE;
        is_there |= asker->node == OUTSIDE && asker->number == number;
    }
    return is_there;
}

/* The answer may be lost: then it asks again. */
static bool has_ended(const Drain *drain, uint64_t number)
{
    for (guint i = 0; drain->heard != NULL && i < drain->heard->len; i++)
        if (g_array_index(drain->heard, uint64_t, i) == number)
            return true;
    return false;
}

/* What has an outside asker to hear now? */
void rendezvous_drain(Scheduler *scheduler, const Control *control, uint16_t version,
                      uint64_t asker)
{
    const ControlDrain *const asked = &control->drain;
    const uint32_t number = find_node(scheduler, asked->node_id);
    const Asker outside = { OUTSIDE, asked->number };
    Drain *const drain = &scheduler->drain;
    g_autofree char *obstacle = NULL;
    uint32_t code = CONTROL_OK;
    guint n_outside = 0;
    Control answer = { .kind = CONTROL_DRAINED,
                       .drain = { .number = asked->number, .node_id = asked->node_id } };

    if (version != scheduler->config.wire_version) {
        obstacle = g_strdup_printf("it speaks version %u of the protocol, the run version %u: use "
                                   "programs of one build",
                                   version, scheduler->config.wire_version);
        code = CONTROL_CODE(RUBATO_ERROR_MISMATCH);
    } else if (!scheduler->begun) {
        obstacle = g_strdup("the run has not begun");
        code = CONTROL_CODE(RUBATO_ERROR_INVALID);
    } else if (is_awaited(drain, asked->number, &n_outside)) {
        answer.drain.goes_on = true;
    } else if (has_ended(drain, asked->number)) {
        code = drain->last.code;
        obstacle = g_strdup(drain->last.text);
    } else if ((obstacle = find_obstacle(scheduler, number, asked, &code)) == NULL) {
        code = CONTROL_OK;
        answer.drain.goes_on = !is_done(scheduler, number, asked->ends);
        if (answer.drain.goes_on)
            begin(scheduler, number, asked->ends);
        if (answer.drain.goes_on && n_outside < MOST_OUTSIDE)
            g_array_append_val(drain->askers, outside);
    }
    answer.drain.outcome = (ControlOutcome){ code, obstacle };
    scheduler_send_greeting(scheduler, asker, &answer);
    drain_go_on(scheduler);
}

/* ---- its stages ---- */

/* The node may end: it hears so, and says LEAVE. */
static void let_go(Scheduler *scheduler)
{
    const SchedulerNode *const node = &scheduler->nodes[scheduler->drain.node];
    g_autofree char *text = g_strdup_printf("%s was drained, and leaves the run", node->label);
    const Verdict verdict = { CONTROL_CODE(RUBATO_ERROR_SERVED), text };
    const Control answer = answer_to(0, node->id, &verdict);

    scheduler->drain.stage = DRAIN_ENDS;
    scheduler_send(scheduler, scheduler->drain.node, &answer);
}

/* The node has nothing left. If it is to end and still has workers, it ends when they have. */
static void end_hand_over(Scheduler *scheduler)
{
    const uint32_t number = scheduler->drain.node;
    SchedulerNode *const node = &scheduler->nodes[number];
    const char *const task = node->ends ? tasks_name_busy(scheduler, number) : NULL;
    Verdict verdict = { 0 };

    node->is_drained = true;
    if (node->ends && task == NULL) {
        let_go(scheduler);
        return;
    }
    if (task != NULL)
        verdict.text = g_strdup_printf("node %u is drained, and ends when its workers of %s have",
                                       node->id, task);
    end_drain(scheduler, verdict);
    collectives_go_on(scheduler);
}

bool drain_awaits_leave(const Scheduler *scheduler, uint32_t node)
{
    return scheduler->drain.stage == DRAIN_ENDS && scheduler->drain.node == node &&
           scheduler->doom.code == CONTROL_OK;
}

/* A node that has been drained and is to end, whose workers have ended. Nothing else is under way.
 * Returns whether there is one. */
static bool let_next_go(Scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        const SchedulerNode *const node = &scheduler->nodes[i];

        if (!node->ends || !node->is_drained || node->lost || tasks_name_busy(scheduler, i) != NULL)
            continue;
        begin(scheduler, i, /* ends= */ true);
        let_go(scheduler);
        return true;
    }
    return false;
}

/* The next one of those that wait while another is drained. */
static void begin_later(Scheduler *scheduler)
{
    Drain *const drain = &scheduler->drain;

    while (drain->stage == DRAIN_NONE && drain->later != NULL && drain->later->len > 0) {
        const Asker asker = g_array_index(drain->later, Asker, 0);
        const Control ask = { .kind = CONTROL_DRAIN,
                              .drain = { .number = asker.number,
                                         .node_id = scheduler->nodes[asker.node].id,
                                         .ends = true } };

        g_array_remove_index(drain->later, 0);
        (void)drain_hears_ask(scheduler, asker.node, &ask); /* it made sense */
    }
}

static bool is_calm(const Scheduler *scheduler)
{
    return !scheduler->recovers && !scheduler->takes_snapshot && !collectives_work(scheduler);
}

void drain_go_on(Scheduler *scheduler)
{
    Drain *const drain = &scheduler->drain;

    begin_later(scheduler);
    if (drain->stage <= DRAIN_WAITS && scheduler->doom.code == CONTROL_OK && is_calm(scheduler) &&
        !any_has_left(scheduler))
        recovery_balance(scheduler);
    SchedulerNode *const node = &scheduler->nodes[drain->node];
    if (drain->stage == DRAIN_NONE && scheduler->doom.code == CONTROL_OK && is_calm(scheduler) &&
        !any_has_left(scheduler) && let_next_go(scheduler))
        return;
    if (drain->stage == DRAIN_NONE)
        return;
    if (scheduler->doom.code != CONTROL_OK) {
        fail(scheduler, scheduler->doom.code, scheduler->doom.text);
        return;
    }
    if (drain->stage == DRAIN_ENDS) {
        if (node->lost) /* it had nothing to lose */
            end_drain(scheduler, (Verdict){ 0 });
        return;
    }
    if (node->lost) {
        g_autofree char *text =
            g_strdup_printf("node %u was not drained: %s", node->id, node->loss.text);

        fail(scheduler, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
        return;
    }
    if (!is_calm(scheduler))
        return;
    if (any_has_left(scheduler)) {
        g_autofree char *text = g_strdup_printf("node %u was not drained: the run ends", node->id);

        fail(scheduler, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text);
        return;
    }
    if (drain->stage == DRAIN_WAITS && node->is_drained) {
        end_hand_over(scheduler); /* it is to end now */
    } else if (drain->stage == DRAIN_WAITS) {
        drain->stage = DRAIN_COPIES;
        node->drains = true;
        recovery_drain(scheduler, CONTROL_CAUSE_DRAIN, drain->node, "is to be drained");
    } else if (drain->stage == DRAIN_HANDS_OVER && recovery_has_handed_over(scheduler)) {
        end_hand_over(scheduler);
    } else if (recovery_drain_fault(scheduler) != NULL) {
        g_autofree char *text = g_strdup_printf("node %u cannot be drained: %s", node->id,
                                                recovery_drain_fault(scheduler));

        fail(scheduler, CONTROL_CODE(RUBATO_ERROR_INVALID), text);
    } else if (!recovery_awaits_copies(scheduler)) {
        drain->stage = DRAIN_HANDS_OVER;
        recovery_drain(scheduler, CONTROL_CAUSE_HAND_OVER, drain->node, "is drained");
    } else {
        drain->stage = DRAIN_COPIES;
    }
}

void drain_add_waits(const Scheduler *scheduler, GArray *waits)
{
    const Drain *const drain = &scheduler->drain;

    if (drain->stage != DRAIN_COPIES || scheduler->recovers)
        return;
    wait_add(waits,
             g_strdup_printf("%s, which is drained, waits until other nodes have copies of its "
                             "parts",
                             scheduler->nodes[drain->node].label),
             drain->told, drain->since_ms);
}

/* ---- as bytes ---- */

static void walk_asker(StateWalk *walk, void *element)
{
    Asker *const asker = element;

    WALK(walk, asker->node);
    WALK(walk, asker->number);
}

static void walk_heard(StateWalk *walk, void *element)
{
    WALK(walk, *(uint64_t *)element);
}

void drain_walk(StateWalk *walk, Scheduler *scheduler)
{
    Drain *const drain = &scheduler->drain;

    if (walk_number(walk, drain->askers != NULL) == 0)
        return; /* there was none yet */
    if (walk_reads(walk))
        make_lists(scheduler);
    WALK(walk, drain->stage);
    WALK(walk, drain->node);
    WALK(walk, drain->since_ms);
    walk_array(walk, drain->askers, walk_asker);
    walk_array(walk, drain->later, walk_asker);
    walk_array(walk, drain->heard, walk_heard);
    verdict_walk(walk, &drain->last);
    walk->is_wrong |= drain->node >= scheduler->config.n_nodes;
}
