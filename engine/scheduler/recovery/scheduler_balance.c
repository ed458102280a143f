/* When nodes that have joined get their share of the parts: once the copies for it are there, and
 * nothing else is under way (scheduler_recovery.c).
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/recovery/scheduler_admission.h"
#include "engine/scheduler/recovery/scheduler_recovery.h"
#include "engine/scheduler/recovery/scheduler_recovery_private.h"

/* The next node that is to be planned for. False: there is none. */
static bool take_unplanned(Scheduler *scheduler, uint32_t *node)
{
    Recovery *const recovery = scheduler->recovery;

    for (*node = 0; *node < scheduler->config.n_nodes; ++*node)
        if (recovery->unplanned[*node]) {
            recovery->unplanned[*node] = false;
            if (!scheduler->nodes[*node].lost)
                return true;
        }
    return false;
}

void recovery_balance(Scheduler *scheduler)
{
    Recovery *const recovery = scheduler->recovery;
    uint32_t node;

    if (recovery_awaits_copies(scheduler) || admission_awaits_own(scheduler))
        return;
    if (scheduler->nodes[recovery->joined].lost) /* and with it the copies */
        g_hash_table_remove_all(recovery->moves);
    if (g_hash_table_size(recovery->moves) > 0) {
        recovery_drain(scheduler, CONTROL_CAUSE_BALANCE, recovery->joined,
                       recovery->joined == scheduler->config.self
                           ? "goes on as the scheduler, and others have their share of the parts"
                           : "has its share of the parts");
    } else if (take_unplanned(scheduler, &node)) {
        recovery->n_plans = 0;
        recovery_drain(scheduler, CONTROL_CAUSE_BALANCE, node, "is to have its share of the parts");
    }
}
