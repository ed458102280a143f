/* What `rubato check` says of cores and NUMA nodes: see launcher_binding.h. */
#include "engine/launch/launcher_binding.h"

#include "engine/binding/core_users.h"
#include "engine/launch/launcher_findings.h"

/* "2: 0 with 8 cores and 31.2 GiB, 1 with …". (transfer full) */
static char *describe_numa(const CoreTopology *topology)
{
    GString *const text = g_string_new(NULL);

    g_string_append_printf(text, "%u", topology->n_numa_nodes);
    for (uint32_t i = 0; i < topology->n_numa_nodes; i++) {
        const NumaNode *const node = &topology->numa_nodes[i];

        g_string_append_printf(text, "%s %u with %u core%s and %.1f GiB", i == 0 ? ":" : ",",
                               node->number, node->n_cores, node->n_cores == 1 ? "" : "s",
                               (double)node->n_bytes / (1 << 30));
    }
    return g_string_free(text, FALSE);
}

/* The number of the node's first server in the run. */
static uint32_t first_server(const CoreNode *node)
{
    uint32_t first = 0;

    for (uint32_t i = 0; node->cluster != NULL && i < node->number; i++)
        first += node->cluster->nodes[i].servers;
    return first;
}

static void add_plan(GPtrArray *findings, const CoreTopology *topology, const BindingNeeds *needs)
{
    g_autoptr(CorePlan) plan = core_users_plan(topology, &needs->node);
    g_autofree char *text = core_plan_describe(plan, topology, first_server(&needs->node));
    char *const shortage = core_plan_shortage(plan);

    if (!needs->is_asked) {
        g_free(shortage);
        findings_add(findings, "bound",
                     g_strdup_printf("no threads; with --bind-cores they would be: %s", text));
        return;
    }
    char *const all = g_strdup_printf(
        "%s%s%s", text, needs->numa ? "; rows in the NUMA nodes of their servers" : "",
        needs->node.is_announced && !core_users_are_apart(topology, true)
            ? "; if no other node of the run is on this host"
            : "");
    if (shortage == NULL)
        findings_add(findings, "bound", all);
    else
        findings_add_fault(findings, "bound", all, RUBATO_FINDING_SHORT, shortage);
}

void binding_check(GPtrArray *findings, const BindingNeeds *needs)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(CoreTopology) topology = core_topology_read(&error);

    if (topology == NULL || topology->n_cores == 0) {
        findings_add_fault(findings, "bound", g_strdup("no threads, and none can be"),
                           needs->is_asked ? RUBATO_FINDING_FAILS : RUBATO_FINDING_FINE,
                           needs->is_asked
                               ? g_strdup(error != NULL ? error->message : "hwloc finds no core")
                               : NULL);
        return;
    }
    findings_add(findings, "NUMA nodes", describe_numa(topology));
    add_plan(findings, topology, needs);
}

bool binding_report(const Cluster *cluster, GString *report, GError **error)
{
    g_autoptr(CoreTopology) topology = core_topology_read(error);

    if (topology == NULL) {
        g_prefix_error(error, "%s: bind_cores: ", cluster->path);
        return false;
    }
    g_autofree char *numa = describe_numa(topology);
    g_autofree bool *is_here = core_users_hosts_here(cluster);
    g_string_append_printf(report, "\nNUMA nodes of this machine: %s\n", numa);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const CoreNode node = { .cluster = cluster, .number = i, .is_here = is_here };

        if (!is_here[i])
            continue;
        g_autoptr(CorePlan) plan = core_users_plan(topology, &node);
        g_autofree char *text = core_plan_describe(plan, topology, first_server(&node));
        g_autofree char *shortage = core_plan_shortage(plan);
        g_string_append_printf(report, "node %u: %s%s%s\n", cluster->nodes[i].id, text,
                               shortage != NULL ? "; " : "", shortage != NULL ? shortage : "");
    }
    return true;
}
