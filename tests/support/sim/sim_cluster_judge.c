/* Judges how the nodes of a simulated cluster have ended: no node may fail without need, and each
 * must be told in time. */
#include <string.h>

#include "tests/support/sim/sim_cluster_private.h"

/* The longest time that a worker may compute, during which it notices nothing. */
static int64_t thinks_ms(const SimScenario *scenario)
{
    return SIM_SLOW_WORKER * scenario->think_ns / SIM_MS + 1;
}

/* Whether the network was out for so long that a node may be called lost. If a packet and its
 * answer take so long together, what is asked for again comes too late. A node that is heard all
 * the time may then be lost because something else from it does not come. */
static bool was_cut_off(const SimScenario *scenario, const SimNode *node)
{
    const int64_t enough_ms = (int64_t)scenario->timeout_ms - 2;
    const bool was_silence = strstr(node->error->message, "nothing heard from") != NULL;

    return node->silence_ms >= enough_ms ||
           (!was_silence && MAX(node->outage_ms, node->round_trip_ms) >= enough_ms);
}

/* Then a node looks at its task once it has made all moves. */
static bool was_moving(const SimScenario *scenario, const SimNode *node)
{
    return scenario->n_moves > 0 && strstr(node->error->message, "was on its way to") != NULL;
}

/* Whether a part was on nodes that were killed alone. One of two replicas may have been given up
 * after the first loss, because it had missed inputs. A part without replicas may have moved
 * there, or have been about to, with what a task had on it. */
static bool has_lost_parts(const SimScenario *scenario, const SimNode *node)
{
    const bool may_lose = scenario->n_faults > 1 && !scenario->restores;

    return scenario->n_replicas > 0 &&
           (((may_lose || scenario->n_moves > 0) &&
             strstr(node->error->message, "no other node has part") != NULL) ||
            was_moving(scenario, node));
}

/* Whether a task has waited for a process as long as it was to. */
static bool was_too_late(const SimScenario *scenario, const SimNode *node)
{
    return scenario->replace_ms > 0 &&
           strstr(node->error->message, "no process has taken over its workers within") != NULL;
}

/* Whether blocks of data came back when no worker read any more. */
static bool has_unread_rows(const SimScenario *scenario, const SimNode *node)
{
    return scenario->continues && scenario->keeps_rows &&
           strstr(node->error->message, "no other has read all rows") != NULL;
}

/* A process that takes the place of a killed one may come too early or too late, and is refused;
 * or the run ends before it has caught up. Otherwise it ends like the others. */
static void judge_newcomer(const SimCluster *cluster, const SimNode *node,
                           const SimOutcome *outcome)
{
    const SimScenario *const scenario = cluster->scenario;

    if (!node->has_joined || cluster->killed_early)
        return;
    if (node->error == NULL) {
        if (outcome->n_ended_well > 0 && outcome->rows_digest != node->rows_digest)
            sim_fail("process %u reads other rows than those before it", node->number);
    } else if (!was_too_late(scenario, node) && !has_lost_parts(scenario, node) &&
               !was_cut_off(scenario, node) &&
               strstr(node->error->message, "the run has ended meanwhile") == NULL) {
        sim_fail("process %u, which has joined, failed without need: %s", node->number,
                 node->error->message);
    }
}

static void judge_node(const SimCluster *cluster, const SimNode *node, SimOutcome *outcome)
{
    const SimScenario *const scenario = cluster->scenario;
    const bool may_fail = scenario->failing_worker != UINT32_MAX;
    const bool may_be_cancelled = scenario->cancelled_ms >= 0;
    const bool any_killed = cluster->killed_ms >= 0;

    if (node->error_beside != NULL &&
        !g_error_matches(node->error_beside, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST) &&
        !may_be_cancelled && !any_killed && node->silence_ms < (int64_t)scenario->timeout_ms - 2)
        sim_fail("node %u: the task beside the others failed without need: %s", node->number,
                 node->error_beside->message);
    if (node->error == NULL) {
        if (outcome->n_ended_well > 0 && outcome->rows_digest != node->rows_digest)
            sim_fail("node %u reads other rows than those before it", node->number);
        outcome->rows_digest = node->rows_digest;
        outcome->n_ended_well++;
        /* With replicas, the node of that worker may have been lost before its last task. */
        if (may_fail && !any_killed && (cluster->job.has_failed || scenario->n_replicas == 0))
            sim_fail("node %u ended well, but worker %u has failed", node->number,
                     scenario->failing_worker);
        return;
    }
    outcome->n_too_late += was_too_late(scenario, node);
    if (scenario->outlives && any_killed && !cluster->killed_early &&
        !has_lost_parts(scenario, node) && !was_too_late(scenario, node) &&
        !has_unread_rows(scenario, node) &&
        !(scenario->replace_ms > 0 && was_cut_off(scenario, node)))
        sim_fail("node %u did not outlive another one: %s", node->number, node->error->message);
    outcome->failed_ms = MAX(outcome->failed_ms, node->failed_ms);
    const bool is_lost = g_error_matches(node->error, RUBATO_ERROR, RUBATO_ERROR_NODE_LOST);
    const bool has_failed = g_error_matches(node->error, RUBATO_ERROR, RUBATO_ERROR_TASK_FAILED);
    const bool is_cancelled = g_error_matches(node->error, RUBATO_ERROR, RUBATO_ERROR_CANCELLED);
    /* A node that was cut off before the rendezvous was over finds no other node later. */
    const bool is_unanswered = g_error_matches(node->error, RUBATO_ERROR, RUBATO_ERROR_NETWORK);
    outcome->n_lost += is_lost;
    outcome->n_failed += has_failed;
    outcome->n_cancelled += is_cancelled;
    if (is_lost && any_killed && scenario->n_faults == 1 && !was_moving(scenario, node) &&
        node->failed_ms > cluster->killed_ms + 2 * (int64_t)scenario->timeout_ms +
                              thinks_ms(scenario) +
                              (was_too_late(scenario, node) ? (int64_t)scenario->replace_ms : 0))
        sim_fail("node %u was told after %" G_GINT64_FORMAT " ms that another is lost",
                 node->number, node->failed_ms - cluster->killed_ms);
    if (any_killed)
        return;
    if ((is_lost || is_unanswered || node->error_again != NULL) && was_cut_off(scenario, node))
        return;
    if (((has_failed && may_fail) || (is_cancelled && may_be_cancelled)) &&
        node->error_again == NULL)
        return;
    sim_fail("node %u failed without need: %s; then %s (the longest silence was %" G_GINT64_FORMAT
             " ms, the longest outage %" G_GINT64_FORMAT
             " ms, the longest round trip %" G_GINT64_FORMAT " ms)",
             node->number, node->error->message,
             node->error_again != NULL ? node->error_again->message : "it went on",
             node->silence_ms, node->outage_ms, node->round_trip_ms);
}

void sim_cluster_judge(const SimCluster *cluster, SimOutcome *outcome)
{
    const SimScenario *const scenario = cluster->scenario;

    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        if (!cluster->nodes[i].was_killed)
            judge_node(cluster, &cluster->nodes[i], outcome);
    for (uint32_t i = scenario->n_nodes; i < sim_cluster_n_processes(cluster); i++)
        if (!cluster->nodes[i].was_killed)
            judge_newcomer(cluster, &cluster->nodes[i], outcome);
    if (sim_n_fds() > 0)
        sim_fail("%u descriptors are still open", sim_n_fds());
}
