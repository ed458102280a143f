/* Binds the threads of a node to the cores of its plan, and the memory of its servers' rows to
 * their NUMA nodes.
 *
 * A thread is bound at first as the thread is that starts it. So the thread that makes the engine
 * is bound to all cores of the node while it starts the engine's threads, and then as it was
 * before. Threads that were there before, such as the one that answers probes, are not bound.
 *
 * Threads: thread_binding_new, _end and _free: the one that makes or frees the engine;
 * _bind_worker: each worker's own. */
#ifndef RUBATO_ENGINE_BINDING_THREAD_BINDING_H
#define RUBATO_ENGINE_BINDING_THREAD_BINDING_H

#include "engine/binding/core_users.h"
#include "models/storage/memory_home.h"

typedef struct ThreadBinding ThreadBinding;

typedef struct {
    CoreNode node;         /* its cluster is NULL in a single process */
    uint32_t first_server; /* the number of its first server in the run */
    bool numa;             /* memory is bound, too */
} ThreadBindingSetup;

/* Makes the plan, tries whether this process may do what it says, and binds the calling thread to
 * all cores of the node: threads that it starts before thread_binding_end may run there. If another
 * process has bound its threads to the same cores, the log says so. RUBATO_ERROR_INVALID: the
 * process may not, or this build cannot. (transfer full) */
ThreadBinding *thread_binding_new(const ThreadBindingSetup *setup, GError **error);
void thread_binding_free(ThreadBinding *binding);

/* The calling thread, the same one, runs where it ran before. NULL is allowed. */
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
