/* Which cores the threads of a node run on: see core_plan.h.
 *
 * Things are always shared out in proportion: thing i of n gets what begins at i × cores / n,
 * rounded down. So neighbours differ by one at most, and with as many cores as things or more, no
 * two get the same. */
#include "engine/binding/core_plan.h"

#include <string.h>

#define MOST_NAMED 16u /* of the servers and of the groups of workers, in a text */

/* ---- nodes ---- */

static uint64_t weight_of(const CoreUser *user)
{
    return MAX(1, (uint64_t)user->servers + user->workers);
}

/* The sum of the first n. */
static uint64_t sum_weights(const CoreUser *users, uint32_t n)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += weight_of(&users[i]);
    return sum;
}

/* Where the cores of user i begin; there are as many as users, or more. If there are enough for all
 * threads, they are in proportion to these. Otherwise each user has one, and the rest is in
 * proportion to the other threads, of which there are some. */
static uint32_t cut(const CoreUser *users, uint32_t n, uint32_t i, uint32_t n_cores)
{
    const uint64_t all = sum_weights(users, n), before = sum_weights(users, i);

    if (n_cores >= all)
        return (uint32_t)(n_cores * before / all);
    return i + (uint32_t)((n_cores - n) * (before - i) / (all - n));
}

static CoreList list_range(uint32_t first, uint32_t n)
{
    const CoreList list = { g_new(uint32_t, n), n };

    for (uint32_t i = 0; i < n; i++)
        list.cores[i] = first + i;
    return list;
}

static void share_out(CorePlan *plan, const CoreTopology *topology, const CoreUser *users,
                      uint32_t n, uint32_t self)
{
    plan->nodes_share = topology->n_cores < n;
    if (plan->nodes_share) {
        plan->all = list_range(self % topology->n_cores, 1);
        return;
    }
    const uint32_t first = cut(users, n, self, topology->n_cores);
    const uint32_t end = cut(users, n, self + 1, topology->n_cores);
    plan->all = list_range(first, end - first);
}

/* ---- servers, workers ---- */

static void put_servers(CorePlan *plan)
{
    const uint32_t n_cores = plan->all.n;

    plan->servers_share = n_cores < plan->n_servers;
    plan->servers = g_new(CoreList, plan->n_servers);
    for (uint32_t i = 0; i < plan->n_servers; i++) {
        const uint32_t at =
            plan->servers_share ? i % n_cores : (uint32_t)((uint64_t)i * n_cores / plan->n_servers);

        plan->servers[i] = list_range(plan->all.cores[at], 1);
    }
}

static bool has_server(const CorePlan *plan, uint32_t core)
{
    bool has = false;

    for (uint32_t i = 0; i < plan->n_servers && !has; i++)
        has = plan->servers[i].cores[0] == core;
    return has;
}

/* Those on which workers may run. */
static CoreList list_of_workers(CorePlan *plan)
{
    CoreList list = { g_new(uint32_t, plan->all.n), 0 };

    plan->workers_share = plan->all.n < plan->n_servers + plan->n_workers;
    for (uint32_t i = 0; i < plan->all.n; i++)
        if (plan->workers_share || !has_server(plan, plan->all.cores[i]))
            list.cores[list.n++] = plan->all.cores[i];
    return list;
}

/* Those of the list that are in this NUMA node. */
static CoreList list_of_numa(const CoreTopology *topology, const CoreList *list, uint32_t numa)
{
    CoreList found = { g_new(uint32_t, list->n), 0 };

    for (uint32_t i = 0; i < list->n; i++)
        if (topology->cores[list->cores[i]].numa == numa)
            found.cores[found.n++] = list->cores[i];
    return found;
}

static void put_workers(CorePlan *plan, const CoreTopology *topology)
{
    CoreList list = list_of_workers(plan);

    plan->workers = g_new(CoreList, plan->n_workers);
    for (uint32_t i = 0; i < plan->n_workers; i++) {
        const uint32_t at = (uint32_t)((uint64_t)i * list.n / plan->n_workers);

        plan->workers[i] = list_of_numa(topology, &list, topology->cores[list.cores[at]].numa);
    }
    g_free(list.cores);
}

/* ---- a plan ---- */

CorePlan *core_plan_new(const CoreTopology *topology, const CoreUser *users, uint32_t n,
                        uint32_t self)
{
    CorePlan *const plan = g_new0(CorePlan, 1);

    g_assert(topology->n_cores > 0 && self < n);
    plan->n_servers = users[self].servers;
    plan->n_workers = users[self].workers;
    plan->n_users = n;
    share_out(plan, topology, users, n, self);
    put_servers(plan);
    put_workers(plan, topology);
    return plan;
}

void core_plan_free(CorePlan *plan)
{
    if (plan == NULL)
        return;
    for (uint32_t i = 0; i < plan->n_servers; i++)
        g_free(plan->servers[i].cores);
    for (uint32_t i = 0; i < plan->n_workers; i++)
        g_free(plan->workers[i].cores);
    g_free(plan->servers);
    g_free(plan->workers);
    g_free(plan->all.cores);
    g_free(plan);
}

/* ---- texts ---- */

static void append_cores(GString *text, const CoreTopology *topology, const CoreList *list)
{
    g_autofree char *processors = core_topology_processors(topology, list);

    g_string_append_printf(text, " on processor%s %s", strpbrk(processors, ",-") != NULL ? "s" : "",
                           processors);
}

/* The NUMA node of a core, if there are several. */
static void append_numa(GString *text, const CoreTopology *topology, uint32_t core)
{
    if (topology->n_numa_nodes > 1 && topology->cores[core].numa != CORE_NO_NUMA)
        g_string_append_printf(text, " (NUMA node %u)", topology->cores[core].numa);
}

static void append_servers(GString *text, const CorePlan *plan, const CoreTopology *topology,
                           uint32_t first_server)
{
    for (uint32_t i = 0; i < MIN(plan->n_servers, MOST_NAMED); i++) {
        g_string_append_printf(text, "%sserver %u", i > 0 ? ", " : "", first_server + i);
        append_cores(text, topology, &plan->servers[i]);
        append_numa(text, topology, plan->servers[i].cores[0]);
    }
    if (plan->n_servers > MOST_NAMED)
        g_string_append_printf(text, ", and %u more", plan->n_servers - MOST_NAMED);
}

static bool are_same(const CoreList *a, const CoreList *b)
{
    return a->n == b->n && memcmp(a->cores, b->cores, a->n * sizeof a->cores[0]) == 0;
}

/* Workers that may run on the same cores are named together. */
static void append_workers(GString *text, const CorePlan *plan, const CoreTopology *topology)
{
    uint32_t n_named = 0;

    for (uint32_t i = 0, end; i < plan->n_workers && n_named < MOST_NAMED; i = end, n_named++) {
        for (end = i + 1; end < plan->n_workers; end++)
            if (!are_same(&plan->workers[i], &plan->workers[end]))
                break;
        g_string_append(text, n_named > 0 ? ", " : plan->n_servers > 0 ? "; " : "");
        if (end == i + 1)
            g_string_append_printf(text, "worker %u", i);
        else
            g_string_append_printf(text, "workers %u-%u", i, end - 1);
        append_cores(text, topology, &plan->workers[i]);
        append_numa(text, topology, plan->workers[i].cores[0]);
        if (n_named + 1 == MOST_NAMED && end < plan->n_workers)
            g_string_append_printf(text, ", and %u more", plan->n_workers - end);
    }
}

char *core_plan_describe(const CorePlan *plan, const CoreTopology *topology, uint32_t first_server)
{
    GString *const text = g_string_new(NULL);

    append_servers(text, plan, topology, first_server);
    append_workers(text, plan, topology);
    g_string_append(text, text->len > 0 ? "; other threads" : "all threads");
    append_cores(text, topology, &plan->all);
    return g_string_free(text, FALSE);
}

char *core_plan_shortage(const CorePlan *plan)
{
    const char *const s = plan->all.n == 1 ? "" : "s";

    if (plan->nodes_share)
        return g_strdup_printf("there are fewer cores than the %u nodes of this host, so nodes "
                               "share them",
                               plan->n_users);
    if (plan->servers_share)
        return g_strdup_printf("%u servers share %u core%s", plan->n_servers, plan->all.n, s);
    if (plan->workers_share)
        return g_strdup_printf("%u server%s and %u worker%s share %u core%s", plan->n_servers,
                               plan->n_servers == 1 ? "" : "s", plan->n_workers,
                               plan->n_workers == 1 ? "" : "s", plan->all.n, s);
    return NULL;
}
