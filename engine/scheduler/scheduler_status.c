/* What the scheduler tells of the run: a copy of a part of its state, as one event left it and
 * before the next one comes. So a node is never lost here and waited for there.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_state.h"

#include <string.h>

#include "engine/scheduler/data/scheduler_data.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_task.h"
#include "engine/task/status_parts.h"

static const char *state_of(const Scheduler *scheduler, const SchedulerNode *node)
{
    if (scheduler_is_absent(scheduler, (uint32_t)(node - scheduler->nodes)))
        return "spare";
    if (node->left_drained)
        return "drained";
    if (node->lost)
        return "lost";
    if (node->left)
        return "left";
    return node->here || scheduler->config.single ? "live" : "awaited";
}

static void add_node(const Scheduler *scheduler, uint32_t number, GVariantBuilder *list)
{
    const SchedulerNode *const node = &scheduler->nodes[number];
    GVariantBuilder part;

    g_variant_builder_init(&part, STATUS_PART);
    status_add_count(&part, "node", node->id);
    status_add_text(&part, "name", node->label);
    status_add_text(&part, "state", state_of(scheduler, node));
    if (scheduler->begun && !scheduler->config.single && !scheduler_is_absent(scheduler, number))
        status_add_seconds(&part, "silent_s",
                           number == scheduler->config.self
                               ? 0
                               : (double)MAX(scheduler->now_ms - node->heard_ms, 0) / 1e3);
    status_add_text(&part, "why", node->lost ? node->loss.text : NULL);
    g_variant_builder_add_value(list, g_variant_builder_end(&part));
}

static void add_task(const Scheduler *scheduler, const SchedulerTask *task, GVariantBuilder *list)
{
    GVariantBuilder part, readers;

    g_variant_builder_init(&part, STATUS_PART);
    g_variant_builder_init(&readers, STATUS_LIST);
    status_add_count(&part, "task", task->epoch);
    /* a collective call is "task NAME" */
    status_add_text(&part, "name",
                    task->name + (g_str_has_prefix(task->name, "task ") ? strlen("task ") : 0));
    status_add_text(&part, "cancelled", task->cause.text);
    status_add_flag(&part, "continues", task->continues && task->replace_ms == 0);
    status_add_flag(&part, "replaces", task->replace_ms > 0);
    status_add_flag(&part, "awaits_workers", task_awaits_any(scheduler, task));
    status_add_flag(&part, "has_lost_workers", task->has_lost);
    data_add_status(scheduler, task, &readers);
    status_add_built(&part, "readers", &readers);
    g_variant_builder_add_value(list, g_variant_builder_end(&part));
}

static void add_waits(const Scheduler *scheduler, GVariantBuilder *list)
{
    g_autoptr(GArray) waits = scheduler_list_waits(scheduler);

    for (guint i = 0; i < waits->len; i++) {
        const Wait *const wait = &g_array_index(waits, Wait, i);
        GVariantBuilder part;

        g_variant_builder_init(&part, STATUS_PART);
        status_add_text(&part, "text", wait->text);
        status_add_seconds(&part, "seconds",
                           (double)MAX(scheduler->now_ms - wait->since_ms, 0) / 1e3);
        g_variant_builder_add_value(list, g_variant_builder_end(&part));
    }
}

GVariant *scheduler_status(Scheduler *scheduler, int64_t now_ms)
{
    GVariantBuilder part, nodes, tasks, waits;

    scheduler->now_ms = MAX(scheduler->now_ms, now_ms);
    g_variant_builder_init(&part, STATUS_PART);
    g_variant_builder_init(&nodes, STATUS_LIST);
    g_variant_builder_init(&tasks, STATUS_LIST);
    g_variant_builder_init(&waits, STATUS_LIST);
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        add_node(scheduler, i, &nodes);
    for (guint i = 0; i < scheduler->tasks->len; i++)
        add_task(scheduler, scheduler->tasks->pdata[i], &tasks);
    add_waits(scheduler, &waits);
    status_add_built(&part, "nodes", &nodes);
    status_add_built(&part, "tasks", &tasks);
    status_add_built(&part, "waits", &waits);
    return g_variant_builder_end(&part);
}
