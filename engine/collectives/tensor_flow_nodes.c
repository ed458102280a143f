/* Which nodes take part in an operation. See tensor_exchange_private.h. */
#include "engine/collectives/tensor_exchange_private.h"

void flow_nodes_find(const TensorExchange *exchange, const TensorSet *set, const bool *asked,
                     FlowNodes *found)
{
    TensorFlowPlan *const plan = &found->plan;
    uint32_t rank = 0;

    *found = (FlowNodes){ .nodes = g_new(uint32_t, exchange->place.n_nodes),
                          .first_ranks = g_new(uint32_t, exchange->place.n_nodes),
                          .n_ranks_of = g_new(uint32_t, exchange->place.n_nodes) };
    for (uint32_t node = 0; node < exchange->place.n_nodes; node++) {
        const uint32_t n = set->members_of[node];
        uint32_t n_asking = 0;

        for (uint32_t i = 0; i < n; i++)
            n_asking += asked == NULL || asked[rank + i];
        plan->n_asking += n_asking;
        if (n_asking > 0) {
            if (node == exchange->place.self)
                plan->self = plan->n_nodes;
            found->nodes[plan->n_nodes] = node;
            found->first_ranks[plan->n_nodes] = rank;
            found->n_ranks_of[plan->n_nodes++] = n;
        }
        rank += n;
    }
    plan->n_ranks = rank;
    plan->nodes = found->nodes;
    plan->first_ranks = found->first_ranks;
    plan->n_ranks_of = found->n_ranks_of;
}

void flow_nodes_clear(FlowNodes *found)
{
    g_free(found->nodes);
    g_free(found->first_ranks);
    g_free(found->n_ranks_of);
}
