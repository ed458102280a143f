/* What a task's run on this node tells `rubato status`.
 *
 * Its workers go on meanwhile. A worker's clock is one number, and its place in the data one copy:
 * each is as it was at some moment of the call. The lock of the run is held while its readers are
 * looked at, that of one reader while its workers are. None of them is held while anybody waits.
 *
 * Threads: any that holds the engine's lock, so the run cannot be freed. */
#include "engine/task/status_parts.h"
#include "engine/task/task_run_private.h"

static void add_worker(const RubatoTaskRun *run, uint32_t local_rank, GVariantBuilder *list)
{
    const uint32_t rank = run->first_rank + local_rank;
    GVariantBuilder part, clocks;

    g_variant_builder_init(&part, STATUS_PART);
    g_variant_builder_init(&clocks, STATUS_PART);
    status_add_count(&part, "worker", rank);
    status_add_flag(&part, "ended",
                    /* relaxed: it is only shown */
                    atomic_load_explicit(&run->returned[local_rank], memory_order_relaxed));
    for (size_t i = 0; i < run->n_tables; i++) /* the clock of one that has ended is none */
        status_add_count(&clocks, run->tables[i]->spec->name,
                         clocks_of_worker(&run->clocks[i], rank));
    status_add_built(&part, "clocks", &clocks);
    g_variant_builder_add_value(list, g_variant_builder_end(&part));
}

GVariant *task_run_status(RubatoTaskRun *run)
{
    GVariantBuilder part, workers, readers;

    g_variant_builder_init(&part, STATUS_PART);
    g_variant_builder_init(&workers, STATUS_LIST);
    g_variant_builder_init(&readers, STATUS_LIST);
    status_add_count(&part, "task", run->epoch);
    status_add_text(&part, "name", run->name);
    status_add_flag(&part, "cancelled", task_run_is_cancelled(run));
    for (uint32_t i = 0; i < run->n_local; i++)
        add_worker(run, i, &workers);
    pthread_mutex_lock(&run->lock);
    for (guint i = 0; i < run->node_readers->len; i++)
        if (run->node_readers->pdata[i] != NULL)
            g_variant_builder_add_value(&readers, node_reader_status(run->node_readers->pdata[i]));
    pthread_mutex_unlock(&run->lock);
    status_add_built(&part, "workers", &workers);
    status_add_built(&part, "readers", &readers);
    return g_variant_builder_end(&part);
}
