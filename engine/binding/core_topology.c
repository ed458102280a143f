/* What hwloc knows of this machine: see core_topology.h. No other file uses hwloc. */
#include "engine/binding/core_topology.h"

#include <rubato/error.h>

#ifndef RUBATO_HAS_HWLOC

CoreTopology *core_topology_read(GError **error)
{
    g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "Rubato was built without hwloc: install it (Debian's package "
                        "libhwloc-dev) and build Rubato again");
    return NULL;
}

void core_topology_free(CoreTopology *topology)
{
    g_assert(topology == NULL); /* there is none */
}

char *core_topology_processors(const CoreTopology *topology, const CoreList *cores)
{
    (void)topology;
    (void)cores;
    return g_strdup("");
}

bool core_topology_bind(const CoreTopology *topology, pthread_t thread, const CoreList *cores,
                        GError **error)
{
    (void)topology;
    (void)thread;
    (void)cores;
    (void)error;
    g_assert_not_reached();
}

bool core_topology_place(const CoreTopology *topology, uint32_t numa, void *memory, size_t n_bytes)
{
    (void)topology;
    (void)numa;
    (void)memory;
    (void)n_bytes;
    g_assert_not_reached();
}

#else

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>

static bool fail(const char *what, GError **error)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "hwloc cannot %s: %s", what,
                g_strerror(errno));
    return false;
}

/* Some virtual machines do not say which processors share a core. */
static hwloc_obj_type_t core_type(hwloc_topology_t hwloc)
{
    return hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

static uint32_t count_objects(hwloc_topology_t hwloc, hwloc_obj_type_t type)
{
    const int n = hwloc_get_nbobjs_by_type(hwloc, type);

    return n > 0 ? (uint32_t)n : 0;
}

/* What the calling thread may use: the cpuset of its cgroup, and its own. */
static bool keep_allowed(hwloc_topology_t hwloc, GError **error)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(hwloc));
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    bool ok = allowed != NULL && bound != NULL;

    if (ok && hwloc_topology_is_thissystem(hwloc)) {
        ok = hwloc_get_cpubind(hwloc, bound, HWLOC_CPUBIND_THREAD) == 0;
        if (ok)
            hwloc_bitmap_and(allowed, allowed, bound);
    }
    ok = ok && hwloc_topology_restrict(hwloc, allowed, 0) == 0;
    hwloc_bitmap_free(allowed);
    hwloc_bitmap_free(bound);
    return ok || fail("tell which processors this process may use", error);
}

/* The first of the NUMA nodes to which the core belongs: where there are several, as with memory of
 * high bandwidth, it is the usual one. */
static uint32_t numa_of(hwloc_topology_t hwloc, const hwloc_obj_t core)
{
    const hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(hwloc);

    if (core->nodeset == NULL)
        return CORE_NO_NUMA;
    for (int number = hwloc_bitmap_first(core->nodeset); number >= 0;
         number = hwloc_bitmap_next(core->nodeset, number))
        if (hwloc_bitmap_isset(allowed, (unsigned)number))
            return (uint32_t)number;
    return CORE_NO_NUMA;
}

static void note_numa(CoreTopology *topology, uint32_t number)
{
    uint32_t i = 0;

    if (number == CORE_NO_NUMA)
        return;
    while (i < topology->n_numa_nodes && topology->numa_nodes[i].number != number)
        i++;
    if (i == topology->n_numa_nodes) {
        const hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(topology->hwloc, number);

        topology->numa_nodes[topology->n_numa_nodes++] =
            (NumaNode){ .number = number,
                        .n_bytes = object == NULL ? 0 : object->attr->numanode.local_memory };
    }
    topology->numa_nodes[i].n_cores++;
}

static void take_cores(CoreTopology *topology)
{
    hwloc_topology_t const hwloc = topology->hwloc;
    const hwloc_obj_type_t type = core_type(hwloc);

    topology->n_cores = count_objects(hwloc, type);
    topology->cores = g_new0(Core, topology->n_cores);
    topology->numa_nodes = g_new0(NumaNode, count_objects(hwloc, HWLOC_OBJ_NUMANODE));
    for (uint32_t i = 0; i < topology->n_cores; i++) {
        topology->cores[i].numa = numa_of(hwloc, hwloc_get_obj_by_type(hwloc, type, i));
        note_numa(topology, topology->cores[i].numa);
    }
}

static bool read_hwloc(CoreTopology *topology, GError **error)
{
    hwloc_topology_t hwloc = NULL;

    if (hwloc_topology_init(&hwloc) != 0)
        return fail("begin", error);
    topology->hwloc = hwloc;
    if (hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
        hwloc_topology_load(hwloc) != 0)
        return fail("read the topology of this machine", error);
    topology->n_machine_cores = count_objects(hwloc, core_type(hwloc));
    topology->is_made_up = !hwloc_topology_is_thissystem(hwloc);
    return keep_allowed(hwloc, error);
}

CoreTopology *core_topology_read(GError **error)
{
    g_autoptr(CoreTopology) topology = g_new0(CoreTopology, 1);

    if (!read_hwloc(topology, error))
        return NULL;
    take_cores(topology);
    return g_steal_pointer(&topology);
}

void core_topology_free(CoreTopology *topology)
{
    if (topology == NULL)
        return;
    if (topology->hwloc != NULL)
        hwloc_topology_destroy(topology->hwloc);
    g_free(topology->cores);
    g_free(topology->numa_nodes);
    g_free(topology);
}

/* (transfer full) */
static hwloc_bitmap_t processors_of(const CoreTopology *topology, const CoreList *cores)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    if (set == NULL)
        g_error("no memory for a list of processors");
    for (uint32_t i = 0; i < cores->n; i++)
        hwloc_bitmap_or(
            set, set,
            hwloc_get_obj_by_type(topology->hwloc, core_type(topology->hwloc), cores->cores[i])
                ->cpuset);
    return set;
}

char *core_topology_processors(const CoreTopology *topology, const CoreList *cores)
{
    hwloc_bitmap_t set = processors_of(topology, cores);
    char *text = NULL, *copy;

    if (hwloc_bitmap_list_asprintf(&text, set) < 0)
        g_error("no memory for a list of processors");
    copy = g_strdup(text);
    free(text);
    hwloc_bitmap_free(set);
    return copy;
}

bool core_topology_bind(const CoreTopology *topology, pthread_t thread, const CoreList *cores,
                        GError **error)
{
    hwloc_bitmap_t set = processors_of(topology, cores);
    const bool ok = hwloc_set_thread_cpubind(topology->hwloc, thread, set, 0) == 0;
    const int failure = errno;

    hwloc_bitmap_free(set);
    if (ok)
        return true;
    g_autofree char *processors = core_topology_processors(topology, cores);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "a thread cannot be bound to processor%s %s: %s",
                strpbrk(processors, ",-") != NULL ? "s" : "", processors, g_strerror(failure));
    return false;
}

bool core_topology_place(const CoreTopology *topology, uint32_t numa, void *memory, size_t n_bytes)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    if (set == NULL)
        return false;
    hwloc_bitmap_only(set, numa);
    const bool ok = hwloc_set_area_membind(topology->hwloc, memory, n_bytes, set,
                                           HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0;
    const int failure = errno;
    hwloc_bitmap_free(set);
    errno = failure;
    return ok;
}

#endif
