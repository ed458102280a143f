/* A scenario in words, for the log of a seed that fails. */
#include "tests/support/sim/sim_cluster.h"

static const char *model_name(SimModel model)
{
    static const char *const names[] = { "asp", "bsp", "ssp", "sparse_ssp" };

    return names[model];
}

static void describe_node(GString *text, uint32_t node)
{
    if (node == SIM_ALL_NODES)
        g_string_append(text, "all");
    else
        g_string_append_printf(text, "%u", node);
}

static void describe_fault(GString *text, const SimFault *fault)
{
    static const char *const names[] = {
        [SIM_FAULT_LOSS] = "loss",     [SIM_FAULT_DOUBLING] = "doubling",
        [SIM_FAULT_SLOW] = "slowness", [SIM_FAULT_CUT] = "cut",
        [SIM_FAULT_RESET] = "reset",   [SIM_FAULT_STOP] = "node stopped",
        [SIM_FAULT_KILL] = "killed",   [SIM_FAULT_DISORDER] = "disorder",
    };

    g_string_append_printf(text, "\n  %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT " ms: %s, from ",
                           fault->at_ms, fault->at_ms + fault->for_ms, names[fault->kind]);
    describe_node(text, fault->from);
    g_string_append(text, " to ");
    describe_node(text, fault->to);
    g_string_append_printf(text, ", %u of 1,024", fault->how_often);
}

static void describe_newcomer(GString *text, const SimNewcomer *newcomer, uint32_t number)
{
    g_string_append_printf(
        text, "\n  process %u takes the place of node %u %" G_GINT64_FORMAT " ms after a kill",
        number, newcomer->node, newcomer->after_ms);
    if (newcomer->killed_after_ms > 0)
        g_string_append_printf(text, ", and is killed after %" G_GINT64_FORMAT " ms",
                               newcomer->killed_after_ms);
}

char *sim_scenario_describe(const SimScenario *scenario)
{
    static const char *const handles[] = { "KV table", "KV client table", "chunk table",
                                           "sparse table", "ragged table" };
    GString *const text = g_string_new(NULL);

    g_string_printf(text,
                    "seed %" G_GUINT64_FORMAT ": %s%u nodes, scheduler on %u, heartbeat %u ms, "
                    "timeout %u ms, %u tasks of %u iterations, thinking up to %.3f ms",
                    scenario->seed, scenario->has_task_beside ? "two tasks at once, " : "",
                    scenario->n_nodes, scenario->scheduler, scenario->heartbeat_ms,
                    scenario->timeout_ms, scenario->n_tasks, scenario->n_iterations,
                    (double)scenario->think_ns / 1e6);
    g_string_append_printf(text,
                           "\n  bytes: pieces %zu, %zu and %zu, window %zu, mailbox %zu, out %zu "
                           "and %zu, joined %zu, turn %zu, cache %zu",
                           scenario->sizes.piece_bytes, scenario->sizes.near_piece_bytes,
                           scenario->sizes.high_piece_bytes, scenario->sizes.window_bytes,
                           scenario->sizes.mailbox_bytes, scenario->sizes.out_bytes,
                           scenario->sizes.high_out_bytes, scenario->sizes.joined_bytes,
                           scenario->sizes.turn_bytes, scenario->sizes.cache_bytes);
    for (uint32_t i = 0; i < scenario->n_nodes; i++)
        g_string_append_printf(text, "\n  node %u: %u servers, %u workers", i, scenario->servers[i],
                               scenario->workers[i]);
    for (uint32_t i = 0; i < scenario->n_tables; i++) {
        const SimTable *const table = &scenario->tables[i];
        g_string_append_printf(text,
                               "\n  %s: %s, s=%u q=%u, %s, %u keys from %" G_GUINT64_FORMAT
                               ", up to %u a call, %u parts, %s%s",
                               table->name, model_name(table->model), table->staleness,
                               table->speculation, table->is_hash ? "hash" : "dense", table->n_keys,
                               table->first_key, table->most_keys, table->parts,
                               handles[table->handle],
                               sim_table_creates(scenario, table) ? ", Gets create rows" : "");
    }
    for (uint32_t i = 0; i < scenario->n_faults; i++)
        describe_fault(text, &scenario->faults[i]);
    g_string_append_printf(text, "\n  %u moves of parts in each task, up to %.3f ms between them",
                           scenario->n_moves, (double)scenario->between_moves_ns / 1e6);
    g_string_append_printf(text, "\n  %u replicas of each part", scenario->n_replicas);
    if (scenario->drain_ns > 0)
        g_string_append_printf(text, "\n  node %u is drained, %.3f ms after the first task began%s",
                               scenario->drained, (double)scenario->drain_ns / 1e6,
                               scenario->ends_drained ? ", and killed after that" : "");
    if (scenario->replace_ms > 0)
        g_string_append_printf(text, "\n  lost workers are replaced within %u ms",
                               scenario->replace_ms);
    for (uint32_t i = 0; i < scenario->n_newcomers; i++)
        describe_newcomer(text, &scenario->newcomers[i], scenario->n_nodes + i);
    if (scenario->failing_worker != UINT32_MAX)
        g_string_append_printf(text, "\n  worker %u fails in iteration %u",
                               scenario->failing_worker, scenario->failing_iteration);
    if (scenario->cancelled_ms >= 0)
        g_string_append_printf(text, "\n  cancelled at %" G_GINT64_FORMAT " ms",
                               scenario->cancelled_ms);
    return g_string_free(text, FALSE);
}
