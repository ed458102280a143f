/* Faults of a simulated cluster: links that lose, double, reorder, slow down or break; nodes that
 * stop or die. */
#include "tests/support/sim/sim_cluster_private.h"

#include "engine/engine_private.h"
#include "engine/join/newcomer.h"
#include "engine/scheduler/scheduler_state.h"

static bool is_meant(uint32_t meant, uint32_t node)
{
    return meant == SIM_ALL_NODES || meant == node;
}

static void cut_off(const SimCluster *cluster, uint32_t node)
{
    for (uint32_t i = 0; i < sim_cluster_n_processes(cluster); i++) {
        if (i == node)
            continue;
        sim_network_link(i, node)->is_cut = sim_network_link(node, i)->is_cut = true;
        sim_network_reset(i, node);
        sim_network_reset(node, i);
    }
}

static void begin_link_fault(const SimFault *fault, uint32_t from, uint32_t to)
{
    SimLink *const link = sim_network_link(from, to);

    switch (fault->kind) {
    case SIM_FAULT_LOSS:
        link->loss_1024 = fault->how_often;
        break;
    case SIM_FAULT_DOUBLING:
        link->doubling_1024 = fault->how_often;
        break;
    case SIM_FAULT_DISORDER:
        link->overtakes = true;
        break;
    case SIM_FAULT_SLOW:
        link->slow_1024 = fault->how_often;
        link->slow_ns = fault->for_ms * SIM_MS / 2;
        break;
    case SIM_FAULT_CUT:
        link->is_cut = true;
        break;
    case SIM_FAULT_RESET:
        sim_network_reset(from, to);
        break;
    default:
        break;
    }
}

static void end_link_fault(const SimCluster *cluster, const SimFault *fault, uint32_t from,
                           uint32_t to)
{
    SimLink *const link = sim_network_link(from, to);

    if (cluster->nodes[from].was_killed || cluster->nodes[to].was_killed)
        return;
    if (fault->kind == SIM_FAULT_LOSS)
        link->loss_1024 = 0;
    if (fault->kind == SIM_FAULT_DOUBLING)
        link->doubling_1024 = 0;
    if (fault->kind == SIM_FAULT_DISORDER)
        link->overtakes = false;
    if (fault->kind == SIM_FAULT_SLOW)
        link->slow_1024 = 0;
    if (fault->kind == SIM_FAULT_CUT)
        sim_network_join(from, to);
}

/* Whether the scheduler goes on without a lost node: there is a table with replicas. */
static bool goes_on(const SimCluster *cluster)
{
    const RubatoEngine *const engine = cluster->nodes[cluster->scenario->scheduler].engine;

    return engine != NULL && engine->scheduler->goes_on;
}

/* Whether a node dies before the run has begun on all nodes, and has a table with replicas. */
static bool is_early(const SimCluster *cluster)
{
    bool is_early = false;

    for (uint32_t i = 0; i < cluster->scenario->n_nodes; i++)
        is_early = is_early || (cluster->nodes[i].engine == NULL && !cluster->nodes[i].has_ended);
    return is_early || !goes_on(cluster);
}

static void lose_workers(const SimJob *job, uint32_t node)
{
    for (uint32_t i = 0; job->scenario != NULL && i < job->scenario->n_tables; i++)
        sim_history_lose_node(job->histories[i], node);
}

static void begin_fault(void *data, uint64_t number);

/* Whether the second node is killed later: the first one still is to be, or parts have no replicas
 * in the place of those that it had. */
static bool waits_for_replicas(const SimCluster *cluster, uint64_t number)
{
    const SimScenario *const scenario = cluster->scenario;

    if (!scenario->restores || number == 0)
        return false;
    const SimNode *const first = &cluster->nodes[scenario->faults[0].from];
    return (!first->was_killed && !first->has_ended) || !sim_replicas_are_restored(cluster);
}

/* Whether a node is killed later, because it is to be drained before. */
static bool waits_for_drain(const SimCluster *cluster, uint32_t node)
{
    const SimScenario *const scenario = cluster->scenario;

    return scenario->ends_drained && node == scenario->drained && !cluster->is_drained &&
           !cluster->has_kept;
}

/* Whether the second node is killed later, because the loss of the first is to be known before.
 * Then it is planned. */
static bool waits_for_loss(SimCluster *cluster, uint64_t number)
{
    const SimScenario *const scenario = cluster->scenario;
    const RubatoEngine *const engine = cluster->nodes[scenario->scheduler].engine;
    const uint32_t first = scenario->faults[0].from;

    if (scenario->after_loss_ns == 0 || number == 0 || cluster->knows_loss ||
        cluster->nodes[first].has_ended)
        return false;
    cluster->knows_loss = engine != NULL && engine->losses[first].text != NULL;
    sim_after(cluster->knows_loss ? scenario->after_loss_ns : SIM_MS, begin_fault, cluster, number);
    return true;
}

void sim_cluster_kill(SimCluster *cluster, uint32_t number)
{
    SimNode *const node = &cluster->nodes[number];
    const int64_t now_ns = sim_now_ns();

    cluster->killed_early = cluster->killed_early || is_early(cluster);
    node->was_killed = true;
    if (cluster->progress_ns < now_ns) /* workers wait until it is known */
        cluster->progress_ns = now_ns;
    cluster->n_living--;
    cluster->killed_ms = sim_now_ms() - cluster->begun_ms;
    lose_workers(&cluster->job, number);
    lose_workers(&cluster->job_beside, number);
    lose_workers(&cluster->job_again, number);
    sim_freeze(number);
    cut_off(cluster, number);
    sim_newcomers_plan(cluster, node->place);
}

static void begin_fault(void *data, uint64_t number)
{
    SimCluster *const cluster = data;
    const SimFault *const fault = &cluster->scenario->faults[number];
    const uint32_t n = sim_cluster_n_processes(cluster);

    SIM_TRACE("fault %" G_GUINT64_FORMAT " begins", number);
    if (fault->kind == SIM_FAULT_STOP) {
        if (!cluster->nodes[fault->from].was_killed)
            sim_freeze(fault->from);
    } else if (fault->kind == SIM_FAULT_KILL) {
        SimNode *const node = &cluster->nodes[fault->from];
        if (node->has_ended || cluster->n_living == 1)
            return;
        if (waits_for_loss(cluster, number))
            return;
        if (node->compares || waits_for_replicas(cluster, number) ||
            waits_for_drain(cluster, fault->from)) { /* see sim_replicas.c */
            sim_after(SIM_MS, begin_fault, cluster, number);
            return;
        }
        sim_cluster_kill(cluster, fault->from);
    } else {
        for (uint32_t from = 0; from < n; from++)
            for (uint32_t to = 0; to < n; to++)
                if (from != to && is_meant(fault->from, from) && is_meant(fault->to, to))
                    begin_link_fault(fault, from, to);
    }
}

static void end_fault(void *data, uint64_t number)
{
    SimCluster *const cluster = data;
    const SimFault *const fault = &cluster->scenario->faults[number];
    const uint32_t n = sim_cluster_n_processes(cluster);

    SIM_TRACE("fault %" G_GUINT64_FORMAT " is over", number);
    if (fault->kind == SIM_FAULT_STOP && !cluster->nodes[fault->from].was_killed)
        sim_thaw(fault->from);
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++)
            if (from != to && is_meant(fault->from, from) && is_meant(fault->to, to))
                end_link_fault(cluster, fault, from, to);
}

void sim_cluster_plan_faults(SimCluster *cluster)
{
    const SimScenario *const scenario = cluster->scenario;

    for (uint32_t i = 0; i < scenario->n_faults; i++) {
        const SimFault *const fault = &scenario->faults[i];
        if (scenario->at_task > 0)
            continue;
        sim_after(fault->at_ms * SIM_MS, begin_fault, cluster, i);
        if (fault->kind != SIM_FAULT_KILL)
            sim_after((fault->at_ms + fault->for_ms) * SIM_MS, end_fault, cluster, i);
    }
}

void sim_cluster_plan_kills(SimCluster *cluster, uint32_t task)
{
    const SimScenario *const scenario = cluster->scenario;

    if (task != scenario->at_task || cluster->has_planned_kills)
        return;
    cluster->has_planned_kills = true;
    for (uint32_t i = 0; i < scenario->n_faults; i++)
        sim_after(scenario->at_task_ns[i], begin_fault, cluster, i);
}
