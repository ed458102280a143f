/* `rubato place`: where the tables of a file would lie on the servers of a cluster, and why. Each
 * table is laid as the engine lays it when it is created, in the order of the file.
 *
 * Thread: the caller's. */
#include <rubato/error.h>
#include <rubato/launcher.h>
#include <rubato/plugin.h>

#include "engine/catalogue.h"
#include "engine/cluster/table_list.h"
#include "engine/placement/cluster_limits.h"
#include "engine/placement/measured_needs.h"

typedef struct {
    const Cluster *cluster;
    const PlacementOps *strategy;
    PlacementServer *servers;
    uint32_t n_servers, n_nodes; /* n_nodes: those with servers; none of them is spare */
    ServerCount count;
    GString *report;
} Plan;

static void list_servers(Plan *plan)
{
    const Cluster *const cluster = plan->cluster;
    uint32_t at = 0;

    plan->n_servers = cluster_first_servers(cluster);
    plan->n_nodes = cluster_first_server_nodes(cluster);
    plan->servers = g_new0(PlacementServer, plan->n_servers);
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        for (uint32_t k = 0; k < cluster->nodes[i].servers; k++, plan->count.n++) {
            if (cluster->nodes[i].spare)
                continue;
            plan->servers[at] = (PlacementServer){ .number = plan->count.n, .node = i };
            plan->servers[at++].limit = cluster_server_limit(cluster, i);
        }
    plan->count.n_first = plan->n_servers;
}

static char *server_name(const Plan *plan, uint32_t i)
{
    return g_strdup_printf("server %u (node %u)", plan->servers[i].number,
                           plan->cluster->nodes[plan->servers[i].node].id);
}

/* "parts 0 4 8", or "replicas of parts 1 2"; nothing if the server has none. */
static void append_parts(const Plan *plan, const Table *table, const uint32_t *places,
                         uint32_t server, bool replicas)
{
    const uint32_t copies = 1 + table->spec->replicas;
    bool is_first = true;

    for (uint32_t part = 0; part < table->map->n_parts; part++)
        for (uint32_t k = replicas ? 1 : 0; k < (replicas ? copies : 1); k++) {
            if (places[(size_t)part * copies + k] != server)
                continue;
            if (is_first)
                g_string_append(plan->report, replicas ? " replicas of parts" : " parts");
            is_first = false;
            g_string_append_printf(plan->report, " %u", part);
        }
}

static void append_table(const Plan *plan, const Table *table, const uint32_t *places)
{
    PlacementLoad largest = { { 0 } };

    for (uint32_t part = 0; part < table->map->n_parts; part++) {
        const PlacementLoad load = table_part_load(table, part);

        for (size_t r = 0; r < PLACEMENT_N_RESOURCES; r++)
            largest.of[r] = MAX(largest.of[r], load.of[r]);
    }
    g_autofree char *needs = placement_load_text(&largest);

    g_string_append_printf(plan->report, "\ntable %s: %u part%s%s, a part needs %s\n",
                           table->spec->name, table->map->n_parts,
                           table->map->n_parts == 1 ? "" : "s",
                           table->spec->no_split ? ", not split" : "", needs);
    for (uint32_t i = 0; i < plan->n_servers; i++) {
        g_autofree char *name = server_name(plan, i);
        g_autofree char *has = placement_server_text(&plan->servers[i]);

        g_string_append_printf(plan->report, "  %s:", name);
        append_parts(plan, table, places, i, /* replicas= */ false);
        append_parts(plan, table, places, i, /* replicas= */ true);
        if (plan->servers[i].n_here == 0)
            g_string_append(plan->report, placement_has_room(&plan->servers[i], &largest)
                                              ? " none"
                                              : " none, there is no room for one");
        g_string_append_printf(plan->report, "; then %s\n", has);
    }
}

static bool place(Plan *plan, const RubatoTableSpec *spec, GError **error)
{
    g_autoptr(Table) table = table_new(spec, &plan->count, error);
    g_autofree uint32_t *places = NULL;

    if (table == NULL || !table_check_replicas(table->spec, plan->n_nodes, error))
        return false;
    places = g_new(uint32_t, (size_t)table->map->n_parts * (1 + spec->replicas));
    if (!table_lay(table, plan->strategy, spec->replicas, plan->servers, plan->n_servers, places,
                   error))
        return false;
    append_table(plan, table, places);
    return true;
}

/* What the list leaves out is what a run has taken. */
static bool take_measured(TableList *list, const char *folder, GString *report, GError **error)
{
    g_autoptr(MeasuredNeeds) needs = measured_needs_read(folder, error);

    if (needs == NULL)
        return false;
    for (uint32_t i = 0; i < list->n; i++)
        if (!measured_needs_fill(needs, &list->specs[i]))
            g_string_append_printf(report, "table %s was not measured: %s does not name it\n",
                                   list->specs[i].name, folder);
    return true;
}

bool rubato_launch_place(const char *cluster_file, const char *table_file, const char *measured,
                         GString *report, GError **error)
{
    bool fits = true;

    g_return_val_if_fail(cluster_file != NULL && table_file != NULL && report != NULL, false);
    g_autoptr(Cluster) cluster =
        rubato_load_plugins_of(cluster_file, error) ? cluster_read(cluster_file, error) : NULL;
    if (cluster == NULL)
        return false;
    g_autoptr(TableList) list = table_list_read(table_file, error);
    if (list == NULL || (measured != NULL && !take_measured(list, measured, report, error)))
        return false;
    Plan plan = { .cluster = cluster,
                  .strategy = placement_find(cluster->placement),
                  .report = report };

    list_servers(&plan);
    g_string_append_printf(report, "placement \"%s\": each part goes to %s\n", plan.strategy->name,
                           plan.strategy->description);
    for (uint32_t i = 0; i < list->n && fits; i++)
        fits = place(&plan, &list->specs[i], error);
    g_free(plan.servers);
    return fits;
}
