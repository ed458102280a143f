/* Binds the threads of a node to the cores of its plan, and the memory of its servers' rows to
 * their NUMA nodes.
 *
 * Threads that the engine starts for itself are bound as the thread is that makes the engine: so
 * this thread is bound to all cores of the node meanwhile, and then as it was before.
 *
 * Threads: thread_binding_new, _begin, _end and _free: the one that makes or frees the engine;
 * _bind_worker: each worker's own. */
#ifndef RUBATO_ENGINE_BINDING_THREAD_BINDING_H
#define RUBATO_ENGINE_BINDING_THREAD_BINDING_H

#include "engine/binding/core_plan.h"
#include "engine/cluster/cluster_file.h"
#include "models/storage/memory_home.h"

typedef struct ThreadBinding ThreadBinding;

typedef struct {
    const Cluster *cluster; /* NULL: a single process, */
    CoreUser single;        /* with these numbers */
    uint32_t self;          /* this node's number */
    uint32_t first_server;  /* the number of its first server in the run */
    bool is_announced;      /* the run has no cluster file */
    bool numa;              /* memory is bound, too */
} ThreadBindingSetup;

/* Makes the plan, and tries whether this process may do what it says. RUBATO_ERROR_INVALID: it may
 * not, or this build cannot. (transfer full) */
ThreadBinding *thread_binding_new(const ThreadBindingSetup *setup, GError **error);
void thread_binding_free(ThreadBinding *binding);

/* Threads that the calling thread starts between these calls may run on the cores of the node.
 * NULL is allowed. */
void thread_binding_begin(ThreadBinding *binding);
void thread_binding_end(ThreadBinding *binding);

/* Server number i of this node. RUBATO_ERROR_INVALID. */
bool thread_binding_bind_server(const ThreadBinding *binding, uint32_t i, pthread_t thread,
                                GError **error);

/* Where its rows lie; NULL: anywhere. The binding's. */
const MemoryHome *thread_binding_home(const ThreadBinding *binding, uint32_t i);

/* The calling thread is the worker of this rank on the node. Workers beyond those of the plan run
 * on all cores of the node. NULL is allowed. */
void thread_binding_bind_worker(const ThreadBinding *binding, uint32_t local_rank);

/* What is bound where, on a line; the binding's. */
const char *thread_binding_text(const ThreadBinding *binding);

#endif
