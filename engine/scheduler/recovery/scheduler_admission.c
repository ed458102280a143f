/* Which process takes the place of a lost node, and what it is told.
 *
 * One process at a time. It is told by ADMITTED once all nodes have links to it. Before that it is
 * no node; if another node is lost meanwhile, it is given up, and begins again with its next JOIN.
 * After that it is a node like the others: what it is told comes in order, so it has made the
 * tables before it does a step that follows another loss.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/recovery/scheduler_admission.h"

#include "engine/scheduler/journal/scheduler_record.h"
#include "engine/scheduler/scheduler_base.h"

/* What two processes send one another is counted from this times a number that no earlier pair of
 * processes had. It is more than any of them sends. */
#define COUNTED_BYTES ((uint64_t)1 << 48)
#define MOST_ADMITTED ((uint64_t)1 << 15)

enum { ASKS_AGAIN_MS = 1000 }; /* a process that lives asks again before */

const char *admission_find_obstacle(const Scheduler *scheduler, uint32_t *code)
{
    *code = CONTROL_CODE(RUBATO_ERROR_INVALID);
    if (!scheduler->config.admits)
        return "no process can join this run";
    if (!scheduler->begun && !scheduler->ended)
        return "the run has not begun, so no node is lost: start the process without joining";
    if (scheduler->doom.code != CONTROL_OK) {
        *code = scheduler->doom.code;
        return scheduler->doom.text;
    }
    if (scheduler->refusal.code != CONTROL_OK) {
        *code = scheduler->refusal.code;
        return scheduler->refusal.text;
    }
    *code = CONTROL_CODE(RUBATO_ERROR_CANCELLED);
    if (scheduler->ended)
        return "the run has ended";
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler->nodes[i].left)
            return "the run ends: nodes have left it";
    return NULL;
}

bool admission_knows(const Scheduler *scheduler, uint64_t incarnation)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler->nodes[i].met && scheduler->nodes[i].incarnation == incarnation)
            return true;
    for (guint i = 0; i < scheduler->former->len; i++)
        if (g_array_index(scheduler->former, uint64_t, i) == incarnation)
            return true;
    return false;
}

uint64_t admission_count_from(Scheduler *scheduler)
{
    return scheduler->n_admitted < MOST_ADMITTED - 1 ? ++scheduler->n_admitted * COUNTED_BYTES : 0;
}

bool admission_begin(Scheduler *scheduler, uint32_t node, const ControlHello *join, uint64_t asker)
{
    const uint64_t counted_from = admission_count_from(scheduler);

    if (counted_from == 0)
        return false;
    scheduler->put_off_ms = 0;
    admission_end(scheduler);
    scheduler->admission = (Admission){ .opens = true,
                                        .node = node,
                                        .incarnation = join->incarnation,
                                        .counted_from = counted_from,
                                        .asker = asker,
                                        .endpoint = g_strdup(join->endpoints),
                                        .description = g_strdup(join->description) };
    return true;
}

/* A process that joins hears where the scheduler's node is, so that one comes before all others. */
bool admission_awaits_own(const Scheduler *scheduler)
{
    uint32_t code;

    return scheduler->own.endpoint != NULL && !scheduler->own.was_refused &&
           scheduler->nodes[scheduler->config.self].lost &&
           admission_find_obstacle(scheduler, &code) == NULL;
}

bool admission_is_due(const Scheduler *scheduler)
{
    return scheduler->put_off_ms != 0 && scheduler->now_ms - scheduler->put_off_ms < ASKS_AGAIN_MS;
}

void admission_begin_own(Scheduler *scheduler)
{
    admission_end(scheduler);
    scheduler->admission = (Admission){ .opens = true,
                                        .node = scheduler->config.self,
                                        .incarnation = scheduler->own.incarnation,
                                        .counted_from = scheduler->own.counted_from,
                                        .endpoint = g_strdup(scheduler->own.endpoint),
                                        .description = g_strdup(scheduler->own.description) };
}

void admission_install(Scheduler *scheduler)
{
    Admission *const admission = &scheduler->admission;
    SchedulerNode *const node = &scheduler->nodes[admission->node];

    if (node->met) {
        g_array_append_val(scheduler->former, node->incarnation);
        node->n_before++;
    }
    node->here = node->met = true;
    g_free(node->endpoint);
    g_free(node->description);
    node->endpoint = g_strdup(admission->endpoint);
    node->description = g_strdup(admission->description);
    node->incarnation = admission->incarnation;
    node->counted_from = admission->counted_from;
    node->asker = admission->asker;
    node->heard_ms = scheduler->now_ms;
    node->lost = false;
    node->serves = true;
    node->n_proposed = 0;
    control_clear(&node->asks);
    node->asks = (Control){ 0 };
    node->drains = node->is_drained = node->ends = node->left_drained = false;
    record_forget_sent(node);
    admission_end(scheduler);
}

void admission_answer(Scheduler *scheduler, uint32_t node)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    g_autofree const char **endpoints = g_new(const char *, n_nodes);
    g_autofree uint64_t *incarnations = g_new(uint64_t, n_nodes);

    for (uint32_t i = 0; i < n_nodes; i++) {
        endpoints[i] = scheduler->nodes[i].lost ? "" : scheduler->nodes[i].endpoint;
        incarnations[i] = scheduler->nodes[i].incarnation;
    }
    if (scheduler->own.endpoint != NULL) { /* also if its node could not join */
        endpoints[scheduler->config.self] = scheduler->own.endpoint;
        incarnations[scheduler->config.self] = scheduler->own.incarnation;
    }
    const Control admitted = {
        .kind = CONTROL_ADMITTED,
        .welcome = { .run_id = scheduler->run_id,
                     .n_nodes = n_nodes,
                     .endpoints = endpoints,
                     .incarnations = incarnations,
                     .counted_from = scheduler->nodes[node].counted_from,
                     .n_before = scheduler->nodes[node].n_before },
    };
    scheduler_send_greeting(scheduler, scheduler->nodes[node].asker, &admitted);
}

void admission_catch_up(Scheduler *scheduler, uint32_t node)
{
    g_autoptr(GString) serving = g_string_new(NULL);

    scheduler->nodes[node].serves = false;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler->nodes[i].serves)
            g_string_append_printf(serving, "%s%u", serving->len > 0 ? " " : "", i);
    scheduler_send_all(
        scheduler, &(Control){ .kind = CONTROL_CAUGHT_UP, .caught_up = { node, serving->str } });
}

void admission_end(Scheduler *scheduler)
{
    g_free(scheduler->admission.endpoint);
    g_free(scheduler->admission.description);
    scheduler->admission = (Admission){ 0 };
}
