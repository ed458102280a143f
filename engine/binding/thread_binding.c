/* Binds threads and memory by a plan: see thread_binding.h. */
#define _GNU_SOURCE
#include "engine/binding/thread_binding.h"

#include <errno.h>
#include <rubato/error.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/binding/core_claim.h"

#define MOST_PROCESSORS 8192

typedef struct {
    MemoryHome base; /* first: what takes memory finds the rest */
    ThreadBinding *binding;
    uint32_t numa;
} ServerHome;

struct ThreadBinding {
    CoreTopology *topology;
    CorePlan *plan;
    ServerHome *homes; /* by server; NULL: memory is not bound */
    CoreClaim *claim;  /* NULL: nobody can tell who uses the same cores */
    char *text;
    _Atomic bool has_failed; /* the log has a line about it */

    /* the thread that makes the engine only */
    cpu_set_t *before; /* what it was bound to */
    bool has_begun;
};

/* ---- memory ---- */

/* The memory stays where it is: the run is right, but slower. */
static void take_memory(const MemoryHome *home, void *memory, size_t n_bytes)
{
    const ServerHome *const own = (const ServerHome *)home;

    if (core_topology_place(own->binding->topology, own->numa, memory, n_bytes))
        return;
    const int failure = errno;
    /* relaxed: nothing follows from it but one line */
    if (!atomic_exchange_explicit(&own->binding->has_failed, true, memory_order_relaxed))
        g_warning("memory of a table cannot be bound to NUMA node %u: %s", own->numa,
                  g_strerror(failure));
}

/* Containers often forbid it. */
static bool try_memory(const CoreTopology *topology, uint32_t numa, GError **error)
{
    const size_t n_bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *const page =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool ok = page != MAP_FAILED && core_topology_place(topology, numa, page, n_bytes);
    const int failure = errno;

    if (page != MAP_FAILED)
        munmap(page, n_bytes);
    if (!ok)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "numa: memory cannot be bound to NUMA node %u: %s. A container needs the right "
                    "to call mbind (of Docker: --cap-add SYS_NICE); or leave numa out",
                    numa, g_strerror(failure));
    return ok;
}

static bool make_homes(ThreadBinding *binding, GError **error)
{
    const CorePlan *const plan = binding->plan;

    binding->homes = g_new0(ServerHome, plan->n_servers + 1);
    for (uint32_t i = 0; i < plan->n_servers; i++) {
        const uint32_t numa = binding->topology->cores[plan->servers[i].cores[0]].numa;

        if (numa == CORE_NO_NUMA) {
            g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                                "numa: there are cores here without a NUMA node whose memory this "
                                "process may use; leave numa out");
            return false;
        }
        if (!try_memory(binding->topology, numa, error))
            return false;
        binding->homes[i] = (ServerHome){ { take_memory }, binding, numa };
    }
    return true;
}

const MemoryHome *thread_binding_home(const ThreadBinding *binding, uint32_t i)
{
    return binding->homes != NULL ? &binding->homes[i].base : NULL;
}

/* ---- threads ---- */

static bool get_affinity(ThreadBinding *binding, GError **error)
{
    binding->before = CPU_ALLOC(MOST_PROCESSORS);
    if (binding->before != NULL &&
        sched_getaffinity(0, CPU_ALLOC_SIZE(MOST_PROCESSORS), binding->before) == 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "bind_cores: the system does not tell which processors there are: %s",
                g_strerror(errno));
    return false;
}

static void restore_affinity(const ThreadBinding *binding)
{
    if (sched_setaffinity(0, CPU_ALLOC_SIZE(MOST_PROCESSORS), binding->before) != 0)
        g_warning("a thread stays bound to the cores of its node: %s", g_strerror(errno));
}

static bool bind_caller(ThreadBinding *binding, GError **error)
{
    binding->has_begun =
        core_topology_bind(binding->topology, pthread_self(), &binding->plan->all, error);
    if (!binding->has_begun)
        g_prefix_error(error, "bind_cores: ");
    return binding->has_begun;
}

void thread_binding_end(ThreadBinding *binding)
{
    if (binding == NULL || !binding->has_begun)
        return;
    binding->has_begun = false;
    restore_affinity(binding);
}

bool thread_binding_bind_server(const ThreadBinding *binding, uint32_t i, pthread_t thread,
                                GError **error)
{
    return core_topology_bind(binding->topology, thread, &binding->plan->servers[i], error);
}

void thread_binding_bind_worker(const ThreadBinding *binding, uint32_t local_rank)
{
    g_autoptr(GError) error = NULL;

    if (binding == NULL)
        return;
    const CorePlan *const plan = binding->plan;
    const CoreList *const cores =
        local_rank < plan->n_workers ? &plan->workers[local_rank] : &plan->all;
    if (!core_topology_bind(binding->topology, pthread_self(), cores, &error))
        g_warning("worker %u of this node: %s", local_rank, error->message);
}

/* ---- all ---- */

static bool check(const CoreTopology *topology, GError **error)
{
    const char *const wrong =
        topology->is_made_up
            ? "hwloc has a topology that is made up (HWLOC_SYNTHETIC, HWLOC_XMLFILE), by which "
              "nothing can be bound"
        : topology->n_cores == 0 ? "hwloc finds no core that this process may use"
                                 : NULL;

    if (wrong != NULL)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "bind_cores: %s", wrong);
    return wrong == NULL;
}

/* Nodes of a run that are too many for the cores share them by their plans. */
static void claim_cores(ThreadBinding *binding)
{
    g_autofree char *path = core_claim_path();
    g_autofree char *processors = core_topology_processors(binding->topology, &binding->plan->all);
    g_autofree char *taken = NULL;

    if (binding->plan->nodes_share)
        return;
    binding->claim = core_claim_new(path, processors, &taken);
    if (taken != NULL)
        g_warning("bind_cores: another process has bound its threads to processors of this node, "
                  "too: %s; give each of them cores of its own, or leave bind_cores out",
                  taken);
}

ThreadBinding *thread_binding_new(const ThreadBindingSetup *setup, GError **error)
{
    ThreadBinding *binding = g_new0(ThreadBinding, 1);

    binding->topology = core_topology_read(error);
    if (binding->topology == NULL)
        g_prefix_error(error, "bind_cores: ");
    if (binding->topology == NULL || !check(binding->topology, error) ||
        !get_affinity(binding, error)) {
        thread_binding_free(binding);
        return NULL;
    }
    binding->plan = core_users_plan(binding->topology, &setup->node);
    if (!bind_caller(binding, error) || (setup->numa && !make_homes(binding, error))) {
        thread_binding_end(binding);
        thread_binding_free(binding);
        return NULL;
    }
    claim_cores(binding);
    g_autofree char *shortage = core_plan_shortage(binding->plan);
    g_autofree char *text =
        core_plan_describe(binding->plan, binding->topology, setup->first_server);
    binding->text = g_strdup_printf("%s%s%s%s", text,
                                    setup->numa ? "; rows in the NUMA nodes of their servers" : "",
                                    shortage != NULL ? "; " : "", shortage != NULL ? shortage : "");
    if (shortage != NULL)
        g_message("bind_cores: %s", shortage);
    return binding;
}

void thread_binding_free(ThreadBinding *binding)
{
    if (binding == NULL)
        return;
    core_claim_free(binding->claim);
    core_plan_free(binding->plan);
    core_topology_free(binding->topology);
    CPU_FREE(binding->before);
    g_free(binding->homes);
    g_free(binding->text);
    g_free(binding);
}

const char *thread_binding_text(const ThreadBinding *binding)
{
    return binding->text;
}
