/* Deadlocks: workers of a task wait for one another, so that none of them can ever continue.
 *
 * A worker that has waited for a while reports it once (WAITS): what it waits for, its clocks on
 * all tables, and which barriers it has passed. A wait is for a clock of a table, or in a barrier:
 *
 *     clock k of table t   ends when the clock of every worker that lives has come to k;
 *     barrier r            ends when every worker that lives is in it.
 *
 * This file keeps the last report of each worker. Worker a is held by worker b if b waits too and
 * its clock on t is below k; or if b has not passed r and waits for a clock. A set of workers in
 * which each is held by another of the set is a deadlock, whatever all others do.
 *
 * This is certain, although the reports are of different times and some may be old. Suppose that a
 * worker of the set continues after its report. Let w be the first one, and v the worker that holds
 * it. Then v had reached clock k, or barrier r, before w continued. Clocks and passed barriers only
 * grow, so v had not reached it when it made its report. After its report v did not continue, since
 * w is the first. A worker that waits does not clock and does not reach a barrier, and no other
 * thread may do so for it. This is a contradiction: neither w nor any other worker of the set can
 * continue. The argument does not depend on time, and no message under way can help: v's clock is
 * what v itself knows, not what a server has heard of it. A worker that computes, or waits for
 * anything else (data, room to send, the program's own locks), reports nothing and holds no worker.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_state.h"

#include "engine/task/wait_text.h"

typedef struct {
    uint32_t rank;
    uint32_t node; /* number */
    bool in_barrier;
    uint64_t round; /* number of its present barrier, or else of the next one */
    uint64_t table; /* the table for whose clock it waits */
    uint64_t needed;
    char *table_name;
    GArray *clocks; /* of WaitClock: its own */
    bool is_held;   /* used by find_deadlock */
} Waiting;

static void waiting_free(Waiting *waiting)
{
    g_free(waiting->table_name);
    g_array_unref(waiting->clocks);
    g_free(waiting);
}

void waits_init(SchedulerTask *task)
{
    task->waiting = g_ptr_array_new_with_free_func((GDestroyNotify)waiting_free);
}

void waits_clear(SchedulerTask *task)
{
    g_ptr_array_unref(task->waiting);
}

/* UINT64_MAX if the worker has told none. */
static uint64_t clock_of(const Waiting *waiting, uint64_t table)
{
    for (guint i = 0; i < waiting->clocks->len; i++)
        if (g_array_index(waiting->clocks, WaitClock, i).table == table)
            return g_array_index(waiting->clocks, WaitClock, i).clock;
    return UINT64_MAX;
}

static bool holds(const Waiting *one, const Waiting *other)
{
    if (!one->is_held || one == other)
        return false;
    if (other->in_barrier)
        return !one->in_barrier && one->round <= other->round;
    return clock_of(one, other->table) < other->needed;
}

/* The slowest worker that holds a worker; NULL if none does. */
static Waiting *find_holder(const SchedulerTask *task, const Waiting *held)
{
    Waiting *slowest = NULL;

    for (guint i = 0; i < task->waiting->len; i++) {
        Waiting *one = task->waiting->pdata[i];

        if (holds(one, held) &&
            (slowest == NULL || clock_of(one, held->table) < clock_of(slowest, held->table)))
            slowest = one;
    }
    return slowest;
}

/* Keeps is_held only for workers that are held by another such worker. Returns one of them; NULL if
 * there is none. */
static const Waiting *find_deadlock(const SchedulerTask *task)
{
    const GPtrArray *waiting = task->waiting;
    bool changed = true;

    for (guint i = 0; i < waiting->len; i++)
        ((Waiting *)waiting->pdata[i])->is_held = true;
    while (changed) {
        changed = false;
        for (guint i = 0; i < waiting->len; i++) {
            Waiting *one = waiting->pdata[i];

            if (one->is_held && find_holder(task, one) == NULL) {
                one->is_held = false;
                changed = true;
            }
        }
    }
    for (guint i = 0; i < waiting->len; i++)
        if (((const Waiting *)waiting->pdata[i])->is_held)
            return waiting->pdata[i];
    return NULL;
}

static void describe(const Scheduler *scheduler, const Waiting *held, const Waiting *holder,
                     GString *text)
{
    g_string_append_printf(text, "worker %u (node %u) waits ", held->rank,
                           scheduler->nodes[held->node].id);
    if (held->in_barrier)
        g_string_append_printf(text, "in a barrier for worker %u", holder->rank);
    else
        g_string_append_printf(
            text,
            "for clock %" G_GUINT64_FORMAT " of table %s, where worker %u is at %" G_GUINT64_FORMAT,
            held->needed, held->table_name, holder->rank, clock_of(holder, held->table));
}

/* Goes from holder to holder until one comes again, and describes that circle. */
static char *describe_circle(const Scheduler *scheduler, const SchedulerTask *task,
                             const Waiting *any)
{
    GString *text = g_string_new(NULL);
    const Waiting *first = any, *one;

    for (guint i = 0; i < task->waiting->len; i++) /* after so many steps it is in the circle */
        first = find_holder(task, first);
    g_string_append_printf(text, "%s is in a deadlock: ", task->name);
    one = first;
    for (unsigned n = 0; n == 0 || one != first; n++) {
        const Waiting *holder = find_holder(task, one);

        if (n > 0)
            g_string_append(text, holder == first ? ", and " : ", ");
        describe(scheduler, one, holder, text);
        one = holder;
    }
    return g_string_free(text, FALSE);
}

static void keep(SchedulerTask *task, Waiting *waiting)
{
    for (guint i = 0; i < task->waiting->len; i++)
        if (((const Waiting *)task->waiting->pdata[i])->rank == waiting->rank) {
            waiting_free(task->waiting->pdata[i]);
            task->waiting->pdata[i] = waiting;
            return;
        }
    g_ptr_array_add(task->waiting, waiting);
}

void waits_node_out(SchedulerTask *task, uint32_t node)
{
    for (guint i = task->waiting->len; i-- > 0;)
        if (((const Waiting *)task->waiting->pdata[i])->node == node)
            g_ptr_array_remove_index_fast(task->waiting, i); /* frees it */
}

bool task_waits(Scheduler *scheduler, uint32_t node, const Control *control)
{
    const ControlWaits *const told = &control->waits;
    SchedulerTask *task = task_find(scheduler, told->epoch);
    g_autoptr(GArray) clocks = NULL;
    Waiting *waiting;
    const Waiting *deadlocked;

    if (task == NULL)
        return task_is_late(scheduler, told->epoch);
    clocks = wait_text_read(told->own_clocks);
    if (clocks == NULL)
        return false;
    if (task->cause.code != CONTROL_OK)
        return true;
    waiting = g_new(Waiting, 1);
    *waiting = (Waiting){ .rank = told->rank,
                          .node = node,
                          .in_barrier = told->what == CONTROL_WAIT_BARRIER,
                          .round = told->round,
                          .table = told->table,
                          .needed = told->clock,
                          .table_name = g_strdup(told->table_name),
                          .clocks = g_steal_pointer(&clocks) };
    keep(task, waiting);
    deadlocked = find_deadlock(task);
    if (deadlocked != NULL) {
        g_autofree char *text = describe_circle(scheduler, task, deadlocked);

        task_cancel(scheduler, task, CONTROL_CODE(RUBATO_ERROR_DEADLOCK), text);
    }
    return true;
}

/* ---- as bytes ---- */

static void walk_clock(StateWalk *walk, void *element)
{
    WaitClock *const clock = element;

    WALK(walk, clock->table);
    WALK(walk, clock->clock);
}

void waits_walk(StateWalk *walk, SchedulerTask *task)
{
    const size_t n = walk_count(walk, task->waiting->len);

    for (size_t i = 0; i < n; i++) {
        Waiting *it;

        if (walk_reads(walk)) {
            it = g_new0(Waiting, 1);
            it->clocks = g_array_new(FALSE, FALSE, sizeof(WaitClock));
            g_ptr_array_add(task->waiting, it);
        }
        it = task->waiting->pdata[i];
        WALK(walk, it->rank);
        WALK(walk, it->node);
        WALK(walk, it->in_barrier);
        WALK(walk, it->round);
        WALK(walk, it->table);
        WALK(walk, it->needed);
        walk_text(walk, &it->table_name);
        walk_array(walk, it->clocks, walk_clock);
    }
}
