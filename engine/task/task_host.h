/* What a task needs from the node on which it runs.
 *
 * Threads: any; immutable once made. */
#ifndef RUBATO_ENGINE_TASK_TASK_HOST_H
#define RUBATO_ENGINE_TASK_TASK_HOST_H

#include "engine/binding/thread_binding.h"
#include "engine/collectives/tensor_router.h"
#include "engine/control/control.h"
#include "engine/server/server.h"
#include "engine/services/services.h"
#include "io/history/history.h"
#include "io/timeline/timeline.h"

typedef struct {
    PostOffice *office; /* the nodes and servers, and the way to them */
    Server *servers;    /* of this node */
    uint32_t n_servers;
    Actor *helper;
    Services *services;
    TensorRouter *tensors;
    const uint32_t *workers_of; /* by node number: workers of a task that names no number */
    uint32_t stall_ms;
    History *history;             /* NULL: none is kept */
    Timeline *timeline;           /* NULL: there is none */
    const ThreadBinding *binding; /* of the workers' threads; NULL: they are not bound */

    /* Sends a control message to the scheduler, wherever it runs. Any thread that holds no lock of
     * the task, because on the scheduler's node the answer may come within the call. */
    void (*tell_scheduler)(void *user, const Control *control);
    void *user;
} TaskHost;

/* The id of the node. */
static inline uint32_t task_host_id(const TaskHost *host)
{
    return host->office->node_ids[host->office->self];
}

#endif
