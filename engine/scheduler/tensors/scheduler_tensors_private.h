/* What the coordinator of a task's collectives knows, for its files.
 *
 * Threads: as scheduler.h. */
#ifndef RUBATO_ENGINE_SCHEDULER_TENSORS_SCHEDULER_TENSORS_PRIVATE_H
#define RUBATO_ENGINE_SCHEDULER_TENSORS_SCHEDULER_TENSORS_PRIVATE_H

#include "engine/collectives/negotiation/tensor_sets.h"
#include "engine/collectives/negotiation/tensor_text.h"
#include "engine/scheduler/scheduler_state.h"

struct TensorCoordinator {
    uint32_t n_nodes;
    uint32_t *first_ranks; /* by node number; and behind the last one */
    uint32_t n_workers;
    TensorSets *sets;   /* NULL: no worker has asked yet */
    GHashTable *groups; /* of OpenGroup, by rank: those of which asks are still to come */
    uint64_t n_verdicts;
    uint32_t *heard;   /* by node number: losses that it has heard of */
    uint32_t lost;     /* the node that was lost last */
    bool *is_away;     /* by node number: its workers are to be replaced, and others are not back */
    GError *why;       /* of the last loss; NULL: there was none */
    bool has_cutovers; /* that are to be told */
    TensorCutovers cutovers;
    uint32_t n_cuts;         /* how often they were told */
    int64_t change_since_ms; /* of the change of the sets that is not decided */
    int64_t joined_ms;       /* when a worker joined last */
    GPtrArray *waiting;      /* which nodes wait, of each Wait, which points to it */
};

/* What the matcher knows a request by, and the sets one that comes again. */
typedef struct {
    int64_t since_ms;
} Asked;

/* A node that is away has told these lines: they say that it is back, and nothing else. False: they
 * do not. */
bool tensors_come_back(Scheduler *scheduler, const SchedulerTask *task, uint32_t node,
                       const char *lines);

#endif
