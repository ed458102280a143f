/* Tasks from GO to TASK_END, and the barriers between a task's workers.
 *
 * The first cause of a failure is kept, whether it comes from a worker, an interrupt or a lost
 * node. It may also come before the COMMIT that lets the task run: then CANCEL follows the COMMIT.
 * A worker that failed because a server cancelled its request tells an effect, not a cause: some
 * node has given up the task, and will say why, or is lost. The scheduler waits two heartbeats for
 * that cause, and then until it has heard every node a heartbeat after the effect: a node that has
 * given up and could not say so is silent, and is soon lost, which is the cause. Only if none comes
 * does the scheduler take the effect as the cause. A task, cancelled or not, ends when every node
 * that still counts has said TASK_DONE.
 *
 * A node may be lost between GO and COMMIT. Nodes prepare the task as if it lived, and do no step
 * that follows the loss before they have done so (engine_await_call): so it is to them as if the
 * node were lost right behind COMMIT. The same is true here.
 *
 * If lost workers are to be replaced, the task goes on as if they were slow: it does not end, and
 * no barrier is passed, before a process has come in the place of their node, whose program makes
 * the call that began the task (task_replace), and its workers have ended. That takes no longer
 * than the task says: then the task fails, so nobody waits for ever. The process is told which
 * barriers its workers had passed: they do not wait in these again. They get the blocks of data of
 * the lost ones again. In collectives all workers are told of the loss, and those that come behind
 * it wait for the new ones (tensors_replace).
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_task.h"

#include <assert.h>
#include <string.h>

#include "engine/control/told_task.h"
#include "engine/scheduler/data/scheduler_data.h"
#include "engine/scheduler/data/scheduler_kept.h"
#include "engine/scheduler/journal/scheduler_record.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/scheduler/scheduler_past.h"
#include "engine/scheduler/scheduler_waits.h"
#include "engine/scheduler/tensors/scheduler_tensors.h"

#define AWAITS_WORKERS                                                                    \
    "there is no snapshot yet: a task of which it would keep what its workers have read " \
    "waits for others in the place of lost ones"

static void task_free(SchedulerTask *task)
{
    g_free(task->name);
    g_free(task->told);
    g_free(task->waits);
    g_free(task->retired);
    g_free(task->has_calls);
    g_free(task->done);
    g_free(task->lost_ms);
    g_free(task->all);
    g_free(task->again);
    verdict_clear(&task->cause);
    verdict_clear(&task->effect);
    waits_clear(task);
    data_clear(task);
    tensors_free(task->tensors);
    barrier_record_free(task->passed);
    g_free(task);
}

void tasks_clear(Scheduler *scheduler)
{
    for (guint i = 0; i < scheduler->tasks->len; i++)
        task_free(scheduler->tasks->pdata[i]);
    g_ptr_array_set_size(scheduler->tasks, 0);
}

static void forget(Scheduler *scheduler, SchedulerTask *task)
{
    data_forget(scheduler, task);
    g_ptr_array_remove(scheduler->tasks, task);
    task_free(task);
}

/* Rows that nobody has read must not be passed over in silence. */
static void check_data(SchedulerTask *task)
{
    const bool may_lack = task->has_lost && task->cause.code == CONTROL_OK;
    const uint64_t n = may_lack ? data_n_unread(task) : 0;

    if (n == 0)
        return;
    g_autofree char *text =
        g_strdup_printf("%s: a node was lost, and no other has read all rows of %" G_GUINT64_FORMAT
                        " of the blocks of data that it had",
                        task->name, n);
    verdict_set(&task->cause, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
}

/* Whether it waits for a process in the place of the node. */
static bool awaits(const SchedulerTask *task, uint32_t node)
{
    return task->lost_ms[node] != INT64_MAX && task->cause.code == CONTROL_OK;
}

/* Whether the task needs the node to say TASK_DONE. */
static bool needs(const Scheduler *scheduler, const SchedulerTask *task, uint32_t node)
{
    return scheduler_counts_on(scheduler, node) || task->again[node] || awaits(task, node);
}

/* Forgets the task if it has ended. What parts keep of lost workers is released once they have
 * their primaries; a task must not end before that. */
static void check_end(Scheduler *scheduler, SchedulerTask *task)
{
    if (!task->running || (task->continues && scheduler->recovers &&
                           task->cause.code == CONTROL_OK && scheduler->doom.code == CONTROL_OK))
        return;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (needs(scheduler, task, i) && !task->done[i])
            return;
    if (task->cause.code == CONTROL_OK && task->effect.code != CONTROL_OK)
        verdict_set(&task->cause, task->effect.code, task->effect.text);
    check_data(task);
    const Control end = {
        .kind = CONTROL_TASK_END,
        .task_end = { task->epoch, { task->cause.code, task->cause.text } },
    };
    scheduler_send_all(scheduler, &end);
    past_note_end(scheduler, task->epoch, &task->cause);
    forget(scheduler, task);
}

/* Lets the nodes continue when all nodes that have workers left are in the barrier. A failed task
 * has no more barriers: workers in one are cancelled. */
static void check_barrier(Scheduler *scheduler, SchedulerTask *task)
{
    bool anyone = false;

    if (task->cause.code != CONTROL_OK)
        return;
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        if (!task->waits[i] && !task->retired[i])
            return;
        anyone |= task->waits[i];
    }
    if (!anyone)
        return;
    const Control release = { .kind = CONTROL_RELEASE,
                              .release = { .epoch = task->epoch, .round = task->round } };
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (task->waits[i]) {
            task->waits[i] = false;
            scheduler_send(scheduler, i, &release);
        }
    if (task->passed != NULL)
        barrier_record_pass(task->passed);
    task->round++;
    task->round_since_ms = INT64_MAX;
}

static void retire(Scheduler *scheduler, SchedulerTask *task, uint32_t node)
{
    if (!task->retired[node])
        tensors_retire(scheduler, task, node);
    task->retired[node] = true;
    task->waits[node] = false;
    task->retired_since_ms = MIN(task->retired_since_ms, scheduler->now_ms);
}

/* By node number. (transfer full) */
static uint32_t *count_workers(const SchedulerTask *task, uint32_t n_nodes)
{
    uint32_t *const workers_of = g_new(uint32_t, n_nodes);

    for (uint32_t i = 0; i < n_nodes; i++)
        workers_of[i] = tensors_n_workers(task->tensors, i);
    return workers_of;
}

/* Keeps what processes that serve, or will serve while it runs, are told of it. */
static void note_task(const Scheduler *scheduler, SchedulerTask *task, const char *tables)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    g_autofree uint32_t *workers_of = count_workers(task, n_nodes);
    GString *const text = g_string_new(NULL);
    const ToldTask told = { .epoch = task->epoch,
                            .workers_of = workers_of,
                            .replaces = task->replace_ms > 0 };

    told_task_write(text, &told, n_nodes, tables != NULL ? tables : "");
    task->told = g_string_free(text, FALSE);
    task->passed = told.replaces ? barrier_record_new(n_nodes, workers_of) : NULL;
}

static SchedulerTask *task_new(uint32_t n_nodes)
{
    SchedulerTask *const task = g_new0(SchedulerTask, 1);

    task->lost_ms = g_new(int64_t, n_nodes);
    task->again = g_new0(bool, n_nodes);
    for (uint32_t i = 0; i < n_nodes; i++)
        task->lost_ms[i] = INT64_MAX;
    task->all = g_new(bool, n_nodes);
    memset(task->all, true, n_nodes * sizeof *task->all);
    task->waits = g_new0(bool, n_nodes);
    task->retired = g_new0(bool, n_nodes);
    task->has_calls = g_new0(bool, n_nodes);
    task->done = g_new0(bool, n_nodes);
    task->round_since_ms = task->retired_since_ms = INT64_MAX;
    waits_init(task);
    task->readings = g_ptr_array_new();
    return task;
}

void task_prepare(Scheduler *scheduler, const Collective *call)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    SchedulerTask *const task = task_new(n_nodes);

    task->epoch = call->id;
    task->name = g_strdup(call->name);
    task->continues = call->survives;
    task->replace_ms = call->survives ? call->replace_ms : 0;
    for (uint32_t i = 0; i < n_nodes; i++)
        task->retired[i] = task->done[i] = !scheduler_has_program(scheduler, i);
    task->tensors = tensors_new(scheduler, call->workers);
    note_task(scheduler, task, call->told);
    g_ptr_array_add(scheduler->tasks, task);
}

void tasks_catch_up(Scheduler *scheduler, uint32_t node)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        SchedulerTask *const task = scheduler->tasks->pdata[i];

        if (!task->again[node])
            task->retired[node] = task->done[node] = true;
    }
}

char *task_replace(Scheduler *scheduler, uint32_t node, uint32_t epoch)
{
    SchedulerTask *const task = task_find(scheduler, epoch);

    if (task == NULL || !awaits(task, node))
        return NULL;
    GString *const told = g_string_new(task->told);

    if (task->round > 0) /* it stays, until the node's workers are in the barrier */
        barrier_record_write(task->passed, node, task->round, told);
    task->lost_ms[node] = INT64_MAX;
    task->again[node] = true;
    return g_string_free(told, FALSE);
}

/* A process that has joined has no workers, whatever the one before it had, unless it has taken
 * them over. */
static bool has_no_workers(const Scheduler *scheduler, const SchedulerTask *task, uint32_t node)
{
    return (scheduler->nodes[node].serves && !task->again[node] && !awaits(task, node)) ||
           (task->tensors != NULL && tensors_n_workers(task->tensors, node) == 0);
}

/* The node takes no further part in the task. */
static void leave_out(Scheduler *scheduler, SchedulerTask *task, uint32_t node)
{
    waits_node_out(task, node);
    if (awaits(task, node))
        return;
    task->again[node] = false;
    if (!task->done[node] && !scheduler->nodes[node].lost &&
        !(task->retired[node] && has_no_workers(scheduler, task, node))) {
        g_autofree char *text = g_strdup_printf("node %u left the run while %s ran",
                                                scheduler->nodes[node].id, task->name);
        task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_CANCELLED), text);
    }
    retire(scheduler, task, node);
    data_node_out(task, node);
}

/* Nodes that were lost since GO. Not before: until a node has done its part of RUN, its collectives
 * know of no such task. */
static void leave_out_lost(Scheduler *scheduler, SchedulerTask *task)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++) {
        if (!scheduler->nodes[i].lost || task->retired[i])
            continue;
        if (!awaits(task, i) && task->cause.code == CONTROL_OK)
            tensors_lose(scheduler, task, i, scheduler->nodes[i].loss.text);
        leave_out(scheduler, task, i);
    }
}

void task_decided(Scheduler *scheduler, uint32_t epoch, bool runs)
{
    SchedulerTask *task = task_find(scheduler, epoch);

    assert(task != NULL && !task->running);
    if (!runs) {
        forget(scheduler, task);
        return;
    }
    task->running = true;
    if (task->cause.code != CONTROL_OK)
        task_send_cancel(scheduler, task);
    leave_out_lost(scheduler, task);
    check_barrier(scheduler, task);
    check_end(scheduler, task);
}

bool task_fail(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlTaskEnd *const fail = &control->fail;
    SchedulerTask *task = task_find(scheduler, fail->epoch);

    (void)node;
    if (task == NULL)
        return task_is_late(scheduler, fail->epoch);
    if (fail->outcome.code == CONTROL_OK)
        return false;
    if (scheduler->config.single || fail->outcome.code != CONTROL_CODE(RUBATO_ERROR_CANCELLED)) {
        task_cancel(scheduler, task, fail->outcome.code, fail->outcome.text);
    } else if (task->effect.code == CONTROL_OK) {
        verdict_set(&task->effect, fail->outcome.code, fail->outcome.text);
        task->effect_since_ms = scheduler->now_ms;
    }
    return true;
}

/* Whether every node that counts has said something at this time or later. */
static bool all_were_heard(const Scheduler *scheduler, int64_t since_ms)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler_counts_on(scheduler, i) && scheduler->nodes[i].heard_ms < since_ms)
            return false;
    return true;
}

void tasks_leave_out_pause(Scheduler *scheduler, int64_t pause_ms)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        SchedulerTask *const task = scheduler->tasks->pdata[i];

        task->effect_since_ms = MIN(task->effect_since_ms + pause_ms, scheduler->now_ms);
        for (uint32_t n = 0; n < scheduler->config.n_nodes; n++)
            if (task->lost_ms[n] != INT64_MAX)
                task->lost_ms[n] = MIN(task->lost_ms[n] + pause_ms, scheduler->now_ms);
    }
}

/* The node whose workers it has been without for the longest time; n_nodes: there is none. */
static uint32_t find_awaited(const Scheduler *scheduler, const SchedulerTask *task)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;
    uint32_t first = n_nodes;

    for (uint32_t i = 0; i < n_nodes; i++)
        if (awaits(task, i) && (first == n_nodes || task->lost_ms[i] < task->lost_ms[first]))
            first = i;
    return first;
}

bool task_awaits_any(const Scheduler *scheduler, const SchedulerTask *task)
{
    return find_awaited(scheduler, task) < scheduler->config.n_nodes;
}

Verdict tasks_find_awaited(const Scheduler *scheduler, const char *spec)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        const SchedulerTask *const task = scheduler->tasks->pdata[i];

        if (data_has_kept(task) && task_awaits_any(scheduler, task) &&
            kept_has_table_of(scheduler, spec, task))
            return (Verdict){ CONTROL_CODE(RUBATO_ERROR_NODE_LOST), (char *)AWAITS_WORKERS };
    }
    return (Verdict){ .code = CONTROL_OK };
}

/* Nodes that have ended it already say nothing more. */
static void cancel(Scheduler *scheduler, SchedulerTask *task, uint32_t code, const char *text)
{
    task_cancel(scheduler, task, code, text);
    check_end(scheduler, task);
}

void task_fail_by_effect(Scheduler *scheduler, uint32_t epoch)
{
    SchedulerTask *const task = task_find(scheduler, epoch);
    const uint32_t awaited =
        task == NULL ? scheduler->config.n_nodes : find_awaited(scheduler, task);

    if (task != NULL && task->effect.code != CONTROL_OK) {
        task_cancel(scheduler, task, task->effect.code, task->effect.text);
    } else if (awaited < scheduler->config.n_nodes) {
        g_autofree char *text = g_strdup_printf(
            "%s; %s cannot go on: no process has taken over its workers within %.1f s",
            scheduler->nodes[awaited].loss.text, task->name, task->replace_ms / 1e3);

        cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), text);
    }
}

/* Whether it has waited for a process as long as it says. */
static bool is_too_late(const Scheduler *scheduler, const SchedulerTask *task)
{
    const uint32_t awaited = find_awaited(scheduler, task);

    return awaited < scheduler->config.n_nodes &&
           scheduler->now_ms - task->lost_ms[awaited] >= task->replace_ms;
}

void tasks_tick(Scheduler *scheduler)
{
    const int64_t heartbeat_ms = scheduler->config.heartbeat_ms;

    /* Backwards, because tasks that end here are removed. */
    for (guint i = scheduler->tasks->len; i-- > 0;) {
        SchedulerTask *task = scheduler->tasks->pdata[i];

        if ((task->effect.code != CONTROL_OK &&
             scheduler->now_ms - task->effect_since_ms >= 2 * heartbeat_ms &&
             all_were_heard(scheduler, task->effect_since_ms + heartbeat_ms)) ||
            is_too_late(scheduler, task)) {
            record_effect(scheduler, task->epoch);
            task_fail_by_effect(scheduler, task->epoch);
        }
    }
}

bool task_done(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const uint32_t epoch = control->task_done.epoch;
    SchedulerTask *task = task_find(scheduler, epoch);

    if (task == NULL)
        return task_is_late(scheduler, epoch);
    if (task->done[node])
        return false;
    task->done[node] = true;
    retire(scheduler, task, node);
    if (task->running)
        check_barrier(scheduler, task);
    check_end(scheduler, task);
    return true;
}

bool task_arrive(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlBarrier *const arrive = &control->arrive;
    SchedulerTask *task = task_find(scheduler, arrive->epoch);

    if (task == NULL)
        return task_is_late(scheduler, arrive->epoch);
    /* Workers leave a cancelled task in any order. The message of a node's last worker may overtake
     * that of the worker which is about to say that all were in the barrier. */
    if (task->cause.code != CONTROL_OK && arrive->round != CONTROL_NO_ROUND)
        return true;
    if (task->retired[node])
        return arrive->round == CONTROL_NO_ROUND;
    if (arrive->round == CONTROL_NO_ROUND) {
        data_settle(task, node);
        task->has_calls[node] = arrive->has_calls;
        retire(scheduler, task, node);
    } else if (arrive->round == task->round && !task->waits[node]) {
        if (task->passed != NULL && !barrier_record_arrive(task->passed, node, arrive->clocks))
            return false;
        task->waits[node] = true;
        task->round_since_ms = MIN(task->round_since_ms, scheduler->now_ms);
    } else {
        return false;
    }
    if (task->running)
        check_barrier(scheduler, task);
    return true;
}

void tasks_cancel(Scheduler *scheduler, uint32_t code, const char *text)
{
    /* Backwards, because tasks that end here are removed. */
    for (guint i = scheduler->tasks->len; i-- > 0;)
        cancel(scheduler, scheduler->tasks->pdata[i], code, text);
}

static bool has_other_workers(const Scheduler *scheduler, const SchedulerTask *task)
{
    for (uint32_t i = 0; i < scheduler->config.n_nodes; i++)
        if (scheduler_counts_on(scheduler, i) && tensors_n_workers(task->tensors, i) > 0)
            return true;
    return false;
}

/* Why a task that is to go on without the workers of a lost node, or with others in their place,
 * cannot; NULL: it can. */
static const char *find_need(const Scheduler *scheduler, const SchedulerTask *task)
{
    const bool replaces = task->replace_ms > 0;

    if (!replaces && !has_other_workers(scheduler, task))
        return "no other node has workers of it";
    return replaces ? NULL : data_needs_all(task);
}

/* Whether nothing of the node's workers is missing if the task goes on without the node. All
 * replicas have their Adds, and the root their last clocks, before the node says that it has no
 * worker left (engine/task/task_run_workers.c). It may wait for those of others before it says
 * TASK_DONE. */
static bool have_ended(const SchedulerTask *task, uint32_t node)
{
    return task->done[node] || (task->running && task->retired[node] && !task->has_calls[node]);
}

/* A node whose workers have ended may not have sent all that others wait for in collectives, unless
 * it has left in order. */
static void lose_ended(Scheduler *scheduler, SchedulerTask *task, uint32_t node, const char *text)
{
    data_lose_ended(task, node);
    if (task->cause.code == CONTROL_OK && tensors_are_used(task->tensors) &&
        !scheduler->nodes[node].left_drained)
        tensors_lose(scheduler, task, node, text);
}

void tasks_lose_node(Scheduler *scheduler, uint32_t node, const char *text)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        SchedulerTask *const task = scheduler->tasks->pdata[i];
        const char *const need = task->continues ? find_need(scheduler, task) : NULL;
        const bool goes_on = task->continues && need == NULL;

        if (has_no_workers(scheduler, task, node))
            continue;
        if (have_ended(task, node)) {
            lose_ended(scheduler, task, node, text);
            continue;
        }
        task->again[node] = false;
        if (goes_on && task->replace_ms > 0) {
            task->lost_ms[node] = scheduler->now_ms;
            task->waits[node] = task->retired[node] = false;
            barrier_record_lose(task->passed, node);
            tensors_replace(scheduler, task, node, text);
            data_await(task, node);
            continue;
        }
        task->has_lost |= tensors_n_workers(task->tensors, node) > 0;
        if (goes_on) {
            if (task->running && task->cause.code == CONTROL_OK)
                tensors_lose(scheduler, task, node, text);
            continue; /* before it runs, nobody is told: task_decided */
        }
        g_autofree char *why =
            need == NULL ? g_strdup(text)
                         : g_strdup_printf("%s; %s cannot go on: %s", text, task->name, need);
        task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_NODE_LOST), why);
    }
}

const char *tasks_name_busy(const Scheduler *scheduler, uint32_t node)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        const SchedulerTask *const task = scheduler->tasks->pdata[i];

        if (!task->done[node] && !has_no_workers(scheduler, task, node))
            return task->name;
    }
    return NULL;
}

void tasks_go_on(Scheduler *scheduler)
{
    /* Backwards, because tasks that end here are removed. */
    for (guint i = scheduler->tasks->len; i-- > 0;)
        check_end(scheduler, scheduler->tasks->pdata[i]);
}

void tasks_node_out(Scheduler *scheduler, uint32_t node)
{
    /* Backwards, because tasks that end here are removed. */
    for (guint i = scheduler->tasks->len; i-- > 0;) {
        SchedulerTask *task = scheduler->tasks->pdata[i];

        if (!task->running) /* task_decided does it, or there is no such task */
            continue;
        leave_out(scheduler, task, node);
        check_barrier(scheduler, task);
        check_end(scheduler, task);
    }
}

/* The nodes that count and have not ended. (transfer full) */
static GArray *list_busy(const Scheduler *scheduler, const bool *have_ended)
{
    GArray *const busy = g_array_new(FALSE, FALSE, sizeof(uint32_t));

    for (uint32_t n = 0; n < scheduler->config.n_nodes; n++)
        if (scheduler_counts_on(scheduler, n) && !have_ended[n])
            g_array_append_val(busy, n);
    return busy;
}

/* The end waits for workers that have not returned, and then for what is left of them. */
static void add_wait_for_end(const Scheduler *scheduler, const SchedulerTask *task, GArray *waits)
{
    const bool *have_ended = task->retired;
    g_autoptr(GArray) busy = list_busy(scheduler, have_ended);

    if (busy->len == 0) {
        have_ended = task->done;
        g_array_unref(busy);
        busy = list_busy(scheduler, have_ended);
    }
    if (task->retired_since_ms == INT64_MAX || busy->len == 0)
        return;
    g_autofree char *names = scheduler_name_nodes(scheduler, busy, /* with_heard= */ true);
    wait_add(waits, g_strdup_printf("the end of %s waits for the workers of %s", task->name, names),
             have_ended, task->retired_since_ms);
}

/* A process is to take over lost workers. */
static void add_wait_for_others(const Scheduler *scheduler, const SchedulerTask *task,
                                GArray *waits)
{
    const uint32_t awaited = find_awaited(scheduler, task);

    if (awaited < scheduler->config.n_nodes)
        wait_add(waits,
                 g_strdup_printf("%s waits for a process that takes over the workers of %s, for "
                                 "%.1f s at most",
                                 task->name, scheduler->nodes[awaited].label,
                                 task->replace_ms / 1e3),
                 task->all, task->lost_ms[awaited]);
}

void tasks_add_waits(const Scheduler *scheduler, GArray *waits)
{
    for (guint i = 0; i < scheduler->tasks->len; i++) {
        const SchedulerTask *task = scheduler->tasks->pdata[i];
        g_autoptr(GArray) late = g_array_new(FALSE, FALSE, sizeof(uint32_t));

        for (uint32_t n = 0; n < scheduler->config.n_nodes; n++)
            if (!task->waits[n] && !task->retired[n])
                g_array_append_val(late, n);
        tensors_add_wait(task, waits);
        if (task->round_since_ms != INT64_MAX && late->len > 0 && task->cause.code == CONTROL_OK) {
            g_autofree char *names = scheduler_name_nodes(scheduler, late, /* with_heard= */ true);
            wait_add(waits,
                     g_strdup_printf("barrier %" G_GUINT64_FORMAT " of %s waits for the workers "
                                     "of %s",
                                     task->round, task->name, names),
                     task->waits, task->round_since_ms);
        }
        add_wait_for_end(scheduler, task, waits);
        add_wait_for_others(scheduler, task, waits);
    }
}

/* ---- as bytes ---- */

static void walk_passed(StateWalk *walk, SchedulerTask *task, uint32_t n_nodes)
{
    g_autofree uint32_t *workers_of = count_workers(task, n_nodes);

    if (walk_number(walk, task->passed != NULL) == 0)
        return;
    if (walk_reads(walk))
        task->passed = barrier_record_new(n_nodes, workers_of);
    barrier_record_walk(walk, task->passed);
}

static void walk_task(StateWalk *walk, const Scheduler *scheduler, SchedulerTask *task)
{
    const uint32_t n_nodes = scheduler->config.n_nodes;

    WALK(walk, task->epoch);
    walk_text(walk, &task->name);
    walk_text(walk, &task->told);
    WALK(walk, task->running);
    WALK(walk, task->continues);
    WALK(walk, task->replace_ms);
    for (uint32_t i = 0; i < n_nodes; i++)
        WALK(walk, task->lost_ms[i]);
    walk_flags(walk, task->again, n_nodes);
    WALK(walk, task->has_lost);
    verdict_walk(walk, &task->cause);
    verdict_walk(walk, &task->effect);
    WALK(walk, task->effect_since_ms);
    WALK(walk, task->round);
    walk_flags(walk, task->waits, n_nodes);
    walk_flags(walk, task->retired, n_nodes);
    walk_flags(walk, task->has_calls, n_nodes);
    walk_flags(walk, task->done, n_nodes);
    WALK(walk, task->round_since_ms);
    WALK(walk, task->retired_since_ms);
    waits_walk(walk, task);
    task->tensors = tensors_walk(walk, task->tensors, n_nodes);
    walk_passed(walk, task, n_nodes);
    data_walk(walk, scheduler, task);
    walk->is_wrong |= task->name == NULL || task->told == NULL;
}

void tasks_walk(StateWalk *walk, Scheduler *scheduler)
{
    const size_t n = walk_count(walk, scheduler->tasks->len);

    for (size_t i = 0; i < n && !walk->is_wrong; i++) {
        if (walk_reads(walk))
            g_ptr_array_add(scheduler->tasks, task_new(scheduler->config.n_nodes));
        walk_task(walk, scheduler, scheduler->tasks->pdata[i]);
    }
    WALK(walk, scheduler->next_epoch);
}
