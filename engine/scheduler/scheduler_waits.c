/* Deadlocks: workers of a task wait for one another, so that none of them can ever continue.
 *
 * A worker that has waited for a while reports it (WAITS): what it waits for, its clocks on all
 * tables, which barriers it has passed, and what it has asked for in its sets of workers. A wait is
 * for a clock of a table, in a barrier, or in a collective:
 *
 *     clock k of table t   ends when the clock of every worker that lives has come to k;
 *     barrier r            ends when every worker that lives is in it;
 *     a collective         ends when every worker of its set has asked for it, or by an error, when
 *                          one of them returns or is lost, or the task is cancelled.
 *
 * This file keeps the last report of each worker. Worker a is held by worker b if b waits too and
 * its clock on t is below k; if b has not passed r and does not wait in a barrier; or if b has not
 * asked for the collective (tensor_asked.h), and all workers of a's set wait. A set of workers in
 * which each is held by another of the set, and which has all workers of the sets in whose
 * collectives some of it wait, is a deadlock, whatever all others do.
 *
 * This is certain, although the reports are of different times and some may be old. Suppose that a
 * worker of the set continues after its report. Let w be the first one, and v the worker that holds
 * it. Then v had reached clock k, or barrier r, or asked for the collective, before w continued.
 * Clocks, passed barriers and what was decided only grow, so v had not done so when it made its
 * report. After its report v did not continue, since w is the first. A worker that waits does not
 * clock, does not reach a barrier and asks for nothing, and no other thread may do so for it. This
 * is a contradiction: neither w nor any other worker of the set can continue. Nor can one of them
 * return, by which w's collective would fail, and a worker that is lost has no report any more. The
 * argument does not depend on time, and no message under way can help: v's clock is what v itself
 * knows, not what a server has heard of it. A worker that computes, or waits for anything else
 * (data, room to send, values of a collective that was decided, the program's own locks), reports
 * nothing and holds no worker.
 *
 * Runs as scheduler.h says. */
#include "engine/scheduler/scheduler_waits.h"

#include "engine/collectives/negotiation/tensor_asked.h"
#include "engine/scheduler/scheduler_base.h"
#include "engine/task/wait_text.h"

typedef struct {
    uint32_t rank;
    uint32_t node; /* number */
    ControlWait what;
    uint64_t round; /* number of its present barrier, or else of the next one */
    uint64_t table; /* the table for whose clock it waits */
    uint64_t needed;
    char *table_name;
    GArray *clocks; /* of WaitClock: its own */
    char *told;     /* what it has asked for in its sets of workers, */
    TensorAsked *asked;
    bool is_held; /* used by find_deadlock */
} Waiting;

static void waiting_free(Waiting *waiting)
{
    g_free(waiting->table_name);
    g_array_unref(waiting->clocks);
    tensor_asked_free(waiting->asked);
    g_free(waiting->told);
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
    switch (other->what) {
    case CONTROL_WAIT_BARRIER:
        return one->what != CONTROL_WAIT_BARRIER && one->round <= other->round;
    case CONTROL_WAIT_COLLECTIVE:
        return tensor_asked_holds(one->asked, other->asked);
    default:
        return clock_of(one, other->table) < other->needed;
    }
}

/* Whether nobody can return whose collective it waits in: all members of the set are held. */
static bool all_stay(const SchedulerTask *task, const Waiting *other)
{
    uint32_t n = 0;

    if (other->what != CONTROL_WAIT_COLLECTIVE)
        return true;
    for (guint i = 0; i < task->waiting->len; i++) {
        const Waiting *const one = task->waiting->pdata[i];

        n += one->is_held && tensor_asked_is_member(one->asked, other->asked);
    }
    return n == tensor_asked_n_members(other->asked);
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

            if (one->is_held && (find_holder(task, one) == NULL || !all_stay(task, one))) {
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
    if (held->what == CONTROL_WAIT_BARRIER) {
        g_string_append_printf(text, "in a barrier for worker %u", holder->rank);
    } else if (held->what == CONTROL_WAIT_COLLECTIVE) {
        g_string_append(text, "in ");
        tensor_asked_describe(held->asked, text);
        g_string_append_printf(text, " for worker %u", holder->rank);
    } else {
        g_string_append_printf(
            text,
            "for clock %" G_GUINT64_FORMAT " of table %s, where worker %u is at %" G_GUINT64_FORMAT,
            held->needed, held->table_name, holder->rank, clock_of(holder, held->table));
    }
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
    g_autoptr(TensorAsked) asked = NULL;
    Waiting *waiting;
    const Waiting *deadlocked;

    if (task == NULL)
        return task_is_late(scheduler, told->epoch);
    clocks = wait_text_read(told->own_clocks);
    asked = tensor_asked_read(told->asked);
    if (clocks == NULL || asked == NULL ||
        (told->what == CONTROL_WAIT_COLLECTIVE && !tensor_asked_waits(asked)))
        return false;
    if (task->cause.code != CONTROL_OK)
        return true;
    waiting = g_new(Waiting, 1);
    *waiting = (Waiting){ .rank = told->rank,
                          .node = node,
                          .what = told->what,
                          .round = told->round,
                          .table = told->table,
                          .needed = told->clock,
                          .table_name = g_strdup(told->table_name),
                          .clocks = g_steal_pointer(&clocks),
                          .told = g_strdup(told->asked),
                          .asked = g_steal_pointer(&asked) };
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
        WALK(walk, it->what);
        WALK(walk, it->round);
        WALK(walk, it->table);
        WALK(walk, it->needed);
        walk_text(walk, &it->table_name);
        walk_array(walk, it->clocks, walk_clock);
        walk_text(walk, &it->told);
        if (walk_reads(walk))
            it->asked = tensor_asked_read(it->told);
        walk->is_wrong |= it->asked == NULL ||
                          (it->what == CONTROL_WAIT_COLLECTIVE && !tensor_asked_waits(it->asked));
    }
}
