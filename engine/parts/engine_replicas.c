/* What changes for an engine that has replicas (docs/replication.md). Which tables may have
 * some: catalogue.c. Where they lie: engine_placement.c.
 *
 * Threads: that of the engine's calls. */
#include "engine/engine_private.h"

/* While the run goes on without a lost node, there is a tick so often. */
#define LONGEST_TICK_MS 20

bool engine_check_replicas(const RubatoEngine *engine, const RubatoTableSpec *spec, GError **error)
{
    const uint32_t n_nodes =
        engine->cluster == NULL ? 1 : cluster_first_server_nodes(engine->cluster);

    return table_check_replicas(spec, n_nodes, error);
}

/* A primary passes on to a replica what any number of nodes send, and sends it an image of any
 * size. So there is no bound beyond which a node must be wrong. And a loss is found at a tick. */
void engine_prepare_replicas(RubatoEngine *engine)
{
    atomic_store_explicit(&engine->office.goes_on, true, memory_order_relaxed);
    if (engine->network != NULL)
        network_take_any(engine->network, LONGEST_TICK_MS);
}
