/* Processes that take the places of killed ones in a simulated cluster. Each runs the program of
 * its node from the beginning, and catches up with the others.
 *
 * Threads: none; what is planned is called outside all threads. */
#include "tests/support/sim/sim_cluster_private.h"

#include <string.h>

bool sim_newcomer_came_too_early(const SimNode *node)
{
    return sim_cluster_is_newcomer(node) && !node->was_killed &&
           strstr(node->error->message, " and not lost, so ") != NULL;
}

/* At some time of its life, or while it joins. */
static void end_one(void *data, uint64_t number)
{
    SimCluster *const cluster = data;
    const SimNode *const node = &cluster->nodes[number];

    if (node->has_ended || cluster->n_living == 1)
        return;
    if (node->compares) /* see sim_replicas.c */
        sim_after(SIM_MS, end_one, cluster, number);
    else
        sim_cluster_kill(cluster, (uint32_t)number);
}

/* Nobody is there to be joined once all others have ended. */
static void start_one(void *data, uint64_t number)
{
    SimCluster *const cluster = data;
    const SimNewcomer *const newcomer =
        &cluster->scenario->newcomers[number - cluster->scenario->n_nodes];

    if (cluster->n_living == 0)
        return;
    SIM_TRACE("process %" G_GUINT64_FORMAT " is started, in the place of node %u", number,
              newcomer->node);
    cluster->progress_ns = sim_now_ns();
    sim_cluster_start(cluster, (uint32_t)number);
    if (newcomer->killed_after_ms > 0)
        sim_after(newcomer->killed_after_ms * SIM_MS, end_one, cluster, number);
}

void sim_newcomers_plan(SimCluster *cluster, uint32_t place)
{
    const SimScenario *const scenario = cluster->scenario;

    for (uint32_t i = 0; i < scenario->n_newcomers; i++) {
        const SimNewcomer *const newcomer = &scenario->newcomers[i];
        SimNode *const node = &cluster->nodes[scenario->n_nodes + i];

        if (node->place != place || node->is_planned)
            continue;
        node->is_planned = true;
        sim_after(newcomer->after_ms * SIM_MS, start_one, cluster, node->number);
        return;
    }
}
