/* Nodes that are drained: their parts, primaries and replicas, go to servers of other nodes, while
 * requests and tasks go on (docs/replication.md).
 *
 *   WAITS  --nothing else is under way--> COPIES
 *   COPIES --each part there has its copies elsewhere--> HANDS_OVER
 *   HANDS_OVER --all nodes have opened their maps--> it is drained
 *
 * The nodes do the steps of a recovery twice: to make copies, and to put them in the place of what
 * the node has. If another node is lost meanwhile, the steps that follow its loss come in between:
 * they also make the copies that are missing now, and then the second round begins. No call begins
 * meanwhile, and no snapshot: so no new part comes to the node.
 *
 * A node that has been drained stays in the run. It gets no parts any more, and may be ended.
 *
 * Why it ends. The steps end as those of a recovery do. A server tells when it has made its copies,
 * or that it cannot; if it is lost, others make them.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_state.h"

#include <string.h>

/* The sender of a greeting has no number. */
#define OUTSIDE UINT32_MAX

/* Who waits for the end. */
typedef struct {
    uint32_t node; /* OUTSIDE: it asks again */
    uint64_t number;
} Asker;

void drain_clear(Scheduler *scheduler)
{
    Drain *const drain = &scheduler->drain;

    g_clear_pointer(&drain->askers, g_array_unref);
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
    for (guint i = 0; i < drain->askers->len; i++) {
        const Asker *const asker = &g_array_index(drain->askers, Asker, i);
        const Control answer = answer_to(asker->number, scheduler->nodes[node].id, &verdict);

        if (asker->node != OUTSIDE)
            scheduler_send(scheduler, asker->node, &answer);
        else
            drain->last_number = asker->number;
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

    scheduler->nodes[node].drains = false;
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

/* Why the node cannot be drained. (transfer full) NULL: it can, or has been. */
static char *find_obstacle(const Scheduler *scheduler, uint32_t number, uint32_t id, uint32_t *code)
{
    const Drain *const drain = &scheduler->drain;

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
    if (drain->stage != DRAIN_NONE && drain->node != number)
        return g_strdup_printf("node %u cannot be drained now, because node %u is being drained; "
                               "try again when that has ended",
                               id, scheduler->nodes[drain->node].id);
    return NULL;
}

static void begin(Scheduler *scheduler, uint32_t number)
{
    Drain *const drain = &scheduler->drain;

    if (drain->askers == NULL) {
        drain->askers = g_array_new(FALSE, FALSE, sizeof(Asker));
        drain->told = g_new(bool, scheduler->config.n_nodes);
        memset(drain->told, true, scheduler->config.n_nodes * sizeof *drain->told);
    }
    if (drain->stage == DRAIN_NONE) {
        drain->stage = DRAIN_WAITS;
        drain->node = number;
        drain->since_ms = scheduler->now_ms;
    }
}

bool drain_hears_ask(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlDrain *const asked = &control->drain;
    const uint32_t number = find_node(scheduler, asked->node_id);
    const Asker asker = { node, asked->number };
    Verdict verdict = { 0 };

    verdict.text = find_obstacle(scheduler, number, asked->node_id, &verdict.code);
    if (verdict.text == NULL)
        verdict.code = CONTROL_OK;
    if (verdict.text != NULL || scheduler->nodes[number].is_drained) {
        const Control answer = answer_to(asked->number, asked->node_id, &verdict);

        scheduler_send(scheduler, node, &answer);
        verdict_clear(&verdict);
        return true;
    }
    begin(scheduler, number);
    g_array_append_val(scheduler->drain.askers, asker);
    return true;
}

/* It is asked again and again, by the same number. */
static bool is_awaited(const Drain *drain, uint64_t number)
{
    for (guint i = 0; drain->stage != DRAIN_NONE && i < drain->askers->len; i++)
        if (g_array_index(drain->askers, Asker, i).node == OUTSIDE &&
            g_array_index(drain->askers, Asker, i).number == number)
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
    } else if (is_awaited(drain, asked->number)) {
        answer.drain.goes_on = true;
    } else if (asked->number == drain->last_number && drain->last_number != 0) {
        code = drain->last.code;
        obstacle = g_strdup(drain->last.text);
    } else if ((obstacle = find_obstacle(scheduler, number, asked->node_id, &code)) == NULL) {
        code = CONTROL_OK;
        answer.drain.goes_on = !scheduler->nodes[number].is_drained;
        if (answer.drain.goes_on) {
            begin(scheduler, number);
            g_array_append_val(drain->askers, outside);
        }
    }
    answer.drain.outcome = (ControlOutcome){ code, obstacle };
    scheduler_send_greeting(scheduler, asker, &answer);
    drain_go_on(scheduler);
}

/* ---- its stages ---- */

static void end_hand_over(Scheduler *scheduler)
{
    SchedulerNode *const node = &scheduler->nodes[scheduler->drain.node];

    node->is_drained = true;
    end_drain(scheduler, (Verdict){ 0 });
    collectives_go_on(scheduler);
}

void drain_go_on(Scheduler *scheduler)
{
    Drain *const drain = &scheduler->drain;
    SchedulerNode *const node = &scheduler->nodes[drain->node];

    if (drain->stage == DRAIN_NONE)
        return;
    if (scheduler->doom.code != CONTROL_OK) {
        fail(scheduler, scheduler->doom.code, scheduler->doom.text);
        return;
    }
    if (node->lost) {
        g_autofree char *text =
            g_strdup_printf("node %u was not drained: %s", node->id, node->loss.text);

        fail(scheduler, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
        return;
    }
    if (scheduler->recovers || scheduler->takes_snapshot || collectives_work(scheduler))
        return;
    if (any_has_left(scheduler)) {
        g_autofree char *text = g_strdup_printf("node %u was not drained: the run ends", node->id);

        fail(scheduler, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text);
        return;
    }
    if (drain->stage == DRAIN_WAITS) {
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
