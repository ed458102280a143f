/* The cores of this machine that this process may use, and the NUMA nodes in which they are: what
 * hwloc knows, in a form that plans are made of.
 *
 * A core is named by the numbers of its processors, which are its hardware threads, as the
 * system, taskset and top have them. What the process's cpuset does not allow is not among the
 * cores.
 *
 * Threads: any; immutable once read. */
#ifndef RUBATO_ENGINE_BINDING_CORE_TOPOLOGY_H
#define RUBATO_ENGINE_BINDING_CORE_TOPOLOGY_H

#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The core is in no NUMA node whose memory the process may use. */
#define CORE_NO_NUMA UINT32_MAX

/* Cores, by their positions in the topology, ascending. */
typedef struct {
    uint32_t *cores;
    uint32_t n;
} CoreList;

typedef struct {
    uint32_t numa; /* the system's number of its NUMA node, or CORE_NO_NUMA */
} Core;

typedef struct {
    uint32_t number; /* the system's */
    uint32_t n_cores;
    uint64_t n_bytes; /* of memory; 0: not known */
} NumaNode;

typedef struct {
    Core *cores; /* neighbours share caches and NUMA nodes */
    uint32_t n_cores;
    uint32_t n_machine_cores; /* with those that the process may not use */
    NumaNode *numa_nodes;     /* those with cores of these */
    uint32_t n_numa_nodes;
    bool is_made_up; /* by HWLOC_SYNTHETIC or HWLOC_XMLFILE: nothing can be bound by it */
    void *hwloc;     /* hwloc's own */
} CoreTopology;

/* Reads it, as the calling thread may use it. NULL with RUBATO_ERROR_INVALID in a build without
 * hwloc, or if hwloc fails. (transfer full) */
CoreTopology *core_topology_read(GError **error);
void core_topology_free(CoreTopology *topology);

/* The processors of some cores: "0-3,8". (transfer full) */
char *core_topology_processors(const CoreTopology *topology, const CoreList *cores);

/* Lets a thread run on these cores alone. RUBATO_ERROR_INVALID: the system does not allow it. */
bool core_topology_bind(const CoreTopology *topology, pthread_t thread, const CoreList *cores,
                        GError **error);

/* Has memory of whole pages, to which nothing has been written yet, lie in a NUMA node as long as
 * that has some left. False with errno. */
bool core_topology_place(const CoreTopology *topology, uint32_t numa, void *memory, size_t n_bytes);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(CoreTopology, core_topology_free)

#endif
